//! The terminal under the line editor, and what is typed while no line is edited.
//!
//! The editor reads from a pseudo-terminal of its own, which gets each byte when the editor has read the one before. An
//! editor that also prints above its prompt otherwise misses keys: it sees keys that it has read together with another one
//! only when the next one is pressed (rustyline 18, `PosixRawReader::select`), and loses those behind the end of a line.
//! The output goes to the real terminal directly.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

/// Turns bracketed paste off, which the editor does itself unless it is left in the middle of a line.
const PASTE_OFF: &[u8] = b"\x1b[?2004l";
/// Ctrl-C.
const INTERRUPT: u8 = 3;
/// Ctrl-D: ends an empty line.
const END: u8 = 4;
/// Ends any line.
const ENTER: u8 = b'\r';
/// How long to wait until the editor has read a byte, when the next one waits: no event tells.
const READ: Duration = Duration::from_micros(200);

/// What the person types.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A line, or several.
    Line {
        text: String,
        /// The question under whose prompt the line was begun.
        question: Option<usize>,
    },
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D on an empty line, or the terminal is gone.
    End,
}

/// A prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) text: String,
    /// The question that the line answers; none: the line is a message to the agent.
    pub(super) question: Option<usize>,
}

/// The terminal.
pub(super) struct Terminal {
    real: OwnedFd,
    before: Termios,
    /// The end from which the editor reads; none where the terminal edits its lines itself.
    editor: Option<OwnedFd>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The prompt that is to be shown, and whether only when a key is pressed.
    asked: Option<(Prompt, bool)>,
    /// The prompt that was shown last.
    shown: Prompt,
    /// How many lines the editor has begun.
    begun: u64,
    /// Whether a key was given to the editor since.
    touched: bool,
    /// Whether the line is ended without the person, to show another prompt.
    replaced: bool,
    /// Whether the editor wants keys.
    feeding: bool,
    /// What is typed and not yet given to the editor.
    typed: VecDeque<u8>,
    ended: bool,
}

impl Terminal {
    /// Takes over the terminal that is stdin. `beside` is called for a key that is not for the editor.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn take(edits: bool, beside: impl Fn(Key) + Send + 'static) -> io::Result<Arc<Self>> {
        let real = io::stdin().as_fd().try_clone_to_owned()?;
        let before = tcgetattr(&real)?;
        let ends = if edits { Some(pseudo_terminal(&before)?) } else { None };
        let (writes, reads) = ends.unzip();
        if let Some(reads) = &reads {
            rustix::stdio::dup2_stdin(reads)?;
        }
        let (state, changed) = (Mutex::default(), Condvar::new());
        let terminal = Arc::new(Self { real, before, editor: reads, state, changed });
        if let Some(writes) = writes {
            terminal.set_up();
            let mut real = File::from(terminal.real.try_clone()?);
            let (hears, feeds) = (Arc::clone(&terminal), Arc::clone(&terminal));
            std::thread::spawn(move || hears.read_keys(&mut real, &beside));
            std::thread::spawn(move || feeds.feed_all(&mut File::from(writes)));
        }
        Ok(terminal)
    }

    /// Shows a prompt, at once or `on_key` when a key is pressed. `heard` is how many lines the caller has received.
    ///
    /// A line in progress under another prompt is ended, and continued under this one. It stays as it is under a prompt for
    /// messages when a question comes and something was typed, and while keys are on their way: the caller asks again.
    pub(super) fn ask(&self, heard: u64, prompt: Prompt, on_key: bool) {
        let mut state = self.state();
        let touched = state.touched;
        if heard != state.begun && !state.replaced {
            let stays = prompt == state.shown || prompt.question.is_some() && touched;
            let still = state.feeding && state.typed.is_empty() && !self.is_unread();
            if stays || !still || self.editor.is_none() {
                return;
            }
            state.typed.push_back(if touched { ENTER } else { END });
            (state.replaced, state.touched) = (true, true);
        }
        state.asked = Some((prompt, on_key));
        self.changed.notify_all();
    }

    /// Waits until a prompt is to be shown; none at the end. The editor gets keys from then on. `continues` tells whether
    /// text is on the line already.
    ///
    /// A line that was begun before its prompt was shown answers no question: it was meant for something else.
    pub(super) fn asked(&self, continues: bool) -> Option<Prompt> {
        let mut state = self.state();
        while !state.ended {
            let ahead = !state.typed.is_empty() || self.is_unread();
            let pressed = ahead || continues || self.editor.is_none();
            if let Some((prompt, _)) = state.asked.take_if(|(_, on_key)| !*on_key || pressed) {
                state.begun += 1;
                state.shown.clone_from(&prompt);
                // In one step with the prompt: in between the line would seem to be empty, or over.
                (state.touched, state.feeding) = (continues, true);
                self.changed.notify_all();
                return Some(Prompt { question: prompt.question.filter(|_| !ahead), ..prompt });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Tells whether the line that has just ended makes room for another prompt: it does not count then.
    pub(super) fn was_replaced(&self) -> bool {
        let mut state = self.state();
        let replaced = std::mem::take(&mut state.replaced);
        state.begun -= u64::from(replaced);
        replaced
    }

    /// Tells whether the line is being ended to make room for another prompt.
    pub(super) fn is_replacing(&self) -> bool {
        self.state().replaced
    }

    /// Gives the editor no more keys.
    pub(super) fn end_line(&self) {
        self.state().feeding = false;
    }

    /// Sets the terminal up: keys are not echoed, each can be read at once, and none is a signal.
    pub(super) fn set_up(&self) {
        if self.editor.is_some() {
            // Without it typed keys are echoed, and nothing worse.
            tcsetattr(&self.real, OptionalActions::Drain, &raw(&self.before)).ok();
        }
    }

    /// Sets the terminal back.
    pub(super) fn give_back(&self) {
        self.state().ended = true;
        self.changed.notify_all();
        if self.editor.is_some() {
            // Where nothing can be set there is no terminal any more.
            tcsetattr(&self.real, OptionalActions::Drain, &self.before).ok();
            let mut stdout = io::stdout();
            stdout.write_all(PASTE_OFF).and_then(|()| stdout.flush()).ok();
        }
    }

    /// Takes what is typed, as long as the terminal is there.
    fn read_keys(&self, real: &mut File, beside: &impl Fn(Key)) {
        let mut bytes = [0; 1024];
        loop {
            let read = match real.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(read @ 1..) => read,
                Ok(0) | Err(_) => return beside(Key::End),
            };
            let mut state = self.state();
            for &byte in &bytes[..read] {
                if byte == INTERRUPT && !state.feeding {
                    // As in every terminal this also discards what was typed before.
                    state.typed.clear();
                    beside(Key::Interrupt);
                } else {
                    state.typed.push_back(byte);
                }
            }
            self.changed.notify_all();
        }
    }

    /// Gives the editor one byte after the other.
    fn feed_all(&self, writes: &mut File) {
        let mut state = self.state();
        loop {
            state = if !state.feeding || state.typed.is_empty() {
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else if self.is_unread() {
                self.changed.wait_timeout(state, READ).unwrap_or_else(PoisonError::into_inner).0
            } else {
                let byte = state.typed.pop_front();
                state.touched = true;
                if byte.is_some_and(|byte| writes.write_all(&[byte]).is_err()) {
                    return;
                }
                state
            };
            if state.ended {
                return;
            }
        }
    }

    /// Tells whether the editor has not read yet what it was given.
    fn is_unread(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // To ask so, and not how many bytes are there, also counts what is still on its way through the kernel.
        let reads = self.editor.as_ref().unwrap_or(&self.real);
        poll(&mut [PollFd::new(reads, PollFlags::IN)], Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What it holds is whole after each line.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn raw(before: &Termios) -> Termios {
    let mut raw = before.clone();
    raw.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN;
    raw.input_modes -= InputModes::ICRNL | InputModes::IXON;
    raw.special_codes[SpecialCodeIndex::VMIN] = 1;
    raw.special_codes[SpecialCodeIndex::VTIME] = 0;
    raw
}

/// Makes a pseudo-terminal that changes nothing of what goes through: where keys are written, and where they are read.
fn pseudo_terminal(like: &Termios) -> io::Result<(OwnedFd, OwnedFd)> {
    let writes = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&writes)?;
    unlockpt(&writes)?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let reads = open(ptsname(&writes, Vec::new())?, flags, Mode::empty())?;
    tcsetattr(&reads, OptionalActions::Now, &raw(like))?;
    Ok((writes, reads))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal whose line has begun just now, with text on it or not.
    fn begun(continues: bool) -> (Terminal, OwnedFd) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let real = openpt(flags).unwrap();
        let before = tcgetattr(&real).unwrap();
        let (writes, reads) = pseudo_terminal(&before).unwrap();
        let (state, changed) = (Mutex::default(), Condvar::new());
        let terminal = Terminal { real, before, editor: Some(reads), state, changed };
        terminal.ask(0, prompt(None), false);
        assert_eq!(terminal.asked(continues), Some(prompt(None)));
        (terminal, writes)
    }

    fn prompt(question: Option<usize>) -> Prompt {
        Prompt { text: "> ".to_owned(), question }
    }

    #[test]
    fn a_question_replaces_a_prompt_only_where_nothing_is_typed() {
        for continues in [false, true] {
            let (terminal, _writes) = begun(continues);
            terminal.ask(0, prompt(Some(1)), false);
            assert_eq!(terminal.is_replacing(), !continues);
        }
    }

    #[test]
    fn a_prompt_replaces_that_of_a_question_and_keeps_what_is_typed() {
        for (continues, ends_by) in [(false, END), (true, ENTER)] {
            let (terminal, _writes) = begun(continues);
            terminal.ask(0, prompt(None), false);
            assert!(!terminal.is_replacing(), "it is shown already");
            terminal.state().shown = prompt(Some(1));
            terminal.ask(0, prompt(None), false);
            assert!(terminal.is_replacing());
            assert_eq!(terminal.state().typed, [ends_by]);
        }
    }
}
