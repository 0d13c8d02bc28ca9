//! The input of `edit_file`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::input;

/// Replaces `old_text`, which must occur exactly once in the file, by `new_text`. Copy `old_text`
/// exactly, with its white space, and take in enough lines around it to make it unique. Refused
/// while the gate is closed.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditFile {
    /// The file: relative to the workspace, or absolute and inside it.
    #[serde(deserialize_with = "input::without_nul")]
    pub path: String,
    /// The text as it stands in the file, exactly.
    pub old_text: String,
    /// The text that takes its place; empty to delete.
    pub new_text: String,
}
