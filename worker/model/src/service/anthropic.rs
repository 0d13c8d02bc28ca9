//! Anthropic's Messages API: a prompt becomes a request, and events become an answer. Pure.
//!
//! Sources: the API reference of `POST /v1/messages`, version 2023-06-01, and its guides to tool
//! use and prompt caching. A request may have at most four cache marks, and the cache looks back at
//! most 20 blocks from each. The marks follow the tools (which all teammates share), the system
//! prompt, and the last two turns of the user. The cached part of the previous request ends exactly
//! at the first of these two turns, no matter how many blocks came since.
//!
//! An answer comes as `message_start`, then for each block `content_block_start`, any number of
//! `content_block_delta`, `content_block_stop`, then `message_delta` and `message_stop`; `ping` and
//! `error` at any time. Unknown types are part of the contract: such events are ignored, and such
//! blocks are kept unchanged.
//!
//! Requests name no tools that run at the service, but a gateway may add some. Their calls arrive
//! as `server_tool_use` with a matching result in the same answer. The service refuses one without
//! the other, except at the end of a paused answer (`pause_turn`), which is sent back unchanged.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use teamd_shared::image::Image;
use teamd_shared::model_spec::Provider;
use teamd_shared::transcript::Usage;

use super::catalog::{max_output, takes_images};
use super::draft::Draft;
use super::events::ServerEvent;
use super::failure::Failure;
use super::wire::{Wire, counted, identifier, json as parse, name, object};
use teamd_worker_core::secret::Secret;
use teamd_worker_core::tools::ToolText;

use crate::prompt::{Prompt, PromptTurn, Role, TurnPart};

/// How many bytes of a request count as a token. The estimate is meant to be rather too high.
const BYTES_A_TOKEN: u64 = 3;

/// The minimum room for an answer, in tokens; less would not be worth the call.
const LEAST_OUTPUT: u64 = 1024;

/// The wire format of one model.
#[derive(Debug)]
pub(super) struct Anthropic {
    model: String,
    /// The tokens that a prompt and its answer may have together.
    window: u64,
    /// Whether thinking is sent back. A model refuses the thinking of another model, and its own
    /// once the conversation was summed up.
    sends_opaque: bool,
    /// Whether images are sent: the model takes them, as far as that is known.
    sends_images: bool,
}

impl Anthropic {
    /// Makes the format for a model, given the tokens that a prompt and its answer may have
    /// together.
    pub(super) fn new(model: &str, window: u64) -> Self {
        Self {
            model: model.to_owned(),
            window,
            sends_opaque: true,
            sends_images: takes_images(Provider::Anthropic, model),
        }
    }

    /// Returns how many tokens the answer may have: what is wanted, as far as the window has room
    /// behind a prompt of so many bytes.
    fn room(&self, wanted: Option<u64>, bytes: usize) -> u64 {
        let prompt = u64::try_from(bytes).unwrap_or(u64::MAX) / BYTES_A_TOKEN;
        let left = self.window.saturating_sub(prompt).max(LEAST_OUTPUT);
        wanted
            .unwrap_or_else(|| max_output(&self.model))
            .min(left)
            .max(1)
    }

    fn message(&self, turn: &PromptTurn, marked: bool) -> Value {
        let role = match turn.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        let mut content = self.content(turn);
        pair(&mut content);
        if content.is_empty() {
            content.push(json!({ "type": "text", "text": "(nothing)" }));
        }
        if marked {
            content.last_mut().map(mark);
        }
        json!({ "role": role, "content": content })
    }

    /// Writes an answer that the service has paused, if anything of it can go back.
    fn paused(&self, turn: &PromptTurn) -> Option<Value> {
        let mut content = self.content(turn);
        // A request that ends with an answer must not end with a space.
        if let Some(Value::String(text)) = content.last_mut().and_then(|last| last.get_mut("text"))
        {
            text.truncate(text.trim_end().len());
        }
        (!content.is_empty()).then(|| json!({ "role": "assistant", "content": content }))
    }

    fn content(&self, turn: &PromptTurn) -> Vec<Value> {
        turn.parts
            .iter()
            .filter_map(|part| self.block(part))
            .collect()
    }

    /// Writes the content of a result: a text, or a list with the images behind it.
    fn with_images(&self, text: &str, images: &[Image]) -> Value {
        if images.is_empty() || !self.sends_images {
            return json!(text);
        }
        let mut content = vec![json!({ "type": "text", "text": text })];
        for image in images {
            let source =
                json!({ "type": "base64", "media_type": image.media_type, "data": image.data });
            content.push(json!({ "type": "image", "source": source }));
        }
        Value::Array(content)
    }

    fn block(&self, part: &TurnPart) -> Option<Value> {
        match part {
            TurnPart::Text(text) if text.trim().is_empty() => None,
            TurnPart::Text(text) => Some(json!({ "type": "text", "text": text })),
            TurnPart::Call {
                id,
                name: tool,
                input,
            } => {
                let id = wire_id(id);
                let tool = name(tool);
                Some(json!({ "type": "tool_use", "id": id, "name": tool, "input": object(input) }))
            }
            TurnPart::Result {
                id,
                content,
                is_error,
                images,
            } => {
                let content = if content.is_empty() {
                    "(no output)"
                } else {
                    content
                };
                let content = self.with_images(content, images);
                let mut result = json!({ "type": "tool_result", "tool_use_id": wire_id(id), "content": content });
                if *is_error {
                    result["is_error"] = Value::Bool(true);
                }
                Some(result)
            }
            // Another provider's has no type.
            TurnPart::Opaque(value) => {
                (self.sends_opaque && value["type"].is_string()).then(|| value.clone())
            }
        }
    }
}

impl Wire for Anthropic {
    fn path(&self) -> &'static str {
        "v1/messages"
    }

    fn headers(&self, key: Option<&Secret>) -> Vec<(&'static str, String)> {
        let key = key.map(|key| match key.variable() {
            "ANTHROPIC_AUTH_TOKEN" => ("authorization", format!("Bearer {}", key.expose())),
            _ => ("x-api-key", key.expose().to_owned()),
        });
        key.into_iter()
            .chain([("anthropic-version", "2023-06-01".to_owned())])
            .collect()
    }

    fn body(&self, prompt: &Prompt<'_>) -> Value {
        let mut body = Map::new();
        let mut put = |field: &str, value: Value| body.insert(field.to_owned(), value);
        put("model", json!(self.model));
        put("max_tokens", Value::Null);
        put("stream", json!(true));
        if !prompt.tools.is_empty() {
            let mut tools: Vec<_> = prompt.tools.iter().map(tool).collect();
            tools.last_mut().map(mark);
            put("tools", Value::Array(tools));
        }
        if !prompt.system.trim().is_empty() {
            let mut system = json!({ "type": "text", "text": prompt.system });
            mark(&mut system);
            put("system", json!([system]));
        }
        let of_user = prompt
            .turns
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, turn)| turn.role == Role::User);
        let marked: Vec<usize> = of_user.take(2).map(|(place, _)| place).collect();
        let (turns, paused) = match prompt.turns.split_last() {
            Some((last, before)) if last.role == Role::Assistant => (before, self.paused(last)),
            _ => (prompt.turns, None),
        };
        put(
            "messages",
            turns
                .iter()
                .enumerate()
                .map(|(place, turn)| self.message(turn, marked.contains(&place)))
                .chain(paused)
                .collect(),
        );
        let mut body = Value::Object(body);
        let written = body.to_string().len();
        let bytes = if self.sends_images {
            counted(prompt.turns, written)
        } else {
            written
        };
        body["max_tokens"] = json!(self.room(prompt.max_output, bytes));
        body
    }

    fn read(&self, event: &ServerEvent, draft: &mut Draft) -> Result<(), Failure> {
        read_event(event, draft)
    }

    fn adapt(&mut self, failure: &Failure) -> bool {
        let is_about_images = failure.has_status(&[400]) && failure.mentions(&["image"]);
        if is_about_images && std::mem::take(&mut self.sends_images) {
            return true;
        }
        let is_about_thinking =
            failure.has_status(&[400]) && failure.mentions(&["thinking", "signature"]);
        is_about_thinking && std::mem::take(&mut self.sends_opaque)
    }
}

fn tool(tool: &ToolText) -> Value {
    json!({ "name": tool.name, "description": tool.description, "input_schema": tool.input })
}

/// Marks a block: the request up to it goes into the cache.
fn mark(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}

/// Returns an id that the API accepts; ids of other services may have other characters.
fn wire_id(id: &str) -> String {
    identifier(id.chars())
}

/// Applies the next event, or an answer that came in one piece.
fn read_event(event: &ServerEvent, draft: &mut Draft) -> Result<(), Failure> {
    let value = parse(&event.data)?;
    let index = value["index"].as_u64().unwrap_or_default();
    match value["type"].as_str().unwrap_or(&event.name) {
        "message_start" => count(&value["message"]["usage"], &mut draft.usage),
        "content_block_start" => draft.begin(index, value["content_block"].clone())?,
        "content_block_delta" => draft.grow(index, &value["delta"])?,
        "message_delta" => {
            draft.set_stop(&value["delta"]["stop_reason"]);
            count(&value["usage"], &mut draft.usage);
        }
        "message_stop" => draft.is_done = true,
        "error" => return Err(Failure::of_event(&value)),
        _ => {
            let Some(blocks) = value["content"].as_array() else {
                return Ok(());
            };
            for (index, block) in (0..).zip(blocks) {
                draft.begin(index, block.clone())?;
            }
            draft.set_stop(&value["stop_reason"]);
            count(&value["usage"], &mut draft.usage);
            draft.is_done = true;
        }
    }
    Ok(())
}

/// Copies the counters of an event. The last value of each is the one of the whole answer.
pub(super) fn count(said: &Value, usage: &mut Usage) {
    for (name, counter) in [
        ("input_tokens", &mut usage.input_tokens),
        ("output_tokens", &mut usage.output_tokens),
        (
            "cache_read_input_tokens",
            &mut usage.cache_read_input_tokens,
        ),
        (
            "cache_creation_input_tokens",
            &mut usage.cache_creation_input_tokens,
        ),
    ] {
        *counter = said[name].as_u64().unwrap_or(*counter);
    }
}

/// Removes every use without a later result, and every result without an earlier use. An answer
/// that was cut, or paused and not continued, may have one, and the service refuses it.
fn pair(content: &mut Vec<Value>) {
    let mut used = HashSet::new();
    let mut paired = HashSet::new();
    for block in content.iter() {
        if let Some(id) = use_of(block) {
            used.insert(id.to_owned());
        } else if let Some(id) = result_of(block)
            && used.contains(id)
        {
            paired.insert(id.to_owned());
        }
    }
    let mut seen = HashSet::new();
    content.retain(|block| match (use_of(block), result_of(block)) {
        (Some(id), _) => paired.contains(id) && seen.insert(id.to_owned()),
        (None, Some(id)) => seen.contains(id),
        (None, None) => true,
    });
}

/// Returns the id of a use: `server_tool_use`, `mcp_tool_use`.
fn use_of(block: &Value) -> Option<&str> {
    let kind = block["type"].as_str()?;
    kind.ends_with("_tool_use")
        .then(|| block["id"].as_str().unwrap_or_default())
}

/// Returns the id of the use that a result belongs to: `web_search_tool_result` and the like. A
/// plain `tool_result` is ours.
fn result_of(block: &Value) -> Option<&str> {
    let kind = block["type"].as_str()?;
    kind.ends_with("_tool_result")
        .then(|| block["tool_use_id"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests;
