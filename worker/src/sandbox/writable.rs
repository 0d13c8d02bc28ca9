//! What is allowed by name to be written, as a life takes it: by the paths that the daemon has recorded, which were
//! without links when they were named.
//!
//! Follows no link. One that stands on the way now was made since, and would say what its maker may write.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::Known;

/// What of it may be written in this life.
#[derive(Debug, Default)]
pub(crate) struct Writable {
    /// Where it lies.
    pub(crate) paths: Vec<PathBuf>,
    /// What stands there now, as far as it is directories.
    pub(crate) known: Vec<Known>,
    /// What may not be written, and why, in words for the model. What is only missing is none of it.
    pub(crate) lost: Vec<String>,
}

/// Takes what is itself at its path. What is missing, and what is not itself any more, is left out and logged.
pub(crate) fn take(named: &[String], team_dir: &Path) -> Writable {
    let mut taken = Writable::default();
    for path in named {
        let found = match Path::new(path) {
            path if !path.is_absolute() => Err("it is not absolute".to_owned()),
            path if path.starts_with(team_dir) => Err("it lies in the team directory".to_owned()),
            path => Known::learn(path).map_err(|error| match Errno::from_io_error(&error) {
                Some(Errno::NOENT) => String::new(),
                Some(Errno::LOOP) => {
                    "a symbolic link stands on the way to it, and none did when it was named".to_owned()
                }
                _ => error.to_string(),
            }),
        };
        match found {
            Ok(known) => {
                taken.paths.push(path.into());
                taken.known.extend(known);
            }
            Err(why) if why.is_empty() => {
                tracing::warn!("commands will not write {path}, which is allowed by name: it is not there");
            }
            Err(why) => {
                tracing::warn!("commands will not write {path}, which is allowed by name: {why}");
                taken.lost.push(format!("{path} ({why})"));
            }
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_itself_is_taken_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = folder.path().canonicalize().unwrap();
        for name in ["cache/sub", "home", "apart/team/run"] {
            fs::create_dir_all(scratch.join(name)).unwrap();
        }
        fs::File::create(scratch.join("file")).unwrap();
        symlink("cache", scratch.join("link")).unwrap();
        symlink(scratch.join("home"), scratch.join("cache/planted")).unwrap();
        let take = |named: &[&str]| {
            let named: Vec<_> = named.iter().map(|path| format!("{}/{path}", scratch.display())).collect();
            take(&named, &scratch.join("apart/team"))
        };
        let taken = take(&["cache/sub", "file", "missing", "apart"]);
        assert_eq!(taken.paths, ["cache/sub", "file", "apart"].map(|path| scratch.join(path)));
        assert_eq!(taken.known.len(), 2, "a file is known to nobody");
        assert_eq!(taken.lost, [""; 0], "what is missing is nothing to tell");
        for (bad, why) in [
            ("link", "a symbolic link"),
            ("link/sub", "a symbolic link"),
            ("cache/planted", "a symbolic link"),
            ("apart/team", "in the team directory"),
            ("apart/team/run", "in the team directory"),
        ] {
            let taken = take(&[bad]);
            assert!(taken.paths.is_empty() && taken.known.is_empty(), "{bad}");
            assert!(taken.lost[0].contains(why), "{bad} {:?}", taken.lost);
        }
        assert_eq!(super::take(&["relative".to_owned()], &scratch).lost, ["relative (it is not absolute)"]);
    }
}
