//! How an incarnation begins, in order: connection, lock, welcome, transcript, inbox, and only then the session.
//!
//! Before the welcome the worker does nothing that can be seen, except that it takes the liveness lock.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use nix::sys::prctl::set_name;
use teamd_shared::config::Roster;
use teamd_shared::control::{Connection, FromWorker, Welcome};
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::inbox::Durability;
use teamd_shared::logging;
use teamd_shared::name::Name;
use teamd_shared::process::{deny_tracing, survive_file_limit};
use teamd_shared::settings::{DEFAULT_TURNS, Settings};
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::transcript::Event;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;
use uuid::Uuid;

use crate::agent::connection::{Identity, Link, await_welcome, take_from_stdin};
use crate::agent::dispatcher::{Dispatcher, Terminations};
use crate::agent::live::Live;
use crate::agent::mailbox::{Mailbox, Waking};
use crate::agent::outbox::Outbox;
use crate::agent::persona::{self, About};
use crate::agent::session::Session;
use crate::agent::transcript::{Transcript, TranscriptError};
use crate::args::RunArgs;
use crate::cgroup::OwnCgroup;
use crate::core::plan::Submission;
use crate::core::replay::{PendingNotice, ReplayedState};
use crate::core::state::{Beginning, Budget, State};
use crate::model::{Access, Model, Persona};
use crate::tools::spawn_teammate::Spawner;
use crate::tools::{Caller, Confinement, Guide, Rest, Toolbox, ToolboxConfig, Tools};

/// Runs one incarnation; 0 if it ended by its own doing, 1 if it could not begin or go on.
pub(crate) fn run(args: &RunArgs) -> ExitCode {
    logging::to_stderr();
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{} cannot go on: {error:#}", args.name);
            ExitCode::FAILURE
        }
    }
}

fn start(args: &RunArgs) -> anyhow::Result<()> {
    let inherited = take_from_stdin().context("cannot take the connection from descriptor 0")?;
    // It fails in a process that leads its group already: then its parent has seen to that.
    if let Err(errno) = nix::unistd::setsid() {
        tracing::debug!("no session of its own: {errno}");
    }
    // For `ps`: it was started by a descriptor.
    set_name(c"team-worker").context("cannot name the process")?;
    deny_tracing();
    survive_file_limit().context("cannot catch a signal")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot make the runtime")?.block_on(live(args, inherited))
}

async fn live(args: &RunArgs, inherited: OwnedFd) -> anyhow::Result<()> {
    let mut terminate = catch(SignalKind::terminate())?;
    // In a session of its own, no terminal sends these. They are caught and not ignored, since what is ignored
    // stays so in every command that is started.
    let _ignored = [catch(SignalKind::interrupt())?, catch(SignalKind::hangup())?];
    let dir = Arc::new(TeamDir::open(&args.team_dir)?);
    logging::keep_bounded(&dir, TeamPath::log(args.name.as_str()));
    let transcript = Transcript::lock(&dir, &args.name)?;
    let mut connection = Connection::from_fd(inherited).context("descriptor 0 is no connection to teamd")?;
    let identity = Identity { name: args.name.clone(), incarnation: args.incarnation };
    let welcome = tokio::select! {
        welcome = await_welcome(&mut connection, &identity) => welcome,
        _ = terminate.recv() => {
            connection.send(&FromWorker::Leaving).await?;
            return Ok(());
        }
    };
    match welcome {
        Ok(Some(welcome)) => {
            let terminate = Terminations::Sent(terminate);
            let incarnation = Incarnation { dir, identity, transcript, terminate };
            let confinement = Confinement {
                layers: args.sandbox_layers,
                weak: args.allow_weak_sandbox,
                programs: args.programs.clone(),
            };
            let cgroup = args.cgroup.clone().map(OwnCgroup::begin);
            let session = incarnation.begin(welcome, connection, (confinement, cgroup))?;
            Ok(session.run().await?)
        }
        Ok(None) => Ok(()),
        Err(error) => {
            tracing::info!("not welcomed: {error}");
            Ok(())
        }
    }
}

fn catch(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("cannot catch a signal")
}

/// What an incarnation has before it is welcomed.
pub(crate) struct Incarnation {
    /// The team directory.
    pub(crate) dir: Arc<TeamDir>,
    /// The member and its incarnation.
    pub(crate) identity: Identity,
    /// Its transcript, locked.
    pub(crate) transcript: Transcript,
    /// What ends it.
    pub(crate) terminate: Terminations,
}

/// What an incarnation works with.
pub(crate) struct Means<T> {
    /// The tools that work on the machine.
    pub(crate) toolbox: T,
    /// What answers.
    pub(crate) model: Model,
    /// The connection to the daemon.
    pub(crate) link: Link,
    /// Where new ids come from.
    pub(crate) ids: Box<dyn Ids>,
}

impl Incarnation {
    fn begin(
        self,
        welcome: Welcome,
        connection: Connection,
        (confinement, cgroup): (Confinement, Option<Arc<OwnCgroup>>),
    ) -> anyhow::Result<Session> {
        let settings = Settings::from_env()?;
        set_umask(welcome.environment.umask);
        let name = self.identity.name.clone();
        let toolbox = Toolbox::new(ToolboxConfig {
            workspace: welcome.terms.workspace.clone().into(),
            team_dir: Arc::clone(&self.dir),
            name: name.clone(),
            liveness_lock: self.transcript.liveness_lock()?,
            environment: welcome.environment.clone(),
            territory: welcome.territory.iter().map(PathBuf::from).collect(),
            sandbox: welcome.terms.sandbox.clone(),
            bounds: welcome.terms.bounds,
            cgroup,
            confinement,
        })?;
        let access = Access { dir: &self.dir, environment: &welcome.environment };
        let persona = |room| persona(&self.dir, &name, &welcome, &toolbox, room);
        let model = Model::from_spec(&welcome.terms.model, persona, access);
        let model = model.map_err(|error| anyhow!("{error} ({})", error.hint()))?;
        let (dir, environment) = (Arc::clone(&self.dir), welcome.environment.clone());
        let link = Link::start(connection, dir, self.identity.clone(), environment);
        self.go_on(&settings, welcome, Means { toolbox, model, link, ids: Box::new(RandomIds) })
    }

    /// Goes on where the files say that the conversation stands, or begins it.
    pub(crate) fn go_on<T: Tools>(
        mut self,
        settings: &Settings,
        welcome: Welcome,
        Means { toolbox, mut model, link, ids }: Means<T>,
    ) -> anyhow::Result<Session<T>> {
        let Identity { name, incarnation } = self.identity.clone();
        self.transcript.set_durable(settings.durability == Durability::Disk);
        let mut outbox = Outbox::new(Arc::clone(&self.dir), name.clone(), settings.durability);
        let mut replayed = resume(&mut self.transcript, &mut model, &welcome, &self.identity, &mut outbox)?;
        let live = Live::new(Arc::clone(&self.dir), &name);
        let caller = Caller::of(&name);
        let waking = match (welcome.watch, settings.poll) {
            (_, true) => Waking::Poll,
            (true, false) => Waking::Events,
            (false, false) => Waking::Ring,
        };
        let seen = std::mem::take(&mut replayed.seen);
        let mailbox = Mailbox::open(self.dir, &name, self.transcript.cursor(), seen, waking)?;
        let beginning = Beginning {
            at: replayed.at,
            turns: replayed.turns,
            spent: replayed.spent,
            limits: Budget {
                turns: welcome.terms.limits.max_turns.unwrap_or(DEFAULT_TURNS),
                tokens: welcome.terms.limits.max_tokens,
            },
            usage: replayed.usage,
            mail: mailbox.mail(),
            rest: mailbox.has_unseen(),
        };
        let submission = replayed
            .calls
            .front()
            .and_then(|call| Submission::resumed(caller, call, welcome.directive.plan.as_ref()));
        let began = Instant::now();
        let spawner = spawner(&welcome);
        let mut state = State::new(beginning, welcome.directive, began.elapsed());
        if let Some(PendingNotice::Idle { idle_reason, content, .. }) = replayed.pending_notices.last() {
            state.rests(*idle_reason, content);
        }
        if let Some(plan) = &submission {
            state.planning(plan.request_id.clone());
        }
        let (terminate, work_began) = (self.terminate, Duration::ZERO);
        let pauses = model.pauses();
        let dispatcher =
            Dispatcher { state, link, mailbox, toolbox, terminate, pauses, began, work_began, tick: began };
        Ok(Session {
            dispatcher,
            model,
            live,
            transcript: self.transcript,
            outbox,
            ids,
            caller,
            spawner,
            incarnation,
            calls: replayed.calls,
            closing: replayed.text,
            submission,
            approval: None,
        })
    }
}

/// Returns what a teammate begins with that the lead agent starts.
fn spawner(welcome: &Welcome) -> Spawner {
    Spawner { environment: welcome.environment.clone(), terms: welcome.terms.clone() }
}

/// Makes what the model is told of itself, with at most so many bytes of what the workspace says to agents. Who else is
/// there stands in the roster; without one, no member is named.
fn persona(dir: &TeamDir, name: &Name, welcome: &Welcome, toolbox: &Toolbox, room: usize) -> Persona {
    let roster = Roster::load(dir).unwrap_or_else(|error| {
        tracing::warn!("who else is in the team cannot be told: {error}");
        None
    });
    let members = roster.map(|roster| roster.members).unwrap_or_default();
    let live = members.into_iter().filter(|member| !member.status.is_ended());
    let guide = toolbox.guide(room);
    if let Some(Guide { file, rest: Some(rest), .. }) = &guide {
        let Rest { taken, of, line } = rest;
        tracing::warn!(
            "{file} is too long for the model's instructions: the first {taken} of its {of} bytes stand there, the \
             model is told to read on from line {line}"
        );
    }
    let about = About {
        name,
        role: &welcome.terms.role,
        instructions: welcome.terms.instructions.as_deref(),
        workspace: &welcome.terms.workspace,
        mode: welcome.terms.sandbox.mode,
        teammates: live.map(|member| (member.name.to_string(), member.role)).collect(),
        guide,
    };
    let tools = Caller::of(name).tools(welcome.terms.sandbox.mode);
    Persona { name: name.clone(), system: persona::system(&about), tools }
}

/// Sets the umask of the command that asked for the teammate: it holds for what its tools make.
fn set_umask(mask: u32) {
    let mask = nix::sys::stat::Mode::from_bits_truncate(mask);
    nix::sys::stat::umask(mask);
}

/// Goes on with a conversation, or begins it: writes the entry of this incarnation, and the results of calls that the
/// incarnation before did not end. The model sees every entry.
fn resume(
    transcript: &mut Transcript,
    model: &mut Model,
    welcome: &Welcome,
    identity: &Identity,
    outbox: &mut Outbox,
) -> Result<ReplayedState, TranscriptError> {
    let conversation = welcome.conversation;
    let Identity { name, incarnation } = identity;
    let incarnation = *incarnation;
    let (mut replayed, mut is_empty) = (ReplayedState::of(name, &[]), true);
    if conversation != incarnation {
        transcript.each_entry(conversation, |entry| {
            is_empty = false;
            replayed.cursor = entry.inbox;
            replayed.follow(&entry.event, &entry.pending_notices);
            model.observe(&entry.event);
        })?;
    }
    transcript.set_cursor(if is_empty { welcome.begins_at } else { replayed.cursor });
    let mut record = |replayed: &mut ReplayedState, pending_notices: Vec<Uuid>, event: Event| {
        transcript.set_pending(pending_notices.clone());
        transcript.append(&event)?;
        model.observe(&event);
        replayed.follow(&event, &pending_notices);
        Ok::<(), TranscriptError>(())
    };
    let pending_notices: Vec<Uuid> = replayed.pending_notices.iter().map(PendingNotice::id).collect();
    if is_empty {
        // Also for an earlier incarnation that ended before it could: a conversation begins with the entry of its first incarnation.
        let prompt = welcome.prompt.clone();
        record(
            &mut replayed,
            Vec::new(),
            Event::Incarnation { incarnation: conversation, conversation, prompt },
        )?;
    }
    if !is_empty || conversation != incarnation {
        record(
            &mut replayed,
            pending_notices,
            Event::Incarnation { incarnation, conversation, prompt: None },
        )?;
    }
    // Before a result follows: a notice of the last entry is pending after the next entry only if that one lists it.
    replayed.pending_notices.iter().cloned().for_each(|notice| outbox.notify(notice, true));
    for result in replayed.interrupted() {
        let event = Event::Result {
            tool_use_id: result.tool_use_id,
            content: result.content.to_owned(),
            is_error: true,
        };
        record(&mut replayed, outbox.pending(), event)?;
    }
    Ok(replayed)
}

#[cfg(test)]
mod tests;
