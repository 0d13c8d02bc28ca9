//! The lines that a person has typed, in a file of the user.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use teamd_client::print::output::Output;

/// How many lines the history has.
const MOST: usize = 1000;
/// The first line of the file: in the others, line feeds and backslashes are escaped.
const FORMAT: &str = "#V2";

/// The history, oldest first.
#[derive(Debug, Default)]
pub(in crate::chat) struct LineHistory {
    lines: Vec<String>,
    /// None where no history is kept.
    path: Option<PathBuf>,
}

impl LineHistory {
    /// Reads the history. Without its file, the history begins with this chat.
    pub(in crate::chat) fn load(out: &Output) -> Self {
        let mut history = Self {
            path: history_path(|name| std::env::var_os(name)),
            ..Self::default()
        };
        let loaded = history.read();
        history.note_failure(loaded, out);
        history
    }

    /// Adds a line.
    pub(in crate::chat) fn remember(&mut self, line: &str, out: &Output) {
        let added = self.add(line);
        self.note_failure(added, out);
    }

    /// Returns how many lines there are.
    pub(super) fn count(&self) -> usize {
        self.lines.len()
    }

    /// Returns a line.
    pub(super) fn line(&self, at: usize) -> Option<&str> {
        self.lines.get(at).map(String::as_str)
    }

    /// Returns the last line before a place that has a text in it.
    pub(super) fn search(&self, wanted: &str, before: usize) -> Option<usize> {
        let earlier = self.lines.get(..before)?;
        earlier.iter().rposition(|line| line.contains(wanted))
    }

    pub(super) fn add(&mut self, line: &str) -> io::Result<()> {
        if self.lines.last().is_some_and(|last| last == line) {
            return Ok(());
        }
        self.lines.push(line.to_owned());
        let Some(path) = &self.path else {
            return Ok(());
        };
        let mut file = open(path)?;
        if file.metadata()?.len() == 0 {
            file.write_all(format!("{FORMAT}\n").as_bytes())?;
        }
        file.write_all(format!("{}\n", escaped(line)).as_bytes())
    }

    fn read(&mut self) -> io::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path.parent().unwrap_or(path))?;
        let text = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            text => text?,
        };
        let text = String::from_utf8_lossy(&text);
        let mut lines: Vec<&str> = text.lines().filter(|line| *line != FORMAT).collect();
        let is_too_long = lines.len() > 2 * MOST;
        lines.drain(..lines.len().saturating_sub(MOST));
        if is_too_long {
            replace(path, &lines)?;
        }
        self.lines = lines.into_iter().map(unescaped).collect();
        Ok(())
    }

    fn note_failure(&mut self, done: io::Result<()>, out: &Output) {
        if let Err(error) = done
            && let Some(path) = self.path.take()
        {
            out.note(format_args!(
                "no history is kept: cannot use {}: {error}",
                path.display()
            ));
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).open(path)
}

/// Leaves only these lines in the file.
fn replace(path: &Path, lines: &[&str]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = open(&new)?;
    file.set_len(0)?;
    file.write_all(format!("{FORMAT}\n{}\n", lines.join("\n")).as_bytes())?;
    fs::rename(new, path)
}

fn escaped(line: &str) -> String {
    line.replace('\\', "\\\\").replace('\n', "\\n")
}

fn unescaped(line: &str) -> String {
    let mut text = String::new();
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('n') => text.push('\n'),
            Some(other) => text.push(other),
            None => text.push('\\'),
        }
    }
    text
}

/// Returns the file of the history: `$XDG_STATE_HOME/teamd/history`, else below `~/.local/state`;
/// none for a user without a home.
fn history_path(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let state = match absolute(variable("XDG_STATE_HOME")) {
        Some(state) => state,
        None => absolute(variable("HOME"))?.join(".local/state"),
    };
    Some(state.join("teamd/history"))
}

/// The base directory specification ignores a path that is not absolute.
fn absolute(value: Option<OsString>) -> Option<PathBuf> {
    let path = PathBuf::from(value?);
    path.is_absolute().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(path: &Path) -> LineHistory {
        let mut history = LineHistory {
            lines: Vec::new(),
            path: Some(path.to_owned()),
        };
        history.read().unwrap();
        history
    }

    #[test]
    fn lines_of_any_text_are_kept_and_the_oldest_ones_go() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("state/history");
        let mut first = history(&path);
        for line in ["one\ntwo \\n", "three\\", "three\\", "four"] {
            first.add(line).unwrap();
        }
        assert_eq!(history(&path).lines, ["one\ntwo \\n", "three\\", "four"]);
        for line in 0..=2 * MOST {
            first.add(&line.to_string()).unwrap();
        }
        let kept = history(&path);
        assert_eq!((kept.count(), kept.line(0)), (MOST, Some("1001")));
        assert_eq!(history(&path).lines, kept.lines);
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), MOST + 1);
    }

    #[test]
    fn the_history_is_state_of_the_user() {
        let found = |pairs: &[(&str, &str)]| {
            history_path(|name| {
                pairs
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| value.into())
            })
            .map(|path| path.display().to_string())
        };
        assert_eq!(
            found(&[("HOME", "/h")]).unwrap(),
            "/h/.local/state/teamd/history"
        );
        assert_eq!(
            found(&[("HOME", "/h"), ("XDG_STATE_HOME", "/s")]).unwrap(),
            "/s/teamd/history"
        );
        assert_eq!(
            found(&[("HOME", "/h"), ("XDG_STATE_HOME", "s")]).unwrap(),
            "/h/.local/state/teamd/history"
        );
        assert_eq!(found(&[("HOME", "")]), None);
        assert_eq!(found(&[]), None);
    }
}
