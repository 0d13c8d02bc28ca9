//! What has changed in a team directory, by file events: one watch for each folder, however many
//! teammates there are.

use std::path::{Path, PathBuf};

use futures_util::future::{BoxFuture, select_all};
use teamd_client::read::wake::FolderWatch;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::watch::{Changes, Watch};

/// How many growing outputs are watched at once: each takes one of the 128 inotify instances of the
/// user.
const OUTPUTS: usize = 8;

/// The folders of a team directory that a view follows.
pub(super) struct Files {
    folders: [FolderWatch; 4],
    /// The logs, once they are wanted.
    logs: Option<FolderWatch>,
    /// The outputs of commands that run in the background, as long as they are wanted.
    outputs: Vec<OutputWatch>,
    force_poll: bool,
}

/// A watch of an output that grows outside the team directory.
struct OutputWatch {
    place: PathBuf,
    watch: Watch,
    /// Whether it was asked for since changes were last taken.
    is_wanted: bool,
}

/// The files that may have changed.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// At the top: roster and journal.
    pub(super) top: Changes,
    /// Inboxes.
    pub(super) inboxes: Changes,
    /// Transcripts: more was written, or a process that may write has ended.
    pub(super) transcripts: Changes,
    /// Answers in progress, and the control socket.
    pub(super) run: Changes,
}

impl Files {
    /// Watches from now on. A caller that reads after this misses nothing. Must be called within
    /// the runtime.
    pub(super) fn watch(dir: &TeamDir, force_poll: bool) -> Self {
        let lead = Name::lead();
        let files = [
            TeamPath::journal(),
            TeamPath::inbox(&lead),
            TeamPath::transcript(&lead),
            TeamPath::socket(),
        ];
        Self {
            folders: files.map(|file| FolderWatch::of(dir, &file, force_poll)),
            logs: None,
            outputs: Vec::new(),
            force_poll,
        }
    }

    /// Also watches the logs from now on, in which the output of a check or a command is.
    pub(super) fn want_logs(&mut self, dir: &TeamDir) {
        let force_poll = self.force_poll;
        self.logs
            .get_or_insert_with(|| FolderWatch::of(dir, &TeamPath::check_log(1), force_poll));
    }

    /// Also watches an output until it is asked for no more.
    pub(super) fn want_output(&mut self, place: &Path) {
        let known = self.outputs.iter_mut().find(|output| output.place == place);
        if let Some(output) = known {
            output.is_wanted = true;
            return;
        }
        if self.outputs.len() >= OUTPUTS {
            return;
        }
        // What is gone does not grow.
        let Ok(watch) = Watch::file(place, self.force_poll) else {
            return;
        };
        self.outputs.push(OutputWatch {
            place: place.to_owned(),
            watch,
            is_wanted: true,
        });
    }

    /// Returns when a file may have changed. Dropping the future loses nothing.
    pub(super) async fn changed(&mut self) {
        let folders = self.folders.iter_mut().chain(&mut self.logs);
        let mut all: Vec<BoxFuture<'_, ()>> = Vec::new();
        for folder in folders {
            all.push(Box::pin(folder.changed()));
        }
        for output in &self.outputs {
            all.push(Box::pin(output.watch.changed()));
        }
        select_all(all).await;
    }

    /// Takes what has changed since this was last asked.
    pub(super) fn take(&mut self) -> Changed {
        // What is in them is read with what is shown.
        self.logs.as_mut().map(FolderWatch::take);
        self.outputs
            .retain_mut(|output| std::mem::take(&mut output.is_wanted));
        let [top, inboxes, transcripts, run] = self.folders.each_mut().map(FolderWatch::take);
        Changed {
            top,
            inboxes,
            transcripts,
            run,
        }
    }
}

/// Tells whether a file may have changed.
pub(super) fn has(changes: &Changes, file: &TeamPath) -> bool {
    match changes {
        Changes::Files(files) => files.contains(file.file_name()),
        Changes::Anything => true,
    }
}
