//! `teamctl memory`: what the team remembers, and how a person takes some of it back.

use teamd_client::act::waiting::{Early, Requester};
use teamd_client::args::{MemoryArgs, MemoryCommand};
use teamd_client::connection::unexpected;
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::read::{journal, requests};
use teamd_shared::control::{Command, Done};
use teamd_shared::journal::MAX_MEMORY;
use teamd_shared::request::Kind;

/// Runs the command.
pub(crate) fn run(context: &Context, args: MemoryArgs) -> CommandResult {
    match args.command {
        None => show(context),
        Some(MemoryCommand::Forget { id }) => {
            forget(context, &id)?;
            show(context)
        }
    }
}

fn show(context: &Context) -> CommandResult {
    let team = journal::fold(&context.dir()?)?;
    if context.out.is_json() {
        return context.out.json(&team.memories()).map(|()| ExitCode::Done);
    }
    let text = team.memory_text();
    if text.is_empty() {
        context.out.note("nothing is remembered");
    } else {
        context.out.text(escape::text(text.trim_end()))?;
        let length = text.len();
        context
            .out
            .note(format_args!("{length} of {MAX_MEMORY} bytes"));
    }
    Ok(ExitCode::Done)
}

fn forget(context: &Context, id: &str) -> Result<(), CommandError> {
    let dir = context.dir()?;
    let request_id = requests::find(&dir, id, &[Kind::Memory])?.request_id;
    let caller = Requester {
        dir: &dir,
        out: &context.out,
        timeout: None,
    };
    let order = Command::ForgetMemory { request_id };
    match block_on(caller.one(order))? {
        Ok(Ok(Done::Answered { .. })) => Ok(()),
        Ok(Ok(other)) => Err(unexpected(&other)),
        Ok(Err(refusal)) => Err(refusal.into()),
        Err(early) => Err(Early::error(
            early,
            "the daemon",
            String::new(),
            "`teamctl memory` shows what is remembered",
        )),
    }
}
