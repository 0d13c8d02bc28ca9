//! The terminal as a whole screen: taken when the view begins, and given back at every end of it, a
//! panic included.

use std::io::{self, IsTerminal, Stdout, stdin, stdout};
use std::mem::ManuallyDrop;

use crossterm::cursor::Show;
use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use crossterm::execute;
use crossterm::style::Print;
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use nix::sys::signal::{Signal, raise};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};

use super::hang_up;
use teamd_client::print::output::can_move_cursor;

/// The terminal as a screen.
pub(crate) struct Screen {
    /// Never dropped: at its own end it shows the cursor, which is shown already, and it panics where
    /// the terminal is gone.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    /// Whether it is taken, and no other program has it.
    is_taken: bool,
}

/// Tells whether there is a terminal to read keys from and to draw on.
pub(crate) fn is_terminal() -> bool {
    stdin().is_terminal() && stdout().is_terminal() && can_move_cursor()
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn open() -> io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        hang_up::watch()?;
        let terminal = ManuallyDrop::new(Terminal::new(CrosstermBackend::new(stdout()))?);
        let screen = Self {
            terminal,
            is_taken: true,
        };
        take()?;
        Ok(screen)
    }

    /// Gives the terminal back, stops this process, and takes the terminal again when the shell
    /// continues the process.
    ///
    /// # Errors
    /// As [`Screen::open`].
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        self.stop()?;
        self.take_back()
    }

    /// Gives the terminal back, and stops this process. Returns when the shell has continued the
    /// process.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        self.give_back();
        raise(Signal::SIGTSTP)?;
        Ok(())
    }

    /// Gives the terminal back, for another program, until [`Screen::take_back`].
    pub(crate) fn give_back(&mut self) {
        if self.is_taken {
            give_back();
            self.is_taken = false;
        }
    }

    /// Takes the terminal again after another program had it.
    ///
    /// # Errors
    /// As [`Screen::open`].
    pub(crate) fn take_back(&mut self) -> io::Result<()> {
        self.is_taken = true;
        take()?;
        // Nothing of what was drawn is on it any more. ratatui's own `clear` asks the terminal for
        // the cursor, and the answer comes among the keys.
        execute!(stdout(), Clear(ClearType::All))?;
        self.terminal = ManuallyDrop::new(Terminal::new(CrosstermBackend::new(stdout()))?);
        Ok(())
    }

    /// Returns how many columns it has.
    pub(crate) fn columns(&self) -> usize {
        self.terminal.size().map_or(80, |size| size.width.into())
    }

    /// Writes bytes that move nothing: a terminal makes a sound or a notice of them.
    ///
    /// # Errors
    /// If the terminal cannot be written.
    pub(crate) fn signal(&mut self, bytes: &str) -> io::Result<()> {
        execute!(stdout(), Print(bytes))
    }

    /// Draws a frame: what differs from the last one is written.
    ///
    /// # Errors
    /// If the terminal cannot be written.
    pub(crate) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        execute!(stdout(), BeginSynchronizedUpdate)?;
        self.terminal.draw(render)?;
        execute!(stdout(), EndSynchronizedUpdate)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.give_back();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(
        stdout(),
        EnterAlternateScreen,
        EnableBracketedPaste,
        EnableMouseCapture
    )
}

/// Gives the terminal back. What fails here cannot be shown anywhere.
fn give_back() {
    drop(execute!(
        stdout(),
        EndSynchronizedUpdate,
        Show,
        DisableMouseCapture,
        DisableBracketedPaste,
        LeaveAlternateScreen
    ));
    drop(disable_raw_mode());
}
