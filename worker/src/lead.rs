//! The steps of the lead agent's own calls: what it asks of the daemon, over the worker's connection, and what its model
//! is told of the answer. The daemon decides: nothing here takes effect by itself.
//!
//! No call waits for what a teammate does: that wakes the lead agent when it comes. One waits for a person, who may
//! take days: meanwhile the worker answers a shutdown, hears the person, and can be interrupted.

use std::time::Duration;

use teamd_shared::control::{Command, Done, PlanVerdict, Refusal, RefusalCode, ShutdownOrder};
use teamd_shared::id::RequestId;
use teamd_shared::member::ApproveBy;
use teamd_shared::request::Status;
use teamd_shared::team_dir::TeamDir;
use uuid::Uuid;

use crate::connection::{Reply, Unanswered};
use crate::session::Session;
use crate::state::Why;
use crate::tools::team::{self, Letter};
use crate::tools::{Call, LeadCall, Outcome, Spawn, Tools, lead};
use crate::transcript::TranscriptError;

/// Seconds that the model of a teammate has to decide whether it leaves, as `teamctl shutdown` has it.
const DECIDE_WITHIN: f64 = 30.0;

/// How often it is looked whether somebody still sits at the chat, while a call waits for a person there.
const LOOK: Duration = Duration::from_secs(1);

impl<T: Tools> Session<T> {
    /// Carries out a call of the lead agent; `repeated`: an earlier life may have begun it.
    pub(crate) async fn lead_call(
        &mut self,
        call: LeadCall,
        message_id: Uuid,
        repeated: bool,
    ) -> Result<(), TranscriptError> {
        self.desk.state.calling(Call::Lead(call.clone()).activity(), false);
        let outcome = match call {
            LeadCall::List => lead::list(self.outbox.dir()),
            LeadCall::Status { request_id } => lead::status(self.outbox.dir(), &request_id),
            LeadCall::Broadcast { content } => {
                let letter = Letter { id: message_id, repeated, content: &content };
                let sending = team::broadcast(&self.outbox, letter);
                self.desk.attend_to_its_end(sending).await.into()
            }
            LeadCall::Spawn(spawn) => self.spawn(&spawn).await.unwrap_or_else(|failed| failed),
            LeadCall::Shutdown { teammate, reason } => {
                self.ask_to_leave(&teammate, reason).await.unwrap_or_else(|failed| failed)
            }
            LeadCall::RequestPlan { teammate, content } => {
                self.ask_for_plan(&teammate, content).await.unwrap_or_else(|failed| failed)
            }
            LeadCall::Verdict { request_id, approve, feedback } => {
                self.judge(&request_id, approve, feedback).await.unwrap_or_else(|failed| failed)
            }
        };
        self.end_call(outcome)
    }

    async fn spawn(&mut self, spawn: &Spawn) -> Result<Outcome, Outcome> {
        let order = self.spawner.order(self.outbox.dir(), spawn).map_err(Outcome::error)?;
        let (name, plan, approve_by) = (order.name.clone(), order.plan, order.approve_by.unwrap_or_default());
        let spawn = Command::Spawn { id: self.ids.request(), order: Box::new(order) };
        let (incarnation, skipped) = match self.order(spawn).await? {
            Done::Ready { incarnation, skipped, .. } => (incarnation, skipped),
            other => return Err(unexpected(&other)),
        };
        let mut told = format!("{name} has started (incarnation {incarnation}) and works on your prompt");
        if plan {
            let who = if approve_by == ApproveBy::Lead { "you answer" } else { "a person answers" };
            told.push_str(&format!("; it submits a plan first, which {who}"));
        }
        if skipped > 0 {
            told.push_str(&format!("; messages of its earlier life that it will not read: {skipped}"));
        }
        Ok(Outcome::ok(told))
    }

    async fn ask_to_leave(&mut self, teammate: &str, reason: String) -> Result<Outcome, Outcome> {
        let name = lead::teammate(teammate).map_err(Outcome::error)?;
        let order = ShutdownOrder {
            request_id: self.ids.request(),
            name: name.clone(),
            reason,
            decide_within: DECIDE_WITHIN,
            force_after: None,
            wait: false,
        };
        match self.order(Command::Shutdown(order)).await? {
            Done::Asked { request_id } => Ok(Outcome::ok(format!(
                "{name} is asked to leave (request {request_id}); you are told when its process is gone, or why it stays"
            ))),
            other => Err(unexpected(&other)),
        }
    }

    async fn ask_for_plan(&mut self, teammate: &str, content: String) -> Result<Outcome, Outcome> {
        let name = lead::teammate(teammate).map_err(Outcome::error)?;
        let ask = Command::RequestPlan { id: self.ids.request(), name: name.clone(), content, wait: false };
        match self.order(ask).await? {
            Done::Recorded { .. } => Ok(Outcome::ok(format!(
                "the gate of {name} is closed, and it is asked for a plan; you are told when the plan is there"
            ))),
            other => Err(unexpected(&other)),
        }
    }

    /// Answers a plan, or lets a person answer it who knows what the lead agent would say.
    async fn judge(
        &mut self,
        request_id: &RequestId,
        approve: bool,
        feedback: String,
    ) -> Result<Outcome, Outcome> {
        let answer = Command::Answer { request_id: request_id.clone(), approve, feedback };
        match self.desk.ask(answer).await {
            Ok(Err(Unanswered::Refused(refusal))) if refusal.code == RefusalCode::Rejected => {
                if lead::somebody_chats(self.outbox.dir()) {
                    self.let_person_judge(request_id).await
                } else {
                    Err(person_needed("nobody sits at `teamctl chat`", &refusal))
                }
            }
            answered => match self.done(answered)? {
                Done::Answered { .. } if approve => {
                    Ok(Outcome::ok("approved: the gate of its author is open"))
                }
                Done::Answered { .. } => {
                    Ok(Outcome::ok("rejected: its author has your feedback, and its gate stays closed"))
                }
                other => Err(unexpected(&other)),
            },
        }
    }

    /// Waits until a person has answered at the chat, which shows the plan and what the lead agent recommends.
    async fn let_person_judge(&mut self, request_id: &RequestId) -> Result<Outcome, Outcome> {
        let question = Command::AwaitVerdict { request_id: request_id.clone() };
        self.desk.state.asking();
        let Self { desk, outbox, .. } = self;
        match desk.ask_while(question, nobody_chats(outbox.dir())).await {
            Ok(Some(Ok(Done::Judged(verdict)))) => Ok(told(&verdict)),
            Ok(Some(Ok(other))) => Err(unexpected(&other)),
            Ok(Some(Err(unanswered))) => Err(refused(&unanswered)),
            Ok(None) => Err(Outcome::error(format!(
                "not decided: the chat was closed before the person answered; a person answers with \
                 `teamctl approve {request_id}` or `teamctl reject {request_id}`"
            ))),
            Err(why) => {
                Err(Outcome::error(format!("not decided: {}; the plan still waits", self.broken_off(&why))))
            }
        }
    }

    /// Asks the daemon to do something; what it does not do is the outcome of the call.
    async fn order(&mut self, command: Command) -> Result<Done, Outcome> {
        let answered = self.desk.ask(command).await;
        self.done(answered)
    }

    fn done(&self, answered: Result<Reply, Why>) -> Result<Done, Outcome> {
        match answered {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(unanswered)) => Err(refused(&unanswered)),
            Err(why) => {
                let why = self.broken_off(&why);
                Err(Outcome::error(format!("{why}; the order may have been carried out")))
            }
        }
    }
}

/// Returns when nobody sits at a chat any more. Somebody may have deleted the sign of that: it is given anew by the next
/// look.
async fn nobody_chats(dir: &TeamDir) {
    let mut looks = tokio::time::interval(LOOK);
    let mut missed = 0;
    while missed < 2 {
        looks.tick().await;
        missed = if lead::somebody_chats(dir) { 0 } else { missed + 1 };
    }
}

fn told(verdict: &PlanVerdict) -> Outcome {
    let PlanVerdict { status, feedback, .. } = verdict;
    let what = match status {
        Status::Approved => "the person approved the plan",
        Status::Rejected => "the person rejected the plan",
        Status::Pending | Status::Expired => "the plan expired: its author does not wait for it any more",
    };
    Outcome::ok(if feedback.trim().is_empty() { what.to_owned() } else { format!("{what}: {feedback}") })
}

fn person_needed(why: &str, refusal: &Refusal) -> Outcome {
    let hint = refusal.hint.as_deref().unwrap_or_default();
    Outcome::error(format!(
        "not decided: {}, and {why}; {hint}. Tell the person what you recommend.",
        refusal.message
    ))
}

fn refused(unanswered: &Unanswered) -> Outcome {
    Outcome::error(match unanswered {
        Unanswered::Refused(Refusal { message, hint: Some(hint), .. }) => format!("{message} ({hint})"),
        Unanswered::Refused(Refusal { message, .. }) => message.clone(),
        Unanswered::Lost => format!("{unanswered}; list_teammates shows how the team stands"),
    })
}

fn unexpected(done: &Done) -> Outcome {
    Outcome::error(format!("the daemon answered something else: {done:?}"))
}
