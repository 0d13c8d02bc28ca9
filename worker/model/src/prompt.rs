//! What a model is asked: the system's instructions, the tools, and the conversation. Pure data.
//!
//! A prompt that `super::conversation` makes is valid for every service: it begins with the user,
//! the two sides alternate, every call has exactly one result in the next turn, and results come
//! before text.

use serde_json::Value;
use teamd_shared::image::Image;
use teamd_shared::transcript::Block;
use teamd_worker_core::tools::ToolText;

/// What an image counts in a prompt, in bytes of text: some 1,600 tokens, which is the most that
/// Anthropic's models spend on one.
pub(crate) const BYTES_OF_IMAGE: usize = 1600 * 3;

/// A complete request to a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Prompt<'a> {
    /// The instructions. They are the same in every call of a conversation.
    pub(crate) system: &'a str,
    /// The tools, in a fixed order. They are the same in every call of a conversation.
    pub(crate) tools: &'a [ToolText],
    /// The conversation so far; the last turn is the user's, or an answer that the service has
    /// paused.
    pub(crate) turns: &'a [PromptTurn],
    /// The maximum length of the answer in tokens; none for the default of the service.
    pub(crate) max_output: Option<u64>,
}

/// One side's turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PromptTurn {
    /// Whose turn it is.
    pub(crate) role: Role,
    /// Its parts, never empty.
    pub(crate) parts: Vec<TurnPart>,
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
pub(crate) enum TurnPart {
    /// Text, never blank.
    Text(String),
    /// The model calls a tool.
    Call {
        /// Unique in the conversation.
        id: String,
        /// The tool, as the model wrote it.
        name: String,
        /// Its input: an object, or the model's text if that is not valid JSON.
        input: Value,
    },
    /// The result of a call.
    Result {
        /// The call.
        id: String,
        /// May be empty.
        content: String,
        /// Whether it failed.
        is_error: bool,
        /// The images that belong to it, for models that take some.
        images: Vec<Image>,
    },
    /// A value that only the service of the model understands.
    Opaque(Value),
}

impl From<&Block> for TurnPart {
    fn from(block: &Block) -> Self {
        match block.clone() {
            Block::Text { text } => Self::Text(text),
            Block::ToolUse {
                id, name, input, ..
            } => Self::Call { id, name, input },
            Block::Opaque { value } => Self::Opaque(value),
        }
    }
}

impl TurnPart {
    /// Returns whether it is a call of a tool.
    pub(super) fn is_call(&self) -> bool {
        matches!(self, Self::Call { .. })
    }

    /// Returns its images.
    pub(super) fn images(&self) -> &[Image] {
        match self {
            Self::Result { images, .. } => images,
            _ => &[],
        }
    }

    /// Estimates its length in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Call { name, input, .. } => name.len() + input.to_string().len(),
            Self::Result {
                content, images, ..
            } => content.len() + images.len() * BYTES_OF_IMAGE,
            Self::Opaque(value) => value.to_string().len(),
        }
    }
}

impl PromptTurn {
    /// Estimates its length in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(TurnPart::bytes).sum()
    }
}

/// The rules of the services, for tests: a real service refuses a prompt that breaks one.
#[cfg(test)]
pub(super) mod valid {
    use std::collections::HashSet;

    use super::{PromptTurn, Role, TurnPart};

    /// Returns what a service would complain about.
    pub(crate) fn violations(turns: &[PromptTurn]) -> Vec<String> {
        let mut violations = Vec::new();
        let mut ids = HashSet::new();
        let mut open: Vec<&str> = Vec::new();
        for (at, turn) in turns.iter().enumerate() {
            let expected = if at % 2 == 0 {
                Role::User
            } else {
                Role::Assistant
            };
            if turn.role != expected {
                violations.push(format!("turn {at} is not of {expected:?}"));
            }
            if turn.parts.is_empty() {
                violations.push(format!("turn {at} is empty"));
            }
            let mut text_was_there = false;
            let mut answered = Vec::new();
            let mut calls = Vec::new();
            for part in &turn.parts {
                match (turn.role, part) {
                    (_, TurnPart::Text(text)) => {
                        text_was_there = true;
                        if text.trim().is_empty() {
                            violations.push(format!("a text of turn {at} is blank"));
                        }
                    }
                    (Role::User, TurnPart::Result { id, .. }) => {
                        answered.push(id.as_str());
                        if text_was_there {
                            violations.push(format!("a result of turn {at} stands behind text"));
                        }
                    }
                    (Role::Assistant, TurnPart::Call { id, .. }) => {
                        calls.push(id.as_str());
                        if !ids.insert(id.as_str()) {
                            violations.push(format!("the id {id} is there twice"));
                        }
                    }
                    (Role::Assistant, TurnPart::Opaque(_)) => {}
                    (role, part) => violations.push(format!("{role:?} cannot say {part:?}")),
                }
            }
            if answered != open {
                violations.push(format!("turn {at} answers {answered:?}, not {open:?}"));
            }
            if turn.role == Role::Assistant
                && !turn
                    .parts
                    .iter()
                    .any(|part| !matches!(part, TurnPart::Opaque(_)))
            {
                violations.push(format!("turn {at} says nothing"));
            }
            open = calls;
        }
        if turns.last().is_none_or(|turn| turn.role == Role::Assistant) {
            violations.push("the last turn is not the user's".to_owned());
        }
        violations
    }
}
