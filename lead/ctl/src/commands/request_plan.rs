//! `teamctl request-plan`: closes the gate of a teammate and asks it for a plan. It returns when
//! nothing that began before is still running.

use serde_json::json;
use teamd_client::act::waiting::Requester;
use teamd_client::args::RequestPlanArgs;
use teamd_client::connection::unexpected;
use teamd_client::context::{Context, block_on};
use teamd_client::error::CommandResult;
use teamd_client::exit_code::ExitCode;
use teamd_client::read::text;
use teamd_shared::control::{Command, Done};
use teamd_shared::id::{Ids, RandomIds};

/// What is true when the waiting has ended early.
const GOES_ON: &str = "the gate stays closed and a plan is asked for; a running tool call may still write until it ends";

/// Runs the command.
pub(crate) fn run(context: &Context, args: RequestPlanArgs) -> CommandResult {
    let dir = context.dir()?;
    let name = args.name;
    let content = text::not_blank(text::given(&args.text)?, "text")?;
    block_on(async {
        let caller = Requester {
            dir: &dir,
            out: &context.out,
            timeout: Some(args.timeout),
        };
        let id = RandomIds.request();
        let ask = Command::RequestPlan {
            id,
            name: name.clone(),
            content,
            wait: true,
        };
        let incarnation = match caller.one(ask).await? {
            Ok(Ok(Done::Recorded { incarnation })) => incarnation,
            Ok(answer) => return Err(unexpected(&answer?)),
            Err(early) => {
                let late = format!(
                    "{name} has not yet reported that everything it began before has ended"
                );
                return Err(early.error(&name, late, GOES_ON));
            }
        };
        let done = json!({"name": name, "incarnation": incarnation, "gate": "closed"});
        let text =
            format!("{name} is asked for a plan and may change nothing until one is approved");
        context.out.result(&done, text)?;
        Ok(ExitCode::Done)
    })
}
