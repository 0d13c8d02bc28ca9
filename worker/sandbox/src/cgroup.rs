//! The cgroup of this incarnation. The daemon makes it and sets its limits; the worker enters it.
//!
//! To enter one takes the kernel some 10 ms (a grace period of RCU). So the worker enters on a
//! thread of its own while it is ready already. No command starts before: each process that a
//! worker starts is in the cgroup from its first moment.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// How much stack the thread gets, in bytes: it opens a file and writes to it.
const STACK: usize = 64 << 10;

/// A cgroup that this process enters once.
#[derive(Debug)]
pub struct OwnCgroup {
    folder: PathBuf,
    entered: Mutex<bool>,
}

impl OwnCgroup {
    /// Begins to enter a cgroup, on a thread.
    pub fn begin(folder: PathBuf) -> Arc<Self> {
        let cgroup = Arc::new(Self {
            folder,
            entered: Mutex::new(false),
        });
        let entering = Arc::clone(&cgroup);
        let started = std::thread::Builder::new()
            .name("cgroup".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                if let Err(error) = entering.enter() {
                    tracing::warn!("{error}; the next command tries again");
                }
            });
        if let Err(error) = started {
            tracing::warn!("cannot start a thread: {error}; the first command enters the cgroup");
        }
        cgroup
    }

    /// Returns its directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns when this process is in the cgroup.
    ///
    /// # Errors
    /// The system's error, if this process cannot enter. It may then start no command.
    pub fn enter(&self) -> io::Result<()> {
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        if !*entered {
            let file = self.folder.join("cgroup.procs");
            // 0 means the process that writes. It is one write, since each is an order to the
            // kernel.
            OpenOptions::new()
                .write(true)
                .open(&file)
                .and_then(|mut procs| procs.write_all(b"0"))
                .map_err(|error| {
                    io::Error::new(
                        error.kind(),
                        format!("cannot enter {}: {error}", file.display()),
                    )
                })?;
            *entered = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_entered_once_and_an_error_names_the_file_and_is_tried_again() {
        let scratch = tempfile::tempdir().unwrap();
        let procs = scratch.path().join("cgroup.procs");
        let cgroup = OwnCgroup::begin(scratch.path().to_owned());
        let error = cgroup.enter().unwrap_err().to_string();
        assert!(error.contains(procs.to_str().unwrap()), "{error}");
        std::fs::File::create(&procs).map(drop).unwrap();
        cgroup.enter().unwrap();
        assert_eq!(std::fs::read_to_string(&procs).unwrap(), "0");
        std::fs::remove_file(&procs).unwrap();
        cgroup.enter().unwrap();
    }
}
