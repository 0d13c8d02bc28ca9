//! How what is typed in a chat is completed: commands, names of teammates, ids of plans, paths.

use std::path::PathBuf;

use teamd_shared::team_dir::TeamDir;

use super::commands::{self, Takes};
use teamd_client::read::{requests, roster};

/// The names that a team knows.
#[derive(Debug, Default)]
pub(in crate::chat) struct Names {
    members: Vec<String>,
    /// The ids of the plans that are pending.
    plans: Vec<String>,
}

impl Names {
    /// Reads them. What cannot be read completes nothing.
    pub(in crate::chat) fn of(dir: &TeamDir) -> Self {
        let members = roster::load(dir)
            .map(|roster| roster.members)
            .unwrap_or_default();
        let requests = requests::recent(dir).unwrap_or_default();
        Self {
            members: members
                .iter()
                .map(|member| member.name.to_string())
                .collect(),
            plans: requests
                .iter()
                .filter(|it| it.is_pending())
                .map(|it| it.request_id.to_string())
                .collect(),
        }
    }
}

/// Returns where the word begins that is completed, and what it can become.
pub(in crate::chat) fn completions(
    typed: &str,
    names: impl FnOnce() -> Names,
) -> (usize, Vec<String>) {
    let start = typed.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let word = &typed[start..];
    if start == 0 && word.starts_with('/') {
        return (
            0,
            commands::completions(word)
                .into_iter()
                .map(str::to_owned)
                .collect(),
        );
    }
    if let Some(path) = word.strip_prefix('@') {
        return paths(path, start + 1);
    }
    if let Some(command) = typed.strip_prefix('!') {
        return paths(
            command
                .rsplit(char::is_whitespace)
                .next()
                .unwrap_or_default(),
            start.max(1),
        );
    }
    let words: Vec<&str> = typed[..start].split_whitespace().collect();
    let candidates = match words.as_slice() {
        [command] => match commands::takes(command) {
            Some(Takes::Name) => names().members,
            Some(Takes::Id) => names().plans,
            None => Vec::new(),
        },
        _ => Vec::new(),
    };
    (
        start,
        candidates
            .into_iter()
            .filter(|name| name.starts_with(word))
            .collect(),
    )
}

/// Completes a path that begins at `start`. A hidden file has to be asked for by its dot.
fn paths(path: &str, start: usize) -> (usize, Vec<String>) {
    let at = path.rfind('/').map_or(0, |at| at + 1);
    let (folder, begun) = path.split_at(at);
    let entries = std::fs::read_dir(looked_into(folder));
    let names = entries.into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_meant =
            name.starts_with(begun) && (begun.starts_with('.') || !name.starts_with('.'));
        let end = if entry.path().is_dir() { "/" } else { "" };
        is_meant.then(|| format!("{name}{end}"))
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    (start + at, names)
}

/// Returns the folder that is meant by the beginning of a path.
fn looked_into(folder: &str) -> PathBuf {
    if folder.is_empty() {
        return PathBuf::from(".");
    }
    match (folder.strip_prefix("~/"), std::env::home_dir()) {
        (Some(below), Some(home)) => home.join(below),
        _ => PathBuf::from(folder),
    }
}

/// Returns what all texts begin with.
pub(in crate::chat) fn common_beginning(texts: &[String]) -> &str {
    let Some((first, others)) = texts.split_first() else {
        return "";
    };
    let mut common = 0;
    for (at, character) in first.char_indices() {
        let end = at + character.len_utf8();
        if !others.iter().all(|other| other.starts_with(&first[..end])) {
            break;
        }
        common = end;
    }
    &first[..common]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(typed: &str) -> (usize, Vec<String>) {
        completions(typed, || Names {
            members: ["alice", "albert", "lead"].map(str::to_owned).to_vec(),
            plans: vec!["971e6f84".to_owned()],
        })
    }

    #[test]
    fn what_is_certain_is_what_all_begin_with() {
        let common = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
            common_beginning(&texts).to_owned()
        };
        assert_eq!(common(&["status", "stats", "stay"]), "sta");
        assert_eq!(common(&["é1", "é2"]), "é");
        assert_eq!(common(&["a", "b"]), "");
        assert_eq!(common(&[]), "");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test writes plain files")]
    fn commands_names_ids_and_paths_are_completed() {
        assert_eq!(completed("/shu"), (0, vec!["/shutdown".to_owned()]));
        assert_eq!(
            completed("/shutdown al"),
            (10, vec!["alice".to_owned(), "albert".to_owned()])
        );
        assert_eq!(
            completed("/attach "),
            (8, ["alice", "albert", "lead"].map(str::to_owned).to_vec())
        );
        assert_eq!(completed("/approve 9"), (9, vec!["971e6f84".to_owned()]));
        assert_eq!(completed("/shutdown alice al").1, Vec::<String>::new());
        assert_eq!(completed("hello al").1, Vec::<String>::new());
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("a-file"), "").unwrap();
        std::fs::create_dir(scratch.path().join("b-folder")).unwrap();
        std::fs::write(scratch.path().join(".hidden"), "").unwrap();
        let all = completed(&format!("see @{}/", scratch.path().display())).1;
        assert_eq!(all, ["a-file", "b-folder/"]);
        let path = format!("{}/a-f", scratch.path().display());
        for before in ["see @", "!cat "] {
            let (start, found) = completed(&format!("{before}{path}"));
            assert_eq!(
                format!("{}{}", &format!("{before}{path}")[..start], found[0]),
                format!("{before}{path}ile")
            );
        }
    }
}
