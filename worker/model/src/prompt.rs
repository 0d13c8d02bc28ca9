//! What a model is asked: the system's instructions, the tools, and the conversation. Pure data.
//!
//! A prompt that `super::conversation` makes is valid for every service: it begins with the user,
//! the two sides take turns, every call is answered by exactly one result in the very next turn,
//! and results stand before text.

use serde_json::Value;
use teamd_shared::transcript::Block;
use teamd_worker_core::tools::ToolText;

/// All that a model is asked with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Prompt<'a> {
    /// Who it is, and what holds for it. The same in every call of a conversation.
    pub(crate) system: &'a str,
    /// What it may call, in a fixed order. The same in every call of a conversation.
    pub(crate) tools: &'a [ToolText],
    /// The conversation so far; the last turn is the user's, but for an answer that the service has
    /// paused.
    pub(crate) turns: &'a [PromptTurn],
    /// The most tokens that the answer may have; none: as the service has it by default.
    pub(crate) max_output: Option<u64>,
}

/// One side's turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PromptTurn {
    /// Whose.
    pub(crate) role: Role,
    /// What it says, never empty.
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

    /// Returns about how long it is, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Call { name, input, .. } => name.len() + input.to_string().len(),
            Self::Result { content, .. } => content.len(),
            Self::Opaque(value) => value.to_string().len(),
        }
    }
}

impl PromptTurn {
    /// Returns about how long it is, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(TurnPart::bytes).sum()
    }
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

/// The rules of the services, for tests: whatever breaks one is refused by a real service.
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
