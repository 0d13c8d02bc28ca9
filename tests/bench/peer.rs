//! The processes that stand for a limit, and the writers: this program, started again with a hidden
//! argument.

use std::io::{BufRead, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::inotify;

use crate::writers;

/// The hidden argument.
pub(crate) const FLAG: &str = "--peer";

/// Runs as a peer.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if args != ["exit"] {
        // The measuring program may be ended by Ctrl-C.
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).unwrap();
    }
    match args[..] {
        ["exit"] => {}
        ["tokio"] => wait_in_tokio(),
        ["watch", path] => watch(Path::new(path)),
        ["write", how, path, who, count] => {
            writers::write(
                how,
                Path::new(path),
                who.parse().unwrap(),
                count.parse().unwrap(),
            );
        }
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}

/// Returns how long after 1970 it is, by the clock that every process of this machine reads.
pub(crate) fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// An event loop as the worker's, and nothing in it.
fn wait_in_tokio() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    say("ready");
    runtime.block_on(std::future::pending())
}

/// Reads what is appended to a file as soon as inotify tells, and says when that was.
fn watch(path: &Path) {
    let mut bytes = vec![0; 1 << 16];
    let file = std::fs::File::open(path).unwrap();
    let mut end = file.metadata().unwrap().len();
    let events = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&events, path, inotify::WatchFlags::MODIFY).unwrap();
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(events, &mut buffer);
    say("ready");
    loop {
        events.next().unwrap();
        let read = file.read_at(&mut bytes, end).unwrap();
        if read > 0 {
            say_when();
            end += read as u64;
        }
    }
}

/// Says what time it is.
pub(crate) fn say_when() {
    say(&wall_clock().as_nanos().to_string());
}

fn say(line: &str) {
    let mut stdout = std::io::stdout();
    stdout
        .write_all(format!("{line}\n").as_bytes())
        .and_then(|()| stdout.flush())
        .unwrap();
}

/// Waits for the line of the measuring program.
pub(crate) fn wait_for_go() {
    say("ready");
    std::io::stdin().read_exact(&mut [0]).unwrap();
}

/// A running peer. It ends with this.
pub(crate) struct Peer {
    child: Child,
    stdin: ChildStdin,
    stdout: std::io::BufReader<ChildStdout>,
}

impl Peer {
    /// Starts a peer, and waits until it is ready.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .arg(FLAG)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut peer = Self {
            child,
            stdin,
            stdout,
        };
        assert_eq!(peer.hear(), "ready");
        peer
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Gives the signal to begin.
    pub(crate) fn go(&mut self) {
        self.stdin.write_all(b"!").unwrap();
    }

    /// Waits for the next line that it says.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Waits until it has ended by itself, without an error.
    pub(crate) fn finish(mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
