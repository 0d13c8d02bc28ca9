//! The line that a person types. The editor waits for keys in a thread of its own.
//!
//! While an agent speaks no prompt is shown, so that its words can be shown as they come; the first key brings the
//! prompt back. The terminal echoes nothing meanwhile: what is typed ahead stands in the line when it is shown.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Stdin, Write, pipe};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, ExternalPrinter, Helper};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{history, slash};
use crate::ctl::output::{AbovePrompt, Screen};

/// Turns bracketed paste off, which the editor does itself unless it is left behind.
const PASTE_OFF: &[u8] = b"\x1b[?2004l";
/// How many lines are remembered.
const REMEMBERED: usize = 1000;

/// What came from the keyboard.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A line, or several.
    Line(String),
    /// Ctrl-C at the prompt.
    Interrupt,
    /// Ctrl-D on an empty line, or the terminal is gone.
    End,
}

/// What the thread is to do next.
enum Ask {
    /// Show this prompt.
    Line(String),
    /// Show it when a key is pressed.
    OnKey(String),
}

/// What came while no prompt was shown.
enum Came {
    /// A key.
    Key,
    /// Something else to do.
    Ask(Ask),
    /// The end of the program.
    End,
}

/// The keyboard.
pub(super) struct Keyboard {
    asks: Sender<(u64, Ask)>,
    wake: PipeWriter,
    keys: UnboundedReceiver<Key>,
    /// How many keys were heard.
    heard: u64,
    terminal: Terminal,
}

impl Keyboard {
    /// Takes over the terminal, until this is dropped.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn open() -> io::Result<(Self, Screen)> {
        let terminal = Terminal::quiet()?;
        let mut editor = editor().map_err(io::Error::other)?;
        // A terminal that cannot move its cursor has no prompt to print above.
        let above: Option<AbovePrompt> = editor.create_external_printer().ok().map(|mut printer| {
            let print = move |text| printer.print(text).map_err(io::Error::other);
            Box::new(print) as AbovePrompt
        });
        // The thread of the screen ends with its last copy.
        let (screen, _) = Screen::new(above);
        let ((asks, asked), (heard, keys)) = (channel(), unbounded_channel());
        let (woken, wake) = pipe()?;
        let typing = Typing { editor, screen: screen.clone(), keys: heard, woken, told: 0, history: None };
        std::thread::spawn(move || typing.run(&asked));
        Ok((Self { asks, wake, keys, heard: 0, terminal }, screen))
    }

    /// Shows a prompt now.
    pub(super) fn prompt(&mut self, prompt: &str) {
        self.ask(Ask::Line(prompt.to_owned()));
    }

    /// Shows a prompt when a key is pressed.
    pub(super) fn prompt_on_key(&mut self, prompt: &str) {
        self.ask(Ask::OnKey(prompt.to_owned()));
    }

    /// Waits for what is typed. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Key {
        let key = self.keys.recv().await;
        self.heard += 1;
        key.unwrap_or(Key::End)
    }

    /// Sets the terminal as it must be, after the program was stopped (Ctrl-Z) and goes on.
    pub(super) fn resumed(&self) {
        // Without it typed keys are echoed, and nothing worse.
        drop(self.terminal.set_quiet());
    }

    fn ask(&mut self, ask: Ask) {
        // A thread that has ended has said so.
        drop(self.asks.send((self.heard, ask)));
        drop(self.wake.write_all(b"."));
    }
}

/// The terminal, which is set back when this is dropped.
struct Terminal {
    input: Stdin,
    before: Termios,
}

impl Terminal {
    fn quiet() -> io::Result<Self> {
        let input = io::stdin();
        let before = tcgetattr(&input)?;
        let terminal = Self { input, before };
        terminal.set_quiet()?;
        Ok(terminal)
    }

    /// Keys are not echoed, and each can be seen at once; Ctrl-C and Ctrl-Z still are signals.
    fn set_quiet(&self) -> io::Result<()> {
        let mut quiet = self.before.clone();
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON;
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        Ok(tcsetattr(&self.input, OptionalActions::Drain, &quiet)?)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The editor may be in the middle of a line. Where nothing can be set there is no terminal any more.
        tcsetattr(&self.input, OptionalActions::Drain, &self.before).ok();
        drop(io::stdout().write_all(PASTE_OFF).and_then(|()| io::stdout().flush()));
    }
}

/// What the thread holds.
struct Typing {
    editor: Editor<Helps, FileHistory>,
    screen: Screen,
    keys: UnboundedSender<Key>,
    woken: PipeReader,
    /// How many keys were told. What was asked before the last one is stale.
    told: u64,
    history: Option<PathBuf>,
}

impl Typing {
    fn run(mut self, asked: &Receiver<(u64, Ask)>) {
        self.load();
        while let Some(mut ask) = self.current(asked) {
            let prompt = loop {
                match ask {
                    Ask::Line(prompt) => break prompt,
                    Ask::OnKey(prompt) => match self.wait(asked) {
                        Came::Key => break prompt,
                        Came::Ask(other) => ask = other,
                        Came::End => return,
                    },
                }
            };
            self.screen.before_prompt();
            let typed = self.editor.readline(&prompt);
            self.screen.after_prompt();
            let key = self.key(typed);
            self.told += 1;
            if self.keys.send(key).is_err() {
                return;
            }
        }
    }

    /// Waits for what is to be done next; none if nothing is any more.
    fn current(&self, asked: &Receiver<(u64, Ask)>) -> Option<Ask> {
        let not_stale = |(heard, ask)| (heard == self.told).then_some(ask);
        asked.iter().find_map(not_stale)
    }

    /// Waits until a key is pressed, or something else is asked.
    fn wait(&mut self, asked: &Receiver<(u64, Ask)>) -> Came {
        loop {
            let input = io::stdin();
            let mut polled = [PollFd::new(&input, PollFlags::IN), PollFd::new(&self.woken, PollFlags::IN)];
            if poll(&mut polled, None).is_err() {
                continue;
            }
            let [typed, woken] = polled.map(|it| !it.revents().is_empty());
            if woken {
                // One byte for each that was asked, also for those that were heard without it.
                let mut byte = [0];
                if matches!(self.woken.read(&mut byte), Ok(0)) {
                    return Came::End;
                }
                match asked.try_recv() {
                    Ok((heard, ask)) if heard == self.told => return Came::Ask(ask),
                    _ => continue,
                }
            }
            if typed {
                return Came::Key;
            }
        }
    }

    fn key(&mut self, typed: Result<String, ReadlineError>) -> Key {
        match typed {
            Ok(line) => {
                if !line.trim().is_empty() {
                    self.remember(&line);
                }
                // A line that ended with a backslash went on.
                Key::Line(line.replace("\\\n", "\n"))
            }
            Err(ReadlineError::Interrupted) => Key::Interrupt,
            Err(_) => Key::End,
        }
    }

    fn load(&mut self) {
        let Some(path) = history::path() else { return };
        let loaded =
            history::make_room(&path).map_err(ReadlineError::from).and_then(|()| match File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                _ => self.editor.load_history(&path),
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
    fn forget(&mut self, path: &std::path::Path, error: &ReadlineError) {
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
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(Helps));
    Ok(editor)
}

/// What the editor asks about a line: whether it goes on, and how a command goes on.
struct Helps;

impl Helper for Helps {}
impl Highlighter for Helps {}

impl Hinter for Helps {
    type Hint = String;
}

impl Validator for Helps {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        Ok(match goes_on(context.input()) {
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
        Ok((0, words.into_iter().map(|word| Cow::Borrowed(word) + " ").map(Cow::into_owned).collect()))
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
