//! What a provider's file says: how a prompt becomes a request, and how the events of its answer
//! are read. Pure.

use std::fmt::Debug;

use serde_json::Value;

use super::draft::Draft;
use super::events::ServerEvent;
use super::failure::{Failure, FailureKind};
use super::settings::ApiKey;
use crate::prompt::Prompt;

/// The wire format of a provider. A further provider is one more file with it.
pub(super) trait Wire: Debug + Send {
    /// Returns where prompts are posted, below the base URL.
    fn path(&self) -> &'static str;

    /// Returns the headers that carry the key and the version of the format.
    fn headers(&self, key: Option<&ApiKey>) -> Vec<(&'static str, String)>;

    /// Writes a request. The same prompt gives the same bytes, and a longer conversation begins
    /// with those of the shorter one: the caches of the services live from that.
    fn body(&self, prompt: &Prompt<'_>) -> Value;

    /// Takes in the next event of an answer, or an answer that came in one piece though a stream
    /// was asked for.
    ///
    /// # Errors
    /// [`Failure`] if it says that there will be no answer.
    fn read(&self, event: &ServerEvent, draft: &mut Draft) -> Result<(), Failure>;

    /// Leaves out from now on what a server or model has refused, if not every one takes it.
    /// Returns whether the next request is another one.
    fn adapt(&mut self, failure: &Failure) -> bool;
}

/// Reads the JSON of an event.
///
/// # Errors
/// [`FailureKind::Incomplete`] if it is none.
pub(super) fn json(data: &str) -> Result<Value, Failure> {
    serde_json::from_str(data).map_err(|_| {
        let detail = format!("what came is no JSON: {data:?}");
        Failure::new(FailureKind::Incomplete, &detail)
    })
}

/// Returns the input of a call as an object: every service, and the template of every local model,
/// takes one. What the model wrote instead stands in it, so that it sees its mistake.
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

/// Returns the name of a tool as every service takes it back: 1 to 64 letters, digits, `_` and `-`.
/// What a model calls is not always one.
pub(super) fn name(name: &str) -> String {
    let name = identifier(name.chars().take(64));
    if name.is_empty() {
        "unnamed".to_owned()
    } else {
        name
    }
}
