//! The keys that a person presses.

use std::io::{self, stdin};
use std::os::fd::AsFd;
use std::time::Duration;

use crossterm::event::{
    self, DisableBracketedPaste, EnableBracketedPaste, Event, EventStream, KeyEventKind,
};
use crossterm::execute;
use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use futures_util::StreamExt;
use futures_util::future::poll_immediate;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What comes from the terminal.
#[derive(Debug)]
pub(in crate::chat) enum Input {
    /// A key, a paste, or another size.
    Event(Event),
    /// The terminal is gone, or ends.
    End,
}

/// The keyboard.
pub(in crate::chat) struct Keyboard {
    /// The keys, as long as they are read.
    keys: Option<EventStream>,
    /// The end of the terminal.
    ended: UnboundedReceiver<Input>,
}

impl Keyboard {
    /// Takes over the terminal that is stdin, until this is dropped.
    ///
    /// # Errors
    /// If the system refuses.
    pub(in crate::chat) fn open() -> io::Result<Self> {
        let (sender, ended) = unbounded_channel();
        let mut keyboard = Self { keys: None, ended };
        keyboard.take()?;
        std::thread::spawn(move || watch_end(&sender));
        Ok(keyboard)
    }

    /// Waits for what comes next. Dropping the future loses nothing.
    pub(in crate::chat) async fn next(&mut self) -> Input {
        let Some(keys) = &mut self.keys else {
            return self.ended.recv().await.unwrap_or(Input::End);
        };
        loop {
            tokio::select! {
                event = keys.next() => match event {
                    Some(Ok(Event::Key(key))) if key.kind == KeyEventKind::Release => {}
                    Some(Ok(event)) => return Input::Event(event),
                    Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                    Some(Err(_)) | None => return Input::End,
                },
                ended = self.ended.recv() => return ended.unwrap_or(Input::End),
            }
        }
    }

    /// Returns what was pressed already. Polled by the task that waits for keys: the stream keeps
    /// the first waker that it sees, and a poll by another one would lose the next key.
    pub(in crate::chat) async fn pressed(&mut self) -> Option<Input> {
        poll_immediate(self.next()).await
    }

    /// Takes the terminal over, again after another program had it.
    ///
    /// # Errors
    /// If the system refuses.
    pub(in crate::chat) fn take(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        execute!(io::stdout(), EnableBracketedPaste)?;
        self.keys = Some(EventStream::new());
        Ok(())
    }

    /// Leaves the terminal as it was.
    pub(in crate::chat) fn leave(&mut self) {
        self.keys = None;
        // The end of the stream leaves an event behind, and the keys that would be reported
        // together with it are lost.
        drop(event::poll(Duration::ZERO));
        // Where nothing can be set there is no terminal any more.
        execute!(io::stdout(), DisableBracketedPaste).ok();
        disable_raw_mode().ok();
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
    while poll(
        &mut [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::empty())],
        None,
    )
    .is_err_and(|error| error == rustix::io::Errno::INTR)
    {}
    sender.send(Input::End).ok();
}
