//! What can be wrong with `team.toml`, and where.

use std::fmt;
use std::path::{Path, PathBuf};

use super::MAX_SIZE;

/// A place in a text: line and column, both from 1; a column is a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Place {
    /// Returns the place of a byte; one beyond the text counts as its end.
    pub(super) fn of(text: &[u8], offset: usize) -> Self {
        let before = &text[..offset.min(text.len())];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let begins = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        // Every byte of a character but its first one is a continuation.
        let characters = before[begins..].iter().filter(|&&byte| byte & 0xC0 != 0x80).count();
        Self { line, column: characters + 1 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Why `team.toml` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TeamFileError {
    /// Something in it makes no sense.
    #[error("{}:{place}: {what}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Where.
        place: Place,
        /// What is wrong.
        what: String,
        /// What to do, if the text does not say so.
        hint: Option<String>,
    },
    /// The system refuses.
    #[error("cannot {verb} {}: {why}", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: std::io::ErrorKind,
    },
    /// Something else than a file is there.
    #[error("{} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// Somebody else could settle what a teammate does.
    #[error("{} belongs to another user (uid {owner})", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// Nobody has that much to say.
    #[error("{} is larger than {MAX_SIZE} bytes", .0.display())]
    TooLarge(PathBuf),
}

impl TeamFileError {
    pub(super) fn wrong(place: Place, what: impl Into<String>) -> Self {
        Self::Wrong { path: PathBuf::from(super::FILE), place, what: what.into(), hint: None }
    }

    pub(super) fn not_utf8(bytes: &[u8], offset: usize) -> Self {
        Self::wrong(Place::of(bytes, offset), "this byte is not UTF-8")
    }

    /// Adds what to do.
    #[must_use]
    pub(super) fn with_hint(self, text: impl Into<String>) -> Self {
        match self {
            Self::Wrong { path, place, what, .. } => {
                Self::Wrong { path, place, what, hint: Some(text.into()) }
            }
            other => other,
        }
    }

    pub(super) fn in_file(self, file: &Path) -> Self {
        match self {
            Self::Wrong { place, what, hint, .. } => Self::Wrong { path: file.to_owned(), place, what, hint },
            other => other,
        }
    }

    /// Returns where the mistake is, if it has a place.
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::Wrong { place, .. } => Some(*place),
            _ => None,
        }
    }

    /// Returns what to do next. Fits behind "hint: ".
    pub fn hint(&self) -> &str {
        match self {
            Self::Wrong { hint: Some(hint), .. } => hint,
            Self::Wrong { .. } => "correct that line, or move the file away",
            Self::Io { .. } => "make it readable, or move it away",
            Self::NotAFile(_) => "move what is there away",
            Self::Foreign { .. } => "only what you (or root) own is followed: make a copy of your own",
            Self::TooLarge(_) => "long prompts can stand in files of their own: `--prompt-file`",
        }
    }
}
