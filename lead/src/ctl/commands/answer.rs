//! `teamctl approve` and `teamctl reject`: the answer to a plan. Giving the same answer again is no error.

use serde_json::json;
use teamd_shared::control::{Command, Done};
use teamd_shared::id::RequestId;
use teamd_shared::request::{Kind, Status};
use teamd_shared::team_dir::TeamDir;

use crate::client::{Client, unexpected};
use crate::ctl::context::{Context, block_on};
use crate::ctl::{requests, text};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, id: &str, approve: bool, feedback: &str) -> CommandResult {
    give(context, id, approve, text::given(feedback)?)?.print(context)?;
    Ok(ExitCode::Done)
}

/// An answer that the daemon has recorded.
pub(in crate::ctl) struct Answered {
    request_id: RequestId,
    /// The teammate whose plan it is.
    pub(in crate::ctl) from: String,
    approve: bool,
    /// Whether the plan had this answer already.
    pub(in crate::ctl) repeated: bool,
}

/// Gives the answer, and prints nothing.
pub(in crate::ctl) fn give(
    context: &Context,
    id: &str,
    approve: bool,
    feedback: String,
) -> Result<Answered, CommandError> {
    let dir = context.dir()?;
    let plan = requests::find(&dir, id, Some(Kind::PlanApproval))?;
    let (request_id, from) = (plan.request_id.clone(), plan.from.clone());
    let wanted = if approve { Status::Approved } else { Status::Rejected };
    let repeated = match block_on(record(&dir, &request_id, approve, feedback)) {
        Ok(repeated) => repeated,
        // It ended so long ago that the daemon knows it no more: the journal does.
        Err(error) if error.code() == ExitCode::NotFound && plan.status == wanted => true,
        Err(error) if error.code() == ExitCode::NotFound && !plan.is_pending() => {
            let message = format!("the plan {request_id} is already {}", plan.status.as_str());
            return Err(CommandError::new(ExitCode::Conflict, message));
        }
        Err(error) => return Err(error),
    };
    Ok(Answered { request_id, from, approve, repeated })
}

/// Gives the answer to the plan of this id, and to no other one. Returns whether it had this answer already.
///
/// # Errors
/// If the daemon does not run, or refuses the answer.
pub(in crate::ctl) async fn record(
    dir: &TeamDir,
    request_id: &RequestId,
    approve: bool,
    feedback: String,
) -> Result<bool, CommandError> {
    let command = Command::Answer { request_id: request_id.clone(), approve, feedback };
    match Client::connect(dir).await?.call(command).await? {
        Done::Answered { repeated } => Ok(repeated),
        other => Err(unexpected(&other)),
    }
}

impl Answered {
    /// Prints it.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub(in crate::ctl) fn print(&self, context: &Context) -> Result<(), CommandError> {
        let Self { request_id, from, repeated, .. } = self;
        let status = if self.approve { "approved" } else { "rejected" };
        let answer = json!({"request_id": request_id, "from": from, "status": status, "repeated": repeated});
        let already = if *repeated { "already " } else { "" };
        context.out.result(&answer, format_args!("the plan {request_id} of {from} is {already}{status}"))
    }
}
