//! A plan or a permission question on its way to the lead, and what its author gets to read about
//! it, pure.

use serde_json::Value;
use teamd_shared::id::RequestId;
use teamd_shared::member::Gate;
use teamd_shared::message::Body;
use teamd_shared::request::Status;
use uuid::Uuid;

use crate::tool_use::ToolUse;
use crate::tools::{Action, Call, Caller, Outcome, PlanApproval};

/// The result of the calls behind a rejected plan.
pub const BEHIND_A_REJECTED: &str = "refused: the plan was rejected";

/// What waits for a verdict, and its ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeadQuestion {
    /// What is asked.
    pub asks: Asks,
    /// The id of its line.
    pub message_id: Uuid,
    /// The id of the request.
    pub request_id: RequestId,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asks {
    /// To carry out a plan: the gate is closed until then.
    Plan(String),
    /// To use a tool of the agent's own.
    Permission(Permission),
}

/// A question of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// Its id, by which the agent is answered.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// What it is given.
    pub input: Value,
}

/// How many ids are tried to find the one that a plan is pending under: each is taken by chance (1
/// of 2³²), or since the plan expired with an earlier incarnation.
const RENUMBERINGS: usize = 64;

impl LeadQuestion {
    /// Returns the plan that an earlier incarnation was about to submit, or had submitted, when it
    /// ended in this call; none if the call is no plan. `pending`: the plan of this conversation
    /// that has no verdict.
    ///
    /// An incarnation that begins with it must say so from the first: the daemon lets a plan expire
    /// that no worker waits for.
    pub fn resumed(caller: Caller, call: &ToolUse, pending: Option<&RequestId>) -> Option<Self> {
        let Ok(Call {
            action: Action::SubmitPlan(PlanApproval { plan }),
            ..
        }) = caller.parse(&call.name, &call.input)
        else {
            return None;
        };
        let asks = Asks::Plan(plan);
        let first = Self {
            asks,
            message_id: call.message_id?,
            request_id: call.request_id.clone()?,
        };
        let ids = std::iter::successors(Some(first.clone()), |before| {
            Some(before.clone().renumbered())
        });
        Some(
            ids.take(RENUMBERINGS)
                .find(|question| Some(&question.request_id) == pending)
                .unwrap_or(first),
        )
    }

    /// Returns what the line says that submits it, for an incarnation.
    pub fn body(&self, incarnation: u32) -> Body {
        let request_id = self.request_id.clone();
        let incarnation = Some(incarnation);
        match self.asks.clone() {
            Asks::Plan(plan) => Body::PlanApprovalRequest {
                request_id,
                plan,
                incarnation,
            },
            Asks::Permission(Permission { tool, input, .. }) => Body::PermissionRequest {
                request_id,
                tool,
                input,
                incarnation,
            },
        }
    }

    /// Returns the same under other ids: its id belongs to another request.
    ///
    /// The transcript holds only the first ids. The others follow from them, so that a worker that
    /// is restarted tries the same ids in the same order, and comes to the one that it was recorded
    /// under.
    #[must_use]
    pub fn renumbered(self) -> Self {
        // The last bits of a UUIDv7 are random: others make another id of the same time. An odd
        // step walks through all of 32 bits before it comes back.
        let [head @ .., s1, s2, s3, s4, l1, l2, l3, l4] = *self.message_id.as_bytes();
        let step = u32::from_be_bytes([s1, s2, s3, s4]) | 1;
        let low = u32::from_be_bytes([l1, l2, l3, l4]).wrapping_add(step);
        let mut bytes = *self.message_id.as_bytes();
        bytes[head.len() + 4..].copy_from_slice(&low.to_be_bytes());
        let before = u32::from_str_radix(self.request_id.as_str(), 16).unwrap_or(0);
        let request_id = RequestId::from_bits(before.wrapping_add(step));
        Self {
            message_id: Uuid::from_bytes(bytes),
            request_id,
            ..self
        }
    }
}

/// What became of a plan or question: how it was answered (or that it expired), with the feedback;
/// or why it was never recorded.
pub type Judged = Result<(Status, String), String>;

/// Returns why a permission is refused; none if it is given.
pub fn refusal_of(verdict: &Judged) -> Option<String> {
    match verdict {
        Ok((Status::Approved, _)) => None,
        Ok((Status::Rejected, feedback)) => Some(with("refused", feedback)),
        Ok(_) => Some("refused: the question has expired".to_owned()),
        Err(why) => Some(format!("refused: the question was not recorded: {why}")),
    }
}

/// Returns what the author of a plan gets to read. `gate`: as the daemon's last directive has it.
/// It can be closed behind an approval: a plan was asked for since, or the incarnation that was
/// approved has ended for good.
pub fn result_of(verdict: &Judged, gate: Gate) -> Outcome {
    match verdict {
        Ok((Status::Approved, feedback)) if gate == Gate::Open => {
            Outcome::ok(with("approved", feedback))
        }
        Ok((Status::Approved, feedback)) => Outcome::error(with(
            "approved, but the gate has been closed again since: submit the plan again",
            feedback,
        )),
        Ok((status, feedback)) => {
            let next = match status {
                Status::Rejected => "rejected; the gate stays closed: submit a revised plan",
                _ => "expired without a verdict; the gate stays closed",
            };
            Outcome::error(with(next, feedback))
        }
        Err(why) => Outcome::error(format!("the plan was not recorded: {why}")),
    }
}

fn with(verdict: &str, feedback: &str) -> String {
    if feedback.trim().is_empty() {
        verdict.to_owned()
    } else {
        format!("{verdict}\n{feedback}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submission() -> LeadQuestion {
        LeadQuestion {
            asks: Asks::Plan("drop the cache".to_owned()),
            message_id: Uuid::now_v7(),
            request_id: RequestId::from_bits(7),
        }
    }

    #[test]
    fn other_ids_follow_from_the_first_ones() {
        let first = submission();
        let second = first.clone().renumbered();
        let again = first.clone().renumbered();
        assert_eq!(second, again);
        let third = second.clone().renumbered();
        assert_ne!(first.request_id, second.request_id);
        assert_ne!(second.request_id, third.request_id);
        assert!(first.message_id != second.message_id && first.message_id != third.message_id);
        assert_eq!(second.message_id.get_version_num(), 7);
        assert_eq!(third.asks, first.asks);
    }

    #[test]
    fn a_plan_is_found_again_under_the_ids_that_it_was_recorded_under() {
        let first = submission();
        let call = ToolUse {
            id: "call-1-1".to_owned(),
            name: "plan_approval".to_owned(),
            input: serde_json::json!({ "plan": "drop the cache" }),
            message_id: Some(first.message_id),
            request_id: Some(first.request_id.clone()),
            repeated: true,
            is_beside: false,
        };
        let second = first.clone().renumbered();
        let resumed = |pending| LeadQuestion::resumed(Caller::Teammate, &call, pending);
        assert_eq!(resumed(None).as_ref(), Some(&first));
        assert_eq!(resumed(Some(&first.request_id)).as_ref(), Some(&first));
        assert_eq!(resumed(Some(&second.request_id)).as_ref(), Some(&second));
        assert_eq!(
            resumed(Some(&RequestId::from_bits(0))).as_ref(),
            Some(&first),
            "another plan"
        );
        let other = ToolUse {
            name: "bash".to_owned(),
            input: serde_json::json!({ "command": "true" }),
            ..call.clone()
        };
        assert_eq!(LeadQuestion::resumed(Caller::Teammate, &other, None), None);
    }

    #[test]
    fn a_permission_is_given_by_an_approval_alone() {
        let refusal = |status, feedback: &str| refusal_of(&Ok((status, feedback.to_owned())));
        assert_eq!(refusal(Status::Approved, "mind the tests"), None);
        assert_eq!(
            refusal(Status::Rejected, "not that").as_deref(),
            Some("refused\nnot that")
        );
        assert!(
            refusal(Status::Expired, "").is_some() && refusal_of(&Err("no".to_owned())).is_some()
        );
    }

    #[test]
    fn only_an_approval_is_no_error_and_feedback_is_passed_on() {
        let decided =
            |status, feedback: &str| result_of(&Ok((status, feedback.to_owned())), Gate::Open);
        let approved = decided(Status::Approved, "mind the tests");
        assert_eq!(
            (approved.content.as_str(), approved.is_error),
            ("approved\nmind the tests", false)
        );
        assert!(decided(Status::Rejected, "too risky").is_error);
        assert!(
            decided(Status::Rejected, "too risky")
                .content
                .ends_with("\ntoo risky")
        );
        assert!(decided(Status::Expired, " ").content.starts_with("expired"));
        assert!(result_of(&Err("no".to_owned()), Gate::Open).is_error);
        let outdated = result_of(&Ok((Status::Approved, String::new())), Gate::Closed);
        assert!(
            outdated.is_error && outdated.content.ends_with("submit the plan again"),
            "{outdated:?}"
        );
    }
}
