//! What the log of a command in the background says until the command has ended: where its output
//! is meanwhile.

use std::path::Path;

use crate::name::Name;
use crate::team_dir::{DirError, TeamDir, TeamPath};

/// How long what a log says may be, in bytes: a path, and a few words.
pub const MAX_NOTE: u64 = 8 << 10;

const INCARNATION: &str = "[incarnation ";
const BEGIN: &str = "until it has ended, its output is in ";
const END: &str = "]\n";

/// What a log says until its command has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackgroundNote<'t> {
    /// The incarnation that has started the command; none: an earlier version did not note it.
    pub incarnation: Option<u32>,
    /// Where the output is.
    pub place: &'t Path,
}

/// Says where the output is.
pub fn note(incarnation: u32, place: &Path) -> String {
    format!(
        "{INCARNATION}{incarnation}: {BEGIN}{}{END}",
        place.display()
    )
}

/// Reads what a log says; none if it is an output.
pub fn read(log: &str) -> Option<BackgroundNote<'_>> {
    let text = log.strip_suffix(END)?;
    let (incarnation, rest) = match text.strip_prefix(INCARNATION) {
        Some(text) => {
            let (number, rest) = text.split_once(": ")?;
            (Some(number.parse().ok()?), rest)
        }
        None => (None, text.strip_prefix('[')?),
    };
    Some(BackgroundNote {
        incarnation,
        place: Path::new(rest.strip_prefix(BEGIN)?),
    })
}

/// Returns where the output is, if a log says that.
pub fn place(log: &str) -> Option<&Path> {
    read(log).map(|note| note.place)
}

/// Returns the numbers of the commands of a teammate that have a log, in order.
///
/// # Errors
/// The system's error.
pub fn numbers(dir: &TeamDir, name: &Name) -> Result<Vec<u32>, DirError> {
    let found = dir.list(TeamPath::background_log(name, "").folder())?;
    let of_name = format!("{name}.background-");
    let number_of = |file: &str| -> Option<u32> {
        let number = file.strip_prefix(&of_name)?.strip_suffix(".log")?;
        number.parse().ok()
    };
    let mut numbers: Vec<u32> = found
        .iter()
        .filter_map(|found| number_of(found.at.file_name()))
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_log_that_is_the_note_names_a_place() {
        let at = Path::new("/tmp/x]/background-1.log");
        let noted = note(7, at);
        let incarnation = Some(7);
        let place_of = BackgroundNote {
            incarnation,
            place: at,
        };
        assert_eq!(read(&noted), Some(place_of));
        let old = "[until it has ended, its output is in /tmp/x]/background-1.log]\n";
        let incarnation = None;
        let place_of = BackgroundNote {
            incarnation,
            place: at,
        };
        assert_eq!(read(old), Some(place_of));
        let odd = noted.replace('7', "seven");
        for log in ["", "hello\n", &format!("{noted}hello\n"), &odd] {
            assert_eq!(place(log), None);
        }
    }
}
