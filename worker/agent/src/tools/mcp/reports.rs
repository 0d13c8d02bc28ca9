//! What the worker reports of its MCP servers, as it becomes known.

use teamd_shared::control::{McpServerReport, McpServerState};
use teamd_shared::mcp_tools::one_line;
use teamd_shared::terms::McpServer;
use tokio::sync::watch;

/// The longest error that is reported, in characters.
const MAX_ERROR: usize = 300;

/// The reports of all servers of a teammate.
#[derive(Debug, Clone, Default)]
pub(super) struct Reports(watch::Sender<Vec<McpServerReport>>);

impl Reports {
    /// Makes them; no server was needed yet.
    pub(super) fn new(servers: &[McpServer]) -> Self {
        let servers = servers.iter();
        let reports = servers.map(|server| McpServerReport::new(server.name.as_str()));
        Self(watch::Sender::new(reports.collect()))
    }

    /// Returns what changes with them; none if there are no servers.
    pub(super) fn watch(&self) -> Option<watch::Receiver<Vec<McpServerReport>>> {
        if self.0.borrow().is_empty() {
            return None;
        }
        let mut reports = self.0.subscribe();
        reports.mark_changed();
        Some(reports)
    }

    /// Returns what reports one of them.
    pub(super) fn of(&self, server: &McpServer) -> ServerReporter {
        ServerReporter {
            reports: self.clone(),
            name: server.name.as_str().to_owned(),
        }
    }
}

/// Reports what becomes of one server.
#[derive(Debug, Clone)]
pub(super) struct ServerReporter {
    reports: Reports,
    name: String,
}

impl ServerReporter {
    /// Its handshake is made.
    pub(super) fn starting(&self) {
        self.change(|report| {
            report.state = McpServerState::Starting;
            report.tools = None;
        });
    }

    /// It takes calls of so many tools.
    pub(super) fn connected(&self, tools: usize) {
        self.change(|report| {
            report.state = McpServerState::Connected;
            report.tools = u32::try_from(tools).ok();
        });
    }

    /// It was ended because its gate changes, which is no failure.
    pub(super) fn stopped(&self, last_error: Option<String>) {
        self.change(|report| {
            report.state = McpServerState::Stopped;
            report.tools = None;
            report.last_error = last_error;
        });
    }

    /// It could not be started, or has ended.
    pub(super) fn failed(&self, why: &str) {
        let why: Vec<&str> = why.lines().map(str::trim).collect();
        let error = one_line(&why.join(" "), MAX_ERROR);
        self.change(|report| {
            report.state = McpServerState::Failed;
            report.tools = None;
            report.last_error = Some(error);
        });
    }

    /// Returns why it has failed last.
    pub(super) fn last_error(&self) -> Option<String> {
        let reports = self.reports.0.borrow();
        let own = reports.iter().find(|report| report.name == self.name)?;
        own.last_error.clone()
    }

    fn change(&self, change: impl FnOnce(&mut McpServerReport)) {
        self.reports.0.send_if_modified(|reports| {
            let own = reports.iter_mut().find(|report| report.name == self.name);
            let Some(own) = own else {
                return false;
            };
            let before = own.clone();
            change(own);
            *own != before
        });
    }
}

#[cfg(test)]
mod tests {
    use teamd_shared::terms::{McpName, McpTransport};

    use super::*;

    #[test]
    fn a_server_is_reported_as_it_is_with_its_last_error_on_one_visible_line() {
        let server = McpServer {
            name: McpName::new("files").unwrap(),
            transport: McpTransport::Stdio {
                command: vec!["files".to_owned()],
                env: Vec::new(),
                hosts: Vec::new(),
            },
            timeout: 60,
        };
        assert!(Reports::default().watch().is_none());
        let reports = Reports::new(std::slice::from_ref(&server));
        let mut watch = reports.watch().unwrap();
        assert!(watch.has_changed().unwrap());
        let reporter = reports.of(&server);
        let mut now = || {
            let reports = watch.borrow_and_update();
            let report = reports[0].clone();
            (report.state, report.tools, report.last_error)
        };
        assert_eq!(now(), (McpServerState::NotStarted, None, None));
        reporter.starting();
        assert_eq!(now(), (McpServerState::Starting, None, None));
        reporter.connected(3);
        assert_eq!(now(), (McpServerState::Connected, Some(3), None));
        reporter.failed("no\u{1b}[2J disk\n  at all");
        let error = Some("no[2J disk at all".to_owned());
        assert_eq!(now(), (McpServerState::Failed, None, error.clone()));
        reporter.connected(2);
        assert_eq!(now(), (McpServerState::Connected, Some(2), error.clone()));
        assert_eq!(reporter.last_error(), error);
        reporter.stopped(None);
        assert_eq!(now(), (McpServerState::Stopped, None, None));
    }
}
