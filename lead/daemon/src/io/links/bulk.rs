//! Channels for files: each is an `ssh` of its own beside the link, so that no frame waits for them.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use teamd_shared::bundle::BulkFile;
use teamd_shared::host::Host;
use teamd_shared::link::{MAGIC, MAX_BANNER, ToHost};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use uuid::Uuid;

use super::dial::{last_of, shown, ssh};

/// How much of a file is read at once, in bytes, and how many such pieces may wait for the disk.
const PIECE: u64 = 256 << 10;
const PIECES: usize = 4;

/// A file that comes slower than this many bytes in a second, behind the first minute, is given up.
const SLOWEST: u64 = 32 << 10;

/// Carries files to a host and from it, as long as the link is there.
#[derive(Debug, Clone)]
pub(crate) struct BulkChannel {
    pub(super) host: Host,
    pub(super) home: Uuid,
    /// Closed with the connection of the link.
    pub(super) link: mpsc::Sender<ToHost>,
}

impl BulkChannel {
    /// Sends a file.
    ///
    /// # Errors
    /// Why the host does not have it.
    pub(crate) async fn send(&self, from: &Path, file: &BulkFile) -> Result<(), String> {
        let BulkFile { name, length, .. } = file;
        let cannot = |why: String| {
            format!(
                "{length} bytes could not be sent to {}: {why}",
                self.host.name
            )
        };
        let source = File::open(from).map_err(|error| cannot(error.to_string()))?;
        let mut command = ssh(
            &self.host,
            self.home,
            &format!(" --take {name} --length {length}"),
        );
        command.stdin(source).stdout(Stdio::null());
        let sent = self.in_time(*length, ended(command)).await;
        sent.map_err(cannot)
    }

    /// Fetches a file.
    ///
    /// # Errors
    /// Why home does not have all of it.
    pub(crate) async fn fetch(&self, file: &BulkFile, to: &Path) -> Result<(), String> {
        let mut command = ssh(&self.host, self.home, &format!(" --give {}", file.name));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        self.in_time(file.length, copied(command, to, file.length))
            .await
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
    let (pieces, waiting) = mpsc::channel(PIECES);
    let writer = spawn_blocking(move || write_pieces(file, waiting));
    let mut reader = BufReader::new(stdout);
    if skip_banner(&mut reader).await.map_err(text)? {
        // A host can send without end.
        let mut limited = (&mut reader).take(length);
        read_pieces(&mut limited, &pieces).await.map_err(text)?;
    }
    // It may write more: that is not read.
    drop(reader);
    drop(pieces);
    let written = writer.await.map_err(|error| error.to_string())?;
    if written.map_err(text)? == length {
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

/// Passes on what is read, until the end or until it is not wanted any more.
async fn read_pieces(
    reader: &mut (impl AsyncReadExt + Unpin),
    pieces: &mpsc::Sender<Vec<u8>>,
) -> io::Result<()> {
    loop {
        let mut piece = Vec::new();
        let read = (&mut *reader).take(PIECE).read_to_end(&mut piece).await?;
        if read == 0 || pieces.send(piece).await.is_err() {
            return Ok(());
        }
    }
}

/// Writes pieces to a file, which is on disk then. Returns its length.
fn write_pieces(mut file: File, mut waiting: mpsc::Receiver<Vec<u8>>) -> io::Result<u64> {
    let mut length = 0;
    while let Some(piece) = waiting.blocking_recv() {
        file.write_all(&piece)?;
        length += piece.len() as u64;
    }
    file.sync_data()?;
    Ok(length)
}

/// Reads what a login shell prints, and the line with which the stream begins. Returns whether that
/// came.
async fn skip_banner(reader: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<bool> {
    let mut left = MAX_BANNER as u64;
    while left > 0 {
        let mut line = Vec::new();
        let read = (&mut *reader)
            .take(left)
            .read_until(b'\n', &mut line)
            .await?;
        if line.strip_suffix(b"\n") == Some(MAGIC.as_bytes()) {
            return Ok(true);
        }
        if read == 0 {
            return Ok(false);
        }
        left -= read as u64;
    }
    Ok(false)
}
