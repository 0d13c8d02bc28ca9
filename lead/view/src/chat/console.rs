//! The terminal of a chat: keys and signals in, frames out, and other programs that have it for a
//! while. It stays when the person turns to another agent.

use std::io::{self, Write};
use std::process::{Command as Program, ExitStatus};
use std::time::Duration;

use crossterm::event::{self, Event, EventStream, KeyEventKind};
use futures_util::StreamExt;
use futures_util::future::poll_immediate;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::log::{Block, Printed};
use super::prompt::line::Line;
use crate::top::Screen;

/// The terminal, while it is taken.
pub(super) struct Console {
    pub(super) screen: Screen,
    /// The keys; none while another program reads them.
    pub(super) keys: Option<EventStream>,
    pub(super) signals: Signals,
    pub(super) line: Line,
    pub(super) printed: Printed,
    /// What was said with the agents with whom the person is done.
    pub(super) said: Vec<Block>,
}

/// The signals of a chat: each leaves the terminal as it was.
pub(super) struct Signals {
    pub(super) interrupt: Signal,
    /// After the program was stopped by another one.
    pub(super) resume: Signal,
    pub(super) terminate: Signal,
    pub(super) hang_up: Signal,
}

impl Signals {
    /// Catches them from now on. Must be called within the runtime.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn catch() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            resume: signal(SignalKind::from_raw(nix::libc::SIGCONT))?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }
}

impl Console {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn open(line: Line, printed: Printed, signals: Signals) -> io::Result<Self> {
        Ok(Self {
            screen: Screen::open()?,
            keys: Some(EventStream::new()),
            signals,
            line,
            printed,
            said: Vec::new(),
        })
    }

    /// Returns what has come from the terminal already. Polled by the task that waits for keys: the
    /// stream keeps the first waker that it sees, and a poll by another one would lose the next
    /// key.
    pub(super) async fn pressed(&mut self) -> Option<Option<Event>> {
        poll_immediate(next_event(&mut self.keys)).await
    }

    /// Runs a command of the person, who has the terminal meanwhile, until the person has seen what
    /// it printed.
    ///
    /// # Errors
    /// If the terminal cannot be taken back. The inner one: if the command cannot be run.
    pub(super) async fn shell(&mut self, command: String) -> io::Result<io::Result<ExitStatus>> {
        self.stop_reading();
        self.screen.give_back();
        let (done, mut is_done) = oneshot::channel();
        std::thread::spawn(move || done.send(run_and_wait(&command)).ok());
        let ended = loop {
            tokio::select! {
                ended = &mut is_done => break ended,
                // Ctrl-C is for the command.
                _ = self.signals.interrupt.recv() => {}
            }
        };
        self.take_back()?;
        Ok(ended.unwrap_or_else(|lost| Err(io::Error::other(lost))))
    }

    /// Stops this process as Ctrl-Z does elsewhere: the shell has the terminal until it continues
    /// the process.
    ///
    /// # Errors
    /// If the terminal cannot be taken back.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        self.stop_reading();
        self.screen.suspend()?;
        self.keys = Some(EventStream::new());
        Ok(())
    }

    /// Takes the terminal again, after another program had it.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn take_back(&mut self) -> io::Result<()> {
        self.stop_reading();
        self.screen.take_back()?;
        self.keys = Some(EventStream::new());
        Ok(())
    }

    fn stop_reading(&mut self) {
        self.keys = None;
        // The end of the stream leaves an event behind, and the keys that would be reported
        // together with it are lost.
        drop(event::poll(Duration::ZERO));
    }
}

/// Waits for what comes next from the terminal; none if the terminal is gone. Dropping the future
/// loses nothing.
pub(super) async fn next_event(keys: &mut Option<EventStream>) -> Option<Event> {
    let keys = keys.as_mut()?;
    loop {
        match keys.next().await? {
            Ok(Event::Key(key)) if key.kind == KeyEventKind::Release => {}
            Ok(event) => return Some(event),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Runs a command, and waits for Enter: what it printed is gone from the screen after that.
fn run_and_wait(command: &str) -> io::Result<ExitStatus> {
    let status = Program::new("sh").args(["-c", command]).status();
    let mut stderr = io::stderr();
    write!(stderr, "[Enter goes back to the conversation] ")?;
    io::stdin().read_line(&mut String::new())?;
    status
}
