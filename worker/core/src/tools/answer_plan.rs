//! The input of `plan_approval` as the lead agent calls it.

use schemars::JsonSchema;
use serde::Deserialize;
use teamd_shared::id::RequestId;

/// Answers the plan of a teammate: `approve` true opens its gate, false leaves it closed, and
/// `feedback` says what to change. It answers the review of submitted work (`approve` true
/// completes the task, false sends it back) and the question of an agent whether it may use a tool,
/// too.
/// Read the plan or the work first, and look into the files if you have to. Where a person must
/// decide, your call is a recommendation: it is shown to the person, and the result is what the
/// person decided; or the result says how a person can answer.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerPlan {
    /// The id of the request, as it stands in the plan_approval_request, review_request or
    /// permission_request.
    pub request_id: RequestId,
    /// True to approve, false to reject.
    pub approve: bool,
    /// What to change (when you reject), or what to mind.
    #[serde(default)]
    pub feedback: String,
}
