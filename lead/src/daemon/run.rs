//! The daemon from its start to its end, readable from top to bottom.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::fs::OFlags;
use teamd_shared::clock;
use teamd_shared::config::Roster;
use teamd_shared::journal::{Daemon, TeamEvent, TeamRecord};
use teamd_shared::process::{Identity, adopt_orphans, deny_tracing};
use teamd_shared::settings::Settings;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::watch::{SLOW_TICK, Watch};
use tokio::sync::mpsc;

use super::confinement::Confinement;
use super::core::batch::{Batcher, End};
use super::core::event::{Event, Life, Now};
use super::core::live::Rules;
use super::dispatcher::Dispatcher;
use super::hand_over::{HandOver, become_successor};
use super::io::cgroup::Cgroups;
use super::io::connections::{Connections, Input, ROOM};
use super::io::inboxes::Progress;
use super::io::journal::{Journal, refuse_linked_copy};
use super::io::lead_inbox::LeadInbox;
use super::io::lock::TeamLock;
use super::io::roster::{Before, REPLACED, RosterFile, set_aside};
use super::io::signals::{self, Signals};
use super::io::socket::Socket;
use super::io::workers::Supervisor;
use super::later::Syncing;
use super::reconcile::{Found, reconcile};
use crate::error::CommandError;
use crate::exit_code::ExitCode;
use crate::programs::Program;

/// How many inputs one batch takes at the most.
const BATCH: usize = 512;

/// Runs the daemon under a lock that is held already, until everybody is gone. `ready` is called once it
/// answers on its control socket, with the length of what was torn of the journal.
pub(super) fn serve(
    dir: &Path,
    lock: TeamLock,
    settings: Settings,
    how: (&Confinement, Program),
    ready: impl FnOnce(Option<usize>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    deny_tracing();
    adopt_orphans();
    raise_file_limit();
    // This thread alone hears them, from when it listens until it hands over.
    signals::hold_back();
    let dir = TeamDir::open(dir)?;
    dir.furnish()?;
    let dir = Arc::new(dir);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_start(signals::hold_back)
        .build();
    let runtime = runtime.map_err(|e| failed("cannot start its runtime", &e))?;
    let ended = runtime.block_on(async {
        let mut daemon = Running::begin(Arc::clone(&dir), settings, how)?;
        ready(daemon.torn)?;
        notify(&[sd_notify::NotifyState::Ready, sd_notify::NotifyState::Status("supervising")]);
        daemon.run().await;
        daemon.end(&dir).await
    });
    // The socket is gone before the lock is: a next daemon binds a socket that nobody unlinks.
    drop(runtime);
    match ended? {
        Some(wanted) => Err(become_successor(&wanted, lock)),
        None => Ok(()),
    }
}

/// A daemon that answers.
struct Running {
    dispatcher: Dispatcher,
    inputs: mpsc::Receiver<Input>,
    gone: mpsc::UnboundedReceiver<Life>,
    ends: mpsc::UnboundedReceiver<Event>,
    watch: Option<Watch>,
    /// Tells when a file of the team directory itself is deleted or replaced. Without it the slow tick finds out.
    names: Option<Watch>,
    signals: Signals,
    socket: Socket,
    /// How long the end of the journal was that was torn, and set aside.
    torn: Option<usize>,
}

impl Running {
    /// Reads the journal, adopts or sees off, does again what is not done, writes the roster, and listens:
    /// in this order.
    fn begin(
        dir: Arc<TeamDir>,
        settings: Settings,
        (confinement, worker): (&Confinement, Program),
    ) -> Result<Self, CommandError> {
        let signals = Signals::catch()?;
        refuse_linked_copy(&dir)?;
        let loaded = Journal::open(&dir)?;
        if let Some(length) = loaded.torn {
            tracing::warn!(
                "the last line of the journal was torn: {length} bytes were set aside in journal.torn"
            );
        }
        let mut before = look_at_roster(&dir)?;
        if loaded.team.seq == 0 && before.as_ref().is_some_and(|before| !before.members.is_empty()) {
            let now = Now { wall: clock::wall(), monotonic: std::time::Duration::ZERO };
            let aside = set_aside(&dir, REPLACED, now)?;
            tracing::warn!(
                "there is no journal, and config.json has members: it was kept as {aside}, and the team begins anew"
            );
            before = None;
        }
        write_gitignore(&dir)?;
        let (inputs_sender, inputs) = mpsc::channel(ROOM);
        let (gone_sender, gone) = mpsc::unbounded_channel();
        let (ends, ends_queue) = mpsc::unbounded_channel();
        let cgroups = Cgroups::open(&dir, settings.cgroup);
        cgroups.tidy(&loaded.team);
        let supervisor = Supervisor::new(Arc::clone(&dir), worker, (confinement, cgroups), gone_sender)
            .map_err(|e| failed("cannot watch processes", &e))?;
        let lead = LeadInbox::open(Arc::clone(&dir), loaded.team.lead)?;
        let watch = watch_inboxes(&dir, settings.poll);
        let names = Watch::names(dir.root())
            .inspect_err(|error| tracing::info!("{error}: what is deleted there is found on the slow timer"))
            .ok();
        let Settings { grace, restart, watchdog, .. } = settings;
        let rules = Rules { grace, restart, watchdog };
        let mut dispatcher = Dispatcher {
            dir: Arc::clone(&dir),
            settings,
            journal: loaded.journal,
            batcher: Batcher::new(loaded.team, rules),
            roster: RosterFile::new(confinement),
            supervisor,
            lead,
            lead_has_more: false,
            connections: Connections::default(),
            inputs: inputs_sender.clone(),
            looking_up: HashMap::new(),
            ends,
            began: Instant::now(),
            progress: Progress::default(),
            syncing: Syncing::default(),
            departed: HashMap::new(),
            gone_at: HashMap::new(),
            hand_over: None,
            modes_told: None,
        };
        // All threads that last are there, and hear nothing. The workers that begin now shall.
        signals::hear();
        let found = take_over(&mut dispatcher, before.as_ref())?;
        let socket = Socket::listen(&dir, inputs_sender)?;
        tell(&dispatcher, found);
        let torn = loaded.torn;
        Ok(Self { dispatcher, inputs, gone, ends: ends_queue, watch, names, signals, socket, torn })
    }

    /// Waits for events and hands them to the dispatcher, until it says that it is over.
    async fn run(&mut self) {
        let mut tick = tokio::time::interval(SLOW_TICK);
        while self.dispatcher.batcher.end.is_none() {
            let wake_up = self.dispatcher.next_wake_up();
            let mut events = Vec::new();
            tokio::select! {
                Some(input) = self.inputs.recv() => events.extend(self.dispatcher.intake(input)),
                Some(life) = self.gone.recv() => self.dispatcher.process_gone(life),
                Some(event) = self.ends.recv() => events.extend(self.dispatcher.life_over(event)),
                () = changed(self.watch.as_ref()) => {}
                () = changed(self.names.as_ref()) => events.extend(self.look_after_files()),
                synced = self.dispatcher.syncing.done() => self.dispatcher.synced(synced),
                () = self.signals.came() => events.push(Event::Terminate),
                () = sleep_until(wake_up) => {}
                _ = tick.tick() => events.extend(self.tick()),
            }
            self.gather(&mut events);
            self.dispatcher.handle(events);
            self.follow_up().await;
            self.dispatcher.hand_over_if_ready();
        }
    }

    /// Does what takes its time, in the order in which somebody waits for it. In between, what was said goes out.
    async fn follow_up(&mut self) {
        if self.dispatcher.batcher.owes_answers() {
            tokio::task::yield_now().await;
            self.dispatcher.answer();
        }
        if self.dispatcher.batcher.is_unsettled() {
            tokio::task::yield_now().await;
            self.dispatcher.settle_in_time();
        }
        self.dispatcher.tell_some_news();
    }

    /// Takes everything else that is ready.
    fn gather(&mut self, events: &mut Vec<Event>) {
        for _ in 0..BATCH {
            let Ok(input) = self.inputs.try_recv() else { break };
            events.extend(self.dispatcher.intake(input));
        }
        while let Ok(life) = self.gone.try_recv() {
            self.dispatcher.process_gone(life);
        }
        while let Ok(event) = self.ends.try_recv() {
            events.extend(self.dispatcher.life_over(event));
        }
        if self.dispatcher.lead_has_more {
            events.push(self.dispatcher.read_lead());
        }
        if let Some(watch) = &self.watch {
            events.extend(self.dispatcher.inboxes_changed(&watch.take()));
        }
    }

    /// The slow tick: a lost event costs latency, never a message.
    fn tick(&mut self) -> Vec<Event> {
        let restored = self.look_after_files();
        if self.dispatcher.batcher.end.is_some() {
            return Vec::new();
        }
        self.dispatcher.see_off_departed();
        self.dispatcher.supervisor.reap_others();
        for watch in [&mut self.watch, &mut self.names].into_iter().flatten() {
            if let Err(error) = watch.rearm_if_needed() {
                tracing::warn!("cannot watch the files: {error}");
            }
        }
        let mut events = self.dispatcher.inboxes_changed(&teamd_shared::watch::Changes::Anything);
        events.extend(restored);
        events
    }

    /// What is this daemon's stands at its path with its mode, or is made so again: the journal, the roster, the socket.
    fn look_after_files(&mut self) -> Option<Event> {
        // Whatever it was, everything is looked at.
        drop(self.names.as_ref().map(Watch::take));
        let dir = Arc::clone(&self.dispatcher.dir);
        if is_deleted(&dir) {
            self.dispatcher.batcher.end = Some(End::Failed("the team directory was deleted".to_owned()));
            return None;
        }
        let restored = self.dispatcher.look_after_own_files();
        self.socket.look_after(&dir, &self.dispatcher.inputs);
        restored
    }

    /// Answers the last commands, stops listening, and takes the socket away while the lock is held. Returns which program
    /// is the daemon next, if one is.
    async fn end(self, dir: &TeamDir) -> Result<Option<HandOver>, CommandError> {
        let Self { dispatcher, signals, socket, .. } = self;
        let Dispatcher { batcher, mut connections, supervisor, hand_over, .. } = dispatcher;
        socket.close();
        if let Some(End::HandedOver) = batcher.end {
            signals::hold_back();
        } else {
            notify(&[sd_notify::NotifyState::Stopping]);
        }
        connections.drain().await;
        socket.remove(dir);
        match batcher.end {
            Some(End::Failed(why)) => {
                tracing::error!("the daemon ends: {why}; its workers go on");
                Err(CommandError::new(ExitCode::Failed, why)
                    .hint("`teamd start` takes the workers over again"))
            }
            Some(End::HandedOver) => {
                signals.pass_on().await;
                Ok(hand_over)
            }
            Some(End::Stopped) | None => {
                supervisor.cgroups().close();
                tracing::info!("the daemon ends: nobody is left");
                Ok(None)
            }
        }
    }
}

/// Adopts who is there, records the start, and does again what the last daemon left undone.
fn take_over(dispatcher: &mut Dispatcher, before: Option<&Roster>) -> Result<Found, CommandError> {
    let process = Identity::of_self().map_err(|e| failed("cannot read its own identity", &e))?;
    let workspace = dispatcher.dir.workspace();
    let team_name = workspace.file_name();
    let team_name =
        team_name.map_or_else(|| "default".to_owned(), |name| name.to_string_lossy().into_owned());
    let record = TeamRecord {
        event: TeamEvent::Started,
        team_name: if dispatcher.batcher.team.seq > 0 {
            dispatcher.batcher.team.team_name.clone()
        } else {
            team_name
        },
        daemon: Some(Daemon { process, started_at: clock::wall(), directory: dispatcher.dir.id().ok() }),
        rejected: Vec::new(),
        content: None,
        tell: Vec::new(),
    };
    let (events, found) = reconcile(dispatcher).map_err(|(name, error)| {
        CommandError::new(ExitCode::Failed, format!("cannot see whether {name} is alive: {error}"))
            .hint("its worker goes on; free what is short, and `teamd start` again")
    })?;
    for event in &events {
        if let Event::Found { life } = event
            && let Some((doing, usage)) = before.and_then(|before| RosterFile::last_said(before, life))
        {
            dispatcher.batcher.live.recall(life, doing, usage);
        }
    }
    dispatcher.begin(record);
    refuse_if_over(dispatcher)?;
    let mut events = events;
    events.push(dispatcher.read_lead());
    dispatcher.handle(events);
    dispatcher.settle();
    refuse_if_over(dispatcher)?;
    dispatcher.write_roster();
    Ok(found)
}

/// A daemon that has given up does not answer, and does not say that it does.
fn refuse_if_over(dispatcher: &Dispatcher) -> Result<(), CommandError> {
    let Some(End::Failed(why)) = &dispatcher.batcher.end else { return Ok(()) };
    Err(CommandError::new(ExitCode::Failed, why.clone())
        .hint("look at the permissions and the free space of the disk"))
}

fn tell(dispatcher: &Dispatcher, found: Found) {
    let pending = dispatcher.batcher.team.requests.values().filter(|request| request.is_pending()).count();
    tracing::info!(
        "teamd {} runs for {} (pid {}): {} workers adopted, {} had ended meanwhile, {pending} requests pending",
        env!("CARGO_PKG_VERSION"),
        dispatcher.dir.root().display(),
        std::process::id(),
        found.adopted,
        found.ended,
    );
}

fn look_at_roster(dir: &TeamDir) -> Result<Option<Roster>, CommandError> {
    let now = Now { wall: clock::wall(), monotonic: std::time::Duration::ZERO };
    match RosterFile::look(dir, now)? {
        Ok(Before::Usable(roster)) => Ok(roster),
        Ok(Before::KeptAside(name)) => {
            tracing::warn!("config.json could not be read: it was kept as {name} and is written anew");
            Ok(None)
        }
        Err(newer) => Err(CommandError::new(ExitCode::Failed, newer.to_string())
            .hint("nothing was changed; use the newer teamd that wrote it")),
    }
}

fn write_gitignore(dir: &TeamDir) -> Result<(), CommandError> {
    if dir.identity(&TeamPath::gitignore())?.is_none() {
        teamd_shared::fs::replace(dir, &TeamPath::gitignore(), b"*\n")?;
    }
    Ok(())
}

/// Without events (no inotify instance left), the slow tick still finds every message.
fn watch_inboxes(dir: &TeamDir, poll: bool) -> Option<Watch> {
    let folder = dir.root().join("inbox");
    match Watch::folder(&folder, poll).or_else(|_| Watch::folder(&folder, true)) {
        Ok(watch) => {
            if watch.polls() {
                tracing::warn!("no events are to be had for {}: it is polled", folder.display());
            }
            Some(watch)
        }
        Err(error) => {
            tracing::error!("cannot watch the inboxes: {error}");
            None
        }
    }
}

async fn changed(watch: Option<&Watch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// A thousand teammates need more descriptors than the 1,024 that a process begins with; the hard limit allows them.
fn raise_file_limit() {
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, hard)) if soft < hard => {
            if let Err(errno) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
                tracing::warn!("cannot raise the limit of open files: {errno}");
            }
        }
        Ok(_) => {}
        Err(errno) => tracing::warn!("cannot read the limit of open files: {errno}"),
    }
}

fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("cannot tell the service manager: {error}");
    }
}

/// Says what the daemon cannot do.
pub(super) fn failed(what: &str, error: &std::io::Error) -> CommandError {
    CommandError::new(ExitCode::Failed, format!("{what}: {error}"))
}

/// A directory without a name: nobody will ever connect there again, and the workers leave too.
fn is_deleted(dir: &TeamDir) -> bool {
    rustix::fs::fstat(dir).is_ok_and(|it| it.st_nlink == 0)
}

/// Opens the daemon's log.
pub(super) fn open_log(dir: &TeamDir) -> Result<std::fs::File, CommandError> {
    Ok(dir.open_file(&TeamPath::log("teamd"), OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)?)
}
