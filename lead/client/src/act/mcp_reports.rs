//! Asks the daemon what the workers report of their MCP servers: that is in no file.

use std::time::Duration;

use teamd_shared::control::{Command, Done, McpServerReport, MemberServers};
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;

use crate::connection::Client;

/// How long the daemon may take: everything else is shown without it.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the workers report of their MCP servers.
#[derive(Debug, Clone, Default)]
pub struct McpReports(Vec<MemberServers>);

impl McpReports {
    /// Asks the daemon. Without one, and of one that is older, nothing is known.
    pub async fn ask(dir: &TeamDir) -> Self {
        let asked = async {
            let mut client = Client::connect(dir).await.ok()?;
            client.call(Command::McpServers).await.ok()
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Some(Done::McpServers(servers))) => Self(servers),
            _ => Self::default(),
        }
    }

    /// Returns what is reported of the servers of a teammate.
    pub fn of_member(&self, name: &Name) -> &[McpServerReport] {
        let member = self.0.iter().find(|member| member.name == *name);
        member.map_or(&[], |member| &member.servers)
    }

    /// Returns what is reported of one server of a teammate.
    pub fn of_server(&self, name: &Name, server: &str) -> Option<&McpServerReport> {
        let mut servers = self.of_member(name).iter();
        servers.find(|report| report.name == server)
    }
}
