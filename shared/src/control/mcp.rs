//! What becomes of the MCP servers of teammates: only the worker of a teammate knows it.

use serde::{Deserialize, Serialize};

use crate::name::Name;

/// What an MCP server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpServerState {
    /// It was not needed yet.
    NotStarted,
    /// Its handshake is made.
    Starting,
    /// It takes calls.
    Connected,
    /// It was ended because its gate changes; the next call starts it.
    Stopped,
    /// It could not be started, or has ended.
    Failed,
}

impl McpServerState {
    /// Returns it in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotStarted => "not started",
            Self::Starting => "starting",
            Self::Connected => "connected",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// What a worker reports of one of its servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpServerReport {
    /// The name of the server.
    pub name: String,
    /// What it does.
    pub state: McpServerState,
    /// How many tools it has told of, while it is connected.
    pub tools: Option<u32>,
    /// Why it has failed last in this incarnation, on one line.
    pub last_error: Option<String>,
}

impl McpServerReport {
    /// Describes a server that was not needed yet.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            state: McpServerState::NotStarted,
            tools: None,
            last_error: None,
        }
    }
}

/// The servers of a teammate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberServers {
    /// The teammate.
    pub name: Name,
    /// Its servers, by its last report.
    pub servers: Vec<McpServerReport>,
}
