//! Waiting for a change of a file in the team directory: by events, or by looking where there are none.

use std::path::PathBuf;
use std::time::Duration;

use teamd_shared::message::TEAMD;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::watch::{Changes, POLL_EVERY, Watch};

/// How often to look without a change: whether the output is still read, and whether the daemon still runs.
const TICK: Duration = Duration::from_secs(1);

/// A watch of one file, or of all in its folder (none). They may not be there yet, nor the folder.
pub(super) struct Wake {
    file: Option<String>,
    folder: PathBuf,
    force_poll: bool,
    watch: Option<Watch>,
}

impl Wake {
    /// Watches a file from now on. A caller that reads after this misses nothing.
    pub(super) fn new(dir: &TeamDir, file: &TeamPath, force_poll: bool) -> Self {
        let path = dir.path(file);
        let folder = path.parent().unwrap_or(dir.root()).to_owned();
        let mut wake = Self { file: Some(file.file_name().to_owned()), folder, force_poll, watch: None };
        wake.arm();
        wake
    }

    /// Watches all logs from now on.
    pub(super) fn of_logs(dir: &TeamDir, force_poll: bool) -> Self {
        Self { file: None, ..Self::new(dir, &TeamPath::log(TEAMD), force_poll) }
    }

    /// Watches all transcripts from now on: what a teammate reads without a turn changes no other file.
    pub(super) fn of_transcripts(dir: &TeamDir, force_poll: bool) -> Self {
        Self { file: None, ..Self::new(dir, &TeamPath::transcript(&Name::lead()), force_poll) }
    }

    fn arm(&mut self) {
        // Where the user has no inotify instance left, looking on a timer serves a person as well.
        let watch = Watch::folder(&self.folder, self.force_poll);
        self.watch = watch.or_else(|_| Watch::folder(&self.folder, true)).ok();
    }

    /// Returns when the file may have changed, at the latest after a second.
    pub(super) async fn changed(&mut self) {
        let Some(watch) = &mut self.watch else {
            tokio::time::sleep(POLL_EVERY).await;
            return self.arm();
        };
        let relevant = async {
            loop {
                watch.changed().await;
                match watch.take() {
                    Changes::Files(files) if self.file.as_ref().is_some_and(|file| !files.contains(file)) => {
                    }
                    _ => break,
                }
            }
        };
        // Either way the caller looks.
        drop(tokio::time::timeout(TICK, relevant).await);
        if watch.rearm_if_needed().is_err() {
            self.arm();
        }
    }
}
