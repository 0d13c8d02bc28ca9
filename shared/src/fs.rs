//! The only raw writes to files of one writer: the append log (journal, transcript) and the atomic
//! replacement (`config.json`). Inboxes, which any process appends, are in [`crate::inbox`].

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;

use crate::mutant;
use crate::position::TAIL;
use crate::team_dir::{DirError, TeamDir, TeamPath};

/// An append-only file of one writer, a whole line at a time.
///
/// **Who writes**: the owner alone (the daemon its journal, a worker its transcript, under the lock
/// that it holds). **Who reads**: any process, whole lines only. **When the owner dies** in the
/// middle of a write, the file ends without a newline; the next owner copies that torn tail aside
/// and cuts it off before it writes. **When a write comes up short** (a full disk), what it wrote
/// is cut off again: what is not wholly there is not there at all. **When a sync fails**, what the
/// kernel kept is unknown: the owner must exit. **When another program appends** nevertheless, our
/// lines stay whole: none is glued to a foreign one without a newline, and none is cut off with it.
/// [`AppendLog::set_foreign_aside`] also keeps the file readable. **When another program cuts or
/// rewrites it**, [`AppendLog::is_whole`] says so.
#[derive(Debug)]
pub struct AppendLog {
    file: File,
    /// Where the last line ends that is known to be ours.
    length: u64,
    /// The bytes before that, at most [`TAIL`].
    last: Vec<u8>,
}

/// Why a line could not be appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendLogError {
    /// Nothing was written: the file is as it was before.
    #[error("cannot append: {0}")]
    Write(io::Error),
    /// The file could not be cut back, or not be synced: what is on disk is unknown, and the owner
    /// must exit.
    #[error("can no longer trust the disk: {0}")]
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
    /// Opens (or makes) the log for its only writer, and repairs its end: a torn tail is first
    /// copied to `aside`, with a newline, and then cut off.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn open(dir: &TeamDir, at: &TeamPath, aside: &TeamPath) -> Result<Opened, DirError> {
        let file = dir.open_file(at, OFlags::RDWR | OFlags::CREATE | OFlags::APPEND)?;
        Self::repair(file, dir, at, aside)
    }

    /// As [`AppendLog::open`], of a file that is open already (a transcript, whose lock was taken
    /// first).
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn repair(
        file: File,
        dir: &TeamDir,
        at: &TeamPath,
        aside: &TeamPath,
    ) -> Result<Opened, DirError> {
        let length = file.metadata().map_err(dir.cannot("look at", at))?.len();
        let whole = end_of_last_line(&file, length).map_err(dir.cannot("read", at))?;
        let mut last = vec![0; TAIL.min(usize::try_from(whole).unwrap_or(TAIL))];
        let from = whole - last.len() as u64;
        file.read_exact_at(&mut last, from)
            .map_err(dir.cannot("read", at))?;
        let log = Self {
            file,
            length: whole,
            last,
        };
        // The file may be new, and its content must not be lost with its name.
        if whole == 0 {
            dir.sync_folder(at.folder())?;
        }
        let torn = if whole < length {
            Some(log.cut_tail_off(dir, at, aside)?)
        } else {
            None
        };
        Ok(Opened { log, torn })
    }

    /// Moves what another program has appended to `aside`, with a newline. Blank lines stay, which
    /// say nothing. Returns what was moved.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn set_foreign_aside(
        &mut self,
        dir: &TeamDir,
        at: &TeamPath,
        aside: &TeamPath,
    ) -> Result<Option<Vec<u8>>, DirError> {
        // In a file that was rewritten, nothing tells the foreign part.
        if !self.is_whole().map_err(dir.cannot("look at", at))? {
            return Ok(None);
        }
        let foreign = self.tail().map_err(dir.cannot("look at", at))?;
        if foreign.iter().all(|&byte| byte == b'\n') {
            self.ends_with(foreign.len() as u64, &foreign);
            return Ok(None);
        }
        self.cut_tail_off(dir, at, aside).map(Some)
    }

    /// Tells whether our lines are still in the file: no other program has cut or rewritten it.
    ///
    /// # Errors
    /// The system's error.
    pub fn is_whole(&self) -> io::Result<bool> {
        let mut present = vec![0; self.last.len()];
        let from = self.length - present.len() as u64;
        match self.file.read_exact_at(&mut present, from) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            read => read.map(|()| present == self.last),
        }
    }

    /// Records that the file has grown by these bytes, which are ours now.
    fn ends_with(&mut self, grown: u64, bytes: &[u8]) {
        self.length += grown;
        self.last = bytes[bytes.len().saturating_sub(TAIL)..].to_vec();
    }

    /// Reads what is behind the last line that is known to be ours.
    fn tail(&self) -> io::Result<Vec<u8>> {
        let length = self.file.metadata()?.len().saturating_sub(self.length);
        let mut tail = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut tail, self.length)?;
        Ok(tail)
    }

    /// Copies it to `aside`, and cuts it off.
    fn cut_tail_off(
        &self,
        dir: &TeamDir,
        at: &TeamPath,
        aside: &TeamPath,
    ) -> Result<Vec<u8>, DirError> {
        let tail = self.tail().map_err(dir.cannot("read", at))?;
        let mut kept = dir.open_file(aside, OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND)?;
        // Its name must last as well. This comes first, so that a refusal does not leave a copy at
        // each try.
        dir.sync_folder(aside.folder())?;
        kept.write_all(&[&tail[..], b"\n"].concat())
            .and_then(|()| {
                if mutant::is_on("torn-tail-not-kept") {
                    Ok(())
                } else {
                    kept.sync_data()
                }
            })
            .map_err(dir.cannot("keep a torn tail in", aside))?;
        self.file
            .set_len(self.length)
            .and_then(|()| self.file.sync_data())
            .map_err(dir.cannot("cut the torn tail off", at))?;
        Ok(tail)
    }

    /// Appends whole lines with one write, without a sync.
    ///
    /// # Errors
    /// [`AppendLogError::Write`] if nothing was written, [`AppendLogError::Broken`] if the file is
    /// in an unknown state.
    pub fn append(&mut self, lines: &[u8]) -> Result<(), AppendLogError> {
        let torn = self.ends_torn().map_err(AppendLogError::Write)?;
        let lines = if torn {
            Cow::from([b"\n", lines].concat())
        } else {
            Cow::from(lines)
        };
        if let Err(ShortWrite { written, source }) = write_once(&self.file, &lines) {
            self.take_back(written as u64)
                .map_err(AppendLogError::Broken)?;
            return Err(AppendLogError::Write(source));
        }
        let end = self
            .file
            .stream_position()
            .map_err(AppendLogError::Broken)?;
        // A file that another program has cut ends earlier, and is still recognized as cut.
        let grown = end.saturating_sub(self.length).max(lines.len() as u64);
        self.ends_with(grown, &lines);
        Ok(())
    }

    /// Tells whether the file ends without a newline, which another program has caused.
    fn ends_torn(&self) -> io::Result<bool> {
        let Some(last) = self.file.metadata()?.len().checked_sub(1) else {
            return Ok(false);
        };
        let mut byte = [0];
        self.file.read_exact_at(&mut byte, last)?;
        Ok(byte != *b"\n")
    }

    /// Cuts off what the last write wrote. What is before it stays, even if another program
    /// wrote it.
    fn take_back(&mut self, written: u64) -> io::Result<()> {
        if written == 0 {
            return Ok(());
        }
        // The position is behind what was written, wherever the file ended by then.
        let end = self.file.stream_position()?;
        self.file.set_len(end - written)
    }

    /// Syncs what was appended.
    ///
    /// # Errors
    /// [`AppendLogError::Broken`]: after a failed sync a second one proves nothing.
    pub fn sync(&self) -> Result<(), AppendLogError> {
        self.file.sync_data().map_err(AppendLogError::Broken)
    }

    /// Returns a reader of everything from the start, but for what another program has appended
    /// since.
    ///
    /// # Errors
    /// The system's error.
    pub fn reader(&mut self) -> io::Result<BufReader<io::Take<&File>>> {
        self.file.seek(SeekFrom::Start(0))?;
        Ok(BufReader::new((&self.file).take(self.length)))
    }

    /// Reads all that [`AppendLog::reader`] reads.
    ///
    /// # Errors
    /// The system's error.
    pub fn read_all(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.reader()?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns the file: a worker hands it (and with it the liveness lock) to its shims.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// A write that came up short, by any number of bytes.
#[derive(Debug)]
pub(crate) struct ShortWrite {
    /// How many bytes were written.
    pub(crate) written: usize,
    /// Why not all of them.
    pub(crate) source: io::Error,
}

/// Writes all bytes with one system call. The caller decides what to do about the rest of a short
/// write.
pub(crate) fn write_once(mut file: &File, bytes: &[u8]) -> Result<(), ShortWrite> {
    loop {
        match file.write(bytes) {
            Ok(written) if written == bytes.len() => return Ok(()),
            Ok(written) => {
                let why = "no space left on the device, or a limit was reached";
                return Err(ShortWrite {
                    written,
                    source: io::Error::new(io::ErrorKind::StorageFull, why),
                });
            }
            // Interrupted means that not one byte was written.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(ShortWrite { written: 0, source }),
        }
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
    swap_in(dir, at, content, |_| Ok(()))
}

/// As [`replace`], for content that cannot be rebuilt: it is on the disk before it replaces the old
/// one.
///
/// # Errors
/// As [`replace`].
pub fn replace_synced(dir: &TeamDir, at: &TeamPath, content: &[u8]) -> Result<(), DirError> {
    swap_in(dir, at, content, File::sync_data)
}

fn swap_in(
    dir: &TeamDir,
    at: &TeamPath,
    content: &[u8],
    finish: impl FnOnce(&File) -> io::Result<()>,
) -> Result<(), DirError> {
    let next = at.with_suffix(".new");
    let mut file = dir.open_file(&next, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
    file.write_all(content)
        .and_then(|()| finish(&file))
        .map_err(dir.cannot("write", &next))?;
    dir.rename(&next, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team_dir::tests::scratch;

    #[test]
    fn a_torn_tail_is_kept_aside_and_cut_off() {
        let (_scratch, dir) = scratch();
        let at = TeamPath::journal();
        let aside = TeamPath::journal_torn();
        File::create(dir.path(&at))
            .unwrap()
            .write_all(b"{\"a\":1}\n{\"b\"")
            .unwrap();
        let mut opened = AppendLog::open(&dir, &at, &aside).unwrap();
        assert_eq!(opened.torn.as_deref(), Some(&b"{\"b\""[..]));
        opened.log.append(b"{\"c\":3}\n").unwrap();
        assert_eq!(dir.read(&at).unwrap(), b"{\"a\":1}\n{\"c\":3}\n");
        assert_eq!(dir.read(&aside).unwrap(), b"{\"b\"\n");
    }

    fn foreign(dir: &TeamDir, bytes: &[u8]) {
        let path = dir.path(&TeamPath::journal());
        File::options()
            .append(true)
            .open(path)
            .unwrap()
            .write_all(bytes)
            .unwrap();
    }

    #[test]
    fn a_write_that_comes_up_short_takes_nothing_of_another_line_with_it() {
        let (_scratch, dir) = scratch();
        let at = TeamPath::journal();
        let mut log = AppendLog::open(&dir, &at, &TeamPath::journal_torn())
            .unwrap()
            .log;
        log.append(b"one\n").unwrap();
        foreign(&dir, b"\n");
        log.append(b"two\n").unwrap();
        // What a full disk leaves of the next one, after which it is taken back.
        log.file.write_all(b"thr").unwrap();
        log.take_back(3).unwrap();
        assert_eq!(dir.read(&at).unwrap(), b"one\n\ntwo\n");
        foreign(&dir, b"\n");
        log.take_back(0).unwrap();
        log.append(b"three\n").unwrap();
        assert_eq!(dir.read(&at).unwrap(), b"one\n\ntwo\n\nthree\n");
    }

    #[test]
    fn what_another_program_appends_parts_no_line_and_can_be_set_aside() {
        let (_scratch, dir) = scratch();
        let at = TeamPath::journal();
        let aside = TeamPath::journal_torn();
        let mut log = AppendLog::open(&dir, &at, &aside).unwrap().log;
        log.append(b"one\n").unwrap();
        foreign(&dir, b"not ours");
        log.append(b"two\n").unwrap();
        assert_eq!(dir.read(&at).unwrap(), b"one\nnot ours\ntwo\n");
        for tail in [&b"half"[..], b"a line\n", b"a line\nand a half"] {
            foreign(&dir, tail);
            assert_eq!(
                log.read_all().unwrap(),
                b"one\nnot ours\ntwo\n",
                "what is read is not foreign"
            );
            assert_eq!(
                log.set_foreign_aside(&dir, &at, &aside).unwrap().as_deref(),
                Some(tail)
            );
        }
        foreign(&dir, b"\n\n");
        assert_eq!(log.set_foreign_aside(&dir, &at, &aside).unwrap(), None);
        log.append(b"three\n").unwrap();
        assert_eq!(dir.read(&at).unwrap(), b"one\nnot ours\ntwo\n\n\nthree\n");
        assert_eq!(
            dir.read(&aside).unwrap(),
            b"half\na line\n\na line\nand a half\n"
        );
    }

    #[test]
    fn a_long_torn_tail_without_any_newline_leaves_an_empty_log() {
        let (_scratch, dir) = scratch();
        File::create(dir.path(&TeamPath::journal()))
            .unwrap()
            .write_all(&[b'x'; 10_000])
            .unwrap();
        let opened =
            AppendLog::open(&dir, &TeamPath::journal(), &TeamPath::journal_torn()).unwrap();
        assert_eq!(opened.log.length, 0);
        assert_eq!(opened.torn.unwrap().len(), 10_000);
    }

    #[test]
    fn a_replacement_is_whole_or_not_there() {
        let (_scratch, dir) = scratch();
        replace(&dir, &TeamPath::config(), b"one").unwrap();
        replace(&dir, &TeamPath::config(), b"two").unwrap();
        assert_eq!(dir.read(&TeamPath::config()).unwrap(), b"two");
    }

    #[test]
    fn what_is_left_of_an_earlier_attempt_does_not_stay_behind_a_shorter_one() {
        let (_scratch, dir) = scratch();
        let at = TeamPath::config();
        let left = File::create(dir.path(&at.with_suffix(".new"))).unwrap();
        (&left)
            .write_all(b"a longer one that came to nothing")
            .unwrap();
        replace(&dir, &at, b"short").unwrap();
        assert_eq!(dir.read(&at).unwrap(), b"short");
    }
}
