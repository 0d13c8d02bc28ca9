//! The protected files while a check runs: what they begin with is mounted read-only, where there
//! are mounts, and all else is looked at before and after.

use std::io;
use std::path::{Path, PathBuf};

use teamd_shared::fingerprint::{
    Baseline, Lookout, Patterns, ProtectedFiles, followed_beneath, named,
};

/// The protected files while a check runs. What cannot be looked at does not count as untouched.
pub(crate) struct ProtectedWatch<'a> {
    root: &'a Path,
    /// Also what they are where links lead.
    patterns: Vec<String>,
    before: io::Result<ProtectedFiles>,
    /// Sees that something is exchanged, also if it is put back.
    lookout: io::Result<Option<Lookout>>,
}

impl<'a> ProtectedWatch<'a> {
    /// Looks at them before the first command runs. `sealed`: [`ProtectedWatch::starts`] are
    /// mounted read-only for the commands.
    pub(crate) fn begin(root: &'a Path, patterns: &'a [String], sealed: bool) -> Self {
        let followed = followed_beneath(root, patterns);
        // What cannot be followed cannot be looked at, either.
        let patterns = followed.unwrap_or_else(|_| patterns.to_vec());
        let before = ProtectedFiles::find(root, &patterns);
        let lookout = before
            .as_ref()
            .map_or(Ok(None), |files| files.look_out(root, &patterns, sealed));
        Self {
            root,
            patterns,
            before,
            lookout,
        }
    }

    /// Returns the paths with which the patterns begin.
    pub(crate) fn starts(&self) -> Vec<PathBuf> {
        // The daemon has read them before.
        let Ok(patterns) = Patterns::new(&self.patterns) else {
            return Vec::new();
        };
        patterns
            .starts()
            .map(|start| self.root.join(start))
            .collect()
    }

    /// Returns in which way they differ from when the work was set.
    pub(super) fn touched_since(&self, baseline: Option<&Baseline>) -> Option<String> {
        let unknown =
            |why: &str| format!("what they were when the task was set is not known: {why}");
        match (baseline, &self.before) {
            _ if self.patterns.is_empty() => None,
            (_, Err(error)) => Some(unreadable(error)),
            (None, _) => Some(unknown("they were not looked at")),
            (Some(Baseline::Unknown(why)), _) => Some(unknown(why)),
            (Some(Baseline::Hash(hash)), Ok(now)) => {
                (*hash != now.hash()).then(|| "changed since the task was set".to_owned())
            }
        }
    }

    /// Returns which of them have changed since, and `how`; with `added` also which are new.
    pub(crate) fn touched(&self, how: &str, added: bool) -> Option<String> {
        let (before, after) = match (
            &self.before,
            ProtectedFiles::find(self.root, &self.patterns),
        ) {
            (Ok(before), Ok(after)) => (before, after),
            (Err(error), _) => return Some(unreadable(error)),
            (_, Err(error)) => return Some(unreadable(&error)),
        };
        // What is new below the start of a pattern decides, too. Elsewhere it may be what a setup
        // installs.
        let changed = after
            .changed_since(before, added)
            .or_else(|| after.added_since(before, &self.patterns));
        if let Some(files) = changed {
            return Some(format!("{how}: {files}"));
        }
        let seen = match &self.lookout {
            Ok(Some(lookout)) => lookout.seen(),
            Ok(None) => return None,
            Err(error) => return Some(unreadable(error)),
        };
        match seen {
            Ok(paths) => {
                named(paths.iter().map(PathBuf::as_path)).map(|paths| format!("{how}: {paths}"))
            }
            Err(error) => Some(unreadable(&error)),
        }
    }
}

fn unreadable(error: &io::Error) -> String {
    format!("they cannot be looked at: {error}")
}
