//! The inputs of `glob` and `grep`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use teamd_shared::tools::input;

/// The most lines of context that a call may ask for.
const MAX_CONTEXT: f64 = 20.0;

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Search {
    /// Files.
    Glob(Glob),
    /// Lines.
    Grep(Grep),
}

/// Lists the files in the workspace that a pattern matches (`*.rs`, `src/**/*.{ts,tsx}`), the last
/// changed first. What `.gitignore` names is left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Glob {
    /// The pattern.
    #[serde(deserialize_with = "input::without_nul")]
    pub pattern: String,
}

/// Searches the files in the workspace, but those that `.gitignore` names, for a regular expression
/// (Rust syntax, line by line). Returns `file:line:text`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grep {
    /// The regular expression.
    #[serde(deserialize_with = "input::without_nul")]
    pub pattern: String,
    /// A file or folder to search in.
    #[serde(
        default,
        deserialize_with = "path",
        skip_serializing_if = "Option::is_none"
    )]
    pub path: Option<String>,
    /// Only in files that this pattern matches.
    #[serde(
        default,
        deserialize_with = "path",
        skip_serializing_if = "Option::is_none"
    )]
    pub glob: Option<String>,
    /// Lines around each match, at most 20.
    #[serde(
        default,
        deserialize_with = "context",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(max = 20))]
    pub context: Option<u64>,
}

fn path<'de, D: Deserializer<'de>>(input: D) -> Result<Option<String>, D::Error> {
    input::without_nul(input).map(Some)
}

fn context<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    input::checked(
        input,
        |lines: &f64| lines.fract() == 0.0 && (0.0..=MAX_CONTEXT).contains(lines),
        format_args!("a whole number from 0 to {MAX_CONTEXT}"),
    )
    .map(|lines| format!("{lines:.0}").parse().ok())
}
