//! The lines that a person has typed, in a file of the user.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use rustyline::Config;
use rustyline::error::ReadlineError;
use rustyline::history::{FileHistory, History};
use teamd_client::print::output::Output;

/// How many lines the history has.
const MOST: usize = 1000;

/// The history.
#[derive(Default)]
pub(in crate::chat) struct LineHistory {
    pub(in crate::chat) lines: FileHistory,
    path: Option<PathBuf>,
}

impl LineHistory {
    /// Reads the history. Without its file there is one of this chat.
    pub(in crate::chat) fn load(out: &Output) -> Self {
        let mut history = Self {
            path: history_path(|name| std::env::var_os(name)),
            ..Self::default()
        };
        let loaded = history.read();
        history.keep(loaded, out);
        history
    }

    /// Adds a line.
    pub(in crate::chat) fn remember(&mut self, line: &str, out: &Output) {
        let added = self.add(line);
        self.keep(added, out);
    }

    fn read(&mut self) -> Result<(), ReadlineError> {
        let config = Config::builder()
            .max_history_size(MOST)?
            .history_ignore_dups(true)?
            .build();
        self.lines = FileHistory::with_config(&config);
        let Some(path) = &self.path else {
            return Ok(());
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path.parent().unwrap_or(path))?;
        if path.exists() {
            self.lines.load(path)
        } else {
            Ok(())
        }
    }

    pub(in crate::chat) fn add(&mut self, line: &str) -> Result<(), ReadlineError> {
        self.lines.add(line)?;
        self.path
            .as_ref()
            .map_or(Ok(()), |path| self.lines.append(path))
    }

    fn keep(&mut self, done: Result<(), ReadlineError>, out: &Output) {
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

/// Returns the file of the history: `$XDG_STATE_HOME/teamd/history`, else below `~/.local/state`;
/// none for a user without a home.
fn history_path(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The base directory specification ignores a path that is not absolute.
    let absolute = |name: &str| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state =
        absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("teamd/history"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
