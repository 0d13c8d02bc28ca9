//! The commands of the prompt, carried out by those of `teamctl`.

use teamd_shared::id::RequestId;
use teamd_shared::name::Name;

use super::slash::{self, Slash};
use crate::ctl::args;
use crate::ctl::commands::{answer, inbox, interrupt, plans, shutdown, status};
use crate::ctl::context::Context;
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// How many messages of an inbox are shown.
const MESSAGES: usize = 10;

/// Carries out a command; `party` is meant where it names nobody. Runs a runtime of its own: not to be called in one.
/// Returns the plan of which it has said how it was answered, if it has.
///
/// # Errors
/// As the command of `teamctl`.
pub(super) fn run(
    context: &Context,
    party: &Name,
    command: Slash,
) -> Result<Option<RequestId>, CommandError> {
    let done: CommandResult = match command {
        Slash::Team(name) => status::run(context, &args::StatusArgs { name }),
        Slash::Inbox(name) => {
            let owner = name.unwrap_or_else(|| party.clone());
            let name = args::Mailbox { to: owner.to_string(), owner };
            inbox::run(context, &args::Inbox { name, last: MESSAGES, follow: false })
        }
        Slash::Plans(id) => plans::run(context, &args::Plans { id }),
        Slash::Answer { id, approve, feedback } => {
            return answer::give(context, &id, approve, feedback).map(Some);
        }
        Slash::Shutdown { name, reason } => {
            let args = args::Shutdown {
                names: vec![name],
                all: false,
                reason,
                timeout: None,
                decide_within: None,
                force: false,
                no_wait: false,
            };
            shutdown::run(context, args)
        }
        Slash::Interrupt(name) => {
            interrupt::run(context, args::Interrupt { name: name.unwrap_or_else(|| party.clone()) })
        }
        Slash::Help => context.out.text(slash::help()).map(|()| ExitCode::Done),
        Slash::Quit => Ok(ExitCode::Done),
    };
    done.map(|_| None)
}
