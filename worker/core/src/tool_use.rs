//! A call of a tool, as the model asked for it.

use serde_json::Value;
use teamd_shared::id::RequestId;
use uuid::Uuid;

/// A call that the model asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolUse {
    /// Its id, unique in the transcript.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its input.
    pub input: Value,
    /// The id of the message that it sends, if it sends one.
    pub message_id: Option<Uuid>,
    /// The id of the request that it asks, if it asks one.
    pub request_id: Option<RequestId>,
    /// Whether an earlier incarnation may have begun it.
    pub repeated: bool,
    /// Whether it was made while an earlier call had no result.
    pub is_beside: bool,
}
