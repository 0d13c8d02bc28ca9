//! Handing over: the daemon becomes another program (`teamd start --replace`), and no worker is
//! stopped.
//!
//! It is the same process before and after (`execve(2)`): the workers stay its children, the lock
//! of the team directory is held throughout, and a service manager sees nothing. What the new
//! program must know is in the files, as after a crash. The connections close: workers connect
//! again, and commands that wait are sent again to the next program. The event loop decides when.

use std::io;
use std::os::unix::process::CommandExt;
use std::time::Instant;

use teamd_shared::control::Successor;

use super::core::caller::ReplyTo;
use super::io::lock::TeamLock;
use super::options::worker_arguments;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::programs::Program;

/// The prefix of the variables that are the daemon's own.
const OURS: &str = "TEAM_";

/// An order that another program becomes the daemon.
#[derive(Debug)]
pub(super) struct HandOver {
    pub(super) client: ReplyTo,
    pub(super) successor: Box<Successor>,
    pub(super) programs: SuccessorPrograms,
    /// When it is refused, if it could not be done.
    pub(super) by: Instant,
}

/// The programs of a successor, opened.
#[derive(Debug)]
pub(super) struct SuccessorPrograms {
    daemon: Program,
    worker: Program,
}

/// Opens what another process runs, and the worker's program that it has open. Neither is opened by
/// its path, where there may be another file by now.
pub(super) fn open_programs(successor: &Successor) -> io::Result<SuccessorPrograms> {
    let Successor {
        process,
        worker,
        program,
        ..
    } = successor;
    let daemon = Program::run_by(process.pid, program)?;
    let worker = Program::of_process(process.pid, *worker, "team-worker")?;
    // Checked last: what was opened belongs to that process, and to no other that has its pid by
    // now.
    if process.runs()? {
        Ok(SuccessorPrograms { daemon, worker })
    } else {
        Err(io::Error::other("it has ended"))
    }
}

/// Becomes the other program, with the lock as its standard input; returns only if that fails.
pub(super) fn become_successor(wanted: &HandOver, lock: TeamLock) -> CommandError {
    let HandOver {
        successor,
        programs,
        ..
    } = wanted;
    if let Err(errno) = rustix::stdio::dup2_stdin(lock.into_file()) {
        return failed("cannot hand the lock over", &errno.into());
    }
    tracing::info!(
        "hands over to {}; the workers keep running",
        successor.program
    );
    let worker = match programs.worker.inherit() {
        Ok(descriptor) => worker_arguments(descriptor),
        Err(error) => return failed("cannot hand the worker's program over", &error),
    };
    let mut command = programs.daemon.command();
    command.args(&successor.arguments).args(worker);
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(OURS.as_bytes()))
    {
        command.env_remove(name);
    }
    command.envs(
        successor
            .variables
            .iter()
            .map(|(name, value)| (name, value)),
    );
    failed(
        &format!("cannot become {}", successor.program),
        &command.exec(),
    )
}

fn failed(what: &str, error: &io::Error) -> CommandError {
    CommandError::new(
        ExitCode::Failed,
        format!("{what}: {error}; its workers keep running"),
    )
    .hint("`teamd start` takes the workers over again")
}

/// Returns the variables that are the daemon's own, as this process has them.
pub(super) fn own_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name.starts_with(OURS))
}
