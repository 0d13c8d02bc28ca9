//! The inputs of the tools for MCP servers. A model is told of these three, and not of each tool of
//! each server: their schemas would cost tokens in every call.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use teamd_shared::tools::input::not_blank;

/// Shows what a tool of an MCP server does and the JSON Schema of its arguments: look before you
/// call it for the first time.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpTool {
    /// Its name.
    #[serde(deserialize_with = "not_blank")]
    pub name: String,
}

/// Calls a tool of an MCP server.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpCall {
    /// Its name.
    #[serde(deserialize_with = "not_blank")]
    pub name: String,
    /// Its arguments, as its schema says.
    #[serde(default)]
    pub arguments: Map<String, Value>,
}

/// Finds tools of MCP servers by words of their names and descriptions.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpSearch {
    /// The words; empty: all tools.
    #[serde(default)]
    pub words: String,
}
