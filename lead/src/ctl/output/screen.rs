//! A terminal on which output arrives while a person types: whole lines above the dock. One thread writes, so that nothing
//! gets between two halves of a line.
//!
//! It never decides what is shown, and no task waits for it: a terminal that is stopped (Ctrl-S) stops nothing else.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use crossterm::Command;
use crossterm::cursor::{MoveRight, MoveUp};
use crossterm::terminal::{Clear, ClearType};

use super::dock::{Dock, DockRows};
use super::{HANGING, Output};
use crate::ctl::table::width;

/// How long to wait until everything is written.
const WRITTEN: Duration = Duration::from_millis(500);
/// The size of a terminal that does not tell it.
const USUAL: (usize, usize) = (80, 24);

/// What is to be done, in this order.
enum Operation {
    /// Prints whole lines above the dock.
    Print(String),
    /// Shows another dock.
    Dock(Dock),
    /// Prints lines that were in the dock until now.
    Move(String, Dock),
    /// A line was typed: what comes next begins on a line of its own.
    Typed(String),
    /// Writes bytes that move nothing.
    Signal(String),
    /// Clears the terminal, but for the dock.
    Clear,
    /// Takes the dock away; what is printed waits.
    Suspend(Sender<()>),
    /// Shows the dock, and what has waited.
    Resume,
    /// Everything before is to be written.
    Flush(Sender<()>),
}

/// The way to the terminal. A copy writes to the same one.
#[derive(Clone)]
pub(crate) struct Screen {
    steps: Sender<Operation>,
    choice: ColorChoice,
}

impl Screen {
    /// Begins to write to the terminal that is stdout. One that cannot move its cursor (`moves` is false) has no dock: the
    /// prompt stands where the cursor is.
    pub(crate) fn new(moves: bool) -> Self {
        let (steps, todo) = channel();
        // The thread ends with the last copy.
        std::thread::spawn(move || Writer::new(Box::new(io::stdout()), moves, terminal_size).run(&todo));
        Self { steps, choice: AutoStream::choice(&io::stdout()) }
    }

    /// Tells whether a terminal of this environment can move its cursor.
    pub(crate) fn can_move() -> bool {
        std::env::var("TERM").is_ok_and(|term| !matches!(term.as_str(), "" | "dumb" | "cons25"))
    }

    /// Makes an output for people that prints everything here.
    pub(crate) fn output(&self) -> Output {
        let sink = || -> Box<dyn Write> {
            let raw: Box<dyn Write> = Box::new(Sink { screen: self.clone(), kept: Vec::new() });
            Box::new(AutoStream::new(raw, self.choice))
        };
        // The last column stays free, as in the dock.
        Output::to(false, Some(terminal_size().0 - 1), sink(), sink())
    }

    /// Returns how many columns a line may have.
    pub(crate) fn columns(&self) -> usize {
        terminal_size().0
    }

    /// Prints whole lines, escaped by the caller. Long ones are wrapped at words.
    pub(crate) fn print(&self, text: &str) {
        self.step(Operation::Print(self.in_colour(text)));
    }

    /// Prints lines that were in the dock until now, in one step with the dock without them.
    pub(crate) fn print_from_dock(&self, text: &str, dock: Dock) {
        self.step(Operation::Move(self.in_colour(text), self.dock_in_colour(dock)));
    }

    /// Shows what stays below the output.
    pub(crate) fn dock(&self, dock: Dock) {
        self.step(Operation::Dock(self.dock_in_colour(dock)));
    }

    fn dock_in_colour(&self, dock: Dock) -> Dock {
        Dock { above: dock.above.iter().map(|line| self.in_colour(line)).collect(), ..dock }
    }

    /// Leaves a line that was typed above the dock.
    pub(crate) fn typed(&self, line: &str) {
        self.step(Operation::Typed(line.to_owned()));
    }

    /// Writes what a terminal turns into a sound or a notice.
    pub(crate) fn signal(&self, bytes: &str) {
        self.step(Operation::Signal(bytes.to_owned()));
    }

    /// Clears the terminal.
    pub(crate) fn clear(&self) {
        self.step(Operation::Clear);
    }

    /// Leaves the terminal to another program, until [`Screen::resume`].
    pub(crate) fn suspend(&self) {
        self.wait(Operation::Suspend);
    }

    /// Takes the terminal back.
    pub(crate) fn resume(&self) {
        self.step(Operation::Resume);
    }

    /// Waits a moment until everything is written, and tells whether it is.
    pub(crate) fn flush(&self) -> bool {
        self.wait(Operation::Flush)
    }

    fn in_colour(&self, text: &str) -> String {
        match self.choice {
            ColorChoice::Never => anstream::adapter::strip_str(text).to_string(),
            _ => text.to_owned(),
        }
    }

    fn wait(&self, step: impl FnOnce(Sender<()>) -> Operation) -> bool {
        let (done, is_done) = channel();
        self.step(step(done));
        is_done.recv_timeout(WRITTEN).is_ok()
    }

    fn step(&self, step: Operation) {
        // The writer ends only when the terminal is gone: then there is nothing to show it on.
        drop(self.steps.send(step));
    }
}

fn terminal_size() -> (usize, usize) {
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
            self.screen.step(Operation::Print(String::from_utf8_lossy(&kept).into_owned()));
        }
        Ok(())
    }
}

/// The end of the way: what stands on the terminal.
struct Writer {
    terminal: Box<dyn Write>,
    moves: bool,
    size: fn() -> (usize, usize),
    dock: Dock,
    /// The dock that stands on the terminal.
    drawn: DockRows,
    /// What waits as long as another program has the terminal.
    waiting: Option<String>,
}

impl Writer {
    fn new(terminal: Box<dyn Write>, moves: bool, size: fn() -> (usize, usize)) -> Self {
        let (dock, drawn) = (Dock::default(), DockRows::default());
        Self { terminal, moves, size, dock, drawn, waiting: None }
    }

    fn run(mut self, todo: &Receiver<Operation>) {
        // Steps that wait together are written together.
        while let Ok(first) = todo.recv() {
            let (mut written, mut text) = (Vec::new(), String::new());
            for step in std::iter::once(first).chain(todo.try_iter()) {
                written.extend(self.take(step, &mut text));
            }
            self.draw(&text);
            // The waiting task may have gone on already.
            for done in written {
                done.send(()).ok();
            }
        }
    }

    /// Takes a step: what is to be printed is added to the text.
    fn take(&mut self, step: Operation, text: &mut String) -> Option<Sender<()>> {
        match step {
            Operation::Print(lines) => whole_lines(&lines, text),
            Operation::Move(lines, dock) => {
                whole_lines(&lines, text);
                self.dock = dock;
            }
            // Where the terminal shows what is typed, the line stands there already.
            Operation::Typed(_) if !self.moves => self.drawn = DockRows::default(),
            Operation::Typed(line) => {
                let (columns, _) = (self.size)();
                let echo = Dock { above: Vec::new(), typed: line, ..self.dock.clone() };
                text.extend(echo.rows((columns, usize::MAX)).rows.into_iter().map(|row| row + "\n"));
            }
            Operation::Dock(dock) => self.dock = dock,
            Operation::Signal(bytes) => self.write(&bytes),
            Operation::Clear => {
                self.drawn = DockRows::default();
                self.write(&format!("{}\x1b[H", ansi(&Clear(ClearType::All))));
            }
            Operation::Suspend(done) => {
                self.draw(&std::mem::take(text));
                let erased = self.erased((self.size)().0);
                self.write(&erased);
                self.drawn = DockRows::default();
                self.waiting = Some(String::new());
                return Some(done);
            }
            Operation::Resume => text.insert_str(0, &self.waiting.take().unwrap_or_default()),
            Operation::Flush(done) => return Some(done),
        }
        None
    }

    fn draw(&mut self, text: &str) {
        if let Some(waiting) = &mut self.waiting {
            return waiting.push_str(text);
        }
        let size = (self.size)();
        if !self.moves {
            return self.draw_plain(text, size.0);
        }
        let rows = self.dock.rows(size);
        if text.is_empty() && rows == self.drawn {
            return;
        }
        let mut all =
            self.erased(size.0) + &wrapped(text, size.0).replace('\n', "\r\n") + &rows.rows.join("\r\n");
        let (row, column) = rows.cursor;
        up(rows.rows.len().saturating_sub(row + 1), &mut all);
        all.push('\r');
        if column > 0 {
            all.push_str(&ansi(&MoveRight(u16::try_from(column).unwrap_or(u16::MAX))));
        }
        self.drawn = rows;
        self.write(&all);
    }

    /// Prints the prompt again after what is printed.
    fn draw_plain(&mut self, text: &str, columns: usize) {
        let stands = self.drawn.rows.last();
        if text.is_empty() && stands == Some(&self.dock.prompt) {
            return;
        }
        let begin = if stands.is_some() { "\n" } else { "" };
        self.write(&format!("{begin}{}{}", wrapped(text, columns), self.dock.prompt));
        self.drawn.rows = vec![self.dock.prompt.clone()];
    }

    /// Returns what takes the dock away, on a terminal that has changed its width meanwhile, too.
    fn erased(&self, columns: usize) -> String {
        let (row, column) = self.drawn.cursor;
        let before = self.drawn.rows.iter().take(row).map(|row| 1 + width(row).saturating_sub(1) / columns);
        let mut erased = "\r".to_owned();
        up(before.sum::<usize>() + column / columns, &mut erased);
        erased + &ansi(&Clear(ClearType::FromCursorDown))
    }

    fn write(&mut self, bytes: &str) {
        // A terminal that is gone ends the chat; there is nowhere else to say it.
        drop(self.terminal.write_all(bytes.as_bytes()).and_then(|()| self.terminal.flush()));
    }
}

fn whole_lines(lines: &str, text: &mut String) {
    text.push_str(lines);
    if !lines.ends_with('\n') {
        text.push('\n');
    }
}

fn ansi(command: &impl Command) -> String {
    let mut text = String::new();
    // A string takes everything.
    command.write_ansi(&mut text).ok();
    text
}

fn up(rows: usize, text: &mut String) {
    if rows > 0 {
        text.push_str(&ansi(&MoveUp(u16::try_from(rows).unwrap_or(u16::MAX))));
    }
}

/// Wraps lines that are too long at words. The rest of one is indented: no part of a text that others wrote begins where a
/// line of ours does.
fn wrapped(text: &str, columns: usize) -> String {
    let wrap = |line: &str| {
        if width(line) < columns && !line.contains('\t') {
            return format!("{line}\n");
        }
        let line = line.replace('\t', "    ");
        let indent = " ".repeat(line.len() - line.trim_start_matches(' ').len() + HANGING);
        let options = textwrap::Options::new(columns.max(2 * HANGING) - 1).subsequent_indent(&indent);
        textwrap::fill(&line, options) + "\n"
    };
    text.lines().map(wrap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctl::output::tests::Captured;

    fn writer(moves: bool) -> (Writer, Captured) {
        let terminal = Captured::default();
        (Writer::new(Box::new(terminal.clone()), moves, || (20, 10)), terminal)
    }

    fn step(writer: &mut Writer, step: Operation) {
        let mut text = String::new();
        drop(writer.take(step, &mut text));
        writer.draw(&text);
    }

    fn print(text: &str) -> Operation {
        Operation::Print(text.to_owned())
    }

    fn dock(above: &[&str], typed: &str) -> Operation {
        let above = above.iter().map(|&line| line.to_owned()).collect();
        Operation::Dock(Dock { above, prompt: "> ".to_owned(), typed: typed.to_owned(), cursor: typed.len() })
    }

    #[test]
    fn lines_are_printed_above_the_dock_which_is_drawn_again() {
        let (mut writer, terminal) = writer(true);
        step(&mut writer, dock(&["thinking"], "dra"));
        step(&mut writer, print("one\n"));
        let expected = "\r\x1b[Jthinking\r\n> dra\r\x1b[5C\r\x1b[1A\x1b[Jone\r\nthinking\r\n> dra\r\x1b[5C";
        assert_eq!(terminal.styled(), expected);
        step(&mut writer, dock(&["thinking"], "dra"));
        assert_eq!(terminal.styled(), expected, "nothing has changed");
        step(&mut writer, Operation::Typed("draft".to_owned()));
        assert!(terminal.styled().ends_with("\r\x1b[1A\x1b[J> draft\r\nthinking\r\n> dra\r\x1b[5C"));
    }

    #[test]
    fn a_long_line_is_wrapped_at_words() {
        assert_eq!(
            wrapped("  one two three four five\nsix\n", 16),
            "  one two three\n      four five\nsix\n"
        );
    }

    #[test]
    fn another_program_has_the_terminal_for_itself() {
        let (mut writer, terminal) = writer(true);
        step(&mut writer, dock(&[], "x"));
        step(&mut writer, Operation::Suspend(channel().0));
        let before = terminal.styled();
        step(&mut writer, print("meanwhile\n"));
        assert_eq!(terminal.styled(), before);
        step(&mut writer, Operation::Resume);
        assert!(terminal.styled().ends_with("\r\x1b[Jmeanwhile\r\n> x\r\x1b[3C"), "{:?}", terminal.styled());
    }

    #[test]
    fn a_terminal_that_cannot_move_its_cursor_gets_lines_and_prompts() {
        let (mut writer, terminal) = writer(false);
        step(&mut writer, dock(&["thinking"], ""));
        step(&mut writer, print("one\n"));
        step(&mut writer, Operation::Typed("two".to_owned()));
        step(&mut writer, print("three\n"));
        assert_eq!(terminal.styled(), "> \none\n> > \nthree\n> ");
    }
}
