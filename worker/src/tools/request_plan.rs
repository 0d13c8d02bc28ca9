//! `request_plan`: closes the gate of a teammate and asks it for a plan.

use schemars::JsonSchema;
use serde::Deserialize;
use teamd_shared::control::Command;

use super::input::not_blank;
use super::{Tools, team};
use crate::agent::session::Session;

/// Closes the gate of a teammate, so that it can change nothing more, and asks it for a plan about
/// `content`. You hear by itself when the plan is there.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestPlan {
    /// Its name.
    #[serde(deserialize_with = "not_blank")]
    teammate: String,
    /// What the plan shall be about.
    #[serde(deserialize_with = "not_blank")]
    content: String,
}

impl<T: Tools> Session<T> {
    /// Asks a teammate for a plan, and does not wait for it.
    pub(super) async fn request_plan(&mut self, input: RequestPlan) -> Result<String, String> {
        let name = team::teammate(&input.teammate)?;
        let id = self.ids.request();
        let content = input.content;
        let ask = Command::RequestPlan {
            id,
            name: name.clone(),
            content,
            wait: false,
        };
        self.order(ask).await?;
        Ok(format!(
            "the gate of {name} is closed, and it is asked for a plan; you are told when the plan is there"
        ))
    }
}
