//! The terminal of a chat: keys and signals in, frames out, and other programs that have it for a
//! while. It stays when the person turns to another agent.

use std::io::{self, Write};
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;

use crossterm::event::{self, Event, EventStream, KeyEventKind};
use futures_util::StreamExt;
use futures_util::future::poll_immediate;
use nix::sys::signal::{Signal as Kind, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command as Program};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::log::LogBlock;
use super::print_queue::PrintQueue;
use super::prompt::line::PromptLine;
use crate::terminal::Screen;

/// The terminal, while it is taken.
pub(super) struct Console {
    pub(super) screen: Screen,
    /// The keys; none while another program reads them.
    pub(super) keys: Option<EventStream>,
    pub(super) signals: ChatSignals,
    pub(super) line: PromptLine,
    pub(super) printed: PrintQueue,
    /// The conversations with the agents that the person has left, to be printed at the end.
    pub(super) spoken: Vec<LogBlock>,
    /// Work in other threads that must not end with the chat.
    pub(super) unfinished: Vec<UnfinishedWork>,
}

/// Work in another thread.
pub(super) struct UnfinishedWork {
    /// What is waited for, for people.
    pub(super) what: String,
    /// Its sender is dropped when the work has ended.
    pub(super) end: oneshot::Receiver<()>,
}

/// How a command of the person ended.
pub(super) enum ShellEnd {
    Exited(io::Result<ExitStatus>),
    /// A signal ends the chat.
    ChatEnds,
}

/// How long the signal that continues a stopped process is waited for.
const CONTINUES: Duration = Duration::from_millis(100);

/// The signals of a chat: each leaves the terminal as it was.
pub(super) struct ChatSignals {
    pub(super) interrupt: Signal,
    /// After the program was stopped by another one.
    pub(super) resume: Signal,
    pub(super) terminate: Signal,
    pub(super) hang_up: Signal,
    pub(super) quit: Signal,
}

impl ChatSignals {
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
            quit: signal(SignalKind::quit())?,
        })
    }
}

impl Console {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn open(
        line: PromptLine,
        printed: PrintQueue,
        signals: ChatSignals,
    ) -> io::Result<Self> {
        Ok(Self {
            screen: Screen::open()?,
            keys: Some(EventStream::new()),
            signals,
            line,
            printed,
            spoken: Vec::new(),
            unfinished: Vec::new(),
        })
    }

    /// Returns what has come from the terminal already. Polled by the task that waits for keys: the
    /// stream keeps the first waker that it sees, and a poll by another one would lose the next
    /// key.
    pub(super) async fn pressed(&mut self) -> Option<Option<Event>> {
        poll_immediate(next_event(&mut self.keys)).await
    }

    /// Runs a command of the person, who has the terminal meanwhile, until the person has seen what
    /// it printed. If the chat ends, the command gets SIGTERM, and the terminal is not taken back.
    ///
    /// # Errors
    /// If the terminal cannot be taken back.
    pub(super) async fn shell(&mut self, command: &str) -> io::Result<ShellEnd> {
        self.stop_reading();
        self.screen.give_back();
        let end = match Program::new("sh").args(["-c", command]).spawn() {
            Ok(child) => self.wait_for(child).await,
            Err(error) => ShellEnd::Exited(Err(error)),
        };
        if matches!(end, ShellEnd::Exited(_)) {
            self.take_back()?;
        }
        Ok(end)
    }

    /// Waits for a program that has the terminal, and then for Enter: what it printed is gone from
    /// the screen after that.
    async fn wait_for(&mut self, mut child: Child) -> ShellEnd {
        let pid = child.id();
        let Some(status) = self.while_program_runs(child.wait()).await else {
            end_by_signal(pid);
            return ShellEnd::ChatEnds;
        };
        let (entered, is_entered) = oneshot::channel();
        // The chat may have ended when the line is read.
        std::thread::spawn(|| entered.send(read_enter()).ok());
        match self.while_program_runs(is_entered).await {
            None => ShellEnd::ChatEnds,
            Some(Ok(Err(error))) => ShellEnd::Exited(Err(error)),
            Some(_) => ShellEnd::Exited(status),
        }
    }

    /// Waits while another program has the terminal; none if a signal ends the chat meanwhile.
    async fn while_program_runs<T>(&mut self, wait: impl Future<Output = T>) -> Option<T> {
        let mut wait = pin!(wait);
        loop {
            tokio::select! {
                ended = &mut wait => return Some(ended),
                // These are for the program.
                _ = self.signals.interrupt.recv() => {}
                _ = self.signals.quit.recv() => {}
                // The terminal is taken back when the program has ended.
                _ = self.signals.resume.recv() => {}
                _ = self.signals.terminate.recv() => return None,
                _ = self.signals.hang_up.recv() => return None,
            }
        }
    }

    /// Stops this process as Ctrl-Z does elsewhere: the shell has the terminal until it continues
    /// the process.
    ///
    /// # Errors
    /// If the terminal cannot be taken back.
    pub(super) async fn suspend(&mut self) -> io::Result<()> {
        self.stop_reading();
        self.screen.stop()?;
        // The signal that has continued the process must not take the terminal once more. There is
        // none if the system did not stop the process.
        drop(tokio::time::timeout(CONTINUES, self.signals.resume.recv()).await);
        self.take_back()
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

/// Ends a program that was not awaited: its id is still its own.
fn end_by_signal(pid: Option<u32>) {
    let pid = pid.and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid {
        // It may have ended just now.
        kill(Pid::from_raw(pid), Kind::SIGTERM).ok();
    }
}

/// Waits for Enter.
fn read_enter() -> io::Result<()> {
    let mut stderr = io::stderr();
    write!(stderr, "[Enter goes back to the conversation] ")?;
    io::stdin().read_line(&mut String::new()).map(drop)
}
