//! Files that a message mentions as `@PATH`: their content goes with the message.

use std::fs::{self, File};
use std::io::Read;

use teamd_client::print::render::count;

/// How many bytes of the files go with one message.
const MOST: u64 = 64 * 1024;

/// Returns the text with the content of the files that it mentions, and a line about each.
pub(in crate::chat) fn with_files(text: &str) -> (String, Vec<String>) {
    let mut all = text.to_owned();
    let mut notes = Vec::new();
    let mut room = MOST;
    for path in text
        .split_whitespace()
        .filter_map(|word| word.strip_prefix('@'))
    {
        // The end of a sentence is no part of a path.
        let path = [
            path,
            path.trim_end_matches(['.', ',', ';', ':', '?', '!', ')']),
        ]
        .into_iter()
        .find(|path| fs::metadata(path).is_ok_and(|metadata| metadata.is_file()));
        let Some(path) = path else { continue };
        match read(path, room) {
            Ok((content, whole)) => {
                room -= (content.len() as u64).min(room);
                let cut = if whole { "" } else { "\n[cut here]" };
                all.push_str(&format!(
                    "\n\n<file path=\"{path}\">\n{}{cut}\n</file>",
                    content.trim_end()
                ));
                let cut = if whole { "" } else { ", cut" };
                notes.push(format!(
                    "with {path} ({}{cut})",
                    count(content.lines().count(), "line")
                ));
            }
            Err(why) => notes.push(format!("without {path}: {why}")),
        }
    }
    (all, notes)
}

/// Reads a file as far as there is room. Returns whether that is all of it.
fn read(path: &str, room: u64) -> Result<(String, bool), String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(room + 1).read_to_end(&mut bytes));
    let length = read.map_err(|error| error.to_string())? as u64;
    bytes.truncate(usize::try_from(room).unwrap_or(usize::MAX));
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok((text.to_owned(), length <= room)),
        // The last character may be cut.
        Err(error) if error.error_len().is_none() => {
            bytes.truncate(error.valid_up_to());
            Ok((String::from_utf8_lossy(&bytes).into_owned(), false))
        }
        Err(_) => Err("it is no text".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test writes plain files")]
    fn a_file_that_is_mentioned_goes_with_the_message() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name).display().to_string();
        fs::write(path("a"), "one\ntwo\n").unwrap();
        fs::write(path("b"), [0xff, 0xfe]).unwrap();
        fs::write(path("c"), "é".repeat(40_000)).unwrap();
        let a = path("a");
        let b = path("b");
        let c = path("c");
        let (text, notes) = with_files(&format!("look at @{a}, and a@b @nowhere"));
        assert_eq!(
            text,
            format!("look at @{a}, and a@b @nowhere\n\n<file path=\"{a}\">\none\ntwo\n</file>")
        );
        assert_eq!(notes, [format!("with {a} (2 lines)")]);
        let (text, notes) = with_files(&format!("@{b} @{c}"));
        assert_eq!(
            notes,
            [
                format!("without {b}: it is no text"),
                format!("with {c} (1 line, cut)")
            ]
        );
        assert!(text.len() < 66_000 && text.ends_with("\n[cut here]\n</file>"));
        assert_eq!(with_files("@/dev/zero").1, Vec::<String>::new());
    }
}
