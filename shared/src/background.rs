//! What the log of a command in the background says until the command has ended: where its output
//! is meanwhile.

use std::path::Path;

use crate::name::Name;
use crate::team_dir::{DirError, TeamDir, TeamPath};

/// How long what a log says may be, in bytes: a path, and a few words.
pub const MAX_NOTE: u64 = 8 << 10;

const BEGIN: &str = "[until it has ended, its output is in ";
const END: &str = "]\n";

/// Says where the output is.
pub fn note(place: &Path) -> String {
    format!("{BEGIN}{}{END}", place.display())
}

/// Returns where the output is, if a log says that.
pub fn place(log: &str) -> Option<&Path> {
    let place = log.strip_prefix(BEGIN)?.strip_suffix(END)?;
    Some(Path::new(place))
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
        assert_eq!(place(&note(at)), Some(at));
        for log in ["", "hello\n", &format!("{}hello\n", note(at))] {
            assert_eq!(place(log), None);
        }
    }
}
