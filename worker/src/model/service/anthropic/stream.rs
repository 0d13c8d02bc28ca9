//! Anthropic's Messages API: the events of an answer. Pure.
//!
//! `message_start`, then for each block `content_block_start`, any number of `content_block_delta`,
//! `content_block_stop`, then `message_delta` and `message_stop`; `ping` and `error` at any time. Types that are not
//! known are part of the contract: such events are passed over, such blocks kept as they are.

use serde_json::Value;
use teamd_shared::transcript::Usage;

use crate::model::service::draft::Draft;
use crate::model::service::events::ServerEvent;
use crate::model::service::failure::Failure;
use crate::model::service::wire::json;

/// Takes in the next event, or an answer that came in one piece.
pub(super) fn read(event: &ServerEvent, draft: &mut Draft) -> Result<(), Failure> {
    let value = json(&event.data)?;
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
            let Some(blocks) = value["content"].as_array() else { return Ok(()) };
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

/// Takes the counters that are there: the last count of each holds for the whole answer.
fn count(said: &Value, usage: &mut Usage) {
    for (name, counter) in [
        ("input_tokens", &mut usage.input_tokens),
        ("output_tokens", &mut usage.output_tokens),
        ("cache_read_input_tokens", &mut usage.cache_read_input_tokens),
        ("cache_creation_input_tokens", &mut usage.cache_creation_input_tokens),
    ] {
        *counter = said[name].as_u64().unwrap_or(*counter);
    }
}
