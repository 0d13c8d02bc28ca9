//! The input of `load_skill`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use teamd_shared::tools::input;

/// Reads a skill: its instructions, or another file of its folder that they name. Read one before
/// work that it is for.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadSkill {
    /// The skill.
    #[serde(deserialize_with = "input::without_nul")]
    pub name: String,
    /// A file of its folder, instead of SKILL.md.
    #[serde(default, deserialize_with = "file")]
    pub file: Option<String>,
}

fn file<'de, D: Deserializer<'de>>(input: D) -> Result<Option<String>, D::Error> {
    let file = input::without_nul(input)?;
    // A model writes an empty text for what it does not say.
    Ok(Some(file).filter(|file| !file.trim().is_empty()))
}
