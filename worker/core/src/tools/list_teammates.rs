//! The input of `list_teammates`.

use schemars::JsonSchema;
use serde::Deserialize;

/// Lists the teammates with name, role, status, gate and activity, and the pending plans and
/// shutdowns. Do not use it to wait: what teammates send wakes you.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListTeammates {}
