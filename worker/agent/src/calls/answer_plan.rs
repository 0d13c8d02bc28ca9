//! `plan_approval` of the lead agent: answers a plan, a review or a permission question, or
//! recommends an answer to the person who decides.
//!
//! A person may take days. Meanwhile the worker answers a shutdown, reads what the person writes, and
//! can be interrupted.

use std::time::Duration;

use teamd_shared::control::{Command, Done, PlanVerdict, RefusalCode};
use teamd_shared::id::RequestId;

use teamd_shared::request::Status;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::tools::{AnswerPlan, unexpected};

use super::{NOT_ITSELF, refused};
use crate::connection::Unanswered;
use crate::session::Session;
use crate::team;
use crate::tools::Tools;

/// How often a call that waits for a person checks that the chat is still open.
const LOOK: Duration = Duration::from_secs(1);

impl<T: Tools> Session<T> {
    /// Answers a plan. Where only a person may answer it, the lead agent's answer is a
    /// recommendation.
    pub(super) async fn answer_plan(&mut self, input: AnswerPlan) -> Result<String, String> {
        let AnswerPlan {
            request_id,
            approve,
            feedback,
        } = input;
        if !self.dispatcher.toolbox.is_agent_itself() {
            let hint = format!("`teamctl approve {request_id}` or `teamctl reject {request_id}`");
            return self.recommend(&request_id, NOT_ITSELF, &hint).await;
        }
        let answer = Command::Answer {
            request_id: request_id.clone(),
            approve,
            feedback,
            permissions: None,
        };
        match self.dispatcher.ask(answer).await {
            Ok(Err(Unanswered::Refused(refusal))) if refusal.code == RefusalCode::Rejected => {
                let hint = refusal.hint.unwrap_or_default();
                return self.recommend(&request_id, &refusal.message, &hint).await;
            }
            reply => self.done(reply)?,
        };
        Ok(AnswerPlan::report(approve).to_owned())
    }

    /// Leaves the decision to the person: waits for one who has the chat open; else the model has to
    /// report its recommendation.
    async fn recommend(
        &mut self,
        request_id: &RequestId,
        why: &str,
        hint: &str,
    ) -> Result<String, String> {
        if team::has_chat(self.outbox.dir()) {
            return self.await_person(request_id).await;
        }
        Err(format!(
            "not decided: {why}, and no person sits at `teamctl chat`; {hint}. Tell the person what you recommend."
        ))
    }

    /// Waits until the person has answered at the chat, which shows the plan and the
    /// recommendation.
    async fn await_person(&mut self, request_id: &RequestId) -> Result<String, String> {
        let question = Command::AwaitVerdict {
            request_id: request_id.clone(),
        };
        self.dispatcher.state.asking();
        let Self {
            dispatcher, outbox, ..
        } = self;
        match dispatcher
            .ask_while(question, chat_ends(outbox.dir()))
            .await
        {
            Ok(Some(Ok(Done::Judged(verdict)))) => Ok(describe(&verdict)),
            Ok(Some(Ok(other))) => Err(unexpected(&other)),
            Ok(Some(Err(unanswered))) => Err(refused(&unanswered)),
            Ok(None) => Err(format!(
                "not decided: the chat was closed before the person answered; a person answers with \
                 `teamctl approve {request_id}` or `teamctl reject {request_id}`"
            )),
            Err(why) => Err(format!(
                "not decided: {}; the plan still waits",
                self.broken_off(&why)
            )),
        }
    }
}

/// Returns when no chat is open any longer. The file whose lock shows it may have been deleted: an
/// open chat makes it again, so one missed look is not enough.
async fn chat_ends(dir: &TeamDir) {
    let mut looks = tokio::time::interval(LOOK);
    let mut missed = 0;
    while missed < 2 {
        looks.tick().await;
        missed = if team::has_chat(dir) { 0 } else { missed + 1 };
    }
}

fn describe(
    PlanVerdict {
        status, feedback, ..
    }: &PlanVerdict,
) -> String {
    let what = match status {
        Status::Approved => "the person approved the plan",
        Status::Rejected => "the person rejected the plan",
        Status::Pending | Status::Expired => {
            "the plan expired: its author does not wait for it any more"
        }
    };
    if feedback.trim().is_empty() {
        what.to_owned()
    } else {
        format!("{what}: {feedback}")
    }
}
