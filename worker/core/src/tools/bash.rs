//! The input of `bash`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use teamd_shared::tools::input;

/// The longest time that a call may ask for, in seconds.
const MAX_TIMEOUT: f64 = 3600.0;

/// Runs a command with `bash -c` in the workspace and returns its output (stdout and stderr
/// together; the middle of a long output is left out) and its exit code. Each call starts a new
/// shell without a terminal or input, so interactive programs do not work. Whatever is still
/// running when the command ends is ended too. With `run_in_background`, the call returns at once
/// and the command continues; the result names the log file that gets its output. Outside the
/// workspace nothing can be written but $TMPDIR. While your gate is closed, the workspace cannot be
/// written either, and there is no network.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bash {
    /// The command.
    #[serde(deserialize_with = "input::without_nul")]
    pub command: String,
    /// Seconds until the command is ended: 120 by default, at most 3600.
    #[serde(default, deserialize_with = "timeout")]
    pub timeout: Option<f64>,
    /// True to return at once while the command continues.
    #[serde(default)]
    pub run_in_background: bool,
}

fn timeout<'de, D: Deserializer<'de>>(input: D) -> Result<Option<f64>, D::Error> {
    input::checked(
        input,
        |seconds| *seconds > 0.0 && *seconds <= MAX_TIMEOUT,
        format_args!("above 0 and at most {MAX_TIMEOUT} seconds"),
    )
    .map(Some)
}
