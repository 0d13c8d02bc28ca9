//! `plan_approval` as a lead calls it: its input, and what the call answers.

use crate::id::RequestId;
use schemars::JsonSchema;
use serde::Deserialize;

/// Answers a request for approval: the plan of a teammate (`approve` true opens its gate, so that
/// it can make changes; false leaves it closed), the review of submitted work (true completes the
/// task, false sends it back), or the question whether a teammate may use a tool. Read the plan or
/// the work first, and look at the files if necessary. Where a person must decide, the person gets
/// your answer as a recommendation; the result is then the person's decision, or says how the
/// person can decide.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerPlan {
    /// The id in the plan_approval_request, review_request or permission_request.
    pub request_id: RequestId,
    /// True to approve, false to reject.
    pub approve: bool,
    /// What to change (if you reject), or what to watch out for.
    #[serde(default)]
    pub feedback: String,
}

impl AnswerPlan {
    /// Describes an answer that is recorded.
    pub fn report(approve: bool) -> &'static str {
        if approve {
            "approved: the gate of its author is open, the task that was reviewed is completed, or the tool may be used"
        } else {
            "rejected: its author has your feedback; a gate that was closed stays closed"
        }
    }
}
