//! What a provider's file says: how a prompt becomes a request, and how the events of its answer are read. Pure.

use std::fmt::Debug;

use serde_json::Value;
use teamd_shared::message::is_nested_within;

use super::events::Event;
use super::failure::{Complaint, Failure};
use super::settings::Key;
use crate::model::Answer;
use crate::model::prompt::Prompt;

/// The wire format of a provider. A further provider is one more file with it.
pub(super) trait Wire: Debug + Send {
    /// Returns where prompts are posted, below the base URL.
    fn path(&self) -> &'static str;

    /// Returns the headers that carry the key and the version of the format.
    fn headers(&self, key: Option<&Key>) -> Vec<(&'static str, String)>;

    /// Writes a request. The same prompt gives the same bytes, and a longer conversation begins with those of the
    /// shorter one: the caches of the services live from that.
    fn body(&self, prompt: &Prompt<'_>) -> Value;

    /// Begins to read an answer.
    fn read(&self) -> Box<dyn Reading>;

    /// Changes how it asks from now on, after a refusal of something that not every server or model takes. False
    /// if that would be nothing new.
    fn adapt(&mut self, complaint: &Complaint) -> bool;
}

/// An answer that is being read.
pub(super) trait Reading: Send {
    /// Takes in the next event; returns the text in it.
    ///
    /// # Errors
    /// [`Failure`] if it says that there will be no answer.
    fn event(&mut self, event: &Event) -> Result<Option<String>, Failure>;

    /// Takes in an answer that came in one piece, though a stream was asked for; returns the text in it.
    ///
    /// # Errors
    /// [`Failure`] if it is no answer.
    fn whole(&mut self, body: &Value) -> Result<Option<String>, Failure>;

    /// Returns how long its content is so far, in bytes: texts and the arguments of calls, not the events around them.
    fn length(&self) -> usize;

    /// Tells whether all of it was read.
    fn is_done(&self) -> bool;

    /// Tells whether it was said why the answer ended: what may follow (what it cost, a last word) can be missed.
    fn is_complete(&self) -> bool;

    /// Returns the answer.
    ///
    /// # Errors
    /// [`Failure::Cut`] if it is not complete.
    fn end(self: Box<Self>) -> Result<Piece, Failure>;
}

/// What a request is answered with.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    /// The answer, or the next piece of one.
    pub(super) answer: Answer,
    /// Whether the service has paused it: sent back as it is, it goes on.
    pub(super) paused: bool,
}

/// Reads the JSON of an event.
///
/// # Errors
/// [`Failure::Stranger`] if it is none.
pub(super) fn json(data: &str) -> Result<Value, Failure> {
    serde_json::from_str(data).map_err(|_| {
        let why = format!("an event of the stream is no JSON: {:?}", super::failure::line(data));
        Failure::Stranger { why, passing: true }
    })
}

/// How deeply a part of an answer may be nested: it stands in an entry of the transcript, which must be readable.
const MAX_NEST: usize = 64;

/// Reads the input of a call as it was streamed: an object, or else the text as it stands.
pub(super) fn input(text: &str) -> Value {
    match serde_json::from_str::<Value>(text) {
        Ok(value @ Value::Object(_)) => shallow(value),
        Ok(Value::Null) => Value::Object(serde_json::Map::new()),
        _ if text.trim().is_empty() => Value::Object(serde_json::Map::new()),
        _ => Value::String(text.to_owned()),
    }
}

/// Makes a text of what is nested too deeply to stand in a transcript: the model is told, by the call that cannot read it.
pub(super) fn shallow(value: Value) -> Value {
    if is_nested_within(&value, MAX_NEST) { value } else { Value::String(value.to_string()) }
}

/// Returns the input of a call as an object: every service, and the template of every local model, takes one. What
/// the model wrote instead stands in it, so that it sees its mistake.
pub(super) fn object(input: &Value) -> Value {
    match input {
        Value::Object(_) => input.clone(),
        other => serde_json::json!({ "unparsed": other }),
    }
}

/// Returns the name of a tool as every service takes it back: 1 to 64 letters, digits, `_` and `-`. What a model calls
/// is not always one.
pub(super) fn name(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name: String = name.chars().take(64).map(|c| if fits(c) { c } else { '_' }).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use teamd_shared::transcript::{Block, Event};

    use super::*;

    proptest! {
        #[test]
        fn a_call_can_be_read_again_however_deeply_its_input_is_nested(deep in 50_usize..140) {
            let text = format!("{{\"a\":{}1{}}}", "[".repeat(deep), "]".repeat(deep));
            let input = input(&text);
            prop_assert_eq!(input.is_object(), deep < MAX_NEST, "else it is a text, which the model sees");
            let (id, name) = ("1".to_owned(), "bash".to_owned());
            let call = Block::ToolUse { id, name, input, message_id: None, request_id: None };
            let answer = Event::Answer { content: vec![call], usage: Default::default(), cut: None, length: None };
            let written = serde_json::to_string(&answer).unwrap();
            prop_assert_eq!(serde_json::from_str::<Event>(&written).unwrap(), answer);
        }
    }
}
