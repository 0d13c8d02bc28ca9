//! What can be wrong with `team.toml`, and where.

use std::fmt;
use std::path::{Path, PathBuf};

use super::TABLES;
use crate::settings::Settings;
use crate::suggest;
use crate::variable::SettingError;

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
        let begins = before
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        // Every byte of a character but its first one is a continuation.
        let characters = before[begins..]
            .iter()
            .filter(|&&byte| byte & 0xC0 != 0x80)
            .count();
        Self {
            line,
            column: characters + 1,
        }
    }
}

impl fmt::Display for LineColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Why `team.toml` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamFileError {
    /// The mistake in the file, if that could be read.
    mistake: Option<(PathBuf, LineColumn)>,
    what: String,
    hint: String,
}

impl std::error::Error for TeamFileError {}

impl fmt::Display for TeamFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((path, place)) = &self.mistake {
            write!(f, "{}:{place}: ", path.display())?;
        }
        f.write_str(&self.what)
    }
}

/// A path in the file begins with `~`, and there is no home.
impl From<SettingError> for TeamFileError {
    fn from(error: SettingError) -> Self {
        Self::of_file(error.to_string(), "set HOME, or write the path without `~`")
    }
}

impl TeamFileError {
    pub(super) fn of_file(what: String, hint: &str) -> Self {
        Self {
            mistake: None,
            what,
            hint: hint.to_owned(),
        }
    }

    pub(super) fn wrong(place: LineColumn, what: impl Into<String>) -> Self {
        let hint = "correct that line, or move the file away".to_owned();
        Self {
            mistake: Some((PathBuf::from(super::FILE), place)),
            what: what.into(),
            hint,
        }
    }

    pub(super) fn with_hint(self, hint: &str) -> Self {
        Self {
            hint: hint.to_owned(),
            ..self
        }
    }

    pub(super) fn not_utf8(bytes: &[u8], offset: usize) -> Self {
        Self::wrong(LineColumn::of(bytes, offset), "this byte is not UTF-8")
    }

    /// Explains an error of `toml`, with its place. Never shows the text around it: there may be a
    /// key in it.
    pub(super) fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let place = LineColumn::of(text.as_bytes(), error.span().map_or(0, |span| span.start));
        let message: String = error
            .message()
            .chars()
            .take(600)
            .map(|c| {
                if c.is_control() {
                    c.escape_default().to_string()
                } else {
                    c.to_string()
                }
            })
            .collect();
        let mut names = message.split('`').skip(1).step_by(2);
        match if message.starts_with("unknown field") {
            names.next()
        } else {
            None
        } {
            Some(key) => {
                let hint = advise(key, names.chain(Settings::KEYS.split(' ')).chain(TABLES));
                Self {
                    hint,
                    ..Self::wrong(place, format!("unknown key `{key}`"))
                }
            }
            None => {
                let wrong = Self::wrong(place, &*message);
                let mut words = message.split('`').skip(1).step_by(2);
                let unknown = if message.starts_with("unknown variant") {
                    words.next()
                } else {
                    None
                };
                let meant = unknown.and_then(|unknown| suggest::nearest(unknown, words));
                let hint = meant.map(|word| format!("did you mean `{word}`?"));
                Self {
                    hint: hint.unwrap_or(wrong.hint),
                    ..wrong
                }
            }
        }
    }

    pub(super) fn in_file(mut self, file: &Path) -> Self {
        if let Some((path, _)) = &mut self.mistake {
            file.clone_into(path);
        }
        self
    }

    /// Returns where the mistake is, if it has a place.
    pub fn place(&self) -> Option<LineColumn> {
        self.mistake.as_ref().map(|(_, place)| *place)
    }

    /// Returns what is wrong, without the place.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Returns what to do next. Fits behind "hint: ".
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

/// Suggests the key that may be meant.
fn advise<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> String {
    match suggest::nearest(unknown, known) {
        _ if ["hosts", "ports"].contains(&unknown) => {
            "`[sandbox]` says what is reached: `network = [\"github.com\"]`, `ports = [5432]`".to_owned()
        }
        Some(key) => format!("did you mean `{key}`?"),
        None => "docs/team-toml.md lists the keys of each table; a model's key and address stand in the environment only \
                 (ANTHROPIC_API_KEY, OPENAI_BASE_URL)"
            .to_owned(),
    }
}
