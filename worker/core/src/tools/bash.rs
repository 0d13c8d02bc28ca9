//! The input of `bash`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::input;

/// The longest time that a call may ask for, in seconds.
const MAX_TIMEOUT: f64 = 3600.0;

/// Runs a command with `bash -c` in the workspace, and returns what it prints (stdout and stderr
/// together) and its exit code. It has no terminal and no input: nothing that asks questions works.
/// All that it leaves running ends with the call, unless `run_in_background` is set: then the call
/// returns at once, the command goes on, and its output goes to a log file that is named in the
/// result. Of long output only beginning and end are kept. The file system outside the workspace
/// cannot be written; while the gate is closed nothing can, and there is no network.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bash {
    /// The command.
    #[serde(deserialize_with = "input::without_nul")]
    pub command: String,
    /// Seconds until it is ended: 120 by default, at most 3600.
    #[serde(default, deserialize_with = "timeout")]
    pub timeout: Option<f64>,
    /// True: return at once, and let the command go on.
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
