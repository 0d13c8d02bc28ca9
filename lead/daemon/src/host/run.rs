//! The host daemon from its start to its end, readable from top to bottom.

use std::sync::Arc;
use std::time::{Duration, Instant};

use teamd_shared::link::TeamNow;
use teamd_shared::member::Member;
use teamd_shared::process::{Identity, is_gone};
use teamd_shared::settings::Settings;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::watch::{Changes, SLOW_TICK, Watch};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::copies::Copies;
use super::daemon::HostDaemon;
use super::jobs::HostJobs;
use super::links::HomeLinks;
use super::mail::Mail;
use super::outbound::FULL;
use super::record::HostLog;
use super::roster::HostRoster;
use super::state::Spawned;
use super::workers::{Live, Workers};
use crate::confinement::TeamConfinement;
use crate::core::incarnation::Incarnation;
use crate::event_loop::sources::{Sources, changed, sleep_until, watch_inboxes, watch_names};
use crate::event_loop::upkeep::is_deleted;
use crate::io::cgroup::Cgroups;
use crate::io::checkouts::places;
use crate::io::connections::Connections;
use crate::io::input::ROOM;
use crate::io::known_leads::KnownLeads;
use crate::io::lock::liveness_lock_is_held;
use crate::io::reaper::Reaper;
use crate::io::signals::{self, TerminationSignals};
use crate::io::socket::Socket;
use crate::io::workers::Supervisor;
use crate::options::SetAside;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::programs::Program;

/// How long it stays without a link and without a teammate.
const STAYS: Duration = Duration::from_secs(600);
/// How many inputs one turn takes at the most.
const BATCH: usize = 512;

/// What a host daemon serves, and how.
pub(crate) struct HostServed<'a> {
    pub(crate) dir: Arc<TeamDir>,
    pub(crate) home: Uuid,
    pub(crate) settings: Settings,
    pub(crate) confinement: &'a TeamConfinement,
    pub(crate) worker: Program,
}

/// Runs the host daemon under a lock that is held already. `ready` is called once it answers on its
/// control socket.
pub(crate) async fn serve(
    served: HostServed<'_>,
    ready: impl FnOnce(SetAside) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let dir = Arc::clone(&served.dir);
    let (mut daemon, mut sources) = begin(served)?;
    ready(SetAside::default())?;
    daemon.run(&mut sources).await;
    end(daemon, sources, &dir).await
}

/// Reads `host.jsonl`, adopts or reaps the workers, and listens: in this order.
fn begin(served: HostServed<'_>) -> Result<(HostDaemon, Sources), CommandError> {
    let HostServed {
        dir,
        home,
        settings,
        confinement,
        worker,
    } = served;
    let signals = TerminationSignals::catch()?;
    let log = HostLog::open(&dir)?;
    let (inputs_sender, inputs) = mpsc::channel(ROOM);
    let (exited_sender, exited) = mpsc::unbounded_channel();
    let (empty_sender, empty) = mpsc::unbounded_channel();
    let cgroups = Cgroups::open(&dir, settings.cgroup);
    cgroups.tidy(log.state.unended().map(|spawned| &spawned.member));
    let confined = (confinement, cgroups);
    let supervisor = Supervisor::new(Arc::clone(&dir), worker, confined, exited_sender)
        .map_err(|e| CommandError::refused("cannot watch processes", &e))?;
    let inboxes = watch_inboxes(&dir, settings.poll);
    let names = watch_names(&dir);
    let workers = Workers {
        supervisor,
        connections: Connections::new(KnownLeads::open(Arc::clone(&dir))),
        inputs: inputs_sender.clone(),
        reaper: Reaper::new(Arc::clone(&dir), empty_sender),
        live: Default::default(),
    };
    let places = places(&dir, &settings, confinement.layers);
    let jobs = HostJobs::new(places.git.into(), dir.workspace().join("checkouts"));
    let mut daemon = HostDaemon {
        dir: Arc::clone(&dir),
        home,
        weakness: confinement.weakness.clone(),
        grace: settings.grace,
        log,
        workers,
        mail: Mail::new(Arc::clone(&dir)),
        links: HomeLinks::new(),
        jobs,
        submitted_early: Vec::new(),
        team: nothing_said(),
        roster: HostRoster::default(),
        unsynced_inboxes: false,
        team_name: String::new(),
        over: None,
    };
    // The workers that begin now must not inherit that signals are held back.
    signals::hear();
    daemon.reconcile()?;
    let socket = Socket::listen(&dir, inputs_sender)?;
    let version = env!("CARGO_PKG_VERSION");
    let path = dir.root().display();
    let pid = std::process::id();
    tracing::info!("teamd host {version} runs for {path} (pid {pid})");
    let sources = Sources {
        inputs,
        exited,
        empty,
        inboxes,
        names,
        signals,
        socket,
    };
    Ok((daemon, sources))
}

fn nothing_said() -> TeamNow {
    TeamNow {
        hosted: Vec::new(),
        owners: Vec::new(),
        others: Vec::new(),
    }
}

/// Stops listening, and takes the socket away while the lock is held. Workers that still run wait
/// for the next host daemon.
async fn end(daemon: HostDaemon, sources: Sources, dir: &TeamDir) -> Result<(), CommandError> {
    let HostDaemon {
        mut workers, over, ..
    } = daemon;
    let socket = sources.socket;
    socket.close();
    workers.connections.drain().await;
    socket.remove(dir);
    if let Some(Err(why)) = over {
        return Err(CommandError::new(ExitCode::Failed, why)
            .hint("`teamd host` takes over the workers that still run"));
    }
    let left = workers.live.len();
    if left == 0 {
        workers.supervisor.cgroups().close();
    }
    tracing::info!("the host daemon ends; {left} teammates run on");
    Ok(())
}

impl HostDaemon {
    /// Looks at every incarnation that has not ended here: it adopts those that are alive, and
    /// waits until nothing of the others is left. One is alive if its lock is held and its process
    /// is the recorded one.
    fn reconcile(&mut self) -> Result<(), CommandError> {
        let unended: Vec<Spawned> = self.log.state.unended().cloned().collect();
        for spawned in unended {
            let member = &spawned.member;
            let incarnation = Incarnation::of(member);
            self.workers.supervisor.recall(&incarnation, member);
            self.workers.live.insert(incarnation, Live::default());
            if self.adopt(member)? {
                continue;
            }
            let name = &member.name;
            tracing::info!("{name} is not adopted: its end follows once nothing of it is left");
            let how = member.process.as_ref().map(Identity::reap);
            self.workers
                .wait_until_empty(&spawned, how.unwrap_or_default());
        }
        Ok(())
    }

    fn adopt(&mut self, member: &Member) -> Result<bool, CommandError> {
        let Some(process) = &member.process else {
            return Ok(false);
        };
        if !liveness_lock_is_held(&self.dir, &member.name) {
            return Ok(false);
        }
        let supervisor = &mut self.workers.supervisor;
        match supervisor.adopt(Incarnation::of(member), process.clone()) {
            Ok(()) => Ok(true),
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) => {
                let what = format!("cannot see whether {} is alive", member.name);
                Err(CommandError::refused(&what, &error))
            }
        }
    }

    /// Takes one turn after the other, until it is to end.
    async fn run(&mut self, sources: &mut Sources) {
        let mut tick = tokio::time::interval(SLOW_TICK);
        while self.over.is_none() {
            let wake_up = self.next_wake_up();
            tokio::select! {
                Some(input) = sources.inputs.recv() => self.intake(input),
                Some(number) = sources.exited.recv() => self.process_exited(number),
                Some(event) = sources.empty.recv() => self.incarnation_ended(event),
                () = changed(sources.inboxes.as_ref()) => {}
                () = changed(sources.names.as_ref()) => self.look_after_files(sources),
                () = sources.signals.received() => self.over = Some(Ok(())),
                () = sleep_until(wake_up) => {}
                _ = tick.tick() => self.tick(sources),
            }
            self.gather(sources);
            self.show_team();
            self.workers.kill_overdue();
            self.send_mail();
            self.send_copies();
        }
    }

    /// Takes everything else that is ready.
    fn gather(&mut self, sources: &mut Sources) {
        for _ in 0..BATCH {
            let Ok(input) = sources.inputs.try_recv() else {
                break;
            };
            self.intake(input);
        }
        while let Ok(number) = sources.exited.try_recv() {
            self.process_exited(number);
        }
        while let Ok(event) = sources.empty.try_recv() {
            self.incarnation_ended(event);
        }
        if let Some(watch) = &sources.inboxes {
            let changes = watch.take();
            self.inboxes_changed(&changes);
        }
    }

    /// Sends what is in the outboxes, as much as the link takes.
    fn send_mail(&mut self) {
        let Some(link) = &mut self.links.present else {
            return;
        };
        if let Some(outboxes) = &mut link.outboxes {
            if !link.ends.is_empty() {
                // The last lines of those that have ended may not have been noticed yet.
                outboxes.look();
            }
            outboxes.send(&link.outbound);
        }
        link.say_ends();
    }

    /// Sends what is new of the transcripts.
    fn send_copies(&mut self) {
        let Some(link) = &mut self.links.present else {
            return;
        };
        if let Some(copies) = &mut link.copies {
            copies.send(self.log.state.members.keys(), &link.outbound);
        }
    }

    /// Returns when something is due without any event.
    fn next_wake_up(&self) -> Option<Instant> {
        let link = self.links.present.as_ref();
        let outboxes = link.and_then(|link| link.outboxes.as_ref());
        let copies = link.and_then(|link| link.copies.as_ref());
        let copies = copies.and_then(Copies::due);
        let waits = outboxes.is_some_and(|outboxes| outboxes.has_more());
        let more = waits.then(|| Instant::now() + FULL);
        let kill = self.workers.next_kill();
        let roster = self.roster.due();
        let due = [more, copies, kill, roster];
        due.into_iter().flatten().min()
    }

    /// Does what is due on the slow tick, which makes up for lost events.
    fn tick(&mut self, sources: &mut Sources) {
        self.look_after_files(sources);
        self.workers.supervisor.reap_others();
        sources.rearm();
        self.inboxes_changed(&Changes::Anything);
        self.archive_unknown();
        let has_link = self.links.present.is_some() || self.links.newcomer.is_some();
        let is_alone = self.workers.live.is_empty() && !has_link;
        if is_alone && self.links.none_since.elapsed() >= STAYS {
            tracing::info!("no teammate runs here, and home does not connect");
            self.over.get_or_insert(Ok(()));
        }
    }

    fn look_after_files(&mut self, sources: &mut Sources) {
        drop(sources.names.as_ref().map(Watch::take));
        if is_deleted(&self.dir) {
            self.over = Some(Err("the team directory was deleted".to_owned()));
            return;
        }
        sources.socket.look_after(&self.dir, &self.workers.inputs);
    }
}
