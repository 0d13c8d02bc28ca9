//! The chat completions of OpenAI: the chunks of an answer. Pure.
//!
//! Each chunk has a `delta` of the message; the last ones tell why it ended (`finish_reason`) and what it cost
//! (`usage`, with no choice), then comes `[DONE]`. Other servers leave out what they like: the cost, indexes, ids,
//! `[DONE]`; or send a call whole, or several under one index.

use serde_json::{Value, json};
use teamd_shared::transcript::{Block, Cut, Usage};

use crate::model::Answer;
use crate::model::service::events::ServerEvent;
use crate::model::service::failure::Failure;
use crate::model::service::wire::{AnswerReader, ContentLength, Piece, cut_off, input, json as parse, text};

/// An answer that is being read.
#[derive(Debug, Default)]
pub(super) struct OpenAiReader {
    text: String,
    reasoned: String,
    refused: bool,
    calls: Vec<PartialCall>,
    usage: Usage,
    finish: Option<String>,
    done: bool,
    length: ContentLength,
}

/// A call as it stands so far.
#[derive(Debug, Default)]
struct PartialCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl AnswerReader for OpenAiReader {
    fn event(&mut self, event: &ServerEvent) -> Result<Option<String>, Failure> {
        if event.data.trim() == "[DONE]" {
            self.done = true;
            return Ok(None);
        }
        let chunk = parse(&event.data)?;
        if is_error(&chunk) || event.name == "error" {
            return Err(Failure::of_event(&chunk));
        }
        self.count(&chunk["usage"]);
        let choice = &chunk["choices"][0];
        self.grow(&choice["delta"], &choice["finish_reason"])
    }

    fn whole(&mut self, body: &Value) -> Result<Option<String>, Failure> {
        let choice = &body["choices"][0];
        if is_error(body) || !choice["message"].is_object() {
            return Err(Failure::of_event(body));
        }
        self.count(&body["usage"]);
        self.done = true;
        self.grow(&choice["message"], &choice["finish_reason"])
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn is_complete(&self) -> bool {
        self.done || self.finish.is_some()
    }

    fn end(self: Box<Self>) -> Result<Piece, Failure> {
        if !self.is_complete() {
            return Err(cut_off());
        }
        let cut = match self.finish.as_deref() {
            Some("length") => Some(Cut::Length),
            Some("content_filter") => Some(Cut::Refusal),
            _ => self.refused.then_some(Cut::Refusal),
        };
        let mut content = Vec::new();
        if !self.reasoned.is_empty() {
            content.push(Block::Opaque { value: json!({ "reasoning_content": self.reasoned }) });
        }
        if !self.text.trim().is_empty() {
            content.push(Block::Text { text: self.text });
        }
        content.extend(self.calls.into_iter().map(PartialCall::finish));
        Ok(Piece { answer: Answer { content, usage: self.usage, cut, length: None }, paused: false })
    }
}

impl OpenAiReader {
    /// Takes in a delta, or a whole message; returns the text in it.
    fn grow(&mut self, delta: &Value, finish: &Value) -> Result<Option<String>, Failure> {
        self.length.add(delta)?;
        if let Some(reason) = finish.as_str().filter(|reason| !reason.is_empty()) {
            self.finish = Some(reason.to_owned());
        }
        let calls = delta["tool_calls"].as_array().into_iter().flatten();
        calls.for_each(|call| self.grow_call(call));
        self.reasoned.push_str(&text(&delta["reasoning_content"]));
        self.refused |= delta["refusal"].is_string();
        let said = text(&delta["content"]) + &text(&delta["refusal"]);
        self.text.push_str(&said);
        Ok(Some(said).filter(|said| !said.is_empty()))
    }

    fn grow_call(&mut self, delta: &Value) {
        let (index, id) = (delta["index"].as_u64(), text(&delta["id"]));
        let name = text(&delta["function"]["name"]);
        // The last one with that index; without an index, the last one at all, unless this names another call.
        let same = self.calls.iter_mut().rev().find(|call| index.is_none() || call.index == index);
        let fits = |call: &&mut PartialCall| match (id.is_empty(), index) {
            (false, _) => call.id == id,
            (true, None) => name.is_empty(),
            (true, Some(_)) => true,
        };
        let call = match same.filter(fits) {
            Some(call) => call,
            None => {
                self.calls.push(PartialCall { index, id, ..PartialCall::default() });
                let last = self.calls.len() - 1;
                &mut self.calls[last]
            }
        };
        if call.name.is_empty() {
            call.name = name;
        }
        match &delta["function"]["arguments"] {
            Value::String(more) => call.arguments.push_str(more),
            Value::Null => {}
            whole => call.arguments = whole.to_string(),
        }
    }

    /// What came from the cache is counted among the prompt here.
    fn count(&mut self, usage: &Value) {
        let (Some(prompt), Some(output_tokens)) =
            (usage["prompt_tokens"].as_u64(), usage["completion_tokens"].as_u64())
        else {
            return;
        };
        let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_default().min(prompt);
        self.usage = Usage {
            input_tokens: prompt - cached,
            output_tokens,
            cache_read_input_tokens: cached,
            cache_creation_input_tokens: 0,
        };
    }
}

impl PartialCall {
    fn finish(self) -> Block {
        let (id, name, input) = (self.id, self.name, input(&self.arguments));
        Block::ToolUse { id, name, input, message_id: None, request_id: None }
    }
}

/// Tells whether a chunk is an error, as one server or the other writes it.
fn is_error(chunk: &Value) -> bool {
    chunk.get("error").is_some_and(|error| !error.is_null()) || chunk["object"] == "error"
}
