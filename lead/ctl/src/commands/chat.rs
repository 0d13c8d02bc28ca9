//! `teamctl chat`: a chat with the lead agent, which is started if it is not running.

use teamd_client::act::auto_start;
use teamd_client::act::spawn::make_absolute;
use teamd_client::args::Chat;
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_client::print::escape;
use teamd_shared::name::Name;
use teamd_shared::terms::TermsPatch;
use teamd_view::chat::{self, ChatOptions, ChatTarget, LeadOptions};

/// Runs the command.
pub(crate) fn run(context: &Context, args: &Chat) -> CommandResult {
    // A chat with a lead agent that runs needs no trust; without trust none is started.
    if context.out.can_ask()
        && let Err(error) = context.ask_for_trust()
    {
        context.out.note(escape::line(error.message()));
    }
    let is_new = auto_start::ensure_daemon(context, args.no_start, |_| Ok(()))?;
    let mut flags = TermsPatch {
        workspace: args.workspace.clone(),
        ..TermsPatch::default()
    };
    make_absolute(&mut flags)?;
    let start = LeadOptions {
        model: args.model.clone(),
        agent: args.agent.clone(),
        workspace: flags.workspace,
        fresh: args.fresh,
    };
    let target = ChatTarget {
        name: Name::lead(),
        start: Some(start),
    };
    let result = chat::run(
        context,
        &ChatOptions {
            target,
            perform: super::perform,
            last: args.last,
            timeout: args.timeout,
        },
    );
    auto_start::undo(context, is_new, result)
}
