//! Who may do what in the team directory: everything is the user's alone, and nothing leads elsewhere.

use teamd_shared::team_dir::{FOLDERS, Found, Kind, WORKSPACE_LINK};

use super::finding::{Finding, Fix};
use super::seen::Seen;

const CHECK: &str = "access";

/// Judges it.
pub(super) fn judge(seen: &Seen) -> Vec<Finding> {
    let mut findings: Vec<Finding> = seen
        .unlisted
        .iter()
        .map(|error| {
            Finding::problem(CHECK, error.to_string())
                .means("whatever uses it fails")
                .next("find out who put it there, and move it out of the team directory")
        })
        .collect();
    findings.extend(root(seen));
    let user = nix::unistd::geteuid().as_raw();
    findings.extend(seen.files.iter().filter_map(|found| of(found, user)));
    if findings.is_empty() {
        findings
            .push(Finding::ok(CHECK, format!("{} files and folders, for this user alone", seen.files.len())));
    }
    findings
}

fn root(seen: &Seen) -> Option<Finding> {
    let stat = rustix::fs::fstat(&*seen.dir).ok()?;
    let mode = stat.st_mode;
    (mode & 0o077 != 0).then(|| open("the team directory", mode).fix(Fix::Close(None)))
}

fn open(what: &str, mode: u32) -> Finding {
    Finding::problem(CHECK, format!("{what} has mode {:04o}: others than its user may use it", mode & 0o7777))
        .means("whoever writes there can command every teammate; whoever reads there knows what was said")
        .next("`teamctl doctor --fix` takes it from them")
}

/// Judges one thing.
fn of(found: &Found, user: u32) -> Option<Finding> {
    let at = &found.at;
    if found.owner != user {
        return Some(
            Finding::problem(CHECK, format!("{at} belongs to user {}, not to user {user}", found.owner))
                .means("it is not read, and whatever needs it fails")
                .next(format!("as root: `chown {user} {at}` in the team directory, or move it away")),
        );
    }
    let folder = at.folder().is_none() && FOLDERS.contains(&at.file_name());
    let socket = at.folder() == Some("run");
    match found.kind {
        Kind::Link if at.folder().is_none() && at.file_name() == WORKSPACE_LINK => return None,
        Kind::Link => {
            return Some(
                Finding::problem(CHECK, format!("{at} is a symbolic link"))
                    .means("no link inside the team directory is followed: whatever needs this file fails")
                    .next("find out who put it there, and put the file itself in its place"),
            );
        }
        Kind::Socket if socket => {}
        Kind::Folder if folder || at.folder() == Some("archive") => {}
        Kind::File if !folder => {}
        Kind::Folder if at.folder().is_none() => {
            return Some(
                Finding::note(CHECK, format!("{at} is a folder that is not the team's"))
                    .next("nobody uses it: move it away"),
            );
        }
        _ => {
            return Some(
                Finding::problem(CHECK, format!("{at} is not what belongs there"))
                    .means("whatever needs it fails, and blocks nobody")
                    .next("find out who put it there, and move it out of the team directory"),
            );
        }
    }
    if found.mode & 0o077 != 0 && found.kind != Kind::Socket {
        return Some(open(&at.to_string(), found.mode).fix(Fix::Close(Some(at.clone()))));
    }
    let needed = if found.kind == Kind::Folder { 0o700 } else { 0o600 };
    if found.mode & needed != needed && at.folder() != Some("archive") {
        return Some(
            Finding::problem(CHECK, format!("{at} has mode {:04o}: its user may not use it", found.mode))
                .means("whatever needs it fails")
                .next(format!("`chmod {needed:o} {at}` in the team directory, unless somebody meant that")),
        );
    }
    (found.shared && found.kind == Kind::File).then(|| {
        Finding::note(CHECK, format!("{at} has another name elsewhere (a hard link)"))
            .means("whoever can write it there writes it here")
            .next(format!("`find / -inum {}` finds it", found.identity.1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use teamd_shared::team_dir::TeamPath;

    #[test]
    fn what_is_not_for_the_user_alone_is_said() {
        let usual = Found {
            at: TeamPath::journal(),
            kind: Kind::File,
            mode: 0o600,
            owner: 7,
            size: 1,
            shared: false,
            identity: (1, 2),
        };
        let told = |found: Found| of(&found, 7).map_or(String::new(), |finding| finding.what);
        assert_eq!(told(usual.clone()), "");
        assert_eq!(
            told(Found { owner: 8, ..usual.clone() }),
            "journal.jsonl belongs to user 8, not to user 7"
        );
        assert!(told(Found { mode: 0o644, ..usual.clone() }).contains("has mode 0644: others"));
        assert!(told(Found { mode: 0o200, ..usual.clone() }).contains("has mode 0200: its user may not"));
        assert_eq!(told(Found { kind: Kind::Link, ..usual.clone() }), "journal.jsonl is a symbolic link");
        assert_eq!(
            told(Found { kind: Kind::Other, ..usual.clone() }),
            "journal.jsonl is not what belongs there"
        );
        assert!(told(Found { shared: true, ..usual.clone() }).contains("hard link"));
        let socket = Found { at: TeamPath::socket(), kind: Kind::Socket, mode: 0o755, ..usual };
        assert_eq!(told(socket), "");
    }
}
