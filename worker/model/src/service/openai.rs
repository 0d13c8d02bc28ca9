//! The chat completions of OpenAI, as many other servers have them: a prompt becomes a request, and
//! chunks become an answer. Pure.
//!
//! Source: the API reference of `POST /chat/completions`. Requests use only widely supported
//! fields, which Ollama, vLLM and llama.cpp also know. Their caches need no marks, only the same
//! beginning.
//!
//! Each chunk has a `delta` of the message; the last ones tell why it ended (`finish_reason`) and
//! what it cost (`usage`, with no choice), then comes `[DONE]`. Other servers may leave out the
//! cost, indexes, ids or `[DONE]`, send a whole call at once, or several calls under one index.

use serde_json::{Map, Value, json};
use teamd_shared::model_spec::Provider;
use teamd_shared::transcript::Usage;

use super::catalog::takes_images;
use super::draft::{Draft, text};
use super::events::ServerEvent;
use super::failure::Failure;
use super::wire::{Wire, json as parse, name, object};
use teamd_worker_core::secret::Secret;
use teamd_worker_core::tools::ToolText;

use crate::prompt::{Prompt, PromptTurn, Role, TurnPart};

/// What stands before images: a result of a call has only text, so they follow it.
const IMAGES: &str = "The images of the results above, in their order.\n\n";

/// The places of the reasoning, of the text, and of the first call.
const REASONED: u64 = 0;
const TEXT: u64 = 1;
const CALLS: u64 = 2;

/// The wire format of one model.
#[derive(Debug)]
pub(super) struct OpenAi {
    model: String,
    /// Whether a stream is asked to end with what it cost.
    counts: bool,
    /// Whether the limit of an answer has its old name, `max_tokens`.
    old_limit: bool,
    /// Whether either name of the limit was tried.
    both_limits: bool,
    /// Whether what the model reasoned is sent back: some services want it, others refuse it.
    reasons: bool,
    /// Whether images are sent: the model takes them, as far as that is known.
    sends_images: bool,
}

impl OpenAi {
    /// Makes the format for a model; OpenAI's own service has a newer name for the limit of an
    /// answer than others.
    pub(super) fn new(model: &str, is_own: bool) -> Self {
        Self {
            model: model.to_owned(),
            counts: true,
            old_limit: !is_own,
            both_limits: false,
            reasons: false,
            sends_images: takes_images(Provider::OpenAi, model),
        }
    }

    fn messages(&self, prompt: &Prompt<'_>) -> Vec<Value> {
        let mut messages = Vec::new();
        if !prompt.system.trim().is_empty() {
            messages.push(json!({ "role": "system", "content": prompt.system }));
        }
        for turn in prompt.turns {
            match turn.role {
                Role::User => messages.extend(of_user(turn, self.sends_images)),
                Role::Assistant => messages.push(self.of_assistant(turn)),
            }
        }
        messages
    }

    fn of_assistant(&self, turn: &PromptTurn) -> Value {
        let calls: Vec<_> = turn.parts.iter().filter_map(call).collect();
        let text = texts(turn, "\n");
        let mut message = Map::new();
        message.insert("role".to_owned(), json!("assistant"));
        // Null is usual only together with calls.
        let content = if text.is_empty() && !calls.is_empty() {
            Value::Null
        } else {
            Value::String(text)
        };
        message.insert("content".to_owned(), content);
        if self.reasons {
            let reasoning = turn.parts.iter().find_map(reasoning);
            message.insert(
                "reasoning_content".to_owned(),
                reasoning.unwrap_or_else(|| json!("")),
            );
        }
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), Value::Array(calls));
        }
        Value::Object(message)
    }
}

impl Wire for OpenAi {
    fn path(&self) -> &'static str {
        "chat/completions"
    }

    fn headers(&self, key: Option<&Secret>) -> Vec<(&'static str, String)> {
        key.map(|key| ("authorization", format!("Bearer {}", key.expose())))
            .into_iter()
            .collect()
    }

    fn body(&self, prompt: &Prompt<'_>) -> Value {
        let mut body = Map::new();
        let mut put = |field: &str, value: Value| body.insert(field.to_owned(), value);
        put("model", json!(self.model));
        put("stream", json!(true));
        if self.counts {
            put("stream_options", json!({ "include_usage": true }));
        }
        if let Some(limit) = prompt.max_output {
            put(
                if self.old_limit {
                    "max_tokens"
                } else {
                    "max_completion_tokens"
                },
                json!(limit.max(1)),
            );
        }
        if !prompt.tools.is_empty() {
            put("tools", prompt.tools.iter().map(tool).collect());
        }
        put("messages", Value::Array(self.messages(prompt)));
        Value::Object(body)
    }

    fn read(&self, event: &ServerEvent, draft: &mut Draft) -> Result<(), Failure> {
        read_event(event, draft)
    }

    fn adapt(&mut self, failure: &Failure) -> bool {
        if !failure.has_status(&[400, 422]) {
            return false;
        }
        if failure.mentions(&["image"]) && std::mem::take(&mut self.sends_images) {
            return true;
        }
        if failure.mentions(&["stream_options", "include_usage"]) {
            return std::mem::take(&mut self.counts);
        }
        // A prompt that is too long may be refused with the limit's name as well: the other name
        // does not help then.
        let refusals = [
            "unsupported",
            "not supported",
            "unknown",
            "unrecognized",
            "not permitted",
        ];
        if failure.mentions(&["max_tokens", "max_completion_tokens"]) && failure.mentions(&refusals)
        {
            self.old_limit = !self.old_limit;
            return !std::mem::replace(&mut self.both_limits, true);
        }
        failure.mentions(&["reasoning_content"]) && !std::mem::replace(&mut self.reasons, true)
    }
}

fn reasoning(part: &TurnPart) -> Option<Value> {
    match part {
        TurnPart::Opaque(value) => value.get("reasoning_content").cloned(),
        _ => None,
    }
}

fn tool(tool: &ToolText) -> Value {
    let function =
        json!({ "name": tool.name, "description": tool.description, "parameters": tool.input });
    json!({ "type": "function", "function": function })
}

fn call(part: &TurnPart) -> Option<Value> {
    let TurnPart::Call {
        id,
        name: tool,
        input,
    } = part
    else {
        return None;
    };
    let function = json!({ "name": name(tool), "arguments": object(input).to_string() });
    Some(json!({ "id": id, "type": "function", "function": function }))
}

/// The results, one message each, directly behind their calls; then the text.
fn of_user(turn: &PromptTurn, with_images: bool) -> Vec<Value> {
    let mut messages: Vec<_> = turn
        .parts
        .iter()
        .filter_map(|part| match part {
            TurnPart::Result {
                id,
                content,
                is_error,
                ..
            } => {
                // There is no field for errors.
                let content = if *is_error {
                    format!("error: {content}")
                } else {
                    content.clone()
                };
                Some(json!({ "role": "tool", "tool_call_id": id, "content": content }))
            }
            _ => None,
        })
        .collect();
    let text = texts(turn, "\n\n");
    let images = if with_images {
        images(turn)
    } else {
        Vec::new()
    };
    if !images.is_empty() {
        let mut content = vec![json!({ "type": "text", "text": format!("{IMAGES}{text}") })];
        content.extend(images);
        messages.push(json!({ "role": "user", "content": content }));
        return messages;
    }
    if !text.is_empty() || messages.is_empty() {
        messages.push(json!({ "role": "user", "content": text }));
    }
    messages
}

/// Writes the images of the results, in their order.
fn images(turn: &PromptTurn) -> Vec<Value> {
    let mut written = Vec::new();
    for image in turn.parts.iter().flat_map(TurnPart::images) {
        written.push(json!({ "type": "image_url", "image_url": { "url": image.data_url() } }));
    }
    written
}

/// Joins the texts in one string, because some servers refuse lists of parts.
fn texts(turn: &PromptTurn, between: &str) -> String {
    turn.parts
        .iter()
        .filter_map(|part| match part {
            TurnPart::Text(text) if !text.trim().is_empty() => Some(text.clone()),
            _ => None,
        })
        .collect::<Vec<_>>()
        .join(between)
}

/// Applies the next chunk, or an answer that came in one piece.
fn read_event(event: &ServerEvent, draft: &mut Draft) -> Result<(), Failure> {
    if event.data.trim() == "[DONE]" {
        draft.is_done = true;
        return Ok(());
    }
    let chunk = parse(&event.data)?;
    if !chunk["error"].is_null() || chunk["object"] == "error" || event.name == "error" {
        return Err(Failure::of_event(&chunk));
    }
    count(&chunk["usage"], &mut draft.usage);
    let choice = &chunk["choices"][0];
    draft.set_stop(&choice["finish_reason"]);
    if choice["message"].is_object() && choice["delta"].is_null() {
        draft.is_done = true;
        return grow(draft, &choice["message"]);
    }
    grow(draft, &choice["delta"])
}

/// Applies a delta, or a whole message.
fn grow(draft: &mut Draft, delta: &Value) -> Result<(), Failure> {
    for call in delta["tool_calls"].as_array().into_iter().flatten() {
        grow_call(draft, call)?;
    }
    draft.refused |= delta["refusal"].is_string();
    let reasoned = text(&delta["reasoning_content"]);
    add(
        draft,
        REASONED,
        json!({ "reasoning_content": reasoned }),
        reasoned,
    )?;
    for piece in [text(&delta["content"]), text(&delta["refusal"])] {
        add(draft, TEXT, json!({ "type": "text", "text": piece }), piece)?;
    }
    Ok(())
}

/// Adds a text, which may be the first one of its block.
fn add(draft: &mut Draft, place: u64, block: Value, text: &str) -> Result<(), Failure> {
    match draft.blocks.contains_key(&place) {
        _ if text.is_empty() => Ok(()),
        true => draft.grow(place, &block),
        false => draft.begin(place, block),
    }
}

fn grow_call(draft: &mut Draft, delta: &Value) -> Result<(), Failure> {
    let index = &delta["index"];
    let id = text(&delta["id"]);
    let function = &delta["function"];
    let name = text(&function["name"]);
    // The last one with that index; without an index, the last one at all, unless this names
    // another call.
    let mut calls = draft
        .blocks
        .range(CALLS..)
        .rev()
        .map(|(place, partial)| (*place, &partial.block));
    let same = calls.find(|(_, call)| index.is_null() || call["index"] == *index);
    let place = match same.filter(|(_, call)| match (id.is_empty(), index.is_null()) {
        (false, _) => call["id"] == id,
        (true, true) => name.is_empty(),
        (true, false) => true,
    }) {
        Some((place, call)) => {
            if call["name"] == "" {
                draft.grow(place, &json!({ "name": name }))?;
            }
            place
        }
        None => {
            let place = draft
                .blocks
                .last_key_value()
                .map_or(CALLS, |(last, _)| (last + 1).max(CALLS));
            draft.begin(
                place,
                json!({ "type": "tool_use", "id": id, "name": name, "index": index }),
            )?;
            place
        }
    };
    match &function["arguments"] {
        Value::Null => Ok(()),
        Value::String(more) => draft.grow(place, &json!({ "partial_json": more })),
        whole => draft.grow(place, &json!({ "partial_json": whole.to_string() })),
    }
}

/// Here the prompt includes the tokens from the cache. The Responses API uses other names.
pub(super) fn count(reported: &Value, usage: &mut Usage) {
    let prompt = reported["prompt_tokens"].as_u64();
    let completion = reported["completion_tokens"].as_u64();
    let Some(prompt) = prompt.or(reported["input_tokens"].as_u64()) else {
        return;
    };
    let Some(output_tokens) = completion.or(reported["output_tokens"].as_u64()) else {
        return;
    };
    let details = match &reported["prompt_tokens_details"] {
        Value::Null => &reported["input_tokens_details"],
        details => details,
    };
    let cached = details["cached_tokens"].as_u64().unwrap_or_default();
    let cached = cached.min(prompt);
    *usage = Usage {
        input_tokens: prompt - cached,
        output_tokens,
        cache_read_input_tokens: cached,
        cache_creation_input_tokens: 0,
    };
}

#[cfg(test)]
mod tests;
