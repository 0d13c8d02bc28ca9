//! The machine of the simulated team: processes, liveness locks, connections, clocks. They outlive
//! the daemon.

use std::collections::VecDeque;
use std::time::Duration;

use teamd_shared::control::{FromWorker, ToWorker, WorkerState};
use teamd_shared::environment::Environment;
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::name::Name;
use teamd_shared::process::Identity;
use uuid::Uuid;

use super::hosts::is_hosted;
use super::world::World;
use super::{Rng, worker::Worker};
use crate::core::incarnation::Incarnation;

/// How many request ids there are: so few that the same one is drawn twice.
const REQUEST_IDS: u32 = 256;

#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Clocks {
    pub(in super::super) wall: f64,
    pub(in super::super) monotonic: Duration,
}

pub(super) struct Link {
    pub(super) pid: u32,
    pub(super) incarnation: Incarnation,
    pub(super) up: VecDeque<Up>,
    pub(super) down: VecDeque<ToWorker>,
    pub(super) worker_open: bool,
    pub(super) daemon_open: bool,
    /// The link with home that it is a part of, if its worker lives on a host.
    pub(super) far: Option<u64>,
}

impl Link {
    /// Tells whether the daemon has not read the greeting yet.
    pub(super) fn greets(&self) -> bool {
        matches!(self.up.front(), Some(Up::StartedWorker | Up::Back(..)))
    }
}

/// What a worker sends.
#[derive(Debug, Clone)]
pub(in super::super) enum Up {
    /// It greets on the connection that it inherited.
    StartedWorker,
    /// It greets on another one.
    Back(Environment, WorkerState),
    Says(FromWorker),
}

/// Ids that follow from the seed, and collide.
#[derive(Debug)]
pub(super) struct SimIds {
    messages: u128,
    requests: Rng,
}

impl SimIds {
    pub(super) fn new(rng: Rng) -> Self {
        Self {
            messages: 0,
            requests: rng,
        }
    }
}

impl Ids for SimIds {
    fn message(&mut self) -> Uuid {
        self.messages += 1;
        Uuid::from_u128(self.messages)
    }

    fn request(&mut self) -> RequestId {
        RequestId::from_bits(self.requests.below(REQUEST_IDS))
    }
}

/// Returns the next ids of a plan whose id was taken. They walk through all ids.
pub(super) fn renamed(request_id: &RequestId, message_id: Uuid) -> (RequestId, Uuid) {
    let before = u32::from_str_radix(request_id.as_str(), 16).unwrap();
    let low = message_id.as_u128() & u128::from(u64::MAX);
    let high = message_id.as_u128() >> 64;
    let step = u32::try_from(low % 64).unwrap() * 2 + 1;
    (
        RequestId::from_bits((before + step) % REQUEST_IDS),
        Uuid::from_u128(((high + 1) << 64) | low),
    )
}

pub(super) fn identity(pid: u32) -> Identity {
    Identity {
        pid,
        start_ticks: u64::from(pid) * 10,
        boot_id: "boot".to_owned(),
    }
}

/// Returns an environment that tells which command it came from.
pub(super) fn environment(number: u32) -> Environment {
    let text = number.to_string().into_bytes();
    Environment {
        variables: vec![(b"N".to_vec(), text)],
        ..Environment::default()
    }
}

impl World {
    /// Tells whether anything holds the liveness lock: a worker, or a shim that still ends a call.
    pub(in super::super) fn lock_is_held(&self, name: &Name) -> bool {
        self.shims.contains_key(name)
            || self
                .processes
                .values()
                .any(|worker| worker.locked && worker.incarnation.name == *name)
    }

    pub(super) fn fork(
        &mut self,
        incarnation: &Incarnation,
        environment: Environment,
    ) -> (u32, u64) {
        self.next_pid += 1;
        let pid = self.next_pid;
        let link = self.connect(pid, incarnation);
        self.processes.insert(
            pid,
            Worker::new(pid, incarnation.clone(), environment, link),
        );
        (pid, link)
    }

    pub(super) fn connect(&mut self, pid: u32, incarnation: &Incarnation) -> u64 {
        self.next_link += 1;
        let link = Link {
            pid,
            incarnation: incarnation.clone(),
            up: VecDeque::new(),
            down: VecDeque::new(),
            worker_open: true,
            daemon_open: true,
            far: self.link_of(&incarnation.name),
        };
        self.links.insert(self.next_link, link);
        self.next_link
    }

    /// Ends a process at once, as SIGKILL does.
    pub(super) fn kill(&mut self, pid: u32) {
        if let Some(worker) = self.processes.remove(&pid) {
            self.process_ended(&worker);
        }
    }

    /// Takes in that a process has ended. What it had started may run a little longer.
    pub(super) fn process_ended(&mut self, worker: &Worker) {
        self.note(|| {
            format!(
                "  process {} of {} is gone",
                worker.pid, worker.incarnation.name
            )
        });
        for link in self
            .links
            .values_mut()
            .filter(|link| link.pid == worker.pid)
        {
            link.worker_open = false;
        }
        if worker.begun {
            self.tears_a_line();
        }
        if worker.begun && self.rng.one_in(3) {
            let steps = 1 + self.rng.below(8);
            self.shims.insert(worker.incarnation.name.clone(), steps);
        }
    }

    /// Closes the daemon's end of all connections; some of what it had said last was not sent.
    pub(super) fn daemon_is_gone(&mut self) {
        self.promises.people.clear();
        self.promises.called_off.clear();
        self.disk.woken = false;
        self.tears_a_line();
        self.far_loses_home();
        self.close_the_daemons_ends();
    }

    /// A connection with a host daemon does not end with home.
    pub(super) fn close_the_daemons_ends(&mut self) {
        let far = self.far.is_there;
        let links = self.links.values_mut();
        for link in links.filter(|link| !far || !is_hosted(&link.incarnation.name)) {
            link.daemon_open = false;
            link.up.clear();
            let rest = self.rng.below(u32::try_from(link.down.len()).unwrap() + 1);
            link.down.truncate(rest as usize);
        }
    }

    /// Breaks a connection; what was on its way is lost in part.
    pub(super) fn break_a_link(&mut self) {
        let open: Vec<u64> = self
            .links
            .iter()
            .filter(|(_, link)| link.worker_open && link.daemon_open)
            .map(|(n, _)| *n)
            .collect();
        let Some(number) = self.rng.pick(&open) else {
            return;
        };
        self.note(|| format!("connection {number} breaks"));
        let Some(link) = self.links.get_mut(&number) else {
            return;
        };
        link.worker_open = false;
        link.daemon_open = false;
        link.up
            .truncate(self.rng.below(u32::try_from(link.up.len()).unwrap() + 1) as usize);
        link.down
            .truncate(self.rng.below(u32::try_from(link.down.len()).unwrap() + 1) as usize);
    }

    /// Lets the shims that are left work, and end.
    pub(super) fn shims_work(&mut self) {
        self.shims.retain(|_, steps| {
            *steps -= 1;
            *steps > 0
        });
    }

    pub(super) fn time_passes(&mut self, seconds: f64) {
        if !self.calm {
            self.note(|| format!("{seconds} s pass"));
        }
        self.clocks.wall += seconds;
        self.clocks.monotonic += Duration::from_secs_f64(seconds);
    }
}
