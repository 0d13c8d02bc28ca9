//! `teamctl approve` and `teamctl reject`: the answer to a plan. Giving the same answer again is no error.

use serde_json::json;
use teamd_shared::control::{Command, Done};
use teamd_shared::id::RequestId;
use teamd_shared::request::Kind;

use crate::client::{Client, unexpected};
use crate::ctl::context::{Context, block_on};
use crate::ctl::{journal, requests, text};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, id: &str, approve: bool, feedback: &str) -> CommandResult {
    give(context, id, approve, text::given(feedback)?).map(|_| ExitCode::Done)
}

/// Gives the answer, with this feedback, and says so. Returns the whole id.
pub(in crate::ctl) fn give(
    context: &Context,
    id: &str,
    approve: bool,
    feedback: String,
) -> Result<RequestId, CommandError> {
    let dir = context.dir()?;
    let team = journal::fold(&dir)?;
    let plan = requests::resolve(&team, id, Some(Kind::PlanApproval))?;
    let (request_id, from) = (plan.request_id.clone(), plan.from.clone());
    block_on(async {
        let mut client = Client::connect(&dir).await?;
        let command = Command::Answer { request_id: request_id.clone(), approve, feedback };
        let repeated = match client.call(command).await? {
            Done::Answered { repeated } => repeated,
            other => return Err(unexpected(&other)),
        };
        let status = if approve { "approved" } else { "rejected" };
        let answer = json!({"request_id": request_id, "from": from, "status": status, "repeated": repeated});
        let already = if repeated { "already " } else { "" };
        context.out.result(&answer, format_args!("the plan {request_id} of {from} is {already}{status}"))?;
        Ok(request_id)
    })
}
