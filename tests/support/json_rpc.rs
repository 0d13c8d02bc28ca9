//! A client that starts a server and speaks JSON-RPC on its pipes, a frame a line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{poll_until, signal};

/// A client, and the server that it has started.
pub(crate) struct JsonRpcClient {
    server: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    last_id: u64,
}

impl JsonRpcClient {
    /// Starts the server.
    pub(crate) fn run(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut server = command.spawn().unwrap();
        Self {
            stdin: server.stdin.take(),
            stdout: BufReader::new(server.stdout.take().unwrap()),
            server,
            last_id: 0,
        }
    }

    /// Writes a frame.
    pub(crate) fn write(&mut self, frame: &Value) {
        self.write_line(&frame.to_string());
    }

    /// Writes a line, whatever it is.
    pub(crate) fn write_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
    }

    /// Sends a request, and returns its id.
    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Returns the next frame of the server; none if it has ended.
    pub(crate) fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let length = self.stdout.read_line(&mut line).unwrap();
        let frame =
            || serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        (length > 0).then(frame)
    }

    /// Waits for the answer to a request; passes over others.
    #[track_caller]
    pub(crate) fn answer_to(&mut self, id: u64) -> Value {
        loop {
            let frame = self.next();
            let frame = frame.unwrap_or_else(|| panic!("the server has ended"));
            if frame["id"] == id && frame["method"].is_null() {
                return frame;
            }
        }
    }

    /// The process of the server.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.server.id()).unwrap()
    }

    /// Kills the server.
    pub(crate) fn kill(mut self) {
        signal(self.pid(), Signal::SIGKILL);
        self.server.wait().unwrap();
    }

    /// Closes its end, and waits until the server has ended.
    #[track_caller]
    pub(crate) fn close(mut self) {
        drop(self.stdin.take());
        let has_ended = poll_until(&mut || self.server.try_wait().unwrap().is_some());
        assert!(has_ended, "the server goes on without a client");
        assert!(self.server.wait().unwrap().success());
    }
}
