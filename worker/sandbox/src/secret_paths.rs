//! The paths at which secrets of the user lie, found when the first command needs them.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rustix::fs::Stat;

/// Where the secrets of a user lie, by every path, whether they are there or not. The first call
/// looks for them, so an idle teammate does not: for root that is a walk through `/etc`.
#[derive(Clone)]
pub struct Secrets(Arc<LazySecrets>);

struct LazySecrets {
    found: OnceLock<FoundSecrets>,
    look: Box<dyn Fn() -> Result<(FoundSecrets, SeenNow), String> + Send + Sync>,
}

/// What a look has found at each path: good for the command for which it was made, and not kept.
/// What is there can have changed before the next command.
pub(super) type SeenNow = HashMap<PathBuf, rustix::io::Result<Stat>>;

/// What a look has found.
#[derive(Debug, Clone)]
pub(super) struct FoundSecrets {
    pub(super) paths: Vec<PathBuf>,
    /// Those of them that are there.
    pub(super) nodes: Vec<Node>,
}

/// Device and inode of a file.
pub type Node = (u64, u64);

impl Secrets {
    /// Looks when they are needed. The error of a look is for the model.
    pub(super) fn when_needed(
        look: impl Fn() -> Result<(FoundSecrets, SeenNow), String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(LazySecrets {
            found: OnceLock::new(),
            look: Box::new(look),
        }))
    }

    /// Returns where they lie.
    ///
    /// # Errors
    /// Why that cannot be known, for the model.
    pub fn paths(&self) -> Result<&[PathBuf], String> {
        self.look().map(|(paths, _)| paths)
    }

    /// Returns where they lie, and what this call has seen there, if it is the first one: the
    /// same paths need not be looked at again for the same command.
    ///
    /// # Errors
    /// As [`Secrets::paths`].
    pub(super) fn look(&self) -> Result<(&[PathBuf], SeenNow), String> {
        let (found, seen) = self.found()?;
        Ok((&found.paths, seen))
    }

    /// Returns the files that were there at the first look, and those that are there now.
    ///
    /// # Errors
    /// Why that cannot be known, for the model.
    pub fn nodes(&self) -> Result<Vec<Node>, String> {
        let (FoundSecrets { paths, nodes }, _) = self.found()?;
        Ok(nodes.iter().copied().chain(nodes_of(paths)).collect())
    }

    /// Returns what was found. A look that has failed is not kept: the next command looks again.
    fn found(&self) -> Result<(&FoundSecrets, SeenNow), String> {
        let Self(lazy) = self;
        if let Some(found) = lazy.found.get() {
            return Ok((found, SeenNow::new()));
        }
        let (found, seen) = (lazy.look)()?;
        Ok((lazy.found.get_or_init(|| found), seen))
    }
}

impl From<Vec<PathBuf>> for Secrets {
    fn from(paths: Vec<PathBuf>) -> Self {
        Self::when_needed(move || {
            let found = FoundSecrets {
                nodes: nodes_of(&paths).collect(),
                paths: paths.clone(),
            };
            Ok((found, SeenNow::new()))
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_look_that_has_failed_is_made_again_and_one_that_has_not_is_kept() {
        let looks = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&looks);
        let secrets = Secrets::when_needed(move || {
            if counted.fetch_add(1, Ordering::Relaxed) == 0 {
                return Err("not now".to_owned());
            }
            let found = FoundSecrets {
                paths: vec!["/a".into()],
                nodes: Vec::new(),
            };
            Ok((found, SeenNow::new()))
        });
        assert_eq!(secrets.clone().paths().unwrap_err(), "not now");
        assert_eq!(secrets.paths().unwrap(), [PathBuf::from("/a")]);
        assert_eq!(secrets.clone().paths().unwrap().len(), 1);
        assert_eq!(looks.load(Ordering::Relaxed), 2);
    }
}
