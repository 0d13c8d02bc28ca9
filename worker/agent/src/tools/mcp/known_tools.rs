//! What MCP servers have told of their tools earlier, for a worker: [`mcp_tools`], and what becomes
//! of its errors. None of them is an error of a call: a server is asked again.

use teamd_shared::environment::Environment;
use teamd_shared::mcp_tools::{self, KnownServer, ServerTool};
use teamd_shared::state::StateDir;
use teamd_shared::terms::McpServer;

/// Where these files are.
#[derive(Debug, Clone)]
pub(super) struct KnownTools {
    /// None: the user has no state directory.
    state: Option<StateDir>,
}

impl KnownTools {
    /// Finds the place.
    pub(super) fn of(environment: &Environment) -> Self {
        let state = StateDir::of_environment(environment);
        let state = state
            .inspect_err(|error| tracing::info!("the tools of MCP servers are not kept: {error}"));
        Self { state: state.ok() }
    }

    /// Returns the tools of a server that is defined exactly so.
    pub(super) fn read(&self, server: &McpServer) -> Option<Vec<ServerTool>> {
        let state = self.state.as_ref()?;
        let known = mcp_tools::read(state, server).unwrap_or_else(|error| {
            tracing::warn!(
                "the kept tools of the MCP server {} cannot be read: {error}",
                server.name
            );
            None
        });
        known.map(|known| known.tools)
    }

    /// Keeps the tools of a server.
    pub(super) fn write(&self, server: &McpServer, tools: &[ServerTool]) {
        let Some(state) = &self.state else { return };
        let known = KnownServer {
            server: server.clone(),
            tools: tools.to_vec(),
        };
        if let Err(error) = mcp_tools::write(state, &known) {
            tracing::warn!(
                "the tools of the MCP server {} are not kept: {error}",
                server.name
            );
        }
    }
}
