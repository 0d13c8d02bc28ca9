//! `teamctl chat`: talks to the lead agent, which is started if it does not run.

use teamd_shared::name::Name;
use teamd_shared::terms::TermsPatch;

use super::spawn::make_absolute;
use crate::ctl::args::Chat;
use crate::ctl::context::Context;
use crate::ctl::escape;
use crate::ctl::talk::{self, Begin, Party, Talk};
use crate::error::CommandResult;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Chat) -> CommandResult {
    // A lead agent that runs is talked to all the same; without trust none is started.
    if context.out.can_ask()
        && let Err(error) = context.ask_for_trust()
    {
        context.out.note(escape::line(error.message()));
    }
    let mut flags = TermsPatch { workspace: args.workspace.clone(), ..TermsPatch::default() };
    make_absolute(&mut flags)?;
    let begin = Begin { model: args.model.clone(), workspace: flags.workspace, fresh: args.fresh };
    let party = Party { name: Name::lead(), begin: Some(begin) };
    talk::run(context, &Talk { party, last: args.last, timeout: args.timeout })
}
