//! The keys that a person presses. On a terminal that cannot move its cursor whole lines, which the terminal edits itself.

use std::io::{self, stdin};
use std::os::fd::AsFd;
use std::time::Duration;

use crossterm::event::{self, DisableBracketedPaste, EnableBracketedPaste, Event, EventStream, KeyEventKind};
use crossterm::execute;
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use futures_util::StreamExt;
use futures_util::future::poll_immediate;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::ctl::output::Screen;

/// What comes from the terminal.
#[derive(Debug)]
pub(super) enum Input {
    /// A key, a paste, or another size.
    Event(Event),
    /// A whole line.
    Line(String),
    /// The terminal is gone, or ends.
    End,
}

/// The keyboard.
pub(super) struct Keyboard {
    /// The keys, as long as they are read.
    keys: Option<EventStream>,
    /// Lines that the terminal has edited, and its end.
    beside: UnboundedReceiver<Input>,
    edits: bool,
}

impl Keyboard {
    /// Takes over the terminal that is stdin, until this is dropped.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn open() -> io::Result<Self> {
        let edits = Screen::can_move();
        let (sender, beside) = unbounded_channel();
        let mut keyboard = Self { keys: None, beside, edits };
        if edits {
            keyboard.take()?;
        }
        std::thread::spawn(move || if edits { watch_end(&sender) } else { read_lines(&sender) });
        Ok(keyboard)
    }

    /// Tells whether single keys are read, and the cursor can be moved.
    pub(super) fn edits(&self) -> bool {
        self.edits
    }

    /// Waits for what comes next. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Input {
        let Some(keys) = &mut self.keys else { return self.beside.recv().await.unwrap_or(Input::End) };
        loop {
            tokio::select! {
                event = keys.next() => match event {
                    Some(Ok(Event::Key(key))) if key.kind == KeyEventKind::Release => {}
                    Some(Ok(event)) => return Input::Event(event),
                    Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                    Some(Err(_)) | None => return Input::End,
                },
                ended = self.beside.recv() => return ended.unwrap_or(Input::End),
            }
        }
    }

    /// Returns what was pressed already. Polled by the task that waits for keys: the stream keeps the first waker that it
    /// sees, and a poll by another one would lose the next key.
    pub(super) async fn pressed(&mut self) -> Option<Input> {
        poll_immediate(self.next()).await
    }

    /// Takes the terminal over, again after another program had it.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn take(&mut self) -> io::Result<()> {
        if self.edits {
            enable_raw_mode()?;
            execute!(io::stdout(), EnableBracketedPaste)?;
            self.keys = Some(EventStream::new());
        }
        Ok(())
    }

    /// Leaves the terminal as it was.
    pub(super) fn leave(&mut self) {
        if self.edits {
            self.keys = None;
            // The end of the stream leaves an event behind, and the keys that would be reported together with it are lost.
            drop(event::poll(Duration::ZERO));
            // Where nothing can be set there is no terminal any more.
            execute!(io::stdout(), DisableBracketedPaste).ok();
            disable_raw_mode().ok();
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Waits until the terminal is gone: the reader of keys does not notice it.
fn watch_end(sender: &UnboundedSender<Input>) {
    let stdin = stdin();
    // No flags: only the end is reported.
    while poll(&mut [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::empty())], None)
        .is_err_and(|error| error == rustix::io::Errno::INTR)
    {}
    sender.send(Input::End).ok();
}

fn read_lines(sender: &UnboundedSender<Input>) {
    for line in stdin().lines() {
        let Ok(line) = line else { break };
        if sender.send(Input::Line(line)).is_err() {
            return;
        }
    }
    sender.send(Input::End).ok();
}
