//! The daemon from its start to its end, readable from top to bottom.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use teamd_shared::amount::count;
use teamd_shared::bundle;

use jiff::tz::TimeZone;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use teamd_shared::clock;
use teamd_shared::config::Roster;
use teamd_shared::host::LinkState;
use teamd_shared::id::RequestId;
use teamd_shared::journal::{Daemon, SNAPSHOT_LINES, Team, TeamEvent, TeamRecord};
use teamd_shared::logging;
use teamd_shared::order::Order;
use teamd_shared::process::{Identity, adopt_orphans, deny_tracing};
use teamd_shared::settings::Settings;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::work::Work;
use tokio::sync::mpsc;

use super::confinement::TeamConfinement;
use super::core::dispatcher::{DaemonEnd, Dispatcher};
use super::core::event::Event;
use super::core::host_link::HostLink;
use super::core::incarnation::Incarnation;
use super::core::runtime::DecisionRules;
use super::event_loop::EventLoop;
use super::event_loop::sources::{Sources, watch_inboxes, watch_names};
use super::hand_over::{HandOver, become_successor};
use super::host::{self, run::HostServed};
use super::io::approve_codes::ApproveCodes;
use super::io::cgroup::Cgroups;
use super::io::checkouts::places;
use super::io::connections::Connections;
use super::io::effects::Effects;
use super::io::hooks::Hooks;
use super::io::input::ROOM;
use super::io::jobs::JobRunner;
use super::io::journal::{Journal, refuse_linked_copy};
use super::io::known_leads::KnownLeads;
use super::io::lead_inbox::LeadInbox;
use super::io::links::Links;
use super::io::lock::TeamLock;
use super::io::memory_file::MemoryFile;
use super::io::reaper::Reaper;
use super::io::resources::DaemonResources;
use super::io::roster_file::{OnDisk, REPLACED, RosterFile, UNREADABLE, set_aside};
use super::io::signals::{self, TerminationSignals};
use super::io::socket::Socket;
use super::io::task_files::TaskFiles;
use super::io::workers::Supervisor;
use super::options::{DaemonRole, SetAside};
use super::reconcile::reconcile;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::programs::Program;

/// What a daemon serves, and how.
pub(super) struct ServeOptions<'a> {
    pub(super) dir: &'a Path,
    pub(super) settings: Settings,
    pub(super) confinement: &'a TeamConfinement,
    pub(super) worker: Program,
    pub(super) role: DaemonRole,
}

/// Runs the daemon under a lock that is held already, until every worker is gone. `ready` is called
/// once it answers on its control socket, with what it has set aside.
pub(super) fn serve(
    options: ServeOptions<'_>,
    lock: TeamLock,
    ready: impl FnOnce(SetAside) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let ServeOptions {
        dir,
        settings,
        confinement,
        worker,
        role,
    } = options;
    deny_tracing();
    adopt_orphans();
    raise_file_limit();
    // Only this thread receives signals, from when it listens until it hands over.
    signals::hold_back();
    let dir = TeamDir::open(dir)?;
    dir.furnish()?;
    let dir = Arc::new(dir);
    logging::keep_bounded(&dir, TeamPath::log("teamd"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_start(signals::hold_back)
        .build();
    let runtime = runtime.map_err(|e| CommandError::refused("cannot start its runtime", &e))?;
    let ended = runtime.block_on(async {
        if let DaemonRole::Host(home) = role {
            let served = HostServed {
                dir: Arc::clone(&dir),
                home,
                settings,
                confinement,
                worker,
            };
            return host::run::serve(served, ready).await.map(|()| None);
        }
        let (mut daemon, mut sources, aside) =
            begin(Arc::clone(&dir), settings, confinement, (worker, role))?;
        ready(aside)?;
        notify(&[
            sd_notify::NotifyState::Ready,
            sd_notify::NotifyState::Status("supervising"),
        ]);
        daemon.run(&mut sources).await;
        end(daemon, sources, &dir).await
    });
    // The socket is gone before the lock is: the socket of the next daemon stays linked.
    drop(runtime);
    match ended? {
        Some(wanted) => Err(become_successor(&wanted, lock)),
        None => Ok(()),
    }
}

/// Reads the journal, adopts or reaps the workers, does again what is not done, writes the roster,
/// and listens: in this order. Returns with the daemon what it has set aside.
fn begin(
    dir: Arc<TeamDir>,
    settings: Settings,
    confinement: &TeamConfinement,
    (worker, role): (Program, DaemonRole),
) -> Result<(EventLoop, Sources, SetAside), CommandError> {
    let signals = TerminationSignals::catch()?;
    refuse_linked_copy(&dir)?;
    let (journal, team, torn) = Journal::open(&dir)?;
    if let Some(length) = torn {
        tracing::warn!(
            "the last line of the journal was torn: {length} bytes were set aside in journal.torn"
        );
    }
    let (before, roster) = earlier_roster(&dir, &team)?;
    write_gitignore(&dir)?;
    let (inputs_sender, inputs) = mpsc::channel(ROOM);
    let (exited_sender, exited) = mpsc::unbounded_channel();
    let (empty_sender, empty) = mpsc::unbounded_channel();
    let cgroups = Cgroups::open(&dir, settings.cgroup);
    let members = team.members.values().map(|state| &state.record);
    cgroups.tidy(members.filter(|member| !member.phase.is_ended()));
    let supervisor = Supervisor::new(
        Arc::clone(&dir),
        worker,
        (confinement, cgroups),
        exited_sender,
    )
    .map_err(|e| CommandError::refused("cannot watch processes", &e))?;
    let lead = LeadInbox::open(Arc::clone(&dir), team.lead)?;
    let inboxes = watch_inboxes(&dir, settings.poll);
    let names = watch_names(&dir);
    let grace = settings.grace;
    let watchdog = settings.watchdog;
    let rules = DecisionRules {
        grace,
        permission_timeout: settings.permission_timeout,
        restart: settings.restart(),
        watchdog,
        max_members: settings.team.max_members,
        snapshot_lines: SNAPSHOT_LINES,
    };
    let waiting = team.requests.values().filter(|it| it.is_pending());
    let codes = ApproveCodes::new(
        settings.team.approve_code,
        waiting.map(|request| request.request_id.clone()),
        Instant::now(),
    );
    let hooks = Hooks::new(Arc::clone(&supervisor.hooks));
    let resources = DaemonResources {
        dir: Arc::clone(&dir),
        journal,
        effects: Effects::new(Arc::clone(&dir), settings.durability),
        roster: RosterFile::new(confinement),
        roster_trouble: None,
        supervisor,
        connections: Connections::new(KnownLeads::open(Arc::clone(&dir))),
        links: Links::new(Arc::clone(&dir), inputs_sender.clone()),
        jobs: JobRunner::default(),
        task_files: TaskFiles::default(),
        memory_file: MemoryFile::default(),
        inputs: inputs_sender.clone(),
        began: Instant::now(),
        hooks,
        codes,
        news: Vec::new(),
    };
    let places = places(&dir, &settings, confinement.layers);
    if let Err(error) = bundle::tidy(places.git.as_ref()) {
        tracing::warn!("what an earlier job has left cannot be removed: {error}");
    }
    let mut daemon = EventLoop {
        dispatcher: Dispatcher::new(team, rules, places),
        resources,
        reaper: Reaper::new(Arc::clone(&dir), empty_sender),
        lead,
        hand_over: None,
        modes_reported: None,
    };
    // All lasting threads exist by now, and hold signals back. The workers that begin now must not
    // inherit that.
    signals::hear();
    let earlier = daemon.dispatcher.team.daemon.as_ref();
    let is_copy = earlier.is_some_and(|earlier| earlier.is_of_another(&dir));
    take_over(&mut daemon, before.as_ref(), settings.work, settings.orders)?;
    let socket = Socket::listen(&dir, inputs_sender)?;
    daemon.resources.links.replaces = role == DaemonRole::Home { handed_over: true };
    dial_hosts(&mut daemon, is_copy);
    daemon.resources.links.replaces = false;
    let version = env!("CARGO_PKG_VERSION");
    let path = dir.root().display();
    let pid = std::process::id();
    tracing::info!("teamd {version} runs for {path} (pid {pid})");
    let sources = Sources {
        inputs,
        exited,
        empty,
        inboxes,
        names,
        signals,
        socket,
    };
    Ok((daemon, sources, SetAside { torn, roster }))
}

/// Answers the last commands, stops listening, and takes the socket away while the lock is held.
/// Returns which program is the daemon next, if one is.
async fn end(
    daemon: EventLoop,
    sources: Sources,
    dir: &TeamDir,
) -> Result<Option<HandOver>, CommandError> {
    let Sources {
        signals, socket, ..
    } = sources;
    let EventLoop {
        dispatcher,
        resources,
        hand_over,
        ..
    } = daemon;
    let DaemonResources {
        mut connections,
        supervisor,
        hooks,
        mut task_files,
        ..
    } = resources;
    socket.close();
    task_files.finish(dir);
    if let Some(DaemonEnd::HandedOver) = dispatcher.end() {
        signals::hold_back();
    } else {
        notify(&[sd_notify::NotifyState::Stopping]);
    }
    connections.drain().await;
    hooks.end().await;
    socket.remove(dir);
    match dispatcher.end() {
        Some(DaemonEnd::Failed(why)) => {
            tracing::error!("the daemon ends: {why}");
            Err(CommandError::new(ExitCode::Failed, why.clone())
                .hint("`teamd start` takes over the workers that still run"))
        }
        Some(DaemonEnd::HandedOver) => {
            signals.pass_on().await;
            Ok(hand_over)
        }
        Some(DaemonEnd::Stopped) | None => {
            supervisor.end_jobs().await;
            supervisor.cgroups().close();
            tracing::info!("the daemon ends: no teammate is left");
            Ok(None)
        }
    }
}

/// Adopts the live workers, records the start, and does again what the last daemon left undone.
fn take_over(
    daemon: &mut EventLoop,
    before: Option<&Roster>,
    work: Work,
    orders: Vec<Order>,
) -> Result<(), CommandError> {
    let process = Identity::of_self()
        .map_err(|e| CommandError::refused("cannot read its own identity", &e))?;
    let workspace = daemon.resources.dir.workspace();
    let team_name = match (daemon.dispatcher.team.seq, workspace.file_name()) {
        (0, None) => "default".to_owned(),
        (0, Some(name)) => name.to_string_lossy().into_owned(),
        _ => daemon.dispatcher.team.team_name.clone(),
    };
    let this = Daemon {
        process,
        started_at: clock::wall(),
        directory: daemon.resources.dir.id().ok(),
    };
    let started = TeamRecord::of(TeamEvent::Started, team_name, Some(this));
    // What is as in the state before is not said again.
    let work = Some(work).filter(|work| *work != daemon.dispatcher.team.work);
    let before_orders = daemon.dispatcher.team.orders_in_force();
    let is_same = before_orders.into_iter().eq(in_order(&orders));
    let record = TeamRecord {
        work: work.map(Box::new),
        orders: (!is_same).then_some(orders),
        ..started
    };
    let mut events = reconcile(daemon).map_err(|(name, error)| {
        CommandError::new(
            ExitCode::Failed,
            format!("cannot see whether {name} is alive: {error}"),
        )
        .hint("its worker is still running: free what the error names (descriptors, memory), then run `teamd start`")
    })?;
    let adopted = events.len();
    // What is asked with the events below runs its hook by itself.
    let waiting: Vec<RequestId> = daemon
        .dispatcher
        .team
        .requests
        .values()
        .filter(|request| request.is_pending() && request.kind.is_judged())
        .map(|request| request.request_id.clone())
        .collect();
    for event in &events {
        if let Event::Found { incarnation } = event
            && let Some(said) = before.and_then(|before| RosterFile::last_said(before, incarnation))
        {
            daemon.dispatcher.runtime.recall(incarnation, said);
        }
    }
    recall_hosted(daemon, before);
    daemon
        .dispatcher
        .runtime
        .orders
        .use_zone(TimeZone::system());
    daemon.dispatcher.begin(record, &mut daemon.resources);
    daemon.resources.links.starts = daemon.dispatcher.team.seq;
    refuse_if_over(daemon)?;
    events.push(daemon.lead.read());
    daemon.handle(events);
    daemon.dispatcher.finish_effects(&mut daemon.resources);
    refuse_if_over(daemon)?;
    daemon.write_roster();
    show_again(daemon, &waiting);
    let pending = daemon
        .dispatcher
        .team
        .requests
        .values()
        .filter(|request| request.is_pending())
        .count();
    tracing::info!(
        "{} adopted, {} pending",
        count(adopted, "worker"),
        count(pending, "request")
    );
    Ok(())
}

/// Dials the hosts. In a copy of a team directory a person must say first that it is the one that
/// leads: its hosts would take it for the original.
fn dial_hosts(daemon: &mut EventLoop, is_copy: bool) {
    let Some(hosts) = daemon.dispatcher.team.hosts.clone() else {
        return;
    };
    let mut events = Vec::new();
    for host in &hosts.list {
        if !is_copy {
            daemon.resources.links.dial(hosts.home, host);
            continue;
        }
        let name = &host.name;
        let link = HostLink {
            state: LinkState::NeedsAttention {
                why: "this team directory is a copy, and the original may still lead".to_owned(),
                hint: format!(
                    "if the original is gone for good, `teamctl host take {name}` lets this one lead"
                ),
            },
            since: clock::wall(),
            version: None,
        };
        events.push(Event::Link {
            host: name.clone(),
            link,
        });
    }
    daemon.handle(events);
}

/// Takes over what the workers on hosts said last: they are reached later, or never.
fn recall_hosted(daemon: &mut EventLoop, before: Option<&Roster>) {
    let Some(before) = before else {
        return;
    };
    let members = daemon.dispatcher.team.members.values();
    let hosted =
        members.filter(|state| state.record.terms.host.is_some() && !state.record.phase.is_ended());
    let incarnations: Vec<Incarnation> =
        hosted.map(|state| Incarnation::of(&state.record)).collect();
    for incarnation in incarnations {
        if let Some(said) = RosterFile::last_said(before, &incarnation) {
            daemon.dispatcher.runtime.recall(&incarnation, said);
        }
    }
}

/// Returns orders by their names, as the state has them.
fn in_order(orders: &[Order]) -> Vec<&Order> {
    let mut sorted: Vec<&Order> = orders.iter().collect();
    sorted.sort_by_key(|order| &order.name);
    sorted
}

/// Runs the hook of what was asked under an earlier daemon and still waits for a person: what that
/// daemon has shown may have reached no person, and its codes hold no longer.
fn show_again(daemon: &mut EventLoop, waiting: &[RequestId]) {
    let team = &daemon.dispatcher.team;
    let requests = waiting.iter().filter_map(|id| team.requests.get(id));
    for request in requests.filter(|request| request.is_pending()) {
        daemon.resources.show_request(team, request);
    }
}

/// Refuses to continue if the daemon has failed already: it must not report that it answers.
fn refuse_if_over(daemon: &EventLoop) -> Result<(), CommandError> {
    let Some(DaemonEnd::Failed(why)) = daemon.dispatcher.end() else {
        return Ok(());
    };
    Err(CommandError::new(ExitCode::Failed, why.clone())
        .hint("look at the permissions and the free space of the disk"))
}

/// Returns the roster that an earlier daemon of this team wrote. What is none is moved aside: then
/// returns what to tell.
fn earlier_roster(
    dir: &TeamDir,
    team: &Team,
) -> Result<(Option<Roster>, Option<String>), CommandError> {
    let (why, what, next) = match RosterFile::find(dir)? {
        OnDisk::Nothing => return Ok((None, None)),
        OnDisk::Roster(roster) if team.seq > 0 || roster.members.is_empty() => {
            return Ok((Some(roster), None));
        }
        OnDisk::Roster(_) => (
            REPLACED,
            "there is no journal, and config.json has members",
            "the team begins again",
        ),
        OnDisk::Unreadable => (
            UNREADABLE,
            "config.json could not be read",
            "it is written again",
        ),
    };
    let aside = set_aside(dir, why, clock::wall())?;
    let message = format!("{what}: it is kept as {aside}, and {next}");
    tracing::warn!("{message}");
    Ok((None, Some(message)))
}

fn write_gitignore(dir: &TeamDir) -> Result<(), CommandError> {
    if dir.identity(&TeamPath::gitignore())?.is_none() {
        teamd_shared::fs::replace(dir, &TeamPath::gitignore(), b"*\n")?;
    }
    Ok(())
}

/// Raises the limit of open files to the hard limit: a thousand teammates need more than the 1,024
/// that a process begins with.
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
