//! Writing a line that every reader can read.

use serde_json::{Map, Value, json};

use super::{AnsweredBy, Body, MAX_LINE, Message};

/// A message is longer than a line may be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the message has {size} bytes, the limit is {MAX_LINE}")]
pub struct TooLarge {
    /// The size of the line, in bytes.
    pub size: usize,
}

impl Message {
    /// Returns the message as one line, newline included.
    ///
    /// # Errors
    /// [`TooLarge`] if the line would be longer than [`MAX_LINE`].
    pub fn to_line(&self) -> Result<Vec<u8>, TooLarge> {
        let mut line = to_json_line(&self.to_json());
        line.push(b'\n');
        if line.len() > MAX_LINE { Err(TooLarge { size: line.len() }) } else { Ok(line) }
    }

    /// Returns the message as the JSON object that stands in the file.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        if let Some(id) = self.id {
            object.insert("id".into(), json!(id));
        }
        object.insert("type".into(), json!(self.body.kind()));
        object.insert("from".into(), json!(self.from));
        if let Some(to) = &self.to {
            object.insert("to".into(), json!(to));
        }
        if let Some(timestamp) = self.timestamp {
            object.insert("timestamp".into(), json!(timestamp));
        }
        object.insert("content".into(), json!(self.content));
        for (name, value) in self.body.fields() {
            object.insert(name.into(), value);
        }
        for (name, value) in &self.extra {
            object.entry(name.clone()).or_insert_with(|| value.clone());
        }
        Value::Object(object)
    }
}

impl Body {
    fn fields(&self) -> Vec<(&'static str, Value)> {
        match self {
            Self::Message | Self::Broadcast | Self::PlanRequest | Self::Unknown { .. } => Vec::new(),
            Self::ShutdownRequest { request_id, incarnation, reason, decide_within } => vec![
                ("request_id", json!(request_id)),
                ("incarnation", json!(incarnation)),
                ("reason", json!(reason)),
                ("decide_within", json!(decide_within)),
            ],
            Self::ShutdownResponse { request_id, approve, reason, answered_by } => vec![
                ("request_id", json!(request_id)),
                ("approve", json!(approve)),
                ("reason", json!(reason)),
                ("answered_by", json!(answered_by.unwrap_or(AnsweredBy::Model))),
            ],
            Self::PlanApprovalRequest { request_id, plan, incarnation } => vec![
                ("request_id", json!(request_id)),
                ("plan", json!(plan)),
                ("incarnation", json!(incarnation)),
            ],
            Self::PlanApprovalResponse { request_id, approve, feedback } => vec![
                ("request_id", json!(request_id)),
                ("approve", json!(approve)),
                ("feedback", json!(feedback)),
            ],
            Self::IdleNotification { idle_reason, summary } => {
                vec![("idle_reason", json!(idle_reason)), ("summary", json!(summary))]
            }
            Self::TeammateTerminated { name, exit, unread } => {
                vec![("name", json!(name)), ("exit", exit.clone()), ("unread", json!(unread))]
            }
        }
    }
}

/// Writes JSON on one line that no reader splits: U+0085, U+2028 and U+2029 count as line ends for some
/// (Python's `splitlines` among them), so they are escaped.
pub fn to_json_line(value: &Value) -> Vec<u8> {
    let text = value.to_string();
    if !text.is_ascii() && text.contains(['\u{85}', '\u{2028}', '\u{2029}']) {
        let text = text.replace('\u{85}', "\\u0085").replace('\u{2028}', "\\u2028");
        return text.replace('\u{2029}', "\\u2029").into_bytes();
    }
    text.into_bytes()
}
