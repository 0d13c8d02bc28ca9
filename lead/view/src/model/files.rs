//! What has changed in a team directory, by file events: one watch for each folder, however many
//! teammates there are.

use futures_util::future::select_all;
use teamd_client::read::wake::FolderWatch;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::watch::Changes;

/// The folders of a team directory that a view follows.
pub(super) struct Files {
    folders: [FolderWatch; 4],
    /// The logs, once they are wanted.
    logs: Option<FolderWatch>,
    force_poll: bool,
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
            force_poll,
        }
    }

    /// Also watches the logs from now on, in which the output of a check is.
    pub(super) fn want_logs(&mut self, dir: &TeamDir) {
        let force_poll = self.force_poll;
        self.logs
            .get_or_insert_with(|| FolderWatch::of(dir, &TeamPath::check_log(1), force_poll));
    }

    /// Returns when a file may have changed. Dropping the future loses nothing.
    pub(super) async fn changed(&mut self) {
        select_all(
            self.folders
                .iter_mut()
                .chain(&mut self.logs)
                .map(|folder| Box::pin(folder.changed())),
        )
        .await;
    }

    /// Takes what has changed since this was last asked.
    pub(super) fn take(&mut self) -> Changed {
        // What is in them is read with what is shown.
        self.logs.as_mut().map(FolderWatch::take);
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
