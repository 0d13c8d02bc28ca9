//! The toolbox: the tools that work on the machine.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustix::fs::{Mode, OFlags};
use teamd_shared::control::McpServerReport;
use teamd_shared::environment::{CLAUDE_TOKEN, Environment};
use teamd_shared::member::{Agent, Gate, SandboxMode};
use teamd_shared::message::IdleReason;
use teamd_shared::name::Name;
use teamd_shared::place::{make_below, open_itself};
use teamd_shared::sandbox::{Namespaces, Promise};
use teamd_shared::team_dir::DIR_MODE;
use teamd_shared::terms::{McpServer, TOKEN_HOST};
use teamd_shared::tool_set::Skill;
use teamd_shared::transcript::Usage;
use teamd_worker_core::mcp::McpCatalog;
use teamd_worker_core::secret::Secret;
use teamd_worker_core::state::Budget;
use teamd_worker_core::tools::{EditFile, LocalAction, Outcome, RunAgent, Sleep, WriteFile};
use teamd_worker_model::{AgentProcess, Launch, Meter, upstreams};
use teamd_worker_sandbox::run::{
    self, AdmissionKind, AdmissionTicket, EndedCommand, GateHandle, Runner, RunnerConfig,
    reap_orphans,
};
use teamd_worker_sandbox::{ConfinementArgs, Gateway, Vendor};
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep_until, timeout};

use super::mcp::{McpServers, RunningMcpCall};
use super::run_agent::LaunchContext;
use super::workspace::{Guide, Workspace};
use super::{Listing, Runs, Tools};
use super::{search, skills};

/// How long a gate may take to open.
const OPENED_WITHIN: Duration = Duration::from_secs(2);

/// The error of a read-only member that writes a file.
const READ_ONLY: &str = "refused: this teammate is read-only; it changes no file";

/// The variables that tell programs where to keep their files, and the places below the state
/// directory.
const STATE_VARIABLES: [(&str, &str); 7] = [
    ("TEAM_AGENT_STATE", ""),
    ("CLAUDE_CONFIG_DIR", "claude"),
    ("CODEX_HOME", "codex"),
    ("GEMINI_CLI_HOME", "gemini"),
    ("XDG_CACHE_HOME", "cache"),
    ("XDG_DATA_HOME", "data"),
    ("XDG_STATE_HOME", "state"),
];

/// The variables that lead Claude Code to another service than its vendor's.
const OTHER_SERVICES: [&str; 2] = ["ANTHROPIC_BASE_URL", "ANTHROPIC_UNIX_SOCKET"];

/// Where an agent with a token of the user's finds its model.
const VENDOR: Vendor = Vendor {
    host: TOKEN_HOST,
    port: 443,
};

/// The tools that work on the machine.
#[derive(Debug)]
pub(crate) struct Toolbox {
    workspace: Workspace,
    runner: Runner,
    /// The agent of the teammate, if that is not the built-in one.
    agent: Option<Agent>,
    /// The gate of the agent that runs, or ran last.
    gate: Option<GateHandle>,
    /// What the agent and its tools have spent, and may spend.
    meter: Meter,
    mcp: McpServers,
    /// What its conversation was told of.
    skills: Vec<Skill>,
}

impl Toolbox {
    /// Opens the workspace, and makes what runs commands.
    ///
    /// # Errors
    /// If the system refuses, or the workspace lies in a team directory.
    pub(crate) fn new(
        config: RunnerConfig,
        agent: Option<Agent>,
        servers: &[McpServer],
    ) -> anyhow::Result<Self> {
        let mut workspace = Workspace::open(
            &config.workspace,
            Arc::clone(&config.team_dir),
            &config.name,
        )
        .map_err(anyhow::Error::msg)?;
        let runner = Runner::new(config)?;
        let places = runner.places();
        workspace
            .protect(
                places.secrets.clone(),
                places.programs.clone(),
                places.registers.clone(),
                (places.configs.clone(), &places.shown),
            )
            .map_err(anyhow::Error::msg)?;
        Ok(Self {
            workspace,
            runner,
            agent,
            gate: None,
            meter: Meter::default(),
            mcp: McpServers::new(servers),
            skills: Vec::new(),
        })
    }

    /// Returns where the tools of its MCP servers are known from, once they are listed.
    pub(crate) fn mcp_catalog(&self) -> Arc<OnceLock<McpCatalog>> {
        self.mcp.catalog()
    }

    /// Returns what the workspace says to agents, at most so many bytes of it.
    pub(crate) fn guide(&self, most: usize) -> Option<Guide> {
        self.workspace.guide(most)
    }

    /// Finds the skills of the user and of the workspace.
    pub(crate) fn find_skills(&self) -> Vec<Skill> {
        let home = self.runner.config().environment.path("HOME");
        skills::find(&self.workspace, home.as_deref(), |it| self.may_use(it))
    }

    /// Lets these skills be read.
    pub(crate) fn offer(&mut self, skills: Vec<Skill>) {
        self.skills = skills;
    }

    /// Tells whether its model may follow what stands in a folder of skills. The lead agent answers
    /// plans and starts teammates: so it follows nothing that a teammate can have written.
    fn may_use(&self, folder: &Path) -> bool {
        let config = self.runner.config();
        config.name != Name::lead() || !skills::may_be_written(&config.team_dir, folder)
    }

    /// Tells whether the gate of the agent changes while it runs: with namespaces of our own. Then
    /// it has a network of its own, too.
    fn is_live(&self) -> bool {
        let config = self.runner.config();
        let is_confined = config.sandbox.mode != SandboxMode::Off;
        config.confinement.layers.namespaces == Namespaces::Own && is_confined
    }

    /// Returns the variables of the agent: what it keeps goes into its state directory, since the
    /// home directory is read-only.
    fn agent_environment(&self) -> io::Result<Environment> {
        let mut environment = self.runner.config().environment.clone();
        for (variable, folder) in STATE_VARIABLES {
            let Some(state) = &self.runner.places().state else {
                continue;
            };
            let path = state.path.join(folder);
            // The agent writes there: a link of its own must not have this process write elsewhere.
            let above = open_itself(&state.path, OFlags::PATH | OFlags::DIRECTORY)?;
            make_below(&above, Path::new(folder), Mode::from_raw_mode(DIR_MODE))?;
            environment.set(variable, &path.to_string_lossy());
        }
        Ok(environment)
    }

    /// Returns what the agent is started with.
    fn launch_context(&self, gate: Gate) -> Result<LaunchContext<'_>, String> {
        let config = self.runner.config();
        let RunnerConfig {
            sandbox,
            team_dir,
            confinement,
            cgroup,
            ..
        } = config;
        let Some(agent) = &self.agent else {
            return Err("this teammate has no agent of its own".to_owned());
        };
        let ConfinementArgs { layers, weak, .. } = *confinement;
        let live = self.is_live();
        let granted = if live { Gate::Open } else { gate };
        let mut policy = self
            .runner
            .places()
            .policy(sandbox, granted, (layers, weak))?;
        let has_network = live && sandbox.has_network(granted);
        let gateway = Gateway::new(sandbox, has_network);
        let uses_token = agent.login.is_token();
        let gateway = if uses_token {
            gateway.with_vendor(live.then_some(VENDOR))
        } else {
            gateway.with_models(upstreams(&config.environment, self.meter.clone()))
        };
        if let Some(policy) = &mut policy {
            team_dir
                .open_folder(Some("run"))
                .map_err(|error| error.to_string())?;
            // Without a network namespace of its own, its model and its team tools are reached by the
            // network of the machine.
            let needs_gateway =
                gateway.has_model() || uses_token || agent.protocol.has_tools_over_http();
            policy.network = !live && (policy.network || needs_gateway);
        }
        let mut environment = self
            .agent_environment()
            .map_err(|error| cannot_start_agent(agent, &error))?;
        self.runner.set_author(policy.as_ref(), &mut environment);
        let mut token = None;
        if uses_token && let Some(value) = config.environment.value(CLAUDE_TOKEN) {
            let handed = token.insert(Secret::new(CLAUDE_TOKEN, value));
            hand_over(handed, &mut environment);
        }
        let entered = cgroup.as_ref().map_or(Ok(()), |cgroup| cgroup.enter());
        entered.map_err(|error| cannot_start_agent(agent, &error))?;
        let temp = self.runner.places().temp.path.as_path();
        let lease = self.runner.lease_of_agent(policy.as_ref());
        let localhost = self.runner.localhost_of_agent();
        let localhost = localhost.map_err(|error| cannot_start_agent(agent, &error))?;
        Ok(LaunchContext {
            agent,
            config,
            environment,
            temp,
            policy,
            gate,
            live,
            gateway,
            token,
            meter: self.meter.clone(),
            lease,
            localhost,
        })
    }

    /// Starts the agent for one piece of work.
    fn start_agent(&mut self, run: &RunAgent, gate: Gate) -> Result<RunningCall, String> {
        let setting = self.launch_context(gate)?;
        let agent = setting.agent;
        let (running, gate) = setting
            .run(run)
            .map_err(|error| cannot_start_agent(agent, &error))?;
        self.gate = Some(gate);
        Ok(RunningCall::Command(run::StartedCommand::Foreground(
            Box::new(running),
        )))
    }
}

impl Tools for Toolbox {
    type Running = RunningCall;
    type Admission = AdmissionTicket;

    fn admission(&mut self, action: &LocalAction) -> Option<AdmissionTicket> {
        match action {
            LocalAction::Bash(bash) if !bash.run_in_background => {
                self.runner.ask(AdmissionKind::Command)
            }
            _ => None,
        }
    }

    fn take_spent(&mut self) -> (Usage, u32) {
        self.meter.take()
    }

    fn is_agent_itself(&self) -> bool {
        let config = self.runner.config();
        let is_confined = config.sandbox.mode != SandboxMode::Off;
        let Some(agent) = self.agent.as_ref().filter(|_| is_confined) else {
            return true;
        };
        // What it shows with a call over HTTP it may keep in a file that its commands read.
        !agent.protocol.has_tools_over_http()
            && config
                .confinement
                .layers
                .enforcement(Promise::Agents, true)
                .is_ok()
    }

    fn allow(&mut self, budget: Option<Budget>) {
        self.meter.allow(budget);
    }

    fn refused(&self) -> Option<IdleReason> {
        self.meter.refused()
    }

    // File tools are done when this returns.
    fn start(&mut self, action: LocalAction, gate: Gate) -> RunningCall {
        let outcome = match action {
            LocalAction::Bash(bash) => return RunningCall::Command(self.runner.start(&bash, gate)),
            LocalAction::RunAgent(run) => match self.start_agent(&run, gate) {
                Ok(running) => return running,
                Err(error) => Outcome::error(error),
            },
            LocalAction::Sleep(Sleep { seconds }) => {
                return RunningCall::Sleep {
                    until: Instant::now() + Duration::from_secs_f64(seconds),
                    seconds,
                };
            }
            LocalAction::ReadFile(file) => self.workspace.read(&file),
            LocalAction::Search(search) => {
                let started = search::start(&search, &mut self.runner, gate);
                return RunningCall::Command(started);
            }
            LocalAction::LoadSkill(skill) => {
                skills::load(&self.workspace, &self.skills, &skill, |it| self.may_use(it)).into()
            }
            LocalAction::McpLook(look) => self.mcp.look(&look),
            LocalAction::McpCall(call) => match self.mcp.call(call, &self.runner, gate) {
                Ok(running) => return RunningCall::Mcp(running),
                Err(why) => Outcome::error(why),
            },
            _ if self.runner.config().sandbox.mode == SandboxMode::ReadOnly => {
                Outcome::error(READ_ONLY)
            }
            LocalAction::WriteFile(file) => self.workspace.write(&file).into(),
            LocalAction::EditFile(edit) => self.workspace.edit(&edit).into(),
        };
        RunningCall::Command(run::StartedCommand::Done(outcome))
    }

    fn mcp_reports(&self) -> Option<watch::Receiver<Vec<McpServerReport>>> {
        self.mcp.reports()
    }

    fn list_mcp_tools(&mut self, gate: Gate) -> Option<Listing> {
        let listing = self.mcp.list(&self.runner, gate)?;
        Some(Box::pin(listing))
    }

    fn clear_up(&self, broken_off: &LocalAction) {
        let (LocalAction::WriteFile(WriteFile { path, .. })
        | LocalAction::EditFile(EditFile { path, .. })) = broken_off
        else {
            return;
        };
        if let Err(error) = self.workspace.clear_up(path) {
            tracing::info!("what a call may have left that was broken off is not removed: {error}");
        }
    }

    fn start_process(&mut self, launch: Launch, gate: Gate) -> Result<AgentProcess, String> {
        let setting = self.launch_context(gate)?;
        let agent = setting.agent;
        let state = self
            .runner
            .places()
            .state
            .as_ref()
            .map(|state| state.path.as_path())
            .unwrap_or(Path::new("/"));
        let started = setting.launch(launch, state);
        let (process, gate) = started.map_err(|error| cannot_start_agent(agent, &error))?;
        self.gate = Some(gate);
        Ok(process)
    }

    fn open_gate(&mut self) -> bool {
        let opens_server = self.mcp.open_gates();
        let opens_agent = self.gate.as_ref().is_some_and(GateHandle::open);
        opens_server || opens_agent
    }

    async fn agent_ended(&mut self) {
        if let Some(gate) = &mut self.gate {
            gate.gone().await;
        }
    }

    async fn opened(&mut self) {
        if timeout(OPENED_WITHIN, self.mcp.opened()).await.is_err() {
            tracing::error!("the gate of an MCP server does not open");
        }
        let Some(gate) = &mut self.gate else { return };
        if timeout(OPENED_WITHIN, gate.opened()).await.is_err() {
            tracing::error!("the gate of the agent does not open");
        }
    }

    async fn end_background(&mut self) {
        self.mcp.close_gates().await;
        if let Some(gate) = &mut self.gate {
            gate.close().await;
        }
        self.runner.end_background().await;
    }

    async fn background_ended(&mut self) -> EndedCommand {
        self.runner.next_ended().await
    }

    fn take_ended(&mut self) -> Vec<EndedCommand> {
        self.runner.take_ended()
    }

    fn lost_background(&self) -> Vec<EndedCommand> {
        self.runner.lost_background().unwrap_or_else(|error| {
            tracing::error!("which background commands have ended cannot be seen: {error}");
            Vec::new()
        })
    }

    fn runs_commands(&mut self) -> bool {
        self.runner.has_background()
    }

    fn has_background(&mut self) -> bool {
        self.runner.has_background()
            || self.mcp.may_write()
            || self.gate.as_ref().is_some_and(GateHandle::may_write)
    }

    fn reap_orphans(&mut self) {
        reap_orphans();
    }
}

/// Hands the user's token to the agent, as it is, and takes away the addresses that would lead it to
/// another service than its vendor's.
fn hand_over(token: &Secret, environment: &mut Environment) {
    for name in OTHER_SERVICES {
        environment.unset(name);
    }
    environment.set(CLAUDE_TOKEN, token.expose());
}

fn cannot_start_agent(agent: &Agent, error: &io::Error) -> String {
    format!("cannot start the agent {}: {error}", agent.name)
}

/// A call that has been started.
#[derive(Debug)]
pub(crate) enum RunningCall {
    Command(run::StartedCommand),
    Sleep { until: Instant, seconds: f64 },
    Mcp(RunningMcpCall),
}

impl Runs for RunningCall {
    async fn finish(&mut self) -> Outcome {
        let (until, seconds) = match self {
            Self::Command(command) => return command.finish().await,
            Self::Mcp(call) => return call.finish().await,
            Self::Sleep { until, seconds } => (*until, *seconds),
        };
        sleep_until(until).await;
        let outcome = Outcome::ok(format!("slept {seconds} s"));
        *self = Self::Command(run::StartedCommand::Done(outcome.clone()));
        outcome
    }

    async fn cancel(self, why: &str) -> Outcome {
        match self {
            Self::Command(command) => command.cancel(why).await,
            Self::Mcp(call) => call.cancel(why).await,
            Self::Sleep { .. } => Outcome::error(format!("[{why}]")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleep(seconds: f64) -> RunningCall {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        RunningCall::Sleep { until, seconds }
    }

    #[tokio::test]
    async fn a_sleep_can_be_cancelled() {
        let mut short = sleep(0.01);
        assert_eq!(short.finish().await, Outcome::ok("slept 0.01 s"));
        let mut long = sleep(1000.0);
        let waited = timeout(Duration::from_millis(5), long.finish()).await;
        assert!(waited.is_err());
        let cancelled = long.cancel("interrupted").await;
        assert_eq!(cancelled, Outcome::error("[interrupted]"));
    }
}
