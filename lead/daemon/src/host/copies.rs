//! The transcripts of this host, of which home keeps copies. They are sent behind all else.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use teamd_shared::link::{CopyAt, FromHost};
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};

use super::outbound::{FULL, HomeOutbound};

/// How much of a transcript goes into one frame, in bytes: escaped, it is at most twice as long.
const PIECE: u64 = 512 << 10;

/// How long the transcripts are not looked at again: a hundred of them are not, for each word of a
/// worker.
const LOOKS: Duration = Duration::from_millis(50);

/// How much home has of each transcript, in bytes.
#[derive(Debug)]
pub(super) struct Copies {
    dir: Arc<TeamDir>,
    sent: BTreeMap<Name, u64>,
    /// When they are looked at again.
    next_look: Instant,
    /// Whether that is to be without any event.
    is_behind: bool,
}

impl Copies {
    /// Begins where home's copies end.
    pub(super) fn begin(dir: &Arc<TeamDir>, copies: &[CopyAt]) -> Self {
        let sent = copies.iter().map(|copy| (copy.name.clone(), copy.length));
        Self {
            dir: Arc::clone(dir),
            sent: sent.collect(),
            next_look: Instant::now(),
            is_behind: false,
        }
    }

    /// Forgets a transcript that is in the archive now.
    pub(super) fn forget(&mut self, name: &Name) {
        self.sent.remove(name);
    }

    /// Returns when they are looked at without any event; none if nothing was left for later.
    pub(super) fn due(&self) -> Option<Instant> {
        self.is_behind.then_some(self.next_look)
    }

    /// Sends what is new of the transcripts of these members, unless they were looked at just now.
    pub(super) fn send<'n>(&mut self, names: impl Iterator<Item = &'n Name>, home: &HomeOutbound) {
        let now = Instant::now();
        if self.next_look > now {
            self.is_behind = true;
            return;
        }
        self.is_behind = false;
        self.next_look = now + LOOKS;
        for name in names {
            if let Err(error) = self.send_piece(name, home) {
                tracing::warn!("the transcript of {name} cannot be copied (tried again): {error}");
            }
        }
    }

    /// Sends a piece of what is new of a transcript, if nothing else waits for the link.
    fn send_piece(&mut self, name: &Name, home: &HomeOutbound) -> Result<(), DirError> {
        let at = TeamPath::transcript(name);
        let Ok(metadata) = self.dir.path(&at).metadata() else {
            return Ok(());
        };
        let sent = self.sent.entry(name.clone()).or_default();
        if metadata.len() <= *sent {
            return Ok(());
        }
        if !home.is_idle() {
            self.is_behind = true;
            return Ok(());
        }
        let file = self.dir.open_file(&at, OFlags::RDONLY)?;
        let mut piece = vec![0; usize::try_from(PIECE).unwrap_or(usize::MAX)];
        let length = read_some(|into, offset| file.read_at(into, offset), &mut piece, *sent)
            .map_err(self.dir.cannot("read", &at))?;
        piece.truncate(length);
        let text = whole_lines(&piece);
        if text.is_empty() {
            return Ok(());
        }
        home.say(&FromHost::Transcript {
            name: name.clone(),
            offset: *sent,
            text: text.to_owned(),
        });
        *sent += text.len() as u64;
        if *sent < metadata.len() {
            self.is_behind = true;
            self.next_look = Instant::now() + FULL;
        }
        Ok(())
    }
}

/// Reads as much as there is, at most so much.
fn read_some(
    read_at: impl Fn(&mut [u8], u64) -> io::Result<usize>,
    into: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    let mut length = 0;
    while length < into.len() {
        match read_at(&mut into[length..], offset + length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Returns the whole lines at the beginning. An unfinished one follows when it is finished; of one
/// that is longer than a piece, what is there so far.
fn whole_lines(bytes: &[u8]) -> &str {
    let newline = bytes.iter().rposition(|byte| *byte == b'\n');
    let end = match newline {
        Some(newline) => newline + 1,
        None if bytes.len() as u64 == PIECE => bytes.len(),
        None => 0,
    };
    match std::str::from_utf8(&bytes[..end]) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_ends_behind_a_line_or_in_one_that_is_longer() {
        assert_eq!(whole_lines(b"one\ntwo\nthr"), "one\ntwo\n");
        assert_eq!(whole_lines(b"torn"), "");
        let long = "é".repeat(usize::try_from(PIECE).unwrap() / 2);
        assert_eq!(whole_lines(long.as_bytes()), long);
        let odd = format!("a{long}");
        let piece = &odd.as_bytes()[..long.len()];
        assert_eq!(whole_lines(piece).len(), piece.len() - 1);
    }
}
