//! `plan_approval` of a teammate: submits a plan. The verdict is the result of the call.

use schemars::JsonSchema;
use serde::Deserialize;

use teamd_shared::tools::input::not_blank;

/// Submits a plan to the lead: what you will change, where, in which order, and how you will check
/// it. Use it before major work, and whenever your gate is closed. Your gate closes (you can read,
/// but change nothing), and the call returns with the verdict: approved (the gate is open; do the
/// work), or rejected with feedback (submit a revised plan).
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanApproval {
    /// The complete plan.
    #[serde(deserialize_with = "not_blank")]
    pub plan: String,
}
