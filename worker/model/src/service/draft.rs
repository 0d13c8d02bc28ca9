//! An answer while it arrives, from any provider: the provider's file adds each event to the blocks
//! of this draft. Pure.
//!
//! A block has Anthropic's form: an object with a `type`, whose texts grow. Only the input of a
//! call is separate, as the text of a JSON object.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use teamd_shared::message::is_nested_within;
use teamd_shared::transcript::{Block, Cut, Usage};

use super::failure::{Failure, FailureKind};
use crate::ModelAnswer;

/// How long the content of an answer may be, in bytes: texts and the arguments of calls, not the
/// events around them.
const MAX_ANSWER: usize = 16 << 20;

/// How deeply a part of an answer may be nested. It becomes part of a transcript entry, which must
/// stay readable.
const MAX_NEST: usize = 64;

/// The part of an answer that has arrived.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// The blocks by their places.
    pub(super) blocks: BTreeMap<u64, PartialBlock>,
    /// The text that came since the caller has taken it out.
    pub(super) new_text: String,
    /// What it cost.
    pub(super) usage: Usage,
    /// Whether the model refuses to answer.
    pub(super) refused: bool,
    /// Whether all of it was read.
    pub(super) is_done: bool,
    /// Why it ended, in the words of the service.
    stop: Option<String>,
    length: usize,
}

/// The part of a block that has arrived.
#[derive(Debug)]
pub(super) struct PartialBlock {
    /// The block so far, without the input of a call.
    pub(super) block: Value,
    /// The input of a call, as text.
    json: String,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    /// The answer, or the next piece of one.
    pub(super) answer: ModelAnswer,
    /// Whether the service has paused it. Sent back unchanged, it continues.
    pub(super) paused: bool,
}

impl Draft {
    /// Begins a block.
    ///
    /// # Errors
    /// [`FailureKind::TooLarge`] if the answer is longer than any that makes sense.
    pub(super) fn begin(&mut self, place: u64, block: Value) -> Result<(), Failure> {
        self.measure(&block)?;
        self.new_text.push_str(text(&block["text"]));
        self.blocks.insert(
            place,
            PartialBlock {
                block,
                json: String::new(),
            },
        );
        Ok(())
    }

    /// Adds to a block, if it was begun: texts grow, other fields are set.
    ///
    /// # Errors
    /// As [`Draft::begin`].
    pub(super) fn grow(&mut self, place: u64, delta: &Value) -> Result<(), Failure> {
        self.measure(delta)?;
        if !delta.is_object() {
            return Ok(());
        }
        let Some(PartialBlock {
            block: Value::Object(block),
            json,
        }) = self.blocks.get_mut(&place)
        else {
            return Ok(());
        };
        if block.get("type").is_some_and(|kind| kind == "text") {
            self.new_text.push_str(text(&delta["text"]));
        }
        json.push_str(text(&delta["partial_json"]));
        for (name, value) in delta.as_object().into_iter().flatten() {
            // Citations come one by one, and are not kept.
            if matches!(name.as_str(), "type" | "partial_json" | "citation") {
                continue;
            }
            match (block.get_mut(name), value) {
                (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
                _ => drop(block.insert(name.clone(), value.clone())),
            }
        }
        Ok(())
    }

    fn measure(&mut self, part: &Value) -> Result<(), Failure> {
        self.length += length_of(part);
        if self.length > MAX_ANSWER {
            return Err(Failure::new(
                FailureKind::TooLarge,
                "it is longer than 16 MiB",
            ));
        }
        Ok(())
    }

    /// Records why the answer ended, if the value is a reason.
    pub(super) fn set_stop(&mut self, reason: &Value) {
        if let Some(reason) = reason.as_str().filter(|reason| !reason.is_empty()) {
            self.stop = Some(reason.to_owned());
        }
    }

    /// Tells whether it was said why the answer ended: what may follow (what it cost, a last word)
    /// can be missed.
    pub(super) fn is_complete(&self) -> bool {
        self.is_done || self.stop.is_some()
    }

    /// Returns the answer. It is complete.
    pub(super) fn end(self) -> Piece {
        let cut = match self.stop.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded" | "length") => Some(Cut::Length),
            Some("refusal" | "content_filter") => Some(Cut::Refusal),
            _ => self.refused.then_some(Cut::Refusal),
        };
        let paused = self.stop.as_deref() == Some("pause_turn");
        let content = self
            .blocks
            .into_values()
            .filter_map(PartialBlock::finish)
            .collect();
        Piece {
            answer: ModelAnswer {
                content,
                usage: self.usage,
                cut,
                length: None,
            },
            paused,
        }
    }
}

impl PartialBlock {
    /// Returns what it is in a transcript. What has no type (but for what OpenAI's models reason)
    /// cannot be sent back.
    fn finish(mut self) -> Option<Block> {
        match self.block["type"].as_str() {
            Some("text") => {
                let text = text(&self.block["text"]).to_owned();
                (!text.trim().is_empty()).then_some(Block::Text { text })
            }
            Some("tool_use") => {
                let input = match &self.block["input"] {
                    _ if !self.json.is_empty() => input(&self.json),
                    Value::Null => json!({}),
                    whole @ Value::Object(_) => shallow(whole.clone()),
                    other => Value::String(other.to_string()),
                };
                let id = text(&self.block["id"]).to_owned();
                let name = text(&self.block["name"]).to_owned();
                Some(Block::ToolUse {
                    id,
                    name,
                    input,
                    message_id: None,
                    request_id: None,
                })
            }
            kind if kind.is_some() || self.block["reasoning_content"].is_string() => {
                if !self.json.is_empty() {
                    self.block["input"] = input(&self.json);
                }
                // A block that is nested too deeply is not sent back.
                let value = shallow(self.block);
                value.is_object().then_some(Block::Opaque { value })
            }
            _ => None,
        }
    }
}

fn length_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(length_of).sum(),
        Value::Object(fields) => fields.values().map(length_of).sum(),
        _ => 1,
    }
}

/// Returns a text; empty for any other value.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Reads the streamed input of a call: an object, or else the text itself.
fn input(text: &str) -> Value {
    match serde_json::from_str::<Value>(text) {
        Ok(value @ Value::Object(_)) => shallow(value),
        Ok(Value::Null) => json!({}),
        _ if text.trim().is_empty() => json!({}),
        _ => Value::String(text.to_owned()),
    }
}

/// Turns a value that is nested too deeply for a transcript into a text. The tool then refuses it,
/// so that the model learns of it.
fn shallow(value: Value) -> Value {
    if is_nested_within(&value, MAX_NEST) {
        value
    } else {
        Value::String(value.to_string())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use teamd_shared::transcript::Event;

    use super::*;

    proptest! {
        #[test]
        fn a_call_can_be_read_again_however_deeply_its_input_is_nested(deep in 50_usize..140) {
            let text = format!("{{\"a\":{}1{}}}", "[".repeat(deep), "]".repeat(deep));
            let input = input(&text);
            prop_assert_eq!(input.is_object(), deep < MAX_NEST, "else it is a text, which the model sees");
            let (id, name) = ("1".to_owned(), "bash".to_owned());
            let call = Block::ToolUse { id, name, input, message_id: None, request_id: None };
            let answer = Event::Answer { content: vec![call], usage: Default::default(), cut: None, length: None, model_calls: 1 };
            let written = serde_json::to_string(&answer).unwrap();
            prop_assert_eq!(serde_json::from_str::<Event>(&written).unwrap(), answer);
        }
    }
}
