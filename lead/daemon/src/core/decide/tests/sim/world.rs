//! The simulated team as a whole, and the steps that it takes.

use std::collections::BTreeMap;
use std::time::Duration;

use teamd_shared::id::RequestId;
use teamd_shared::member::RestartLimit;
use teamd_shared::message::{AnsweredBy, Body, Message};
use teamd_shared::name::Name;
use teamd_shared::request::Kind;

use super::super::mutants::Mutant;
use super::super::promises::Promises;
use super::Rng;
use super::daemon::Daemon;
use super::disk::Disk;
use super::hosts::Far;
use super::jobs::Checkouts;
use super::machine::{Clocks, Link, SimIds};
use super::worker::Worker;
use crate::core::event::Event;
use crate::core::runtime::DecisionRules;

/// The names that are spawned.
pub(super) const NAMES: [&str; 3] = ["alice", "bob", "carol"];
pub(in super::super) const RULES: DecisionRules = DecisionRules {
    grace: Duration::from_secs(10),
    permission_timeout: Duration::from_secs(30),
    restart: RestartLimit {
        max: 3,
        period: Duration::from_secs(60),
    },
    watchdog: Some(Duration::from_secs(20)),
    max_members: 2,
    snapshot_lines: 5,
};

/// What can happen next.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Move {
    Daemon,
    Worker,
    ReplyTo,
    Time,
    KillWorker,
    KillDaemon,
    BreakLink,
    Freeze,
    Hang,
    SignalWorker,
    SignalDaemon,
    Forge,
    Shims,
    Jump,
    While,
    Host,
}

/// How often each step happens. What happens rarely varies from schedule to schedule.
const WEIGHTS: [(Move, u32, bool); 16] = [
    (Move::Daemon, 70, false),
    (Move::Worker, 120, false),
    (Move::ReplyTo, 22, false),
    (Move::Time, 6, true),
    (Move::KillWorker, 3, true),
    (Move::KillDaemon, 1, true),
    (Move::BreakLink, 2, true),
    (Move::Freeze, 1, true),
    (Move::Hang, 1, true),
    (Move::SignalWorker, 1, true),
    (Move::SignalDaemon, 1, true),
    (Move::Forge, 2, true),
    (Move::Shims, 6, false),
    (Move::Jump, 1, true),
    (Move::While, 1, true),
    (Move::Host, 40, false),
];

/// Tells whether there is another machine in a schedule.
fn has_host(seed: u64, mutant: Option<Mutant>) -> bool {
    seed % 4 == 1 || mutant.is_some_and(Mutant::is_of_hosts)
}

pub(in super::super) struct World {
    pub(super) rng: Rng,
    pub(super) ids: SimIds,
    pub(in super::super) mutant: Option<Mutant>,
    pub(in super::super) disk: Disk,
    pub(in super::super) clocks: Clocks,
    pub(in super::super) processes: BTreeMap<u32, Worker>,
    /// Shims that are left of an incarnation, and for how many steps.
    pub(super) shims: BTreeMap<Name, u32>,
    pub(super) links: BTreeMap<u64, Link>,
    /// The other machine.
    pub(super) far: Far,
    pub(in super::super) daemon: Option<Daemon>,
    pub(in super::super) promises: Promises,
    /// Whether people mostly have work done: without that, few tasks get as far as a check.
    pub(super) works: bool,
    /// Whether nothing breaks any more.
    pub(super) calm: bool,
    /// The checkouts that are there.
    pub(super) checkouts: Checkouts,
    /// How many commits there are.
    pub(super) commits: u64,
    pub(super) next_pid: u32,
    pub(super) next_link: u64,
    pub(super) next_client: u64,
    /// What people have asked for: some of it is said again.
    pub(super) said: Vec<Event>,
    weights: Vec<(Move, u32)>,
    told: bool,
    pub(in super::super) story: Vec<String>,
    /// The first promise that was broken.
    pub(in super::super) broken: Option<String>,
}

impl World {
    pub(super) fn new(seed: u64, mutant: Option<Mutant>, told: bool) -> Self {
        let mut rng = Rng::new(seed);
        let ids = SimIds::new(Rng::new(seed ^ 0x5eed));
        let varied = |rng: &mut Rng, weight, varies: bool| {
            if varies {
                weight * rng.pick(&[0, 1, 1, 3]).unwrap_or(1)
            } else {
                weight
            }
        };
        let weights: Vec<_> = WEIGHTS
            .iter()
            .filter(|&&(step, ..)| step != Move::Host || has_host(seed, mutant))
            .map(|&(step, weight, varies)| (step, varied(&mut rng, weight, varies)))
            .collect();
        // Each line is also written and read in some schedules: that takes most of the time.
        let thorough = seed.is_multiple_of(16) || mutant == Some(Mutant::TornTailStays);
        let jumps = weights
            .iter()
            .any(|&(step, weight)| step == Move::Jump && weight > 0);
        Self {
            rng,
            ids,
            mutant,
            disk: Disk::new(thorough),
            clocks: Clocks {
                wall: 1_763_756_100.0,
                monotonic: Duration::from_secs(1000),
            },
            processes: BTreeMap::new(),
            shims: BTreeMap::new(),
            links: BTreeMap::new(),
            far: Far::new(has_host(seed, mutant)),
            daemon: None,
            promises: Promises::new(jumps, thorough),
            works: seed.is_multiple_of(3),
            calm: false,
            checkouts: Checkouts::new(),
            commits: 0,
            next_pid: 100,
            next_link: 0,
            // Connections of people and of workers are numbered together.
            next_client: 1_000_000,
            said: Vec::new(),
            weights,
            told,
            story: Vec::new(),
            broken: None,
        }
    }

    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.told {
            self.story.push(what());
        }
    }

    /// Keeps the first promise that was broken.
    pub(super) fn check(&mut self, checked: Result<(), String>) {
        if let Err(why) = checked {
            self.note(|| format!("  BROKEN: {why}"));
            self.broken.get_or_insert(why);
        }
    }

    pub(in super::super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Takes one step.
    pub(super) fn step(&mut self) {
        // What comes later is later by the clock.
        self.clocks.monotonic += Duration::from_micros(1);
        let sum = self.weights.iter().map(|(_, weight)| weight).sum();
        let mut at = self.rng.below(sum);
        let mut step = Move::Worker;
        for &(candidate, weight) in &self.weights {
            if at < weight {
                step = candidate;
                break;
            }
            at -= weight;
        }
        match step {
            Move::Daemon if self.daemon.is_some() => self.daemon_step(),
            Move::Daemon if self.rng.one_in(4) => self.start_daemon(),
            Move::Daemon => {}
            Move::Worker => self.each_worker(|world, pid| world.worker_step(pid)),
            Move::ReplyTo => self.client_step(),
            Move::Time => {
                let seconds = self
                    .rng
                    .pick(&[0.125, 1.0, 1.5, 5.0, 15.0, 600.0])
                    .unwrap_or(1.0);
                self.time_passes(seconds);
            }
            Move::KillWorker => self.each_worker(World::kill),
            Move::KillDaemon => {
                self.note(|| "the daemon is killed".to_owned());
                if let Some(mut daemon) = self.daemon.take() {
                    self.loses_jobs(&mut daemon);
                }
                self.daemon_is_gone();
            }
            Move::BreakLink => self.break_a_link(),
            Move::Freeze => self.change_a_worker(|worker| worker.frozen = !worker.frozen),
            Move::Hang => self.change_a_worker(|worker| worker.hung |= worker.begun),
            Move::SignalWorker => self.change_a_worker(|worker| worker.term = true),
            Move::SignalDaemon if self.rng.one_in(4) => self.signal_daemon(),
            Move::SignalDaemon => {}
            Move::Forge => self.forge(),
            Move::Shims => self.shims_work(),
            Move::Host => self.host_step(),
            Move::While => self.a_while_passes(),
            Move::Jump => {
                let seconds = self
                    .rng
                    .pick(&[-3600.0, -30.0, 30.0, 3600.0])
                    .unwrap_or(0.0);
                self.note(|| format!("the clock is set by {seconds} s"));
                self.clocks.wall += seconds;
            }
        }
    }

    /// Lets time pass, longer than the watchdog period, in which every process that can acts on
    /// everything.
    fn a_while_passes(&mut self) {
        for _ in 0..10 {
            self.time_passes(5.0);
            self.daemon_step();
            (0..3).for_each(|_| self.host_step());
            let pids: Vec<u32> = self.processes.keys().copied().collect();
            for pid in pids {
                (0..3).for_each(|_| self.worker_step(pid));
            }
        }
    }

    /// Does something to a worker that is drawn.
    fn each_worker(&mut self, act: impl FnOnce(&mut Self, u32)) {
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        if let Some(pid) = self.rng.pick(&pids) {
            act(self, pid);
        }
    }

    fn change_a_worker(&mut self, change: impl FnOnce(&mut Worker)) {
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        let Some(worker) = self
            .rng
            .pick(&pids)
            .and_then(|pid| self.processes.get_mut(&pid))
        else {
            return;
        };
        change(worker);
        let pid = worker.pid;
        let frozen = worker.frozen;
        let hung = worker.hung;
        let term = worker.term;
        self.note(|| format!("process {pid}: frozen {frozen}, hung {hung}, told to end {term}"));
    }

    /// Appends a line under another's name: it looks like the real thing, but no connection submits
    /// it.
    fn forge(&mut self) {
        let Some(name) = self.rng.pick(&NAMES).and_then(|name| Name::new(name).ok()) else {
            return;
        };
        let pending = |kind| {
            self.promises
                .fold
                .pending(&name, kind)
                .map(|request| request.request_id.clone())
        };
        let any = RequestId::from_bits(self.rng.below(256));
        let shutdown = pending(Kind::Shutdown).unwrap_or_else(|| any.clone());
        let plan = pending(Kind::PlanApproval).unwrap_or(any.clone());
        let id = teamd_shared::id::Ids::message(&mut self.ids);
        let (from, to, body) = match self.rng.below(3) {
            0 => {
                let reason = String::new();
                let answered_by = Some(AnsweredBy::Model);
                let body = Body::ShutdownResponse {
                    request_id: shutdown,
                    approve: true,
                    reason,
                    answered_by,
                };
                (name.as_str(), Name::lead(), body)
            }
            1 => {
                let body = Body::PlanApprovalRequest {
                    request_id: any,
                    plan: "forged".to_owned(),
                    incarnation: None,
                };
                (name.as_str(), Name::lead(), body)
            }
            _ => {
                let body = Body::PlanApprovalResponse {
                    request_id: plan,
                    approve: true,
                    feedback: String::new(),
                };
                ("lead", name.clone(), body)
            }
        };
        let message = Message::new(id, from, to.as_str(), self.clocks.wall, body);
        self.note(|| format!("forged for {to}: {:?}", message.body));
        self.echoes(&to, message);
    }
}
