//! Anthropic's Messages API: the events of an answer. Pure.
//!
//! `message_start`, then for each block `content_block_start`, any number of `content_block_delta`,
//! `content_block_stop`, then `message_delta` and `message_stop`; `ping` and `error` at any time. Types that are not
//! known are part of the contract: such events are passed over, such blocks kept as they are.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use teamd_shared::transcript::{Block, Cut, Usage};

use crate::model::Answer;
use crate::model::service::events::Event;
use crate::model::service::failure::{Complaint, Failure};
use crate::model::service::wire::{Piece, Reading, input, json, shallow};

/// An answer that is being read.
#[derive(Debug, Default)]
pub(super) struct Stream {
    blocks: BTreeMap<u64, Building>,
    usage: Usage,
    stop: Option<String>,
    done: bool,
    /// How many bytes of content came.
    length: usize,
}

/// A block as it stands so far.
#[derive(Debug)]
struct Building {
    /// As it was begun, with what came since; but for the input of a call.
    block: Value,
    /// The input of a call, as text.
    json: String,
}

impl Reading for Stream {
    fn event(&mut self, event: &Event) -> Result<Option<String>, Failure> {
        let value = json(&event.data)?;
        let index = value["index"].as_u64().unwrap_or_default();
        match value["type"].as_str().unwrap_or(&event.name) {
            "message_start" => self.count(&value["message"]["usage"]),
            "content_block_start" => {
                let block = value["content_block"].clone();
                self.length += texts(&block);
                let text = block["text"].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
                self.blocks.insert(index, Building { block, json: String::new() });
                return Ok(text);
            }
            "content_block_delta" => {
                self.length += texts(&value["delta"]);
                if let Some(building) = self.blocks.get_mut(&index) {
                    return Ok(building.grow(&value["delta"]));
                }
            }
            "message_delta" => {
                if let Some(stop) = value["delta"]["stop_reason"].as_str() {
                    self.stop = Some(stop.to_owned());
                }
                self.count(&value["usage"]);
            }
            "message_stop" => self.done = true,
            "error" => return Err(Failure::Service(Complaint::of_event(&value))),
            _ => {}
        }
        Ok(None)
    }

    fn whole(&mut self, body: &Value) -> Result<Option<String>, Failure> {
        let Some(content) = body["content"].as_array() else {
            return Err(Failure::Service(Complaint::of_event(body)));
        };
        let building = |block: &Value| Building { block: block.clone(), json: String::new() };
        self.blocks = (0..).zip(content.iter().map(building)).collect();
        self.length = content.iter().map(texts).sum();
        self.stop = body["stop_reason"].as_str().map(str::to_owned);
        self.count(&body["usage"]);
        self.done = true;
        let text: String = content.iter().filter_map(|block| block["text"].as_str()).collect();
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    fn length(&self) -> usize {
        self.length
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
            return Err(Failure::Cut);
        }
        let cut = match self.stop.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => Some(Cut::Length),
            Some("refusal") => Some(Cut::Refusal),
            _ => None,
        };
        let paused = self.stop.as_deref() == Some("pause_turn");
        let content = self.blocks.into_values().filter_map(Building::finish).collect();
        Ok(Piece { answer: Answer { content, usage: self.usage, cut, length: None }, paused })
    }
}

/// Counts the bytes of the texts in a block or a delta.
fn texts(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(texts).sum(),
        Value::Object(fields) => fields.values().map(texts).sum(),
        _ => 1,
    }
}

impl Stream {
    /// Takes the counters that are there: the last count of each holds for the whole answer.
    fn count(&mut self, usage: &Value) {
        let set = |name: &str, counter: &mut u64| {
            if let Some(tokens) = usage[name].as_u64() {
                *counter = tokens;
            }
        };
        set("input_tokens", &mut self.usage.input_tokens);
        set("output_tokens", &mut self.usage.output_tokens);
        set("cache_read_input_tokens", &mut self.usage.cache_read_input_tokens);
        set("cache_creation_input_tokens", &mut self.usage.cache_creation_input_tokens);
    }
}

impl Building {
    /// Adds what came; returns it if it is text to be heard.
    fn grow(&mut self, delta: &Value) -> Option<String> {
        let Value::Object(fields) = delta else { return None };
        if let Some(Value::String(json)) = fields.get("partial_json") {
            self.json.push_str(json);
            return None;
        }
        for (name, value) in fields.iter().filter(|(name, _)| *name != "type") {
            match (self.block.get_mut(name), value) {
                (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
                // Citations and the like come one by one.
                _ if name == "citation" => {}
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
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match self.block["type"].as_str() {
            Some("text") => {
                let text = text(&self.block["text"]);
                (!text.trim().is_empty()).then_some(Block::Text { text })
            }
            Some("tool_use") => {
                let input = match (self.json.is_empty(), &self.block["input"]) {
                    (true, whole @ Value::Object(_)) => shallow(whole.clone()),
                    (true, Value::Null) => Value::Object(Map::new()),
                    (true, other) => Value::String(other.to_string()),
                    (false, _) => input(&self.json),
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
