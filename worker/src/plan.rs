//! A plan on its way to the lead, and what its author is told of it, pure.

use teamd_shared::id::RequestId;
use teamd_shared::request::Status;
use uuid::Uuid;

use crate::state::Verdict;
use crate::tools::Outcome;

/// What the calls are told that stand behind a rejected plan.
pub(crate) const BEHIND_A_REJECTED: &str = "refused: the plan was rejected";

/// A plan and its ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Submission {
    /// The plan.
    pub(crate) plan: String,
    /// The id of its line.
    pub(crate) message_id: Uuid,
    /// The id of the request.
    pub(crate) request_id: RequestId,
}

impl Submission {
    /// Returns the same plan under other ids: its id belongs to another request.
    ///
    /// The transcript holds only the first ids. The others follow from them, so that a worker that is restarted
    /// tries the same ids in the same order, and comes to the one that it was recorded under.
    #[must_use]
    pub(crate) fn renamed(self) -> Self {
        // The last bits of a UUIDv7 are random: others make another id of the same time. An odd step walks
        // through all of 32 bits before it comes back.
        let [head @ .., s1, s2, s3, s4, l1, l2, l3, l4] = *self.message_id.as_bytes();
        let step = u32::from_be_bytes([s1, s2, s3, s4]) | 1;
        let low = u32::from_be_bytes([l1, l2, l3, l4]).wrapping_add(step);
        let mut bytes = *self.message_id.as_bytes();
        bytes[head.len() + 4..].copy_from_slice(&low.to_be_bytes());
        let before = u32::from_str_radix(self.request_id.as_str(), 16).unwrap_or(0);
        let request_id = RequestId::from_bits(before.wrapping_add(step));
        Self { message_id: Uuid::from_bytes(bytes), request_id, ..self }
    }
}

/// Returns what the author of a plan is told.
pub(crate) fn told(verdict: &Verdict) -> Outcome {
    match verdict {
        Verdict::Decided { status: Status::Approved, feedback } => Outcome::ok(with("approved", feedback)),
        Verdict::Decided { status, feedback } => {
            let next = match status {
                Status::Rejected => "rejected; the gate stays closed: submit a revised plan",
                _ => "expired without a verdict; the gate stays closed",
            };
            Outcome::error(with(next, feedback))
        }
        Verdict::Refused(why) => Outcome::error(format!("the plan was not recorded: {why}")),
    }
}

fn with(verdict: &str, feedback: &str) -> String {
    if feedback.trim().is_empty() { verdict.to_owned() } else { format!("{verdict}\n{feedback}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submission() -> Submission {
        Submission {
            plan: "drop the cache".to_owned(),
            message_id: Uuid::now_v7(),
            request_id: RequestId::from_bits(7),
        }
    }

    #[test]
    fn other_ids_follow_from_the_first_ones() {
        let first = submission();
        let (second, again) = (first.clone().renamed(), first.clone().renamed());
        assert_eq!(second, again);
        let third = second.clone().renamed();
        assert_ne!(first.request_id, second.request_id);
        assert_ne!(second.request_id, third.request_id);
        assert!(first.message_id != second.message_id && first.message_id != third.message_id);
        assert_eq!(second.message_id.get_version_num(), 7);
        assert_eq!(third.plan, first.plan);
    }

    #[test]
    fn only_an_approval_is_no_error_and_feedback_is_passed_on() {
        let decided =
            |status, feedback: &str| told(&Verdict::Decided { status, feedback: feedback.to_owned() });
        let approved = decided(Status::Approved, "mind the tests");
        assert_eq!((approved.content.as_str(), approved.is_error), ("approved\nmind the tests", false));
        assert!(decided(Status::Rejected, "too risky").is_error);
        assert!(decided(Status::Rejected, "too risky").content.ends_with("\ntoo risky"));
        assert!(decided(Status::Expired, " ").content.starts_with("expired"));
        assert!(told(&Verdict::Refused("no".to_owned())).is_error);
    }
}
