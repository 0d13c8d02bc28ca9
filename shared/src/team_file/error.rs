//! What can be wrong with `team.toml`, and where.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{MAX_SIZE, TABLES};
use crate::settings::{SettingError, SettingsPatch};

/// A place in a text: line and column, both from 1; a column is a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineColumn {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl LineColumn {
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

impl fmt::Display for LineColumn {
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
        place: LineColumn,
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
    /// Another user could settle what a teammate does.
    #[error("{} belongs to another user (uid {owner})", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// It is no file that a person writes.
    #[error("{} is larger than {MAX_SIZE} bytes", .0.display())]
    TooLarge(PathBuf),
    /// A path in it begins with `~`, and there is no home.
    #[error(transparent)]
    Home(#[from] SettingError),
}

impl TeamFileError {
    pub(super) fn wrong(place: LineColumn, what: impl Into<String>) -> Self {
        Self::Wrong { path: PathBuf::from(super::FILE), place, what: what.into(), hint: None }
    }

    pub(super) fn not_utf8(bytes: &[u8], offset: usize) -> Self {
        Self::wrong(LineColumn::of(bytes, offset), "this byte is not UTF-8")
    }

    /// Says what `toml` found, and where. Never shows the text around it: there may be a key in it.
    pub(super) fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let place = LineColumn::of(text.as_bytes(), error.span().map_or(0, |span| span.start));
        let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
        let message: String = error.message().chars().take(600).map(escaped).collect();
        let mut names = message.split('`').skip(1).step_by(2);
        let unknown = names.next().filter(|_| message.starts_with("unknown field"));
        let what = unknown.map_or_else(|| message.clone(), |key| format!("unknown key `{key}`"));
        let hint = unknown.map(|key| advise(key, names.chain(SettingsPatch::KEYS).chain(TABLES)));
        Self::Wrong { path: PathBuf::from(super::FILE), place, what, hint }
    }

    pub(super) fn in_file(self, file: &Path) -> Self {
        match self {
            Self::Wrong { place, what, hint, .. } => Self::Wrong { path: file.to_owned(), place, what, hint },
            other => other,
        }
    }

    /// Returns where the mistake is, if it has a place.
    pub fn place(&self) -> Option<LineColumn> {
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
            Self::Home(_) => "set HOME, or write the path without `~`",
        }
    }
}

/// Says which key may be meant.
fn advise<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> String {
    let near = known.map(|key| (distance(key, unknown), key)).min();
    match near.filter(|(distance, key)| *distance <= key.len().div_ceil(3)) {
        Some((_, key)) => format!("did you mean `{key}`?"),
        None => "docs/team-toml.md lists the keys of each table; a model's key and address stand in the environment only \
                 (ANTHROPIC_API_KEY, OPENAI_BASE_URL)"
            .to_owned(),
    }
}

/// How many letters are to be added, taken out or changed (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.chars().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}
