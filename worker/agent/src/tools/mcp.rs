//! The MCP servers of a teammate. The worker is their only client: gate, time limit, restart, names
//! and end are the same for every agent.
//!
//! A server starts when its tools are to be listed and nothing is known of them, or when one of
//! them is called; it ends with its incarnation. What it tells of itself is kept for later
//! incarnations, so that a team that waits runs no servers.

mod connection;
mod http;
mod known_tools;
mod launch;
mod reports;
mod result;
mod running_call;
mod server;

use std::sync::{Arc, OnceLock};

use teamd_shared::control::McpServerReport;
use teamd_shared::member::Gate;
use teamd_shared::terms::McpServer;
use teamd_worker_core::mcp::{KnownTool, McpCatalog, ServerTools};
use teamd_worker_core::tools::{McpCall, McpLook, Outcome};
use teamd_worker_sandbox::run::Runner;
use tokio::sync::watch;

use known_tools::KnownTools;
use reports::Reports;
pub(super) use running_call::RunningMcpCall;
use server::Server;

/// The error of a call that a closed gate refuses.
const GATE_CLOSED: &str = "refused: your gate is closed, and this tool may change something; submit a plan with plan_approval and \
     wait for the verdict";

/// The MCP servers of a teammate.
#[derive(Debug, Default)]
pub(super) struct McpServers {
    servers: Vec<Server>,
    /// Set when the tools are known; a persona shares it.
    catalog: Arc<OnceLock<McpCatalog>>,
    reports: Reports,
}

impl McpServers {
    /// Makes them; none is started.
    pub(super) fn new(servers: &[McpServer]) -> Self {
        let reports = Reports::new(servers);
        let made = |server: &McpServer| Server::new(server.clone(), reports.of(server));
        Self {
            servers: servers.iter().map(made).collect(),
            catalog: Arc::default(),
            reports,
        }
    }

    /// Returns what becomes of the servers, at every change; none if there are none.
    pub(super) fn reports(&self) -> Option<watch::Receiver<Vec<McpServerReport>>> {
        self.reports.watch()
    }

    /// Returns where the tools are known from, once they are listed.
    pub(super) fn catalog(&self) -> Arc<OnceLock<McpCatalog>> {
        Arc::clone(&self.catalog)
    }

    /// Finds out which tools there are; none: that is known. The future does not borrow the servers,
    /// and may be dropped.
    pub(super) fn list(
        &mut self,
        runner: &Runner,
        gate: Gate,
    ) -> Option<impl Future<Output = ()> + 'static + use<>> {
        if self.catalog.get().is_some() || self.servers.is_empty() {
            return None;
        }
        let known = KnownTools::of(&runner.config().environment);
        let mut listed = Vec::new();
        let mut asked = Vec::new();
        for server in &mut self.servers {
            let definition = server.definition();
            if let Some(tools) = known.read(definition) {
                listed.push(ServerTools {
                    server: definition.name.clone(),
                    tools: Ok(tools),
                });
                continue;
            }
            let definition = definition.clone();
            let connection = server.connect(runner, gate);
            asked.push((definition, connection));
        }
        let catalog = self.catalog();
        Some(async move {
            for (definition, connection) in asked {
                let tools = match connection {
                    Ok(mut connection) => connection.tools().await,
                    Err(why) => Err(why),
                };
                if let Err(why) = &tools {
                    tracing::warn!("the MCP server {}: {why}", definition.name);
                }
                listed.push(ServerTools {
                    server: definition.name,
                    tools,
                });
            }
            // Without a value no other future of this has ended.
            let _ = catalog.set(McpCatalog::new(listed));
        })
    }

    /// Answers a look at the tools.
    pub(super) fn look(&self, look: &McpLook) -> Outcome {
        let Some(catalog) = self.catalog.get() else {
            return McpCatalog::default().show("").into();
        };
        match look {
            McpLook::Tool(tool) => catalog.show(&tool.name),
            McpLook::Search(search) => catalog.search(&search.words),
        }
        .into()
    }

    /// Starts a call, and its server if that does not run.
    ///
    /// # Errors
    /// A text for the model.
    pub(super) fn call(
        &mut self,
        call: McpCall,
        runner: &Runner,
        gate: Gate,
    ) -> Result<RunningMcpCall, String> {
        let none = McpCatalog::default();
        let catalog = self.catalog.get().unwrap_or(&none);
        let KnownTool { server, tool, .. } = catalog.find(&call.name)?;
        let found = self
            .servers
            .iter_mut()
            .find(|known| known.definition().name == *server);
        let server = found.ok_or("this server is not one of yours")?;
        let only_reads = tool.is_read_only && server.definition().is_confined();
        if gate == Gate::Closed && !only_reads {
            return Err(GATE_CLOSED.to_owned());
        }
        let timeout = server.timeout();
        let connection = server.connect(runner, gate)?;
        Ok(RunningMcpCall::start(
            connection,
            tool.name.clone(),
            call.arguments,
            timeout,
        ))
    }

    /// Opens the gates of the servers that run behind closed ones; tells whether there are any. One
    /// whose gate cannot change is ended: its next call starts it again.
    pub(super) fn open_gates(&mut self) -> bool {
        let mut is_any_open = false;
        for server in &mut self.servers {
            is_any_open |= server.open_gate();
        }
        is_any_open
    }

    /// Waits until each server whose gate is to be opened can write.
    pub(super) async fn opened(&mut self) {
        for server in &mut self.servers {
            server.opened().await;
        }
    }

    /// Closes the gates of the servers; returns when none can write. May be dropped and called
    /// again.
    pub(super) async fn close_gates(&mut self) {
        for server in &mut self.servers {
            server.close_gate().await;
        }
    }

    /// Tells whether a server may write.
    pub(super) fn may_write(&self) -> bool {
        self.servers.iter().any(Server::may_write)
    }
}
