//! Channels for files: each is an `ssh` of its own beside the link, so that no frame waits for them.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Output, Stdio};

use teamd_shared::host::Host;
use teamd_shared::link::{MAGIC, MAX_BANNER};
use teamd_shared::name::Name;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::dial::{MOST_OF_A_TEXT, ssh};

/// How much of a file is read at once, in bytes, and how many such pieces may wait for the disk.
const PIECE: u64 = 256 << 10;
const PIECES: usize = 4;

/// Carries files to a host and from it.
#[derive(Debug, Clone)]
pub(crate) struct BulkChannel {
    pub(super) host: Host,
    pub(super) home: Uuid,
}

impl BulkChannel {
    /// Sends a bundle.
    ///
    /// # Errors
    /// Why the host does not have it.
    pub(crate) async fn send(&self, bundle: &Path, length: u64) -> Result<(), String> {
        let cannot = |why: &dyn std::fmt::Display| {
            format!("the bundle could not be sent to {}: {why}", self.host.name)
        };
        let file = File::open(bundle).map_err(|error| cannot(&error))?;
        let mut command = ssh(&self.host, self.home, &format!(" --take {length}"));
        let sent = command.stdin(file).stdout(Stdio::null()).output().await;
        said(&sent.map_err(|error| cannot(&error))?).map_err(|why| cannot(&why))
    }

    /// Fetches what a teammate has committed.
    ///
    /// # Errors
    /// Why home does not have all of it.
    pub(crate) async fn fetch(&self, name: &Name, to: &Path, length: u64) -> Result<(), String> {
        let fetched = self.copy_pack(name, to, length).await;
        fetched.map_err(|why| {
            let host = &self.host.name;
            format!("the work of {name} could not be fetched from {host}: {why}")
        })
    }

    async fn copy_pack(&self, name: &Name, to: &Path, length: u64) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        let mut command = ssh(&self.host, self.home, &format!(" --give {name}"));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().map_err(text)?;
        let stdout = child.stdout.take().ok_or("ssh has no pipe")?;
        let mut reader = BufReader::new(stdout);
        let file = File::create(to).map_err(text)?;
        let (pieces, waiting) = mpsc::channel(PIECES);
        let writer = spawn_blocking(move || write_pieces(file, waiting));
        if skip_banner(&mut reader).await.map_err(text)? {
            // A host can send without end.
            read_pieces(&mut reader.take(length), &pieces)
                .await
                .map_err(text)?;
        }
        drop(pieces);
        let written = writer.await.map_err(|error| error.to_string())?;
        let copied = written.map_err(text)?;
        if copied == length {
            return Ok(());
        }
        said(&child.wait_with_output().await.map_err(text)?)?;
        Err(format!("{copied} of {length} bytes came"))
    }
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

/// Returns what `ssh` says if it has failed.
fn said(output: &Output) -> Result<(), String> {
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.map_or_else(|| output.status.to_string(), str::to_owned);
    Err(last.escape_debug().take(MOST_OF_A_TEXT).collect())
}
