//! The files that cross beside a link, each over a channel of its own: what `ssh box teamd host ID
//! --take` or `--give` runs. The host daemon has no part in it, and its link stays free.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use teamd_shared::bundle::{self, MAX_BULK};
use teamd_shared::link::MAGIC;
use teamd_shared::state::StateDir;
use teamd_shared::team_dir::TeamDir;
use uuid::Uuid;

use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;

/// Takes a file of home from standard input.
///
/// # Errors
/// [`CommandError`] if it is not complete, or cannot be written.
pub fn take_file(dir: &TeamDir, name: Uuid, length: u64) -> Result<(), CommandError> {
    if length > MAX_BULK {
        let message = format!("a file of {length} bytes is too large");
        return Err(
            CommandError::new(ExitCode::Usage, message).hint("home never sends one of that size")
        );
    }
    let to = bundle::file(&git_home(dir)?, name);
    write_whole(&to, &mut io::stdin().lock(), length)
        .map_err(|error| CommandError::refused("cannot take what home sends", &error))
}

/// Writes a file to standard output, behind the line with which the stream begins, and removes it.
///
/// # Errors
/// [`CommandError`] if it is not there, or cannot be written.
pub fn give_file(dir: &TeamDir, name: Uuid) -> Result<(), CommandError> {
    let from = bundle::file(&git_home(dir)?, name);
    let given = File::open(&from).and_then(|mut file| {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{MAGIC}")?;
        io::copy(&mut file, &mut stdout)?;
        stdout.flush()
    });
    // What did not arrive is packed again.
    let removed = bundle::remove(&from);
    given
        .and(removed)
        .map_err(|error| CommandError::refused("cannot give the file", &error))
}

/// Returns where the daemon of this host keeps what is `git`'s of the team.
fn git_home(dir: &TeamDir) -> Result<PathBuf, CommandError> {
    let state = StateDir::of_process()
        .map_err(|error| CommandError::refused("cannot find the state directory", &error))?;
    Ok(state.real().of_git(dir))
}

/// Writes a file that must have exactly this length.
fn write_whole(to: &Path, from: &mut impl Read, length: u64) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    let mut file = File::options()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(to)?;
    let written = io::copy(&mut from.take(length), &mut file);
    match written {
        Ok(written) if written == length => Ok(()),
        other => {
            bundle::remove(to)?;
            let written = other?;
            let why = format!("it ended after {written} of {length} bytes");
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_is_not_complete_is_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let to = scratch.path().join("bundles/one");
        let cut = write_whole(&to, &mut &b"abc"[..], 4).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(fs::read_dir(to.parent().unwrap()).unwrap().count(), 0);
        write_whole(&to, &mut &b"abcd and more"[..], 4).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"abcd");
    }
}
