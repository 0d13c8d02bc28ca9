//! What the session does for the team tools: one file each. A tool reads the files of the team,
//! writes to an inbox, or asks the daemon over the connection of the worker.
//!
//! The daemon decides what a request of the lead agent changes. No call waits for what a teammate
//! does: a message reports it later.

mod answer_plan;
mod list_teammates;
mod read_inbox;
mod remember;
mod request_plan;
mod request_status;
mod send_message;
mod shutdown_request;
mod shutdown_response;
mod spawn_teammate;
mod tasks;

use teamd_shared::control::{Command, Done, Refusal};
use teamd_shared::tools::SendMessage;
use teamd_worker_core::state::Why;
use teamd_worker_core::tools::{IN_DOUBT, Outcome, TeamAction};
use uuid::Uuid;

use self::send_message::{Letter, send_message};
use crate::connection::{DaemonReply, Unanswered};
use crate::session::Session;
use crate::tools::Tools;

/// Why an agent cannot decide by itself if its commands could speak in its name.
const NOT_ITSELF: &str = "a command that you run could send this in your name, so a person decides";

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
            TeamAction::Remember(input) => self.remember(input).await,
        }
        .into()
    }

    /// Asks the daemon to do something, and returns its answer.
    ///
    /// # Errors
    /// A text for the model: why the command is not carried out, or may not have been.
    async fn order(&mut self, command: Command) -> Result<Done, String> {
        let reply = self.dispatcher.ask(command).await;
        self.done(reply)
    }

    /// Reads the answer of the daemon.
    ///
    /// # Errors
    /// As [`Session::order`].
    fn done(&self, reply: Result<DaemonReply, Why>) -> Result<Done, String> {
        match reply {
            Ok(reply) => reply.map_err(|unanswered| refused(&unanswered)),
            Err(why) => Err(format!("{}; the order {IN_DOUBT}", self.broken_off(&why))),
        }
    }
}

fn refused(unanswered: &Unanswered) -> String {
    match unanswered {
        Unanswered::Refused(Refusal {
            message,
            hint: Some(hint),
            ..
        }) => format!("{message} ({hint})"),
        Unanswered::Refused(Refusal { message, .. }) => message.clone(),
        Unanswered::Lost => format!("{unanswered}; list_teammates shows the state of the team"),
    }
}
