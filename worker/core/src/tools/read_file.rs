//! The input of `read_file`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::input;

/// Reads a text file in the workspace: 2,000 lines from `offset` (counted from 1), or `limit` of
/// them. Binary files are refused.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadFile {
    /// The file: relative to the workspace, or absolute and inside it.
    #[serde(deserialize_with = "input::without_nul")]
    pub path: String,
    /// How many lines at most.
    #[serde(default, deserialize_with = "input::count")]
    #[schemars(range(min = 1))]
    pub limit: Option<u64>,
    /// The first line, counted from 1.
    #[serde(default, deserialize_with = "input::count")]
    #[schemars(range(min = 1))]
    pub offset: Option<u64>,
}
