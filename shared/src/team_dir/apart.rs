//! Team directories that lie apart from their workspace, in the state directory of the user, with a link to them in the
//! workspace: where nothing else keeps tools from writing there.
//!
//! A tool can replace that link. So the place follows from the workspace alone, and whoever opens the team directory
//! through something else than the link to that place is told so.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{DirError, WORKSPACE_LINK};

/// Returns where the team directory of a workspace (absolute, without links) lies, if it lies apart.
///
/// # Errors
/// An error that says that no state directory is known: neither `XDG_STATE_HOME` nor `HOME` is set.
pub fn place_apart(workspace: &Path) -> io::Result<PathBuf> {
    let named = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let state =
        named.or_else(home).ok_or_else(|| io::Error::other("neither XDG_STATE_HOME nor HOME is set"))?;
    Ok(below(&state, workspace))
}

fn below(state: &Path, workspace: &Path) -> PathBuf {
    let name = workspace.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // FNV-1a: it parts workspaces of the same name, and keeps nothing secret.
    let hash = workspace.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    state.join("teamd").join(format!("{name}-{hash:016x}"))
}

/// Checks that a path leads to the team directory of the workspace that it stands in, if that lies apart.
pub(super) fn check(path: &Path, root: &Path) -> Result<(), DirError> {
    let above = path.parent().and_then(|above| above.canonicalize().ok());
    let Some(workspace) = above else { return Ok(()) };
    match place_apart(&workspace) {
        Ok(place) => check_at(&place, &workspace, path, root),
        Err(_) => Ok(()),
    }
}

fn check_at(place: &Path, workspace: &Path, path: &Path, root: &Path) -> Result<(), DirError> {
    let claims = place.join(WORKSPACE_LINK).read_link().is_ok_and(|link| link == workspace);
    if !claims || place.canonicalize().is_ok_and(|place| place == root) {
        return Ok(());
    }
    Err(DirError::Replaced { path: path.to_owned(), place: place.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn whatever_takes_the_place_of_the_link_is_noticed() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let (workspace, link) = (root.join("web"), root.join("web/.team"));
        let place = below(&root.join("state"), &workspace);
        std::fs::create_dir_all(&link).unwrap();
        let check = |found: &Path| check_at(&place, &workspace, &link, found);
        assert!(check(&link).is_ok(), "nothing lies apart");
        std::fs::create_dir_all(&place).unwrap();
        symlink(&workspace, place.join(WORKSPACE_LINK)).unwrap();
        assert!(matches!(check(&link), Err(DirError::Replaced { .. })));
        assert!(check(&place).is_ok());
    }

    #[test]
    fn workspaces_of_the_same_name_have_their_own_places() {
        let state = Path::new("/s");
        assert_ne!(below(state, Path::new("/a/web")), below(state, Path::new("/b/web")));
        assert!(below(state, Path::new("/a/web")).starts_with("/s/teamd"));
    }
}
