//! The hosts that `team.toml` names. The journal has the hosts: what the file says of one is
//! recorded by the next command that uses it.

use std::time::Duration;

use teamd_shared::control::{Command, Done};
use teamd_shared::host::{ANY, Host};
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;

use crate::act::waiting::Requester;
use crate::connection::unexpected;
use crate::context::Context;
use crate::error::CommandError;
use crate::read::journal;

/// How long a host may take until its link is up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Records what the file says of a host, or of all for [`ANY`], where the journal says otherwise.
/// Its link is up then, or it is known why not.
///
/// # Errors
/// If the file is not trusted, or the daemon refuses.
pub async fn record_hosts(
    context: &Context,
    dir: &TeamDir,
    wanted: &Name,
) -> Result<(), CommandError> {
    let file = context.trusted_file()?;
    if file.hosts.is_empty() {
        return Ok(());
    }
    let team = journal::fold(dir)?;
    let recorded = team.hosts.as_ref();
    for (name, table) in &file.hosts {
        if wanted.as_str() != ANY && wanted != name {
            continue;
        }
        let before = recorded.and_then(|hosts| hosts.get(name));
        let host = table.host(name, before);
        if before != Some(&host) {
            record(context, dir, host).await?;
        }
    }
    Ok(())
}

async fn record(context: &Context, dir: &TeamDir, host: Host) -> Result<(), CommandError> {
    let requester = Requester {
        dir,
        out: &context.out,
        timeout: Some(PATIENCE),
    };
    let name = host.name.clone();
    context.out.note(format_args!(
        "team.toml says of the host {name}: {}",
        host.way
    ));
    match requester.one(Command::AddHost(host)).await? {
        Ok(Ok(Done::Hosts(_))) => Ok(()),
        Ok(Ok(other)) => Err(unexpected(&other)),
        Ok(Err(refusal)) => Err(refusal.into()),
        Err(early) => Err(early.error(
            &name,
            format!("it is not known yet whether {name} can be reached"),
            "`teamctl host list` shows the links",
        )),
    }
}
