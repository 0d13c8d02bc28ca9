//! The copies of the transcripts of members on hosts.
//!
//! **Who writes**: the daemon at home alone, in order. **Who reads**: every view. **When the daemon
//! dies** in a write, the copy is shorter: its length says where the host goes on. Nothing is synced,
//! since the original is on the host.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};

/// Returns how much of a transcript is here, in bytes.
pub(crate) fn length(dir: &TeamDir, name: &Name) -> u64 {
    let metadata = dir.path(&TeamPath::transcript(name)).metadata();
    metadata.map_or(0, |metadata| metadata.len())
}

/// Adds a piece. One that does not continue the copy is left out: it comes again on the next
/// connection.
///
/// # Errors
/// [`DirError`] if the system refuses.
pub(crate) fn append(dir: &TeamDir, name: &Name, offset: u64, text: &str) -> Result<(), DirError> {
    let at = TeamPath::transcript(name);
    let file = dir.open_file(&at, OFlags::RDWR | OFlags::CREATE)?;
    let length = file.metadata().map_err(dir.cannot("look at", &at))?.len();
    if length != offset {
        tracing::warn!("a piece of the transcript of {name} does not continue its copy");
        return Ok(());
    }
    write(&file, offset, text).map_err(dir.cannot("append to", &at))
}

fn write(file: &File, offset: u64, text: &str) -> io::Result<()> {
    file.write_all_at(text.as_bytes(), offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_grows_by_what_continues_it() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let name = Name::new("alice").unwrap();
        append(&dir, &name, 0, "one\n").unwrap();
        append(&dir, &name, 0, "one\n").unwrap();
        append(&dir, &name, 4, "two\n").unwrap();
        assert_eq!(length(&dir, &name), 8);
        assert_eq!(
            dir.read(&TeamPath::transcript(&name)).unwrap(),
            b"one\ntwo\n"
        );
    }
}
