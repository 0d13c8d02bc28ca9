//! The input of `write_file`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::input;

/// Makes a file in the workspace, or replaces all of one that is there, with `content`; makes
/// missing directories. To change a part of a file, use `edit_file`. Refused while the gate is
/// closed.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteFile {
    /// The file: relative to the workspace, or absolute and inside it.
    #[serde(deserialize_with = "input::without_nul")]
    pub path: String,
    /// All that the file shall hold.
    pub content: String,
}
