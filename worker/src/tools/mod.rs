//! The tools of a member: what a model may call, and the ones that work on the machine.
//!
//! Owns every process that a tool starts. Nothing here decides whether a call may run, or speaks to another member:
//! `bash`, the file tools and `sleep` are run here, the others by whoever keeps the protocol.

mod bash;
mod call;
mod files;
mod kept;
mod kit;
pub(crate) mod lead;
mod output;
pub(crate) mod schema;
pub(crate) mod team;

use std::fs::File;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use teamd_shared::environment::Environment;
use teamd_shared::member::{Bounds, Gate, Sandbox, SandboxMode};
use teamd_shared::name::Name;
use teamd_shared::sandbox::Layers;
use teamd_shared::team_dir::TeamDir;
use tokio::time::{Duration, Instant, sleep_until};

use bash::{Background, Foreground};
pub(crate) use call::{Call, LeadCall, Spawn};
use files::{FileError, Workspace};
pub(crate) use files::{Guide, Rest};
use kept::Surroundings;
pub(crate) use kit::Kit;

use crate::sandbox::{self, Origin, Policy, TempDir};
use crate::strays;

/// What a read-only member is told that writes a file.
const READ_ONLY: &str = "refused: this teammate is read-only; it changes no file";

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The text for the model.
    pub(crate) content: String,
    /// Whether that is an error.
    pub(crate) is_error: bool,
}

impl Outcome {
    /// Makes the outcome of a call that did what was asked.
    pub(crate) fn ok(content: impl Into<String>) -> Self {
        Self { content: content.into(), is_error: false }
    }

    /// Makes the outcome of a call that did not.
    pub(crate) fn error(content: impl Into<String>) -> Self {
        Self { content: content.into(), is_error: true }
    }

    /// Puts a note before what the model is told.
    fn after(mut self, note: Option<String>) -> Self {
        if let Some(note) = note {
            self.content.insert_str(0, &note);
        }
        self
    }
}

impl<E: std::fmt::Display> From<Result<String, E>> for Outcome {
    fn from(result: Result<String, E>) -> Self {
        match result {
            Ok(content) => Self::ok(content),
            Err(error) => Self::error(error.to_string()),
        }
    }
}

/// The tools as the session uses them.
pub(crate) trait Tools: std::fmt::Debug {
    /// A call that has been started.
    type Running: Runs;
    /// Starts a call. Must be called within the runtime.
    fn start(&mut self, call: Call, gate: Gate) -> Self::Running;
    /// Removes what a call has left that an earlier life was killed in, where that is no result of it.
    fn clear_up(&self, _broken_off: &Call) {}
    /// Tells whether a command runs in the background.
    fn has_background(&self) -> bool;
    /// Ends the commands in the background and all that they started; returns when that is gone.
    fn end_background(&mut self) -> impl Future<Output = ()>;
    /// Kills and reaps, in one round, what killed keepers have left. Calls do so themselves: this is for the
    /// moments between them.
    fn reap_strays(&mut self);
    /// Ends the last of what was started. To be called when no keeper runs any more.
    fn end_strays(&mut self);
}

/// A call that has been started. If it is dropped, it is ended, but nobody waits for that.
pub(crate) trait Runs {
    /// Waits for the outcome; all that the call started (but in the background) is gone then.
    ///
    /// Cancel safe: may be dropped halfway and called again.
    fn finish(&mut self) -> impl Future<Output = Outcome>;
    /// Ends the call; all that it started is gone when this returns.
    ///
    /// The outcome tells why, unless the call had ended by itself.
    fn cancel(self, why: &str) -> impl Future<Output = Outcome>;
}

/// What a toolbox needs.
#[derive(Debug)]
pub(crate) struct ToolboxConfig {
    /// The directory that the tools work in.
    pub(crate) workspace: PathBuf,
    /// The team directory: logs go there, and no file tool reaches into it.
    pub(crate) team_dir: Arc<TeamDir>,
    /// Whose tools they are.
    pub(crate) name: Name,
    /// The transcript, as the worker has locked it: each keeper shares the lock.
    pub(crate) life_lock: File,
    /// The variables of every command. Its secrets are given to none.
    pub(crate) environment: Environment,
    /// Where commands of the team may or once could write.
    pub(crate) territory: Vec<PathBuf>,
    /// How its commands are confined while the gate is open.
    pub(crate) sandbox: Sandbox,
    /// What they are confined with.
    pub(crate) confinement: Confinement,
    /// What they may use.
    pub(crate) bounds: Bounds,
}

/// What commands are confined with.
#[derive(Debug, Clone)]
pub(crate) struct Confinement {
    /// The layers that work here.
    pub(crate) layers: Layers,
    /// Whether commands run although that is not enough: somebody has said so by name.
    pub(crate) weak: bool,
    /// The programs of the team: no command replaces them.
    pub(crate) programs: Vec<PathBuf>,
}

/// Why there are no tools. Fits behind "error: ".
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolboxError {
    /// The workspace cannot be used.
    #[error(transparent)]
    Workspace(#[from] FileError),
    /// The kernel does not let this process look after its orphans.
    #[error("cannot become a subreaper: {0}")]
    Subreaper(nix::errno::Errno),
    /// It cannot be seen where things lie.
    #[error("cannot look around for what its commands may do: {0}")]
    Surroundings(io::Error),
    /// There is no place for what is temporary.
    #[error("cannot make the temporary directory of its commands: {0}")]
    Temp(io::Error),
}

/// The tools that work on the machine.
#[derive(Debug)]
pub(crate) struct Toolbox {
    surroundings: Surroundings,
    places: sandbox::Surroundings,
    sandbox: Sandbox,
    confinement: Confinement,
    workspace: Workspace,
    background: Background,
    team_dir: Arc<TeamDir>,
    /// What the model is told with its first command.
    pending_derived: Option<String>,
    /// Removed when the life ends, after the commands have ended: it stands last.
    _temp: TempDir,
}

impl Toolbox {
    /// Opens the workspace, and makes this process the subreaper of what its tools start.
    ///
    /// # Errors
    /// [`ToolboxError`] if the system refuses, or the workspace lies in the team directory.
    pub(crate) fn new(config: ToolboxConfig) -> Result<Self, ToolboxError> {
        let workspace = Workspace::open(&config.workspace, Arc::clone(&config.team_dir), &config.name)?;
        nix::sys::prctl::set_child_subreaper(true).map_err(ToolboxError::Subreaper)?;
        let real = workspace.real().to_owned();
        let writable = sandbox::writable::take(&config.sandbox.writable, config.team_dir.root());
        let pending_derived = pending_derived(&config.sandbox, &writable.lost);
        let temp = temp_dir(&config, &writable.paths).map_err(ToolboxError::Temp)?;
        let origin = Origin {
            environment: &config.environment,
            territory: &config.territory,
            hidden: &config.sandbox.hidden,
            programs: &config.confinement.programs,
        };
        let places = sandbox::Surroundings::find(real, &config.team_dir, writable, temp.path(), origin);
        let places = places.map_err(ToolboxError::Surroundings)?;
        let workspace = workspace.without(places.secrets.clone(), places.programs.clone());
        let workspace = workspace.apart_from(places.registers.clone())?;
        let background = Background::new(Arc::clone(&config.team_dir), config.name);
        background.close_logs();
        let surroundings = Surroundings {
            bounds: config.bounds,
            workspace: config.workspace,
            environment: config.environment,
            life_lock: config.life_lock,
        };
        Ok(Self {
            surroundings,
            places,
            pending_derived,
            sandbox: config.sandbox,
            confinement: config.confinement,
            workspace,
            background,
            team_dir: config.team_dir,
            _temp: temp,
        })
    }

    /// Says what a command may do now.
    fn policy(&self, gate: Gate) -> Result<Option<Policy>, String> {
        let Confinement { layers, weak, .. } = self.confinement;
        let present = self.places.present()?;
        let mut policy = Policy::of(&self.sandbox, gate, &self.places, present, layers);
        if let Some(policy) = &mut policy {
            // It stands on two command lines: what is not there need not. What cannot be looked at may be there.
            let is_missing = |error: &io::Error| {
                matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            };
            policy.pinned.retain(|path| !path.symlink_metadata().is_err_and(|error| is_missing(&error)));
            policy.known.iter().try_for_each(|known| known.check(known.path()))?;
        }
        let covers = |hidden: &&PathBuf| self.places.temp.starts_with(hidden);
        if let Some(hidden) = policy.as_ref().and_then(|policy| policy.hidden.iter().find(covers)) {
            let (temp, hidden) = (self.places.temp.display(), hidden.display());
            return Err(format!(
                "not run: its temporary directory {temp} lies in {hidden}, which is hidden: spawn it with another TMPDIR"
            ));
        }
        let apart = policy.as_ref().is_none_or(Policy::is_apart);
        let exposed = || {
            let secret = policy.as_ref()?.exposed()?.display();
            Some(format!(
                "{secret} is hidden from commands, but lies in what it may write: it takes namespaces to part them"
            ))
        };
        let replaceable = || {
            let program = policy.as_ref()?.replaceable()?.display();
            Some(format!(
                "{program} is a program of the team, but lies in what it may write: it takes namespaces to protect it, so \
                 install the programs elsewhere"
            ))
        };
        let weakness =
            policy.as_ref().and_then(|_| exposed().or_else(|| layers.weakness(apart)).or_else(replaceable));
        let weakness = weakness.filter(|_| !weak);
        weakness.map_or(Ok(policy), |why| Err(format!("not run: it cannot be confined as promised: {why}")))
    }

    /// Returns what the workspace says to agents, at most so many bytes of it.
    pub(crate) fn guide(&self, most: usize) -> Option<Guide> {
        self.workspace.guide(most)
    }

    fn start_bash(
        &mut self,
        command: &str,
        timeout: Option<f64>,
        background: bool,
        gate: Gate,
    ) -> Result<Running, String> {
        let policy = self.policy(gate)?;
        if policy.is_some() {
            // Keepers note there what must not be made. It may be deleted at any time.
            self.team_dir.open_folder("run").map_err(|error| error.to_string())?;
        }
        let job = kept::Job { command, timeout, policy: policy.as_ref() };
        let state = match background {
            true => State::Done(self.background.start(&self.surroundings, &self.places.temp, job)?),
            false => State::Bash(Box::new(Foreground::start(&self.surroundings, job)?)),
        };
        Ok(Running { state, note: self.pending_derived.take() })
    }
}

impl Tools for Toolbox {
    type Running = Running;

    // File tools are done when this returns. A call of the protocol is none of this module's: its outcome is an error.
    fn start(&mut self, call: Call, gate: Gate) -> Running {
        let outcome = match call {
            Call::Bash { command, timeout, background } => {
                match self.start_bash(&command, timeout, background, gate) {
                    Ok(running) => return running,
                    Err(error) => Outcome::error(error),
                }
            }
            Call::ReadFile { path, limit, offset } => self.workspace.read(&path, offset, limit).into(),
            Call::WriteFile { .. } | Call::EditFile { .. } if self.sandbox.mode == SandboxMode::ReadOnly => {
                Outcome::error(READ_ONLY)
            }
            Call::WriteFile { path, content } => self.workspace.write(&path, &content).into(),
            Call::EditFile { path, old_text, new_text } => {
                self.workspace.edit(&path, &old_text, &new_text).into()
            }
            Call::Sleep { seconds } => {
                let until = Instant::now() + Duration::from_secs_f64(seconds);
                return Running::new(State::Sleep { until, seconds });
            }
            Call::SendMessage { .. }
            | Call::ReadInbox
            | Call::ShutdownResponse { .. }
            | Call::PlanApproval { .. }
            | Call::Lead(_) => Outcome::error("this tool is not run here"),
        };
        Running::new(State::Done(outcome))
    }

    fn clear_up(&self, broken_off: &Call) {
        let (Call::WriteFile { path, .. } | Call::EditFile { path, .. }) = broken_off else { return };
        if let Err(error) = self.workspace.clear_up(path) {
            tracing::info!("what a call may have left that was broken off is not looked for: {error}");
        }
    }

    async fn end_background(&mut self) {
        self.background.end().await;
    }

    fn has_background(&self) -> bool {
        self.background.is_running()
    }

    fn reap_strays(&mut self) {
        kept::sweep_strays();
    }

    fn end_strays(&mut self) {
        strays::end();
    }
}

/// What is told of what is allowed by name and may not be written all the same; none, where that changes nothing.
fn pending_derived(sandbox: &Sandbox, lost: &[String]) -> Option<String> {
    let changes = sandbox.mode == SandboxMode::WorkspaceWrite && !lost.is_empty();
    changes.then(|| format!("[allowed by name, but not writable in this life: {}]\n", lost.join("; ")))
}

/// A place that this user alone enters, and that only this teammate uses.
fn temp_dir(config: &ToolboxConfig, writable: &[PathBuf]) -> io::Result<TempDir> {
    let named = config.environment.path("TMPDIR").filter(|path| path.is_absolute() && path.is_dir());
    let named = named.and_then(|path| path.canonicalize().ok());
    // Where its commands write, they could put a link in its place.
    let is_theirs =
        |path: &Path| path.starts_with(&config.workspace) || writable.iter().any(|it| path.starts_with(it));
    let is_hidden = |path: &Path| config.sandbox.hidden.iter().any(|it| path.starts_with(it));
    let named = named.filter(|path| !is_theirs(path) && !is_hidden(path));
    let team = rustix::fs::fstat(&config.team_dir)?;
    let id = format!("{:x}-{:x}-{}", team.st_dev, team.st_ino, config.name);
    TempDir::create(&named.unwrap_or_else(|| "/tmp".into()), &id)
}

/// A call that has been started. If it is dropped, it is ended, but nobody waits for that.
#[derive(Debug)]
pub(crate) struct Running {
    state: State,
    /// What stands before the outcome.
    note: Option<String>,
}

#[derive(Debug)]
enum State {
    Done(Outcome),
    Sleep { until: Instant, seconds: f64 },
    Bash(Box<Foreground>),
}

impl Running {
    fn new(state: State) -> Self {
        Self { state, note: None }
    }
}

impl Runs for Running {
    async fn finish(&mut self) -> Outcome {
        let outcome = match &mut self.state {
            State::Done(outcome) => outcome.clone(),
            State::Sleep { until, seconds } => {
                sleep_until(*until).await;
                Outcome::ok(format!("slept {seconds} s"))
            }
            State::Bash(command) => command.finish().await,
        };
        let outcome = outcome.after(self.note.take());
        self.state = State::Done(outcome.clone());
        outcome
    }

    async fn cancel(self, why: &str) -> Outcome {
        let outcome = match self.state {
            State::Done(outcome) => outcome,
            State::Sleep { .. } => Outcome::error(format!("[{why}]")),
            State::Bash(command) => command.cancel(why).await,
        };
        outcome.after(self.note)
    }
}
