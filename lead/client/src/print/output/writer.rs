//! What stands on the terminal: the lines that were printed last, and below them the dock.
//!
//! A terminal that changes its size moves lines in ways of its own, and a program learns of it
//! late. So nothing is assumed about what stands there then: the screen is drawn again from what
//! was printed.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::mpsc::{Receiver, Sender};

use crossterm::Command;
use crossterm::cursor::{MoveRight, MoveTo, MoveUp};
use crossterm::terminal::{Clear, ClearType};

use super::dock::{Dock, DockRows};
use super::screen::Layout;
use super::wrap;

/// How many texts are kept for a terminal that changes its size.
const PAST: usize = 500;

/// What is to be done, in this order.
pub(super) enum Step {
    /// Prints a text above the dock, and shows another dock.
    Show(Option<Layout>, Option<Dock>),
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

/// The end of the way: what stands on the terminal.
pub(super) struct Writer {
    terminal: Box<dyn Write>,
    colours: bool,
    size: fn() -> (usize, usize),
    dock: Dock,
    /// The dock that stands on the terminal.
    drawn: DockRows,
    /// The size for which it was drawn.
    drawn_for: (usize, usize),
    /// What was printed last.
    past: VecDeque<Layout>,
    /// Whether the screen may have lines of other programs, too.
    is_shared: bool,
    /// Whether another program has the terminal.
    is_left: bool,
}

impl Writer {
    pub(super) fn new(
        terminal: Box<dyn Write>,
        colours: bool,
        size: fn() -> (usize, usize),
    ) -> Self {
        let dock = Dock::default();
        let drawn = DockRows::default();
        let drawn_for = size();
        let past = VecDeque::new();
        Self {
            terminal,
            colours,
            size,
            dock,
            drawn,
            drawn_for,
            past,
            is_shared: true,
            is_left: false,
        }
    }

    pub(super) fn run(mut self, todo: &Receiver<Step>) {
        // Steps that wait together are written together.
        let mut new = Vec::new();
        while let Ok(first) = todo.recv() {
            let steps = std::iter::once(first).chain(todo.try_iter());
            let written: Vec<_> = steps.filter_map(|step| self.take(step, &mut new)).collect();
            self.draw(&mut new);
            for done in written {
                // The waiting task may have gone on already.
                done.send(()).ok();
            }
        }
    }

    /// Takes a step: what is to be printed is added to `new`.
    fn take(&mut self, step: Step, new: &mut Vec<Layout>) -> Option<Sender<()>> {
        match step {
            Step::Show(text, dock) => {
                new.extend(text);
                self.dock = dock.unwrap_or(std::mem::take(&mut self.dock));
            }
            Step::Signal(bytes) => self.write(&bytes),
            Step::Clear => {
                self.drawn = DockRows::default();
                self.is_shared = false;
                self.past.clear();
                self.write(&(ansi(&Clear(ClearType::All)) + &ansi(&MoveTo(0, 0))));
            }
            Step::Suspend(done) => {
                self.draw(new);
                let erased = self.erased(0);
                self.write(&erased);
                self.drawn = DockRows::default();
                self.is_shared = true;
                self.is_left = true;
                self.past.clear();
                return Some(done);
            }
            Step::Resume => self.is_left = false,
            Step::Flush(done) => return Some(done),
        }
        None
    }

    fn draw(&mut self, new: &mut Vec<Layout>) {
        let size = (self.size)();
        let mut dock = self.dock.rows(size);
        for row in &mut dock.rows {
            *row = self.in_colour(std::mem::take(row));
        }
        let is_resized = size != self.drawn_for;
        if self.is_left || !is_resized && new.is_empty() && dock == self.drawn {
            return;
        }
        let mut all = if is_resized {
            self.redrawn(size, dock.rows.len(), new)
        } else {
            self.erased(0)
        };
        let printed: Vec<String> = new.iter().map(|text| self.lay_out(text, size)).collect();
        self.past.extend(new.drain(..));
        self.past.drain(..self.past.len().saturating_sub(PAST));
        all.extend(
            printed
                .iter()
                .flat_map(|text| text.lines())
                .flat_map(|line| [line, "\r\n"]),
        );
        all.push_str(&dock.rows.join("\r\n"));
        let (row, column) = dock.cursor;
        up(dock.rows.len().saturating_sub(row + 1), &mut all);
        all.push('\r');
        if column > 0 {
            all.push_str(&ansi(&MoveRight(u16::try_from(column).unwrap_or(u16::MAX))));
        }
        self.drawn = dock;
        self.drawn_for = size;
        self.write(&all);
    }

    /// Returns what takes the dock away, and so many rows above it.
    fn erased(&self, above: usize) -> String {
        let mut erased = "\r".to_owned();
        up(
            (self.drawn.cursor.0 + above).saturating_sub(usize::from(above > 0)),
            &mut erased,
        );
        erased.push_str(&ansi(&Clear(ClearType::FromCursorDown)));
        if above > 0 {
            // From its first row, some terminals add the whole screen to what one scrolls to.
            up(1, &mut erased);
            erased.push_str(&ansi(&Clear(ClearType::CurrentLine)));
        }
        erased
    }

    /// Returns what leaves on the screen the last lines that were printed, with room for the dock
    /// and what is new.
    fn redrawn(&mut self, size: (usize, usize), dock: usize, new: &[Layout]) -> String {
        let rows = |text: &Layout| {
            self.lay_out(text, size)
                .lines()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let room = size
            .1
            .saturating_sub(dock + new.iter().map(|text| rows(text).len()).sum::<usize>());
        let mut last = Vec::new();
        for text in self.past.iter().rev() {
            last.extend(rows(text).into_iter().rev());
            if last.len() >= room {
                break;
            }
        }
        last.truncate(room);
        let mut all = String::new();
        if std::mem::take(&mut self.is_shared) && last.len() < room {
            // What other programs have printed goes where one scrolls to; what stands below that is
            // drawn again.
            let own = self
                .past
                .iter()
                .map(|text| self.lay_out(text, self.drawn_for).lines().count())
                .sum();
            all = self.erased(own) + &"\r\n".repeat(size.1);
        }
        // Line by line: where a terminal clears its whole screen, some of them add it to what one
        // scrolls to.
        all.push_str(&ansi(&MoveTo(0, 1)));
        all.push_str(&ansi(&Clear(ClearType::FromCursorDown)));
        all.push_str(&ansi(&MoveTo(0, 0)));
        all.push_str(&ansi(&Clear(ClearType::CurrentLine)));
        all.extend(last.into_iter().rev().map(|row| row + "\r\n"));
        all
    }

    /// Lays a text out. The last column stays free, as in the dock.
    fn lay_out(&self, text: &Layout, (columns, _): (usize, usize)) -> String {
        let columns = columns.max(8) - 1;
        self.in_colour(wrap(&text(columns), columns))
    }

    fn in_colour(&self, text: String) -> String {
        if self.colours {
            text
        } else {
            anstream::adapter::strip_str(&text).to_string()
        }
    }

    fn write(&mut self, bytes: &str) {
        // A terminal that is gone ends the chat; there is nowhere else to say it.
        drop(
            self.terminal
                .write_all(bytes.as_bytes())
                .and_then(|()| self.terminal.flush()),
        );
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc::channel;

    use super::super::screen::lines;
    use super::*;
    use crate::testing::Captured;

    thread_local! {
        static SIZE: Cell<(usize, usize)> = const { Cell::new((20, 10)) };
    }

    fn writer() -> (Writer, Captured) {
        let terminal = Captured::default();
        (
            Writer::new(Box::new(terminal.clone()), true, || SIZE.get()),
            terminal,
        )
    }

    fn step(writer: &mut Writer, step: Step) {
        let mut new = Vec::new();
        drop(writer.take(step, &mut new));
        writer.draw(&mut new);
    }

    fn print(text: &str) -> Step {
        Step::Show(Some(lines(text.to_owned())), None)
    }

    fn dock(above: &'static str, typed: &str) -> Step {
        let cursor = typed.len();
        let typed = typed.to_owned();
        let prompt = "> ".to_owned();
        Step::Show(
            None,
            Some(Dock {
                above: Box::new(|_| above.to_owned()),
                prompt,
                typed,
                cursor,
            }),
        )
    }

    #[test]
    fn lines_are_printed_above_the_dock_which_is_drawn_again() {
        let (mut writer, terminal) = writer();
        step(&mut writer, dock("thinking", "dra"));
        step(&mut writer, print("one\n"));
        let expected =
            "\r\x1b[Jthinking\r\n> dra\r\x1b[5C\r\x1b[1A\x1b[Jone\r\nthinking\r\n> dra\r\x1b[5C";
        assert_eq!(terminal.styled(), expected);
        step(&mut writer, dock("thinking", "dra"));
        assert_eq!(terminal.styled(), expected, "nothing has changed");
    }

    #[test]
    fn a_terminal_of_another_size_is_drawn_again_from_what_was_printed() {
        let (mut writer, terminal) = writer();
        for line in 1..=6 {
            step(&mut writer, print(&format!("{line} one two three")));
        }
        step(&mut writer, dock("thinking", ""));
        let before = terminal.styled().len();
        SIZE.set((12, 6));
        step(&mut writer, print("new"));
        let clear = "\x1b[2;1H\x1b[J\x1b[1;1H\x1b[2K";
        let rows = "    three\r\n6 one two\r\n    three\r\nnew\r\nthinking\r\n> \r\x1b[2C";
        assert_eq!(&terminal.styled()[before..], format!("{clear}{rows}"));
        // Lines of other programs are moved up before it.
        SIZE.set((20, 10));
        step(&mut writer, Step::Suspend(channel().0));
        step(&mut writer, Step::Resume);
        SIZE.set((20, 4));
        let before = terminal.styled().len();
        step(&mut writer, print("last"));
        let moved = "\r\x1b[1A\x1b[J\r\n\r\n\r\n\r\n";
        assert!(
            terminal.styled()[before..].starts_with(&format!("{moved}{clear}last\r\n")),
            "{:?}",
            terminal.styled()
        );
    }

    #[test]
    fn at_the_first_change_of_size_only_lines_of_other_programs_are_scrolled_away() {
        let (mut writer, terminal) = writer();
        step(&mut writer, print("one"));
        step(&mut writer, dock("thinking", ""));
        let before = terminal.styled().len();
        SIZE.set((20, 8));
        step(&mut writer, print("two"));
        let moved = format!("\r\x1b[1A\x1b[J\x1b[1A\x1b[2K{}", "\r\n".repeat(8));
        assert!(
            terminal.styled()[before..].starts_with(&moved),
            "{:?}",
            terminal.styled()
        );
    }

    #[test]
    fn another_program_has_the_terminal_for_itself() {
        let (mut writer, terminal) = writer();
        step(&mut writer, dock("", "x"));
        step(&mut writer, Step::Suspend(channel().0));
        let before = terminal.styled();
        let mut new = Vec::new();
        drop(writer.take(print("meanwhile\n"), &mut new));
        writer.draw(&mut new);
        assert_eq!(terminal.styled(), before);
        drop(writer.take(Step::Resume, &mut new));
        writer.draw(&mut new);
        assert!(
            terminal
                .styled()
                .ends_with("\r\x1b[Jmeanwhile\r\n> x\r\x1b[3C"),
            "{:?}",
            terminal.styled()
        );
    }

    #[test]
    fn without_colours_no_style_is_written() {
        let terminal = Captured::default();
        let mut writer = Writer::new(Box::new(terminal.clone()), false, || (20, 10));
        step(&mut writer, dock("\x1b[2mthinking\x1b[0m", ""));
        step(&mut writer, print("\x1b[31mbad\x1b[0m"));
        assert!(
            terminal
                .styled()
                .ends_with("\x1b[Jbad\r\nthinking\r\n> \r\x1b[2C"),
            "{:?}",
            terminal.styled()
        );
    }
}
