//! The groups in which the built-in agent is offered tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A group of tools. A new one goes to the end.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ToolGroup {
    /// `glob` and `grep`: it is always there.
    Search,
    /// `todo_write`.
    Todo,
    /// `load_skill`.
    Skills,
    /// `delegate`.
    Delegate,
    /// `remember`, and what the team remembers when a conversation begins.
    Memory,
}

/// What one source says of the tools of the built-in agent. It is part of control frames, as
/// [`super::TermsPatch`] is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolsPatch {
    /// Which groups of tools it is offered.
    pub groups: Option<Vec<ToolGroup>>,
}

impl ToolsPatch {
    pub(super) fn merge(self, below: Self) -> Self {
        Self {
            groups: self.groups.or(below.groups),
        }
    }
}

/// Returns the groups of a list, each once and in the order of the tools.
pub(super) fn in_order(mut groups: Vec<ToolGroup>) -> Vec<ToolGroup> {
    groups.sort_unstable();
    groups.dedup();
    groups.retain(|group| *group != ToolGroup::Search);
    groups
}
