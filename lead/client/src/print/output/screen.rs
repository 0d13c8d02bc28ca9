//! A terminal on which output arrives while a person types: whole lines above the dock. One thread
//! writes, so that nothing gets between two halves of a line.
//!
//! It never decides what is shown, and no task waits for it: a terminal that is stopped (Ctrl-S)
//! stops nothing else.

use std::io::{self, Write};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};

use super::Output;
use super::dock::Dock;
use super::writer::{Step, Writer};

/// How long to wait until everything is written.
const WRITTEN: Duration = Duration::from_millis(500);
/// The size of a terminal that does not tell it.
const USUAL: (usize, usize) = (80, 24);

/// Lays a text out for so many columns. A line that is wider all the same is wrapped. What others
/// wrote in it is escaped.
pub type Layout = Box<dyn Fn(usize) -> String + Send>;

/// The way to the terminal. A copy writes to the same one.
#[derive(Clone)]
pub struct Screen {
    steps: Sender<Step>,
}

impl Screen {
    /// Begins to write to the terminal that is stdout.
    pub fn of_stdout() -> Self {
        let (steps, todo) = channel();
        let colours = AutoStream::choice(&io::stdout()) != ColorChoice::Never;
        // The thread ends with the last copy.
        std::thread::spawn(move || Writer::new(Box::new(io::stdout()), colours, size).run(&todo));
        Self { steps }
    }

    /// Tells whether a terminal of this environment can move its cursor: without it there is no
    /// dock.
    pub fn can_move() -> bool {
        std::env::var("TERM").is_ok_and(|term| !matches!(term.as_str(), "" | "dumb" | "cons25"))
    }

    /// Returns how many columns a line may have: the last one of the terminal stays free.
    pub fn columns(&self) -> usize {
        size().0 - 1
    }

    /// Makes an output for people that prints everything here.
    pub fn output(&self) -> Output {
        let sink = || -> Box<dyn Write> {
            Box::new(Sink {
                screen: self.clone(),
                kept: Vec::new(),
            })
        };
        Output::to(false, Some(self.columns()), sink(), sink())
    }

    /// Prints a text above the dock.
    pub fn print(&self, text: Layout) {
        self.step(Step::Show(Some(text), None));
    }

    /// Shows what stays below the output.
    pub fn dock(&self, dock: Dock) {
        self.step(Step::Show(None, Some(dock)));
    }

    /// Prints a text that was in the dock until now, in one step with the dock without it.
    pub fn print_from_dock(&self, text: Layout, dock: Dock) {
        self.step(Step::Show(Some(text), Some(dock)));
    }

    /// Writes what a terminal turns into a sound or a notice.
    pub fn signal(&self, bytes: &str) {
        self.step(Step::Signal(bytes.to_owned()));
    }

    /// Clears the terminal, but for the dock.
    pub fn clear(&self) {
        self.step(Step::Clear);
    }

    /// Leaves the terminal to another program, until [`Screen::resume`]. What is printed meanwhile
    /// waits.
    pub fn suspend(&self) {
        self.wait(Step::Suspend);
    }

    /// Takes the terminal back.
    pub fn resume(&self) {
        self.step(Step::Resume);
    }

    /// Waits a moment until everything is written, and tells whether it is.
    pub fn flush(&self) -> bool {
        self.wait(Step::Flush)
    }

    fn wait(&self, step: impl FnOnce(Sender<()>) -> Step) -> bool {
        let (done, is_done) = channel();
        self.step(step(done));
        is_done.recv_timeout(WRITTEN).is_ok()
    }

    fn step(&self, step: Step) {
        // The writer ends only when the terminal is gone: then there is nothing to show it on.
        drop(self.steps.send(step));
    }
}

/// Lays out lines that are escaped.
pub fn lines(text: String) -> Layout {
    Box::new(move |_| text.clone())
}

fn size() -> (usize, usize) {
    match crossterm::terminal::size() {
        Ok((columns, lines)) if columns > 0 && lines > 0 => (columns.into(), lines.into()),
        _ => USUAL,
    }
}

/// Lines on their way to the screen.
struct Sink {
    screen: Screen,
    kept: Vec<u8>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.kept.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let kept = std::mem::take(&mut self.kept);
        if !kept.is_empty() {
            self.screen
                .print(lines(String::from_utf8_lossy(&kept).into_owned()));
        }
        Ok(())
    }
}
