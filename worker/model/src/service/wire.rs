//! The interface of a provider's file: how a prompt becomes a request, and how the events of the
//! answer are read. Pure.

use std::fmt::Debug;

use serde_json::Value;

use super::draft::Draft;
use super::events::ServerEvent;
use super::failure::{Failure, FailureKind};
use crate::prompt::{BYTES_OF_IMAGE, Prompt, PromptTurn, TurnPart};
use teamd_worker_core::secret::Secret;

/// The wire format of a provider. A further provider is one more file that implements it.
pub(super) trait Wire: Debug + Send {
    /// Returns where prompts are posted, below the base URL.
    fn path(&self) -> &'static str;

    /// Returns the headers that carry the key and the version of the format.
    fn headers(&self, key: Option<&Secret>) -> Vec<(&'static str, String)>;

    /// Writes a request. The same prompt gives the same bytes, and a longer conversation begins
    /// with those of the shorter one: the caches of the services depend on that.
    fn body(&self, prompt: &Prompt<'_>) -> Value;

    /// Applies the next event of an answer, or an answer in one piece although a stream was
    /// requested.
    ///
    /// # Errors
    /// [`Failure`] if the event is an error.
    fn read(&self, event: &ServerEvent, draft: &mut Draft) -> Result<(), Failure>;

    /// Leaves out from now on what this server or model has refused, if it is optional. Returns
    /// whether the next request differs.
    fn adapt(&mut self, failure: &Failure) -> bool;
}

/// Returns what a request of so many bytes counts: the images in it count by what they cost.
pub(super) fn counted(turns: &[PromptTurn], written: usize) -> usize {
    let mut bytes = written;
    for image in turns
        .iter()
        .flat_map(|turn| &turn.parts)
        .flat_map(TurnPart::images)
    {
        bytes = bytes.saturating_sub(image.data.len()) + BYTES_OF_IMAGE;
    }
    bytes
}

/// Reads the JSON of an event.
///
/// # Errors
/// [`FailureKind::Incomplete`] if it is not JSON.
pub(super) fn json(data: &str) -> Result<Value, Failure> {
    serde_json::from_str(data).map_err(|_| {
        let detail = format!("the service sent invalid JSON: {data:?}");
        Failure::new(FailureKind::Incomplete, &detail)
    })
}

/// Returns the input of a call as an object: every service, and the template of every local model,
/// takes one. Other input of the model becomes a field of it, so that the model sees its mistake.
pub(super) fn object(input: &Value) -> Value {
    match input {
        Value::Object(_) => input.clone(),
        other => serde_json::json!({ "unparsed": other }),
    }
}

/// Replaces the characters that a service does not take in an id or a name.
pub(super) fn identifier(text: impl Iterator<Item = char>) -> String {
    text.map(|c| match c {
        '_' | '-' => c,
        _ if c.is_ascii_alphanumeric() => c,
        _ => '_',
    })
    .collect()
}

/// Returns a tool name that every service accepts: 1 to 64 letters, digits, `_` and `-`. A model
/// may call any name.
pub(super) fn name(name: &str) -> String {
    let name = identifier(name.chars().take(64));
    if name.is_empty() {
        "unnamed".to_owned()
    } else {
        name
    }
}
