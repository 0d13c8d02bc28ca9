//! Writes a line that every reader can read.

use serde_json::{Map, Value};

use super::{MAX_LINE, Message};

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
        if line.len() > MAX_LINE {
            Err(TooLarge { size: line.len() })
        } else {
            Ok(line)
        }
    }

    /// Returns the message as the JSON object that is in the file, in the order of the table in
    /// `docs/protocol.md`.
    pub fn to_json(&self) -> Value {
        let mut fields = Map::new();
        fields.extend(self.id.map(|id| ("id".to_owned(), id.to_string().into())));
        fields.insert("type".to_owned(), self.body.kind().into());
        fields.insert("from".to_owned(), self.from.as_str().into());
        fields.extend(self.to.clone().map(|to| ("to".to_owned(), to.into())));
        fields.extend(self.timestamp.map(|at| ("timestamp".to_owned(), at.into())));
        fields.insert("content".to_owned(), self.content.as_str().into());
        // All its keys are text: it cannot fail.
        if let Ok(Value::Object(body)) = serde_json::to_value(&self.body) {
            fields.extend(body);
        }
        for (name, value) in &self.extra {
            fields.entry(name).or_insert_with(|| value.clone());
        }
        fields.into()
    }
}

/// Writes JSON on one line that no reader splits: U+0085, U+2028 and U+2029 count as line ends for
/// some (Python's `splitlines` among them), so they are escaped.
pub fn to_json_line(value: &Value) -> Vec<u8> {
    let text = value.to_string();
    if text.is_ascii() || !text.contains(['\u{85}', '\u{2028}', '\u{2029}']) {
        return text.into_bytes();
    }
    let text = text
        .replace('\u{85}', "\\u0085")
        .replace('\u{2028}', "\\u2028");
    text.replace('\u{2029}', "\\u2029").into_bytes()
}
