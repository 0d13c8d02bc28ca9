//! The text of the answer in progress, followed: only what is new is read. It shows nothing.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::OFlags;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};

/// How many bytes at the beginning and at the end of what was read are looked at again: a file that was emptied and
/// has grown as long since is another text.
const MARK: usize = 64;

/// The text, as far as it was read.
#[derive(Debug)]
pub(super) struct LiveText {
    at: TeamPath,
    /// Device and inode of the file that it was read from.
    file: Option<(u64, u64)>,
    text: String,
}

impl LiveText {
    /// Begins with nothing.
    pub(super) fn new(at: TeamPath) -> Self {
        Self { at, file: None, text: String::new() }
    }

    /// Reads what is new, and returns the whole text, as far as it is whole characters.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn look(&mut self, dir: &TeamDir) -> Result<&str, DirError> {
        match dir.open_file(&self.at, OFlags::RDONLY) {
            Err(error) if error.is_not_found() => self.text.clear(),
            file => {
                let failed = |source| DirError::Io { verb: "read", path: dir.path(&self.at), source };
                let more = more(&mut file?, &mut self.file, &mut self.text).map_err(failed)?;
                // The last character may not be whole yet: it is read again.
                let whole = std::str::from_utf8(&more).unwrap_or_else(|error| {
                    std::str::from_utf8(&more[..error.valid_up_to()]).unwrap_or_default()
                });
                self.text.push_str(whole);
            }
        }
        Ok(&self.text)
    }
}

/// Reads what stands behind a text; behind nothing, if the file is another one or begins otherwise.
fn more(file: &mut File, known: &mut Option<(u64, u64)>, text: &mut String) -> io::Result<Vec<u8>> {
    let about = file.metadata()?;
    let is_known = known.replace((about.dev(), about.ino())) == Some((about.dev(), about.ino()));
    if !is_known || !begins_with(file, about.len(), text.as_bytes())? {
        text.clear();
    }
    let mut more = Vec::new();
    io::Seek::seek(file, io::SeekFrom::Start(to_u64(text.len())))?;
    file.read_to_end(&mut more)?;
    Ok(more)
}

/// Tells whether a file still begins with a text, by its first and last bytes.
fn begins_with(file: &File, length: u64, text: &[u8]) -> io::Result<bool> {
    if length < to_u64(text.len()) {
        return Ok(false);
    }
    let (first, last) = (text.len().min(MARK), text.len().saturating_sub(MARK));
    let mut there = [0; MARK];
    for (from, mark) in [(0, &text[..first]), (last, &text[last..])] {
        let there = &mut there[..mark.len()];
        match file.read_exact_at(there, to_u64(from)) {
            Ok(()) if there == mark => {}
            // It is emptied just now.
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn to_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use teamd_shared::name::Name;

    fn scene() -> (tempfile::TempDir, TeamDir, LiveText, File) {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let at = TeamPath::live(&Name::lead());
        let file = dir.open_file(&at, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE).unwrap();
        (scratch, dir, LiveText::new(at), file)
    }

    #[test]
    fn only_what_is_new_is_read() {
        let (_scratch, dir, mut live, mut file) = scene();
        assert_eq!(live.look(&dir).unwrap(), "");
        let long = "x".repeat(1000);
        file.write_all(long.as_bytes()).unwrap();
        assert_eq!(live.look(&dir).unwrap(), long);
        let mut reads = dir.open_file(&live.at, OFlags::RDONLY).unwrap();
        let mut known = live.file;
        file.write_all("grü".as_bytes()).unwrap();
        assert_eq!(more(&mut reads, &mut known, &mut live.text.clone()).unwrap(), "grü".as_bytes());
        assert_eq!(live.look(&dir).unwrap(), format!("{long}grü"));
    }

    #[test]
    fn a_character_that_is_not_whole_is_read_again() {
        let (_scratch, dir, mut live, mut file) = scene();
        let crab = "🦀".as_bytes();
        file.write_all(&crab[..3]).unwrap();
        assert_eq!(live.look(&dir).unwrap(), "");
        file.write_all(&crab[3..]).unwrap();
        assert_eq!(live.look(&dir).unwrap(), "🦀");
    }

    #[test]
    fn another_text_is_read_from_its_beginning() {
        let (_scratch, dir, mut live, mut file) = scene();
        file.write_all(b"the first answer").unwrap();
        live.look(&dir).unwrap();
        // Shorter, as long, and longer.
        for text in ["short", "other", "another one, which is longer than all of them"] {
            file.set_len(0).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            assert_eq!(live.look(&dir).unwrap(), text);
        }
        teamd_shared::fs::replace(&dir, &live.at.clone(), b"another one, in another file").unwrap();
        assert_eq!(live.look(&dir).unwrap(), "another one, in another file");
        dir.remove(&live.at).unwrap();
        assert_eq!(live.look(&dir).unwrap(), "");
    }
}
