//! The connection of a lead that is another program: by it the daemon knows which process leads, and
//! that what runs below that is no person.

use std::convert::Infallible;

use teamd_shared::control::Command;
use teamd_shared::process::Identity;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use crate::connection::{CallError, Client};
use crate::error::CommandError;
use crate::read::wake::FolderWatch;

/// Connects as the server of the lead that runs this process. The daemon knows it when this returns.
///
/// # Errors
/// As [`Client::connect`].
pub async fn connect(dir: &TeamDir, lead: Identity) -> Result<Client, CommandError> {
    let mut client = Client::connect_as_lead(dir, lead).await?;
    match client.call(Command::Ping).await {
        // A refusal is an answer, too.
        Ok(_) | Err(CallError::Refused(_)) => Ok(client),
        Err(error) => Err(error.into()),
    }
}

/// Keeps such a connection to the daemon, whichever runs. `says` is sent to each.
pub async fn keep(
    dir: &TeamDir,
    lead: &Identity,
    poll: bool,
    says: impl Fn() -> Command,
) -> Infallible {
    let mut runtime_files = FolderWatch::of(dir, &TeamPath::socket(), poll);
    loop {
        if let Ok(mut client) = Client::connect_as_lead(dir, lead.clone()).await {
            let said = client.send(says()).await;
            // The answer changes nothing.
            while said.is_ok() && client.reply().await.is_ok() {}
        }
        // The next daemon makes a socket there.
        runtime_files.changed().await;
        drop(runtime_files.take());
    }
}
