//! The simulated world of one worker, and the steps that it takes.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use serde_json::json;
use teamd_shared::control::{FromWorker, WorkerState};
use teamd_shared::inbox::{self, Durability};
use teamd_shared::member::Gate;
use teamd_shared::name::Name;
use teamd_shared::settings::Settings;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::terms::ToolGroup;
use teamd_shared::testing::roster_member;
use teamd_shared::tool_set::ToolSet;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::daemon::SimulatedDaemon;
use super::disk::{self, Disk, Killed};
use super::machine::{Machine, SeededModel, Shared, SimIds, SimulatedToolbox};
use super::{Mutant, Rng, alice};
use crate::begin::SessionParts;
use crate::connection::{DaemonLink, WorkerIdentity, simulated};
use crate::session::Session;
use crate::transcript::{Transcript, TranscriptError};
use teamd_worker_model::Model;

/// How often a worker may go on without waiting.
const SPINS: u32 = 3000;

/// What was written to the worker.
#[derive(Debug, Clone)]
pub(super) struct SentMessage {
    #[expect(dead_code, reason = "it is shown")]
    pub(super) from: &'static str,
    pub(super) content: String,
    /// Whether it has to be consumed: it was acknowledged, and the inbox was not emptied since.
    pub(super) must: bool,
}

/// Where the files lie, and what runs the clock: made once for many schedules.
pub(super) struct Fixture {
    pub(super) dir: Arc<TeamDir>,
    runtime: Runtime,
    _scratch: tempfile::TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        // In memory, where there is a place for it: nothing here is to outlive the test.
        let memory = PathBuf::from("/dev/shm");
        let scratch = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        }
        .unwrap();
        let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
        let members =
            ["alice", "bob"].map(|name| roster_member(&json!({"name": name, "status": "idle"})));
        let roster = json!({"version": 1, "seq": 1, "team_name": "t", "members": members});
        let roster = roster.to_string();
        teamd_shared::fs::replace(&dir, &TeamPath::config(), roster.as_bytes()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        Self {
            dir,
            runtime,
            _scratch: scratch,
        }
    }

    pub(super) fn transcript(&self) -> PathBuf {
        self.dir.path(&TeamPath::transcript(&alice()))
    }

    pub(super) fn inbox(&self, owner: &str) -> PathBuf {
        self.dir
            .path(&TeamPath::inbox(&Name::of_inbox(owner).unwrap()))
    }

    fn clean(&self) {
        for owner in ["alice", "bob", "lead"] {
            let owner = Name::of_inbox(owner).unwrap();
            inbox::create(&self.dir, &owner).unwrap();
            std::fs::File::create(self.dir.path(&TeamPath::inbox(&owner))).unwrap();
            self.dir.remove(&TeamPath::rejected(&owner)).unwrap();
        }
        self.dir.remove(&TeamPath::transcript(&alice())).unwrap();
        self.dir
            .remove(&TeamPath::transcript_torn(&alice()))
            .unwrap();
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type Living = Pin<Box<dyn Future<Output = Result<(), TranscriptError>>>>;

/// A process.
pub(super) struct SimulatedWorker {
    living: Living,
    pub(super) link: simulated::SimulatedLink,
    pub(super) terminate: Arc<Notify>,
    woken: Arc<Flag>,
    /// The state that it reported last.
    pub(super) state: WorkerState,
}

/// Everything.
pub(super) struct World<'p> {
    pub(super) place: &'p Fixture,
    pub(super) rng: Rng,
    pub(super) mutant: Option<Mutant>,
    pub(super) machine: Shared,
    pub(super) daemon: SimulatedDaemon,
    pub(super) worker: Option<SimulatedWorker>,
    pub(super) incarnation: u32,
    /// The present incarnation was asked to end.
    pub(super) terminated: bool,
    pub(super) sent: Vec<SentMessage>,
    /// Nothing breaks any more.
    pub(super) calm: bool,
    /// Whether the mind is an agent.
    pub(super) is_of_agent: bool,
    /// What does not happen in this schedule.
    quiet: u32,
    narrates: bool,
    story: Vec<String>,
}

impl<'p> World<'p> {
    pub(super) fn new(
        place: &'p Fixture,
        seed: u64,
        mutant: Option<Mutant>,
        narrates: bool,
    ) -> Self {
        place.clean();
        let mut rng = Rng(seed);
        let quiet = u32::try_from(rng.next() & rng.next() & 0xff).unwrap();
        disk::put(Some(Disk::new(Rng(seed ^ 0xd15c), mutant)));
        Self {
            place,
            rng,
            mutant,
            machine: Rc::new(Machine::new(seed, mutant, place.transcript()).into()),
            daemon: SimulatedDaemon::new(),
            worker: None,
            incarnation: 0,
            terminated: false,
            sent: Vec::new(),
            calm: false,
            is_of_agent: seed & 4 == 0,
            quiet,
            narrates,
            story: Vec::new(),
        }
    }

    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.narrates {
            self.story.push(what());
        }
    }

    pub(super) fn promise(&mut self, kept: Result<(), String>) {
        if let Err(why) = kept {
            self.machine.borrow_mut().promise(false, || why);
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.machine.borrow().broken.is_some()
    }

    /// What was broken, and the story.
    pub(super) fn ends(mut self) -> Option<(String, Vec<String>)> {
        self.worker = None;
        disk::put(None);
        let broken = self.machine.borrow_mut().broken.take();
        broken.map(|broken| (broken, std::mem::take(&mut self.story)))
    }

    pub(super) fn ends_with_its_story(mut self) -> Vec<String> {
        let story = std::mem::take(&mut self.story);
        drop(self.ends());
        story
    }

    fn happens(&self, what: u32) -> bool {
        self.quiet & (1 << what) == 0
    }

    /// Takes one step.
    pub(super) fn step(&mut self) {
        if self.worker.is_none() && self.rng.one_in(3) {
            self.starts();
        }
        if self.rng.one_in(4) {
            self.reconnects();
        }
        match self.rng.below(100) {
            0..=27 => self.delivers(),
            28..=47 => self.daemon_receives(),
            48..=59 => {
                let seconds = self.rng.pick(&[0.05, 0.6, 3.0, 11.0, 40.0]);
                self.time_passes(seconds);
            }
            60..=75 => self.writes_message(),
            76..=79 => self.send_to_worker(teamd_shared::control::ToWorker::Wake),
            80..=88 => self.a_person_acts(),
            89..=93 if self.happens(0) => self.lights_the_fuse(),
            94 if self.happens(1) => self.connection_breaks(),
            95 if self.happens(2) => self.daemon_dies_or_comes_back(),
            96 if self.happens(3) => self.repeats_itself(),
            97 if self.happens(4) && self.rng.one_in(3) => self.receive_sigterm(),
            98 if self.happens(5) && self.rng.one_in(3) => self.truncates_or_replaces_the_inbox(),
            99 if self.happens(6) => self.time_passes(4000.0),
            _ => {}
        }
        self.run_worker();
        self.agent_acts();
        self.run_worker();
        self.looks_at_the_gate();
    }

    fn lights_the_fuse(&mut self) {
        let left = self.rng.below(10);
        if left == 0 && self.worker.is_some() {
            self.note(|| "the worker is killed where it waits".to_owned());
            return self.dies();
        }
        disk::with(|disk| disk.fuse = Some(left));
    }

    fn connection_breaks(&mut self) {
        self.note(|| "the connection breaks".to_owned());
        if let Some(worker) = &mut self.worker {
            worker.link.breaks();
        }
        let up = self.daemon.up.len();
        let down = self.daemon.down.len();
        self.daemon
            .up
            .truncate(self.rng.below(u32::try_from(up).unwrap() + 1) as usize);
        self.daemon
            .down
            .truncate(self.rng.below(u32::try_from(down).unwrap() + 1) as usize);
        // What was sent is read to its end; what is on its way to the worker is lost.
        self.daemon.down.clear();
    }

    fn daemon_dies_or_comes_back(&mut self) {
        self.daemon.alive = !self.daemon.alive;
        let alive = self.daemon.alive;
        self.note(|| format!("the daemon is there: {alive}"));
        if !alive {
            self.connection_breaks();
            self.daemon.up.clear();
        }
    }

    pub(super) fn reconnects(&mut self) {
        if !self.daemon.alive {
            return;
        }
        // What it sent on the connection before is read first.
        let Some(worker) = self
            .worker
            .as_mut()
            .filter(|worker| !worker.link.is_connected())
        else {
            return;
        };
        let state = worker.link.reconnects();
        worker.state = state.clone();
        while !self.daemon.up.is_empty() {
            self.daemon_receives();
        }
        self.is_greeted(&state);
    }

    /// The worker hears one thing.
    pub(super) fn delivers(&mut self) {
        let Some(worker) = &mut self.worker else {
            return;
        };
        if let Some(frame) = self.daemon.down.pop_front() {
            let story = format!("the worker receives {frame:?}");
            worker.link.deliver(frame);
            self.note(|| story);
        }
    }

    pub(super) fn time_passes(&mut self, seconds: f64) {
        self.note(|| format!("{seconds} s pass"));
        self.place
            .runtime
            .block_on(tokio::time::advance(Duration::from_secs_f64(seconds)));
    }

    fn receive_sigterm(&mut self) {
        let Some(worker) = &self.worker else { return };
        self.terminated = true;
        worker.terminate.notify_one();
        self.note(|| "SIGTERM".to_owned());
    }

    /// An incarnation begins: the first one, after a crash, or resumed.
    pub(super) fn starts(&mut self) {
        if self.worker.is_some() || !self.daemon.alive {
            return;
        }
        while !self.daemon.up.is_empty() {
            self.daemon_receives();
        }
        self.daemon.down = Default::default();
        self.daemon.last = None;
        self.daemon.doubts = 0;
        self.incarnation += 1;
        self.terminated = false;
        self.daemon.ended = false;
        let incarnation = self.incarnation;
        self.note(|| format!("incarnation {incarnation} begins"));
        let torn = self.torn_tail();
        let begun = catch_unwind(AssertUnwindSafe(|| self.begins(torn)));
        match begun {
            Ok(Ok(worker)) => self.worker = Some(worker),
            Ok(Err(error)) => {
                self.note(|| format!("  it cannot begin: {error}"));
                self.dies();
            }
            Err(killed) => self.is_killed(killed),
        }
        self.run_worker();
    }

    /// Of a mutant: the tail that should be cut off.
    fn torn_tail(&self) -> Vec<u8> {
        let bytes = std::fs::read(self.place.transcript()).unwrap_or_default();
        let whole = bytes
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        let keeps = self.mutant == Some(Mutant::TornTailStays);
        if keeps {
            bytes[whole..].to_vec()
        } else {
            Vec::new()
        }
    }

    fn begins(&self, torn: Vec<u8>) -> anyhow::Result<SimulatedWorker> {
        let _guard = self.place.runtime.enter();
        let identity = WorkerIdentity {
            name: alice(),
            incarnation: self.incarnation,
        };
        // A process that another test has just forked holds every lock for a moment, until it is
        // the program it shall be.
        let transcript = loop {
            match Transcript::lock(&self.place.dir, &alice()) {
                Err(TranscriptError::Locked(_)) => std::thread::yield_now(),
                locked => break locked?,
            }
        };
        disk::with(|disk| disk.held = torn);
        let terminate = Arc::new(Notify::new());
        let settings = Settings {
            durability: Durability::Process,
            ..Settings::default()
        };
        let (link, far_end) = DaemonLink::simulated();
        let ids = Box::new(SimIds(Rc::clone(&self.machine)));
        let model = if self.is_of_agent {
            super::agent::mind()
        } else {
            Model::Simulated(Box::new(SeededModel::new(&self.machine)))
        };
        let parts = SessionParts {
            dir: Arc::clone(&self.place.dir),
            identity,
            transcript,
            terminate: Arc::clone(&terminate),
            toolbox: SimulatedToolbox {
                machine: Rc::clone(&self.machine),
                gate: None,
            },
            tools: ToolSet {
                groups: vec![ToolGroup::Delegate],
                skills: Vec::new(),
            },
            model,
            link,
            ids,
            environment: Arc::default(),
        };
        let session = Session::begin(parts, &settings, self.welcome())?;
        let woken = Arc::new(Flag(AtomicBool::new(true)));
        let state = WorkerState::default();
        Ok(SimulatedWorker {
            living: Box::pin(session.run()),
            link: far_end,
            terminate,
            woken,
            state,
        })
    }

    /// The worker goes on until it waits.
    pub(super) fn run_worker(&mut self) {
        for spins in 0.. {
            let Some(worker) = &mut self.worker else {
                return;
            };
            if !worker.woken.0.swap(false, Ordering::Relaxed) {
                return;
            }
            self.promise(if spins < SPINS {
                Ok(())
            } else {
                Err("the worker never waits".to_owned())
            });
            if spins == SPINS {
                return;
            }
            let polled = self.polls();
            self.send_frames();
            self.agent_reads();
            match polled {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(Ok(()))) => self.leaves(),
                Ok(Poll::Ready(Err(error))) => {
                    self.note(|| format!("the worker ends: {error}"));
                    self.dies();
                }
                Err(killed) => self.is_killed(killed),
            }
        }
    }

    fn polls(&mut self) -> Result<Poll<Result<(), TranscriptError>>, Box<dyn Any + Send>> {
        let _guard = self.place.runtime.enter();
        let Some(worker) = &mut self.worker else {
            return Ok(Poll::Pending);
        };
        let waker = Waker::from(Arc::clone(&worker.woken));
        catch_unwind(AssertUnwindSafe(|| {
            worker
                .living
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
        }))
    }

    fn send_frames(&mut self) {
        let Some(worker) = &mut self.worker else {
            return;
        };
        for frame in worker.link.outgoing_frames() {
            if let FromWorker::State(state) = &frame {
                worker.state = state.clone();
            }
            self.daemon.up.push_back(frame);
        }
    }

    /// Once a worker has reported that it applied the directive that closes the gate, nothing is
    /// changed until it opens.
    pub(super) fn looks_at_the_gate(&mut self) {
        let applied_seq = self
            .worker
            .as_ref()
            .map_or(0, |worker| worker.state.applied_seq);
        let closed =
            self.daemon.gate == Gate::Closed && applied_seq >= self.daemon.closed_at.max(1);
        let mut machine = self.machine.borrow_mut();
        machine.closed = closed.then_some("it has said that its gate is closed");
        machine.looks_at_the_gate();
        let again = disk::with(|disk| std::mem::take(&mut disk.again)).unwrap_or_default();
        for id in again
            .iter()
            .filter(|id| machine.runs.contains_key(*id))
            .cloned()
            .collect::<Vec<_>>()
            .iter()
        {
            machine.begins(id, false);
        }
    }

    fn leaves(&mut self) {
        let incarnation = self.incarnation;
        self.note(|| format!("incarnation {incarnation} leaves"));
        let may = self.terminated || self.daemon.may_leave(self.incarnation);
        self.promise(if may {
            Ok(())
        } else {
            Err("it leaves, and no approval is recorded".to_owned())
        });
        let runs = !self.machine.borrow().background.is_empty();
        self.promise(if runs {
            Err("it leaves, and something runs".to_owned())
        } else {
            Ok(())
        });
        self.terminated = true;
        self.worker = None;
        self.dies();
    }

    fn is_killed(&mut self, killed: Box<dyn Any + Send>) {
        if !killed.is::<Killed>() {
            std::panic::resume_unwind(killed);
        }
        let incarnation = self.incarnation;
        self.note(|| format!("incarnation {incarnation} is killed"));
        self.dies();
    }

    /// The process is gone, and all that it had started.
    fn dies(&mut self) {
        self.worker = None;
        disk::with(|disk| {
            disk.fuse = None;
            disk.held.clear();
        });
        let mut machine = self.machine.borrow_mut();
        machine.ends();
        machine.closed = None;
        drop(machine);
        let over = self.terminated
            || self.daemon.may_leave(self.incarnation)
            || self
                .daemon
                .pending_shutdown()
                .is_some_and(|shutdown| shutdown.incarnation == self.incarnation);
        if over {
            while self.daemon.alive && !self.daemon.up.is_empty() {
                self.daemon_receives();
            }
            self.daemon.ended = true;
            self.daemon.expires_all();
        }
    }
}
