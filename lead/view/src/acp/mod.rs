//! `teamctl acp`: a teammate for an editor, or another client of the Agent Client Protocol
//! (<https://agentclientprotocol.com>, version 1), on stdin and stdout.
//!
//! ```text
//! serve      the loop: lines of the client, changes of the files, answers of the daemon
//! open_team  the conversation that is followed
//! sessions   what is open, what waits for an answer, and who is told what; pure
//! questions  the plans and permissions that the client is asked; pure
//! updates    what the entries of the transcript are in the protocol; pure
//! prompt     the content of a prompt as the text of a message; pure
//! errors     what a client is told of what cannot be done
//! frames     lines, and back
//! stdin      the lines of the client
//! ```
//!
//! A session is a view of the teammate's one conversation: it holds nothing that another one would
//! miss. A prompt is a message from `user` in the inbox, and ends with the piece of work that has
//! consumed it. **When the client goes**, this process ends and the work goes on. **When this process
//! is killed**, the message is in the inbox or it is not; the client sees its end, and `session/load`
//! shows what came of it. **When the daemon goes**, each prompt is answered with an error that says
//! that the message is there, and none is sent again.

mod errors;
mod frames;
mod open_team;
mod prompt;
mod questions;
mod serve;
mod sessions;
mod stdin;
mod updates;

use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::run_by;
use teamd_shared::name::Name;

/// What the server is started with.
#[derive(Debug, Clone)]
pub struct AcpOptions {
    /// The teammate.
    pub name: Name,
    /// Whether what the client answers counts as a person's answer.
    pub is_person: bool,
    /// Whether the daemon is not started.
    pub no_start: bool,
}

/// Serves until the client closes its end.
///
/// # Errors
/// If stdin or stdout fails, or the files of the team cannot be read any more.
pub fn run(context: &Context, options: &AcpOptions) -> CommandResult {
    let run_by = run_by::process().map_err(|error| {
        CommandError::refused("cannot see which process runs this server", &error)
    })?;
    context.block_on(serve::run(context, options, run_by))
}
