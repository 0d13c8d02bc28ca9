//! What the agent says while the session waits for nothing of it: its plan or its question is on
//! its way, or its work has ended.

use std::future::pending;

use teamd_shared::member::Permissions;
use teamd_shared::transcript::Event;

use super::super::Heard;
use super::{AgentMind, NO_OUTCOME};
use teamd_worker_core::tools::Outcome;

/// How many texts and calls it may say before it is heard no further.
const LATER: usize = 1024;

/// How many answers its model may begin before the agent is ended: each costs.
const UNFOLLOWED: u32 = 8;

/// What a call is told that the agent makes although nothing goes on.
const NO_TURN: &str = "not run: your plan waits for its verdict, or your work has ended. End your turn now: what comes next arrives as a message.";

impl AgentMind {
    /// Hears what the agent says until its turn ends, or has cost something, or there is an entry
    /// to be recorded; while a question of it is open (`is_question`), its turn does not end. What
    /// it says without any work belongs to the next answer; a call of a handed tool is refused at
    /// once, but for a question. Dropping the future loses nothing.
    ///
    /// # Errors
    /// How the agent has ended.
    pub async fn listen(&mut self, is_question: bool) -> Result<Option<Event>, String> {
        loop {
            // The call that is asked for has its outcome behind the answer.
            let asked_for = if is_question {
                self.running.first().cloned()
            } else {
                None
            };
            if let Some(result) = self.next_result(asked_for.as_deref()) {
                return Ok(Some(result));
            }
            // One that says too much is slowed down.
            if self.later.len() >= LATER {
                return pending().await;
            }
            let Some(process) = self.process.as_mut() else {
                return pending().await;
            };
            let heard = process.heard().await;
            match (self.take_in(heard)?, is_question) {
                (Heard::Asks(asked), false) if self.permissions == Permissions::Ask => {
                    self.permit(&asked.id, Some(NO_TURN));
                }
                (Heard::TurnEnded { failure }, false) => {
                    for why in failure.iter() {
                        tracing::warn!("the turn of the agent has failed: {why}");
                    }
                    self.turn_ended();
                    let texts = if self.is_work {
                        self.take_texts()
                    } else {
                        Vec::new()
                    };
                    return Ok((!texts.is_empty()).then(|| self.event(texts)));
                }
                // It is ended: whether it obeys an interrupt must not matter. The next one goes on
                // with its session.
                (Heard::Begins, false) if self.unfollowed > UNFOLLOWED => {
                    tracing::warn!("the agent does not end its turn: it is ended");
                    self.abandon();
                    return Ok(None);
                }
                (Heard::Cost(_), false) if self.is_answering && self.is_work => {}
                (Heard::Begins | Heard::Cost(_), false) => return Ok(None),
                (
                    Heard::Call {
                        id,
                        name,
                        input,
                        is_handed,
                        refused,
                    },
                    _,
                ) => {
                    if is_handed && refused.is_none() && !is_question {
                        self.refuse(&id);
                    }
                    if self.is_work {
                        return Ok(Some(self.called(id, name, input)));
                    }
                    self.later.push_back(Heard::Call {
                        id,
                        name,
                        input,
                        is_handed,
                        refused,
                    });
                }
                (heard @ (Heard::Asks(_) | Heard::TurnEnded { .. }), true)
                | (heard @ Heard::Text(_), _) => {
                    self.later.push_back(heard);
                }
                _ => {}
            }
        }
    }

    /// The turn has ended behind a plan: what was called in it has its outcome.
    fn turn_ended(&mut self) {
        self.is_between = !self.untaken.is_empty();
        self.in_turn = self.is_between;
        self.is_answering = false;
        let calls = self.later.iter().filter_map(|heard| match heard {
            Heard::Call { id, .. } => Some(id.clone()),
            _ => None,
        });
        for id in calls
            .chain(self.running.iter().cloned())
            .collect::<Vec<_>>()
        {
            self.outcomes
                .entry(id)
                .or_insert_with(|| Outcome::error(NO_OUTCOME));
        }
    }

    /// Refuses a call of a handed tool.
    fn refuse(&mut self, id: &str) {
        if let Some(process) = &self.process {
            process.answer(id, NO_TURN, true);
            self.refused.insert(id.to_owned(), NO_TURN);
        }
    }
}
