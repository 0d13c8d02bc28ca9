//! What a hook finds around it. It runs outside of every sandbox, so nothing of it may come from
//! where a teammate writes: neither the directory, nor a variable that names programs, modules or
//! settings there.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The variables of the daemon that a hook is given beside `PATH`: who the user is, and how their
/// session is reached. Those that an interpreter believes (`PYTHONPATH`, `NODE_OPTIONS`, `GIT_DIR`,
/// `LD_PRELOAD` …) are not among them, and no list of those would be complete.
const KEPT: [&str; 22] = [
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
    "SSH_AUTH_SOCK",
    "TMUX",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
    "XDG_CURRENT_DESKTOP",
    "XDG_SESSION_TYPE",
    "XDG_SESSION_ID",
];

/// The beginning of the variables of the user's language.
const LANGUAGE: &[u8] = b"LC_";

/// What separates the paths of a value.
const SEPARATORS: &[u8] = b":=,;";

/// Where a hook runs, and what it is given.
#[derive(Debug)]
pub(super) struct Surroundings {
    /// Its directory: that of the user's own configuration.
    pub(super) folder: PathBuf,
    pub(super) variables: Vec<(OsString, OsString)>,
}

impl Surroundings {
    /// Makes them of the variables of the daemon. `named`: what the user passes on by name;
    /// `territory`: where teammates write.
    pub(super) fn new(
        folder: PathBuf,
        all: impl Iterator<Item = (OsString, OsString)>,
        named: &[String],
        territory: &[PathBuf],
    ) -> Self {
        let mut variables = Vec::new();
        for (name, value) in all {
            if named.iter().any(|it| it.as_str() == name) {
                variables.push((name, value));
            } else if name == "PATH" {
                variables.push((name, safe_path(&value, territory)));
            } else if is_kept(&name) && (name == "HOME" || !leads_into(&value, territory)) {
                variables.push((name, value));
            }
        }
        Self { folder, variables }
    }
}

fn is_kept(name: &OsStr) -> bool {
    name.as_bytes().starts_with(LANGUAGE) || KEPT.iter().any(|kept| *kept == name)
}

/// Returns a `PATH` without what is relative, and without what lies where a teammate writes.
fn safe_path(value: &OsStr, territory: &[PathBuf]) -> OsString {
    let folders = std::env::split_paths(value);
    let safe = folders.filter(|folder| folder.is_absolute() && !is_in(folder, territory));
    // Each of them stood in such a list, so it can stand in one.
    std::env::join_paths(safe).unwrap_or_default()
}

fn leads_into(value: &OsStr, territory: &[PathBuf]) -> bool {
    let words = value.as_bytes().split(|byte| SEPARATORS.contains(byte));
    words
        .map(|word| Path::new(OsStr::from_bytes(word)))
        .any(|path| is_in(path, territory))
}

/// Tells whether a path is in one of these directories: as it is written, or where its links lead.
/// What is not there is judged by the nearest directory above it: a teammate could make the rest.
fn is_in(path: &Path, territory: &[PathBuf]) -> bool {
    if !path.is_absolute() {
        return false;
    }
    let real = path.ancestors().find_map(|above| above.canonicalize().ok());
    is_below(path, territory) || real.is_some_and(|real| is_below(&real, territory))
}

fn is_below(path: &Path, territory: &[PathBuf]) -> bool {
    territory.iter().any(|folder| path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_where_a_teammate_writes() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let work = root.join("project");
        let link = root.join("link");
        std::fs::create_dir_all(work.join("bin")).unwrap();
        std::os::unix::fs::symlink(&work, &link).unwrap();
        let bin = work.join("bin");
        let linked = link.join("bin");
        let missing = link.join("not/yet");
        let bin = bin.display();
        let linked = linked.display();
        let missing = missing.display();
        let given = [
            (
                "PATH",
                format!(
                    ":.:bin:{bin}:{linked}:{missing}:/usr/bin:{}/../x:/bin",
                    work.display()
                ),
            ),
            ("HOME", work.display().to_string()),
            ("LANG", "C".to_owned()),
            ("LC_ALL", "C".to_owned()),
            ("TMPDIR", missing.to_string()),
            (
                "DBUS_SESSION_BUS_ADDRESS",
                format!("unix:path={linked}/bus,guid=1"),
            ),
            ("XDG_RUNTIME_DIR", "/run/user/1".to_owned()),
            ("PYTHONPATH", "/usr/lib".to_owned()),
            ("OLDPWD", "/".to_owned()),
            ("PWD", bin.to_string()),
            ("TOKEN", "secret".to_owned()),
            ("MINE", bin.to_string()),
        ];
        let given = given
            .map(|(name, value)| (name.into(), value.into()))
            .into_iter();
        let made = Surroundings::new(
            "/c".into(),
            given,
            &["MINE".to_owned()],
            std::slice::from_ref(&work),
        );
        let shown = made.variables.iter().map(|(name, value)| {
            format!(
                "{}={}",
                name.to_string_lossy(),
                value.to_string_lossy().replace(root.to_str().unwrap(), "~")
            )
        });
        let wanted = [
            "PATH=/usr/bin:/bin",
            "HOME=~/project",
            "LANG=C",
            "LC_ALL=C",
            "XDG_RUNTIME_DIR=/run/user/1",
            "MINE=~/project/bin",
        ];
        assert_eq!(shown.collect::<Vec<_>>(), wanted);
    }
}
