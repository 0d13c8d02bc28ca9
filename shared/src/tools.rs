//! The tools of a lead as a model sees them: name, input and what a call answers. The lead agent has
//! them, and so has a lead that is connected by MCP (`teamctl mcp`). What a call does is not in here.
//! Pure.

mod answer_plan;
pub mod input;
mod list_teammates;
mod mcp_lead;
mod remember;
mod request_plan;
mod send_message;
mod shutdown_request;
mod spawn_teammate;
pub mod task_text;
mod tasks;

use serde_json::Value;

use crate::control::Done;
use crate::name::Name;

pub use answer_plan::AnswerPlan;
pub use list_teammates::{ListTeammates, team_text};
pub use mcp_lead::{ReviewPlan, TaskReview, TeamStatus, WaitForEvents};
pub use remember::Remember;
pub use request_plan::RequestPlan;
pub use send_message::{LeadMessage, SendMessage};
pub use shutdown_request::ShutdownRequest;
pub use spawn_teammate::{Grant, SpawnReport, SpawnTeammate, non_blank};
pub use tasks::{
    ClaimTask, LeadTaskCreate, LeadTaskUpdate, TaskAction, TaskCreate, TaskDiff, TaskGet, TaskList,
    TaskUpdate,
};

/// A tool, as a model is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolText {
    /// Its name.
    pub name: &'static str,
    /// What it does, and when to use it.
    pub description: String,
    /// The JSON Schema of its input: an object.
    pub input: Value,
}

/// Reads the name of a teammate that a call is about.
///
/// # Errors
/// A text for the model.
pub fn teammate(name: &str) -> Result<Name, String> {
    match Name::new(name) {
        Ok(name) => Ok(name),
        Err(_) if name == Name::lead().as_str() => Err("that is you: name a teammate".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Describes an answer of the daemon that answers another question.
pub fn unexpected(done: &Done) -> String {
    format!("the daemon answered something else: {done:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_agent_is_no_teammate() {
        assert_eq!(
            teammate("lead"),
            Err("that is you: name a teammate".to_owned())
        );
    }
}
