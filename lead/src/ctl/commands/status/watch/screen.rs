//! The terminal as a whole screen: taken when the view begins, and given back at every end of it, a panic included.

use std::io::{self, IsTerminal, Write, stdin, stdout};

use anstream::{AutoStream, ColorChoice};
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use nix::sys::signal::{Signal, raise};

/// The size of a terminal that does not tell its own.
const USUAL: (usize, usize) = (80, 24);

/// The terminal, while it is taken.
pub(super) struct Screen {
    shown: Vec<String>,
    size: (usize, usize),
    plain: bool,
}

/// Tells whether there is a terminal to read keys from and to draw on.
pub(super) fn is_terminal() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

/// Returns the columns and the rows.
pub(super) fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => USUAL,
    }
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn open() -> io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        let screen = Self {
            shown: Vec::new(),
            size: (0, 0),
            plain: AutoStream::choice(&stdout()) == ColorChoice::Never,
        };
        take()?;
        Ok(screen)
    }

    /// Gives the terminal back, stops this process, and takes the terminal again when the shell continues the process.
    ///
    /// # Errors
    /// As [`Screen::open`].
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        raise(Signal::SIGTSTP)?;
        self.size = (0, 0);
        take()
    }

    /// Draws the lines that differ from what is shown.
    ///
    /// # Errors
    /// If the terminal cannot be written.
    pub(super) fn show(&mut self, lines: &[String]) -> io::Result<()> {
        let whole = self.size != size();
        if !whole && self.shown == lines {
            return Ok(());
        }
        let mut out = stdout().lock();
        queue!(out, BeginSynchronizedUpdate)?;
        if whole {
            queue!(out, Clear(ClearType::All))?;
        }
        for (at, line) in lines.iter().enumerate() {
            if !whole && self.shown.get(at) == Some(line) {
                continue;
            }
            queue!(out, MoveTo(0, u16::try_from(at).unwrap_or(u16::MAX)), Clear(ClearType::UntilNewLine))?;
            match self.plain {
                true => write!(out, "{}", anstream::adapter::strip_str(line))?,
                false => out.write_all(line.as_bytes())?,
            }
        }
        queue!(out, EndSynchronizedUpdate)?;
        (self.shown, self.size) = (lines.to_vec(), size());
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste, Hide)
}

/// Gives the terminal back. What fails here cannot be shown anywhere.
fn give_back() {
    drop(execute!(stdout(), Show, DisableBracketedPaste, LeaveAlternateScreen));
    drop(disable_raw_mode());
}
