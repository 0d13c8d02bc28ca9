//! The chat completions of OpenAI: the chunks of an answer. Pure.
//!
//! Each chunk has a `delta` of the message; the last ones tell why it ended (`finish_reason`) and what it cost
//! (`usage`, with no choice), then comes `[DONE]`. Other servers leave out what they like: the cost, indexes, ids,
//! `[DONE]`; or send a call whole, or several under one index.

use serde_json::{Value, json};
use teamd_shared::transcript::{Block, Cut, Usage};

use crate::model::service::events::ServerEvent;
use crate::model::service::failure::Failure;
use crate::model::service::wire::{AnswerReader, Draft, Piece, input, json as parse, text};

/// An answer that is being read.
#[derive(Debug, Default)]
pub(super) struct OpenAiReader {
    text: String,
    reasoned: String,
    refused: bool,
    calls: Vec<PartialCall>,
    draft: Draft,
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
    fn event(&mut self, event: &ServerEvent) -> Result<String, Failure> {
        if event.data.trim() == "[DONE]" {
            self.draft.is_done = true;
            return Ok(String::new());
        }
        let chunk = parse(&event.data)?;
        let is_error = !chunk["error"].is_null() || chunk["object"] == "error" || event.name == "error";
        if is_error {
            return Err(Failure::of_event(&chunk));
        }
        self.count(&chunk["usage"]);
        let choice = &chunk["choices"][0];
        self.draft.set_stop(&choice["finish_reason"]);
        if choice["message"].is_object() && choice["delta"].is_null() {
            self.draft.is_done = true;
            return self.grow(&choice["message"]);
        }
        self.grow(&choice["delta"])
    }

    fn draft(&self) -> &Draft {
        &self.draft
    }

    fn end(self: Box<Self>) -> Piece {
        let cut = match self.draft.stop.as_deref() {
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
        self.draft.piece(content, cut)
    }
}

impl OpenAiReader {
    /// Takes in a delta, or a whole message; returns the text in it.
    fn grow(&mut self, delta: &Value) -> Result<String, Failure> {
        self.draft.grow(delta)?;
        let calls = delta["tool_calls"].as_array().into_iter().flatten();
        calls.for_each(|call| self.grow_call(call));
        self.reasoned.push_str(&text(&delta["reasoning_content"]));
        self.refused |= delta["refusal"].is_string();
        let said = text(&delta["content"]) + &text(&delta["refusal"]);
        self.text.push_str(&said);
        Ok(said)
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
        self.draft.usage = Usage {
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
