//! `teamctl request-plan`: closes the gate of a teammate and asks it for a plan. It returns when nothing that
//! began before runs any more.

use serde_json::json;
use teamd_shared::control::{Await, Command, Done};

use crate::client::{Client, unexpected};
use crate::ctl::args::RequestPlan;
use crate::ctl::context::{Context, block_on};
use crate::ctl::text;
use crate::ctl::waiting::{Interrupt, One, Waiting};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// What holds when the waiting has ended early.
const GOES_ON: &str =
    "the gate stays closed and a plan is asked for; a running tool call may still write until it ends";

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: RequestPlan) -> CommandResult {
    let dir = context.dir()?;
    let name = args.name;
    let content = text::not_blank(text::given(&args.text)?, "text")?;
    block_on(async {
        let mut interrupt = Interrupt::catch()?;
        let asking = async {
            let mut client = Client::connect(&dir).await?;
            let done = client.call(Command::RequestPlan { name: name.clone(), content }).await?;
            Ok((client, done))
        };
        let (client, seq, incarnation) = match interrupt.or(name.as_str(), asking).await? {
            (client, Done::Recorded { seq, incarnation }) => (client, seq, incarnation),
            (_, other) => return Err(unexpected(&other)),
        };
        let waiting = Waiting { dir: &dir, out: &context.out, timeout: Some(args.timeout) };
        let what = Await::GateClosed { seq };
        match waiting.one((client, interrupt), Command::Await { name: name.clone(), incarnation, what }).await
        {
            One::Done(_) => {}
            One::Refused(refusal) => return Err(refusal.into()),
            One::TimedOut => {
                let message = format!("{name} has not yet said that everything it began before has ended");
                return Err(CommandError::new(ExitCode::TimedOut, message).hint(GOES_ON));
            }
            One::Interrupted => {
                return Err(CommandError::new(ExitCode::Interrupted, "interrupted: no longer waiting")
                    .hint("the gate stays closed and a plan is asked for"));
            }
        }
        let done = json!({"name": name, "incarnation": incarnation, "gate": "closed"});
        let text = format!("{name} is asked for a plan and may change nothing until one is approved");
        context.out.result(&done, text)?;
        Ok(ExitCode::Done)
    })
}
