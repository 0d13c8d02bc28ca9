//! The only place that prints: results to stdout, everything else to stderr.
//!
//! With `--json` stdout carries one JSON object (or one a line), stderr carries errors as JSON, and
//! notes for people are left out. Colours are written as escape sequences and taken out again where
//! stdout or stderr is no terminal here or at the other end of `teamctl -H`, or `NO_COLOR` is set. What other programs wrote is escaped
//! before it gets here.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::rc::Rc;

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use serde::Serialize;
use serde_json::json;

use super::escape;
use super::style::paint;
use super::table::{cut, width};
use crate::error::CommandError;
use crate::exit_code::ExitCode;
use crate::over_ssh::{OverSsh, colours};

/// What to do when the result cannot be printed.
const DONE_ALL_THE_SAME: &str = "the command was carried out: before you repeat it, check the result (`teamctl status`, `teamctl inbox`)";

/// By how many columns the rest of a line is indented that is longer than the terminal is wide.
const HANGING: usize = 4;

/// Marks a blank at which no line may end. It is in no text of people.
const HELD: &str = "\u{f8ff}";

/// The style of "error:".
const ERROR: Style = AnsiColor::Red.on_default().bold();
/// The style of "hint:" and "note:".
const HINT: Style = AnsiColor::Cyan.on_default().bold();

/// Where a command prints.
pub struct Output {
    json: bool,
    width: Option<usize>,
    stdout: RefCell<Box<dyn Write>>,
    stderr: RefCell<Box<dyn Write>>,
    closed: Cell<bool>,
    /// Whether a person can be shown something in passing, and asked: not where the output is
    /// stored.
    has_terminal: bool,
    /// The columns of the terminal that shows stderr at the other end of `teamctl -H`, if one does.
    far_columns: Option<usize>,
    /// The lines that go away with whatever is printed next.
    passing: RefCell<Vec<String>>,
    /// The words that notes, hints and errors are put into.
    words: fn(&str) -> String,
}

impl Output {
    /// Prints to the process's stdout and stderr.
    pub fn new(json: bool) -> Self {
        let far = OverSsh::told();
        let far_stderr = far.and_then(|far| far.stderr);
        let stdout = colours(far.and_then(|far| far.stdout));
        let stderr = colours(far_stderr);
        Self {
            far_columns: far_stderr.map(|terminal| terminal.columns),
            ..Self::to(
                json,
                terminal_width(),
                Box::new(AutoStream::new(io::stdout(), stdout)),
                Box::new(AutoStream::new(io::stderr(), stderr)),
            )
        }
    }

    /// Prints to somewhere else; `width` is that of the terminal.
    pub fn to(
        json: bool,
        width: Option<usize>,
        stdout: Box<dyn Write>,
        stderr: Box<dyn Write>,
    ) -> Self {
        Self {
            json,
            width,
            stdout: RefCell::new(stdout),
            stderr: RefCell::new(stderr),
            closed: Cell::new(false),
            has_terminal: io::stderr().is_terminal(),
            far_columns: None,
            passing: RefCell::default(),
            words: str::to_owned,
        }
    }

    /// Stores what is printed for people, with its styles.
    pub fn stored(width: usize) -> (Self, Stored) {
        let stored = Stored::default();
        let output = Self::stored_in(width, Box::new(stored.clone()), Box::new(stored.clone()));
        (output, stored)
    }

    /// Prints for people to somewhere else than a terminal, with styles.
    pub fn stored_in(width: usize, stdout: Box<dyn Write>, stderr: Box<dyn Write>) -> Self {
        Self {
            has_terminal: false,
            ..Self::to(false, Some(width), stdout, stderr)
        }
    }

    /// Puts notes, hints and errors into other words: what is to be typed is not the same
    /// everywhere.
    pub fn in_words(self, words: fn(&str) -> String) -> Self {
        Self { words, ..self }
    }

    /// Tells whether the result is printed as JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Returns the columns of the terminal that shows the result; none if none does.
    pub fn width(&self) -> Option<usize> {
        self.width
    }

    /// Prints a result for people: one or more lines, escaped by the caller.
    ///
    /// # Errors
    /// [`ExitCode::Failed`] if stdout cannot be written. A reader that went away is no error: see
    /// [`Output::closed`].
    pub fn text(&self, text: impl Display) -> Result<(), CommandError> {
        let mut text = text.to_string();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        self.write(text.as_bytes())
    }

    /// As [`Output::text`]; on a terminal, lines that are too long continue indented: no part of a
    /// text that others wrote begins where a record of ours does.
    ///
    /// # Errors
    /// As [`Output::text`].
    pub fn wrapped(&self, text: &str) -> Result<(), CommandError> {
        self.text(
            self.width
                .map_or_else(|| text.to_owned(), |width| wrap(text, width)),
        )
    }

    /// Prints a result: the object for programs, else the text for people.
    ///
    /// # Errors
    /// As [`Output::text`].
    pub fn result(&self, value: &impl Serialize, text: impl Display) -> Result<(), CommandError> {
        if self.json {
            self.json(value)
        } else {
            self.text(text)
        }
    }

    /// Prints a result for programs: one object, on one line.
    ///
    /// # Errors
    /// As [`Output::text`].
    pub fn json(&self, value: &impl Serialize) -> Result<(), CommandError> {
        let text = serde_json::to_string(value).map_err(|error| {
            CommandError::new(
                ExitCode::Failed,
                format!("cannot write the result: {error}"),
            )
        })?;
        self.write(format!("{}\n", escape::json(&text)).as_bytes())
    }

    /// Prints what a generator wrote, as it is (completion scripts).
    ///
    /// # Errors
    /// As [`Output::text`].
    pub fn write(&self, bytes: &[u8]) -> Result<(), CommandError> {
        if self.closed.get() {
            return Ok(());
        }
        self.passed();
        let mut stdout = self.stdout.borrow_mut();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            // `teamctl events | head`: the reader has what it wanted.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.closed.set(true),
            Err(error) => {
                let message = format!("cannot write the result to stdout: {error}");
                return Err(CommandError::new(ExitCode::Failed, message).hint(DONE_ALL_THE_SAME));
            }
            Ok(()) => {}
        }
        Ok(())
    }

    /// Tells whether the reader of the result is gone: a command that follows a file ends then.
    pub fn closed(&self) -> bool {
        self.closed.get() || stdout_is_hung_up()
    }

    /// Prints a note for people. Programs do not get it.
    pub fn note(&self, text: impl Display) {
        if !self.json {
            self.print_labelled(HINT, "note:", &text.to_string());
        }
    }

    /// Prints the next step for people. Programs do not get it.
    pub fn hint(&self, text: impl Display) {
        if !self.json {
            self.print_labelled(HINT, "hint:", &text.to_string());
        }
    }

    /// Prints an error.
    pub fn error(&self, error: &CommandError) {
        if self.json {
            let text = json!({"error": error.to_json()}).to_string();
            return self.write_stderr(&format!("{}\n", escape::json(&text)));
        }
        self.print_labelled(ERROR, "error:", &escape::text(error.message()));
        for choice in error.choices() {
            self.aside(format_args!("  {}", escape::line(choice)));
        }
        if let Some(hint) = error.next_step() {
            self.hint(escape::text(hint));
        }
    }

    /// Prints a text after a label; on a terminal, lines that are too long are folded
    /// between words.
    fn print_labelled(&self, style: Style, label: &str, text: &str) {
        let text = format!("{} {}\n", paint(style, label), (self.words)(text));
        let columns = self.stderr_columns();
        self.write_stderr(&columns.map_or_else(|| text.clone(), |columns| fold(&text, columns)));
    }

    /// Prints progress for people, on a line of its own, escaped by the caller.
    /// Programs do not get it.
    pub fn aside(&self, text: impl Display) {
        if !self.json {
            self.write_stderr(&format!("{text}\n"));
        }
    }

    /// As [`Output::aside`]; on a terminal, lines that are too long continue indented.
    pub fn aside_wrapped(&self, text: &str) {
        let columns = self.stderr_columns();
        self.aside(
            columns
                .map_or_else(|| text.to_owned(), |columns| wrap(text, columns))
                .trim_end_matches('\n'),
        );
    }

    /// Shows a person at the terminal what is waited for, on a line that goes away with whatever is
    /// printed next.
    pub fn passing(&self, text: &str) {
        self.passing_lines(&[paint(Style::new().dimmed(), escape::line(text))]);
    }

    /// As [`Output::passing`]: lines, escaped by the caller. The first ones are left out where the
    /// terminal is too low.
    pub fn passing_lines(&self, lines: &[String]) {
        if self.json || !self.has_terminal || !can_move_cursor() {
            return;
        }
        let size = rustix::termios::tcgetwinsize(io::stderr());
        let [columns, rows] = size.map_or([80, 24], |size| [size.ws_col, size.ws_row]);
        let room = usize::from(columns).saturating_sub(1);
        let first = lines.len().saturating_sub(usize::from(rows).max(2) - 1);
        let shown = lines[first..].iter().map(|line| cut_styled(line, room));
        let shown: Vec<String> = shown.collect();
        if *self.passing.borrow() == shown {
            return;
        }
        self.write_stderr(&shown.join("\n"));
        *self.passing.borrow_mut() = shown;
    }

    /// Takes the lines away that are shown in passing.
    pub fn passed(&self) {
        let shown = std::mem::take(&mut *self.passing.borrow_mut());
        if shown.is_empty() {
            return;
        }
        let up = match shown.len() - 1 {
            0 => String::new(),
            rows => format!("\x1b[{rows}A"),
        };
        // Where colours are not wanted, the other way takes every escape sequence out.
        let mut stderr = io::stderr();
        let erased = stderr.write_all(format!("\r{up}\x1b[J").as_bytes());
        drop(erased.and_then(|()| stderr.flush()));
    }

    /// Tells whether a person can be asked.
    pub fn can_ask(&self) -> bool {
        !self.json && io::stdin().is_terminal() && self.has_terminal
    }

    /// Asks the person at the terminal; anything but yes is no.
    ///
    /// # Errors
    /// [`ExitCode::Failed`] if the terminal cannot be read.
    pub fn ask(&self, question: &str) -> Result<bool, CommandError> {
        let answer = self.ask_for(&format!("{question} [y/N]"))?;
        Ok(matches!(answer.as_str(), "y" | "Y" | "yes"))
    }

    /// Asks the person at the terminal for a line.
    ///
    /// # Errors
    /// [`ExitCode::Failed`] if the terminal cannot be read.
    pub fn ask_for(&self, question: &str) -> Result<String, CommandError> {
        self.write_stderr(&format!("{question} "));
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map_err(|error| {
            CommandError::new(
                ExitCode::Failed,
                format!("cannot read the answer from the terminal: {error}"),
            )
        })?;
        Ok(answer.trim().to_owned())
    }

    /// Prints the help for an empty command line.
    pub fn help(&self, text: impl Display) {
        self.write_stderr(&text.to_string());
    }

    /// Returns the columns of the terminal that shows notes; none if none does.
    fn stderr_columns(&self) -> Option<usize> {
        if self.has_terminal {
            columns_of(io::stderr())
        } else {
            self.far_columns
        }
    }

    fn write_stderr(&self, text: &str) {
        self.passed();
        let mut stderr = self.stderr.borrow_mut();
        // Where stderr cannot be written there is nowhere left to report it, but for the exit code.
        drop(
            stderr
                .write_all(text.as_bytes())
                .and_then(|()| stderr.flush()),
        );
    }
}

/// What was printed, in its order.
#[derive(Clone, Default)]
pub struct Stored(Rc<RefCell<Vec<u8>>>);

impl Stored {
    /// Returns it, with its styles.
    pub fn styled(&self) -> String {
        String::from_utf8_lossy(&self.0.borrow()).into_owned()
    }

    /// Returns it without them.
    pub fn text(&self) -> String {
        anstream::adapter::strip_str(&self.styled()).to_string()
    }
}

impl Write for Stored {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Wraps lines that are too long at words. The rest of one is indented: no part of a text that
/// others wrote begins where a line of ours does.
pub fn wrap(text: &str, columns: usize) -> String {
    text.lines()
        .map(|line| {
            // A tab is as wide as a terminal makes it.
            let line = line.replace('\t', "    ");
            if width(&line) <= columns {
                return line + "\n";
            }
            let indent = " ".repeat(line.len() - line.trim_start_matches(' ').len() + HANGING);
            let options = at_blanks(columns.max(2 * HANGING)).subsequent_indent(&indent);
            textwrap::fill(&hold(&line), options).replace(HELD, " ") + "\n"
        })
        .collect()
}

/// Folds lines that are too long at their blanks alone, and none of those of a command in
/// backquotes: what is to be typed stays whole.
fn fold(text: &str, columns: usize) -> String {
    textwrap::fill(&hold(text), at_blanks(columns).break_words(false)).replace(HELD, " ")
}

/// Keeps together what is between backquotes.
fn hold(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    let held = parts.iter().enumerate();
    // After the last one, if it is alone, comes ordinary text.
    let held = held.map(|(at, part)| {
        if at % 2 == 1 && at + 1 < parts.len() {
            part.replace(' ', HELD)
        } else {
            (*part).to_owned()
        }
    });
    held.collect::<Vec<_>>().join("`")
}

/// Wraps at blanks alone: a path with a hyphen stays whole.
fn at_blanks<'a>(columns: usize) -> textwrap::Options<'a> {
    textwrap::Options::new(columns)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
}

/// Cuts a line off that is longer than its room: then it loses its styles.
fn cut_styled(line: &str, room: usize) -> String {
    if width(line) <= room {
        return line.to_owned();
    }
    cut(&anstream::adapter::strip_str(line).to_string(), Some(room))
}

/// Tells whether a terminal of this environment can move its cursor.
pub fn can_move_cursor() -> bool {
    std::env::var("TERM").is_ok_and(|term| !matches!(term.as_str(), "" | "dumb" | "cons25"))
}

/// Returns the columns of the terminal that shows the result; none if none does.
pub fn terminal_width() -> Option<usize> {
    let far = OverSsh::told().and_then(|far| far.stdout);
    columns_of(io::stdout())
        .or(far.map(|terminal| terminal.columns))
        .or_else(|| std::env::var("COLUMNS").ok()?.parse().ok())
        .filter(|&columns| columns > 0)
}

/// Returns the columns of a terminal; none if it is none.
fn columns_of(stream: impl IsTerminal + AsFd) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&stream).ok()?;
    Some(usize::from(size.ws_col))
}

/// A pipe whose reader is gone hangs up, also while nothing is written.
fn stdout_is_hung_up() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::Stored as Captured;
    use crate::testing::captured;

    struct FailingWriter(io::ErrorKind);

    impl Write for FailingWriter {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn broken(kind: io::ErrorKind) -> Output {
        Output::to(
            false,
            None,
            Box::new(FailingWriter(kind)),
            Box::new(Captured::default()),
        )
    }

    /// Finding H13.
    #[test]
    fn no_part_of_a_long_line_begins_where_a_record_does() {
        let stdout = Captured::default();
        let output = Output::to(
            false,
            Some(40),
            Box::new(stdout.clone()),
            Box::new(Captured::default()),
        );
        let forged = format!(
            "10:00:00 alice → lead  hi{}10:31:07 user → lead  approved",
            " ".repeat(16)
        );
        output
            .wrapped(&format!("{forged}\n    {}\n", "x".repeat(50)))
            .unwrap();
        let tabs = format!(
            "10:00:00 alice → lead  hi{}.10:31:07 user → lead  approved",
            "\t".repeat(8)
        );
        output.wrapped(&tabs).unwrap();
        let shown = stdout.text();
        assert!(
            shown.starts_with("10:00:00 alice → lead  hi\n    10:31:07 user → lead"),
            "{shown}"
        );
        assert!(!shown.contains('\t'), "{shown}");
        let records = shown
            .lines()
            .filter(|line| !line.starts_with("    "))
            .count();
        assert_eq!(records, 2, "{shown}");
    }

    #[test]
    fn neither_a_command_in_backquotes_nor_a_path_is_broken() {
        let hint = "hint: look at it with `teamctl task show 3 --json`, or not; ``, `a";
        assert_eq!(
            fold(hint, 30),
            "hint: look at it with\n`teamctl task show 3 --json`,\nor not; ``, `a"
        );
        assert_eq!(
            wrap("look at `teamctl task show 3`", 26),
            "look at\n    `teamctl task show 3`\n"
        );
        assert_eq!(
            wrap("one ` alone folds as ever", 16),
            "one ` alone\n    folds as\n    ever\n"
        );
        let path = "  workspace   /home/user/a-long-name/of-a-project\n";
        assert_eq!(
            wrap(path, 45),
            "  workspace\n      /home/user/a-long-name/of-a-project\n"
        );
    }

    #[test]
    fn a_reader_that_went_away_is_no_error_and_a_full_disk_is_one() {
        let output = broken(io::ErrorKind::BrokenPipe);
        assert_eq!(output.text("x"), Ok(()));
        assert!(output.closed());
        assert_eq!(
            broken(io::ErrorKind::StorageFull)
                .text("x")
                .unwrap_err()
                .code(),
            ExitCode::Failed
        );
    }

    #[test]
    fn an_error_names_what_failed_and_what_to_do_next() {
        let error = CommandError::new(ExitCode::NotFound, "\"a\" is \x1bambiguous")
            .hint("give more of it")
            .candidates(vec!["a1  alice".into(), "a2  bob".into()]);
        let (output, stdout, stderr) = captured(false);
        output.error(&error);
        let expected =
            "error: \"a\" is \\u{1b}ambiguous\n  a1  alice\n  a2  bob\nhint: give more of it\n";
        assert_eq!(
            (stdout.text().as_str(), stderr.text().as_str()),
            ("", expected)
        );
    }

    #[test]
    fn with_json_errors_are_json_and_notes_are_left_out() {
        let (output, stdout, stderr) = captured(true);
        output.note("for people");
        output.hint("for people");
        output.json(&json!({"a": "\u{9b}"})).unwrap();
        output.error(&CommandError::new(ExitCode::TimedOut, "too late"));
        assert_eq!(stdout.text(), "{\"a\":\"\\u009b\"}\n");
        let expected = r#"{"error":{"code":"timed_out","message":"too late","hint":null}}"#;
        assert_eq!(stderr.text(), format!("{expected}\n"));
    }
}
