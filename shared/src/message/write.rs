//! Writing a line that every reader can read.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use super::{AnsweredBy, Body, IdleReason, MAX_LINE, Message};

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
        // The other fields, mostly.
        let mut line = Vec::with_capacity(self.content.len() + 256);
        // All keys are text, and nothing is written but to memory: it cannot fail.
        serde_json::to_writer(&mut line, self).unwrap_or_default();
        let mut line = escaped(line);
        line.push(b'\n');
        if line.len() > MAX_LINE { Err(TooLarge { size: line.len() }) } else { Ok(line) }
    }

    /// Returns the message as the JSON object that stands in the file.
    pub fn to_json(&self) -> Value {
        // As above.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Tells whether a name is that of a field which is written, so that a field of the same name in `extra` is not.
    fn writes(&self, name: &str) -> bool {
        match name {
            "type" | "from" | "content" => true,
            "id" => self.id.is_some(),
            "to" => self.to.is_some(),
            "timestamp" => self.timestamp.is_some(),
            _ => self.body.fields().into_iter().flatten().any(|(own, _)| own == name),
        }
    }
}

/// In the order of the table in `docs/protocol.md`, without building a [`Value`]: every message passes here.
impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
        if let Some(id) = &self.id {
            object.serialize_entry("id", id)?;
        }
        object.serialize_entry("type", self.body.kind())?;
        object.serialize_entry("from", &self.from)?;
        if let Some(to) = &self.to {
            object.serialize_entry("to", to)?;
        }
        if let Some(timestamp) = &self.timestamp {
            object.serialize_entry("timestamp", timestamp)?;
        }
        object.serialize_entry("content", &self.content)?;
        for (name, field) in self.body.fields().into_iter().flatten() {
            object.serialize_entry(name, &field)?;
        }
        for (name, value) in self.extra.iter().filter(|(name, _)| !self.writes(name)) {
            object.serialize_entry(name, value)?;
        }
        object.end()
    }
}

/// The value of a field that only some types have.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Field<'m> {
    Text(&'m str),
    Flag(bool),
    Number(u64),
    Incarnation(Option<u32>),
    Seconds(Option<f64>),
    AnsweredBy(AnsweredBy),
    IdleReason(IdleReason),
    Json(&'m Value),
}

impl Body {
    /// Returns the fields beyond the common ones, in the order in which they are written.
    fn fields(&self) -> [Option<(&'static str, Field<'_>)>; 4] {
        let incarnation = |number: &Option<u32>| Some(("incarnation", Field::Incarnation(*number)));
        match self {
            Self::Message | Self::Broadcast | Self::PlanRequest | Self::Unknown { .. } => [const { None }; 4],
            Self::ShutdownRequest { request_id, incarnation: number, reason, decide_within } => [
                Some(("request_id", Field::Text(request_id.as_str()))),
                incarnation(number),
                Some(("reason", Field::Text(reason))),
                Some(("decide_within", Field::Seconds(*decide_within))),
            ],
            Self::ShutdownResponse { request_id, approve, reason, answered_by } => [
                Some(("request_id", Field::Text(request_id.as_str()))),
                Some(("approve", Field::Flag(*approve))),
                Some(("reason", Field::Text(reason))),
                answered_by.map(|by| ("answered_by", Field::AnsweredBy(by))),
            ],
            Self::PlanApprovalRequest { request_id, plan, incarnation: number } => [
                Some(("request_id", Field::Text(request_id.as_str()))),
                Some(("plan", Field::Text(plan))),
                incarnation(number),
                None,
            ],
            Self::PlanApprovalResponse { request_id, approve, feedback } => [
                Some(("request_id", Field::Text(request_id.as_str()))),
                Some(("approve", Field::Flag(*approve))),
                Some(("feedback", Field::Text(feedback))),
                None,
            ],
            Self::IdleNotification { idle_reason, summary } => [
                Some(("idle_reason", Field::IdleReason(*idle_reason))),
                Some(("summary", Field::Text(summary))),
                None,
                None,
            ],
            Self::TeammateTerminated { name, exit, unread } => [
                Some(("name", Field::Text(name))),
                Some(("exit", Field::Json(exit))),
                Some(("unread", Field::Number(*unread))),
                None,
            ],
        }
    }
}

/// Writes JSON on one line that no reader splits: U+0085, U+2028 and U+2029 count as line ends for some
/// (Python's `splitlines` among them), so they are escaped.
pub fn to_json_line(value: &Value) -> Vec<u8> {
    escaped(value.to_string().into_bytes())
}

fn escaped(json: Vec<u8>) -> Vec<u8> {
    match str::from_utf8(&json) {
        Ok(text) if !text.is_ascii() && text.contains(['\u{85}', '\u{2028}', '\u{2029}']) => {
            let text = text.replace('\u{85}', "\\u0085").replace('\u{2028}', "\\u2028");
            text.replace('\u{2029}', "\\u2029").into_bytes()
        }
        _ => json,
    }
}
