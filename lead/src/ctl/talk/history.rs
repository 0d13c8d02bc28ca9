//! Where the lines that were typed are kept, for the next time. Nothing depends on it.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Returns the file: `$XDG_STATE_HOME/teamd/history`, else below `~/.local/state`; none for a user without a home.
pub(super) fn path() -> Option<PathBuf> {
    find(|name| std::env::var_os(name))
}

/// Makes the folder of the file, for its user alone.
///
/// # Errors
/// Whatever the system says.
pub(super) fn make_room(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => DirBuilder::new().recursive(true).mode(0o700).create(folder),
        None => Ok(()),
    }
}

fn find(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The base directory specification ignores a path that is not absolute.
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("teamd/history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_state_of_the_user() {
        let found = |pairs: &[(&str, &str)]| {
            let variable =
                |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
            find(variable).map(|path| path.display().to_string())
        };
        assert_eq!(found(&[("HOME", "/h")]).unwrap(), "/h/.local/state/teamd/history");
        assert_eq!(found(&[("HOME", "/h"), ("XDG_STATE_HOME", "/s")]).unwrap(), "/s/teamd/history");
        assert_eq!(
            found(&[("HOME", "/h"), ("XDG_STATE_HOME", "s")]).unwrap(),
            "/h/.local/state/teamd/history"
        );
        assert_eq!(found(&[("HOME", "")]), None);
        assert_eq!(found(&[]), None);
    }
}
