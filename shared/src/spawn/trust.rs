//! Trust: which keys of a `team.toml` count although they widen what a team may do.
//!
//! The file may have come with a repository, or from a tool. So such keys count only when the user
//! has trusted them: these keys with these values, of this file. The store has a file
//! `trust/HASH.json` for each `team.toml`, by its path, in the state directory ([`crate::state`]
//! says who writes it and who reads it). It holds the keys themselves and no hash of them: nothing
//! else can be made to look like them, and a person can see what was trusted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::effects::{KeyEffects, Narrowing};
use crate::state::{StateDir, StateError};
use crate::team_file::TeamFile;
use crate::user_dirs::name_of;

/// The folder of the store.
const FOLDER: &str = "trust";

/// Where a file is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct FilePath {
    /// Where it is named, without links on the way to it.
    #[serde(rename = "path")]
    named: PathBuf,
    /// Where it lies: the two differ where it is a link itself.
    real: PathBuf,
}

/// An entry of the store.
#[derive(Debug, Serialize, Deserialize)]
struct TrustEntry {
    /// The file.
    #[serde(flatten)]
    path: FilePath,
    /// What was trusted: one line for each key, or for each value of a list.
    keys: BTreeSet<String>,
    /// What narrowed the team at that time: without it, the trusted keys would allow more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    narrowing: Vec<Narrowing>,
}

/// The keys of a file that need trust, and those that narrow what the others may do.
#[derive(Debug, Clone, PartialEq)]
pub struct Widening {
    /// The file; none where there is none.
    path: Option<FilePath>,
    /// One line for each, `key = value`, with absolute paths.
    keys: BTreeSet<String>,
    /// Those that narrow.
    narrowing: Vec<Narrowing>,
}

impl Widening {
    /// Finds them.
    ///
    /// # Errors
    /// [`StateError`] if the file is gone.
    pub fn of(file: &TeamFile) -> Result<Self, StateError> {
        let KeyEffects {
            widening: keys,
            narrowing,
            ..
        } = file.effects();
        let path = if keys.is_empty() && file.path.as_os_str().is_empty() {
            None
        } else {
            // A command can put a link to a trusted file in the place of this one: both paths count.
            Some(FilePath {
                named: real_name(&file.path)?,
                real: canonical(&file.path)?,
            })
        };
        Ok(Self {
            path,
            keys,
            narrowing,
        })
    }

    /// As [`Widening::of`], for a file that is not there: it may have been trusted.
    ///
    /// # Errors
    /// [`StateError`] if its directory cannot be found.
    pub fn of_missing(path: &Path) -> Result<Self, StateError> {
        let named = real_name(path)?;
        Ok(Self {
            path: Some(FilePath {
                real: named.clone(),
                named,
            }),
            keys: BTreeSet::new(),
            narrowing: Vec::new(),
        })
    }

    /// Returns the file, without links; none if there is none.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_ref().map(|path| path.named.as_path())
    }

    /// Returns the keys, one line each.
    pub fn keys(&self) -> &BTreeSet<String> {
        &self.keys
    }

    /// Returns those that the user has not trusted.
    ///
    /// # Errors
    /// [`StateError`] if the store cannot be read: then none is trusted.
    pub fn untrusted(&self, state: &StateDir) -> Result<Vec<String>, StateError> {
        if self.keys.is_empty() {
            return Ok(Vec::new());
        }
        let trusted = self.trusted(state)?;
        Ok(self.keys.difference(&trusted).cloned().collect())
    }

    /// Returns the keys of this file that the user has trusted, whether they are still in it or
    /// not.
    ///
    /// # Errors
    /// [`StateError`] if the store cannot be read.
    pub fn trusted(&self, state: &StateDir) -> Result<BTreeSet<String>, StateError> {
        Ok(self
            .entry(state)?
            .map(|entry| entry.keys)
            .unwrap_or_default())
    }

    /// Returns what narrowed the team when the user trusted the file and no longer does, or narrows
    /// less: one line each.
    ///
    /// # Errors
    /// [`StateError`] if the store cannot be read.
    pub fn gone(&self, state: &StateDir) -> Result<Vec<String>, StateError> {
        let before = self
            .entry(state)?
            .map(|entry| entry.narrowing)
            .unwrap_or_default();
        let gone = before
            .iter()
            .filter(|before| !self.narrowing.iter().any(|now| before.is_kept_by(now)))
            .map(|it| format!("{} = {}", it.key, it.value));
        Ok(gone.collect::<BTreeSet<_>>().into_iter().collect())
    }

    fn entry(&self, state: &StateDir) -> Result<Option<TrustEntry>, StateError> {
        let Some(path) = &self.path else {
            return Ok(None);
        };
        let entry = state.read::<TrustEntry>(FOLDER, &name(path))?;
        Ok(entry.filter(|entry| entry.path == *path))
    }

    /// Trusts them, and nothing else of this file.
    ///
    /// # Errors
    /// [`StateError`] if the store cannot be written.
    pub fn trust(&self, state: &StateDir) -> Result<(), StateError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let entry = TrustEntry {
            path: path.clone(),
            keys: self.keys.clone(),
            narrowing: self.narrowing.clone(),
        };
        state.put(FOLDER, &name(path), &entry)
    }

    /// Takes back what was trusted of this file; tells whether anything was.
    ///
    /// # Errors
    /// [`StateError`] if the store cannot be written.
    pub fn revoke(&self, state: &StateDir) -> Result<bool, StateError> {
        let Some(path) = &self.path else {
            return Ok(false);
        };
        state.remove(FOLDER, &name(path))
    }
}

/// Returns the name of the entry of a file.
fn name(path: &FilePath) -> String {
    format!("{}.json", name_of(&path.named))
}

/// Returns where a file is named, without links on the way to it.
fn real_name(path: &Path) -> Result<PathBuf, StateError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    Ok(canonical(folder)?.join(path.file_name().unwrap_or_default()))
}

fn canonical(path: &Path) -> Result<PathBuf, StateError> {
    path.canonicalize().map_err(StateError::io("find", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(scratch: &Path, text: &str) -> TeamFile {
        let path = scratch.join("team.toml");
        std::io::Write::write_all(&mut std::fs::File::create(&path).unwrap(), text.as_bytes())
            .unwrap();
        TeamFile::load(&path, &|name| {
            (name == "HOME").then(|| "/home/u".to_owned())
        })
        .unwrap()
    }

    fn of(file: &TeamFile) -> Widening {
        Widening::of(file).unwrap()
    }

    #[test]
    fn keys_widen_that_let_more_be_done_than_the_level_above_or_take_the_person_out() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("web")).unwrap();
        std::os::unix::fs::symlink("/usr", root.join("link")).unwrap();
        let narrow = "model = 'script'\nplan = true\nsandbox.caches = false\nsandbox.mode = 'read-only'\nsandbox.network = false\n\
            [service]\nca = 'platform'\n[members.alice]\nworkspace = 'web'\napprove_by = 'person'\n\
            [members.bob]\nworkspace = 'later/web'\n";
        assert!(of(&file(&root, narrow)).keys.is_empty());
        let wide = "approve_by = 'lead'\n[service]\nca = 'mine.pem'\n[sandbox]\nmode = 'off'\nnetwork = true\n\
            writable = ['~/.cargo', 'cache']\nenv = ['GH_TOKEN']\ncaches = true\n\
            ['roles']\n'a b'.sandbox = {mode = 'off', network = ['x.org']}\n\
            [members.alice]\nworkspace = 'link'\nsandbox.network = true\nsandbox.ports = [22]\n[members.bob]\nworkspace = 'x/../../y'\n\
            [lead]\nsandbox.mode = 'workspace-write'\n";
        let file = file(&root, wide);
        let keys: Vec<String> = of(&file).keys.into_iter().collect();
        let at = |path: &str| root.join(path).display().to_string();
        let expected = [
            "approve_by = \"lead\"".to_owned(),
            "members.alice.sandbox.network = true".to_owned(),
            "members.alice.sandbox.ports = 22".to_owned(),
            "members.alice.workspace = \"/usr\"".to_owned(),
            format!("members.bob.workspace = {:?}", at("x/../../y")),
            "roles.\"a b\".sandbox.mode = \"off\"".to_owned(),
            "roles.\"a b\".sandbox.network = \"x.org\"".to_owned(),
            "sandbox.caches = true".to_owned(),
            "sandbox.env = \"GH_TOKEN\"".to_owned(),
            "sandbox.mode = \"off\"".to_owned(),
            "sandbox.writable = \"/home/u/.cargo\"".to_owned(),
            format!("sandbox.writable = {:?}", at("cache")),
            format!("service.ca = {:?}", at("mine.pem")),
        ];
        assert_eq!(keys, expected);
    }

    #[test]
    fn a_key_widens_or_narrows_by_its_value_and_by_what_holds_without_it() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        for (text, widening, narrowing) in [
            (
                "plan = true\n[members.a]\nplan = false",
                "members.a.plan = false",
                "plan = true",
            ),
            (
                "permissions = 'ask'\n[lead]\npermissions = 'allow'",
                "lead.permissions = \"allow\"",
                "permissions = \"ask\"",
            ),
            (
                "[roles.r]\ncheckout = true\n[members.a]\ncheckout = false",
                "members.a.checkout = false",
                "roles.\"r\".checkout = true",
            ),
            ("max_turns = 50", "", "max_turns = 50"),
            ("max_turns = 51", "max_turns = 51", ""),
            (
                "max_cost = 2.5\n[members.a]\nmax_cost = 3",
                "members.a.max_cost = 3",
                "max_cost = 2.5",
            ),
            (
                "memory = '1G'\n[roles.r]\nmemory = '512M'",
                "",
                "memory = 1073741824, roles.\"r\".memory = 536870912",
            ),
            (
                "approve_by = 'lead'\n[members.a]\napprove_by = 'person'",
                "approve_by = \"lead\"",
                "members.a.approve_by = \"person\"",
            ),
            ("cgroup = 'off'", "cgroup = \"off\"", ""),
            (
                "sandbox = {network = false, mode = 'read-only', hidden = ['/x']}",
                "",
                "sandbox.hidden = \"/x\", sandbox.mode = \"read-only\", sandbox.network = false",
            ),
            (
                "sandbox.network = ['x.org']",
                "sandbox.network = \"x.org\"",
                "sandbox.network = only the hosts of a list",
            ),
            (
                "[work]\ncheck = 'make'\nprotect = ['tests/**']",
                "work.check = \"make\"",
                "work.check = \"make\", work.protect = \"tests/**\"",
            ),
            (
                "[work]\nprotect_review = 'lead'\ncache = ['target']\ncheck_timeout = '1h'",
                "work.cache = \"target\", work.check_timeout = 3600, work.protect_review = \"lead\"",
                "",
            ),
            (
                "[checkout]\nalways = true\ncopy = ['.env']\nsetup = 'x'",
                "checkout.copy = \".env\", checkout.setup = \"x\"",
                "checkout = true, checkout.always = true",
            ),
            (
                "model = 'openai:x'\ngrace = 1\nrestart_max = 9\nauto_start = false\n[service]\ntimeout = 9",
                "",
                "",
            ),
        ] {
            let of = of(&file(&root, text));
            let keys: Vec<_> = of.keys.into_iter().collect();
            let mut narrows: Vec<_> = of
                .narrowing
                .iter()
                .map(|it| format!("{} = {}", it.key, it.value))
                .collect();
            narrows.sort();
            assert_eq!(
                (keys.join(", ").as_str(), narrows.join(", ").as_str()),
                (widening, narrowing),
                "{text}"
            );
        }
    }

    #[test]
    fn what_narrows_less_than_when_it_was_trusted_is_known() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let state = StateDir::of_home(&root);
        let text = "max_turns = 9\nsandbox.network = ['x.org']\n[work]\nprotect = ['a', 'b']\n";
        of(&file(&root, text)).trust(&state).unwrap();
        for (now, gone) in [
            (text, ""),
            (
                "max_turns = 8\nsandbox.network = false\n[work]\nprotect = ['c', 'b', 'a']\n",
                "",
            ),
            (
                "max_turns = 10\nsandbox.network = false\n[work]\nprotect = ['a', 'b']\n",
                "max_turns = 9",
            ),
            (
                "max_turns = 9\n[work]\nprotect = ['a']\n",
                "sandbox.network = only the hosts of a list, work.protect = \"b\"",
            ),
            (
                "",
                "max_turns = 9, sandbox.network = only the hosts of a list, work.protect = \"a\", work.protect = \"b\"",
            ),
        ] {
            let known = of(&file(&root, now)).gone(&state).unwrap();
            assert_eq!(known.join(", "), gone, "{now}");
        }
        std::fs::remove_file(root.join("team.toml")).unwrap();
        let missing = Widening::of_missing(&root.join("team.toml")).unwrap();
        assert_eq!(missing.gone(&state).unwrap().len(), 4);
    }

    #[test]
    fn a_level_that_is_wider_than_a_stricter_one_above_widens() {
        let scratch = tempfile::tempdir().unwrap();
        let text = "sandbox.mode = 'read-only'\n[roles.coder]\nsandbox.mode = 'workspace-write'\n";
        let keys = of(&file(scratch.path(), text)).keys;
        assert_eq!(
            keys.into_iter().collect::<Vec<_>>(),
            ["roles.\"coder\".sandbox.mode = \"workspace-write\""]
        );
    }

    #[test]
    fn what_was_trusted_is_trusted_until_it_says_more_or_is_taken_back() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let state = StateDir::of_home(&root);
        let one = of(&file(&root, "sandbox.writable = ['/a', '/b']"));
        assert_eq!(one.untrusted(&state).unwrap().len(), 2);
        one.trust(&state).unwrap();
        assert_eq!(one.untrusted(&state).unwrap(), [""; 0]);
        let less = of(&file(
            &root,
            "# a comment\nmodel = 'script'\nsandbox.writable = ['/b']",
        ));
        assert_eq!(
            less.untrusted(&state).unwrap(),
            [""; 0],
            "less needs no new trust"
        );
        let more = of(&file(&root, "sandbox.writable = ['/b', '/c']"));
        assert_eq!(
            more.untrusted(&state).unwrap(),
            ["sandbox.writable = \"/c\""]
        );
        // It means the same when it has been made.
        let later = || of(&file(&root.join("sub/a"), "checkouts = '../clones'"));
        std::fs::create_dir_all(root.join("sub/a")).unwrap();
        later().trust(&state).unwrap();
        std::fs::create_dir(root.join("sub/clones")).unwrap();
        assert_eq!(later().untrusted(&state).unwrap(), [""; 0]);
        std::fs::remove_dir(root.join("sub/clones")).unwrap();
        std::os::unix::fs::symlink("/", root.join("sub/clones")).unwrap();
        assert_eq!(
            later().untrusted(&state).unwrap(),
            ["checkouts = \"/\""],
            "it leads elsewhere"
        );
        // The same words elsewhere, and by a link.
        let elsewhere = of(&file(&root.join("sub"), "sandbox.writable = ['/a']"));
        assert_eq!(elsewhere.untrusted(&state).unwrap().len(), 1);
        assert!(one.revoke(&state).unwrap() && !one.revoke(&state).unwrap());
        assert_eq!(one.untrusted(&state).unwrap().len(), 2);
    }
}
