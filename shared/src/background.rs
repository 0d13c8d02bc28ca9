//! What the log of a command in the background says until the command has ended: where its output
//! is meanwhile.

use std::path::Path;

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
