//! `teamctl approve` and `teamctl reject`: the answer to a plan. Giving the same answer again is no error.

use serde_json::json;
use teamd_shared::control::{Command, Done};
use teamd_shared::id::RequestId;
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Payload, Request, Status};
use teamd_shared::team_dir::TeamDir;

use crate::client::{Client, unexpected};
use crate::ctl::context::{Context, block_on};
use crate::ctl::{escape, requests, roster, text};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

/// How much of an id an answer needs: one character, or a name that was meant for another command, opens no gate.
const SHORTEST: usize = 4;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, id: &str, approve: bool, feedback: &str) -> CommandResult {
    let feedback = text::given(feedback)?;
    let plan = match plan_meant(&context.dir()?, id)? {
        Meant::Plan(plan) => plan,
        Meant::OnlyPlanOf(plan) if context.out.can_ask() => match confirm(context, &plan, approve)? {
            true => plan,
            false => return Ok(ExitCode::Failed),
        },
        Meant::OnlyPlanOf(plan) => return Err(name_the_id(&plan, approve)),
    };
    give(context, plan.request_id.as_str(), approve, feedback)?.print(context)?;
    Ok(ExitCode::Done)
}

/// What a person means who names an id, or a teammate.
enum Meant {
    /// The plan with this id.
    Plan(Request),
    /// The one pending plan of this teammate: which that is a person must see before it is answered.
    OnlyPlanOf(Request),
}

/// Finds the plan by its id, by at least [`SHORTEST`] characters of the beginning, or by the teammate whose only pending
/// plan it is.
fn plan_meant(dir: &TeamDir, word: &str) -> Result<Meant, CommandError> {
    let by_id = requests::find(dir, word, Some(Kind::PlanApproval));
    let is_whole = by_id.as_ref().is_ok_and(|plan| plan.request_id.as_str() == word);
    let name = Name::of_inbox(word).ok().filter(|_| !is_whole);
    if let Some(name) = name.filter(|name| roster::load(dir).is_ok_and(|it| it.member(name).is_some())) {
        let is_its =
            |it: &Request| it.kind == Kind::PlanApproval && it.is_pending() && it.from == name.as_str();
        let plan = requests::recent(dir)?.into_iter().find(is_its);
        return plan.map(Meant::OnlyPlanOf).ok_or_else(|| {
            CommandError::new(ExitCode::NotFound, format!("no plan of {name} waits for an answer"))
                .hint("`teamctl plans` shows the pending plans")
        });
    }
    let plan = by_id?;
    if !is_whole && word.len() < SHORTEST {
        let message = format!("{word:?} is too short for an answer: give {SHORTEST} characters of the id");
        return Err(CommandError::new(ExitCode::Usage, message).hint("`teamctl plans` shows the ids"));
    }
    Ok(Meant::Plan(plan))
}

/// Shows a plan, and asks whether it is to be answered so.
fn confirm(context: &Context, plan: &Request, approve: bool) -> Result<bool, CommandError> {
    let Payload::Plan { plan: text } = &plan.payload else { return Ok(false) };
    let (id, from) = (&plan.request_id, &plan.from);
    context.out.aside(format_args!("{id}  plan of {from}, {} lines:", text.lines().count()));
    text.lines().for_each(|line| context.out.aside(format_args!("    {}", escape::line(line))));
    let verb = if approve { "Approve" } else { "Reject" };
    context.out.ask(&format!("{verb} the plan {id} of {from}?"))
}

fn name_the_id(plan: &Request, approve: bool) -> CommandError {
    let (verb, id) = (if approve { "approve" } else { "reject" }, &plan.request_id);
    let message = format!("{} is a teammate, not the id of a plan", plan.from);
    CommandError::new(ExitCode::Usage, message)
        .hint(format!("`teamctl plans {id}` shows its plan, `teamctl {verb} {id}` answers it"))
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
    let plan = match plan_meant(&dir, id)? {
        Meant::Plan(plan) => plan,
        Meant::OnlyPlanOf(plan) => return Err(name_the_id(&plan, approve)),
    };
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
