//! What is allowed by name to be written, as it lies on the machine: absolute and without links.
//!
//! It is found out once in a life, and never by a link that a tool could have made: such a link would say what its maker
//! may write.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

/// How many links are followed for one path: as many as the kernel follows (`path_resolution(7)`).
const MAX_LINKS: u32 = 40;

/// What is named to be written lies in the team directory. Fits behind "error: ".
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} is to be written by its commands, but lies in the team directory: take it out of `sandbox.writable` in team.toml, or of \
     --writable", .0.display()
)]
pub(crate) struct InTeamDir(PathBuf);

/// Finds what is named on the machine. What is missing is left out and logged, as is what only a link leads to that
/// lies in what tools may write.
///
/// # Errors
/// [`InTeamDir`] for the first path that leads there.
pub(crate) fn find(named: &[String], workspace: &Path, team_dir: &Path) -> Result<Vec<PathBuf>, InTeamDir> {
    let search = |guarded: &[PathBuf]| -> Vec<PathBuf> {
        let found = named.iter().filter_map(|path| match follow(Path::new(path), guarded) {
            Ok(found) => Some(found),
            Err(error) => {
                tracing::warn!("commands will not write {path}, which is allowed by name: {error}");
                None
            }
        });
        found.collect()
    };
    let mut guarded = search(&[workspace.to_owned()]);
    if let Some(inside) = guarded.iter().find(|path| path.starts_with(team_dir)) {
        return Err(InTeamDir(inside.clone()));
    }
    guarded.push(workspace.to_owned());
    Ok(search(&guarded))
}

/// Follows every link but those below `guarded`.
fn follow(path: &Path, guarded: &[PathBuf]) -> io::Result<PathBuf> {
    if !path.is_absolute() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not absolute"));
    }
    let mut ahead: VecDeque<OsString> = path.components().map(of_component).collect();
    let (mut here, mut links) = (PathBuf::from("/"), 0);
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            here.pop();
            continue;
        }
        // Of an absolute name, `join` takes that alone.
        let next = here.join(&name);
        if !next.symlink_metadata()?.is_symlink() {
            here = next;
            continue;
        }
        if guarded.iter().any(|folder| next.starts_with(folder)) {
            let why = format!("{} is a link that a tool can have made", next.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno::LOOP.into());
        }
        let target = std::fs::read_link(&next)?;
        for part in target.components().rev().filter(|part| *part != Component::CurDir) {
            ahead.push_front(of_component(part));
        }
    }
    Ok(here)
}

fn of_component(part: Component<'_>) -> OsString {
    part.as_os_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn found(scratch: &Path, named: &[&str]) -> Result<Vec<PathBuf>, InTeamDir> {
        let named: Vec<_> = named.iter().map(|path| format!("{}/{path}", scratch.display())).collect();
        find(&named, &scratch.join("work"), &scratch.join("apart/team"))
    }

    #[test]
    fn links_are_followed_but_for_those_that_tools_make() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = folder.path().canonicalize().unwrap();
        for name in ["work", "cache/sub", "home", "apart/team/run"] {
            fs::create_dir_all(scratch.join(name)).unwrap();
        }
        symlink("cache/sub", scratch.join("link")).unwrap();
        symlink(scratch.join("home"), scratch.join("work/planted")).unwrap();
        symlink("work/planted", scratch.join("to-planted")).unwrap();
        symlink(scratch.join("home"), scratch.join("cache/planted")).unwrap();
        symlink("circle", scratch.join("circle")).unwrap();
        symlink("apart/team/run", scratch.join("to-team")).unwrap();
        let sub = scratch.join("cache/sub");
        assert_eq!(found(&scratch, &["link", "cache/../link/../sub"]), Ok(vec![sub.clone(), sub]));
        for bad in ["work/planted", "to-planted", "missing", "circle"] {
            assert_eq!(found(&scratch, &[bad]), Ok(Vec::new()), "{bad}");
        }
        // What one may write must not say what is written elsewhere.
        assert_eq!(found(&scratch, &["cache/planted"]), Ok(vec![scratch.join("home")]));
        assert_eq!(found(&scratch, &["cache/planted", "cache"]), Ok(vec![scratch.join("cache")]));
        for inside in ["apart/team", "to-team", "work/../apart/team/run"] {
            assert!(found(&scratch, &[inside]).is_err(), "{inside}");
        }
        assert_eq!(found(&scratch, &["apart"]), Ok(vec![scratch.join("apart")]));
        assert_eq!(find(&["relative".to_owned()], &scratch, &scratch), Ok(Vec::new()));
    }
}
