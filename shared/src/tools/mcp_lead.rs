//! The inputs of the tools that only a lead that is connected by MCP has.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::Deserializer;

use super::input::checked;
use crate::id::RequestId;
use crate::task::TaskId;

/// The longest wait, in seconds: some clients give up after a minute.
const LONGEST: f64 = 50.0;

/// Shows the team: its teammates with role, status, gate and activity, the requests that wait for an
/// answer, and the leads that are connected.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TeamStatus {}

/// Waits until something comes for you: a plan, work to review, a message, the end of a piece of work
/// or of a teammate. Returns when there is something, or when the time is over.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitForEvents {
    /// How many seconds, at most 50.
    #[serde(deserialize_with = "seconds")]
    pub timeout: f64,
}

/// Answers a request for approval: the plan of a teammate (`approve` true opens its gate, so that
/// it can make changes; false leaves it closed), or the question whether a teammate may use a tool.
/// Read the plan first, and look at the files if necessary. Where a person must decide, your answer
/// does not count: tell the person what you recommend.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReviewPlan {
    /// The id in the plan_approval_request or permission_request.
    pub request_id: RequestId,
    /// True to approve, false to reject.
    pub approve: bool,
    /// What to change (if you reject), or what to watch out for.
    #[serde(default)]
    pub feedback: String,
}

/// Answers the review of submitted work: true completes the task, false sends it back. Read the work
/// first, with task_diff. Where a person must decide, your answer does not count: tell the person
/// what you recommend.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskReview {
    /// The number of the task.
    pub task_id: TaskId,
    /// True to complete it, false to send it back.
    pub approve: bool,
    /// What to change (if you send it back), or what to watch out for.
    #[serde(default)]
    pub feedback: String,
}

fn seconds<'de, D: Deserializer<'de>>(input: D) -> Result<f64, D::Error> {
    checked(
        input,
        |seconds| (0.0..=LONGEST).contains(seconds),
        "a number of seconds from 0 to 50",
    )
}
