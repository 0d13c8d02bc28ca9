//! Whether mail to teammates on hosts is there. The daemon knows, since it has the links.

use std::time::Duration;

use teamd_shared::control::{Command, Done};
use teamd_shared::host::AwaitedHost;
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;

use crate::connection::{CallError, Client};
use crate::context::block_on;
use crate::error::CommandError;

/// How long a sender waits until its message is where the receiver lives.
const PATIENCE: Duration = Duration::from_secs(2);

/// A line of home's inbox of a teammate on a host.
#[derive(Debug)]
pub struct HostedLine {
    /// The teammate.
    pub owner: Name,
    /// Its host.
    pub host: Name,
    /// Where the line begins, in bytes.
    pub offset: u64,
}

/// Returns, for each line, the host that it waits for; none if the line is there.
///
/// # Errors
/// If the system has nothing left to wait with.
pub fn awaited_hosts(
    dir: &TeamDir,
    lines: &[HostedLine],
) -> Result<Vec<Option<AwaitedHost>>, CommandError> {
    let mut awaited: Vec<Option<AwaitedHost>> = lines.iter().map(waits).collect();
    if lines.is_empty() {
        return Ok(awaited);
    }
    block_on(async {
        let asking = tokio::time::timeout(PATIENCE, ask(dir, lines, &mut awaited));
        // The inbox at home has the message in any case: what is not confirmed waits.
        match asking.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!("no daemon says what is delivered: {error:?}"),
            Err(_) => tracing::debug!("not everything was delivered within {PATIENCE:?}"),
        }
        Ok(())
    })?;
    Ok(awaited)
}

fn waits(line: &HostedLine) -> Option<AwaitedHost> {
    Some(AwaitedHost {
        name: line.host.clone(),
        unreachable_since: None,
    })
}

async fn ask(
    dir: &TeamDir,
    lines: &[HostedLine],
    awaited: &mut [Option<AwaitedHost>],
) -> Result<(), CommandError> {
    let mut client = Client::connect(dir).await?;
    let mut tags = Vec::new();
    for line in lines {
        let command = Command::AwaitDelivery {
            name: line.owner.clone(),
            offset: line.offset,
        };
        tags.push(client.send(command).await?);
    }
    for _ in lines {
        let reply = client.reply().await?;
        let index = tags.iter().position(|tag| *tag == reply.tag);
        let answer = reply.result.map_err(CallError::Refused)?;
        if let (Some(index), Done::Delivered(host)) = (index, answer) {
            awaited[index] = host;
        }
    }
    Ok(())
}
