//! The line that a person types. The editor waits for keys in a thread of its own.
//!
//! While the agent speaks no prompt is shown, so that its words can be shown as they come; the first key brings the
//! prompt back. The terminal echoes nothing meanwhile: what is typed ahead is in the line when the prompt is shown.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, ExternalPrinter, Helper};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::commands;
use super::terminal::{Key, Prompt, Terminal};
use crate::ctl::output::{AbovePrompt, Screen};

/// How many lines the history has.
const HISTORY: usize = 1000;

/// The keyboard.
pub(super) struct Keyboard {
    /// The keys, and whether each ends a line of the editor.
    keys: UnboundedReceiver<(Key, bool)>,
    /// How many lines of the editor have arrived here.
    heard: u64,
    terminal: Arc<Terminal>,
}

impl Keyboard {
    /// Takes over the terminal, until this is dropped.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn open() -> io::Result<(Self, Screen)> {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .max_history_size(HISTORY)
            .and_then(|config| config.history_ignore_dups(true))
            .map_err(io::Error::other)?;
        let mut editor = Editor::with_config(config.build()).map_err(io::Error::other)?;
        // A terminal that cannot move its cursor has no prompt to print above, and edits its lines itself.
        let above: Option<AbovePrompt> = editor.create_external_printer().ok().map(|mut printer| {
            let print = move |text| printer.print(text).map_err(io::Error::other);
            Box::new(print) as AbovePrompt
        });
        let (sender, keys) = unbounded_channel();
        let signals = sender.clone();
        let terminal = Terminal::take(above.is_some(), move |key| {
            // The program may be about to end.
            signals.send((key, false)).ok();
        })?;
        editor.set_helper(Some(LineHelper { terminal: Arc::clone(&terminal) }));
        // The thread of the screen ends with its last copy.
        let (screen, _) = Screen::new(above);
        let reader = LineReader {
            editor,
            screen: screen.clone(),
            keys: sender,
            terminal: Arc::clone(&terminal),
            history: None,
        };
        std::thread::spawn(move || reader.run());
        Ok((Self { keys, heard: 0, terminal }, screen))
    }

    /// Shows a prompt, at once or `on_key` when a key is pressed. A prompt that is shown already stays; another one is
    /// replaced, and what was typed is kept.
    pub(super) fn ask(&self, prompt: Prompt, on_key: bool) {
        self.terminal.ask(self.heard, prompt, on_key);
    }

    /// Waits for a key. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Key {
        let (key, ends_line) = self.keys.recv().await.unwrap_or((Key::End, false));
        self.heard += u64::from(ends_line);
        key
    }

    /// Sets the terminal up again, after the program was stopped (Ctrl-Z) and continues.
    pub(super) fn resumed(&self) {
        self.terminal.set_up();
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.terminal.give_back();
    }
}

/// The thread that edits lines.
struct LineReader {
    editor: Editor<LineHelper, FileHistory>,
    screen: Screen,
    keys: UnboundedSender<(Key, bool)>,
    terminal: Arc<Terminal>,
    history: Option<PathBuf>,
}

impl LineReader {
    fn run(mut self) {
        self.load_history();
        let mut typed = String::new();
        while let Some(prompt) = self.terminal.asked(!typed.is_empty()) {
            self.screen.before_prompt();
            let read = self.editor.readline_with_initial(&prompt.text, (&typed, ""));
            self.terminal.end_line();
            self.screen.after_prompt();
            let was_typed_before = !std::mem::take(&mut typed).is_empty();
            let replaced = self.terminal.was_replaced();
            if replaced && !matches!(read, Err(ReadlineError::Interrupted)) {
                typed = read.unwrap_or_default();
                continue;
            }
            // A line that was begun under another prompt answers no question.
            let key = self.key(read, prompt.question.filter(|_| !was_typed_before));
            if self.keys.send((key, !replaced)).is_err() {
                return;
            }
        }
    }

    fn key(&mut self, read: rustyline::Result<String>, question: Option<usize>) -> Key {
        match read {
            Ok(line) => {
                if !line.trim().is_empty() {
                    self.remember(&line);
                }
                // A line that ended with a backslash continued.
                Key::Line { text: line.replace("\\\n", "\n"), question }
            }
            Err(ReadlineError::Interrupted) => Key::Interrupt,
            Err(_) => Key::End,
        }
    }

    fn load_history(&mut self) {
        let Some(path) = history_path(|name| std::env::var_os(name)) else { return };
        let folder = path.parent().unwrap_or(&path);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let loaded = made.map_err(ReadlineError::from).and_then(|()| match path.exists() {
            true => self.editor.load_history(&path),
            false => Ok(()),
        });
        match loaded {
            Ok(()) => self.history = Some(path),
            Err(error) => self.give_up_history(&path, &error),
        }
    }

    fn remember(&mut self, line: &str) {
        let Some(path) = self.history.clone() else { return };
        let added = self.editor.add_history_entry(line);
        if let Err(error) = added.and_then(|_| self.editor.append_history(&path)) {
            self.give_up_history(&path, &error);
        }
    }

    fn give_up_history(&mut self, path: &Path, error: &ReadlineError) {
        self.history = None;
        self.screen.output().note(format_args!("no history is kept: cannot use {}: {error}", path.display()));
    }
}

/// Returns the file of the history: `$XDG_STATE_HOME/teamd/history`, else below `~/.local/state`; none for a user
/// without a home.
fn history_path(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The base directory specification ignores a path that is not absolute.
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("teamd/history"))
}

/// Tells the editor whether a line continues, and how a command is completed.
struct LineHelper {
    terminal: Arc<Terminal>,
}

impl Helper for LineHelper {}
impl Highlighter for LineHelper {}

impl Hinter for LineHelper {
    type Hint = String;
}

impl Validator for LineHelper {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        // A line that makes room for another prompt ends as it is: the person has not pressed Enter.
        Ok(match continues(context.input()) && !self.terminal.is_replacing() {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

impl Completer for LineHelper {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..at).unwrap_or_default();
        let words = if typed.starts_with('/') { commands::completions(typed) } else { Vec::new() };
        Ok((0, words.into_iter().map(|word| format!("{word} ")).collect()))
    }
}

/// Tells whether a line ends with a backslash that is not escaped.
fn continues(line: &str) -> bool {
    line.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_at_the_end_continues_the_line() {
        assert!(continues("one \\") && continues("one\\\\\\"));
        assert!(!continues("one") && !continues("C:\\\\") && !continues(""));
    }

    #[test]
    fn the_history_is_state_of_the_user() {
        let found = |pairs: &[(&str, &str)]| {
            let variable =
                |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
            history_path(variable).map(|path| path.display().to_string())
        };
        assert_eq!(found(&[("HOME", "/h")]).unwrap(), "/h/.local/state/teamd/history");
        assert_eq!(found(&[("HOME", "/h"), ("XDG_STATE_HOME", "/s")]).unwrap(), "/s/teamd/history");
        assert_eq!(
            found(&[("HOME", "/h"), ("XDG_STATE_HOME", "s")]).unwrap(),
            "/h/.local/state/teamd/history"
        );
        assert_eq!(found(&[("HOME", "")]), None);
        assert_eq!(found(&[]), None);
    }
}
