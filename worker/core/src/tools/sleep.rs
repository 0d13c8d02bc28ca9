//! `sleep`: a tool of the script model, which real models are not told of.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use teamd_shared::tools::input;

/// The longest sleep, in seconds: a day.
const MAX_SLEEP: f64 = 86_400.0;

/// Waits.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sleep {
    /// Seconds, at most a day.
    #[serde(deserialize_with = "seconds")]
    pub seconds: f64,
}

fn seconds<'de, D: Deserializer<'de>>(input: D) -> Result<f64, D::Error> {
    input::checked(
        input,
        |seconds| (0.0..=MAX_SLEEP).contains(seconds),
        format_args!("from 0 to {MAX_SLEEP}"),
    )
}
