//! What a model is asked: the system's instructions, the tools, and the conversation. Pure data.
//!
//! A prompt that [`super::conversation`] makes is valid for every service: it begins with the user, the two sides
//! take turns, every call is answered by exactly one result in the very next turn, and results stand before text.

use serde_json::Value;

/// All that a model is asked with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Prompt<'a> {
    /// Who it is, and what holds for it. The same in every call of a conversation.
    pub(crate) system: &'a str,
    /// What it may call, in a fixed order. The same in every call of a conversation.
    pub(crate) tools: &'a [Tool],
    /// The conversation so far; the last turn is the user's.
    pub(crate) turns: &'a [Turn],
    /// The most tokens that the answer may have; none: as the service has it by default.
    pub(crate) max_output: Option<u64>,
}

/// A tool, as a model is told of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tool {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it does, and when to use it.
    pub(crate) description: &'static str,
    /// The JSON Schema of its input: an object.
    pub(crate) input: Value,
}

/// One side's turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Turn {
    /// Whose.
    pub(crate) role: Role,
    /// What it says, never empty.
    pub(crate) parts: Vec<Part>,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The runtime: prompts, messages, results.
    User,
    /// The model.
    Assistant,
}

/// A part of a turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    /// Text, never blank.
    Text(String),
    /// The model calls a tool.
    Call {
        /// Unique in the conversation.
        id: String,
        /// The tool, as the model wrote it.
        name: String,
        /// Its input: an object, or the text of what was to be one and is no JSON.
        input: Value,
    },
    /// What came of a call.
    Result {
        /// The call.
        id: String,
        /// May be empty.
        content: String,
        /// Whether it failed.
        is_error: bool,
    },
    /// What only the service of the model understands.
    Opaque(Value),
}

/// Returns the beginning and the end of a text that is too long.
pub(super) fn excerpt(text: &str, limit: usize) -> String {
    let count = text.chars().count();
    if count <= limit {
        return text.to_owned();
    }
    let half = limit / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(count - half).collect();
    format!("{head}\n[… {} characters …]\n{tail}", count - 2 * half)
}
