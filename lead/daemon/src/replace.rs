//! `teamd start --replace`: has the daemon that runs become this program.
//!
//! Everything that can be checked is checked before: a daemon must not give way to one that cannot
//! begin.

use std::time::Duration;

use teamd_shared::control::{Command, Done, Successor};
use teamd_shared::process::Identity;
use teamd_shared::team_dir::TeamDir;

use super::confinement::TeamConfinement;
use super::hand_over::own_variables;
use super::io::journal;
use super::options::{DaemonRole, StartOptions, serve_arguments};
use teamd_client::connection::{CallError, Client, unexpected};
use teamd_client::daemon_lock::is_locked;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::programs::Program;

/// How long the daemon may take to answer: longer than it waits itself for what begins just now.
const PATIENCE: Duration = Duration::from_secs(20);

/// Tells the running daemon to hand over. Returns when it begins to.
///
/// # Errors
/// [`CommandError`] if this program could not take over, or the daemon does not hand over. The
/// daemon continues then.
pub(super) async fn replace(
    dir: &TeamDir,
    options: &StartOptions,
    confinement: &TeamConfinement,
    worker: &Program,
) -> Result<(), CommandError> {
    // The running daemon continues if this program cannot read the journal.
    journal::read(dir)?;
    let successor = successor(dir, options, confinement, worker)?;
    let mut client = Client::connect(dir).await?;
    let asking = client.call_and_wait(Command::HandOver(Box::new(successor)));
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(Ok(Done::HandingOver)) => Ok(()),
        Ok(Ok(other)) => Err(unexpected(&other)),
        // It was killed meanwhile: its place is free.
        Ok(Err(CallError::Lost(_) | CallError::Stopped)) if !is_locked(dir) => Ok(()),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(CommandError::new(
            ExitCode::TimedOut,
            "the daemon runs, but does not answer",
        )
        .hint("kill it with `kill -9 PID`, then `teamd start`: its workers keep running")),
    }
}

fn successor(
    dir: &TeamDir,
    options: &StartOptions,
    confinement: &TeamConfinement,
    worker: &Program,
) -> Result<Successor, CommandError> {
    let failed = |message: String| {
        CommandError::new(ExitCode::Failed, message)
            .hint("nothing was changed: the running daemon continues")
    };
    let program =
        std::env::current_exe().map_err(|e| failed(format!("cannot find its own program: {e}")))?;
    let process =
        Identity::of_self().map_err(|e| failed(format!("cannot read its own identity: {e}")))?;
    let program = program.into_os_string().into_string();
    let program = program
        .map_err(|path| failed(format!("the path of this program, {path:?}, is not UTF-8")))?;
    let settings = options.settings.variables();
    let settings = settings
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    let arguments = serve_arguments(dir, confinement, DaemonRole::Home { handed_over: true });
    // A flag may have said otherwise, and be the default.
    let own = own_variables().filter(|(name, _)| name != "TEAM_CGROUP");
    let worker = worker.descriptor();
    Ok(Successor {
        process,
        worker,
        program,
        arguments,
        variables: own.chain(settings).collect(),
    })
}
