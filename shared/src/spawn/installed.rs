//! The programs of a spawn order: no launcher is run at a spawn, but what was installed for it.

use crate::control::{Refusal, RefusalCode, SpawnOrder};
use crate::installed::command_of_agent;

/// Replaces the program of the agent that an order names by the one that was installed for it.
///
/// # Errors
/// [`RefusalCode::Failed`] if its command begins with a launcher, and nothing was installed.
pub fn use_installed(order: &mut SpawnOrder) -> Result<(), Refusal> {
    let (Some(name), Some(program)) = (&order.terms.agent, &mut order.terms.program) else {
        return Ok(());
    };
    match command_of_agent(name, program, &order.environment) {
        Ok(installed) => {
            program.command = installed.command;
            Ok(())
        }
        Err(error) => {
            let install = format!("teamctl agents install {name}");
            let hint = error.hint(&install, &format!("[agents.{name}]"));
            let why = format!("the agent {name} cannot be started: {error}");
            Err(Refusal::new(RefusalCode::Failed, why).hint(hint))
        }
    }
}
