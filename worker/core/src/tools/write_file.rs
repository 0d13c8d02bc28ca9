//! The input of `write_file`.

use schemars::JsonSchema;
use serde::Deserialize;

use teamd_shared::tools::input;

/// Creates a file in the workspace, with missing directories, or replaces its whole content. To
/// change a part of a file, use `edit_file`. Refused while your gate is closed.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteFile {
    /// The file: relative to the workspace, or absolute and inside it.
    #[serde(deserialize_with = "input::without_nul")]
    pub path: String,
    /// The whole content of the file.
    pub content: String,
}
