//! The program that is the mind of a teammate, where that is not the built-in one.

use std::fmt;

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// The name of the built-in agent: the worker's own loop over a model.
pub const BUILT_IN: &str = "builtin";

/// An agent as the user defines it: `[agents.NAME]` of `team.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentProgram {
    /// The program and its arguments.
    #[serde(deserialize_with = "command")]
    pub command: Vec<String>,
    /// How the worker drives it.
    pub protocol: Protocol,
}

impl AgentProgram {
    /// Returns the line by which the command of the agent of this name is trusted.
    pub fn trust_key(&self, name: &str) -> String {
        format!("agents.{name:?}.command = {:?}", self.command)
    }
}

fn command<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let command = Vec::<String>::deserialize(deserializer)?;
    match command.first() {
        Some(program) if !program.is_empty() => Ok(command),
        _ => Err(D::Error::custom("a program and its arguments are expected")),
    }
}

/// The agent of a teammate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Agent {
    /// Its name, as the user calls it.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How the worker drives it.
    pub protocol: Protocol,
}

/// How a worker drives an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// One process for each piece of work: the messages on standard input, the answer on standard output.
    Run,
}

impl Protocol {
    /// Returns its name, as it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
        }
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, command, protocol: Protocol::Run } = self;
        write!(f, "{name} (a process for each piece of work: {})", command.join(" "))
    }
}
