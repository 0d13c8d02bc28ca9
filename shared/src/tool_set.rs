//! What the built-in agent is offered beyond the tools that are always there: chosen when a
//! conversation begins, and recorded in its first entry, so that each later incarnation sends its
//! model the same bytes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::terms::ToolGroup;

/// What a conversation was offered when it began.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ToolSet {
    /// The groups of tools.
    pub groups: Vec<ToolGroup>,
    /// The skills, as the model was told of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<Skill>,
}

/// A skill: a folder of instructions for one kind of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// What it is for, and when to use it.
    pub description: String,
    /// Its folder: absolute, and without links.
    pub folder: String,
}

impl ToolSet {
    /// Tells whether nothing is offered beyond the tools that are always there.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Tells whether the tools of a group are offered.
    pub fn has(&self, group: ToolGroup) -> bool {
        group == ToolGroup::Search || self.groups.contains(&group)
    }
}
