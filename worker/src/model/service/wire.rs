//! What a provider's file says: how a prompt becomes a request, and how the events of its answer are read. Pure.

use std::fmt::Debug;

use serde_json::Value;
use teamd_shared::message::is_nested_within;
use teamd_shared::transcript::{Block, Cut, Usage};

use super::events::ServerEvent;
use super::failure::{Failure, FailureKind};
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
    fn reader(&self) -> Box<dyn AnswerReader>;

    /// Leaves out from now on what a server or model has refused, if not every one takes it. Returns whether the next
    /// request is another one.
    fn adapt(&mut self, failure: &Failure) -> bool;
}

/// An answer that is being read.
pub(super) trait AnswerReader: Send {
    /// Takes in the next event, or an answer that came in one piece though a stream was asked for; returns the text in
    /// it, which may be empty.
    ///
    /// # Errors
    /// [`Failure`] if it says that there will be no answer.
    fn event(&mut self, event: &ServerEvent) -> Result<String, Failure>;

    /// Returns what is known of the answer so far.
    fn draft(&self) -> &Draft;

    /// Returns the answer. It is complete.
    fn end(self: Box<Self>) -> Piece;
}

/// What is known of any answer while it is being read.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// What it cost.
    pub(super) usage: Usage,
    /// Why it ended, in the words of the service.
    pub(super) stop: Option<String>,
    /// Whether all of it was read.
    pub(super) is_done: bool,
    length: usize,
}

impl Draft {
    /// Tells whether it was said why the answer ended: what may follow (what it cost, a last word) can be missed.
    pub(super) fn is_complete(&self) -> bool {
        self.is_done || self.stop.is_some()
    }

    /// Takes in why the answer ended, if the value says so.
    pub(super) fn set_stop(&mut self, reason: &Value) {
        if let Some(reason) = reason.as_str().filter(|reason| !reason.is_empty()) {
            self.stop = Some(reason.to_owned());
        }
    }

    /// Counts the texts in a part of the answer.
    ///
    /// # Errors
    /// [`FailureKind::TooLarge`] if the answer is longer than any that makes sense.
    pub(super) fn grow(&mut self, part: &Value) -> Result<(), Failure> {
        self.length += length_of(part);
        if self.length > MAX_ANSWER {
            return Err(Failure::new(FailureKind::TooLarge, "it is longer than 16 MiB"));
        }
        Ok(())
    }

    /// Returns the piece of an answer with this content.
    pub(super) fn piece(self, content: Vec<Block>, cut: Option<Cut>) -> Piece {
        let paused = self.stop.as_deref() == Some("pause_turn");
        Piece { answer: Answer { content, usage: self.usage, cut, length: None }, paused }
    }
}

/// What a request is answered with.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    /// The answer, or the next piece of one.
    pub(super) answer: Answer,
    /// Whether the service has paused it: sent back as it is, it goes on.
    pub(super) paused: bool,
}

/// How long the content of an answer may be, in bytes: texts and the arguments of calls, not the events around them.
const MAX_ANSWER: usize = 16 << 20;

fn length_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(length_of).sum(),
        Value::Object(fields) => fields.values().map(length_of).sum(),
        _ => 1,
    }
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

/// Returns a text; empty for any other value.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// How deeply a part of an answer may be nested: it stands in an entry of the transcript, which must be readable.
const MAX_NEST: usize = 64;

/// Reads the input of a call as it was streamed: an object, or else the text as it stands.
pub(super) fn input(text: &str) -> Value {
    match serde_json::from_str::<Value>(text) {
        Ok(value @ Value::Object(_)) => shallow(value),
        Ok(Value::Null) => serde_json::json!({}),
        _ if text.trim().is_empty() => serde_json::json!({}),
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
    use teamd_shared::transcript::Event;

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
