//! What is known of the agents of others: where each is to be had, which versions work, and what it
//! needs.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use serde_json::Value;
use teamd_shared::environment::{CLAUDE_TOKEN, Environment};
use teamd_shared::terms::{Login, Protocol, Published, Version};

/// An agent of others.
pub struct KnownAgent {
    /// The package that it comes in, and the versions that work.
    pub published: Published,
    /// What it needs, in words, and the variables of which it needs one.
    pub needs: &'static str,
    keys: &'static [&'static str],
    /// The variables that choose a service whose requests the agent itself must sign.
    pub(crate) signs: &'static [&'static str],
    /// How much memory a teammate takes with it, in MB.
    pub memory: u32,
}

impl KnownAgent {
    /// Returns the one of this name and protocol; none if that is a program of the user's own.
    pub fn of(name: &str, protocol: Protocol) -> Option<Self> {
        let published = Published::of(name, protocol)?;
        Some(match protocol {
            Protocol::Run => return None,
            Protocol::Acp if name == "gemini" => Self {
                published,
                needs: "GEMINI_API_KEY",
                keys: &["GEMINI_API_KEY"],
                signs: &["GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA"],
                memory: 330,
            },
            Protocol::Acp => Self {
                published,
                needs: "OPENAI_API_KEY or ANTHROPIC_API_KEY",
                keys: &["ANTHROPIC_API_KEY", "OPENAI_API_KEY"],
                signs: &[],
                memory: 700,
            },
            Protocol::Claude => Self {
                published,
                needs: "ANTHROPIC_API_KEY, or ANTHROPIC_AUTH_TOKEN for a gateway",
                keys: &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"],
                signs: &[
                    "CLAUDE_CODE_USE_BEDROCK",
                    "CLAUDE_CODE_USE_VERTEX",
                    "CLAUDE_CODE_USE_FOUNDRY",
                ],
                memory: 220,
            },
            Protocol::Codex => Self {
                published,
                needs: "OPENAI_API_KEY",
                keys: &["OPENAI_API_KEY"],
                signs: &[],
                memory: 115,
            },
        })
    }

    /// Tells whether it has a key that it needs, or the token with which it logs in.
    pub fn has_key(&self, login: Login, environment: &Environment) -> bool {
        if login.is_token() {
            return environment.value(CLAUDE_TOKEN).is_some();
        }
        self.keys.iter().any(|key| environment.value(key).is_some())
    }

    /// Finds the version of a program in the description of its package, where npm has put it
    /// there. Nothing is run: that would take longer than all else that a spawn does.
    pub fn version(&self, program: &Path) -> Option<Version> {
        let program = program.canonicalize().ok()?;
        program.ancestors().skip(1).take(5).find_map(|folder| {
            let text = read_description(&folder.join("package.json"))?;
            let package: Value = serde_json::from_slice(&text).ok()?;
            let is_it = package["name"]
                .as_str()
                .is_some_and(|name| name.starts_with(self.published.package));
            if is_it {
                package["version"].as_str().and_then(Version::read)
            } else {
                None
            }
        })
    }
}

/// The most bytes that the description of a package has.
const MAX_DESCRIPTION: u64 = 1024 * 1024;

/// Reads the description of a package, unless it is not a regular file or is too long: a tool can
/// have made what lies there, and daemons read it.
fn read_description(path: &Path) -> Option<Vec<u8>> {
    // Opening a FIFO must not block.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let file = File::from(file);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_DESCRIPTION + 1)
        .read_to_end(&mut bytes)
        .ok()?;
    (bytes.len() as u64 <= MAX_DESCRIPTION).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_beside_the_program_and_only_of_its_own_package() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("node_modules/@openai/codex/bin");
        std::fs::create_dir_all(&folder).unwrap();
        let put = |path: &Path, text: &str| {
            std::io::Write::write_all(&mut File::create(path).unwrap(), text.as_bytes()).unwrap();
        };
        put(&folder.join("codex.js"), "");
        std::os::unix::fs::symlink(folder.join("codex.js"), scratch.path().join("codex")).unwrap();
        let codex = KnownAgent::of("codex", Protocol::Codex).unwrap();
        let version = || codex.version(&scratch.path().join("codex"));
        assert_eq!(version(), None);
        let description = folder.with_file_name("package.json");
        for (text, expected) in [
            (
                r#"{"name": "@openai/codex", "version": "0.169.0"}"#,
                Some(Version([0, 169, 0])),
            ),
            (
                r#"{"name": "@openai/codex", "version": "0.170.1-linux-x64"}"#,
                Some(Version([0, 170, 1])),
            ),
            (r#"{"name": "@openai/codex", "version": "0.170"}"#, None),
            (r#"{"name": "other", "version": "0.169.0"}"#, None),
            ("{", None),
        ] {
            put(&description, text);
            assert_eq!(version(), expected, "{text}");
        }
        let begin = r#"{"name": "@openai/codex", "version": "0.169.0"}"#;
        let room = usize::try_from(MAX_DESCRIPTION).unwrap() - begin.len();
        put(&description, &format!("{begin}{}", " ".repeat(room)));
        assert_eq!(version(), Some(Version([0, 169, 0])));
        put(&description, &format!("{begin}{}", " ".repeat(room + 1)));
        assert_eq!(version(), None, "it is too long");
        std::fs::remove_file(&description).unwrap();
        nix::unistd::mkfifo(&description, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(version(), None, "it is a FIFO");
    }
}
