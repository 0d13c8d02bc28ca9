//! A program that a test runs: started, waited for, and what came of it.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{PATIENCE, signal};

/// A program that runs.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    /// Starts a command in a process group of its own.
    pub(crate) fn start(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        Self {
            child: command.spawn().unwrap(),
        }
    }

    pub(super) fn feed(&mut self, stdin: &str) {
        let mut pipe = self.child.stdin.take().unwrap();
        let text = stdin.to_owned();
        std::thread::spawn(move || drop(pipe.write_all(text.as_bytes())));
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn stdin(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().unwrap()
    }

    pub(crate) fn stdout(&mut self) -> std::process::ChildStdout {
        self.child.stdout.take().unwrap()
    }

    /// Waits until it ends; kills it, and fails, if it does not.
    pub(crate) fn finish(self) -> Run {
        let (run, ended) = self.ended_within(PATIENCE);
        assert!(ended, "it did not end: {run:?}");
        run
    }

    /// Waits until it ends; kills it if it does not in this time, and tells which.
    pub(crate) fn ended_within(mut self, patience: Duration) -> (Run, bool) {
        drop(self.child.stdin.take());
        let stdout = self.child.stdout.take().map(read_all);
        let stderr = self.child.stderr.take().map(read_all);
        let ended = poll_for(patience, &mut || self.child.try_wait().unwrap().is_some());
        if !ended {
            self.child.kill().unwrap();
        }
        let status = self.child.wait().unwrap();
        let text = |reader: Option<std::thread::JoinHandle<String>>| {
            reader.map(|r| r.join().unwrap()).unwrap_or_default()
        };
        (
            Run {
                code: status.code(),
                stdout: text(stdout),
                stderr: text(stderr),
            },
            ended,
        )
    }
}

fn read_all(mut pipe: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Reads a piece. A process that was held (by a debugger, by its cgroup) reads on.
pub(crate) fn read_piece(
    from: &mut impl std::io::Read,
    piece: &mut [u8],
) -> std::io::Result<usize> {
    loop {
        match from.read(piece) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// How a program ended, and what it said.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// Whether it ended with 0.
    pub(crate) fn is_done(&self) -> bool {
        self.code == Some(0)
    }

    /// It must have ended with 0.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        self.exits(0)
    }

    /// It must have ended with this code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// It must have failed, with whatever code.
    #[track_caller]
    pub(crate) fn run_failed(self) -> Self {
        assert!(self.code.is_some_and(|code| code != 0), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// Waits until a condition holds, or [`PATIENCE`] is over.
pub(crate) fn poll_until(holds: &mut dyn FnMut() -> bool) -> bool {
    poll_for(PATIENCE, holds)
}

/// Waits until a condition holds, or this time is over.
pub(crate) fn poll_for(patience: Duration, holds: &mut dyn FnMut() -> bool) -> bool {
    let began = Instant::now();
    let mut pause = Duration::from_millis(1);
    while !holds() {
        if began.elapsed() > patience {
            return false;
        }
        std::thread::park_timeout(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    true
}
