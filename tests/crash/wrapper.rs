//! The program that stands in the place of a victim until the tracer holds it: then it becomes the
//! victim.
//!
//! It is this test binary again, under another name: the process id stays the same, which a
//! worker's must.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The name under which this binary is the wrapper of workers.
pub(crate) const WORKER: &str = "traced-worker";
/// The name under which this binary is the wrapper of `teamd` at the host.
pub(crate) const FAR: &str = "teamd";
/// The variable that names the tracer's socket there.
pub(crate) const FAR_SOCKET: &str = "FAR_SOCKET";
/// The first argument that makes it the wrapper of another program.
pub(crate) const PROGRAM: &str = "--be-traced";
/// The first argument that lets it wait until its standard input ends.
pub(crate) const WAIT: &str = "--wait";
/// The socket beside the wrapper, at which the tracer waits.
pub(crate) const SOCKET: &str = "tracer";
/// The teammate whose worker can be a victim.
pub(crate) const NAME: &str = "alice";

/// Runs as a wrapper, if that is what this process was started as.
pub(crate) fn run() -> Option<ExitCode> {
    let mut args = std::env::args();
    let itself = args.next()?;
    let args: Vec<String> = args.collect();
    if Path::new(&itself).file_name()? == WORKER {
        let named = args.windows(2).any(|pair| pair == ["--name", NAME]);
        if args.first().is_some_and(|first| first == "run") && named {
            let folder = Path::new(&itself).parent()?;
            wait_for_the_tracer(&folder.join(SOCKET));
        }
        return Some(become_program(env!("CARGO_BIN_EXE_team-worker"), &args));
    }
    if Path::new(&itself).file_name()? == FAR {
        if let Some(socket) = std::env::var_os(FAR_SOCKET) {
            wait_for_the_tracer(Path::new(&socket));
        }
        return Some(become_program(env!("CARGO_BIN_EXE_teamd"), &args));
    }
    if args == [WAIT] {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        return Some(ExitCode::SUCCESS);
    }
    let [flag, socket, program, rest @ ..] = &args[..] else {
        return None;
    };
    if flag != PROGRAM {
        return None;
    }
    wait_for_the_tracer(Path::new(socket));
    Some(become_program(program, rest))
}

/// Tells the tracer who this is, and waits until it holds this process. Without a tracer nothing is
/// traced.
fn wait_for_the_tracer(socket: &Path) {
    let Ok(mut stream) = UnixStream::connect(socket) else {
        return;
    };
    if stream.write_all(&std::process::id().to_le_bytes()).is_ok() {
        drop(stream.read(&mut [0]));
    }
}

fn become_program(program: &str, args: &[String]) -> ExitCode {
    drop(Command::new(program).args(args).exec());
    ExitCode::from(127)
}
