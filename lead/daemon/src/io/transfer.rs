//! A file on a stream of bytes, at either end of it.

use std::fs::File;
use std::io::{self, Read, Write};

use teamd_shared::link::MAGIC;
use tokio::io::{AsyncBufRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::stream::until_magic;

/// How much of a file is read at once, in bytes, and how many such pieces may wait for the disk.
const PIECE: u64 = 256 << 10;
const PIECES: usize = 4;

/// Writes what comes behind the line with which the stream begins, up to so many bytes: a host can
/// send without end. Returns how many there were, and the reader.
pub(crate) async fn written<R: AsyncBufRead + Unpin>(
    mut reader: R,
    file: File,
    length: u64,
) -> Result<(u64, R), String> {
    let text = |error: io::Error| error.to_string();
    let (pieces, waiting) = mpsc::channel(PIECES);
    let writer = spawn_blocking(move || write_pieces(file, waiting));
    if until_magic(&mut reader).await? {
        let mut limited = (&mut reader).take(length);
        read_pieces(&mut limited, &pieces).await.map_err(text)?;
    }
    drop(pieces);
    let written = writer.await.map_err(|error| error.to_string())?;
    Ok((written.map_err(text)?, reader))
}

/// Sends a file behind the line with which the stream begins.
pub(crate) async fn send_file(
    writer: &mut (impl AsyncWrite + Unpin),
    from: File,
) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let begins = format!("{MAGIC}\n");
    writer.write_all(begins.as_bytes()).await.map_err(text)?;
    let (pieces, mut waiting) = mpsc::channel(PIECES);
    let read = spawn_blocking(move || read_file(from, &pieces));
    while let Some(piece) = waiting.recv().await {
        let piece: Vec<u8> = piece;
        writer.write_all(&piece).await.map_err(text)?;
    }
    let read = read.await.map_err(|error| error.to_string())?;
    read.map_err(text)?;
    writer.flush().await.map_err(text)
}

/// Reads a file in pieces, until its end or until they are not wanted any more.
fn read_file(mut file: File, pieces: &mpsc::Sender<Vec<u8>>) -> io::Result<()> {
    loop {
        let mut piece = Vec::new();
        let read = (&mut file).take(PIECE).read_to_end(&mut piece)?;
        if read == 0 || pieces.blocking_send(piece).is_err() {
            return Ok(());
        }
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
