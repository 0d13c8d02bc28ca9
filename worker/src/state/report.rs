//! What the worker says of itself, from what is known.

use teamd_shared::control::WorkerState;
use teamd_shared::member::Doing;
use teamd_shared::request::Status;

use super::{At, Plan, Said, State};

impl State {
    /// Returns what the worker says of itself; `wants_ring`: its inbox is not watched.
    pub(crate) fn report(&self, wants_ring: bool) -> WorkerState {
        let (doing, activity) = match &self.at {
            At::Idle => (Doing::Idle, ""),
            At::Plan(Plan { said: Said::Recorded(Status::Pending), .. }) => {
                (Doing::Idle, "waiting for approval")
            }
            At::Plan(_) => (Doing::Working, "submitting a plan"),
            At::Asking => (Doing::Working, "waiting for a person"),
            At::Calling { activity, .. } => (Doing::Working, activity.as_str()),
            At::Turn { .. } | At::Thinking { .. } | At::Call | At::Done(_) => (Doing::Working, "thinking"),
        };
        // Said from before the plan is named: a state without it would let it expire as soon as it is recorded.
        let plan = match &self.at {
            At::Plan(plan) => Some(plan.request_id.clone()),
            _ => None,
        };
        WorkerState {
            acted_on: self.acted_on,
            doing,
            activity: activity.to_owned(),
            plan,
            wants_ring,
            usage: self.usage,
        }
    }
}
