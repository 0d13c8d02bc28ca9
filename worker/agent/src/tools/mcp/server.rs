//! One MCP server: whether it runs, how often it has died, and its gate.

use std::path::Path;
use std::time::Duration;

use teamd_shared::environment::Environment;
use teamd_shared::member::Gate;
use teamd_shared::terms::{McpServer, McpTransport};
use teamd_worker_core::secret::Secret;
use teamd_worker_model::http_client;
use teamd_worker_sandbox::run::{GateHandle, Runner, StartedAgent};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::connection::{self, Connecting, McpConnection};
use super::known_tools::KnownTools;
use super::reports::ServerReporter;
use super::{http, launch};

/// How often a server may die within [`PERIOD`] before it has failed.
const MOST_DEATHS: usize = 2;

/// How long a death counts.
const PERIOD: Duration = Duration::from_secs(60);

/// When a server died by itself, as far as that counts.
#[derive(Debug, Default)]
struct Deaths(Vec<Instant>);

impl Deaths {
    fn add(&mut self, now: Instant) {
        self.0.push(now);
    }

    /// Returns how many count, if these are too many to start the server again.
    fn too_many(&mut self, now: Instant) -> Option<usize> {
        self.0.retain(|death| now - *death < PERIOD);
        Some(self.0.len()).filter(|count| *count > MOST_DEATHS)
    }
}

/// One server of a teammate.
#[derive(Debug)]
pub(super) struct Server {
    definition: McpServer,
    running: Option<RunningServer>,
    deaths: Deaths,
    reporter: ServerReporter,
}

/// A server that runs, or that is reached over HTTP.
#[derive(Debug)]
struct RunningServer {
    connection: McpConnection,
    /// None: no process of ours.
    gate: Option<GateHandle>,
    /// Whether the gate changes while it runs.
    is_live: bool,
    /// What serves its connection and its gateway: the process ends with this.
    _tasks: JoinSet<()>,
}

impl Server {
    /// Makes it; it is not started.
    pub(super) fn new(definition: McpServer, reporter: ServerReporter) -> Self {
        Self {
            definition,
            running: None,
            deaths: Deaths::default(),
            reporter,
        }
    }

    /// Returns how it is defined.
    pub(super) fn definition(&self) -> &McpServer {
        &self.definition
    }

    /// Returns how long a call may take.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.definition.timeout)
    }

    /// Returns its connection; starts it if it does not run.
    ///
    /// # Errors
    /// Why it cannot be started, or is not started again.
    pub(super) fn connect(&mut self, runner: &Runner, gate: Gate) -> Result<McpConnection, String> {
        if let Some(running) = &self.running {
            match running.connection.has_ended() {
                None => return Ok(running.connection.clone()),
                Some(how) => self.died(&how),
            }
        }
        let name = &self.definition.name;
        if let Some(count) = self.deaths.too_many(Instant::now()) {
            return Err(format!(
                "the MCP server {name} has failed: it ended {count} times within a minute; it is tried again later"
            ));
        }
        let started = self.start(runner, gate);
        let running = started.map_err(|why| {
            self.reporter.failed(&why);
            format!("the MCP server {name} cannot be used: {why}")
        })?;
        Ok(self.running.insert(running).connection.clone())
    }

    /// Counts a death.
    fn died(&mut self, how: &str) {
        tracing::warn!("the MCP server {} {how}", self.definition.name);
        self.running = None;
        self.deaths.add(Instant::now());
    }

    fn start(&self, runner: &Runner, gate: Gate) -> Result<RunningServer, String> {
        let environment = &runner.config().environment;
        let secrets = secrets_of(&self.definition, environment)?;
        let connecting = Connecting {
            server: self.definition.clone(),
            secrets: secrets.clone(),
            known: KnownTools::of(environment),
            reporter: self.reporter.clone(),
        };
        if let McpTransport::Http { url, headers } = &self.definition.transport {
            // It follows no redirect.
            let client = http_client(environment)?;
            let config = http::config(url, headers, &secrets)?;
            let (connection, serving) = connection::over_http(connecting, client, config);
            let mut tasks = JoinSet::new();
            tasks.spawn(serving);
            return Ok(RunningServer {
                connection,
                gate: None,
                is_live: true,
                _tasks: tasks,
            });
        }
        let StartedAgent {
            reads,
            writes,
            ended,
            gate,
            serving: mut tasks,
        } = launch::start(&self.definition, runner, gate, &secrets)?;
        let (connection, serving) = connection::over_pipe(connecting, (reads, writes), ended);
        tasks.spawn(serving);
        Ok(RunningServer {
            connection,
            gate: Some(gate),
            is_live: launch::is_live(runner),
            _tasks: tasks,
        })
    }

    /// Opens its gate, if it runs behind a closed one; tells whether that is so. One whose gate
    /// cannot change is ended.
    pub(super) fn open_gate(&mut self) -> bool {
        let Some(running) = &self.running else {
            return false;
        };
        let Some(gate) = &running.gate else {
            return false;
        };
        if running.is_live {
            return gate.open();
        }
        if !gate.may_write() {
            self.running = None;
            self.reporter.stopped(self.reporter.last_error());
        }
        false
    }

    /// Waits until it can write, if its gate is to be opened.
    pub(super) async fn opened(&mut self) {
        if let Some(running) = &mut self.running
            && let Some(gate) = &mut running.gate
        {
            gate.opened().await;
        }
    }

    /// Closes its gate; returns when it cannot write. One whose gate cannot change ends, which is
    /// no death. May be dropped and called again.
    pub(super) async fn close_gate(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        let Some(gate) = &mut running.gate else {
            return;
        };
        let could_write = gate.may_write();
        let last_error = self.reporter.last_error();
        gate.close().await;
        if could_write && !running.is_live {
            self.running = None;
            self.reporter.stopped(last_error);
        }
    }

    /// Tells whether it may write.
    pub(super) fn may_write(&self) -> bool {
        let gate = self
            .running
            .as_ref()
            .and_then(|running| running.gate.as_ref());
        gate.is_some_and(GateHandle::may_write)
    }
}

/// Reads the variables that a server needs.
///
/// # Errors
/// Which one is not set, and what to do.
fn secrets_of(server: &McpServer, environment: &Environment) -> Result<Vec<Secret>, String> {
    let mut secrets = Vec::new();
    for name in server.variables() {
        let value = environment.value(name).ok_or_else(|| {
            format!("the variable {name} is not set: set it where the teammate is spawned, and spawn it again")
        })?;
        let secret = if is_place(&value) {
            Secret::shown(name, value)
        } else {
            Secret::new(name, value)
        };
        secrets.push(secret);
    }
    Ok(secrets)
}

/// Tells whether a value names files that are there, as a search path does: it is no secret, and
/// results of the server are full of it.
fn is_place(value: &str) -> bool {
    let mut paths = value.split(':').map(Path::new);
    paths.all(|path| path.is_absolute() && path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_there_are_no_secret() {
        for (value, expected) in [
            ("/", true),
            ("/usr:/tmp", true),
            ("/nowhere/at/all", false),
            ("/usr:tok-3c1f", false),
            ("", false),
        ] {
            assert_eq!(is_place(value), expected, "{value}");
        }
    }

    #[test]
    fn a_server_that_has_failed_is_tried_again_when_its_deaths_are_a_minute_old() {
        let mut deaths = Deaths::default();
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        deaths.add(at(0));
        deaths.add(at(30));
        assert_eq!(deaths.too_many(at(30)), None);
        deaths.add(at(59));
        assert_eq!(deaths.too_many(at(59)), Some(3));
        assert_eq!(deaths.too_many(at(60)), None);
    }
}
