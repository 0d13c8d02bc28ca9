//! The steps of a turn that wait for a decision: a plan, a question of the agent, an answer to a
//! shutdown.

use teamd_shared::member::ApproveBy;
use teamd_shared::message::{LEAD, USER};
use teamd_shared::name::Name;
use teamd_shared::request::Status;

use crate::session::{Session, stands};
use crate::tools::Tools;
use crate::transcript::TranscriptError;
use teamd_worker_core::state::ShutdownAnswer;
use teamd_worker_core::submission::Judged;
use teamd_worker_core::submission::{self, Asks, LeadQuestion};
use teamd_worker_core::tools::Outcome;

impl<T: Tools> Session<T> {
    /// Sends an agent the verdict on its plan, if a turn of it runs.
    pub(super) async fn send_verdict(&mut self) -> Result<(), TranscriptError> {
        let is_in_turn = self.model.agent().is_some_and(|agent| agent.is_in_turn());
        if !is_in_turn || self.dispatcher.state.work.calls.is_empty() {
            return Ok(());
        }
        self.close_gate().await;
        self.dispatcher.toolbox.opened().await;
        self.send_news()
    }

    /// Writes the line of the plan or question, unless an earlier incarnation has written it, and
    /// submits it.
    pub(crate) async fn submit(&mut self) -> Result<(), TranscriptError> {
        let Some(submission) = self.dispatcher.state.submission().cloned() else {
            return Ok(());
        };
        let to = match (&submission.asks, self.spawner.terms.approve_by) {
            // The lead agent is not woken for what only a person answers.
            (Asks::Permission(_), ApproveBy::Person) => USER,
            _ => LEAD,
        };
        let body = submission.body(self.incarnation);
        let request_id = submission.request_id;
        let message = self.outbox.message(submission.message_id, to, body);
        match self.outbox.send(&Name::lead(), &message, true) {
            Ok(line) => {
                self.dispatcher.state.submitted();
                self.dispatcher.link.submit(request_id, line);
                Ok(())
            }
            Err(error) => self.resolve(&Err(error.to_string())).await,
        }
    }

    /// Chooses other ids: those of the plan or question belong to another request.
    pub(crate) fn renumber(&mut self) {
        self.stop_submitting();
        if let Some(submission) = self.dispatcher.state.submission().cloned() {
            self.dispatcher.state.submitting(submission.renumbered());
        }
    }

    /// No longer submits the plan or question. Returns whether there is one.
    pub(super) fn stop_submitting(&self) -> bool {
        let submission = self.dispatcher.state.submission();
        submission
            .inspect(|pending| self.dispatcher.link.stop_submitting(&pending.request_id))
            .is_some()
    }

    /// Gives the model the verdict on its plan, or the agent the reply to its question. The calls
    /// behind a plan that was not approved are refused.
    pub(crate) async fn resolve(&mut self, verdict: &Judged) -> Result<(), TranscriptError> {
        self.stop_submitting();
        let submission = self.dispatcher.state.submission().cloned();
        if let Some(LeadQuestion {
            asks: Asks::Permission(asked),
            ..
        }) = submission
        {
            let refusal = submission::refusal_of(verdict);
            self.dispatcher.state.call_goes_on();
            // With what comes of the call, its model reads what has arrived meanwhile.
            self.pass_on_news().await?;
            if let Some(agent) = self.model.agent() {
                agent.permit(&asked.id, refusal.as_deref());
            }
            return Ok(());
        }
        self.end_call(submission::result_of(
            verdict,
            self.dispatcher.state.directed_gate(),
        ))?;
        if !matches!(verdict, Ok((Status::Approved, _))) {
            self.end_calls(submission::BEHIND_A_REJECTED)?;
        }
        self.send_verdict().await
    }

    /// Gives the model the daemon's reply to its answer to a shutdown.
    pub(crate) fn resolve_answer(
        &mut self,
        answer: &ShutdownAnswer,
    ) -> Result<(), TranscriptError> {
        let now = self.dispatcher.now();
        self.dispatcher.state.answer_told(now);
        self.end_call(match &answer.outcome {
            Some(Ok(status)) if stands(answer.approve, *status) => Outcome::ok(match status {
                Status::Approved => "approved: you leave when the calls of this answer have run",
                _ => "rejected: the lead has your reason; continue your work",
            }),
            Some(Ok(status)) => Outcome::error(format!(
                "your answer does not count: the request is {} already",
                status.as_str()
            )),
            Some(Err(why)) => Outcome::error(format!("your answer does not count: {why}")),
            None => Outcome::error("your answer was not recorded"),
        })
    }
}
