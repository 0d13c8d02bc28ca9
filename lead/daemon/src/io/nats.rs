//! The `teamd-nats` that carries a link or a file over a NATS cluster, from either side. It is a
//! program of its own, which only the feature `nats` builds.

use std::ffi::OsStr;

use teamd_client::programs;
use teamd_shared::host::NatsLink;
use tokio::process::Command;

/// Returns the command that carries bytes to home, which is told this line.
///
/// # Errors
/// Why there is no such program.
pub(crate) fn nats_to_home(link: &NatsLink, line: &str) -> Result<Command, String> {
    let mut command = nats(link)?;
    command.args(["dial", line]);
    Ok(command)
}

/// Returns the command that runs a program at home for each connection of the host, until its
/// standard input ends.
///
/// # Errors
/// Why there is no such program.
pub(crate) fn nats_at_home<'a>(
    link: &NatsLink,
    program: impl Iterator<Item = &'a OsStr>,
) -> Result<Command, String> {
    let mut command = nats(link)?;
    command.args(["serve", "--"]).args(program);
    Ok(command)
}

fn nats(link: &NatsLink) -> Result<Command, String> {
    let mut command = Command::new(programs::nats()?);
    command.args(["--server", &link.server, "--link", &link.subject]);
    command.arg("--credentials").arg(&link.credentials);
    if let Some(ca) = &link.ca {
        command.arg("--ca").arg(ca);
    }
    command.kill_on_drop(true);
    Ok(command)
}
