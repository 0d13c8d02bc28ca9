//! What has changed in a team directory, by file events: one watch for each folder, however many teammates there are.

use std::path::PathBuf;

use futures_util::future::select_all;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::watch::{Changes, POLL_EVERY, Watch};

/// The folders of a team directory that a view follows.
pub(super) struct Files {
    folders: [Folder; 4],
}

/// A folder, which may not be there yet.
struct Folder {
    path: PathBuf,
    force_poll: bool,
    watch: Option<Watch>,
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
    /// Watches from now on. A caller that reads after this misses nothing. Must be called within the runtime.
    pub(super) fn watch(dir: &TeamDir, force_poll: bool) -> Self {
        let lead = Name::lead();
        let files =
            [TeamPath::journal(), TeamPath::inbox(&lead), TeamPath::transcript(&lead), TeamPath::socket()];
        let folder = |file: TeamPath| {
            let path = dir.path(&file).parent().unwrap_or(dir.root()).to_owned();
            let mut folder = Folder { path, force_poll, watch: None };
            folder.arm();
            folder
        };
        Self { folders: files.map(folder) }
    }

    /// Returns when a file may have changed. Dropping the future loses nothing.
    pub(super) async fn changed(&mut self) {
        select_all(self.folders.iter_mut().map(|folder| Box::pin(folder.changed()))).await;
    }

    /// Takes what has changed since this was last asked.
    pub(super) fn take(&mut self) -> Changed {
        let [top, inboxes, transcripts, run] = self.folders.each_mut().map(Folder::take);
        Changed { top, inboxes, transcripts, run }
    }
}

impl Folder {
    fn arm(&mut self) {
        // Where the user has no inotify instance left, looking on a timer serves a person as well.
        let watch = Watch::folder_and_ends(&self.path, self.force_poll);
        self.watch = watch.or_else(|_| Watch::folder(&self.path, true)).ok();
    }

    async fn changed(&mut self) {
        match &self.watch {
            Some(watch) => watch.changed().await,
            None => {
                tokio::time::sleep(POLL_EVERY).await;
                self.arm();
            }
        }
    }

    fn take(&mut self) -> Changes {
        let Some(watch) = &mut self.watch else { return Changes::Anything };
        let changes = watch.take();
        match watch.rearm_if_needed() {
            Ok(false) => changes,
            Ok(true) => Changes::Anything,
            Err(_) => {
                self.watch = None;
                Changes::Anything
            }
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
