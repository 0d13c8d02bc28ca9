//! The chat completions of OpenAI: the chunks of an answer. Pure.
//!
//! Each chunk has a `delta` of the message; the last ones tell why it ended (`finish_reason`) and what it cost
//! (`usage`, with no choice), then comes `[DONE]`. Other servers leave out what they like: the cost, indexes, ids,
//! `[DONE]`; or send a call whole, or several under one index.

use serde_json::{Value, json};
use teamd_shared::transcript::Usage;

use crate::model::service::draft::{Draft, text};
use crate::model::service::events::ServerEvent;
use crate::model::service::failure::Failure;
use crate::model::service::wire::json as parse;

/// The places of what the model reasoned, of the text, and of the first call.
const REASONED: u64 = 0;
const TEXT: u64 = 1;
const CALLS: u64 = 2;

/// Takes in the next chunk, or an answer that came in one piece.
pub(super) fn read(event: &ServerEvent, draft: &mut Draft) -> Result<(), Failure> {
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

/// Takes in a delta, or a whole message.
fn grow(draft: &mut Draft, delta: &Value) -> Result<(), Failure> {
    let calls = delta["tool_calls"].as_array().into_iter().flatten();
    calls.map(|call| grow_call(draft, call)).collect::<Result<(), _>>()?;
    draft.refused |= delta["refusal"].is_string();
    let reasoned = text(&delta["reasoning_content"]);
    add(draft, REASONED, json!({ "reasoning_content": reasoned }), reasoned)?;
    for said in [text(&delta["content"]), text(&delta["refusal"])] {
        add(draft, TEXT, json!({ "type": "text", "text": said }), said)?;
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
    let (index, id, function) = (&delta["index"], text(&delta["id"]), &delta["function"]);
    let name = text(&function["name"]);
    // The last one with that index; without an index, the last one at all, unless this names another call.
    let mut calls = draft.blocks.range(CALLS..).rev().map(|(place, partial)| (*place, &partial.block));
    let same = calls.find(|(_, call)| index.is_null() || call["index"] == *index);
    let fits = |(_, call): &(u64, &Value)| match (id.is_empty(), index.is_null()) {
        (false, _) => call["id"] == id,
        (true, true) => name.is_empty(),
        (true, false) => true,
    };
    let place = match same.filter(fits) {
        Some((place, call)) => {
            if call["name"] == "" {
                draft.grow(place, &json!({ "name": name }))?;
            }
            place
        }
        None => {
            let place = draft.blocks.last_key_value().map_or(CALLS, |(last, _)| (last + 1).max(CALLS));
            draft.begin(place, json!({ "type": "tool_use", "id": id, "name": name, "index": index }))?;
            place
        }
    };
    match &function["arguments"] {
        Value::Null => Ok(()),
        Value::String(more) => draft.grow(place, &json!({ "partial_json": more })),
        whole => draft.grow(place, &json!({ "partial_json": whole.to_string() })),
    }
}

/// What came from the cache is counted among the prompt here.
fn count(said: &Value, usage: &mut Usage) {
    let (Some(prompt), Some(output_tokens)) =
        (said["prompt_tokens"].as_u64(), said["completion_tokens"].as_u64())
    else {
        return;
    };
    let cached = said["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_default().min(prompt);
    *usage = Usage {
        input_tokens: prompt - cached,
        output_tokens,
        cache_read_input_tokens: cached,
        cache_creation_input_tokens: 0,
    };
}
