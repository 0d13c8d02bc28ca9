//! What teammates with a checkout have changed, and the exchange with the user's branch: asked of
//! the daemon.

use std::time::Duration;

use teamd_shared::control::{Command, Done, IntegrationOrder};
use teamd_shared::name::Name;

use super::waiting::Requester;
use crate::connection::unexpected;
use crate::context::{Context, block_on};
use crate::error::CommandError;
use crate::exit_code::ExitCode;

/// Gives an order, and waits until it is carried out.
///
/// # Errors
/// If the daemon refuses it, or does not answer in time.
pub fn ask(
    context: &Context,
    order: IntegrationOrder,
    timeout: Option<Duration>,
) -> Result<Done, CommandError> {
    let dir = context.dir()?;
    let caller = Requester {
        dir: &dir,
        out: &context.out,
        timeout,
    };
    match block_on(caller.one(Command::Integration(order)))? {
        Ok(answer) => Ok(answer?),
        Err(early) => {
            let late = "the daemon has not answered in time".to_owned();
            Err(early.error("the daemon", late, "try again: what it has begun continues"))
        }
    }
}

/// Returns what a teammate or the submission of a task has changed, as `git diff` tells it.
///
/// # Errors
/// If there is no such thing, or if the daemon cannot tell.
pub fn diff(context: &Context, of: &str) -> Result<String, CommandError> {
    let order = match of.parse() {
        Ok(id) => IntegrationOrder::DiffOfTask(id),
        Err(_) => IntegrationOrder::DiffOf(Name::new(of).map_err(|error| {
            CommandError::new(ExitCode::Usage, error.to_string())
                .hint("it is the number of a task, or the name of a teammate")
        })?),
    };
    match ask(context, order, None)? {
        Done::Text(text) => Ok(text),
        other => Err(unexpected(&other)),
    }
}
