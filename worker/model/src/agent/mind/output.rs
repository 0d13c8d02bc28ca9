//! How output of the agent is applied, no matter which call waits for it.

use std::future::pending;
use std::time::Duration;

use teamd_shared::amount::format_duration;
use teamd_shared::member::{Permissions, Protocol, Waiting};

use super::super::AgentOutput;
use super::{AgentMind, MindState};
use teamd_worker_core::tools::Outcome;

/// How long an outage is reported after the agent has reported it, in seconds.
const OUTAGE: f64 = 120.0;

/// How long an interrupted turn may take to end.
const INTERRUPTED_WITHIN: Duration = Duration::from_secs(2);

/// How long a turn may take to end that is cancelled before its agent is ended.
const CANCELLED_WITHIN: Duration = Duration::from_millis(500);

/// How long an agent may be silent after a turn, if it has messages for the next turn.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);

/// How much of unreadable output is shown, in characters.
const MAX_SHOWN: usize = 200;

/// The outcome of a call whose agent is gone.
pub(super) const GONE: &str = "the agent has ended; the call may have run";

/// How an agent ends that does not acknowledge its messages.
const UNDELIVERED: &str = "has ended its turn without acknowledging a message";

impl AgentMind {
    /// Ends the turn and drops its output so far. Ends the process if it does not obey, or if it
    /// would begin another turn for a waiting message.
    pub async fn interrupt(&mut self) {
        let running = self.state.running();
        if !running.is_some_and(|running| running.is_in_turn() && running.has_delivered_all()) {
            return self.end().await;
        }
        if !self.cancel(INTERRUPTED_WITHIN).await {
            tracing::warn!(
                "the agent does not end its turn when it is interrupted; the worker ends the agent"
            );
            return self.abandon();
        }
        self.state.end_turn();
        self.forget_turn();
        self.pauses.send_replace(None);
    }

    /// Ends the process. An agent that speaks ACP is told before to cancel its turn: it ends what it
    /// has started, and keeps its session. Others would begin another turn for a waiting message.
    pub async fn end(&mut self) {
        if self.is_in_turn()
            && self.setup.agent.protocol == Protocol::Acp
            && !self.cancel(CANCELLED_WITHIN).await
        {
            tracing::info!("the agent does not cancel its turn before it is ended");
        }
        self.abandon();
    }

    /// Tells the agent to end its turn, and waits until it has. Returns whether it has in time.
    async fn cancel(&mut self, within: Duration) -> bool {
        if let Some(running) = self.state.running() {
            running.process.interrupt();
        }
        let ended = async {
            loop {
                match self.next().await {
                    Ok(AgentOutput::TurnEnded { .. }) => return true,
                    Ok(_) => {}
                    Err(_) => return false,
                }
            }
        };
        tokio::time::timeout(within, ended).await == Ok(true)
    }

    /// Waits until the agent takes messages.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn ready(&mut self) -> Result<(), String> {
        loop {
            match self.next().await? {
                AgentOutput::Ready => return Ok(()),
                AgentOutput::Nonsense(line) => {
                    return Err(format!("it says {:?}", start_of(&line)));
                }
                _ => {}
            }
        }
    }

    /// Waits for the next output, and reports a long silence.
    async fn receive(&mut self) -> Result<AgentOutput, String> {
        let MindState::On(running) = &mut self.state else {
            return pending().await;
        };
        if running.is_between() {
            let output = tokio::time::timeout(TAKEN_WITHIN, running.process.next_output()).await;
            return output.unwrap_or_else(|_| Err(UNDELIVERED.to_owned()));
        }
        let output = tokio::time::timeout(self.patience, running.process.next_output()).await;
        if let Ok(output) = output {
            return output;
        }
        let until = teamd_shared::clock::wall();
        let silence = format_duration(self.patience);
        let mut why = format!("{} for {silence}", Waiting::UNHEARD);
        // Some agents try again without a word.
        if let Some(trouble) = running.process.meter.trouble() {
            why.push_str(&format!(
                "; {}; attempt {}",
                trouble.brief, trouble.attempts
            ));
        }
        self.pauses.send_replace(Some(Waiting { until, why }));
        running.process.next_output().await
    }

    /// Waits for the next output, and applies it.
    pub(super) async fn next(&mut self) -> Result<AgentOutput, String> {
        let output = self.receive().await;
        self.apply(output)
    }

    /// Applies output.
    pub(super) fn apply(
        &mut self,
        output: Result<AgentOutput, String>,
    ) -> Result<AgentOutput, String> {
        let MindState::On(running) = &mut self.state else {
            return output;
        };
        let output = match output {
            Ok(output) => output,
            Err(how) => {
                self.abandon();
                return Err(how);
            }
        };
        match &output {
            // The kernel decides what it may do.
            AgentOutput::Asks(question) if self.permissions == Permissions::Allow => {
                running.process.permit(&question.id, None);
            }
            // A question outside of a turn is refused.
            AgentOutput::Retry(_) if !running.is_in_turn() => {}
            AgentOutput::Retry(why) => {
                let why = match running.process.meter.trouble() {
                    Some(trouble) => format!("{}; attempt {}", trouble.brief, trouble.attempts),
                    None => why.clone(),
                };
                tracing::warn!("the service of the agent does not answer: {why}");
                let until = teamd_shared::clock::wall() + OUTAGE;
                self.pauses.send_replace(Some(Waiting { until, why }));
            }
            AgentOutput::Begins => self.cost.begin_answer(),
            AgentOutput::Cost(usage) => self.cost.add(*usage),
            AgentOutput::Taken(message) => running.delivered(*message),
            AgentOutput::Outcome {
                id,
                content,
                is_error,
            } => {
                let outcome = Outcome {
                    content: content.clone(),
                    is_error: *is_error,
                    images: Vec::new(),
                    killed_for_memory: None,
                };
                self.calls.add_outcome(id.clone(), outcome);
            }
            AgentOutput::Call { id, refused, .. } => {
                if let Some(why) = *refused {
                    self.calls.refuse(id, why);
                }
            }
            AgentOutput::Unusable(why) => {
                self.abandon();
                return Err(why.clone());
            }
            AgentOutput::NotResumed(why) => {
                self.abandon();
                self.state.begin_new_session(why);
                return Err(format!("cannot resume its session: {why}"));
            }
            _ => {
                if self.pauses.borrow().is_some() {
                    self.pauses.send_replace(None);
                }
            }
        }
        Ok(output)
    }
}

/// Returns the start of unreadable output.
pub(super) fn start_of(line: &str) -> String {
    line.chars().take(MAX_SHOWN).collect()
}
