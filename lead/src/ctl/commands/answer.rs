//! `teamctl approve` and `teamctl reject`: the answer to a plan or a review. Giving the same answer again is no error.

use serde_json::json;
use teamd_shared::control::{Command, Done};
use teamd_shared::id::RequestId;
use teamd_shared::request::{Kind, Request, Status};
use teamd_shared::team_dir::TeamDir;

use crate::client::{Client, unexpected};
use crate::ctl::context::{Context, block_on};
use crate::ctl::{requests, text};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// How much of an id an answer needs: a single character opens no gate.
const SHORTEST: usize = 4;
/// What can be answered.
const JUDGED: [Kind; 2] = [Kind::PlanApproval, Kind::Review];

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, id: &str, approve: bool, feedback: &str) -> CommandResult {
    let feedback = text::given(feedback)?;
    give(context, id, approve, feedback)?.print(context)?;
    Ok(ExitCode::Done)
}

/// Finds what is to be answered by its id, or by at least [`SHORTEST`] characters of its beginning.
fn meant(dir: &TeamDir, word: &str) -> Result<Request, CommandError> {
    let asked = requests::find(dir, word, &JUDGED)?;
    if asked.request_id.as_str() != word && word.len() < SHORTEST {
        let message = format!("{word:?} is too short for an answer: give {SHORTEST} characters of the id");
        return Err(CommandError::new(ExitCode::Usage, message)
            .hint("`teamctl plans` and `teamctl reviews` show the ids"));
    }
    Ok(asked)
}

/// An answer that the daemon has recorded.
pub(in crate::ctl) struct Answered {
    request_id: RequestId,
    kind: Kind,
    /// The teammate whose plan or work it is.
    pub(in crate::ctl) from: String,
    approve: bool,
    /// Whether it had this answer already.
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
    let asked = meant(&dir, id)?;
    let (request_id, from, kind) = (asked.request_id.clone(), asked.from.clone(), asked.kind);
    let wanted = if approve { Status::Approved } else { Status::Rejected };
    let repeated = match block_on(record(&dir, &request_id, approve, feedback)) {
        Ok(repeated) => repeated,
        // It ended so long ago that the daemon knows it no more: the journal does.
        Err(error) if error.code() == ExitCode::NotFound && asked.status == wanted => true,
        Err(error) if error.code() == ExitCode::NotFound && !asked.is_pending() => {
            let message = format!("the {} {request_id} is already {}", kind.noun(), asked.status.as_str());
            return Err(CommandError::new(ExitCode::Conflict, message));
        }
        Err(error) => return Err(error),
    };
    Ok(Answered { request_id, kind, from, approve, repeated })
}

/// Gives the answer to the plan or review of this id, and to no other one. Returns whether it had this answer already.
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
        let noun = self.kind.noun();
        let status = if self.approve { "approved" } else { "rejected" };
        let answer = json!({"request_id": request_id, "from": from, "status": status, "repeated": repeated});
        let already = if *repeated { "already " } else { "" };
        context.out.result(&answer, format_args!("the {noun} {request_id} of {from} is {already}{status}"))
    }
}
