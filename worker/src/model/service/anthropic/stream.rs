//! Anthropic's Messages API: the events of an answer. Pure.
//!
//! `message_start`, then for each block `content_block_start`, any number of `content_block_delta`,
//! `content_block_stop`, then `message_delta` and `message_stop`; `ping` and `error` at any time. Types that are not
//! known are part of the contract: such events are passed over, such blocks kept as they are.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use teamd_shared::transcript::{Block, Cut, Usage};

use crate::model::Answer;
use crate::model::service::events::ServerEvent;
use crate::model::service::failure::Failure;
use crate::model::service::wire::{AnswerReader, ContentLength, Piece, cut_off, input, json, shallow, text};

/// An answer that is being read.
#[derive(Debug, Default)]
pub(super) struct AnthropicReader {
    blocks: BTreeMap<u64, PartialBlock>,
    usage: Usage,
    stop: Option<String>,
    done: bool,
    length: ContentLength,
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
    fn event(&mut self, event: &ServerEvent) -> Result<Option<String>, Failure> {
        let value = json(&event.data)?;
        let index = value["index"].as_u64().unwrap_or_default();
        match value["type"].as_str().unwrap_or(&event.name) {
            "message_start" => self.count(&value["message"]["usage"]),
            "content_block_start" => {
                let block = value["content_block"].clone();
                self.length.add(&block)?;
                let text = block["text"].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
                self.blocks.insert(index, PartialBlock { block, json: String::new() });
                return Ok(text);
            }
            "content_block_delta" => {
                self.length.add(&value["delta"])?;
                if let Some(partial) = self.blocks.get_mut(&index) {
                    return Ok(partial.grow(&value["delta"]));
                }
            }
            "message_delta" => {
                if let Some(stop) = value["delta"]["stop_reason"].as_str() {
                    self.stop = Some(stop.to_owned());
                }
                self.count(&value["usage"]);
            }
            "message_stop" => self.done = true,
            "error" => return Err(Failure::of_event(&value)),
            _ => {}
        }
        Ok(None)
    }

    fn whole(&mut self, body: &Value) -> Result<Option<String>, Failure> {
        let Some(content) = body["content"].as_array() else {
            return Err(Failure::of_event(body));
        };
        let partial = |block: &Value| PartialBlock { block: block.clone(), json: String::new() };
        self.blocks = (0..).zip(content.iter().map(partial)).collect();
        self.length.add(&body["content"])?;
        self.stop = body["stop_reason"].as_str().map(str::to_owned);
        self.count(&body["usage"]);
        self.done = true;
        let text: String = content.iter().filter_map(|block| block["text"].as_str()).collect();
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn is_complete(&self) -> bool {
        self.done || self.stop.is_some()
    }

    fn end(self: Box<Self>) -> Result<Piece, Failure> {
        // Some gateways leave `message_stop` out: the reason to stop says as well that nothing is missing.
        if !self.is_complete() {
            return Err(cut_off());
        }
        let cut = match self.stop.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => Some(Cut::Length),
            Some("refusal") => Some(Cut::Refusal),
            _ => None,
        };
        let paused = self.stop.as_deref() == Some("pause_turn");
        let content = self.blocks.into_values().filter_map(PartialBlock::finish).collect();
        Ok(Piece { answer: Answer { content, usage: self.usage, cut, length: None }, paused })
    }
}

impl AnthropicReader {
    /// Takes the counters that are there: the last count of each holds for the whole answer.
    fn count(&mut self, usage: &Value) {
        let Usage { input_tokens, output_tokens, cache_read_input_tokens, cache_creation_input_tokens } =
            &mut self.usage;
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
    /// Adds what came; returns it if it is text to be heard.
    fn grow(&mut self, delta: &Value) -> Option<String> {
        let Value::Object(fields) = delta else { return None };
        if let Some(Value::String(json)) = fields.get("partial_json") {
            self.json.push_str(json);
            return None;
        }
        // Citations come one by one, and are not kept.
        for (name, value) in fields.iter().filter(|(name, _)| !matches!(name.as_str(), "type" | "citation")) {
            match (self.block.get_mut(name), value) {
                (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
                _ => self.set(name, value.clone()),
            }
        }
        let text = fields.get("text").and_then(Value::as_str)?;
        (self.block["type"] == "text").then(|| text.to_owned())
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
                // One that cannot be kept is not sent back.
                let kept = shallow(self.block);
                kept.is_object().then_some(Block::Opaque { value: kept })
            }
            // Without a type it cannot be sent back.
            None => None,
        }
    }
}
