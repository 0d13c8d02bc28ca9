//! The text of the answer that the model is giving just now, for people who look on: `run/NAME.live`.
//!
//! **Who writes**: this worker alone. **Who reads**: `teamctl chat` and `attach`. It is emptied when a model call begins
//! and holds nothing that the transcript will not hold: whether it can be written or not changes nothing, and it is
//! never synced. `run/` may be deleted at any time: each call opens the file anew.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use rustix::fs::OFlags;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use crate::model::Progress;

/// The file.
#[derive(Debug)]
pub(crate) struct Live {
    dir: Arc<TeamDir>,
    at: TeamPath,
    file: Option<File>,
}

impl Live {
    /// Makes the writer of a member; nothing is written yet.
    pub(crate) fn new(dir: Arc<TeamDir>, name: &Name) -> Self {
        Self { dir, at: TeamPath::live(name), file: None }
    }

    /// An answer begins, or begins again.
    pub(crate) fn begin(&mut self) {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
        self.file = match self.dir.open_file(&self.at, flags) {
            Ok(file) => self.or_complain(file.set_len(0)).map(|()| file),
            Err(error) => {
                tracing::debug!("the answer cannot be shown while it comes: {error}");
                None
            }
        };
    }

    /// Something of it is heard.
    pub(crate) fn observe(&mut self, progress: Progress<'_>) {
        match progress {
            Progress::Text(text) => self.push(text),
            Progress::Again => self.begin(),
        }
    }

    fn push(&mut self, text: &str) {
        let Some(file) = &mut self.file else { return };
        let written = file.write_all(text.as_bytes());
        if self.or_complain(written).is_none() {
            self.file = None;
        }
    }

    fn or_complain<T>(&self, result: io::Result<T>) -> Option<T> {
        result
            .map_err(|error| {
                tracing::debug!("the answer cannot be shown in {} while it comes: {error}", self.at)
            })
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_begins_with_an_empty_file_and_a_deleted_one_is_made_again() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
        let alice = Name::new("alice").unwrap();
        let mut live = Live::new(Arc::clone(&dir), &alice);
        live.push("lost, since nothing has begun");
        for text in ["first", "second"] {
            live.begin();
            live.push(text);
            live.push("!");
            assert_eq!(dir.read(&TeamPath::live(&alice)).unwrap(), format!("{text}!").as_bytes());
        }
        dir.remove(&TeamPath::live(&alice)).unwrap();
        live.begin();
        live.push("third");
        assert_eq!(dir.read(&TeamPath::live(&alice)).unwrap(), b"third");
    }
}
