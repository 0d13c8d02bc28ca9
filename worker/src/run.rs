//! How a life begins, in order: connection, lock, welcome, transcript, inbox, and only then the session.
//!
//! Before the welcome nothing is done that anybody could notice, but for the lock that proves the life.

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
use teamd_shared::settings::Settings;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::transcript::Event;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;
use uuid::Uuid;

use crate::args::RunArgs;
use crate::connection::{Identity, Link, be_born, take_from_stdin};
use crate::desk::{Desk, Terminations};
use crate::live::Live;
use crate::mailbox::{Mailbox, Waking};
use crate::model::{Access, Model, Persona};
use crate::outbox::Outbox;
use crate::persona::{self, About};
use crate::plan::Submission;
use crate::replay::{Owed, Standing};
use crate::session::Session;
use crate::state::{Beginning, Budget, State};
use crate::tools::lead::Spawner;
use crate::tools::{Call, Confinement, Guide, Kit, Rest, Toolbox, ToolboxConfig, Tools, schema};
use crate::transcript::{Transcript, TranscriptError};

/// Lives one life; 0 if it ended by its own doing, 1 if it could not begin or go on.
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
    // It fails in a process that leads its group already: then whoever started it has seen to that.
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
    // A session of its own is told neither by anybody who means it; caught and not ignored, since what is ignored
    // stays so in every command that is started.
    let _ignored = [catch(SignalKind::interrupt())?, catch(SignalKind::hangup())?];
    let dir = Arc::new(TeamDir::open(&args.team_dir)?);
    let transcript = Transcript::lock(&dir, &args.name)?;
    let mut connection = Connection::from_fd(inherited).context("descriptor 0 is no connection to teamd")?;
    let identity = Identity { name: args.name.clone(), incarnation: args.incarnation };
    let welcome = tokio::select! {
        welcome = be_born(&mut connection, &identity) => welcome,
        _ = terminate.recv() => {
            connection.send(&FromWorker::Leaving).await?;
            return Ok(());
        }
    };
    match welcome {
        Ok(Some(welcome)) => {
            let terminate = Terminations::Sent(terminate);
            let life = Life { dir, identity, transcript, terminate };
            let confinement = Confinement {
                layers: args.sandbox_layers,
                weak: args.allow_weak_sandbox,
                programs: args.programs.clone(),
            };
            let session = life.begin(welcome, connection, confinement)?;
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

/// What a life has before it is welcomed.
pub(crate) struct Life {
    /// The team directory.
    pub(crate) dir: Arc<TeamDir>,
    /// Whose life it is.
    pub(crate) identity: Identity,
    /// Its transcript, locked.
    pub(crate) transcript: Transcript,
    /// What ends it.
    pub(crate) terminate: Terminations,
}

/// What a life works with.
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

impl Life {
    fn begin(
        self,
        welcome: Welcome,
        connection: Connection,
        confinement: Confinement,
    ) -> anyhow::Result<Session> {
        let settings = Settings::from_env()?;
        set_umask(welcome.environment.umask);
        let name = self.identity.name.clone();
        let toolbox = Toolbox::new(ToolboxConfig {
            workspace: welcome.workspace.clone().into(),
            team_dir: Arc::clone(&self.dir),
            name: name.clone(),
            life_lock: self.transcript.life_lock()?,
            environment: welcome.environment.clone(),
            territory: welcome.territory.iter().map(PathBuf::from).collect(),
            sandbox: welcome.sandbox.clone(),
            bounds: welcome.bounds,
            confinement,
        })?;
        let access = Access { dir: &self.dir, environment: &welcome.environment };
        let persona = |room| persona(&self.dir, &name, &welcome, &toolbox, room);
        let model = Model::from_spec(&welcome.model, persona, access);
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
        let clear_up = |broken_off: &Call| toolbox.clear_up(broken_off);
        let mut standing =
            resume(&mut self.transcript, &mut model, &welcome, &self.identity, (&mut outbox, &clear_up))?;
        let live = Live::new(Arc::clone(&self.dir), &name);
        let kit = Kit::of(&name);
        let waking = match (welcome.watch, settings.poll) {
            (_, true) => Waking::Poll,
            (true, false) => Waking::Events,
            (false, false) => Waking::Ring,
        };
        let seen = std::mem::take(&mut standing.seen);
        let mailbox = Mailbox::open(self.dir, &name, self.transcript.cursor(), seen, waking)?;
        let beginning = Beginning {
            at: standing.at,
            turns: standing.turns,
            spent: standing.spent,
            limits: Budget {
                turns: welcome.limits.max_turns.unwrap_or(settings.max_turns),
                tokens: welcome.limits.max_tokens,
            },
            usage: standing.usage,
            mail: mailbox.mail(),
            rest: mailbox.has_unseen(),
        };
        let submission = standing
            .calls
            .front()
            .and_then(|call| Submission::resumed(kit, call, welcome.directive.plan.as_ref()));
        let began = Instant::now();
        let spawner = spawner(&welcome);
        let mut state = State::new(beginning, welcome.directive, began.elapsed());
        if let Some(Owed::Idle { idle_reason, content, .. }) = standing.owed.last() {
            state.rests(*idle_reason, content);
        }
        if let Some(plan) = &submission {
            state.planning(plan.request_id.clone());
        }
        let (terminate, work_began) = (self.terminate, Duration::ZERO);
        let pauses = model.pauses();
        let desk = Desk { state, link, mailbox, toolbox, terminate, pauses, began, work_began, tick: began };
        Ok(Session {
            desk,
            model,
            live,
            transcript: self.transcript,
            outbox,
            ids,
            kit,
            spawner,
            incarnation,
            calls: standing.calls,
            closing: standing.text,
            submission,
            approval: None,
        })
    }
}

/// Returns what those begin with whom the lead agent starts.
fn spawner(welcome: &Welcome) -> Spawner {
    Spawner {
        environment: welcome.environment.clone(),
        model: welcome.model.clone(),
        workspace: welcome.workspace.clone(),
        sandbox: welcome.sandbox.clone(),
        bounds: welcome.bounds,
    }
}

/// Makes what the model is told of itself, with at most so many bytes of what the workspace says to agents. Who else is
/// there stands in the roster; without one, nobody is named.
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
        role: &welcome.role,
        instructions: welcome.instructions.as_deref(),
        workspace: &welcome.workspace,
        mode: welcome.sandbox.mode,
        teammates: live.map(|member| (member.name.to_string(), member.role)).collect(),
        guide,
    };
    let tools = schema::definitions(Kit::of(name), welcome.sandbox.mode);
    Persona { name: name.clone(), system: persona::system(&about), tools }
}

/// The umask of whoever asked for the teammate: it holds for what its tools make.
fn set_umask(mask: u32) {
    let mask = nix::sys::stat::Mode::from_bits_truncate(mask);
    nix::sys::stat::umask(mask);
}

/// Goes on with a conversation, or begins it: writes the entry of this life, and the results of calls that the
/// life before did not end. The model sees every entry.
fn resume(
    transcript: &mut Transcript,
    model: &mut Model,
    welcome: &Welcome,
    identity: &Identity,
    (outbox, clear_up): (&mut Outbox, &dyn Fn(&Call)),
) -> Result<Standing, TranscriptError> {
    let conversation = welcome.conversation;
    let Identity { name, incarnation } = identity;
    let incarnation = *incarnation;
    let (mut standing, mut is_empty) = (Standing::of(name, &[]), true);
    if conversation != incarnation {
        transcript.each_entry(conversation, |entry| {
            is_empty = false;
            standing.cursor = entry.inbox;
            standing.follow(&entry.event, &entry.owed);
            model.observe(&entry.event);
        })?;
    }
    transcript.set_cursor(if is_empty { welcome.begins_at } else { standing.cursor });
    let mut record = |standing: &mut Standing, owed: Vec<Uuid>, event: Event| {
        transcript.set_owed(owed.clone());
        transcript.append(&event)?;
        model.observe(&event);
        standing.follow(&event, &owed);
        Ok::<(), TranscriptError>(())
    };
    let owed: Vec<Uuid> = standing.owed.iter().map(Owed::id).collect();
    if is_empty {
        // Also for an earlier life that ended before it could: a conversation begins with the entry of its first life.
        let prompt = welcome.prompt.clone();
        record(&mut standing, Vec::new(), Event::Life { incarnation: conversation, conversation, prompt })?;
    }
    if !is_empty || conversation != incarnation {
        record(&mut standing, owed, Event::Life { incarnation, conversation, prompt: None })?;
    }
    // Before a result follows: a notice that the last entry owes is owed no more then, unless that says so.
    standing.owed.iter().cloned().for_each(|notice| outbox.notify_once(notice));
    // Before it has a result, too: a life that is killed here is followed by one that does it again.
    let broken_off =
        standing.calls.front().map(|first| Call::parse(Kit::of(name), &first.name, &first.input));
    if let Some(Ok(broken_off)) = broken_off {
        clear_up(&broken_off);
    }
    for result in standing.interrupted() {
        let event = Event::Result {
            tool_use_id: result.tool_use_id,
            content: result.content.to_owned(),
            is_error: true,
        };
        record(&mut standing, outbox.owes(), event)?;
    }
    Ok(standing)
}

#[cfg(test)]
mod tests;
