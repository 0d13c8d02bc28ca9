//! The files that cross beside a link, each over a channel of its own: what `ssh box teamd host ID
//! --take` or `--give` runs. The host daemon has no part in it, and its link stays free.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use teamd_shared::bundle::{BulkName, MAX_BULK};
use teamd_shared::link::MAGIC;
use teamd_shared::name::Name;
use teamd_shared::state::StateDir;
use teamd_shared::team_dir::TeamDir;

use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;

/// Takes a bundle of home from standard input. It gets its name when it is complete.
///
/// # Errors
/// [`CommandError`] if it is not complete, or cannot be written.
pub fn take_bundle(dir: &TeamDir, length: u64) -> Result<(), CommandError> {
    if length > MAX_BULK {
        let message = format!("a bundle of {length} bytes is too large");
        return Err(
            CommandError::new(ExitCode::Usage, message).hint("home never sends one of that size")
        );
    }
    let to = BulkName::Bundle(None).file(&git_home(dir)?);
    write_whole(&to, &mut io::stdin().lock(), length)
        .map_err(|error| CommandError::refused("cannot take the bundle", &error))
}

/// Writes what a teammate has committed to standard output, behind the line with which the stream
/// begins, and removes it here.
///
/// # Errors
/// [`CommandError`] if it is not there, or cannot be written.
pub fn give_pack(dir: &TeamDir, name: &Name) -> Result<(), CommandError> {
    let from = BulkName::Pack(name.clone()).file(&git_home(dir)?);
    let given = File::open(&from).and_then(|mut file| {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{MAGIC}")?;
        io::copy(&mut file, &mut stdout)?;
        stdout.flush()?;
        // What did not arrive is packed again.
        fs::remove_file(&from)
    });
    given.map_err(|error| CommandError::refused("cannot give the pack", &error))
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
    let unfinished = to.with_extension("new");
    let mut file = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&unfinished)?;
    let written = io::copy(&mut from.take(length), &mut file)?;
    if written != length {
        fs::remove_file(&unfinished)?;
        let why = format!("it ended after {written} of {length} bytes");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
    }
    fs::rename(&unfinished, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_complete_gets_no_name() {
        let scratch = tempfile::tempdir().unwrap();
        let to = scratch.path().join("bundles/home.bundle");
        let cut = write_whole(&to, &mut &b"abc"[..], 4).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(fs::read_dir(to.parent().unwrap()).unwrap().count(), 0);
        write_whole(&to, &mut &b"abcd and more"[..], 4).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"abcd");
    }
}
