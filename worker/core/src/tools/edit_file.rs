//! The input of `edit_file`.

use schemars::JsonSchema;
use serde::Deserialize;

use teamd_shared::tools::input;

/// Replaces `old_text`, which must occur exactly once in the file, by `new_text`. Copy `old_text`
/// exactly, including white space, and include enough lines around it to make it unique. Refused
/// while your gate is closed.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditFile {
    /// The file: relative to the workspace, or absolute and inside it.
    #[serde(deserialize_with = "input::without_nul")]
    pub path: String,
    /// The exact text in the file.
    pub old_text: String,
    /// The replacement; empty to delete `old_text`.
    pub new_text: String,
}
