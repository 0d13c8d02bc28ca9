//! The files that cross beside a link, each over a channel of its own: what `ssh box teamd host ID
//! --take` or `--give` runs. The host daemon has no part in it, and its link stays free. Where home
//! cannot dial, the host daemon dials for each file.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use teamd_shared::bundle::{self, MAX_BULK};
use teamd_shared::control::DialledHome;
use teamd_shared::link::{FILE_WISH, FromHost, MAGIC, REFUSED, TAKEN};
use teamd_shared::state::StateDir;
use teamd_shared::team_dir::TeamDir;
use tokio::io::AsyncWriteExt;
use uuid::Uuid;

use super::daemon::HostDaemon;
use super::dial::open;
use crate::io::carrier::{CarrierChannel, CarrierEnd, CarrierProcess};
use crate::io::input::Input;
use crate::io::transfer::{send_file, written};
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

impl HostDaemon {
    /// Dials home to carry a file: takes one of this length, or gives one.
    pub(super) fn carry_file(&self, name: Uuid, takes: Option<u64>) {
        let link = self.links.present.as_ref();
        let Some(home) = link.and_then(|link| link.dials.clone()) else {
            let why = "this host has not dialled".to_owned();
            return self.links.say(&FromHost::NoFile { name, why });
        };
        let path = self.jobs.file(name);
        let inputs = self.workers.inputs.clone();
        tokio::spawn(async move {
            let carried = match takes {
                Some(length) => dial_to_take(&home, &path, (name, length)).await,
                None => dial_to_give(&home, &path, name).await,
            };
            if let Err(why) = carried {
                tracing::warn!("a file does not cross: {why}");
                // The host daemon may have ended.
                inputs.send(Input::NoFile { name, why }).await.ok();
            }
        });
    }
}

/// Takes a file where home cannot dial.
///
/// # Errors
/// Why it is not complete.
async fn dial_to_take(
    home: &DialledHome,
    to: &Path,
    (name, length): (Uuid, u64),
) -> Result<(), String> {
    if length > MAX_BULK {
        return Err(format!("a file of {length} bytes is too large"));
    }
    let text = |error: io::Error| error.to_string();
    let mut channel = channel(home, name)?;
    let written = written(channel.reads, create(to).map_err(text)?, length).await;
    let why = match written {
        Ok((written, _)) if written == length => {
            let line = format!("{TAKEN}\n");
            let said = channel.writes.write_all(line.as_bytes()).await;
            said.map_err(text)?;
            // Home hangs up when it has read the line.
            channel.process.ended().await;
            return Ok(());
        }
        Ok((written, _)) => format!("it ended after {written} of {length} bytes"),
        Err(why) => why,
    };
    bundle::remove(to).map_err(text)?;
    let line = format!("{REFUSED}{why}\n");
    let said = channel.writes.write_all(line.as_bytes()).await;
    tracing::debug!("home was told why: {said:?}");
    drop(channel.writes);
    Err(with_end(why, channel.process).await)
}

/// Adds to what went wrong what the carrier says.
async fn with_end(why: String, mut process: CarrierProcess) -> String {
    match process.ends().await {
        CarrierEnd::Done | CarrierEnd::Hangs => why,
        end => format!("{why}: {end}"),
    }
}

/// Gives a file where home cannot dial, and removes it.
///
/// # Errors
/// Why home cannot have it.
async fn dial_to_give(home: &DialledHome, from: &Path, name: Uuid) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let file = File::open(from).map_err(text)?;
    let mut channel = channel(home, name)?;
    let given = send_file(&mut channel.writes, file).await;
    // What did not arrive is packed again.
    bundle::remove(from).map_err(text)?;
    if let Err(why) = given {
        return Err(with_end(why, channel.process).await);
    }
    drop(channel.writes);
    // Home hangs up when it has all.
    match channel.process.ended().await {
        CarrierEnd::Done => Ok(()),
        end => Err(end.to_string()),
    }
}

/// Dials home for one file.
fn channel(home: &DialledHome, name: Uuid) -> Result<CarrierChannel, String> {
    open(home, &format!("{FILE_WISH} {name}"))
}

/// Returns where the daemon of this host keeps what is `git`'s of the team.
fn git_home(dir: &TeamDir) -> Result<PathBuf, CommandError> {
    let state = StateDir::of_process()
        .map_err(|error| CommandError::refused("cannot find the state directory", &error))?;
    Ok(state.real().of_git(dir))
}

/// Makes a file that is not there, and its folder.
fn create(to: &Path) -> io::Result<File> {
    if let Some(folder) = to.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    File::options()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(to)
}

/// Writes a file that must have exactly this length.
fn write_whole(to: &Path, from: &mut impl Read, length: u64) -> io::Result<()> {
    let mut file = create(to)?;
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
