//! Whether a recorded position still is a place in an inbox.

use super::lines::fits;
use super::{ReadError, cannot_read, open};
use crate::name::Name;
use crate::position::Position;
use crate::team_dir::{TeamDir, TeamPath};

/// How a position stands to an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PositionCheck {
    /// It is a place between two lines, and the bytes before it are those that were read.
    Fits,
    /// The inbox is shorter.
    Beyond {
        /// How long it is, in bytes.
        length: u64,
    },
    /// The byte before it is no newline.
    WithinALine,
    /// It stands behind a newline, but the bytes before it are others.
    Changed,
}

/// Looks how a position stands to an inbox, in bounded memory.
///
/// # Errors
/// [`ReadError::NoInbox`] if it is not there; [`ReadError::Dir`] if the system refuses.
pub fn check_position(dir: &TeamDir, owner: &Name, position: Position) -> Result<PositionCheck, ReadError> {
    let at = TeamPath::inbox(owner);
    let file = open(dir, &at)?;
    let look = || {
        let length = file.metadata()?.len();
        if position.offset > length {
            return Ok(PositionCheck::Beyond { length });
        }
        if fits(&file, position)? {
            return Ok(PositionCheck::Fits);
        }
        let mut before = [0];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut before, position.offset - 1)?;
        Ok(if before == *b"\n" { PositionCheck::Changed } else { PositionCheck::WithinALine })
    };
    look().map_err(|source| cannot_read(dir, &at, source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::{count_lines, create};

    #[test]
    fn a_position_fits_only_behind_the_line_that_was_read() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let name = Name::new("alice").unwrap();
        create(&dir, &name).unwrap();
        let write = |text: &str| crate::fs::replace(&dir, &TeamPath::inbox(&name), text.as_bytes()).unwrap();
        let look = |position| check_position(&dir, &name, position).unwrap();
        write("one\ntwo\n");
        let end = count_lines(&dir, &name, Position::START).unwrap().end;
        assert_eq!(end.offset, 8);
        assert_eq!((look(Position::START), look(end)), (PositionCheck::Fits, PositionCheck::Fits));
        assert_eq!(look(Position { offset: 6, ..end }), PositionCheck::WithinALine);
        write("one\nTWO\nthree\n");
        assert_eq!(look(end), PositionCheck::Changed);
        write("one\n");
        assert_eq!(look(end), PositionCheck::Beyond { length: 4 });
    }
}
