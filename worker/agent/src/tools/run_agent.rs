//! Starts the agent of the teammate: for one piece of work (`run`, which no model gets as a tool),
//! or for many turns.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use teamd_shared::environment::Environment;
use teamd_shared::member::{Agent, Gate};
use teamd_worker_core::secret::Secret;
use teamd_worker_core::tools::RunAgent;
use teamd_worker_model::{AgentProcess, AgentSession, Known, Launch, Meter, open_kept};
use teamd_worker_sandbox::localhost::LocalhostEntry;
use teamd_worker_sandbox::run::{AgentStart, Foreground, GateHandle, RunnerConfig, Way};
use teamd_worker_sandbox::shim::{AgentOrder, ShimJob, ShimOrder, ShimProgram};
use teamd_worker_sandbox::{Gateway, Policy};
use teamd_worker_slots::Lease;

use super::agent_process::AgentExchange;
use super::session_record::SessionRecord;

/// How many words of the command of an agent people see in the list of processes.
const SHOWN: usize = 3;

/// How much of a session is read, in bytes.
const MAX_HISTORY: u64 = 256 << 20;

/// How an agent is set up, beside what its command says.
#[derive(Default)]
struct SetUp {
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

/// What an agent is started with.
pub(super) struct LaunchContext<'a> {
    pub(super) agent: &'a Agent,
    pub(super) config: &'a RunnerConfig,
    pub(super) environment: Environment,
    pub(super) temp: &'a Path,
    pub(super) policy: Option<Policy>,
    /// Its gate when it begins, and whether that changes while it runs: then the policy is that of
    /// an open gate.
    pub(super) gate: Gate,
    pub(super) live: bool,
    pub(super) gateway: Gateway,
    /// The token that is handed to it, if one is.
    pub(super) token: Option<Secret>,
    /// What counts its model calls.
    pub(super) meter: Meter,
    /// The jobserver of its commands, if they have one.
    pub(super) lease: Option<Lease>,
    /// The localhost of the incarnation, if it shares that, and what that is entered by.
    pub(super) localhost: Option<(LocalhostEntry, [OwnedFd; 2])>,
}

impl LaunchContext<'_> {
    /// Makes the job of an agent that is set up further, given the variables by which it finds its
    /// gateway; returns also the way to its gateway, and its jobserver.
    fn job(
        self,
        set_up: impl FnOnce(&[(&'static str, String)]) -> SetUp,
    ) -> io::Result<(ShimJob, Way, Option<Lease>)> {
        let Self {
            agent,
            config,
            mut environment,
            policy,
            gate,
            live,
            gateway,
            lease,
            localhost,
            ..
        } = self;
        let (localhost, namespaces) = localhost.unzip();
        let mut way = Way::make(gateway, live)?;
        let variables = way.variables();
        let SetUp {
            arguments,
            variables: further,
        } = set_up(&variables);
        let order = AgentOrder {
            command: agent.command.iter().cloned().chain(arguments).collect(),
            live_gate: live.then_some(gate),
        };
        let shown = order.command[..order.command.len().min(SHOWN)].join(" ");
        let listen = way.listen();
        let order = ShimOrder {
            timeout: None,
            bounds: config.bounds,
            policy,
            program: ShimProgram::Agent(order),
            listen,
            jobserver: Vec::new(),
            localhost,
        };
        config.workspace.metadata()?;
        let of_jobserver: Vec<_> = lease
            .iter()
            .flat_map(|lease| lease.variables(&environment))
            .collect();
        for (name, value) in variables.iter().chain(&further).chain(&of_jobserver) {
            environment.set(name, value);
        }
        let mut job = ShimJob::new(order, &environment, &config.workspace, shown.as_ref())?;
        job.handed_on = way.hand_on().into_iter().collect();
        job.handed_on.extend(namespaces.into_iter().flatten());
        Ok((job, way, lease))
    }

    /// Starts an agent for one piece of work, confined by the policy.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn run(self, work: &RunAgent) -> io::Result<(Foreground, GateHandle)> {
        let gate = self.gate;
        let temp = self.temp;
        let liveness_lock = &self.config.liveness_lock;
        let (job, way, lease) = self.job(|_| SetUp::default())?;
        let start = AgentStart {
            job: &job,
            liveness_lock,
            gate,
            way,
            lease,
            token: None,
        };
        start.for_one_piece(work.input.as_bytes(), temp)
    }

    /// Starts an agent for many turns; `state`: its state directory.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn launch(
        mut self,
        launch: Launch,
        state: &Path,
    ) -> io::Result<(AgentProcess, GateHandle)> {
        let Launch {
            mut driver,
            session,
            messages,
            is_new_session,
        } = launch;
        if let Some(why) = driver.refuses(&self.config.workspace) {
            return Err(io::Error::other(why));
        }
        let record_name = driver.record_name(session);
        let mut session = AgentSession {
            id: session,
            history: driver.history(state, session),
            workspace: self.config.workspace.clone(),
            ..AgentSession::default()
        };
        if is_new_session && let Some(history) = session.history.take() {
            put_aside(state, &history)?;
        }
        let history = session.history.as_deref().map(read_history).transpose()?;
        let history = history.filter(|history| driver.can_resume(history));
        let known = history
            .as_deref()
            .map(|history| Known::of(&*driver, history, &messages));
        session.kept = history.unwrap_or_default();
        let record = record_name.map(|name| SessionRecord::open(state, &name));
        let record = record.transpose()?;
        let mut team_calls = None;
        let mut is_listed = None;
        if let Some(server) = driver.team_server() {
            self.gateway = self.gateway.with_team(Some(server.endpoint));
            team_calls = Some(server.calls);
            is_listed = Some(server.is_listed);
        }
        for (name, value) in driver.settings().iter() {
            self.environment.set(name, value);
        }
        let gate = self.gate;
        let liveness_lock = &self.config.liveness_lock;
        let meter = self.meter.clone();
        let token = self.token.take();
        let (job, way, lease) = self.job(|variables| SetUp {
            arguments: driver.arguments(&session, variables),
            variables: driver.set_up(variables, state),
        })?;
        session.gateway = way.address();
        let begin = driver.begin(&session);
        let conversation = AgentExchange {
            driver,
            begin,
            known,
            meter,
            team_calls,
            is_listed,
            record,
        };
        conversation.start(AgentStart {
            job: &job,
            liveness_lock,
            gate,
            way,
            lease,
            token,
        })
    }
}

/// Renames a file in which an agent keeps a session that it cannot resume: the agent no longer finds
/// it, and it is not lost.
fn put_aside(state: &Path, history: &Path) -> io::Result<()> {
    // The agent may have put a link in the place of any directory on the way.
    let is_its_own = history
        .parent()
        .and_then(|folder| folder.canonicalize().ok())
        .is_some_and(|folder| folder.starts_with(state));
    if !is_its_own {
        return Err(io::Error::other(
            "the file of its session is not in its state directory",
        ));
    }
    std::fs::rename(history, history.with_extension("unusable"))
}

fn read_history(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    open_kept(path)?.take(MAX_HISTORY).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
