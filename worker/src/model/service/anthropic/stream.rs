//! Anthropic's Messages API: the events of an answer. Pure.
//!
//! `message_start`, then for each block `content_block_start`, any number of `content_block_delta`,
//! `content_block_stop`, then `message_delta` and `message_stop`; `ping` and `error` at any time. Types that are not
//! known are part of the contract: such events are passed over, such blocks kept as they are.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use teamd_shared::transcript::{Block, Cut, Usage};

use crate::model::service::events::ServerEvent;
use crate::model::service::failure::Failure;
use crate::model::service::wire::{AnswerReader, Draft, Piece, input, json, shallow, text};

/// An answer that is being read.
#[derive(Debug, Default)]
pub(super) struct AnthropicReader {
    blocks: BTreeMap<u64, PartialBlock>,
    draft: Draft,
}

/// A block as it stands so far.
#[derive(Debug)]
struct PartialBlock {
    /// As it was begun, with what came since; but for the input of a call.
    block: Value,
    /// The input of a call, as text.
    json: String,
}

impl AnswerReader for AnthropicReader {
    fn event(&mut self, event: &ServerEvent) -> Result<String, Failure> {
        let value = json(&event.data)?;
        let index = value["index"].as_u64().unwrap_or_default();
        match value["type"].as_str().unwrap_or(&event.name) {
            "message_start" => self.count(&value["message"]["usage"]),
            "content_block_start" => return self.begin(index, &value["content_block"]),
            "content_block_delta" => {
                self.draft.grow(&value["delta"])?;
                if let Some(partial) = self.blocks.get_mut(&index) {
                    return Ok(partial.grow(&value["delta"]));
                }
            }
            "message_delta" => {
                self.draft.set_stop(&value["delta"]["stop_reason"]);
                self.count(&value["usage"]);
            }
            "message_stop" => self.draft.is_done = true,
            "error" => return Err(Failure::of_event(&value)),
            _ if value["content"].is_array() => return self.whole(&value),
            _ => {}
        }
        Ok(String::new())
    }

    fn draft(&self) -> &Draft {
        &self.draft
    }

    fn end(self: Box<Self>) -> Piece {
        let cut = match self.draft.stop.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => Some(Cut::Length),
            Some("refusal") => Some(Cut::Refusal),
            _ => None,
        };
        let content = self.blocks.into_values().filter_map(PartialBlock::finish).collect();
        self.draft.piece(content, cut)
    }
}

impl AnthropicReader {
    /// Begins a block; returns the text in it.
    fn begin(&mut self, index: u64, block: &Value) -> Result<String, Failure> {
        self.draft.grow(block)?;
        self.blocks.insert(index, PartialBlock { block: block.clone(), json: String::new() });
        Ok(text(&block["text"]))
    }

    /// Takes in an answer that came in one piece.
    fn whole(&mut self, body: &Value) -> Result<String, Failure> {
        let mut said = String::new();
        for (index, block) in (0..).zip(body["content"].as_array().into_iter().flatten()) {
            said += &self.begin(index, block)?;
        }
        self.draft.set_stop(&body["stop_reason"]);
        self.count(&body["usage"]);
        self.draft.is_done = true;
        Ok(said)
    }

    /// Takes the counters that are there: the last count of each holds for the whole answer.
    fn count(&mut self, usage: &Value) {
        let Usage { input_tokens, output_tokens, cache_read_input_tokens, cache_creation_input_tokens } =
            &mut self.draft.usage;
        for (name, counter) in [
            ("input_tokens", input_tokens),
            ("output_tokens", output_tokens),
            ("cache_read_input_tokens", cache_read_input_tokens),
            ("cache_creation_input_tokens", cache_creation_input_tokens),
        ] {
            *counter = usage[name].as_u64().unwrap_or(*counter);
        }
    }
}

impl PartialBlock {
    /// Adds what came; returns the text in it.
    fn grow(&mut self, delta: &Value) -> String {
        let Value::Object(fields) = delta else { return String::new() };
        // The input of a call comes as text. Citations come one by one, and are not kept.
        self.json.push_str(&text(&delta["partial_json"]));
        let adds = |name: &&String| !matches!(name.as_str(), "type" | "partial_json" | "citation");
        for (name, value) in fields.iter().filter(|(name, _)| adds(name)) {
            match (self.block.get_mut(name), value) {
                (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
                _ => self.set(name, value.clone()),
            }
        }
        if self.block["type"] == "text" { text(&delta["text"]) } else { String::new() }
    }

    fn set(&mut self, name: &str, value: Value) {
        if let Value::Object(block) = &mut self.block {
            block.insert(name.to_owned(), value);
        }
    }

    fn finish(mut self) -> Option<Block> {
        match self.block["type"].as_str() {
            Some("text") => {
                let text = text(&self.block["text"]);
                (!text.trim().is_empty()).then_some(Block::Text { text })
            }
            Some("tool_use") => {
                let input = match &self.block["input"] {
                    _ if !self.json.is_empty() => input(&self.json),
                    Value::Null => Value::Object(Map::new()),
                    whole @ Value::Object(_) => shallow(whole.clone()),
                    other => Value::String(other.to_string()),
                };
                let (id, name) = (text(&self.block["id"]), text(&self.block["name"]));
                Some(Block::ToolUse { id, name, input, message_id: None, request_id: None })
            }
            Some(_) => {
                if !self.json.is_empty() {
                    let input = input(&self.json);
                    self.set("input", input);
                }
                // A block that is nested too deeply is not sent back.
                let value = shallow(self.block);
                value.is_object().then_some(Block::Opaque { value })
            }
            // Without a type it cannot be sent back.
            None => None,
        }
    }
}
