//! Who tells how a plan was answered: the command that was given at the prompt, or the conversation; never both. Pure.

use teamd_shared::id::RequestId;
use teamd_shared::request::Request;

use super::ends::End;

/// The answers that are given at the prompt, and the plans of which the conversation is to tell.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The commands that answer a plan and have not ended.
    given: Vec<u64>,
    /// The plans of which a command has said here how they were answered.
    told: Vec<RequestId>,
    /// The plans that have changed and are not told yet.
    changed: Vec<Request>,
}

impl Answers {
    /// A command begins that answers a plan.
    pub(super) fn begin(&mut self, number: u64) {
        self.given.push(number);
    }

    /// A command has ended.
    pub(super) fn end(&mut self, end: End) {
        self.given.retain(|given| *given != end.number);
        self.told.extend(end.told);
    }

    /// These plans wait now, or do no longer.
    pub(super) fn changed(&mut self, plans: Vec<Request>) {
        self.changed.extend(plans);
    }

    /// Tells whether a command that answers a plan has not ended yet.
    pub(super) fn are_given(&self) -> bool {
        !self.given.is_empty()
    }

    /// Tells whether a command has said how a plan was answered.
    pub(super) fn has_told(&self, plan: &RequestId) -> bool {
        self.told.contains(plan)
    }

    /// Takes the plans of which the conversation is to tell now. While a command gives an answer, it may be the one that
    /// says how a plan was answered.
    pub(super) fn due(&mut self) -> Vec<Request> {
        let given = self.are_given();
        let waits = |plan: &Request| given && !plan.is_pending();
        let (later, mut now): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.changed).into_iter().partition(waits);
        self.changed = later;
        now.retain(|plan| plan.is_pending() || !self.has_told(&plan.request_id));
        now
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(status: &str) -> Request {
        let plan = json!({"request_id": "00000001", "kind": "plan_approval", "from": "alice", "to": "lead",
            "status": status, "payload": {"plan": "1. look"}, "incarnation": 1,
            "message_id": "00000000-0000-4000-8000-000000000001", "created_at": 1.0});
        serde_json::from_value(plan).unwrap()
    }

    #[test]
    fn how_a_plan_was_answered_is_told_once_however_long_the_command_takes() {
        let id = plan("pending").request_id;
        for (told, by_the_conversation) in [(Some(id), 0), (None, 1)] {
            let mut answers = Answers::default();
            answers.begin(7);
            answers.changed(vec![plan("pending"), plan("approved")]);
            assert_eq!(answers.due(), [plan("pending")], "the command has not ended");
            answers.end(End { number: 6, told: None });
            assert!(answers.due().is_empty() && answers.are_given(), "another one has");
            answers.end(End { number: 7, told });
            assert_eq!((answers.due().len(), answers.are_given()), (by_the_conversation, false));
            assert_eq!(answers.due(), []);
        }
    }
}
