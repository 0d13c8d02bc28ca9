//! The record of a session: what the worker must know of it after a crash, where the agent itself
//! does not show that. It lies in the state directory of the agent, and goes with that.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use teamd_shared::place::{make_below, open_itself};
use teamd_shared::team_dir::{DIR_MODE, FILE_MODE};

/// The record, opened for appending.
#[derive(Debug)]
pub(super) struct SessionRecord {
    file: File,
}

impl SessionRecord {
    /// Opens the record of this name below the state directory. The agent writes there: a link of
    /// its own must not have this process write elsewhere.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn open(state: &Path, name: &Path) -> io::Result<Self> {
        let above = open_itself(state, OFlags::PATH | OFlags::DIRECTORY)?;
        let folder = name.parent().unwrap_or(Path::new(""));
        let folder = make_below(&above, folder, Mode::from_raw_mode(DIR_MODE))?;
        let name = name.file_name().unwrap_or_default();
        let flags = OFlags::WRONLY
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let file = File::from(openat(folder, name, flags, Mode::from_raw_mode(FILE_MODE))?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("the record of its session is no file"));
        }
        Ok(Self { file })
    }

    /// Adds lines, and returns when they last.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn add(&mut self, lines: &str) -> io::Result<()> {
        self.file.write_all(lines.as_bytes())?;
        self.file.sync_data()
    }
}
