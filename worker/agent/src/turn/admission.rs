//! The wait of a call for memory. It is recorded before it begins, and that it is over before the
//! call begins: so a later incarnation knows whether a call without a result has begun.

use teamd_shared::member::Gate;
use teamd_shared::transcript::Event;

use crate::session::Session;
use crate::tools::{Admits, Tools};
use crate::transcript::TranscriptError;
use teamd_worker_core::state::Why;
use teamd_worker_core::tools::{LocalAction, Outcome};

/// Who makes a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum CallOwner {
    /// The member itself.
    Member,
    /// A subagent of it. Its call of `delegate` is interrupted in any case, so its waits are not
    /// recorded.
    Subagent,
}

impl<T: Tools> Session<T> {
    /// Waits until a call may begin. Returns what is to be kept until it is over, or why it does not
    /// begin.
    pub(super) async fn admit(
        &mut self,
        action: &LocalAction,
        gate: Gate,
        asker: CallOwner,
    ) -> Result<Result<Option<T::Admission>, Why>, TranscriptError> {
        let Some(mut admission) = self.dispatcher.toolbox.admission(action) else {
            return Ok(Ok(None));
        };
        if admission.before().is_none() {
            return Ok(Ok(Some(admission)));
        }
        if !self.dispatcher.state.may_wait_for_memory() {
            return Ok(Ok(None));
        }
        let waiting = match (asker, self.dispatcher.state.work.calls.front()) {
            (CallOwner::Member, Some(call)) => Some(call.id.clone()),
            _ => None,
        };
        if let Some(tool_use_id) = waiting.clone() {
            self.record(Event::Held { tool_use_id })?;
        }
        let gated = action.changes(gate);
        while let Some(before) = admission.before() {
            self.dispatcher.state.holding(before, gated);
            if let Err(why) = self.dispatcher.run_until(admission.changed()).await {
                return Ok(Err(why));
            }
        }
        if let Some(tool_use_id) = waiting {
            let waited = admission.waited().unwrap_or_default().as_secs_f64();
            self.record(Event::Admitted {
                tool_use_id,
                waited,
            })?;
            self.transcript.sync()?;
        }
        Ok(Ok(Some(admission)))
    }

    /// Returns the result of a call that was ended while it waited.
    pub(super) fn not_run(&self, why: &Why) -> Outcome {
        Outcome::error(format!("not run: {}", self.broken_off(why)))
    }
}

/// Says in the result of a call how long it waited. It no longer counts as running then.
pub(super) fn after_wait(admission: Option<impl Admits>, mut outcome: Outcome) -> Outcome {
    if let Some(waited) = admission.and_then(|it| it.waited()) {
        let note = format!(
            "[waited {} s for memory before it began]\n",
            waited.as_secs()
        );
        outcome.content.insert_str(0, &note);
    }
    outcome
}
