//! Running confined commands, of a teammate or of a job: in the foreground, one at a time, with
//! output, log and time limit, and in the background.
//!
//! Each command runs under a shim ([`crate::shim`]), and what it started is gone when it is over.

mod admission;
mod agent;
mod agent_gate;
mod author;
mod background;
mod foreground;
mod jobserver;
mod killer;
mod live_log;
mod localhost;
mod log;
mod output;
mod piped;
mod shim_handle;
mod source;
mod terminal;
mod way;

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use rustix::fs::OFlags;
use teamd_shared::environment::Environment;
use teamd_shared::machine::MachineSettings;
use teamd_shared::member::{Bounds, Gate, Sandbox, SandboxMode};
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};
use teamd_worker_core::tools::{Bash, Outcome};
pub use teamd_worker_slots::{AdmissionKind, AdmissionTicket};
use teamd_worker_slots::{Admissions, Lease, Slots};
use tokio::task::JoinSet;

use crate::args::ConfinementArgs;
use crate::caches::{self, Keeps};
use crate::cgroup::OwnCgroup;
use crate::find_places::{Origin, take_writable};
use crate::gateway::Gateway;
use crate::place::Place;
use crate::places::CommandPlaces;
use crate::policy::Policy;
use crate::shim::{ShimJob, ShimOrder, ShimProgram};
use crate::temp::TempDir;
pub use agent::{AgentStart, StartedAgent};
pub use agent_gate::{AgentGate, GateHandle, pair as gate_pair};
use background::Background;
pub use background::EndedCommand;
pub use foreground::{Foreground, OutputReader, Ran};
pub use live_log::LiveLog;
use localhost::OwnLocalhost;
pub use output::KEPT;
pub use shim_handle::reap_orphans;
pub use way::Way;

/// Seconds that a command may take unless its call says otherwise.
const DEFAULT_TIMEOUT: f64 = 120.0;

/// The longest command that the kernel takes as one argument, in bytes (`MAX_ARG_STRLEN`, less the
/// final NUL).
const MAX_COMMAND: usize = (128 << 10) - 1;

/// How a good end is reported.
pub const GOOD_END: &str = "exit code 0";

/// How much is read at once, in bytes: as much as a pipe holds.
const PIECE: usize = 64 << 10;

/// What a runner needs.
#[derive(Debug)]
pub struct RunnerConfig {
    /// The directory that the commands work in.
    pub workspace: PathBuf,
    /// The team directory: logs go there.
    pub team_dir: Arc<TeamDir>,
    /// The member.
    pub name: Name,
    /// Its incarnation; 0 of a job.
    pub incarnation: u32,
    /// What the name of the temporary directory has of it: no two programs of a team that run at
    /// once have the same.
    pub temp_name: String,
    /// The lock of the worker or job: each shim shares it.
    pub liveness_lock: File,
    /// The variables of every command. Its secrets are given to no command.
    pub environment: Environment,
    /// Where commands of the team may or once could write.
    pub territory: Vec<PathBuf>,
    /// How its commands are confined while the gate is open.
    pub sandbox: Sandbox,
    /// What its commands see although it lies in something hidden: the team repository.
    pub shown: Vec<PathBuf>,
    /// What they may not write although it lies in the workspace.
    pub sealed: Vec<PathBuf>,
    /// The means to confine them.
    pub confinement: ConfinementArgs,
    /// The limits of each command.
    pub bounds: Bounds,
    /// The cgroup in which commands run, if there is one.
    pub cgroup: Option<Arc<OwnCgroup>>,
    /// Where they have caches of their own.
    pub keeps: Keeps,
    /// How much of the machine their builds use at once.
    pub machine: MachineSettings,
}

/// Runs confined commands.
#[derive(Debug)]
pub struct Runner {
    config: RunnerConfig,
    places: CommandPlaces,
    background: Background,
    /// Whether its commands commit as the teammate where the user has set no author.
    has_author: bool,
    /// What the jobservers of its commands share, once the first command was started; none if they
    /// have none.
    slots: OnceLock<Option<Slots>>,
    /// Where its commands and checks ask whether they may begin, once the first has; none if they
    /// are not held back.
    admissions: OnceLock<Option<Admissions>>,
    /// What its commands have for a localhost, if they share one.
    localhost: Option<OwnLocalhost>,
    /// What the model gets to read with its first command.
    first_note: String,
    /// Removed when the incarnation ends, after the commands have ended: so it is the last field.
    _temp: TempDir,
}

/// A command that has been started, if it could be.
#[derive(Debug)]
pub enum StartedCommand {
    /// It is over, or continues in the background.
    Done(Outcome),
    /// It runs in the foreground.
    Foreground(Box<Foreground>),
}

impl Runner {
    /// Finds out what the commands may do, and makes this process the subreaper of what they start.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new(mut config: RunnerConfig) -> anyhow::Result<Self> {
        nix::sys::prctl::set_child_subreaper(true).context("cannot become a subreaper")?;
        let (writable, lost) = take_writable(&config.sandbox.writable, config.team_dir.root());
        let first_note = first_note(&config.sandbox, &lost);
        let temp = temp_dir(&config, &writable);
        let temp = temp.context("cannot make the temporary directory of its commands")?;
        let state = make_state(&config)?;
        if let Err(error) = jobserver::make_folder(&config.environment) {
            tracing::warn!("commands have no jobserver: {error}");
        }
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
        let places = CommandPlaces::find(
            &config.workspace,
            &config.team_dir,
            writable,
            temp.path(),
            origin,
        );
        let places = places.context("cannot look around for what its commands may do")?;
        if let Some(state) = &state {
            caches::tell(&mut config.environment, &config.sandbox, &places, state);
        }
        let has_author =
            author::make(&config, &places.seen.git, temp.path()).unwrap_or_else(|error| {
                tracing::warn!("commits have no author of their own: {error}");
                false
            });
        let localhost =
            OwnLocalhost::of(&config).context("cannot make the localhost of its commands")?;
        Ok(Self {
            config,
            places,
            localhost,
            background: Background::default(),
            has_author,
            slots: OnceLock::new(),
            admissions: OnceLock::new(),
            first_note,
            _temp: temp,
        })
    }

    /// Returns what it was made with; its environment names the caches.
    pub fn config(&self) -> &RunnerConfig {
        &self.config
    }

    /// Returns where things lie.
    pub fn places(&self) -> &CommandPlaces {
        &self.places
    }

    /// Runs a command to its end, as long as it may take.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn run(
        &mut self,
        command: String,
        seconds: f64,
        reader: OutputReader,
    ) -> anyhow::Result<Ran> {
        let bash = Bash {
            command,
            timeout: Some(seconds),
            run_in_background: false,
        };
        let prepared = self.prepare(
            ShimProgram::Bash,
            &bash.command,
            timeout_of(&bash),
            Gate::Open,
        );
        let (job, serving) = prepared.map_err(anyhow::Error::msg)?;
        let started = self.start_in_foreground(&job, serving);
        let started = started.map_err(anyhow::Error::msg)?;
        Ok(started.run_to_end(reader).await)
    }

    /// Starts a command. Must be called within the runtime.
    pub fn start(&mut self, bash: &Bash, gate: Gate) -> StartedCommand {
        match self.try_start(bash, gate) {
            Ok(running) => running,
            Err(why) => StartedCommand::Done(Outcome::error(why)),
        }
    }

    /// Starts our own program under a hidden subcommand that only reads: it is confined as a command
    /// behind a closed gate. `shown`: what the list of processes says of it. Must be called within
    /// the runtime.
    pub fn start_reader(
        &mut self,
        arguments: Vec<String>,
        shown: &str,
        timeout: Duration,
        gate: Gate,
    ) -> StartedCommand {
        // What is not confined at all has no layer that could confine it.
        let gate = match self.config.sandbox.mode {
            SandboxMode::Off => gate,
            SandboxMode::WorkspaceWrite | SandboxMode::ReadOnly => Gate::Closed,
        };
        let prepared = self.prepare(ShimProgram::Own(arguments), shown, Some(timeout), gate);
        let started = prepared.and_then(|(job, serving)| self.start_in_foreground(&job, serving));
        match started {
            Ok(command) => StartedCommand::Foreground(Box::new(command)),
            Err(why) => StartedCommand::Done(Outcome::error(why)),
        }
    }

    fn try_start(&mut self, bash: &Bash, gate: Gate) -> Result<StartedCommand, String> {
        let (job, serving) =
            self.prepare(ShimProgram::Bash, &bash.command, timeout_of(bash), gate)?;
        if bash.run_in_background {
            let started =
                self.background
                    .start(&self.config, &job, &self.places.temp.path, serving);
            let started = started.map_err(|error| cannot_start(&self.config, &error))?;
            let note = std::mem::take(&mut self.first_note);
            return Ok(StartedCommand::Done(Outcome::ok(note + &started)));
        }
        let mut command = self.start_in_foreground(&job, serving)?;
        command.log = self.begin_log(&bash.command);
        Ok(StartedCommand::Foreground(Box::new(command)))
    }

    /// Begins the log in which people read the output while it comes: a new file, so that a follower
    /// sees that another command begins. A full disk costs the log, and not the command.
    fn begin_log(&self, command: &str) -> Option<LiveLog> {
        let RunnerConfig { name, team_dir, .. } = &self.config;
        let at = TeamPath::command_log(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
        let made = team_dir
            .remove(&at)
            .and_then(|_| team_dir.open_file(&at, flags));
        match made {
            Ok(file) => Some(LiveLog::begin(file, command)),
            Err(error) => {
                tracing::warn!("the output of a command has no log: {error}");
                None
            }
        }
    }

    fn start_in_foreground(
        &mut self,
        job: &ShimJob,
        serving: JoinSet<()>,
    ) -> Result<Foreground, String> {
        let started = Foreground::start(job, &self.config.liveness_lock);
        let mut command = started.map_err(|error| cannot_start(&self.config, &error))?;
        command.note = std::mem::take(&mut self.first_note);
        command.serving = serving;
        command.watch_memory(self.config.cgroup.as_deref());
        Ok(command)
    }

    /// Makes the job of a command, and begins to serve its gateway and to keep its jobserver.
    fn prepare(
        &self,
        program: ShimProgram,
        command: &str,
        timeout: Option<Duration>,
        gate: Gate,
    ) -> Result<(ShimJob, JoinSet<()>), String> {
        let RunnerConfig {
            sandbox,
            team_dir,
            confinement,
            ..
        } = &self.config;
        let policy = self
            .places
            .policy(sandbox, gate, (confinement.layers, confinement.weak))?;
        if policy.is_some() {
            // Shims note there what must not be made. It may be deleted at any time.
            team_dir
                .open_folder(Some("run"))
                .map_err(|error| error.to_string())?;
        }
        // Behind a closed gate, each command is alone: it reaches nothing that an open one serves.
        let shared = match program {
            ShimProgram::Bash if gate == Gate::Open => self.localhost.as_ref(),
            _ => None,
        };
        let has_list = sandbox.has_network(gate) && !sandbox.hosts.is_empty();
        let way = has_list.then(|| match shared {
            Some(shared) => shared.way(Gateway::new(sandbox, true)),
            None => Way::make(Gateway::new(sandbox, true), true),
        });
        let mut way = way
            .transpose()
            .map_err(|error| cannot_start(&self.config, &error))?;
        let entered = shared.map(|shared| shared.entry(&self.config)).transpose();
        let (localhost, namespaces) = entered
            .map_err(|error| cannot_start(&self.config, &error))?
            .unzip();
        let listen = way.as_ref().and_then(Way::listen);
        let mut lease = match program {
            ShimProgram::Bash => self.lease(policy.as_ref()),
            ShimProgram::Own(_) | ShimProgram::Agent(_) => None,
        };
        let order = ShimOrder {
            timeout,
            bounds: self.config.bounds,
            policy,
            program,
            listen,
            jobserver: lease.as_ref().map(Lease::descriptors).unwrap_or_default(),
            localhost,
        };
        let mut job = self.job(command, order, (way.as_mut(), lease.as_mut()))?;
        job.handed_on.extend(namespaces.into_iter().flatten());
        // What a command starts is in the cgroup from its first moment.
        if let Some(cgroup) = &self.config.cgroup {
            let entered = cgroup.enter();
            entered.map_err(|error| cannot_start(&self.config, &error))?;
        }
        let mut serving = match (way, shared) {
            (Some(way), Some(shared)) => {
                shared.serve(way);
                JoinSet::new()
            }
            (Some(way), None) => way.serve_command(),
            (None, _) => JoinSet::new(),
        };
        if let Some(lease) = lease {
            serving.spawn(lease.serve());
        }
        Ok((job, serving))
    }

    fn job(
        &self,
        command: &str,
        order: ShimOrder,
        (way, lease): (Option<&mut Way>, Option<&mut Lease>),
    ) -> Result<ShimJob, String> {
        let config = &self.config;
        if command.len() > MAX_COMMAND {
            return Err(format!(
                "the command has {} bytes, the limit is {MAX_COMMAND}: write it to a file, and run that",
                command.len()
            ));
        }
        let mut environment = Cow::Borrowed(&config.environment);
        let variables = way.iter().flat_map(|way| way.variables());
        let of_jobserver = lease
            .iter()
            .flat_map(|lease| lease.variables(&config.environment));
        for (name, value) in variables.chain(of_jobserver) {
            environment.to_mut().set(name, &value);
        }
        if self.has_author {
            self.set_author(order.policy.as_ref(), environment.to_mut());
        }
        // The shim would report it later, and less clearly.
        let job = config
            .workspace
            .metadata()
            .and_then(|_| ShimJob::new(order, &environment, &config.workspace, command.as_ref()));
        let mut job = job.map_err(|error| cannot_start(config, &error))?;
        job.handed_on.extend(way.and_then(Way::hand_on));
        job.handed_on
            .extend(lease.map(Lease::hand_on).unwrap_or_default());
        Ok(job)
    }

    /// Names the author of commits in the environment of a command with this policy, if the user's
    /// settings name none.
    pub fn set_author(&self, policy: Option<&Policy>, environment: &mut Environment) {
        if !self.has_author {
            return;
        }
        let temp = policy.map_or(self.places.temp.path.as_path(), Policy::temp_inside);
        let file = temp.join(author::FILE);
        environment.set(author::VARIABLE, &file.to_string_lossy());
    }

    /// Tells whether a command runs in the background.
    pub fn has_background(&mut self) -> bool {
        self.background.is_running()
    }

    /// Returns the next command in the background that has ended by itself; waits for it, for ever
    /// if none runs. May be dropped and called again.
    pub async fn next_ended(&mut self) -> EndedCommand {
        self.background.next_ended().await
    }

    /// Takes those that have ended by themselves, and were not returned so far.
    pub fn take_ended(&mut self) -> Vec<EndedCommand> {
        self.background.take_ended()
    }

    /// Returns those of which the log says that they run, before any was started: they have ended
    /// with a worker that was killed.
    ///
    /// # Errors
    /// The system's error.
    pub fn lost_background(&self) -> Result<Vec<EndedCommand>, DirError> {
        Background::lost(&self.config)
    }

    /// Ends the commands in the background with all that they started; returns when that is gone.
    /// May be dropped and called again.
    pub async fn end_background(&mut self) {
        self.background.end().await;
    }
}

impl StartedCommand {
    /// Waits for the outcome; all that the command started (except in the background) is gone then.
    ///
    /// Cancel safe: may be dropped halfway and called again.
    pub async fn finish(&mut self) -> Outcome {
        let outcome = match self {
            Self::Done(outcome) => return outcome.clone(),
            Self::Foreground(command) => command.finish().await,
        };
        *self = Self::Done(outcome.clone());
        outcome
    }

    /// Ends the command; all that it started is gone when this returns.
    ///
    /// The outcome tells why, unless the command had ended by itself.
    pub async fn cancel(self, why: &str) -> Outcome {
        match self {
            Self::Done(outcome) => outcome,
            Self::Foreground(command) => command.cancel(why).await,
        }
    }
}

fn timeout_of(bash: &Bash) -> Option<Duration> {
    let by_default = (!bash.run_in_background).then_some(DEFAULT_TIMEOUT);
    bash.timeout.or(by_default).map(Duration::from_secs_f64)
}

fn cannot_start(config: &RunnerConfig, error: &io::Error) -> String {
    format!(
        "cannot start a command in {}: {error}",
        config.workspace.display()
    )
}

/// Makes the other directory that commands may always write: where an agent keeps its own files,
/// and where caches lie.
fn make_state(config: &RunnerConfig) -> anyhow::Result<Option<PathBuf>> {
    let made = config.keeps.make(&config.environment, &config.team_dir);
    if matches!(config.keeps, Keeps::Agent(_)) {
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

/// Returns a note for the model about the paths that may be written by name but cannot be.
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
fn temp_dir(config: &RunnerConfig, writable: &[Place]) -> io::Result<TempDir> {
    let named = config
        .environment
        .path("TMPDIR")
        .filter(|path| path.is_absolute() && path.is_dir());
    let named = named.and_then(|path| path.canonicalize().ok());
    let named = named.filter(|path| {
        // Where its commands write, they could put a link in its place.
        let is_theirs = path.starts_with(&config.workspace)
            || writable.iter().any(|it| path.starts_with(&it.path));
        !is_theirs && !config.sandbox.hidden.iter().any(|it| path.starts_with(it))
    });
    let team = rustix::fs::fstat(&config.team_dir)?;
    let id = format!("{:x}-{:x}-{}", team.st_dev, team.st_ino, config.temp_name);
    TempDir::create(&named.unwrap_or_else(|| "/tmp".into()), &id)
}

#[cfg(test)]
mod tests;
