//! The only raw writes to files of one writer: the append log (journal, transcript) and the atomic
//! replacement (`config.json`). Inboxes, which anyone appends, are in [`crate::inbox`].

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;

use crate::team_dir::{DirError, TeamDir, TeamPath};

/// An append-only file of one writer, a whole line at a time.
///
/// **Who writes**: the owner alone (the daemon its journal, a worker its transcript, under the lock that it
/// holds). **Who reads**: anyone, whole lines only. **When the owner dies** in the middle of a write, the
/// file ends without a newline; the next owner copies that torn tail aside and cuts it off before it writes.
/// **When a write comes up short** (a full disk), the file is cut back to its length before: what is not
/// wholly there is not there at all. **When a sync fails**, what the kernel kept is unknown: the owner must exit.
#[derive(Debug)]
pub struct AppendLog {
    file: File,
    length: u64,
}

/// Why a line could not be appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Nothing was written: the file is as it was before.
    #[error("cannot append: {0}")]
    Write(io::Error),
    /// The file could not be cut back, or not be synced: what is on disk is unknown, and the owner must exit.
    #[error("cannot trust the disk any more: {0}")]
    Broken(io::Error),
}

/// What opening an [`AppendLog`] found.
#[derive(Debug)]
pub struct Opened {
    /// The log, ready to append.
    pub log: AppendLog,
    /// The torn tail that was cut off (and kept in the file aside), if there was one.
    pub torn: Option<Vec<u8>>,
}

impl AppendLog {
    /// Opens (or makes) the log for its only writer, and repairs its end: a torn tail is first copied to
    /// `aside`, with a newline, and then cut off.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn open(dir: &TeamDir, at: &TeamPath, aside: &TeamPath) -> Result<Opened, DirError> {
        let file = dir.open_file(at, OFlags::RDWR | OFlags::CREATE | OFlags::APPEND)?;
        Self::repair(file, dir, at, aside)
    }

    /// As [`AppendLog::open`], of a file that is open already (a transcript, whose lock was taken first).
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn repair(file: File, dir: &TeamDir, at: &TeamPath, aside: &TeamPath) -> Result<Opened, DirError> {
        let io = |verb| move |source| DirError::Io { verb, path: dir.path(at), source };
        let length = file.metadata().map_err(io("look at"))?.len();
        let whole = end_of_last_line(&file, length).map_err(io("read"))?;
        let mut torn = None;
        if whole < length {
            let mut tail = vec![0; usize::try_from(length - whole).unwrap_or(usize::MAX)];
            file.read_exact_at(&mut tail, whole).map_err(io("read"))?;
            let mut kept = dir.open_file(aside, OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND)?;
            kept.write_all(&[&tail[..], b"\n"].concat()).and_then(|()| kept.sync_data()).map_err(
                |source| DirError::Io { verb: "keep a torn tail in", path: dir.path(aside), source },
            )?;
            file.set_len(whole).and_then(|()| file.sync_data()).map_err(io("cut the torn tail off"))?;
            torn = Some(tail);
        }
        Ok(Opened { log: Self { file, length: whole }, torn })
    }

    /// Appends whole lines with one write, without a sync.
    ///
    /// # Errors
    /// [`AppendError::Write`] if nothing was written, [`AppendError::Broken`] if the file is in an unknown state.
    pub fn append(&mut self, lines: &[u8]) -> Result<(), AppendError> {
        let written = match self.file.write(lines) {
            Ok(written) if written == lines.len() => {
                self.length += lines.len() as u64;
                return Ok(());
            }
            Ok(written) => Ok(written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return self.append(lines),
            Err(error) => Err(error),
        };
        let why = match written {
            Ok(written) => io::Error::new(
                io::ErrorKind::StorageFull,
                format!("only {written} of {} bytes were written (is the disk full?)", lines.len()),
            ),
            Err(error) => error,
        };
        self.file.set_len(self.length).map_err(AppendError::Broken)?;
        Err(AppendError::Write(why))
    }

    /// Syncs what was appended.
    ///
    /// # Errors
    /// [`AppendError::Broken`]: after a failed sync a second one proves nothing.
    pub fn sync(&self) -> Result<(), AppendError> {
        self.file.sync_data().map_err(AppendError::Broken)
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Tells whether nothing was ever written.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Reads everything from the start.
    ///
    /// # Errors
    /// The system's error.
    pub fn read_all(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns the file: a worker hands it (and with it the life lock) to its keepers.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// Returns the offset behind the last newline, reading backwards.
///
/// # Errors
/// The system's error.
pub fn end_of_last_line(file: &File, length: u64) -> io::Result<u64> {
    let mut end = length;
    let mut block = [0; 4096];
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let part = &mut block[..usize::try_from(end - start).unwrap_or(0)];
        file.read_exact_at(part, start)?;
        if let Some(newline) = part.iter().rposition(|&byte| byte == b'\n') {
            return Ok(start + newline as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Replaces a file: readers see the old content or the new one, never something between.
///
/// It is not synced: what is written this way can be rebuilt.
///
/// # Errors
/// [`DirError`] if the system refuses; the old file is then untouched.
pub fn replace(dir: &TeamDir, at: &TeamPath, content: &[u8]) -> Result<(), DirError> {
    let next = at.with_suffix(".new");
    let mut file = dir.open_file(&next, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
    file.write_all(content).map_err(|source| DirError::Io {
        verb: "write",
        path: dir.path(&next),
        source,
    })?;
    dir.rename(&next, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team_dir::tests::scratch;

    #[test]
    fn a_torn_tail_is_kept_aside_and_cut_off() {
        let (_scratch, dir) = scratch();
        let (at, aside) = (TeamPath::journal(), TeamPath::journal_torn());
        File::create(dir.path(&at)).unwrap().write_all(b"{\"a\":1}\n{\"b\"").unwrap();
        let mut opened = AppendLog::open(&dir, &at, &aside).unwrap();
        assert_eq!(opened.torn.as_deref(), Some(&b"{\"b\""[..]));
        opened.log.append(b"{\"c\":3}\n").unwrap();
        assert_eq!(dir.read(&at).unwrap(), b"{\"a\":1}\n{\"c\":3}\n");
        assert_eq!(dir.read(&aside).unwrap(), b"{\"b\"\n");
    }

    #[test]
    fn a_long_torn_tail_without_any_newline_leaves_an_empty_log() {
        let (_scratch, dir) = scratch();
        File::create(dir.path(&TeamPath::journal())).unwrap().write_all(&[b'x'; 10_000]).unwrap();
        let opened = AppendLog::open(&dir, &TeamPath::journal(), &TeamPath::journal_torn()).unwrap();
        assert!(opened.log.is_empty());
        assert_eq!(opened.torn.unwrap().len(), 10_000);
    }

    #[test]
    fn a_replacement_is_whole_or_not_there() {
        let (_scratch, dir) = scratch();
        replace(&dir, &TeamPath::config(), b"one").unwrap();
        replace(&dir, &TeamPath::config(), b"two").unwrap();
        assert_eq!(dir.read(&TeamPath::config()).unwrap(), b"two");
    }
}
