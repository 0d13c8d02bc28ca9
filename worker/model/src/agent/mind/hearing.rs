//! What the agent says: how it becomes answers and results.

use std::future::pending;
use std::time::Duration;

use serde_json::Value;
use teamd_shared::amount::format_duration;
use teamd_shared::member::{Permissions, Waiting};
use teamd_shared::transcript::{Block, Event};

use super::super::Heard;
use super::{AgentMind, Came, NO_OUTCOME};
use crate::{ModelError, Progress};
use teamd_worker_core::state::Budget;
use teamd_worker_core::tools::Outcome;

/// How often the agent may end by itself in one piece of work, and is started again.
const RESTARTS: u32 = 3;

/// How long the service is said not to answer after its agent has said so.
const OUTAGE: f64 = 120.0;

/// How long the end of a turn may take that is interrupted.
const INTERRUPTED_WITHIN: Duration = Duration::from_secs(2);

/// How long an agent may say nothing between a turn that has ended and the one that takes in what
/// it was told meanwhile.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);

/// What is told of a call whose agent is gone.
pub(super) const GONE: &str = "the agent has ended; the call may have run";

/// How an agent ends that does not.
const UNTAKEN: &str = "has ended its turn without a word about a message that it was told";

impl AgentMind {
    /// Ends the turn, and with it what it has told so far; the process, if it does not obey, or if
    /// it would begin another turn for a message that waits.
    pub async fn interrupt(&mut self) {
        if !(self.in_turn && self.untaken.is_empty()) {
            return self.abandon();
        }
        let Some(process) = self.process.as_ref() else {
            return self.abandon();
        };
        process.interrupt();
        let ended = async {
            loop {
                match self.next().await {
                    Ok(Heard::TurnEnded { .. }) => return true,
                    Ok(_) => {}
                    Err(_) => return false,
                }
            }
        };
        if !tokio::time::timeout(INTERRUPTED_WITHIN, ended)
            .await
            .unwrap_or(false)
        {
            tracing::warn!("the agent does not end its turn when it is interrupted: it is ended");
            return self.abandon();
        }
        self.in_turn = false;
        self.forget_turn();
        self.pauses.send_replace(None);
    }

    /// Waits until the agent takes messages.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn ready(&mut self) -> Result<(), String> {
        loop {
            match self.next().await {
                Ok(Heard::Ready) => return Ok(()),
                Ok(Heard::Nonsense(line)) => {
                    return Err(format!(
                        "it says {:?}",
                        line.chars().take(200).collect::<String>()
                    ));
                }
                Ok(_) => {}
                Err(how) => return Err(how),
            }
        }
    }

    /// Waits for what the agent says next; a long silence is told.
    async fn heard(&mut self) -> Result<Heard, String> {
        let Some(process) = &mut self.process else {
            return pending().await;
        };
        if self.is_between {
            let heard = tokio::time::timeout(TAKEN_WITHIN, process.heard()).await;
            return heard.unwrap_or_else(|_| Err(UNTAKEN.to_owned()));
        }
        if let Ok(heard) = tokio::time::timeout(self.patience, process.heard()).await {
            return heard;
        }
        let until = teamd_shared::clock::wall();
        let why = format!(
            "{} for {}",
            Waiting::UNHEARD,
            format_duration(self.patience)
        );
        self.pauses.send_replace(Some(Waiting { until, why }));
        process.heard().await
    }

    /// Hears what the agent says next.
    async fn next(&mut self) -> Result<Heard, String> {
        let heard = self.heard().await;
        self.take_in(heard)
    }

    /// Takes in what was heard.
    pub(super) fn take_in(&mut self, heard: Result<Heard, String>) -> Result<Heard, String> {
        let Some(process) = &self.process else {
            return heard;
        };
        match heard {
            // The kernel decides what it may do.
            Ok(Heard::Asks(asked)) if self.permissions == Permissions::Allow => {
                process.permit(&asked.id, None);
                Ok(Heard::Asks(asked))
            }
            // What it asks beside its turns is refused.
            Ok(Heard::Retry(why)) if !self.in_turn => Ok(Heard::Retry(why)),
            Ok(Heard::Retry(said)) => {
                let why = process.meter.trouble().map_or(said, |trouble| {
                    format!("{}; attempt {}", trouble.brief, trouble.attempts)
                });
                tracing::warn!("the service of the agent does not answer: {why}");
                let until = teamd_shared::clock::wall() + OUTAGE;
                self.pauses.send_replace(Some(Waiting {
                    until,
                    why: why.clone(),
                }));
                Ok(Heard::Retry(why))
            }
            Ok(Heard::Begins) => {
                self.model_calls = self.model_calls.saturating_add(1);
                self.unfollowed = self.unfollowed.saturating_add(1);
                self.is_answering = true;
                Ok(Heard::Begins)
            }
            Ok(Heard::Cost(cost)) => {
                self.usage += cost;
                Ok(Heard::Cost(cost))
            }
            Ok(Heard::Taken(id)) => {
                self.is_between = false;
                self.untaken.remove(&id);
                Ok(Heard::Taken(id))
            }
            Ok(Heard::Outcome {
                id,
                content,
                is_error,
            }) => {
                self.outcomes.insert(
                    id.clone(),
                    Outcome {
                        content: content.clone(),
                        is_error,
                    },
                );
                Ok(Heard::Outcome {
                    id,
                    content,
                    is_error,
                })
            }
            Ok(Heard::Call {
                id,
                name,
                input,
                is_handed,
                refused,
            }) => {
                self.refused.extend(refused.map(|why| (id.clone(), why)));
                Ok(Heard::Call {
                    id,
                    name,
                    input,
                    is_handed,
                    refused,
                })
            }
            Ok(Heard::Unusable(why)) => {
                self.abandon();
                Err(why)
            }
            Ok(Heard::NotResumed(why)) => {
                self.abandon();
                self.afresh = Some(why.clone());
                Err(format!("cannot go on with its session: {why}"))
            }
            Ok(heard) => {
                if self.pauses.borrow().is_some() {
                    self.pauses.send_replace(None);
                }
                Ok(heard)
            }
            Err(how) => {
                self.abandon();
                Err(how)
            }
        }
    }

    /// Waits for the next answer: what the model of the agent says until it calls a tool, or its
    /// turn ends.
    ///
    /// # Errors
    /// [`ModelError::Gone`] if the agent has ended, and is to be started again;
    /// [`ModelError::Spent`] if its model is asked again although the budget is spent;
    /// [`ModelError::Failed`].
    pub async fn answer(
        &mut self,
        budget: Budget,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Event, ModelError> {
        let mut content = Vec::new();
        let mut spent = std::pin::pin!(self.spent());
        loop {
            let next = async {
                match self.later.pop_front() {
                    Some(heard) => Ok(heard),
                    None => self.next().await,
                }
            };
            let heard = tokio::select! {
                biased;
                heard = next => heard,
                () = &mut spent => return Err(ModelError::Spent),
            };
            match heard {
                Ok(Heard::Begins)
                    if self.model_calls > budget.turns || budget.reached(&self.usage).is_some() =>
                {
                    return Err(ModelError::Spent);
                }
                Ok(Heard::Piece(piece)) => observe(Progress::Text(&piece)),
                Ok(Heard::Retry(_)) if self.is_spent() => return Err(ModelError::Spent),
                // It is asked anew.
                Ok(Heard::Retry(_)) => observe(Progress::Again),
                Ok(Heard::Text(text)) => content.push(Block::Text { text }),
                Ok(Heard::Call {
                    id, name, input, ..
                }) => {
                    content.push(Block::ToolUse {
                        id,
                        name,
                        input,
                        message_id: None,
                        request_id: None,
                    });
                    return Ok(self.event(content));
                }
                Ok(Heard::TurnEnded { failure }) => {
                    // What is in no turn yet begins the next one.
                    if !self.untaken.is_empty() {
                        self.is_between = true;
                        continue;
                    }
                    self.in_turn = false;
                    self.forget_turn();
                    if failure.is_some() && self.is_spent() {
                        return Err(ModelError::Spent);
                    }
                    return match failure {
                        Some(why) => Err(self.trouble().unwrap_or(ModelError::Failed(why))),
                        None => Ok(self.event(content)),
                    };
                }
                // Its calls are known when it asks.
                Ok(Heard::Asks(asked)) if self.permissions == Permissions::Ask => {
                    self.permit(&asked.id, Some("refused: no call of this tool is known"));
                }
                Ok(Heard::Nonsense(line)) => {
                    let line: String = line.chars().take(200).collect();
                    tracing::warn!("the agent says something that makes no sense: {line:?}");
                }
                Ok(_) => {}
                Err(how) if self.restarts < RESTARTS => {
                    self.restarts += 1;
                    return Err(ModelError::Gone(how));
                }
                Err(how) => {
                    return Err(ModelError::Failed(format!(
                        "the agent {} {how}",
                        self.agent.name
                    )));
                }
            }
        }
    }

    /// Returns why its last model call has failed, as the gateway knows it.
    fn trouble(&self) -> Option<ModelError> {
        Some(self.process.as_ref()?.meter.trouble()?.error)
    }

    pub(super) fn event(&mut self, mut content: Vec<Block>) -> Event {
        if let Some(text) = self.begun_afresh.take() {
            content.insert(
                0,
                Block::Text {
                    text: format!("[{text}]"),
                },
            );
        }
        self.is_answering = false;
        let (usage, model_calls) = self.take_unrecorded();
        Event::Answer {
            content,
            usage,
            cut: None,
            length: None,
            model_calls,
        }
    }

    /// Returns a call that it makes beside another one, with what it has said before.
    pub(super) fn called(&mut self, id: String, name: String, input: Value) -> Event {
        let mut content = self.take_texts();
        content.push(Block::ToolUse {
            id,
            name,
            input,
            message_id: None,
            request_id: None,
        });
        self.event(content)
    }

    /// Takes out the texts that are in no entry yet.
    pub(super) fn take_texts(&mut self) -> Vec<Block> {
        let mut texts = Vec::new();
        for heard in std::mem::take(&mut self.later) {
            match heard {
                Heard::Text(text) => texts.push(Block::Text { text }),
                heard => self.later.push_back(heard),
            }
        }
        texts
    }

    /// Takes out what came of a call, if that is known.
    fn take_outcome(&mut self, id: &str) -> Option<Outcome> {
        let refused = self.refused.remove(id).map(Outcome::error);
        refused.or_else(|| self.outcomes.remove(id))
    }

    /// Returns the result of a recorded call of the agent, if one is known; not of this one.
    pub(super) fn next_result(&mut self, except: Option<&str>) -> Option<Event> {
        for tool_use_id in self.running.clone() {
            if Some(tool_use_id.as_str()) == except {
                continue;
            }
            let known = self.take_outcome(&tool_use_id);
            if let Some(Outcome { content, is_error }) =
                known.or_else(|| self.process.is_none().then(|| Outcome::error(GONE)))
            {
                return Some(Event::Result {
                    tool_use_id,
                    content,
                    is_error,
                });
            }
        }
        None
    }

    /// Waits for the outcome of a call that runs in the agent.
    pub async fn outcome(&mut self, id: &str) -> Came {
        loop {
            if let Some(outcome) = self.take_outcome(id) {
                return Came::Outcome(outcome);
            }
            if let Some(event) = self.next_result(Some(id)) {
                return Came::Beside(event);
            }
            // Another question may have been open.
            let asked = self
                .later
                .iter()
                .position(|heard| matches!(heard, Heard::Asks(_)));
            if let Some(Heard::Asks(asked)) = asked.and_then(|at| self.later.remove(at)) {
                if self.permissions == Permissions::Ask {
                    return Came::Asks(asked);
                }
                self.permit(&asked.id, None);
            }
            // The turn may have ended while the outcome of another call was waited for.
            if self
                .later
                .iter()
                .any(|heard| matches!(heard, Heard::TurnEnded { .. }))
            {
                return Came::Outcome(Outcome::error(NO_OUTCOME));
            }
            if self.process.is_none() {
                return Came::Outcome(Outcome::error(GONE));
            }
            match self.next().await {
                Ok(heard @ Heard::TurnEnded { .. }) => self.later.push_back(heard),
                Ok(Heard::Asks(asked)) if self.permissions == Permissions::Ask => {
                    return Came::Asks(asked);
                }
                Ok(Heard::Call {
                    id, name, input, ..
                }) => return Came::Beside(self.called(id, name, input)),
                Ok(heard @ Heard::Text(_)) => self.later.push_back(heard),
                Ok(Heard::Cost(_)) => return Came::Cost,
                Ok(_) => {}
                Err(how) => {
                    return Came::Outcome(Outcome::error(format!(
                        "the agent {how}; the call may have run"
                    )));
                }
            }
        }
    }
}
