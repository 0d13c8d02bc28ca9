//! `teamctl compact`: has a built-in agent put its conversation into a summary, and waits for it.

use serde_json::json;
use teamd_client::act::waiting::Requester;
use teamd_client::args::CompactArgs;
use teamd_client::connection::unexpected;
use teamd_client::context::{Context, block_on};
use teamd_client::error::CommandResult;
use teamd_client::exit_code::ExitCode;
use teamd_shared::control::{Command, Done};
use teamd_shared::id::{Ids, RandomIds};

/// What is true when the waiting has ended early.
const GOES_ON: &str = "it is still asked for, and follows the step that runs";

/// Runs the command.
pub(crate) fn run(context: &Context, args: CompactArgs) -> CommandResult {
    let dir = context.dir()?;
    let name = args.name;
    block_on(async {
        let caller = Requester {
            dir: &dir,
            out: &context.out,
            timeout: Some(args.timeout),
        };
        let ask = Command::Compact {
            id: RandomIds.request(),
            name: name.clone(),
        };
        let incarnation = match caller.one(ask).await? {
            Ok(Ok(Done::Recorded { incarnation })) => incarnation,
            Ok(answer) => return Err(unexpected(&answer?)),
            Err(early) => {
                let late = format!("{name} has not put its conversation into a summary yet");
                return Err(early.error(&name, late, GOES_ON));
            }
        };
        let text = format!("the conversation of {name} goes on from a summary");
        let done = json!({"name": name, "incarnation": incarnation});
        context.out.result(&done, text)?;
        Ok(ExitCode::Done)
    })
}
