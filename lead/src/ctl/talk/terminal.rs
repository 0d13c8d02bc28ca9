//! The terminal under the line editor, and what is typed while no line is edited.
//!
//! The editor reads from a pseudo-terminal of its own, which gets one byte after the other, each when the one before was
//! read. Because an editor that also prints what others say looks for keys only where they arrive: those that it has
//! read together with another one it would see when the next one is pressed (rustyline 18, `PosixRawReader::select`),
//! and those behind the end of a line it would lose. What is shown goes to the real terminal directly.

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
const STOP: u8 = 3;
/// Ctrl-D: ends a line on which nothing was typed.
const NOTHING: u8 = 4;
/// Ends a line, whatever was typed on it.
const ENTER: u8 = b'\r';
/// Between two looks whether the editor has read a byte, when the next one waits: nothing wakes for that.
const READ: Duration = Duration::from_micros(200);

/// What came beside the editor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// Ctrl-C.
    Stop,
    /// The terminal is gone.
    End,
}

/// What a line is asked for by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prompt {
    /// What stands in front of it.
    pub(super) text: String,
    /// Which question it answers; none: it is said to the agent.
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
    /// How many lines the editor has begun.
    begun: u64,
    /// Whether a key was given to the editor since.
    touched: bool,
    /// Whether the line is ended by nobody's key, since another prompt is to be shown.
    replaced: bool,
    /// Whether the editor wants keys.
    feeding: bool,
    /// What is typed and not yet given to the editor.
    typed: VecDeque<u8>,
    ended: bool,
}

impl Terminal {
    /// Takes over the terminal that is stdin. `beside` hears what is not for the editor.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn take(edits: bool, beside: impl Fn(Came) + Send + 'static) -> io::Result<Arc<Self>> {
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
            terminal.resumed();
            let mut real = File::from(terminal.real.try_clone()?);
            let (hears, feeds) = (Arc::clone(&terminal), Arc::clone(&terminal));
            std::thread::spawn(move || hears.hear(&mut real, &beside));
            std::thread::spawn(move || feeds.feed_all(&mut File::from(writes)));
        }
        Ok(terminal)
    }

    /// Asks for a line. `heard` is how many the one who asks knows of: with another one under way it asks in vain, unless
    /// it asks a question and nothing of that line was typed.
    pub(super) fn ask(&self, heard: u64, prompt: Prompt, on_key: bool) {
        let mut state = self.state();
        let idle = !state.touched && state.typed.is_empty() && self.editor.is_some();
        let replaces = heard != state.begun && prompt.question.is_some() && idle;
        if replaces {
            (state.replaced, state.touched) = (true, true);
            state.typed.push_back(NOTHING);
        }
        if replaces || heard == state.begun || state.replaced {
            state.asked = Some((prompt, on_key));
            self.changed.notify_all();
        }
    }

    /// Asks for a line under another prompt: what was typed of the one that is under way stays. `heard` and `on_key` as for
    /// [`Terminal::ask`]. In vain while keys are on their way: nobody knows what line they make.
    pub(super) fn ask_anew(&self, heard: u64, prompt: Prompt, on_key: bool) {
        let mut state = self.state();
        let (under_way, replaced) = (heard != state.begun, state.replaced);
        let still = state.feeding && state.typed.is_empty() && !self.is_unread() && self.editor.is_some();
        if !under_way || replaced {
            state.asked = Some((prompt, on_key));
        } else if still {
            let touched = state.touched;
            let on_key = on_key && !touched;
            state.typed.push_back(if touched { ENTER } else { NOTHING });
            (state.replaced, state.touched) = (true, true);
            state.asked = Some((prompt, on_key));
        }
        self.changed.notify_all();
    }

    /// Waits until a line is asked for, and a key is pressed where that is to come first; none at the end. The editor has
    /// keys from then on: in one step, or whoever asks in between would take a line on which something `stands` for one
    /// that is empty, or for one that is over.
    ///
    /// What was typed before the prompt is shown answers no question: it was meant for something else.
    pub(super) fn asked(&self, stands: bool) -> Option<Prompt> {
        let mut state = self.state();
        while !state.ended {
            let ahead = !state.typed.is_empty() || self.is_unread();
            let pressed = ahead || self.editor.is_none();
            if let Some((prompt, _)) = state.asked.take_if(|(_, on_key)| !*on_key || pressed) {
                state.begun += 1;
                (state.touched, state.feeding) = (stands, true);
                self.changed.notify_all();
                return Some(Prompt { question: prompt.question.filter(|_| !ahead), ..prompt });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Tells whether the line that has just ended was only to make room for another prompt: it does not count then.
    pub(super) fn was_replaced(&self) -> bool {
        let mut state = self.state();
        let replaced = std::mem::take(&mut state.replaced);
        state.begun -= u64::from(replaced);
        replaced
    }

    /// Tells whether the line is being ended only to make room for another prompt.
    pub(super) fn makes_room(&self) -> bool {
        self.state().replaced
    }

    /// Gives the editor no more keys.
    pub(super) fn end_line(&self) {
        self.state().feeding = false;
    }

    /// Keys are not echoed, each can be seen at once, and none is a signal: Ctrl-C and Ctrl-Z are for the editor.
    pub(super) fn resumed(&self) {
        if self.editor.is_some() {
            // Without it typed keys are echoed, and nothing worse.
            tcsetattr(&self.real, OptionalActions::Drain, &quiet(&self.before)).ok();
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
    fn hear(&self, real: &mut File, beside: &impl Fn(Came)) {
        let mut bytes = [0; 1024];
        loop {
            let read = match real.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok(read @ 1..) => read,
                Ok(0) | Err(_) => return beside(Came::End),
            };
            let mut state = self.state();
            for &byte in &bytes[..read] {
                if byte == STOP && !state.feeding {
                    // As a terminal does: what was typed before is not meant any more.
                    state.typed.clear();
                    beside(Came::Stop);
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

fn quiet(before: &Termios) -> Termios {
    let mut quiet = before.clone();
    quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN;
    quiet.input_modes -= InputModes::ICRNL | InputModes::IXON;
    quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
    quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
    quiet
}

/// Makes a pseudo-terminal that changes nothing of what goes through: where keys are written, and where they are read.
fn pseudo_terminal(like: &Termios) -> io::Result<(OwnedFd, OwnedFd)> {
    let writes = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&writes)?;
    unlockpt(&writes)?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let reads = open(ptsname(&writes, Vec::new())?, flags, Mode::empty())?;
    tcsetattr(&reads, OptionalActions::Now, &quiet(like))?;
    Ok((writes, reads))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal whose line has begun just now, with something on it or not: nobody has heard of its end.
    fn begun(stands: bool) -> (Terminal, OwnedFd) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let real = openpt(flags).unwrap();
        let before = tcgetattr(&real).unwrap();
        let (writes, reads) = pseudo_terminal(&before).unwrap();
        let (state, changed) = (Mutex::default(), Condvar::new());
        let terminal = Terminal { real, before, editor: Some(reads), state, changed };
        terminal.ask(0, prompt(None), false);
        assert_eq!(terminal.asked(stands), Some(prompt(None)));
        (terminal, writes)
    }

    fn prompt(question: Option<usize>) -> Prompt {
        Prompt { text: "> ".to_owned(), question }
    }

    #[test]
    fn a_question_makes_room_for_itself_only_where_nothing_stands() {
        for stands in [false, true] {
            let (terminal, _writes) = begun(stands);
            terminal.ask(0, prompt(Some(1)), false);
            assert_eq!(terminal.makes_room(), !stands);
        }
    }

    #[test]
    fn another_prompt_takes_the_place_of_one_that_has_just_been_asked_for() {
        for (stands, ends_by) in [(false, NOTHING), (true, ENTER)] {
            let (terminal, _writes) = begun(stands);
            terminal.ask_anew(0, prompt(None), false);
            assert!(terminal.makes_room());
            assert_eq!(terminal.state().typed, [ends_by]);
        }
    }
}
