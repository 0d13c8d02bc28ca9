//! `teamctl send`: appends a message to an inbox.

use teamd_client::act::send::deliver;
use teamd_client::args::Send;
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_client::read::text;

/// Runs the command.
pub(crate) fn run(context: &Context, args: &Send) -> CommandResult {
    context.dir()?;
    let content = text::not_blank(text::given(&args.text)?, "message")?;
    deliver(context, &args.name, content, args.queue)
}
