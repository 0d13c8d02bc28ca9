//! What the agent says while the session waits for nothing of it: its plan or its question is on its way, or its work has ended.

use std::future::pending;

use teamd_shared::member::Permissions;

use super::super::Heard;
use super::{AgentMind, NO_OUTCOME};
use crate::tools::Outcome;

/// How many texts and calls it may say before it is heard no further.
const LATER: usize = 1024;

/// How many answers its model may begin before the agent is ended: each costs.
const UNFOLLOWED: u32 = 8;

/// What a call is told that the agent makes although nothing goes on.
const NO_TURN: &str = "not run: your plan waits for its verdict, or your work has ended. End your turn now: what comes next arrives as a message.";

impl AgentMind {
    /// Hears what the agent says until its turn ends or has cost something; while a question of it is open (`is_question`), on and on. Texts
    /// and calls belong to the next answer; behind a plan, a call of a handed tool is refused at once. Dropping the future loses nothing.
    ///
    /// # Errors
    /// How the agent has ended.
    pub(crate) async fn listen(&mut self, is_question: bool) -> Result<(), String> {
        loop {
            // One that says too much is slowed down.
            let Some(process) = self.process.as_mut().filter(|_| self.later.len() < LATER) else {
                return pending().await;
            };
            let heard = process.heard().await;
            match (self.take_in(heard)?, is_question) {
                (Heard::Asks(asked), false) if self.permissions == Permissions::Ask => {
                    self.permit(&asked.id, Some(NO_TURN));
                }
                (Heard::TurnEnded { failure }, false) => {
                    failure.iter().for_each(|why| tracing::warn!("the turn of the agent has failed: {why}"));
                    self.turn_ended();
                    return Ok(());
                }
                // It is ended: whether it obeys an interrupt must not matter. The next one goes on with its session.
                (Heard::Begins, false) if self.unfollowed > UNFOLLOWED => {
                    tracing::warn!("the agent does not end its turn: it is ended");
                    self.abandon();
                    return Ok(());
                }
                (Heard::Begins | Heard::Cost(_), false) => return Ok(()),
                (heard @ Heard::Call { is_handed: true, refused: None, .. }, false) => self.refuse(heard),
                (heard @ (Heard::Asks(_) | Heard::TurnEnded { .. }), true)
                | (heard @ (Heard::Call { .. } | Heard::Text(_)), _) => self.later.push_back(heard),
                _ => {}
            }
        }
    }

    /// The turn has ended behind a plan: what was called in it has its outcome.
    fn turn_ended(&mut self) {
        self.is_between = !self.untaken.is_empty();
        self.in_turn = self.is_between;
        let calls = self.later.iter().filter_map(|heard| match heard {
            Heard::Call { id, .. } => Some(id.clone()),
            _ => None,
        });
        for id in calls.collect::<Vec<_>>() {
            self.outcomes.entry(id).or_insert_with(|| Outcome::error(NO_OUTCOME));
        }
    }

    /// Refuses a call of a handed tool.
    fn refuse(&mut self, call: Heard) {
        if let (Heard::Call { id, .. }, Some(process)) = (&call, &self.process) {
            process.answer(id, NO_TURN, true);
            self.refused.insert(id.clone(), NO_TURN);
        }
        self.later.push_back(call);
    }
}
