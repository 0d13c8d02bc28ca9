//! What a message means to the owner of the inbox: the only place that decides which message wakes
//! which agent. Pure.

use super::{Body, LEAD, Message, TEAMD, USER};
use crate::name::Name;

/// What a message is to its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Relevance {
    /// Nothing: it is in the inbox for another reader, and is skipped.
    #[default]
    None,
    /// News for the next turn. It starts none.
    News,
    /// It starts a turn, together with others of its kind that come soon after it.
    Soon,
    /// It starts a turn.
    Work,
}

/// A field of `teammate_terminated`, and of a `shutdown_response` that rejects: who asked that
/// teammate to leave, if it was the lead agent.
pub const ASKED_BY: &str = "asked_by";

/// The type of the text of `teamd` that says what the team remembers: only in transcripts.
pub const MEMORY: &str = "memory";

impl Message {
    /// Tells what the message is to a reader.
    ///
    /// A shutdown request and a verdict act through the daemon's directive, and the end of another
    /// teammate is news for the next turn only. For the lead agent, the plans of its teammates are
    /// work, and so, shortly after, are their notifications at the end of a piece of work. That a
    /// teammate has ended, or refuses to, is work for it only if it has asked that teammate to
    /// leave.
    pub fn relevance(&self, reader: &Name) -> Relevance {
        if reader.as_str() == LEAD {
            self.relevance_to_lead()
        } else {
            self.relevance_to_teammate()
        }
    }

    /// Tells whether the message, by itself, starts a turn of a reader that is idle.
    pub fn starts_a_turn(&self, reader: &Name) -> bool {
        self.relevance(reader) >= Relevance::Soon
    }

    fn relevance_to_teammate(&self) -> Relevance {
        match &self.body {
            // A conversation begins with it, and with work only if there is any.
            Body::Unknown { kind } if kind == MEMORY && self.from == TEAMD => Relevance::News,
            Body::Message
            | Body::Broadcast
            | Body::PlanRequest { .. }
            | Body::TaskAssignment { .. }
            | Body::Unknown { .. } => Relevance::Work,
            Body::IdleNotification { .. }
            | Body::ShutdownRequest { .. }
            | Body::ShutdownResponse { .. }
            | Body::PlanApprovalRequest { .. }
            | Body::PlanApprovalResponse { .. }
            | Body::ReviewRequest { .. }
            | Body::PermissionRequest { .. }
            | Body::Returned { .. }
            | Body::TeammateTerminated { .. } => Relevance::News,
        }
    }

    /// The inbox of the lead is also that of the person, and the lead agent's own answers are in
    /// it.
    fn relevance_to_lead(&self) -> Relevance {
        if self.from == LEAD || self.to.as_deref() == Some(USER) {
            return Relevance::None;
        }
        match &self.body {
            // A problem with a file goes to the person, the only one who can repair it.
            Body::Message if self.from == TEAMD => Relevance::News,
            Body::Unknown { kind } if kind == MEMORY && self.from == TEAMD => Relevance::News,
            Body::Message | Body::Broadcast | Body::Unknown { .. } => Relevance::Work,
            // The news of its own end is for the others.
            Body::TeammateTerminated { name, .. } if name == LEAD => Relevance::None,
            Body::PlanApprovalRequest { .. }
            | Body::ReviewRequest { .. }
            | Body::PermissionRequest { .. } => Relevance::Work,
            Body::ShutdownResponse { approve: false, .. } | Body::TeammateTerminated { .. }
                if self.was_asked_by_lead() =>
            {
                Relevance::Work
            }
            Body::IdleNotification { .. } => Relevance::Soon,
            Body::ShutdownResponse { approve: false, .. }
            | Body::TeammateTerminated { .. }
            | Body::Returned { .. } => Relevance::News,
            Body::ShutdownResponse { approve: true, .. }
            | Body::ShutdownRequest { .. }
            | Body::PlanRequest { .. }
            | Body::TaskAssignment { .. }
            | Body::PlanApprovalResponse { .. } => Relevance::None,
        }
    }

    fn was_asked_by_lead(&self) -> bool {
        self.extra.get(ASKED_BY).is_some_and(|by| by == LEAD)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Relevance::{News, None, Soon, Work};
    use super::*;

    fn concerns(fields: &serde_json::Value) -> (Relevance, Relevance) {
        let mut line = json!({"type": "message", "from": "bob", "to": "lead", "content": "x"});
        for (name, value) in fields.as_object().unwrap() {
            line[name] = value.clone();
        }
        let message = Message::parse(line.to_string().as_bytes()).unwrap();
        (
            message.relevance(&Name::new("alice").unwrap()),
            message.relevance(&Name::lead()),
        )
    }

    #[test]
    fn what_wakes_a_teammate_and_what_wakes_the_lead_agent() {
        let id = "a1b2c3d4";
        for (fields, teammate, lead) in [
            (json!({}), Work, Work),
            (json!({"from": "user"}), Work, Work),
            (json!({"type": "broadcast", "to": "all"}), Work, Work),
            (json!({"type": "poem"}), Work, Work),
            (json!({"from": "teamd"}), Work, News),
            (json!({"to": "user"}), Work, None),
            (json!({"from": "lead", "to": "user"}), Work, None),
            (json!({"from": "lead"}), Work, None),
            (json!({"type": "plan_request", "from": "user"}), Work, None),
            (json!({"type": "idle_notification"}), News, Soon),
            (
                json!({"type": "idle_notification", "idle_reason": "failed"}),
                News,
                Soon,
            ),
            (
                json!({"type": "plan_approval_request", "request_id": id, "plan": "p"}),
                News,
                Work,
            ),
            (
                json!({"type": "permission_request", "request_id": id, "tool": "Bash"}),
                News,
                Work,
            ),
            (
                json!({"type": "review_request", "request_id": id, "task_id": 1, "from": "teamd"}),
                News,
                Work,
            ),
            (
                json!({"type": "plan_approval_response", "request_id": id, "approve": true}),
                News,
                None,
            ),
            (
                json!({"type": "shutdown_request", "request_id": id}),
                News,
                None,
            ),
            (
                json!({"type": "shutdown_response", "request_id": id, "approve": true}),
                News,
                None,
            ),
            (
                json!({"type": "shutdown_response", "request_id": id, "approve": false}),
                News,
                News,
            ),
            (
                json!({"type": "shutdown_response", "request_id": id, "approve": false, "asked_by": "lead"}),
                News,
                Work,
            ),
            (
                json!({"type": "teammate_terminated", "from": "teamd", "name": "bob"}),
                News,
                News,
            ),
            (
                json!({"type": "returned", "from": "teamd", "name": "bob"}),
                News,
                News,
            ),
            (
                json!({"type": "returned", "from": "teamd", "name": "bob", "to": "user"}),
                News,
                None,
            ),
            (
                json!({"type": "teammate_terminated", "from": "teamd", "name": "lead"}),
                News,
                None,
            ),
            (
                json!({"type": "teammate_terminated", "from": "teamd", "name": "bob", "asked_by": "lead"}),
                News,
                Work,
            ),
        ] {
            assert_eq!(concerns(&fields), (teammate, lead), "{fields}");
        }
    }
}
