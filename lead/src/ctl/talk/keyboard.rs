//! The line that a person types. The editor waits for keys in a thread of its own.
//!
//! While an agent speaks no prompt is shown, so that its words can be shown as they come; the first key brings the
//! prompt back. The terminal echoes nothing meanwhile: what is typed ahead stands in the line when it is shown.

use std::io;
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

use super::terminal::{Came, Prompt, Terminal};
use super::{history, slash};
use crate::ctl::output::{AbovePrompt, Screen};

/// How many lines are remembered.
const REMEMBERED: usize = 1000;

/// What came from the keyboard.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A line, or several.
    Line {
        /// The text.
        text: String,
        /// The question under whose prompt it was begun, if it was.
        question: Option<usize>,
    },
    /// Ctrl-C at the prompt.
    Interrupt,
    /// Ctrl-C while no prompt is shown.
    Stop,
    /// Ctrl-D on an empty line, or the terminal is gone.
    End,
}

/// The keyboard.
pub(super) struct Keyboard {
    keys: UnboundedReceiver<Key>,
    /// How many keys of the editor were heard.
    heard: u64,
    terminal: Arc<Terminal>,
}

impl Keyboard {
    /// Takes over the terminal, until this is dropped.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn open() -> io::Result<(Self, Screen)> {
        let mut editor = editor().map_err(io::Error::other)?;
        // A terminal that cannot move its cursor has no prompt to print above, and edits its lines itself.
        let above: Option<AbovePrompt> = editor.create_external_printer().ok().map(|mut printer| {
            let print = move |text| printer.print(text).map_err(io::Error::other);
            Box::new(print) as AbovePrompt
        });
        let (tell, keys) = unbounded_channel();
        let beside = tell.clone();
        let terminal = Terminal::take(above.is_some(), move |came| {
            // Nobody listens any more when the program ends.
            beside.send(if came == Came::Stop { Key::Stop } else { Key::End }).ok();
        })?;
        editor.set_helper(Some(Helps { terminal: Arc::clone(&terminal) }));
        // The thread of the screen ends with its last copy.
        let (screen, _) = Screen::new(above);
        let typing = Typing {
            editor,
            screen: screen.clone(),
            keys: tell,
            terminal: Arc::clone(&terminal),
            history: None,
        };
        std::thread::spawn(move || typing.run());
        Ok((Self { keys, heard: 0, terminal }, screen))
    }

    /// Shows a prompt now.
    pub(super) fn prompt(&self, prompt: &str) {
        self.terminal.ask(self.heard, Prompt { text: prompt.to_owned(), question: None }, false);
    }

    /// Shows the prompt of a question; a line that is being typed is left alone.
    pub(super) fn prompt_for(&self, question: usize, prompt: &str) {
        self.terminal.ask(self.heard, Prompt { text: prompt.to_owned(), question: Some(question) }, false);
    }

    /// Shows a prompt when a key is pressed.
    pub(super) fn prompt_on_key(&self, prompt: &str) {
        self.terminal.ask(self.heard, Prompt { text: prompt.to_owned(), question: None }, true);
    }

    /// Shows this prompt instead of the one that is shown, and keeps what was typed; at once, or `on_key` when a key is
    /// pressed where nothing was.
    pub(super) fn prompt_instead(&self, prompt: &str, on_key: bool) {
        self.terminal.ask_anew(self.heard, Prompt { text: prompt.to_owned(), question: None }, on_key);
    }

    /// Waits for what is typed. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Key {
        let key = self.keys.recv().await.unwrap_or(Key::End);
        self.heard += u64::from(key != Key::Stop);
        key
    }

    /// Sets the terminal as it must be, after the program was stopped (Ctrl-Z) and goes on.
    pub(super) fn resumed(&self) {
        self.terminal.resumed();
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.terminal.give_back();
    }
}

/// What the thread holds.
struct Typing {
    editor: Editor<Helps, FileHistory>,
    screen: Screen,
    keys: UnboundedSender<Key>,
    terminal: Arc<Terminal>,
    history: Option<PathBuf>,
}

impl Typing {
    fn run(mut self) {
        self.load();
        let mut kept = String::new();
        while let Some(prompt) = self.terminal.asked(!kept.is_empty()) {
            self.screen.before_prompt();
            let typed = self.editor.readline_with_initial(&prompt.text, (&kept, ""));
            self.terminal.end_line();
            self.screen.after_prompt();
            let had_text = !std::mem::take(&mut kept).is_empty();
            match (&typed, self.terminal.was_replaced()) {
                (Err(ReadlineError::Eof), true) => continue,
                (Ok(line), true) => {
                    kept.clone_from(line);
                    continue;
                }
                _ => {}
            }
            // What was typed for something else answers nothing.
            let key = self.key(typed, prompt.question.filter(|_| !had_text));
            if self.keys.send(key).is_err() {
                return;
            }
        }
    }

    fn key(&mut self, typed: Result<String, ReadlineError>, question: Option<usize>) -> Key {
        match typed {
            Ok(line) => {
                if !line.trim().is_empty() {
                    self.remember(&line);
                }
                // A line that ended with a backslash went on.
                Key::Line { text: line.replace("\\\n", "\n"), question }
            }
            Err(ReadlineError::Interrupted) => Key::Interrupt,
            Err(_) => Key::End,
        }
    }

    fn load(&mut self) {
        let Some(path) = history::path() else { return };
        let loaded = history::make_room(&path).map_err(ReadlineError::from).and_then(|()| {
            match std::fs::File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                _ => self.editor.load_history(&path),
            }
        });
        match loaded {
            Ok(()) => self.history = Some(path),
            Err(error) => self.forget(&path, &error),
        }
    }

    fn remember(&mut self, line: &str) {
        let Some(path) = self.history.clone() else { return };
        let added = self.editor.add_history_entry(line);
        if let Err(error) = added.and_then(|_| self.editor.append_history(&path)) {
            self.forget(&path, &error);
        }
    }

    /// Says once that the history is not kept.
    fn forget(&mut self, path: &Path, error: &ReadlineError) {
        self.history = None;
        self.screen
            .output()
            .note(format_args!("what you type is not remembered: cannot use {}: {error}", path.display()));
    }
}

fn editor() -> rustyline::Result<Editor<Helps, FileHistory>> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .max_history_size(REMEMBERED)?
        .history_ignore_dups(true)?
        .build();
    Editor::with_config(config)
}

/// What the editor asks about a line: whether it goes on, and how a command goes on.
struct Helps {
    terminal: Arc<Terminal>,
}

impl Helper for Helps {}
impl Highlighter for Helps {}

impl Hinter for Helps {
    type Hint = String;
}

impl Validator for Helps {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        // A line that makes room for another prompt ends as it stands: nobody has pressed Enter.
        Ok(match goes_on(context.input()) && !self.terminal.makes_room() {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

impl Completer for Helps {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..at).unwrap_or_default();
        let words = if typed.starts_with('/') { slash::completions(typed) } else { Vec::new() };
        Ok((0, words.into_iter().map(|word| format!("{word} ")).collect()))
    }
}

/// Tells whether a line ends with a backslash that stands for itself.
fn goes_on(line: &str) -> bool {
    line.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_at_the_end_continues_the_line() {
        assert!(goes_on("one \\") && goes_on("one\\\\\\"));
        assert!(!goes_on("one") && !goes_on("C:\\\\") && !goes_on(""));
    }
}
