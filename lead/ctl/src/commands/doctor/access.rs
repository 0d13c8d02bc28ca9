//! The permissions in the team directory: everything is for its user alone, and nothing leads
//! elsewhere.

use teamd_shared::team_dir::{DIR_MODE, FILE_MODE, FOLDERS, FileKind, Found, WORKSPACE_LINK};

use super::finding::Severity::Problem;
use super::finding::{DoctorCheck, Fix};
use super::snapshot::Snapshot;

/// Judges them.
pub(super) fn access(snapshot: &Snapshot, check: &mut DoctorCheck) -> Option<String> {
    for error in &snapshot.unlisted {
        let next = "find out which program put it there, and move it out of the team directory";
        check.problem(error.to_string(), "what needs it fails", next);
    }
    if let Ok(stat) = rustix::fs::fstat(&*snapshot.dir) {
        if stat.st_mode & 0o077 != 0 {
            open(check, "the team directory", stat.st_mode, Fix::Close(None));
        }
        if stat.st_mode & DIR_MODE != DIR_MODE {
            closed(check, "the team directory", stat.st_mode, DIR_MODE);
        }
    }
    let user = nix::unistd::geteuid().as_raw();
    for file in &snapshot.files {
        judge(check, file, user);
    }
    Some(format!(
        "files and folders for this user alone: {}",
        snapshot.files.len()
    ))
}

fn open(check: &mut DoctorCheck, what: &str, mode: u32, fix: Fix) {
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

/// What its own user cannot write also fails for the programs of that user.
fn closed(check: &mut DoctorCheck, what: &str, mode: u32, made_with: u32) {
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

fn judge(check: &mut DoctorCheck, file: &Found, user: u32) {
    const FAILS: &str = "what needs it fails";
    const MOVE: &str = "find out which program put it there, and move it out of the team directory";
    let at = &file.at;
    let top = file.at.folder().is_none();
    let name = at.file_name();
    let is_folder = top && FOLDERS.contains(&name);
    let belongs = match file.kind {
        FileKind::File => !is_folder,
        FileKind::Folder => top || at.folder() == Some("archive"),
        FileKind::Socket => at.folder() == Some("run"),
        FileKind::Link => top && name == WORKSPACE_LINK,
        FileKind::Other => false,
    };
    if file.owner != user {
        let next = format!("as root: `chown {user} {at}` in the team directory, or move it away");
        check.problem(
            format!("{at} belongs to user {}, not to user {user}", file.owner),
            FAILS,
            &next,
        );
    } else if !belongs && file.kind == FileKind::Link {
        let means = "no link inside the team directory is followed: what needs this file fails";
        check.problem(
            format!("{at} is a symbolic link"),
            means,
            "put the file itself in its place",
        );
    } else if !belongs {
        check.problem(format!("{at} is not what belongs there"), FAILS, MOVE);
    } else if matches!(file.kind, FileKind::File | FileKind::Folder) && file.mode & 0o077 != 0 {
        open(
            check,
            &at.to_string(),
            file.mode,
            Fix::Close(Some(at.clone())),
        );
    } else if is_folder && file.mode & DIR_MODE != DIR_MODE {
        closed(check, &at.to_string(), file.mode, DIR_MODE);
    } else if at.folder() == Some("inbox") && belongs && file.mode & FILE_MODE != FILE_MODE {
        closed(check, &at.to_string(), file.mode, FILE_MODE);
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::tests::summaries;
    use super::*;
    use teamd_shared::team_dir::TeamPath;

    #[test]
    fn what_is_not_for_the_user_alone_is_judged() {
        let usual = Found {
            at: TeamPath::journal(),
            kind: FileKind::File,
            mode: 0o600,
            owner: 7,
            identity: (1, 2),
        };
        let judged = |file: Found| {
            let summaries = summaries(|check| {
                judge(check, &file, 7);
                None
            });
            summaries
                .into_iter()
                .map(|(_, what)| what)
                .collect::<String>()
        };
        assert_eq!(judged(usual.clone()), "");
        let other = judged(Found {
            owner: 8,
            ..usual.clone()
        });
        assert_eq!(other, "journal.jsonl belongs to user 8, not to user 7");
        assert!(
            judged(Found {
                mode: 0o644,
                ..usual.clone()
            })
            .contains("has mode 0644: other users")
        );
        assert_eq!(
            judged(Found {
                kind: FileKind::Link,
                ..usual.clone()
            }),
            "journal.jsonl is a symbolic link"
        );
        let odd = judged(Found {
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
        assert!(judged(closed).contains("has mode 0400: its own user"));
        let socket = Found {
            at: TeamPath::socket(),
            kind: FileKind::Socket,
            mode: 0o755,
            ..usual
        };
        assert_eq!(judged(socket), "");
    }
}
