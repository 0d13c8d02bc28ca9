//! The text of the answer that the model is giving at the moment, for people who watch:
//! `run/NAME.live`.
//!
//! **Who writes**: this worker alone. **Who reads**: `teamctl chat` and `attach`. It is emptied
//! when a model call begins, and the transcript gets all of its text later. So a failed write
//! changes nothing, and the file is never synced. `run/` may be deleted at any time, because each
//! call opens the file again.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use rustix::fs::OFlags;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use teamd_worker_model::Progress;

/// The file.
#[derive(Debug)]
pub(crate) struct LiveFile {
    dir: Arc<TeamDir>,
    at: TeamPath,
    file: Option<File>,
}

impl LiveFile {
    /// Makes the writer of a member; nothing is written yet.
    pub(crate) fn new(dir: Arc<TeamDir>, name: &Name) -> Self {
        Self {
            dir,
            at: TeamPath::live(name),
            file: None,
        }
    }

    /// An answer begins, or begins again.
    pub(crate) fn begin(&mut self) {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::TRUNC;
        let opened = self.dir.open_file(&self.at, flags);
        self.file = opened
            .inspect_err(|error| tracing::debug!("no answer can be shown: {error}"))
            .ok();
    }

    /// Writes the next piece.
    pub(crate) fn observe(&mut self, progress: Progress<'_>) {
        match (progress, &mut self.file) {
            (Progress::Again, _) => self.begin(),
            (Progress::Text(text), Some(file)) => {
                if let Err(error) = file.write_all(text.as_bytes()) {
                    tracing::debug!("an answer cannot be shown in {}: {error}", self.at);
                    self.file = None;
                }
            }
            (Progress::Text(_), None) => {}
        }
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
        let mut live = LiveFile::new(Arc::clone(&dir), &alice);
        live.observe(Progress::Text("lost, since nothing has begun"));
        for text in ["first", "second"] {
            live.begin();
            live.observe(Progress::Text(text));
            live.observe(Progress::Text("!"));
            assert_eq!(
                dir.read(&TeamPath::live(&alice)).unwrap(),
                format!("{text}!").as_bytes()
            );
        }
        dir.remove(&TeamPath::live(&alice)).unwrap();
        live.begin();
        live.observe(Progress::Text("third"));
        assert_eq!(dir.read(&TeamPath::live(&alice)).unwrap(), b"third");
    }
}
