//! The paths at which secrets of the user lie, found when the first command needs them.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

/// Where the secrets of a user lie, by every path, whether they are there or not. The first call
/// looks for them, so an idle teammate does not: for root that is a walk through `/etc`.
#[derive(Clone)]
pub struct Secrets(Arc<LazyLock<Found, Box<dyn FnOnce() -> Found + Send + Sync>>>);

/// The paths and, of those that are there, the files; or why they cannot be known, for the model.
type Found = Result<(Vec<PathBuf>, Vec<Node>), String>;

/// Device and inode of a file.
pub type Node = (u64, u64);

impl Secrets {
    pub(super) fn when_needed(look: impl FnOnce() -> Found + Send + Sync + 'static) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(look))))
    }

    /// Returns where they lie.
    ///
    /// # Errors
    /// Why that cannot be known, for the model.
    pub fn paths(&self) -> Result<&[PathBuf], String> {
        self.0
            .as_ref()
            .as_ref()
            .map(|(paths, _)| &paths[..])
            .map_err(Clone::clone)
    }

    /// Returns the files that were there at the first look, and those that are there now.
    ///
    /// # Errors
    /// Why that cannot be known, for the model.
    pub fn nodes(&self) -> Result<Vec<Node>, String> {
        let (paths, first) = self.0.as_ref().as_ref().map_err(Clone::clone)?;
        Ok(first.iter().copied().chain(nodes_of(paths)).collect())
    }
}

impl From<Vec<PathBuf>> for Secrets {
    fn from(paths: Vec<PathBuf>) -> Self {
        Self::when_needed(|| {
            let nodes = nodes_of(&paths).collect();
            Ok((paths, nodes))
        })
    }
}

impl Default for Secrets {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Secrets")
    }
}

/// Returns the files to which paths lead.
pub(super) fn nodes_of<'a>(
    paths: impl IntoIterator<Item = &'a PathBuf>,
) -> impl Iterator<Item = Node> {
    paths
        .into_iter()
        .filter_map(|path| rustix::fs::stat(path).ok())
        .map(|stat| (stat.st_dev, stat.st_ino))
}
