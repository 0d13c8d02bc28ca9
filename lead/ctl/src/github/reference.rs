//! What is meant on GitHub: `gh:OWNER/REPO`, `gh:OWNER/REPO#12`.

use std::fmt;

use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;

/// What a reference begins with.
pub(crate) const PREFIX: &str = "gh:";

/// The longest names that GitHub gives.
const LONGEST_OWNER: usize = 39;
const LONGEST_NAME: usize = 100;

/// A repository. GitHub does not tell names apart that differ by case alone, so they are in lower
/// case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repository {
    owner: String,
    name: String,
}

impl Repository {
    /// Reads `OWNER/REPO`; none if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (owner, name) = text.split_once('/')?;
        let is_owner = !owner.is_empty()
            && owner.len() <= LONGEST_OWNER
            && !owner.starts_with('-')
            && owner
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let is_name = !name.is_empty()
            && name.len() <= LONGEST_NAME
            && name != "."
            && name != ".."
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        (is_owner && is_name).then(|| Self {
            owner: owner.to_ascii_lowercase(),
            name: name.to_ascii_lowercase(),
        })
    }

    /// Reads the repository that the URL of a remote names, as `git` takes it; none for a place on
    /// another host.
    pub(crate) fn of_remote(url: &str, host: &str) -> Option<Self> {
        let (at, path) = match url.split_once("://") {
            Some((_, rest)) => rest.split_once('/')?,
            // As `scp` writes it.
            None => url.split_once(':')?,
        };
        let at = at.rsplit_once('@').map_or(at, |(_, at)| at);
        let at = at.split_once(':').map_or(at, |(at, _)| at);
        if !at.eq_ignore_ascii_case(host) {
            return None;
        }
        let path = path.trim_matches('/');
        Self::parse(path.strip_suffix(".git").unwrap_or(path))
    }

    /// Returns who owns it.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

/// A repository, or an issue or pull request of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) repository: Repository,
    pub(crate) number: Option<u32>,
}

impl Reference {
    /// Reads a reference.
    ///
    /// # Errors
    /// [`ExitCode::Usage`] for another text.
    pub(crate) fn parse(text: &str) -> Result<Self, CommandError> {
        Self::read(text).ok_or_else(|| {
            CommandError::new(ExitCode::Usage, format!("{text:?} names nothing on GitHub"))
                .hint("write gh:OWNER/REPO#12, or gh:OWNER/REPO with `--label NAME`")
        })
    }

    fn read(text: &str) -> Option<Self> {
        let text = text.strip_prefix(PREFIX)?;
        let (repository, number) = match text.split_once('#') {
            None => (text, None),
            Some((repository, number)) => {
                let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
                let number = number
                    .parse()
                    .ok()
                    .filter(|number| *number > 0 && is_plain)?;
                (repository, Some(number))
            }
        };
        let repository = Repository::parse(repository)?;
        Some(Self { repository, number })
    }
}

/// Names an issue or pull request, as the journal does.
pub(crate) fn source_of(repository: &Repository, number: u32) -> String {
    format!("{PREFIX}{repository}#{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_read_in_one_spelling_and_what_is_none_is_refused() {
        let issue = Reference::parse("gh:Acme/Web.js#12").unwrap();
        assert_eq!(
            (issue.repository.to_string().as_str(), issue.number),
            ("acme/web.js", Some(12))
        );
        assert_eq!(source_of(&issue.repository, 12), "gh:acme/web.js#12");
        assert_eq!(Reference::parse("gh:a/b").unwrap().number, None);
        for wrong in [
            "gh:",
            "gh:a",
            "gh:a/b#",
            "gh:a/b#0",
            "gh:a/b#+1",
            "gh:a/b#1x",
            "gh:a/b/c",
            "gh:-a/b",
            "gh:a/..",
            "gh:a/b c#1",
            "gh:a/b#99999999999",
            "a/b#1",
            "gh:--web/b",
        ] {
            assert!(Reference::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_url_of_a_remote_names_its_repository() {
        for url in [
            "https://github.com/Acme/web.git",
            "https://user@github.com/acme/web/",
            "ssh://git@github.com:22/acme/web.git",
            "git@github.com:acme/web.git",
        ] {
            let found = Repository::of_remote(url, "github.com").unwrap();
            assert_eq!(found.to_string(), "acme/web", "{url}");
        }
        for url in [
            "/srv/git/web.git",
            "../web.git",
            "file:///acme/web.git",
            "https://gitlab.com/acme/web.git",
            "https://github.com@evil.example/acme/web",
            "",
        ] {
            assert_eq!(Repository::of_remote(url, "github.com"), None, "{url}");
        }
    }
}
