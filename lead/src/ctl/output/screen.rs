//! A terminal on which output arrives while a person types: whole lines above the prompt while one is shown, else as
//! it comes. One thread writes, so that nothing gets between two halves of a line.
//!
//! It never decides what is shown, and no task waits for it: a terminal that is stopped (Ctrl-S) stops nothing else.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};

use super::{Output, paint, terminal_width};
use crate::ctl::escape;
use crate::ctl::render::DIM;
use crate::ctl::table::cut;

/// How long to wait until everything is written: for a prompt, and at the end.
const WRITTEN: Duration = Duration::from_millis(500);

/// Clears the line that the cursor stands on.
const CLEARED: &str = "\r\x1b[K";

/// What prints above a prompt.
pub(crate) type AbovePrompt = Box<dyn FnMut(String) -> io::Result<()> + Send>;

/// What is to be done, in this order.
enum Operation {
    /// Continues the line.
    Stream(String),
    /// Whole lines of their own.
    Lines(String),
    /// A line that goes away with whatever is printed next.
    Passing(String),
    /// It goes away now.
    Passed,
    /// A prompt is about to be shown.
    Prompt(Sender<()>),
    /// It is gone.
    NoPrompt,
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
    /// Begins to write to the terminal that is stdout. `above` prints above a prompt; without it lines are printed
    /// where the cursor is.
    pub(crate) fn new(above: Option<AbovePrompt>) -> (Self, JoinHandle<()>) {
        let (steps, todo) = channel();
        let screen = Self { steps, choice: AutoStream::choice(&io::stdout()) };
        let writer = std::thread::spawn(move || Writer::new(Box::new(io::stdout()), above).run(&todo));
        (screen, writer)
    }

    /// Makes an output for people that prints everything here.
    pub(crate) fn output(&self) -> Output {
        let sink = || -> Box<dyn Write> {
            let raw: Box<dyn Write> = Box::new(Sink { screen: self.clone(), kept: Vec::new() });
            Box::new(AutoStream::new(raw, self.choice))
        };
        Output::to(false, terminal_width(), sink(), sink())
    }

    /// Shows more of a line: text that others wrote, escaped here.
    pub(crate) fn stream(&self, text: &str) {
        self.step(Operation::Stream(escape::text(text).into_owned()));
    }

    /// Ends the line that is open, if one is.
    pub(crate) fn end_line(&self) {
        self.step(Operation::Lines(String::new()));
    }

    /// Shows a line that goes away with what comes next; above a prompt, from where nothing goes away, it stays. It is
    /// escaped by the caller.
    pub(crate) fn passing(&self, line: &str) {
        // What does not fit on the line would stay when it is cleared.
        let line = cut(line, terminal_width().map(|width| width.saturating_sub(1)));
        let plain = self.choice == ColorChoice::Never;
        self.step(Operation::Passing(if plain { line } else { paint(DIM, line) }));
    }

    /// Takes such a line away, if it is still there.
    pub(crate) fn passed(&self) {
        self.step(Operation::Passed);
    }

    /// Makes ready for a prompt: from now on only whole lines are printed, above it.
    pub(crate) fn before_prompt(&self) {
        self.wait(Operation::Prompt);
    }

    /// The prompt is gone.
    pub(crate) fn after_prompt(&self) {
        self.step(Operation::NoPrompt);
    }

    /// Waits a moment until everything is written.
    pub(crate) fn flush(&self) {
        self.wait(Operation::Flush);
    }

    fn wait(&self, step: impl FnOnce(Sender<()>) -> Operation) {
        let (done, is_done) = channel();
        self.step(step(done));
        // Late is better than never, for a prompt as for the end.
        is_done.recv_timeout(WRITTEN).ok();
    }

    fn step(&self, step: Operation) {
        // The writer ends only when the terminal is gone: then there is nothing to show it on.
        drop(self.steps.send(step));
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
            self.screen.step(Operation::Lines(String::from_utf8_lossy(&kept).into_owned()));
        }
        Ok(())
    }
}

/// The end of the way: what stands on the terminal.
struct Writer {
    terminal: Box<dyn Write>,
    above: Option<AbovePrompt>,
    /// Whether a prompt is shown.
    prompt: bool,
    /// Whether the last line has not ended.
    open: bool,
    /// Whether the cursor stands behind a line that goes away.
    passing: bool,
    /// The beginning of a line, which waits for its end as long as a prompt is shown.
    held: String,
}

impl Writer {
    fn new(terminal: Box<dyn Write>, above: Option<AbovePrompt>) -> Self {
        Self { terminal, above, prompt: false, open: false, passing: false, held: String::new() }
    }

    fn run(mut self, todo: &Receiver<Operation>) {
        // Steps that wait together are printed together: each print above a prompt paints it anew.
        while let Ok(first) = todo.recv() {
            let mut waiting = Vec::new();
            let mut text = String::new();
            for step in std::iter::once(first).chain(todo.try_iter()) {
                waiting.extend(self.take(step, &mut text));
            }
            self.print(text);
            // The waiting task may have gone on already.
            for done in waiting {
                done.send(()).ok();
            }
        }
    }

    /// Takes a step: what is to be printed is added to the text.
    fn take(&mut self, step: Operation, text: &mut String) -> Option<Sender<()>> {
        match step {
            Operation::Stream(more) => self.stream(&more, text),
            Operation::Lines(lines) => {
                self.passed(text);
                self.end_line(text);
                if !lines.is_empty() {
                    self.stream(&lines, text);
                    self.end_line(text);
                }
            }
            Operation::Passing(line) => self.pass(&line, text),
            Operation::Passed => self.passed(text),
            Operation::Flush(done) => return Some(done),
            Operation::Prompt(done) => {
                self.passed(text);
                self.end_line(text);
                self.print(std::mem::take(text));
                self.prompt = true;
                return Some(done);
            }
            Operation::NoPrompt => {
                self.print(std::mem::take(text));
                self.prompt = false;
                text.push_str(&std::mem::take(&mut self.held));
            }
        }
        None
    }

    fn pass(&mut self, line: &str, text: &mut String) {
        self.passed(text);
        self.end_line(text);
        // A terminal that cannot move its cursor clears nothing.
        self.passing = !self.prompt && self.above.is_some();
        match self.passing {
            true => text.push_str(line),
            false => text.extend([line, "\n"]),
        }
    }

    fn passed(&mut self, text: &mut String) {
        if std::mem::take(&mut self.passing) {
            text.push_str(CLEARED);
        }
    }

    fn stream(&mut self, more: &str, text: &mut String) {
        if more.is_empty() {
            return;
        }
        self.passed(text);
        self.open = !more.ends_with('\n');
        if !self.prompt {
            return text.push_str(more);
        }
        self.held.push_str(more);
        if let Some(end) = self.held.rfind('\n') {
            text.extend(self.held.drain(..=end));
        }
    }

    fn end_line(&mut self, text: &mut String) {
        if std::mem::take(&mut self.open) {
            text.push_str(&std::mem::take(&mut self.held));
            text.push('\n');
        }
    }

    fn print(&mut self, text: String) {
        if text.is_empty() {
            return;
        }
        let printed = match &mut self.above {
            Some(above) if self.prompt => above(text),
            _ => self.terminal.write_all(text.as_bytes()).and_then(|()| self.terminal.flush()),
        };
        // A terminal that is gone sends SIGHUP, which ends the program; there is nowhere else to say it.
        drop(printed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctl::output::tests::Captured;

    fn writer() -> (Writer, Captured, Receiver<String>) {
        let (terminal, (sender, above)) = (Captured::default(), channel());
        let print: AbovePrompt = Box::new(move |text| {
            sender.send(text).unwrap();
            Ok(())
        });
        (Writer::new(Box::new(terminal.clone()), Some(print)), terminal, above)
    }

    fn step(writer: &mut Writer, step: Operation) {
        let mut text = String::new();
        drop(writer.take(step, &mut text));
        writer.print(text);
    }

    fn stream(text: &str) -> Operation {
        Operation::Stream(text.to_owned())
    }

    fn passing(text: &str) -> Operation {
        Operation::Passing(text.to_owned())
    }

    fn prompt() -> Operation {
        Operation::Prompt(channel().0)
    }

    #[test]
    fn text_is_shown_as_it_comes_and_lines_begin_on_their_own() {
        let (mut writer, terminal, _) = writer();
        step(&mut writer, stream("Hel"));
        assert_eq!(terminal.text(), "Hel");
        step(&mut writer, stream("lo"));
        step(&mut writer, Operation::Lines("note\n".to_owned()));
        step(&mut writer, Operation::Lines(String::new()));
        step(&mut writer, stream("end\n"));
        step(&mut writer, Operation::Lines("more".to_owned()));
        assert_eq!(terminal.text(), "Hello\nnote\nend\nmore\n");
    }

    #[test]
    fn a_line_that_passes_goes_away_with_what_comes_next_and_stays_above_a_prompt() {
        let (mut writer, terminal, above) = writer();
        step(&mut writer, stream("open"));
        for line in [passing("waiting 2 s"), passing("waiting 4 s"), Operation::Passed, Operation::Passed] {
            step(&mut writer, line);
        }
        assert_eq!(terminal.raw(), "open\nwaiting 2 s\r\x1b[Kwaiting 4 s\r\x1b[K");
        step(&mut writer, passing("again"));
        step(&mut writer, stream("words"));
        step(&mut writer, passing("more"));
        step(&mut writer, prompt());
        assert!(terminal.raw().ends_with("again\r\x1b[Kwords\nmore\r\x1b[K"), "{}", terminal.raw());
        step(&mut writer, passing("beside a prompt"));
        step(&mut writer, Operation::Passed);
        assert_eq!(above.try_iter().collect::<Vec<_>>(), ["beside a prompt\n"]);
    }

    #[test]
    fn above_a_prompt_only_whole_lines_are_shown() {
        let (mut writer, terminal, above) = writer();
        step(&mut writer, stream("open"));
        step(&mut writer, prompt());
        assert_eq!(terminal.text(), "open\n", "the prompt has a line of its own");
        step(&mut writer, stream("one\ntw"));
        step(&mut writer, stream("o"));
        assert_eq!(above.try_iter().collect::<Vec<_>>(), ["one\n"]);
        step(&mut writer, Operation::Lines("note\n".to_owned()));
        assert_eq!(above.try_iter().collect::<Vec<_>>(), ["two\nnote\n"]);
        step(&mut writer, stream("thr"));
        step(&mut writer, Operation::NoPrompt);
        step(&mut writer, stream("ee"));
        assert_eq!((terminal.text().as_str(), above.try_iter().count()), ("open\nthree", 0));
    }
}
