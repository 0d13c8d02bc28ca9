//! The chat completions of OpenAI, as many other servers have them: a prompt becomes a request. Pure.
//!
//! Source: the API reference of `POST /chat/completions`. Asked is only what is widely taken: Ollama, vLLM and llama.cpp
//! know it, too. Their caches need no marks, only the same beginning.

mod stream;

use serde_json::{Map, Value, json};

use super::draft::Draft;
use super::events::ServerEvent;
use super::failure::Failure;
use super::settings::Key;
use super::wire::{Wire, name, object};
use crate::model::prompt::{Part, Prompt, Role, ToolText, Turn};

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
}

impl OpenAi {
    /// Makes the format for a model; OpenAI's own service has a newer name for the limit of an answer than others.
    pub(super) fn new(model: &str, is_own: bool) -> Self {
        Self { model: model.to_owned(), counts: true, old_limit: !is_own, both_limits: false, reasons: false }
    }

    fn messages(&self, prompt: &Prompt<'_>) -> Vec<Value> {
        let mut messages = Vec::new();
        if !prompt.system.trim().is_empty() {
            messages.push(json!({ "role": "system", "content": prompt.system }));
        }
        for turn in prompt.turns {
            match turn.role {
                Role::User => messages.extend(of_user(turn)),
                Role::Assistant => messages.push(self.of_assistant(turn)),
            }
        }
        messages
    }

    fn of_assistant(&self, turn: &Turn) -> Value {
        let calls: Vec<_> = turn.parts.iter().filter_map(call).collect();
        let text = texts(turn, "\n");
        let mut message = Map::new();
        message.insert("role".to_owned(), json!("assistant"));
        // Null only beside calls, where it is usual.
        let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { Value::String(text) };
        message.insert("content".to_owned(), content);
        if self.reasons {
            let reasoned = |part: &Part| match part {
                Part::Opaque(value) => value.get("reasoning_content").cloned(),
                _ => None,
            };
            let reasoned = turn.parts.iter().find_map(reasoned).unwrap_or_else(|| json!(""));
            message.insert("reasoning_content".to_owned(), reasoned);
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

    fn headers(&self, key: Option<&Key>) -> Vec<(&'static str, String)> {
        key.map(|key| ("authorization", format!("Bearer {}", key.expose()))).into_iter().collect()
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
            put(if self.old_limit { "max_tokens" } else { "max_completion_tokens" }, json!(limit.max(1)));
        }
        if !prompt.tools.is_empty() {
            put("tools", prompt.tools.iter().map(tool).collect());
        }
        put("messages", Value::Array(self.messages(prompt)));
        Value::Object(body)
    }

    fn read(&self, event: &ServerEvent, draft: &mut Draft) -> Result<(), Failure> {
        stream::read(event, draft)
    }

    fn adapt(&mut self, failure: &Failure) -> bool {
        if !failure.has_status(&[400, 422]) {
            return false;
        }
        if failure.mentions(&["stream_options", "include_usage"]) {
            return std::mem::take(&mut self.counts);
        }
        // A prompt that is too long may be refused with the limit's name as well: the other name does not help then.
        let refusals = ["unsupported", "not supported", "unknown", "unrecognized", "not permitted"];
        if failure.mentions(&["max_tokens", "max_completion_tokens"]) && failure.mentions(&refusals) {
            self.old_limit = !self.old_limit;
            return !std::mem::replace(&mut self.both_limits, true);
        }
        failure.mentions(&["reasoning_content"]) && !std::mem::replace(&mut self.reasons, true)
    }
}

fn tool(tool: &ToolText) -> Value {
    let function = json!({ "name": tool.name, "description": tool.description, "parameters": tool.input });
    json!({ "type": "function", "function": function })
}

fn call(part: &Part) -> Option<Value> {
    let Part::Call { id, name: tool, input } = part else { return None };
    let function = json!({ "name": name(tool), "arguments": object(input).to_string() });
    Some(json!({ "id": id, "type": "function", "function": function }))
}

/// The results, one message each, directly behind their calls; then the text.
fn of_user(turn: &Turn) -> Vec<Value> {
    let result = |part: &Part| match part {
        Part::Result { id, content, is_error } => {
            // There is no field for it.
            let content = if *is_error { format!("error: {content}") } else { content.clone() };
            Some(json!({ "role": "tool", "tool_call_id": id, "content": content }))
        }
        _ => None,
    };
    let mut messages: Vec<_> = turn.parts.iter().filter_map(result).collect();
    let text = texts(turn, "\n\n");
    if !text.is_empty() || messages.is_empty() {
        messages.push(json!({ "role": "user", "content": text }));
    }
    messages
}

/// Texts in one string: lists of parts are not taken everywhere.
fn texts(turn: &Turn, between: &str) -> String {
    let text = |part: &Part| match part {
        Part::Text(text) if !text.trim().is_empty() => Some(text.clone()),
        _ => None,
    };
    turn.parts.iter().filter_map(text).collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests;
