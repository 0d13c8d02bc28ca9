//! The toolbox: the tools that work on the machine.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use rustix::fs::{Mode, OFlags};
use teamd_shared::environment::Environment;
use teamd_shared::member::{Agent, Bounds, Gate, Sandbox, SandboxMode};
use teamd_shared::message::IdleReason;
use teamd_shared::name::Name;
use teamd_shared::place::{make_below, open_itself};
use teamd_shared::sandbox::{Namespaces, Promise};
use teamd_shared::team_dir::{DIR_MODE, TeamDir};
use teamd_shared::transcript::Usage;
use tokio::time::{Duration, Instant, sleep_until};

use super::bash::{
    Background, Bash, Foreground, GateHandle, Ran, Reader, Way, cannot_start, sweep_orphans,
};
use super::run_agent::Setting;
use super::workspace::{Guide, Workspace};
use super::{
    AgentProcess, EditFile, Launch, LocalAction, Outcome, RunAgent, Runs, Sleep, Tools, WriteFile,
};
use crate::args::Confinement;
use crate::caches::{self, Keeps};
use crate::cgroup::OwnCgroup;
use crate::core::state::Budget;
use crate::model::{Gateway, Meter};
use crate::sandbox::{self, Origin, Places, TempDir};

/// How long a gate may take to open.
const OPENED_WITHIN: Duration = Duration::from_secs(2);

/// What a read-only member is told when it writes a file.
const READ_ONLY: &str = "refused: this teammate is read-only; it changes no file";

/// The variables by which programs are told where to keep what is theirs, and where that is below
/// the state directory.
const STATE_VARIABLES: [(&str, &str); 7] = [
    ("TEAM_AGENT_STATE", ""),
    ("CLAUDE_CONFIG_DIR", "claude"),
    ("CODEX_HOME", "codex"),
    ("GEMINI_CLI_HOME", "gemini"),
    ("XDG_CACHE_HOME", "cache"),
    ("XDG_DATA_HOME", "data"),
    ("XDG_STATE_HOME", "state"),
];

/// What a toolbox needs.
#[derive(Debug)]
pub(crate) struct ToolboxConfig {
    /// The directory that the tools work in.
    pub(crate) workspace: PathBuf,
    /// The team directory: logs go there, and no file tool reaches into it.
    pub(crate) team_dir: Arc<TeamDir>,
    /// The member.
    pub(crate) name: Name,
    /// What the name of the temporary directory has of it: no two programs of a team that run at
    /// once have the same.
    pub(crate) temp_name: String,
    /// The transcript, as the worker has locked it: each shim shares the lock.
    pub(crate) liveness_lock: File,
    /// The variables of every command. Its secrets are given to no command.
    pub(crate) environment: Environment,
    /// Where commands of the team may or once could write.
    pub(crate) territory: Vec<PathBuf>,
    /// How its commands are confined while the gate is open.
    pub(crate) sandbox: Sandbox,
    /// What its commands see although it lies in something hidden: the team repository.
    pub(crate) shown: Vec<PathBuf>,
    /// What they may not write although it lies in the workspace.
    pub(crate) sealed: Vec<PathBuf>,
    /// The means to confine them.
    pub(crate) confinement: Confinement,
    /// The agent of the teammate, if that is not the built-in one.
    pub(crate) agent: Option<Agent>,
    /// The limits of each command.
    pub(crate) bounds: Bounds,
    /// The cgroup in which commands run, if there is one.
    pub(crate) cgroup: Option<Arc<OwnCgroup>>,
    /// Where they have caches of their own.
    pub(crate) keeps: Keeps,
}

/// The tools that work on the machine.
#[derive(Debug)]
pub(crate) struct Toolbox {
    config: ToolboxConfig,
    places: Places,
    workspace: Workspace,
    background: Background,
    /// The gate of the agent that runs, or ran last.
    gate: Option<GateHandle>,
    /// What the agent and its tools have spent, and may spend.
    meter: Meter,
    /// What the model is told with its first command.
    first_note: String,
    /// Removed when the incarnation ends, after the commands have ended: it stands last.
    _temp: TempDir,
}

impl Toolbox {
    /// Opens the workspace, and makes this process the subreaper of what its tools start.
    ///
    /// # Errors
    /// If the system refuses, or the workspace lies in a team directory.
    pub(crate) fn new(mut config: ToolboxConfig) -> anyhow::Result<Self> {
        let mut workspace = Workspace::open(
            &config.workspace,
            Arc::clone(&config.team_dir),
            &config.name,
        )
        .map_err(anyhow::Error::msg)?;
        nix::sys::prctl::set_child_subreaper(true).context("cannot become a subreaper")?;
        let (writable, lost) =
            sandbox::take_writable(&config.sandbox.writable, config.team_dir.root());
        let first_note = first_note(&config.sandbox, &lost);
        let temp = temp_dir(&config, &writable);
        let temp = temp.context("cannot make the temporary directory of its commands")?;
        let state = make_state(&config)?;
        let origin = Origin {
            environment: &config.environment,
            territory: &config.territory,
            hidden: &config.sandbox.hidden,
            visible: &config.sandbox.visible,
            state: state.as_deref(),
            shown: &config.shown,
            sealed: &config.sealed,
            programs: &config.confinement.programs,
            config: config.confinement.config.as_deref(),
        };
        let places = Places::find(
            &config.workspace,
            &config.team_dir,
            writable,
            temp.path(),
            origin,
        );
        let places = places.context("cannot look around for what its commands may do")?;
        workspace
            .protect(
                places.secrets.clone(),
                places.programs.clone(),
                places.registers.clone(),
                (places.configs.clone(), &places.shown),
            )
            .map_err(anyhow::Error::msg)?;
        if let Some(state) = &state {
            caches::tell(&mut config.environment, &config.sandbox, &places, state);
        }
        let background = Background::default();
        let gate = None;
        let meter = Meter::default();
        Ok(Self {
            config,
            places,
            workspace,
            background,
            gate,
            meter,
            first_note,
            _temp: temp,
        })
    }

    /// Returns what the workspace says to agents, at most so many bytes of it.
    pub(crate) fn guide(&self, most: usize) -> Option<Guide> {
        self.workspace.guide(most)
    }

    /// Runs a command to its end, as long as it may take.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) async fn run(
        &mut self,
        command: String,
        seconds: f64,
        reader: Reader,
    ) -> anyhow::Result<Ran> {
        let bash = Bash {
            command,
            timeout: Some(seconds),
            run_in_background: false,
        };
        match self
            .start_bash(&bash, Gate::Open)
            .map_err(anyhow::Error::msg)?
        {
            Running::Bash(running) => Ok(running.run_to_end(reader).await),
            Running::Done(outcome) => Err(anyhow::Error::msg(outcome.content)),
            Running::Sleep { .. } => Err(anyhow::Error::msg("it is no command")),
        }
    }

    /// Tells whether the gate of the agent changes while it runs: with namespaces of our own. Then
    /// it has a network of its own, too.
    fn is_live(&self) -> bool {
        let is_confined = self.config.sandbox.mode != SandboxMode::Off;
        self.config.confinement.layers.namespaces == Namespaces::Own && is_confined
    }

    /// Returns the variables of the agent: what it keeps goes into its state directory, since the
    /// home directory is read-only.
    fn agent_environment(&self) -> io::Result<Environment> {
        let mut environment = self.config.environment.clone();
        for (variable, folder) in STATE_VARIABLES {
            let Some(state) = &self.places.state else {
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
    fn agent_setting(&self, gate: Gate) -> Result<Setting<'_>, String> {
        let ToolboxConfig {
            sandbox,
            team_dir,
            confinement,
            agent,
            cgroup,
            ..
        } = &self.config;
        let Some(agent) = agent else {
            return Err("this teammate has no agent of its own".to_owned());
        };
        let Confinement { layers, weak, .. } = *confinement;
        let live = self.is_live();
        let granted = if live { Gate::Open } else { gate };
        let mut policy = self.places.policy(sandbox, granted, (layers, weak))?;
        let has_network = live && sandbox.has_network(granted);
        let gateway = Gateway::new(sandbox, has_network);
        let gateway = gateway.with_models(&self.config.environment, self.meter.clone());
        if let Some(policy) = &mut policy {
            team_dir
                .open_folder(Some("run"))
                .map_err(|error| error.to_string())?;
            // Without a network namespace of its own, its model is reached by the network of the
            // machine.
            policy.network = !live && (policy.network || gateway.has_model());
        }
        let environment = self
            .agent_environment()
            .map_err(|error| cannot_start_agent(agent, &error))?;
        let entered = cgroup.as_ref().map_or(Ok(()), |cgroup| cgroup.enter());
        entered.map_err(|error| cannot_start_agent(agent, &error))?;
        let config = &self.config;
        let temp = self.places.temp.path.as_path();
        Ok(Setting {
            agent,
            config,
            environment,
            temp,
            policy,
            gate,
            live,
            gateway,
        })
    }

    /// Starts the agent for one piece of work.
    fn start_agent(&mut self, run: &RunAgent, gate: Gate) -> Result<Running, String> {
        let setting = self.agent_setting(gate)?;
        let agent = setting.agent;
        let (running, gate) = setting
            .run(run)
            .map_err(|error| cannot_start_agent(agent, &error))?;
        self.gate = Some(gate);
        Ok(Running::Bash(Box::new(running)))
    }

    fn start_bash(&mut self, bash: &Bash, gate: Gate) -> Result<Running, String> {
        let ToolboxConfig {
            sandbox,
            team_dir,
            confinement,
            ..
        } = &self.config;
        let cannot = |error| cannot_start(&self.config, &error);
        let policy = self
            .places
            .policy(sandbox, gate, (confinement.layers, confinement.weak))?;
        if policy.is_some() {
            // Shims note there what must not be made. It may be deleted at any time.
            team_dir
                .open_folder(Some("run"))
                .map_err(|error| error.to_string())?;
        }
        let has_list = sandbox.has_network(gate) && !sandbox.hosts.is_empty();
        let way = has_list.then(|| Way::make(Gateway::new(sandbox, true), true));
        let mut way = way.transpose().map_err(cannot)?;
        let job = bash.job(&self.config, policy, way.as_mut())?;
        // What a command starts is in the cgroup from its first moment.
        self.config
            .cgroup
            .as_ref()
            .map_or(Ok(()), |cgroup| cgroup.enter())
            .map_err(cannot)?;
        let gateway = way.map(Way::serve_command).unwrap_or_default();
        if bash.run_in_background {
            let started =
                self.background
                    .start(&self.config, &job, &self.places.temp.path, gateway);
            let started = started.map_err(cannot)?;
            return Ok(Running::Done(Outcome::ok(
                std::mem::take(&mut self.first_note) + &started,
            )));
        }
        let mut command = Foreground::start(&job, &self.config.liveness_lock).map_err(cannot)?;
        command.note = std::mem::take(&mut self.first_note);
        command.gateway = gateway;
        Ok(Running::Bash(Box::new(command)))
    }
}

impl Tools for Toolbox {
    type Running = Running;

    fn take_spent(&mut self) -> (Usage, u32) {
        self.meter.take()
    }

    fn is_agent_itself(&self) -> bool {
        let ToolboxConfig {
            agent,
            sandbox,
            confinement,
            ..
        } = &self.config;
        let is_confined = sandbox.mode != SandboxMode::Off;
        agent.is_none()
            || !is_confined
            || confinement
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
    fn start(&mut self, action: LocalAction, gate: Gate) -> Running {
        let outcome = match action {
            LocalAction::Bash(bash) => match self.start_bash(&bash, gate) {
                Ok(running) => return running,
                Err(error) => Outcome::error(error),
            },
            LocalAction::RunAgent(run) => match self.start_agent(&run, gate) {
                Ok(running) => return running,
                Err(error) => Outcome::error(error),
            },
            LocalAction::Sleep(Sleep { seconds }) => {
                return Running::Sleep {
                    until: Instant::now() + Duration::from_secs_f64(seconds),
                    seconds,
                };
            }
            LocalAction::ReadFile(file) => self.workspace.read(&file).into(),
            _ if self.config.sandbox.mode == SandboxMode::ReadOnly => Outcome::error(READ_ONLY),
            LocalAction::WriteFile(file) => self.workspace.write(&file).into(),
            LocalAction::EditFile(edit) => self.workspace.edit(&edit).into(),
        };
        Running::Done(outcome)
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
        let setting = self.agent_setting(gate)?;
        let agent = setting.agent;
        let state = self
            .places
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
        self.gate.as_ref().is_some_and(GateHandle::open)
    }

    async fn agent_ended(&mut self) {
        if let Some(gate) = &mut self.gate {
            gate.gone().await;
        }
    }

    async fn opened(&mut self) {
        let Some(gate) = &mut self.gate else { return };
        if tokio::time::timeout(OPENED_WITHIN, gate.opened())
            .await
            .is_err()
        {
            tracing::error!("the gate of the agent does not open");
        }
    }

    async fn end_background(&mut self) {
        if let Some(gate) = &mut self.gate {
            gate.close().await;
        }
        self.background.end().await;
    }

    fn has_background(&mut self) -> bool {
        self.background.is_running() || self.gate.as_ref().is_some_and(GateHandle::may_write)
    }

    fn reap_orphans(&mut self) {
        sweep_orphans();
    }
}

fn cannot_start_agent(agent: &Agent, error: &io::Error) -> String {
    format!("cannot start the agent {}: {error}", agent.name)
}

/// Makes what commands may always write besides: where an agent keeps what is its own, and where
/// caches lie.
fn make_state(config: &ToolboxConfig) -> anyhow::Result<Option<PathBuf>> {
    let made = config.keeps.make(&config.environment, &config.team_dir);
    if config.agent.is_some() {
        return made.context("cannot make the state directory of the agent");
    }
    // What is not confined writes those of the user.
    if config.sandbox.mode == SandboxMode::Off {
        return Ok(None);
    }
    Ok(made.unwrap_or_else(|error| {
        tracing::warn!("commands have no caches of their own: {error:#}");
        None
    }))
}

/// Tells the model which paths were allowed by name and cannot be written all the same.
fn first_note(sandbox: &Sandbox, lost: &[String]) -> String {
    if sandbox.mode != SandboxMode::WorkspaceWrite || lost.is_empty() {
        return String::new();
    }
    format!(
        "[allowed by name, but not writable in this incarnation: {}]\n",
        lost.join("; ")
    )
}

/// Makes a place that this user alone enters, and that only this teammate uses.
fn temp_dir(config: &ToolboxConfig, writable: &[sandbox::Place]) -> io::Result<TempDir> {
    let named = config
        .environment
        .path("TMPDIR")
        .filter(|path| path.is_absolute() && path.is_dir());
    let named = named.and_then(|path| path.canonicalize().ok());
    // Where its commands write, they could put a link in its place.
    let is_theirs = |path: &Path| {
        path.starts_with(&config.workspace) || writable.iter().any(|it| path.starts_with(&it.path))
    };
    let named = named.filter(|path| {
        !is_theirs(path) && !config.sandbox.hidden.iter().any(|it| path.starts_with(it))
    });
    let team = rustix::fs::fstat(&config.team_dir)?;
    let id = format!("{:x}-{:x}-{}", team.st_dev, team.st_ino, config.temp_name);
    TempDir::create(&named.unwrap_or_else(|| "/tmp".into()), &id)
}

/// A call that has been started.
#[derive(Debug)]
pub(crate) enum Running {
    Done(Outcome),
    Sleep { until: Instant, seconds: f64 },
    Bash(Box<Foreground>),
}

impl Runs for Running {
    async fn finish(&mut self) -> Outcome {
        let outcome = match self {
            Self::Done(outcome) => outcome.clone(),
            Self::Sleep { until, seconds } => {
                sleep_until(*until).await;
                Outcome::ok(format!("slept {seconds} s"))
            }
            Self::Bash(command) => command.finish().await,
        };
        *self = Self::Done(outcome.clone());
        outcome
    }

    async fn cancel(self, why: &str) -> Outcome {
        match self {
            Self::Done(outcome) => outcome,
            Self::Sleep { .. } => Outcome::error(format!("[{why}]")),
            Self::Bash(command) => command.cancel(why).await,
        }
    }
}
