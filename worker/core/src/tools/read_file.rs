//! The input of `read_file`.

use schemars::JsonSchema;
use serde::Deserialize;

use teamd_shared::tools::input;

/// Reads a text file in the workspace: up to `limit` lines (2,000 by default) from line `offset`.
/// A PNG, JPEG, WebP or GIF is shown to you. Other binary files are refused.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadFile {
    /// The file: relative to the workspace, or absolute and inside it.
    #[serde(deserialize_with = "input::without_nul")]
    pub path: String,
    /// The maximum number of lines.
    #[serde(default, deserialize_with = "input::count")]
    #[schemars(range(min = 1))]
    pub limit: Option<u64>,
    /// The first line, counted from 1.
    #[serde(default, deserialize_with = "input::count")]
    #[schemars(range(min = 1))]
    pub offset: Option<u64>,
}
