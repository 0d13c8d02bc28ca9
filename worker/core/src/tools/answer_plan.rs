//! The input of `plan_approval` as the lead agent calls it.

use schemars::JsonSchema;
use serde::Deserialize;
use teamd_shared::id::RequestId;

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
