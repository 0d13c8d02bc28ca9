//! The input of `list_teammates`.

use schemars::JsonSchema;
use serde::Deserialize;

/// Shows who is on the team: name, role, status, gate, what each does, and the plans and shutdowns
/// that are pending. Reads only. There is no need to call it in order to wait.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListTeammates {}
