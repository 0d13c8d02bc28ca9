//! What a `teamctl` that `teamctl -H` of another machine has started knows of the terminal there: it
//! has pipes instead. And its end: nothing signals a program when the connection is lost that it
//! writes to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::tcgetwinsize;
use teamd_shared::environment::OVER_SSH;

/// What is known of the other end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OverSsh {
    /// The version of `teamctl` there.
    pub version: String,
    /// The terminal that shows stdout, if one does.
    pub stdout: Option<FarTerminal>,
    /// The terminal that shows stderr, if one does.
    pub stderr: Option<FarTerminal>,
    /// Whether this program has pipes, and ends with them. At a terminal it gets SIGHUP.
    pub has_pipes: bool,
    /// Whether stdin is open for as long as the other end waits, and nothing comes by it.
    pub has_lifeline: bool,
}

/// A terminal at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FarTerminal {
    /// How many columns it has.
    pub columns: usize,
    /// Whether colours are wanted.
    pub has_colours: bool,
}

impl OverSsh {
    /// Returns what this process was told; none if it was not started so.
    pub fn told() -> Option<&'static Self> {
        static TOLD: OnceLock<Option<OverSsh>> = OnceLock::new();
        let told = TOLD.get_or_init(|| Some(Self::read(&std::env::var(OVER_SSH).ok()?)));
        told.as_ref()
    }

    /// Returns what is to be told of the terminal of this process.
    pub fn of_here(version: &str, has_pipes: bool, has_lifeline: bool) -> Self {
        Self {
            version: version.to_owned(),
            stdout: terminal_of(&io::stdout()).filter(|_| has_pipes),
            stderr: terminal_of(&io::stderr()).filter(|_| has_pipes),
            has_pipes,
            has_lifeline,
        }
    }

    /// Writes the value of the variable.
    pub fn write(&self) -> String {
        let mut text = format!("version={}", self.version);
        for (name, terminal) in [("stdout", self.stdout), ("stderr", self.stderr)] {
            let Some(terminal) = terminal else {
                continue;
            };
            let colours = if terminal.has_colours { "c" } else { "" };
            text.push_str(&format!(",{name}={}{colours}", terminal.columns));
        }
        if self.has_pipes {
            text.push_str(",pipes");
        }
        if self.has_lifeline {
            text.push_str(",lifeline");
        }
        text
    }

    /// Reads the value of the variable. What another version adds says nothing to this one.
    fn read(text: &str) -> Self {
        let mut told = Self::default();
        for part in text.split(',') {
            match part.split_once('=').unwrap_or((part, "")) {
                ("version", version) => version.clone_into(&mut told.version),
                ("stdout", terminal) => told.stdout = FarTerminal::read(terminal),
                ("stderr", terminal) => told.stderr = FarTerminal::read(terminal),
                ("pipes", _) => told.has_pipes = true,
                ("lifeline", _) => told.has_lifeline = true,
                _ => {}
            }
        }
        told
    }

    /// Has this process get SIGHUP when both stdout and stderr are hung up, as a program at a
    /// terminal does: then the connection is gone. Where only one of them is, its reader has what it
    /// wanted. A connection that `ssh` shares goes on: then stdin is closed, and stderr is not.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn end_with_connection(&self) -> io::Result<()> {
        if self.has_pipes {
            hang_up_after(|| {
                until_hung_up(io::stdout().as_fd());
                until_hung_up(io::stderr().as_fd());
            })?;
        }
        if self.has_lifeline {
            hang_up_after(|| until_hung_up(io::stdin().as_fd()))?;
        }
        Ok(())
    }
}

impl FarTerminal {
    fn read(text: &str) -> Option<Self> {
        let columns = text.strip_suffix('c');
        Some(Self {
            columns: columns.unwrap_or(text).parse().ok().filter(|it| *it > 0)?,
            has_colours: columns.is_some(),
        })
    }
}

/// Tells how a stream is to be coloured of which the other end is a terminal, or not.
pub(crate) fn colours(far: Option<FarTerminal>) -> ColorChoice {
    if far.is_some_and(|terminal| terminal.has_colours) {
        ColorChoice::Always
    } else {
        ColorChoice::Auto
    }
}

fn terminal_of(stream: &(impl RawStream + AsFd)) -> Option<FarTerminal> {
    if !stream.is_terminal() {
        return None;
    }
    let columns = tcgetwinsize(stream).map_or(0, |size| usize::from(size.ws_col));
    Some(FarTerminal {
        columns: if columns == 0 { 80 } else { columns },
        has_colours: AutoStream::choice(stream) != ColorChoice::Never,
    })
}

fn hang_up_after(wait: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let watching = std::thread::Builder::new().name("connection".to_owned());
    watching.spawn(|| {
        wait();
        // A process may always signal itself.
        kill_process(getpid(), Signal::HUP).ok();
    })?;
    Ok(())
}

/// Waits until the other end of a pipe is gone. A file never is.
pub fn until_hung_up(stream: BorrowedFd<'_>) {
    // A hang-up and an error are always reported.
    let mut watched = [PollFd::new(&stream, PollFlags::empty())];
    while poll(&mut watched, None) == Err(Errno::INTR) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_and_what_is_not_known_is_left() {
        let wide = Some(FarTerminal {
            columns: 120,
            has_colours: true,
        });
        let plain = Some(FarTerminal {
            columns: 80,
            has_colours: false,
        });
        for stdout in [None, wide, plain] {
            for has_pipes in [false, true] {
                let told = OverSsh {
                    version: "1.2.3".to_owned(),
                    stdout,
                    stderr: plain,
                    has_pipes,
                    has_lifeline: !has_pipes,
                };
                assert_eq!(OverSsh::read(&told.write()), told);
            }
        }
        for text in ["", "later=1,stdout=,stderr=0c,x", "stdout=-1,stderr=c"] {
            assert_eq!(OverSsh::read(text), OverSsh::default(), "{text}");
        }
    }
}
