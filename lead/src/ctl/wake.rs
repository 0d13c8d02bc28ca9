//! Waiting for a change of a file in the team directory: by events, or by looking where there are none.

use std::path::{Path, PathBuf};
use std::time::Duration;

use teamd_shared::watch::{Changes, POLL_EVERY, Watch};

/// How often to look without a change: whether the output is still read, and whether the daemon still runs.
const TICK: Duration = Duration::from_secs(1);

/// A watch of the files of one folder, which may not be there yet.
pub(super) struct Wake {
    folder: PathBuf,
    force_poll: bool,
    watch: Option<Watch>,
}

impl Wake {
    /// Watches a folder from now on. A caller that reads after this misses nothing.
    pub(super) fn new(folder: &Path, force_poll: bool) -> Self {
        let mut wake = Self { folder: folder.to_owned(), force_poll, watch: None };
        wake.arm();
        wake
    }

    fn arm(&mut self) {
        // Where the user has no inotify instance left, looking on a timer serves a person as well.
        let watch =
            Watch::folder(&self.folder, self.force_poll).or_else(|_| Watch::folder(&self.folder, true));
        self.watch = watch.ok();
    }

    /// Returns when this file of the folder may have changed, at the latest after a second.
    pub(super) async fn changed(&mut self, file: &str) {
        match &self.watch {
            Some(watch) => {
                let relevant = async {
                    loop {
                        watch.changed().await;
                        match watch.take() {
                            Changes::Files(files) if !files.contains(file) => {}
                            _ => break,
                        }
                    }
                };
                // Either way the caller looks.
                drop(tokio::time::timeout(TICK, relevant).await);
            }
            None => tokio::time::sleep(POLL_EVERY).await,
        }
        let lost = self.watch.as_mut().is_none_or(|watch| watch.rearm_if_needed().is_err());
        if lost {
            self.arm();
        }
    }
}
