//! The input of `remember`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::input::not_blank;

/// Proposes what the team is to remember: what you have learnt here and a later teammate needs, such
/// as how this project is built. A person decides; teammates that begin later read it.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Remember {
    /// One thing, in a few lines.
    #[serde(deserialize_with = "not_blank")]
    pub text: String,
}
