//! The input of `delegate`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

/// Gives one task to a subagent that has bash, the files and search, and works until it answers.
/// Its steps do not fill your context: use it to look through much. It knows nothing of this
/// conversation.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delegate {
    /// All that it must know: the task, where to look, what to answer.
    #[serde(deserialize_with = "prompt")]
    pub prompt: String,
}

fn prompt<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    let prompt = String::deserialize(input)?;
    if prompt.trim().is_empty() {
        return Err(serde::de::Error::custom("must say what is to be done"));
    }
    Ok(prompt)
}
