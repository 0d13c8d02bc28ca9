//! The guide of a workspace: a file that becomes part of the instructions of every model that works
//! there. It can be of any length; only its beginning is used.

use std::io::Read;

use super::{Workspace, size};

/// The files, the first one that is there.
const FILES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

/// How much of it is used at most, in bytes.
const MOST: usize = 64 << 10;

/// The guide of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Guide {
    /// The name of the file.
    pub(crate) file: String,
    /// Its text, or the beginning of it.
    pub(crate) text: String,
    /// What is left out, if it was too long.
    pub(crate) rest: Option<Rest>,
}

/// What a guide leaves out of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rest {
    /// The line that it begins in, counted from 1.
    pub(crate) line: usize,
    /// How much is taken, in bytes.
    pub(crate) taken: usize,
    /// How long the file is, in bytes.
    pub(crate) of: u64,
}

impl Workspace {
    /// Returns what the workspace says to agents, at most so many bytes of it.
    pub(crate) fn guide(&self, most: usize) -> Option<Guide> {
        let most = most.min(MOST);
        FILES.iter().find_map(|&name| {
            let (file, stat) = self.open_file(name).ok()?;
            let mut bytes = Vec::new();
            // One more tells whether that is all.
            file.take(most as u64 + 1).read_to_end(&mut bytes).ok()?;
            let rest = (bytes.len() > most).then(|| {
                bytes.truncate(head(&bytes[..most]));
                let line = 1 + bytes.iter().filter(|&&byte| byte == b'\n').count();
                Rest {
                    line,
                    taken: bytes.len(),
                    of: size(&stat).max(most as u64 + 1),
                }
            });
            let text = String::from_utf8_lossy(&bytes).into_owned();
            (!text.trim().is_empty()).then(|| Guide {
                file: name.to_owned(),
                text,
                rest,
            })
        })
    }
}

/// Returns where to cut: after a line, unless that loses half of the text, else after a character.
fn head(bytes: &[u8]) -> usize {
    match bytes.iter().rposition(|&byte| byte == b'\n') {
        Some(end) if end >= bytes.len() / 2 => end + 1,
        _ => {
            bytes.len()
                - bytes
                    .utf8_chunks()
                    .last()
                    .map_or(0, |last| last.invalid().len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_ends_with_a_line_or_at_least_with_a_character() {
        for (bytes, end) in [
            (&b"one\ntwo\nthr"[..], 8),
            (b"one\na long line without an end", 30),
            ("aüü".as_bytes(), 5),
            (&"aüü".as_bytes()[..4], 3),
            (&"a🦀".as_bytes()[..4], 1),
            (b"", 0),
        ] {
            assert_eq!(head(bytes), end, "{bytes:?}");
        }
    }
}
