//! Answers a plan, a review or a permission question. Giving the same answer again is no error.

use serde_json::json;
use teamd_shared::control::{Command, Done, PlanApproval, RequestCode};
use teamd_shared::id::RequestId;
use teamd_shared::member::Permissions;
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Request, Status};
use teamd_shared::team_dir::TeamDir;

use crate::args::{Approve, VerdictArgs};
use crate::connection::{Client, unexpected};
use crate::context::{Context, block_on};
use crate::error::CommandError;
use crate::exit_code::ExitCode;
use crate::read::{requests, roster};

/// How much of an id an answer needs: one character, or a name for another command, opens no gate.
const SHORTEST: usize = 4;
/// What can be answered.
const JUDGED: [Kind; 4] = [
    Kind::PlanApproval,
    Kind::Review,
    Kind::Permission,
    Kind::Memory,
];

/// What a person answers.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Yes or no.
    pub approve: bool,
    /// What to change, or what to mind.
    pub feedback: String,
    /// How permission questions are answered from then on.
    pub permissions: Option<Permissions>,
    /// The code of the request, where answers need one.
    pub code: Option<String>,
    /// The SHA-256 of the plan that is approved, if it holds for that text alone.
    pub plan_sha256: Option<String>,
}

impl From<Approve> for Answer {
    fn from(
        Approve {
            verdict,
            permissions,
            plan_sha256,
        }: Approve,
    ) -> Self {
        Self {
            approve: true,
            feedback: verdict.feedback,
            permissions,
            code: verdict.code,
            plan_sha256,
        }
    }
}

impl From<VerdictArgs> for Answer {
    fn from(reject: VerdictArgs) -> Self {
        Self {
            approve: false,
            feedback: reject.feedback,
            permissions: None,
            code: reject.code,
            plan_sha256: None,
        }
    }
}

/// What an id or the name of a teammate refers to.
pub enum Meant {
    /// The request with this id.
    This(Request),
    /// The one pending request of this teammate: a person must see it before it is answered.
    OnlyOneOf(Request),
}

/// Finds a request by its id, by at least its first `SHORTEST` characters, or by the teammate
/// that waits for nothing else.
pub fn meant(dir: &TeamDir, word: &str) -> Result<Meant, CommandError> {
    let by_id = requests::find(dir, word, &JUDGED);
    let is_whole = by_id
        .as_ref()
        .is_ok_and(|asked| asked.request_id.as_str() == word);
    let name = if !is_whole {
        Name::of_inbox(word).ok()
    } else {
        None
    };
    if let Some(name) =
        name.filter(|name| roster::load(dir).is_ok_and(|it| it.member(name).is_some()))
    {
        let its = requests::recent(dir)?
            .into_iter()
            .find(|it| it.kind.is_judged() && it.is_pending() && it.from == name.as_str());
        return its.map(Meant::OnlyOneOf).ok_or_else(|| {
            CommandError::new(
                ExitCode::NotFound,
                format!("nothing of {name} waits for an answer"),
            )
            .hint("`teamctl requests` shows what is pending")
        });
    }
    let asked = by_id?;
    if !is_whole && word.len() < SHORTEST {
        let message =
            format!("{word:?} is too short for an answer: give {SHORTEST} characters of the id");
        return Err(
            CommandError::new(ExitCode::Usage, message).hint("`teamctl requests` shows the ids")
        );
    }
    Ok(Meant::This(asked))
}

/// Makes the error of an answer that names a teammate, where no person can confirm the request.
pub fn name_the_id(asked: &Request, approve: bool) -> CommandError {
    let verb = if approve { "approve" } else { "reject" };
    let id = &asked.request_id;
    let noun = asked.kind.noun();
    let message = format!("{} is a teammate, not the id of a {noun}", asked.from);
    CommandError::new(ExitCode::Usage, message).hint(format!(
        "`teamctl {} {id}` shows its {noun}, `teamctl {verb} {id}` answers it",
        asked.kind.listed_by()
    ))
}

/// An answer that the daemon has recorded.
pub struct Answered {
    request_id: RequestId,
    kind: Kind,
    /// The teammate whose request it is.
    pub from: String,
    approve: bool,
    /// Whether it had this answer already.
    pub repeated: bool,
}

/// Gives the answer, and prints nothing.
pub fn give(context: &Context, id: &str, answer: Answer) -> Result<Answered, CommandError> {
    let approve = answer.approve;
    let plan_sha256 = answer.plan_sha256.clone();
    let dir = context.dir()?;
    let asked = match meant(&dir, id)? {
        Meant::This(asked) => asked,
        Meant::OnlyOneOf(asked) => return Err(name_the_id(&asked, approve)),
    };
    let request_id = asked.request_id.clone();
    let from = asked.from.clone();
    let kind = asked.kind;
    let wanted = if approve {
        Status::Approved
    } else {
        Status::Rejected
    };
    let repeated = match block_on(record(&dir, &request_id, answer)) {
        Ok(repeated) => repeated,
        // It ended so long ago that the daemon no longer knows it: the journal does.
        Err(error)
            if error.code() == ExitCode::NotFound
                && asked.status == wanted
                && (plan_sha256.is_none() || plan_sha256 == asked.plan_sha256()) =>
        {
            true
        }
        Err(error) if error.code() == ExitCode::NotFound && !asked.is_pending() => {
            let message = format!(
                "the {} {request_id} is already {}",
                kind.noun(),
                asked.status.as_str()
            );
            return Err(CommandError::new(ExitCode::Conflict, message));
        }
        Err(error) => return Err(error),
    };
    Ok(Answered {
        request_id,
        kind,
        from,
        approve,
        repeated,
    })
}

/// Gives the answer to the request of this id, and to no other one. Returns whether it had this
/// answer already.
///
/// # Errors
/// If the daemon does not run, or refuses the answer.
pub async fn record(
    dir: &TeamDir,
    request_id: &RequestId,
    answer: Answer,
) -> Result<bool, CommandError> {
    record_over(Client::connect(dir).await?, request_id, answer).await
}

/// As [`record`], over a connection: whose it is decides what the answer counts.
///
/// # Errors
/// If the daemon is gone, or refuses the answer.
pub async fn record_over(
    mut client: Client,
    request_id: &RequestId,
    answer: Answer,
) -> Result<bool, CommandError> {
    let Answer {
        approve,
        feedback,
        permissions,
        code,
        plan_sha256,
    } = answer;
    if let Some(code) = code {
        let request_id = request_id.clone();
        let given = Command::GiveCode(RequestCode { request_id, code });
        client.call(given).await?;
    }
    let request_id = request_id.clone();
    let command = match plan_sha256 {
        Some(plan_sha256) => Command::ApprovePlan(PlanApproval {
            request_id,
            plan_sha256,
            feedback,
            permissions,
        }),
        None => Command::Answer {
            request_id,
            approve,
            feedback,
            permissions,
        },
    };
    match client.call(command).await? {
        Done::Answered { repeated } => Ok(repeated),
        other => Err(unexpected(&other)),
    }
}

impl Answered {
    /// Prints it.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub fn print(&self, context: &Context) -> Result<(), CommandError> {
        let Self {
            request_id,
            from,
            repeated,
            ..
        } = self;
        let noun = self.kind.noun();
        let status = if self.approve { "approved" } else { "rejected" };
        let answer =
            json!({"request_id": request_id, "from": from, "status": status, "repeated": repeated});
        let already = if *repeated { "already " } else { "" };
        context.out.result(
            &answer,
            format_args!("the {noun} {request_id} of {from} is {already}{status}"),
        )
    }
}
