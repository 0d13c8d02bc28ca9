//! The permissions in the team directory: everything is for its user alone, and nothing leads
//! elsewhere.

use teamd_shared::team_dir::{DIR_MODE, FILE_MODE, FOLDERS, FileKind, Found, WORKSPACE_LINK};

use super::finding::Severity::Problem;
use super::finding::{Check, Fix};
use super::seen::Seen;

/// Judges them.
pub(super) fn access(seen: &Seen, check: &mut Check) -> Option<String> {
    for error in &seen.unlisted {
        let next = "find out which program put it there, and move it out of the team directory";
        check.problem(error.to_string(), "what needs it fails", next);
    }
    if let Ok(stat) = rustix::fs::fstat(&*seen.dir) {
        if stat.st_mode & 0o077 != 0 {
            open(check, "the team directory", stat.st_mode, Fix::Close(None));
        }
        if stat.st_mode & DIR_MODE != DIR_MODE {
            closed(check, "the team directory", stat.st_mode, DIR_MODE);
        }
    }
    let user = nix::unistd::geteuid().as_raw();
    for found in &seen.files {
        judge(check, found, user);
    }
    Some(format!(
        "files and folders for this user alone: {}",
        seen.files.len()
    ))
}

fn open(check: &mut Check, what: &str, mode: u32, fix: Fix) {
    let what = format!(
        "{what} has mode {:04o}: other users may use it",
        mode & 0o7777
    );
    check.fixable(
        Problem,
        what,
        "a user who can write there can command every teammate",
        fix,
    );
}

/// What its own user cannot write fails for the programs of that user, too.
fn closed(check: &mut Check, what: &str, mode: u32, made_with: u32) {
    let what = format!(
        "{what} has mode {:04o}: its own user cannot use it",
        mode & 0o7777
    );
    let next = format!("`chmod {made_with:03o}` gives it the mode that it was made with");
    check.problem(
        what,
        "messages cannot be appended, and records cannot be written",
        &next,
    );
}

fn judge(check: &mut Check, found: &Found, user: u32) {
    const FAILS: &str = "what needs it fails";
    const MOVE: &str = "find out which program put it there, and move it out of the team directory";
    let at = &found.at;
    let top = found.at.folder().is_none();
    let file = found.at.file_name();
    let is_folder = top && FOLDERS.contains(&file);
    let belongs = match found.kind {
        FileKind::File => !is_folder,
        FileKind::Folder => top || at.folder() == Some("archive"),
        FileKind::Socket => at.folder() == Some("run"),
        FileKind::Link => top && file == WORKSPACE_LINK,
        FileKind::Other => false,
    };
    if found.owner != user {
        let next = format!("as root: `chown {user} {at}` in the team directory, or move it away");
        check.problem(
            format!("{at} belongs to user {}, not to user {user}", found.owner),
            FAILS,
            &next,
        );
    } else if !belongs && found.kind == FileKind::Link {
        let means = "no link inside the team directory is followed: what needs this file fails";
        check.problem(
            format!("{at} is a symbolic link"),
            means,
            "put the file itself in its place",
        );
    } else if !belongs {
        check.problem(format!("{at} is not what belongs there"), FAILS, MOVE);
    } else if matches!(found.kind, FileKind::File | FileKind::Folder) && found.mode & 0o077 != 0 {
        open(
            check,
            &at.to_string(),
            found.mode,
            Fix::Close(Some(at.clone())),
        );
    } else if is_folder && found.mode & DIR_MODE != DIR_MODE {
        closed(check, &at.to_string(), found.mode, DIR_MODE);
    } else if at.folder() == Some("inbox") && belongs && found.mode & FILE_MODE != FILE_MODE {
        closed(check, &at.to_string(), found.mode, FILE_MODE);
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::tests::told;
    use super::*;
    use teamd_shared::team_dir::TeamPath;

    #[test]
    fn what_is_not_for_the_user_alone_is_said() {
        let usual = Found {
            at: TeamPath::journal(),
            kind: FileKind::File,
            mode: 0o600,
            owner: 7,
            identity: (1, 2),
        };
        let said = |found: Found| {
            let told = told(|check| {
                judge(check, &found, 7);
                None
            });
            told.into_iter().map(|(_, what)| what).collect::<String>()
        };
        assert_eq!(said(usual.clone()), "");
        let other = said(Found {
            owner: 8,
            ..usual.clone()
        });
        assert_eq!(other, "journal.jsonl belongs to user 8, not to user 7");
        assert!(
            said(Found {
                mode: 0o644,
                ..usual.clone()
            })
            .contains("has mode 0644: other users")
        );
        assert_eq!(
            said(Found {
                kind: FileKind::Link,
                ..usual.clone()
            }),
            "journal.jsonl is a symbolic link"
        );
        let odd = said(Found {
            kind: FileKind::Other,
            ..usual.clone()
        });
        assert_eq!(odd, "journal.jsonl is not what belongs there");
        let name = teamd_shared::name::Name::lead();
        let closed = Found {
            at: TeamPath::inbox(&name),
            mode: 0o400,
            ..usual.clone()
        };
        assert!(said(closed).contains("has mode 0400: its own user"));
        let socket = Found {
            at: TeamPath::socket(),
            kind: FileKind::Socket,
            mode: 0o755,
            ..usual
        };
        assert_eq!(said(socket), "");
    }
}
