//! What the kernel alone takes: to run a process, and to append a line that a loss of power leaves
//! there.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::peer;

/// A program that does nothing: a copy of this one, made as long as another program.
///
/// Both are Rust programs with the same libraries, so that the dynamic linker has the same to do
/// for them.
pub(crate) struct Bare(PathBuf);

impl Bare {
    /// Makes it, as large as `program` (or as this one, where that is larger).
    pub(crate) fn like(program: &Path, folder: &Path) -> Self {
        let path = folder.join(format!("bare-{}", program.file_name().unwrap().display()));
        std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        let copy = OpenOptions::new().append(true).open(&path).unwrap();
        let missing = program
            .metadata()
            .unwrap()
            .len()
            .saturating_sub(copy.metadata().unwrap().len());
        (&copy)
            .write_all(&vec![0; usize::try_from(missing).unwrap()])
            .unwrap();
        copy.set_permissions(std::fs::Permissions::from_mode(0o700))
            .unwrap();
        copy.sync_all().unwrap();
        Self(path)
    }

    /// Starts it, and reaps it.
    pub(crate) fn run(&self) {
        let mut command = Command::new(&self.0);
        assert!(
            silent(&mut command)
                .args([peer::FLAG, "exit"])
                .status()
                .unwrap()
                .success()
        );
    }
}

/// Connects a command with nothing.
pub(crate) fn silent(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
}

/// A file that grows by lines, each synced.
pub(crate) struct Log(File);

impl Log {
    pub(crate) fn open(folder: &Path) -> Self {
        Self(
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(folder.join("limit.jsonl"))
                .unwrap(),
        )
    }

    /// Appends a line of the length of a journal line, and syncs it.
    pub(crate) fn append(&mut self) {
        let mut line = [b'x'; 400];
        line[399] = b'\n';
        self.0
            .write_all(&line)
            .and_then(|()| self.0.sync_data())
            .unwrap();
    }
}
