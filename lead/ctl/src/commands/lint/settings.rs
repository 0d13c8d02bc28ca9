//! `team.toml`: read as every command reads it.

use std::path::Path;

use teamd_shared::team_file::TeamFile;

use super::{Remark, RemarkPlace};

/// Reads the settings. A file is read as a command reads it: its owner also counts.
pub(super) fn lint(file: &str, bytes: &[u8]) -> Vec<Remark> {
    const READER: &str =
        "`teamd start`, `spawn` and `shutdown` refuse; other commands continue without the file";
    let read = match file {
        "-" => TeamFile::parse_bytes(bytes),
        _ => TeamFile::load(Path::new(file), &|name| std::env::var(name).ok()),
    };
    match read {
        Ok(_) => Vec::new(),
        Err(error) => {
            let place = error.place().map_or(RemarkPlace::NOWHERE, |place| {
                RemarkPlace::of(place.line, place.column)
            });
            vec![Remark::error(
                place,
                format!("{}; {}", error.what(), error.hint()),
                READER,
            )]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_has_its_place() {
        assert!(lint("-", b"grace = \"5s\"\n").is_empty());
        let wrong = lint("-", b"grace = \"5s\"\ngrase = 1\n");
        assert_eq!((wrong[0].line, wrong[0].column), (2, 1));
        let bytes = lint("-", b"# \xff");
        assert_eq!(
            (bytes[0].line, bytes[0].column, bytes[0].what.as_str()),
            (
                1,
                3,
                "this byte is not UTF-8; correct that line, or move the file away"
            )
        );
    }
}
