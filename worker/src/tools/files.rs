//! The file tools: `read_file`, `write_file`, `edit_file`. They work at once and never wait.
//!
//! What a path means, and where none may lead, is in [`beneath`]. A file is never changed in place: a new one takes
//! its name by a rename, so that readers see the old content or the new one. It keeps the mode, and (for root) the
//! owner; it is another inode, so other hard links keep the old content. A link is followed: the file that it names
//! is replaced, the link stays. Nothing is synced: after a power loss the old content may be back.

mod beneath;
mod guide;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use uuid::Uuid;

use super::output::KEPT;
use beneath::Place;
pub(crate) use beneath::{FileError, Workspace};
pub(crate) use guide::{Guide, Rest};

/// How many lines are read unless a call says otherwise.
const DEFAULT_LINES: u64 = 2000;

/// The largest file that is edited, in bytes.
const MAX_EDIT: u64 = 16 << 20;

/// How much of a line is looked at, in bytes: more than [`KEPT`] characters, which have at most four each.
const MAX_LINE: u64 = 4 * KEPT as u64 + 1;

/// How much is read before the first line that is wanted, in bytes: a file can be larger than any disk, and the worker
/// hears nobody meanwhile.
const MAX_SKIPPED: u64 = 64 << 20;

/// How much of a file is looked at to tell whether it is text, in bytes.
const PROBE: usize = 8 << 10;

impl Workspace {
    /// Reads lines of a text file, from `offset` (counted from 1), at most `limit` of them and 50,000 characters.
    pub(super) fn read(
        &self,
        path: &str,
        offset: Option<u64>,
        limit: Option<u64>,
    ) -> Result<String, FileError> {
        let (file, stat) = self.open_existing(path)?;
        let mut reader = BufReader::with_capacity(PROBE, file);
        let error = |error| FileError::io("read", path, error);
        if reader.fill_buf().map_err(error)?.contains(&0) {
            return Err(FileError::NotText { path: path.to_owned(), size: size(&stat) });
        }
        let first = offset.unwrap_or(1);
        let mut left = MAX_SKIPPED;
        for line in 1..first {
            let skipped = reader.by_ref().take(left).skip_until(b'\n').map_err(error)?;
            left = left.saturating_sub(skipped as u64);
            if left == 0 {
                return Err(FileError::Useless(format!(
                    "offset {first} lies more than {MAX_SKIPPED} bytes behind the beginning of {path}: look there with bash \
                     (`sed -n {first},{}p`)",
                    first.saturating_add(limit.unwrap_or(DEFAULT_LINES))
                )));
            }
            if skipped == 0 {
                return Err(FileError::Useless(format!(
                    "{path} has {} lines: offset {first} is behind its end",
                    line - 1
                )));
            }
        }
        let page = Page::read(&mut reader, first, limit.unwrap_or(DEFAULT_LINES)).map_err(error)?;
        if !page.text.is_empty() {
            return Ok(page.text + &page.note);
        }
        let nothing = if first == 1 { "the file is empty" } else { "the file ends here" };
        Ok(format!("[{nothing}]"))
    }

    /// Makes a file, or replaces the one that is there; makes the directories that are missing.
    pub(super) fn write(&self, path: &str, content: &str) -> Result<String, FileError> {
        let place = self.find_to_change(path, true)?;
        if let Some(stat) = &place.stat {
            must_be_file(path, stat)?;
        }
        self.replace(path, &place, content.as_bytes(), place.stat.as_ref())?;
        Ok(format!("wrote {} bytes to {path}", content.len()))
    }

    /// Replaces a text that occurs exactly once.
    pub(super) fn edit(&self, path: &str, old: &str, new: &str) -> Result<String, FileError> {
        if old.is_empty() {
            return Err(FileError::Useless("old_text is empty: use write_file to make a file".to_owned()));
        }
        if old == new {
            return Err(FileError::Useless("old_text and new_text are the same".to_owned()));
        }
        let place = self.find_to_change(path, false)?;
        let (file, stat) = open_place(path, &place)?;
        if size(&stat) > MAX_EDIT {
            let size = size(&stat);
            return Err(FileError::Useless(format!(
                "{path} has {size} bytes, the limit for edit_file is {MAX_EDIT}"
            )));
        }
        let mut content = Vec::new();
        file.take(MAX_EDIT).read_to_end(&mut content).map_err(|error| FileError::io("read", path, error))?;
        let not_text = |_| FileError::NotText { path: path.to_owned(), size: size(&stat) };
        let mut content = String::from_utf8(content).map_err(not_text)?;
        let at = only_place_of(path, &content, old)?;
        let line = 1 + content[..at].matches('\n').count();
        content.replace_range(at..at + old.len(), new);
        self.replace(path, &place, content.as_bytes(), Some(&stat))?;
        Ok(format!("edited {path} at line {line}"))
    }

    /// Removes what a call has left that was killed while it wrote a file.
    pub(super) fn clear_up(&self, path: &str) -> Result<(), FileError> {
        let place = self.find_to_change(path, false)?;
        match rustix::fs::unlinkat(&place.parent, &self.temporary, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(FileError::io("clear up beside", path, errno)),
        }
    }

    fn open_existing(&self, path: &str) -> Result<(File, Stat), FileError> {
        open_place(path, &self.find(path)?)
    }

    /// Puts a new file into a place. `old` is the file that it takes the place of, as the caller has seen it.
    fn replace(
        &self,
        path: &str,
        place: &Place,
        content: &[u8],
        old: Option<&Stat>,
    ) -> Result<(), FileError> {
        let io = |verb| move |errno: Errno| FileError::io(verb, path, errno);
        if old.is_some() {
            // A rename asks only for the directory: a file that may not be written must stay.
            rustix::fs::accessat(&place.parent, &place.name, Access::WRITE_OK, AtFlags::EACCESS)
                .map_err(io("write"))?;
        }
        let (file, temporary) = make_beside(place, &self.temporary).map_err(io("write"))?;
        let written = fill(file, content, old)
            .map_err(|error| FileError::io("write", path, error))
            .and_then(|()| unchanged(path, place, old))
            .and_then(|()| {
                rustix::fs::renameat(&place.parent, &temporary, &place.parent, &place.name)
                    .map_err(io("replace"))
            });
        if written.is_err()
            && let Err(errno) = rustix::fs::unlinkat(&place.parent, &temporary, AtFlags::empty())
        {
            tracing::warn!("cannot remove {temporary} beside {path}: {errno}");
        }
        written
    }
}

/// Makes a file in the directory of a place, and returns its name: `usual`, under which a killed life may have left one; another
/// where somebody has put something else there.
fn make_beside(place: &Place, usual: &str) -> rustix::io::Result<(OwnedFd, String)> {
    let make = |name: String| {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&place.parent, &name, flags, Mode::from_raw_mode(0o666))?;
        Ok((file, name))
    };
    let another = || make(format!(".teamd-{}.tmp", Uuid::new_v4().simple()));
    // What it is to replace may have that name.
    if place.name == *usual {
        return another();
    }
    let made = make(usual.to_owned());
    if !matches!(made, Err(Errno::EXIST)) {
        return made;
    }
    match rustix::fs::unlinkat(&place.parent, usual, AtFlags::empty()).and_then(|()| make(usual.to_owned())) {
        Ok(made) => Ok(made),
        Err(errno) => {
            tracing::warn!("{usual} is in the way of a file: {errno}");
            another()
        }
    }
}

fn open_place(path: &str, place: &Place) -> Result<(File, Stat), FileError> {
    let found = place.stat.as_ref().ok_or_else(|| FileError::io("open", path, Errno::NOENT))?;
    must_be_file(path, found)?;
    let file = place.open(OFlags::RDONLY).map_err(|errno| FileError::io("open", path, errno))?;
    // It can have become another one since.
    let stat = rustix::fs::fstat(&file).map_err(|errno| FileError::io("look at", path, errno))?;
    must_be_file(path, &stat)?;
    Ok((File::from(file), stat))
}

fn must_be_file(path: &str, stat: &Stat) -> Result<(), FileError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(FileError::Directory(path.to_owned())),
        _ => Err(FileError::NotAFile(path.to_owned())),
    }
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Some lines of a file.
struct Page {
    text: String,
    /// What is to be said behind them: empty if the file ends there.
    note: String,
}

impl Page {
    fn read(reader: &mut impl BufRead, first: u64, limit: u64) -> io::Result<Self> {
        let mut page = Self { text: String::new(), note: String::new() };
        let mut chars = 0;
        for number in first..first.saturating_add(limit) {
            let mut line = Vec::new();
            if reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
                return Ok(page);
            }
            let line = String::from_utf8_lossy(&line);
            let length = line.chars().count();
            if chars + length > KEPT {
                let why = format!("{KEPT} characters are the limit");
                page.note = if chars > 0 {
                    format!("[{why}: read on with offset {number}]")
                } else {
                    page.text = line.chars().take(KEPT).collect();
                    format!("\n[{why}, and line {number} alone is longer: look at its end with bash]")
                };
                return Ok(page);
            }
            page.text.push_str(&line);
            chars += length;
        }
        if !reader.fill_buf()?.is_empty() {
            page.note = format!("[the file goes on: read on with offset {}]", first.saturating_add(limit));
        }
        Ok(page)
    }
}

/// Returns where a text begins that occurs exactly once; places that overlap count each.
fn only_place_of(path: &str, content: &str, old: &str) -> Result<usize, FileError> {
    let step = old.chars().next().map_or(1, char::len_utf8);
    let next = |from: usize| content[from..].find(old).map(|at| from + at);
    let places: Vec<usize> = std::iter::successors(next(0), |at| next(at + step)).collect();
    match places[..] {
        [at] => Ok(at),
        [] if holds_but_for_white_space(content, old) => Err(FileError::Useless(format!(
            "old_text not found in {path}, but for its white space it is there: read the file and copy it exactly"
        ))),
        [] => Err(FileError::Useless(format!("old_text not found in {path}"))),
        _ => {
            let count = places.len();
            Err(FileError::Useless(format!("old_text occurs {count} times in {path}: make it unique")))
        }
    }
}

/// Compares the words alone.
fn holds_but_for_white_space(content: &str, old: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let old = words(old);
    !old.is_empty() && words(content).contains(&old)
}

/// Writes the new file, and gives it the owner and mode of the old one.
fn fill(file: OwnedFd, content: &[u8], old: Option<&Stat>) -> io::Result<()> {
    let mut file = File::from(file);
    file.write_all(content)?;
    let Some(old) = old else { return Ok(()) };
    let new = rustix::fs::fstat(&file)?;
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid) {
        // Only root may give files away; for everybody else the file becomes their own, as with any editor.
        let (owner, group) = (rustix::fs::Uid::from_raw(old.st_uid), rustix::fs::Gid::from_raw(old.st_gid));
        match rustix::fs::fchown(&file, Some(owner), Some(group)) {
            Ok(()) | Err(Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    // Not the set-user-id bits: a write takes them away as well.
    Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(old.st_mode & 0o777))?)
}

/// Looks whether somebody else has changed the file since it was read: their work must not be lost.
fn unchanged(path: &str, place: &Place, old: Option<&Stat>) -> Result<(), FileError> {
    let key = |stat: &Stat| (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
    let now = match rustix::fs::statat(&place.parent, &place.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(stat),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(FileError::io("look at", path, errno)),
    };
    if now.as_ref().map(key) == old.map(key) {
        return Ok(());
    }
    Err(FileError::Useless(format!("{path} was changed by somebody else at the same time: read it again")))
}

#[cfg(test)]
mod tests;
