//! Why something in the team directory cannot be done.

use std::io;
use std::path::{Path, PathBuf};

/// What could not be done in the team directory, with path and verb. Fits behind "error: ".
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// There is no team directory there.
    #[error("there is no team directory at {}", .0.display())]
    Missing(PathBuf),
    /// Something else is there.
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// It belongs to another user.
    #[error("{} belongs to user {owner}, not to user {user}", .path.display())]
    Foreign {
        /// The team directory, or something in it.
        path: PathBuf,
        /// The user id that owns it.
        owner: u32,
        /// The user id of this process.
        user: u32,
    },
    /// The team directory lies apart from the workspace, and something else is at the place of the
    /// link to it.
    #[error("{} does not lead to the team directory of this workspace, {}", .path.display(), .place.display())]
    Replaced {
        /// What is there.
        path: PathBuf,
        /// Where it should lead.
        place: PathBuf,
    },
    /// A link is where the team directory of this workspace would be, and leads to that of another
    /// one.
    #[error("{} is a symbolic link to the team of another workspace, {}", .path.display(), .root.display())]
    OfAnother {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        root: PathBuf,
    },
    /// A symbolic link is where a file or folder is expected.
    #[error("{} is a symbolic link, and links inside the team directory are not followed", .0.display())]
    Link(PathBuf),
    /// Something other than a regular file is where a file is expected.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// The system refused.
    #[error("cannot {verb} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl DirError {
    /// Explains an error of the system.
    pub fn io<E: Into<io::Error>>(verb: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        move |source| Self::Io {
            verb,
            path: path.to_owned(),
            source: source.into(),
        }
    }

    /// Returns the system's error, where there is one.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// Tells whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Missing(_)) || self.io_kind() == Some(io::ErrorKind::NotFound)
    }
}
