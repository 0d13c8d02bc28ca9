//! `teamctl request-plan`: closes the gate of a teammate and asks it for a plan. It returns when
//! nothing that began before is still running.

use serde_json::json;
use teamd_client::act::unreachable::waiting_for;
use teamd_client::act::waiting::Requester;
use teamd_client::args::RequestPlanArgs;
use teamd_client::connection::unexpected;
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::read::text;
use teamd_shared::control::{Command, Done};
use teamd_shared::host::AwaitedHost;
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::member::Gate;
use teamd_shared::name::Name;

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
            Ok(Ok(Done::Waits {
                incarnation,
                host,
                gate,
            })) => {
                if gate == Gate::Open {
                    return Err(still_open(&name, &host));
                }
                let shown = json!({"name": name, "incarnation": incarnation, "gate": "closed", "delivery": "waiting"});
                let waiting = waiting_for(&host);
                let text =
                    format!("{waiting}: {name} is asked for a plan then, and its gate is closed");
                context.out.result(&shown, text)?;
                return Ok(ExitCode::Done);
            }
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

/// Makes the error of a gate that cannot be closed now. It is closed as soon as that is possible.
fn still_open(name: &Name, host: &AwaitedHost) -> CommandError {
    let message = format!("{}: the gate of {name} is still open", waiting_for(host));
    CommandError::new(ExitCode::TimedOut, message).hint(format!(
        "it closes, and {name} is asked for a plan, when {} is reached: `teamctl host list` shows the links",
        host.name
    ))
}
