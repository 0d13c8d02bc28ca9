//! Waits for changes of files in the team directory: by events, or by polling where there are none.

use std::path::PathBuf;
use std::time::Duration;

use teamd_shared::message::TEAMD;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::watch::{Changes, POLL_EVERY, Watch};

/// How often to check without a change: whether the output is still read, and whether the daemon
/// still runs.
pub const TICK: Duration = Duration::from_secs(1);

/// A watch of a folder, which may not be there yet.
pub struct FolderWatch {
    path: PathBuf,
    force_poll: bool,
    watch: Option<Watch>,
}

impl FolderWatch {
    /// Watches the folder of a file from now on. A caller that reads after this misses nothing.
    pub fn of(dir: &TeamDir, file: &TeamPath, force_poll: bool) -> Self {
        let path = dir.path(file).parent().unwrap_or(dir.root()).to_owned();
        let mut folder = Self {
            path,
            force_poll,
            watch: None,
        };
        folder.arm();
        folder
    }

    fn arm(&mut self) {
        // Where the user has no inotify instance left, polling serves a person as well.
        let watch = Watch::folder_and_ends(&self.path, self.force_poll);
        self.watch = watch.or_else(|_| Watch::folder(&self.path, true)).ok();
    }

    /// Returns when a file may have changed. Dropping the future loses nothing.
    pub async fn changed(&mut self) {
        match &self.watch {
            Some(watch) => watch.changed().await,
            None => {
                tokio::time::sleep(POLL_EVERY).await;
                self.arm();
            }
        }
    }

    /// Takes what has changed since this was last asked.
    pub fn take(&mut self) -> Changes {
        let Some(watch) = &mut self.watch else {
            return Changes::Anything;
        };
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

/// A watch of one file, or of all in its folder (none). They may not be there yet, nor the folder.
pub struct Wake {
    file: Option<String>,
    folder: FolderWatch,
}

impl Wake {
    /// Watches a file from now on. A caller that reads after this misses nothing.
    pub fn new(dir: &TeamDir, file: &TeamPath, force_poll: bool) -> Self {
        Self {
            file: Some(file.file_name().to_owned()),
            folder: FolderWatch::of(dir, file, force_poll),
        }
    }

    /// Watches all logs from now on.
    pub fn of_logs(dir: &TeamDir, force_poll: bool) -> Self {
        Self {
            file: None,
            folder: FolderWatch::of(dir, &TeamPath::log(TEAMD), force_poll),
        }
    }

    /// Watches all transcripts from now on: what a teammate reads without a turn changes no other
    /// file.
    pub fn of_transcripts(dir: &TeamDir, force_poll: bool) -> Self {
        Self {
            file: None,
            folder: FolderWatch::of(dir, &TeamPath::transcript(&Name::lead()), force_poll),
        }
    }

    /// Reads the file again after each change, until `look` has an answer.
    ///
    /// # Errors
    /// As `look`.
    pub async fn until<T, E>(
        &mut self,
        mut look: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<T, E> {
        loop {
            if let Some(answer) = look()? {
                return Ok(answer);
            }
            self.changed().await;
        }
    }

    /// Returns when the file may have changed, at the latest after a second.
    pub async fn changed(&mut self) {
        self.changed_within(TICK).await;
    }

    /// Returns when the file may have changed, at the latest after this time.
    pub async fn changed_within(&mut self, most: Duration) {
        let relevant = async {
            loop {
                self.folder.changed().await;
                match self.folder.take() {
                    Changes::Files(files)
                        if self.file.as_ref().is_some_and(|file| !files.contains(file)) => {}
                    _ => break,
                }
            }
        };
        // Either way the caller reads. A folder that was replaced meanwhile is watched again.
        if tokio::time::timeout(most, relevant).await.is_err() {
            drop(self.folder.take());
        }
    }
}
