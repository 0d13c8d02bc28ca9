//! Stops the daemon, and waits until its process has exited.

use teamd_shared::control::{Command as Order, Done, StopOutcome};
use teamd_shared::process::{Identity, ProcessHandle, is_gone};
use teamd_shared::team_dir::TeamDir;

use crate::connection::{CallError, Client, unexpected};
use crate::daemon_wait::Attempts;
use crate::error::CommandError;
use crate::exit_code::ExitCode;
use crate::read::journal;

/// Asks the daemon to stop, sends it further commands, and waits until it has stopped.
///
/// # Errors
/// As [`Client::connect`], or if the daemon refuses.
pub async fn request_stop(
    dir: &TeamDir,
    force: bool,
    then: &[Order],
) -> Result<StopOutcome, CommandError> {
    let (mut client, daemon) = daemon_that_answers(dir).await?;
    let confirmed = match client.call_first(Order::Stop { force }, then).await {
        Ok(Done::Stop(StopOutcome::Rejected(names))) => return Ok(StopOutcome::Rejected(names)),
        Ok(Done::Stop(StopOutcome::Stopped)) => true,
        Ok(other) => return Err(unexpected(&other)),
        // Another command stopped it at the same moment, or it was killed: its journal shows which.
        Err(CallError::Lost(_) | CallError::Stopped) => false,
        Err(error @ (CallError::Refused(_) | CallError::Silent | CallError::Unanswered)) => {
            return Err(error.into());
        }
    };
    // Its lock alone would not show its end: a daemon that was started meanwhile may hold it.
    let identity = daemon.identity().clone();
    daemon.ended().await.map_err(|error| cannot_watch(&error))?;
    if confirmed || journal::ended_in_order(dir, &identity).map_err(|error| {
        let why = error.message();
        let message = format!(
            "the daemon has stopped, but whether all teammates have exited cannot be read: {why}"
        );
        CommandError::new(ExitCode::Failed, message)
            .hint("`teamctl status` shows which teammates still run")
    })? {
        return Ok(StopOutcome::Stopped);
    }
    Err(CommandError::new(
        ExitCode::Failed,
        "the daemon ended before it confirmed that all teammates have exited",
    )
    .hint(
        "`teamctl status` shows which teammates still run; `teamd start` and `teamd stop` end them in order",
    ))
}

/// Connects, and returns the process that answers: it is alive, so the pid is its own. A daemon
/// that is about to end may accept a connection without an answer: then there is another one, or
/// none.
async fn daemon_that_answers(dir: &TeamDir) -> Result<(Client, ProcessHandle), CommandError> {
    let mut attempts = Attempts::default();
    loop {
        let mut client = Client::connect(dir).await?;
        match client.call(Order::Ping).await {
            Ok(Done::Pong { pid, .. }) => match Identity::of(pid).and_then(ProcessHandle::open) {
                Ok(daemon) => return Ok((client, daemon)),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(cannot_watch(&error)),
            },
            Ok(other) => return Err(unexpected(&other)),
            // It has ended, perhaps before it accepted this connection.
            Err(CallError::Lost(_)) => {}
            Err(error) => return Err(error.into()),
        }
        attempts.next(dir).await;
    }
}

fn cannot_watch(error: &std::io::Error) -> CommandError {
    CommandError::new(
        ExitCode::Failed,
        format!("cannot watch the process of the daemon: {error}"),
    )
    .hint("`teamd status` shows whether it runs")
}
