//! Team directories that lie apart from their workspace, in the state directory of the user, with a
//! link to them in the workspace: where nothing else keeps tools from writing there.
//!
//! A tool can replace that link. So the place follows from the workspace alone, and a program that
//! opens the team directory through anything but the link to that place gets an error.

use std::io;
use std::path::{Path, PathBuf};

use super::{DirError, TEAM, WORKSPACE_LINK};
use crate::user_dirs::{name_of, state_dir};

/// Returns where the team directory of a workspace (absolute, without links) lies, if it lies
/// apart.
///
/// # Errors
/// If no state directory can be named.
pub fn place_apart(workspace: &Path) -> io::Result<PathBuf> {
    Ok(below(&state_dir(|name| std::env::var_os(name))?, workspace))
}

fn below(state: &Path, workspace: &Path) -> PathBuf {
    let name = workspace
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    // The hash separates workspaces of the same name; it protects nothing.
    state.join(format!("{name}-{}", name_of(workspace)))
}

/// Checks that a path leads to the team directory of the workspace that contains it, if that lies
/// apart.
pub(super) fn check(path: &Path, root: &Path) -> Result<(), DirError> {
    let above = path.parent().and_then(|above| above.canonicalize().ok());
    let Some(workspace) = above else {
        return Ok(());
    };
    // A tool can have made a link to the team of another workspace.
    let claims = match root.join(WORKSPACE_LINK).read_link() {
        Ok(link) => Some(link),
        Err(_) if root.ends_with(TEAM) => root.parent().map(Path::to_owned),
        Err(_) => None,
    };
    if path.is_symlink() && claims.is_some_and(|claims| claims != workspace) {
        return Err(DirError::OfAnother {
            path: path.to_owned(),
            root: root.to_owned(),
        });
    }
    match place_apart(&workspace) {
        Ok(place) => check_at(&place, &workspace, path, root),
        Err(_) => Ok(()),
    }
}

fn check_at(place: &Path, workspace: &Path, path: &Path, root: &Path) -> Result<(), DirError> {
    let claims = place
        .join(WORKSPACE_LINK)
        .read_link()
        .is_ok_and(|link| link == workspace);
    if !claims || place.canonicalize().is_ok_and(|place| place == root) {
        return Ok(());
    }
    Err(DirError::Replaced {
        path: path.to_owned(),
        place: place.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn whatever_takes_the_place_of_the_link_is_noticed() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let workspace = root.join("web");
        let link = root.join("web/.team");
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
        assert_ne!(
            below(state, Path::new("/a/web")),
            below(state, Path::new("/b/web"))
        );
        assert!(below(state, Path::new("/a/web")).starts_with("/s"));
    }
}
