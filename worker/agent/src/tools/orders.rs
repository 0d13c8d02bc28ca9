//! How the lead agent's tools give orders to the daemon, over the worker's connection. The daemon
//! decides: nothing here takes effect by itself. No call waits for what a teammate does: that wakes
//! the lead agent when it comes.

use teamd_shared::control::{Command, Done, Refusal};
use uuid::Uuid;

use super::send_message::{Letter, send_message};
use super::{Tools, list_teammates, request_status};
use crate::connection::{Reply, Unanswered};
use crate::session::Session;
use teamd_worker_core::state::Why;
use teamd_worker_core::tools::SendMessage;
use teamd_worker_core::tools::{Outcome, TeamAction};

/// What an agent is told in whose name its tools could speak.
pub(super) const NOT_ITSELF: &str =
    "on this machine a command that you run could say this in your name, so a person decides";

impl<T: Tools> Session<T> {
    /// Carries out a call about the team; `repeated`: an earlier incarnation may have begun it.
    pub(crate) async fn act_on_team(
        &mut self,
        action: TeamAction,
        message_id: Uuid,
        repeated: bool,
    ) -> Outcome {
        let decides = matches!(
            action,
            TeamAction::Spawn(_) | TeamAction::RequestShutdown(_)
        );
        if decides && !self.dispatcher.toolbox.is_agent_itself() {
            return Outcome::error(format!(
                "not done: {NOT_ITSELF}. Tell the person what you recommend."
            ));
        }
        match action {
            TeamAction::SendMessage(SendMessage { to, content }) => {
                let letter = Letter {
                    id: message_id,
                    repeated,
                    content: &content,
                };
                let sending = send_message(&self.outbox, &to, letter);
                self.dispatcher.run_to_end(sending).await
            }
            TeamAction::List => list_teammates::list(self.outbox.dir()),
            TeamAction::ShowRequest(request_id) => {
                request_status::show(self.outbox.dir(), &request_id)
            }
            TeamAction::Spawn(spawn) => self.spawn(&spawn).await,
            TeamAction::RequestShutdown(input) => self.request_shutdown(input).await,
            TeamAction::RequestPlan(input) => self.request_plan(input).await,
            TeamAction::Task(action) => self.do_task(action).await,
            TeamAction::AnswerPlan(input) => self.answer_plan(input).await,
        }
        .into()
    }

    /// Asks the daemon to do something.
    ///
    /// # Errors
    /// A text for the model: why it is not done, or not known to be.
    pub(super) async fn order(&mut self, command: Command) -> Result<Done, String> {
        let answered = self.dispatcher.ask(command).await;
        self.done(answered)
    }

    /// Reads the answer of the daemon.
    ///
    /// # Errors
    /// As [`Session::order`].
    pub(super) fn done(&self, answered: Result<Reply, Why>) -> Result<Done, String> {
        match answered {
            Ok(reply) => reply.map_err(|unanswered| refused(&unanswered)),
            Err(why) => Err(format!(
                "{}; the order may have been carried out",
                self.broken_off(&why)
            )),
        }
    }
}

pub(super) fn refused(unanswered: &Unanswered) -> String {
    match unanswered {
        Unanswered::Refused(Refusal {
            message,
            hint: Some(hint),
            ..
        }) => format!("{message} ({hint})"),
        Unanswered::Refused(Refusal { message, .. }) => message.clone(),
        Unanswered::Lost => format!("{unanswered}; list_teammates shows how the team stands"),
    }
}

pub(super) fn unexpected(done: &Done) -> String {
    format!("the daemon answered something else: {done:?}")
}
