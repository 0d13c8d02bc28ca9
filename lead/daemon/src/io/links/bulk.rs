//! Channels for files: each is an `ssh` of its own beside the link, so that no frame waits for them.
//! A host that dials home is asked to dial once more.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use teamd_shared::bundle::BulkFile;
use teamd_shared::control::ByteStream;
use teamd_shared::link::{REFUSED, TAKEN, ToHost};
use teamd_shared::name::Name;
use tokio::io::BufReader;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::dial::ssh_host;
use super::files::AwaitedFiles;
use crate::io::carrier::last_of;
use crate::io::stream::{read_line, shown};
use crate::io::transfer::{send_file, written};

/// A file that comes slower than this many bytes in a second, behind the first minute, is given up.
const SLOWEST: u64 = 32 << 10;

/// How long the answer of a host that was sent a file may be, in bytes.
const MOST_OF_ANSWER: usize = 4096;

/// Carries files to a host and from it, as long as the link is there.
#[derive(Debug, Clone)]
pub(crate) struct BulkChannel {
    pub(super) host: Name,
    pub(super) way: BulkWay,
    /// Closed with the connection of the link.
    pub(super) link: mpsc::Sender<ToHost>,
}

/// Which side opens a channel.
#[derive(Debug, Clone)]
pub(super) enum BulkWay {
    /// Home, which finds the host here.
    Home { place: String, home: Uuid },
    /// The host.
    Host(AwaitedFiles),
}

impl BulkChannel {
    /// Sends a file.
    ///
    /// # Errors
    /// Why the host does not have it.
    pub(crate) async fn send(&self, from: &Path, file: &BulkFile) -> Result<(), String> {
        let BulkFile { name, length, .. } = file;
        let cannot = |why: String| {
            let host = &self.host;
            format!("{length} bytes could not be sent to {host}: {why}")
        };
        let source = File::open(from).map_err(|error| cannot(error.to_string()))?;
        let sent = match &self.way {
            BulkWay::Home { place, home } => {
                let what = format!(" --take {name} --length {length}");
                let mut command = ssh_host(place, *home, &what);
                command.stdin(source).stdout(Stdio::null());
                self.in_time(*length, ended(command)).await
            }
            BulkWay::Host(files) => {
                let order = ToHost::TakeFile {
                    name: *name,
                    length: *length,
                };
                let sending = async {
                    let ByteStream {
                        mut reader,
                        mut writer,
                    } = self.dialled(files, *name, order).await?;
                    send_file(&mut writer, source).await?;
                    let said = read_line(&mut reader, MOST_OF_ANSWER).await?;
                    let said = said.unwrap_or_default();
                    if said == TAKEN.as_bytes() {
                        return Ok(());
                    }
                    let said = String::from_utf8_lossy(&said).into_owned();
                    match said.strip_prefix(REFUSED) {
                        Some(why) => Err(shown(why)),
                        None => Err("the host has not taken it whole".to_owned()),
                    }
                };
                self.in_time(*length, sending).await
            }
        };
        sent.map_err(cannot)
    }

    /// Fetches a file.
    ///
    /// # Errors
    /// Why home does not have all of it.
    pub(crate) async fn fetch(&self, file: &BulkFile, to: &Path) -> Result<(), String> {
        let BulkFile { name, length, .. } = file;
        match &self.way {
            BulkWay::Home { place, home } => {
                let mut command = ssh_host(place, *home, &format!(" --give {name}"));
                command.stdin(Stdio::null()).stdout(Stdio::piped());
                self.in_time(*length, copied(command, to, *length)).await
            }
            BulkWay::Host(files) => {
                let fetching = async {
                    let order = ToHost::GiveFile { name: *name };
                    let ByteStream { reader, .. } = self.dialled(files, *name, order).await?;
                    let file = File::create(to).map_err(|error| error.to_string())?;
                    let (written, _) = written(reader, file, *length).await?;
                    if written == *length {
                        return Ok(());
                    }
                    Err(format!("{written} of {length} bytes came"))
                };
                self.in_time(*length, fetching).await
            }
        }
    }

    /// Has the host dial for a file.
    async fn dialled(
        &self,
        files: &AwaitedFiles,
        file: Uuid,
        order: ToHost,
    ) -> Result<ByteStream, String> {
        let arrives = files.expect(&self.host, file);
        let broke = || "the link broke".to_owned();
        self.link.send(order).await.map_err(|_| broke())?;
        arrives.await.map_err(|_| broke())?
    }

    /// Waits for a transfer, as long as that can come to an end.
    async fn in_time(
        &self,
        length: u64,
        transfer: impl Future<Output = Result<(), String>>,
    ) -> Result<(), String> {
        let longest = Duration::from_secs(60 + length / SLOWEST);
        tokio::select! {
            done = transfer => done,
            () = self.link.closed() => Err("the link broke".to_owned()),
            () = tokio::time::sleep(longest) => Err("it takes too long".to_owned()),
        }
    }
}

/// Runs `ssh`, and says what it says if it fails.
async fn ended(mut command: Command) -> Result<(), String> {
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run ssh: {error}"))?;
    let stderr = child.stderr.take().ok_or("ssh has no pipe")?;
    let said = tokio::spawn(last_of(stderr));
    judge(&mut child, said).await
}

/// Copies what `ssh` prints behind the line with which the stream begins.
async fn copied(mut command: Command, to: &Path, length: u64) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(text)?;
    let stdout = child.stdout.take().ok_or("ssh has no pipe")?;
    let stderr = child.stderr.take().ok_or("ssh has no pipe")?;
    let said = tokio::spawn(last_of(stderr));
    let file = File::create(to).map_err(text)?;
    let (written, reader) = written(BufReader::new(stdout), file, length).await?;
    // It may write more: that is not read.
    drop(reader);
    if written == length {
        return Ok(());
    }
    judge(&mut child, said).await?;
    Err(format!("fewer than {length} bytes came"))
}

/// Waits for the end of `ssh`, and returns what it has said if it failed.
async fn judge(child: &mut Child, said: JoinHandle<String>) -> Result<(), String> {
    let status = child.wait().await.map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(());
    }
    let said = said.await.map_err(|error| error.to_string())?;
    if said.is_empty() {
        return Err(status.to_string());
    }
    Err(shown(&said))
}
