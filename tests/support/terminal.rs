//! A pseudo-terminal in which a program runs, as a person would use it.

use std::fs::File;
use std::io::Write;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use nix::pty::{Winsize, openpty};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::{Team, poll_until, read_piece};

/// Columns and rows, where a test does not care.
const USUAL: (u16, u16) = (100, 40);
/// How many rows above the screen can be looked at.
const SCROLLBACK: usize = 1000;

/// A program at a terminal.
pub(crate) struct Terminal {
    child: Child,
    keys: File,
    shown: Arc<Mutex<String>>,
    screen: Arc<Mutex<vt100::Parser>>,
}

/// Begins and ends a frame (a synchronised update): a terminal shows it whole or not at all.
const FRAME: [&[u8]; 2] = [b"\x1b[?2026h", b"\x1b[?2026l"];

/// What a program has written and a terminal does not show yet: a frame in progress.
#[derive(Default)]
struct Frames {
    held: Vec<u8>,
}

impl Frames {
    /// Adds bytes. Returns those that are shown now.
    fn add(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let [begin, end] = FRAME.map(|mark| rfind(&self.held, mark));
        let shown = match begin {
            Some(begin) if end.is_none_or(|end| end < begin) => begin,
            _ => self.held.len() - begun_mark(&self.held),
        };
        self.held.drain(..shown).collect()
    }
}

fn rfind(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).rposition(|it| it == wanted)
}

/// The length of the part of a mark with which the bytes end.
fn begun_mark(bytes: &[u8]) -> usize {
    let mark = FRAME[0];
    let lengths = 1..mark.len();
    let begun = lengths.filter(|&length| bytes.ends_with(&mark[..length]));
    begun.max().unwrap_or(0)
}

impl Terminal {
    /// Starts `teamctl` at a terminal of its own.
    pub(crate) fn teamctl(team: &Team, args: &[&str]) -> Self {
        Self::start(team, env!("CARGO_BIN_EXE_teamctl"), args, USUAL)
    }

    /// Starts `teamctl` at a terminal of so many columns and rows.
    pub(crate) fn teamctl_at(team: &Team, args: &[&str], size: (u16, u16)) -> Self {
        Self::start(team, env!("CARGO_BIN_EXE_teamctl"), args, size)
    }

    /// Starts `teamd` at a terminal of its own.
    pub(crate) fn teamd(team: &Team, args: &[&str]) -> Self {
        Self::start(team, env!("CARGO_BIN_EXE_teamd"), args, USUAL)
    }

    /// Starts `teamctl` at a terminal that is gone as soon as the first frame is shown, without a
    /// signal, and returns the exit code with which it ends.
    pub(crate) fn lost(team: &Team, args: &[&str]) -> Option<i32> {
        // No other process has its end: `openpty` leaves that to each program that is started.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options()
            .read(true)
            .write(true)
            .custom_flags(nix::libc::O_NOCTTY)
            .open(slave.to_str().unwrap())
            .unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut command = team.command(env!("CARGO_BIN_EXE_teamctl"), args);
        command
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end());
        let mut child = command.process_group(0).spawn().unwrap();
        drop((command, slave));
        let mut shown = File::from(master);
        let mut first = Vec::new();
        while rfind(&first, FRAME[1]).is_none() {
            let mut piece = [0; 4096];
            let length = read_piece(&mut shown, &mut piece).unwrap();
            assert!(length > 0, "it ended before a frame was shown");
            first.extend_from_slice(&piece[..length]);
        }
        drop(shown);
        let has_ended = poll_until(&mut || child.try_wait().unwrap().is_some());
        if !has_ended {
            child.kill().unwrap();
        }
        assert!(has_ended, "it goes on without a terminal");
        child.wait().unwrap().code()
    }

    fn start(team: &Team, program: &str, args: &[&str], (columns, rows): (u16, u16)) -> Self {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let ends = openpty(&size, None).unwrap();
        let end = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
        let mut command: Command = team.command(program, args);
        command
            .env("TERM", "xterm")
            .stdin(end(&ends.slave))
            .stdout(end(&ends.slave))
            .stderr(end(&ends.slave));
        let child = command.process_group(0).spawn().unwrap();
        drop((command, ends.slave));
        let keys = File::from(ends.master);
        let shown = Arc::new(Mutex::new(String::new()));
        let screen = Arc::new(Mutex::new(vt100::Parser::new(
            NonZero::new(rows).unwrap(),
            NonZero::new(columns).unwrap(),
            SCROLLBACK,
        )));
        let mut reads = keys.try_clone().unwrap();
        let all = Arc::clone(&shown);
        let drawn = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            let mut frames = Frames::default();
            while let Ok(length @ 1..) = read_piece(&mut reads, &mut piece) {
                let whole = frames.add(&piece[..length]);
                drawn.lock().unwrap().process(&whole);
                all.lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&piece[..length]));
            }
        });
        Self {
            child,
            keys,
            shown,
            screen,
        }
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Types a line.
    pub(crate) fn line(&mut self, line: &str) {
        self.press(&format!("{line}\r"));
    }

    /// All that was ever shown, with what moves the cursor.
    pub(crate) fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    /// Waits until a text is shown that was not shown before `since`.
    pub(crate) fn until_after(&self, since: usize, text: &str) {
        let found = poll_until(&mut || {
            let shown = self.shown();
            let new = &shown[since..];
            // A line that was drawn in two pieces reads as one.
            new.contains(text) || plain(new).contains(text)
        });
        assert!(found, "waited in vain for {text:?} in {:?}", self.shown());
    }

    /// Waits until a text is shown.
    pub(crate) fn until(&self, text: &str) {
        self.until_after(0, text);
    }

    /// What is on the screen: its rows, without blanks at their ends.
    pub(crate) fn screen(&self) -> String {
        let contents = self.screen.lock().unwrap().screen().contents();
        contents
            .lines()
            .map(|row| row.trim_end().to_owned() + "\n")
            .collect::<String>()
            .trim_end()
            .to_owned()
    }

    /// The rows above the screen, and those on it.
    pub(crate) fn scrolled(&self) -> String {
        let mut parser = self.screen.lock().unwrap();
        parser.screen_mut().set_scrollback(SCROLLBACK);
        let above = parser.screen().scrollback();
        let (_, columns) = parser.screen().size();
        let mut rows = Vec::new();
        for back in (1..=above).rev() {
            parser.screen_mut().set_scrollback(back);
            rows.extend(parser.screen().rows(0, columns.into()).next());
        }
        parser.screen_mut().set_scrollback(0);
        rows.extend(parser.screen().rows(0, columns.into()));
        rows.iter()
            .map(|row| row.trim_end().to_owned() + "\n")
            .collect::<String>()
            .trim_end()
            .to_owned()
    }

    /// The rows of the screen that go on in the next one.
    pub(crate) fn wrapped_rows(&self) -> usize {
        let parser = self.screen.lock().unwrap();
        let (rows, _) = parser.screen().size();
        (0..rows.get())
            .filter(|&row| parser.screen().row_wrapped(row))
            .count()
    }

    /// Waits until the screen is as it should be.
    pub(crate) fn until_screen(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let found = poll_until(&mut || is_so(&self.screen()));
        assert!(
            found,
            "waited in vain for {what}; on the screen:\n{}",
            self.screen()
        );
    }

    /// Sends the program a signal.
    pub(crate) fn signal(&self, which: nix::sys::signal::Signal) {
        super::signal(self.pid(), which);
    }

    /// The process id of the program.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Waits until a text on the screen is bold or not, and has this colour of the sixteen: a frame
    /// arrives in pieces.
    pub(crate) fn until_styled(&self, text: &str, bold: bool, colour: Option<u8>) {
        let found = poll_until(&mut || self.is_styled(text, bold, colour));
        assert!(
            found,
            "{text:?} is not styled as it should be; on the screen:\n{}",
            self.screen()
        );
    }

    fn is_styled(&self, text: &str, bold: bool, colour: Option<u8>) -> bool {
        let parser = self.screen.lock().unwrap();
        let (_, columns) = parser.screen().size();
        let found = parser
            .screen()
            .rows(0, columns.into())
            .enumerate()
            .find_map(|(row, line)| {
                let at = line.find(text)?;
                Some((
                    u16::try_from(row).unwrap(),
                    u16::try_from(line[..at].chars().count()).unwrap(),
                ))
            });
        let Some((row, column)) = found else {
            return false;
        };
        let cell = parser.screen().cell(row, column).unwrap();
        cell.bold() == bold
            && colour.is_none_or(|colour| cell.fgcolor() == vt100::Color::Idx(colour))
    }

    /// Gives the terminal another size, of columns and rows.
    pub(crate) fn resize(&self, (columns, rows): (u16, u16)) {
        let size = rustix::termios::Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let rows = NonZero::new(rows).unwrap();
        let columns = NonZero::new(columns).unwrap();
        self.screen
            .lock()
            .unwrap()
            .screen_mut()
            .set_size(rows, columns);
        rustix::termios::tcsetwinsize(&self.keys, size).unwrap();
        // As the kernel does: to all programs in the foreground.
        let group = nix::unistd::Pid::from_raw(self.pid());
        nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGWINCH).unwrap();
    }

    /// Whether the terminal echoes keys and waits for whole lines, as it did before.
    pub(crate) fn is_as_before(&self) -> bool {
        use nix::sys::termios::{LocalFlags, tcgetattr};
        tcgetattr(&self.keys)
            .unwrap()
            .local_flags
            .contains(LocalFlags::ECHO | LocalFlags::ICANON)
    }

    /// Waits until the program ends, and returns its exit code.
    pub(crate) fn finish(mut self) -> Option<i32> {
        let code = self.ended();
        assert!(self.is_as_before(), "the terminal was not set back");
        code
    }

    /// As [`Terminal::finish`], for a program that cannot set the terminal back.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let ended = poll_until(&mut || self.child.try_wait().unwrap().is_some());
        assert!(ended, "it did not end: {:?}", self.shown());
        self.child.wait().unwrap().code()
    }
}

/// Leaves out what moves the cursor or colours.
fn plain(shown: &str) -> String {
    let mut text = String::new();
    let mut rest = shown;
    while let Some((before, sequence)) = rest.split_once("\u{1b}[") {
        text.push_str(before);
        let end = sequence
            .find(|c: char| ('@'..='~').contains(&c))
            .map_or(sequence.len(), |at| at + 1);
        rest = &sequence[end..];
    }
    text.push_str(rest);
    text.replace("\r\n", "\n").replace('\r', "")
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A test that failed leaves no process behind.
        drop(self.child.kill());
    }
}
