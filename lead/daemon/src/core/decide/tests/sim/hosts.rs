//! The other machine of the simulated team: a host daemon, the workers that it has started, and the
//! link to home, which breaks at any moment. It plays `host/` and `event_loop/links.rs`.
//!
//! What a worker there says goes over its own connection, which is a part of the link: it is read
//! only while that link is the present one, behind all that the host daemon has said.

use std::collections::{BTreeMap, VecDeque};

use teamd_shared::environment::Environment;
use teamd_shared::host::{Host, HostTerms, HostWay, Hosts, LinkState};
use teamd_shared::member::{Emptied, Phase};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use uuid::Uuid;

use super::super::mutants::Mutant;
use super::super::promises::HostFacts;
use super::daemon::Daemon;
use super::machine::{Up, identity};
use super::world::World;
use crate::core::event::{Ended, Event};
use crate::core::host_link::HostLink;
use crate::core::incarnation::Incarnation;
use crate::core::runtime::members_of;

/// Whose members live there.
pub(super) const HOSTED: &str = "carol";

/// The other machine.
#[derive(Default)]
pub(super) struct Far {
    /// Whether there is one in this schedule.
    pub(super) is_there: bool,
    /// The present connection with home; none while there is no link.
    connection: Option<u64>,
    /// How many there were.
    connections: u64,
    /// The one on which home has heard what the host has, until it knows that it is down.
    said_on: Option<u64>,
    /// What the host daemon has recorded: the last incarnation of each member.
    lives: BTreeMap<Name, Life>,
    /// What is on its way, in order.
    to_home: VecDeque<FromFar>,
    to_host: VecDeque<ToFar>,
    /// Whether home knows that there is no link: now, and when it began its present turn.
    is_known_down: bool,
    was_known_down: bool,
}

/// An incarnation there.
struct Life {
    incarnation: Incarnation,
    pid: u32,
    /// How it ended, and whether SIGTERM did that.
    end: Option<(Ended, bool)>,
}

/// What the host daemon says, or what becomes of the link.
enum FromFar {
    Present {
        on: u64,
        running: Vec<(Incarnation, u32)>,
        ended: Vec<Incarnation>,
    },
    Started(Incarnation, Result<u32, String>),
    Ended(Incarnation, Ended, bool),
    Down,
}

/// What home says.
enum ToFar {
    Start(Incarnation, Environment),
    Terminate(Incarnation),
    Kill(Incarnation),
}

/// Tells whether a name is that of a member that lives there, where there is such a machine.
pub(super) fn is_hosted(name: &Name) -> bool {
    name.as_str() == HOSTED
}

impl Far {
    pub(super) fn new(is_there: bool) -> Self {
        Self {
            is_there,
            ..Self::default()
        }
    }
}

fn host_name() -> Name {
    Name::new("box").unwrap()
}

/// The hosts of a team with that machine.
pub(super) fn hosts() -> Hosts {
    let host = Host {
        name: host_name(),
        way: HostWay::Ssh("u@box".to_owned()),
        allow_weak_sandbox: false,
        terms: HostTerms::default(),
    };
    Hosts {
        home: Uuid::from_u128(1),
        list: vec![host],
    }
}

impl World {
    /// Returns the host on which a member lives; none: home.
    pub(super) fn host_of(&self, name: &Name) -> Option<Name> {
        (self.far.is_there && is_hosted(name)).then(host_name)
    }

    /// Returns the link that a connection of a worker is a part of.
    pub(super) fn link_of(&self, name: &Name) -> Option<u64> {
        self.host_of(name)?;
        self.far.connection
    }

    /// Tells whether what a worker says on a connection can be read now.
    pub(super) fn is_carried(&self, daemon: &Daemon, name: &Name, far: Option<u64>) -> bool {
        if self.host_of(name).is_none() {
            return true;
        }
        let is_behind = self.far.to_home.is_empty() && daemon.from_far.is_empty();
        far.is_some() && far == self.far.connection && is_behind
    }

    /// Tells whether a worker can connect with its daemon.
    pub(super) fn can_connect(&self, name: &Name) -> bool {
        let needs_link = self.host_of(name).is_some();
        self.daemon.is_some() && (!needs_link || self.far.connection.is_some())
    }

    /// Tells whether the host knows a process as the present one of an incarnation.
    pub(super) fn is_known_there(&self, incarnation: &Incarnation, pid: u32) -> bool {
        let life = self.far.lives.get(&incarnation.name);
        life.is_some_and(|life| {
            life.incarnation == *incarnation && life.pid == pid && life.end.is_none()
        })
    }

    /// Home begins a turn: what it hears in it, it handles in any order with the rest.
    pub(super) fn begins_a_turn(&mut self) {
        self.far.was_known_down = self.far.is_known_down;
    }

    /// Returns what is known of a member of the host.
    pub(super) fn facts_of_host(&self, name: &Name, number: u32) -> HostFacts {
        if self.host_of(name).is_none() {
            return HostFacts::default();
        }
        let Far {
            is_known_down: now,
            was_known_down: before,
            ..
        } = self.far;
        let life = self.far.lives.get(name);
        let life = life.filter(|life| life.incarnation.number == number);
        HostFacts {
            is_unreachable: now && before,
            can_be_reached: !now && !before,
            runs_there: life.is_some_and(|life| life.end.is_none()),
        }
    }

    /// Says a signal to the host.
    pub(super) fn signals_there(&mut self, incarnation: &Incarnation, kill: bool) {
        if self.home_is_heard() {
            let of = incarnation.clone();
            let frame = if kill {
                ToFar::Kill(of)
            } else {
                ToFar::Terminate(of)
            };
            self.far.to_host.push_back(frame);
        }
    }

    /// Tells whether what home says now gets to the host: not over a link that has broken
    /// meanwhile.
    fn home_is_heard(&self) -> bool {
        self.far.said_on.is_some() && self.far.said_on == self.far.connection
    }

    /// Tells whether what home says to a worker gets to it.
    pub(super) fn is_heard(&self, name: &Name) -> bool {
        self.host_of(name).is_none() || self.home_is_heard()
    }

    /// Has an incarnation started there. Returns what follows at once.
    pub(super) fn starts_there(
        &mut self,
        daemon: &Daemon,
        incarnation: Incarnation,
        environment: Environment,
    ) -> Vec<Event> {
        let member = daemon.dispatcher.team.members.get(&incarnation.name);
        let waits = member.is_some_and(|state| state.record.restarted > 0);
        let is_too_early = self.is(Mutant::StartsBeforeAHostHasSaid);
        if self.far.said_on.is_some() || is_too_early {
            if self.home_is_heard() || is_too_early && self.far.connection.is_some() {
                let start = ToFar::Start(incarnation, environment);
                self.far.to_host.push_back(start);
            }
            Vec::new()
        } else if waits {
            Vec::new()
        } else {
            vec![Event::not_started(incarnation, "box cannot be reached")]
        }
    }

    /// The host daemon takes a step, or the link does.
    pub(super) fn host_step(&mut self) {
        if !self.far.is_there {
            return;
        }
        if self.daemon.is_none() {
            self.far_link_breaks();
            return;
        }
        if self.far.connection.is_none() {
            if self.calm || self.rng.one_in(4) {
                self.far_link_is_made();
            }
            return;
        }
        self.ends_unhosted();
        match self.rng.below(24) {
            0 if !self.calm => self.far_link_breaks(),
            1 if !self.calm && self.rng.one_in(2) => self.host_restarts(),
            2..=8 => self.sees_ends(),
            _ => self.host_hears(),
        }
    }

    /// Breaks the link. What home has received by then it still handles.
    pub(super) fn far_link_breaks(&mut self) {
        if self.far.connection.take().is_none() {
            return;
        }
        self.note(|| "the link to box breaks".to_owned());
        let most = u32::try_from(self.far.to_home.len()).unwrap() + 1;
        let received = self.rng.below(most) as usize;
        self.far.to_home.truncate(received);
        self.far.to_home.push_back(FromFar::Down);
        self.far.to_host.clear();
        let stays = self.is(Mutant::StateIsNotSaidAnew);
        let begun: Vec<u64> = self
            .processes
            .values()
            .filter(|worker| worker.begun && self.host_of(&worker.incarnation.name).is_some())
            .filter_map(|worker| worker.link)
            .collect();
        for (number, link) in &mut self.links {
            if is_hosted(&link.incarnation.name) {
                link.up.clear();
                link.down.clear();
                if begun.contains(number) && !stays {
                    link.worker_open = false;
                    link.daemon_open = false;
                }
            }
        }
        // Those that have begun connect again; home sees no end of them.
        self.links.retain(|_, link| {
            !is_hosted(&link.incarnation.name) || link.worker_open && link.daemon_open
        });
    }

    /// Home is gone: nothing that was said to it counts.
    pub(super) fn far_loses_home(&mut self) {
        if self.far.is_there {
            self.far_link_breaks();
            self.far.to_home.clear();
            self.far.is_known_down = true;
            self.far.said_on = None;
        }
    }

    /// A link is made: both sides say anew what holds.
    fn far_link_is_made(&mut self) {
        self.far.connections += 1;
        let number = self.far.connections;
        self.note(|| format!("link {number} to box is made"));
        self.far.connection = Some(number);
        self.ends_unhosted();
        let lives = self.far.lives.values();
        let running = lives.clone().filter(|life| life.end.is_none());
        let running = running.map(|life| (life.incarnation.clone(), life.pid));
        let ended = lives.filter_map(|life| {
            let (ended, by_signal) = life.end.as_ref()?;
            Some((life.incarnation.clone(), ended.clone(), *by_signal))
        });
        let running = running.collect();
        let ended: Vec<_> = ended.collect();
        let present = FromFar::Present {
            on: number,
            running,
            ended: ended.iter().map(|(of, ..)| of.clone()).collect(),
        };
        self.far.to_home.push_back(present);
        for (of, end, by_signal) in ended {
            let frame = FromFar::Ended(of, end, by_signal);
            self.far.to_home.push_back(frame);
        }
        // One that waits for its welcome has kept its connection with the host daemon.
        for (kept, link) in &mut self.links {
            if is_hosted(&link.incarnation.name) {
                link.far = Some(number);
                let worker = self.processes.get(&link.pid);
                if worker.is_some_and(|it| it.locked && !it.begun && it.link == Some(*kept)) {
                    link.up.push_back(Up::StartedWorker);
                }
            }
        }
    }

    /// The host daemon is killed: the next one adopts those that have begun.
    fn host_restarts(&mut self) {
        self.note(|| "the host daemon is killed".to_owned());
        self.far_link_breaks();
        self.links
            .retain(|_, link| !is_hosted(&link.incarnation.name));
    }

    /// Ends what home does not have any more.
    fn ends_unhosted(&mut self) {
        let Some(daemon) = &self.daemon else {
            return;
        };
        if self.is(Mutant::LostWorkersLiveOn) {
            return;
        }
        let host = host_name();
        let hosted: Vec<Incarnation> = members_of(&daemon.dispatcher.team, &host)
            .map(Incarnation::of)
            .collect();
        let lives = self.far.lives.values();
        let unhosted = lives.filter(|it| it.end.is_none() && !hosted.contains(&it.incarnation));
        let pids: Vec<u32> = unhosted.map(|life| life.pid).collect();
        for pid in pids {
            if let Some(worker) = self.processes.get_mut(&pid) {
                let was_told = std::mem::replace(&mut worker.term, true);
                if was_told && self.rng.one_in(4) {
                    self.kill(pid);
                }
            }
        }
    }

    /// The host daemon handles something that home has said.
    fn host_hears(&mut self) {
        match self.far.to_host.pop_front() {
            Some(ToFar::Start(incarnation, environment)) => {
                self.forks_there(&incarnation, environment);
            }
            Some(ToFar::Terminate(of)) => {
                let pid = self.present_there(&of);
                if let Some(worker) = pid.and_then(|pid| self.processes.get_mut(&pid)) {
                    worker.term = true;
                    worker.frozen = false;
                }
            }
            Some(ToFar::Kill(of)) => {
                if let Some(pid) = self.present_there(&of) {
                    self.kill(pid);
                }
            }
            None => {}
        }
    }

    /// Returns the process of an incarnation that has not ended by the record of the host.
    pub(super) fn present_there(&self, of: &Incarnation) -> Option<u32> {
        let life = self.far.lives.get(&of.name)?;
        (life.incarnation == *of && life.end.is_none()).then_some(life.pid)
    }

    fn forks_there(&mut self, incarnation: &Incarnation, environment: Environment) {
        let known = self.far.lives.get(&incarnation.name);
        let answer = match known {
            Some(life) if life.incarnation == *incarnation => match &life.end {
                Some((ended, by_signal)) => {
                    FromFar::Ended(incarnation.clone(), ended.clone(), *by_signal)
                }
                None => FromFar::Started(incarnation.clone(), Ok(life.pid)),
            },
            Some(life) if life.end.is_none() || life.incarnation.number > incarnation.number => {
                FromFar::Started(incarnation.clone(), Err("another one runs".to_owned()))
            }
            _ if !self.calm && self.rng.one_in(40) => {
                FromFar::Started(incarnation.clone(), Err("cannot run it".to_owned()))
            }
            _ => {
                let checked = self.promises.starts(incarnation, &environment);
                self.check(checked);
                let name = incarnation.name.clone();
                self.disk.inboxes.entry(name.clone()).or_default();
                let (pid, _) = self.fork(incarnation, environment);
                if !self.calm && self.rng.one_in(20) {
                    // Before it has recorded the process, which is not welcomed and so ends.
                    return self.host_restarts();
                }
                let life = Life {
                    incarnation: incarnation.clone(),
                    pid,
                    end: None,
                };
                self.far.lives.insert(name, life);
                FromFar::Started(incarnation.clone(), Ok(pid))
            }
        };
        self.far.to_home.push_back(answer);
    }

    /// The host daemon looks which processes have ended, and records that.
    fn sees_ends(&mut self) {
        let lives = self.far.lives.values().filter(|life| life.end.is_none());
        let gone = lives.filter(|life| {
            let says_more = self
                .links
                .values()
                .any(|link| link.pid == life.pid && !link.up.is_empty());
            !self.processes.contains_key(&life.pid)
                && !self.lock_is_held(&life.incarnation.name)
                && !says_more
        });
        let gone: Vec<Incarnation> = gone.map(|life| life.incarnation.clone()).collect();
        for incarnation in gone {
            let transcript = self.disk.transcripts.get(&incarnation.name);
            let by_signal =
                transcript.is_some_and(|it| it.left_by_signal == Some(incarnation.number));
            let inbox = Position {
                offset: u64::from(self.rng.below(9)),
                tail: 0,
            };
            let ended = Ended {
                inbox,
                unread: u64::from(self.rng.below(3)),
                mail: Some(self.unread_at_end(&incarnation)),
                emptied: Some(Emptied::Tree),
                ..Ended::default()
            };
            if let Some(life) = self.far.lives.get_mut(&incarnation.name) {
                life.end = Some((ended.clone(), by_signal));
            }
            let frame = FromFar::Ended(incarnation, ended, by_signal);
            self.far.to_home.push_back(frame);
        }
    }

    /// Tells whether home has something to handle that came from the host.
    pub(super) fn has_heard_from_far(&self, daemon: &Daemon) -> bool {
        !daemon.from_far.is_empty() || !self.far.to_home.is_empty()
    }

    /// Home handles the next of what came from the host.
    pub(super) fn hears_from_far(&mut self, daemon: &mut Daemon) -> Option<Event> {
        if let Some(event) = daemon.from_far.pop_front() {
            return Some(event);
        }
        match self.far.to_home.pop_front()? {
            FromFar::Down => {
                self.far.is_known_down = true;
                self.far.said_on = None;
                for (incarnation, number) in std::mem::take(&mut daemon.connections) {
                    if is_hosted(&incarnation.name) {
                        daemon.dispatcher.waiters.drop_connection(number);
                    } else {
                        daemon.connections.insert(incarnation, number);
                    }
                }
                let why = "ssh ended".to_owned();
                let down = self.link_is(LinkState::Unreachable { why });
                (!self.is(Mutant::ClocksRunWithoutALink)).then_some(down)
            }
            FromFar::Present { on, running, ended } => {
                self.far.is_known_down = false;
                self.far.said_on = Some(on);
                let host = host_name();
                let members: Vec<Incarnation> = members_of(&daemon.dispatcher.team, &host)
                    .map(Incarnation::of)
                    .collect();
                for incarnation in members {
                    let there = running.iter().find(|(of, _)| *of == incarnation);
                    let event = match there {
                        Some((_, pid)) => Event::Reached {
                            process: identity(*pid),
                            incarnation,
                        },
                        None if ended.contains(&incarnation) => continue,
                        None => Event::not_started(incarnation, "box had not heard of it"),
                    };
                    daemon.from_far.push_back(event);
                }
                Some(self.link_is(LinkState::Up))
            }
            FromFar::Started(incarnation, process) => {
                let is_present = self.is_present_at_home(daemon, &incarnation);
                is_present.then_some(Event::Started {
                    incarnation,
                    process: process.map(identity),
                    cgroup: None,
                })
            }
            FromFar::Ended(incarnation, ended, by_signal) => {
                self.hears_of_an_end(daemon, incarnation, ended, by_signal)
            }
        }
    }

    fn hears_of_an_end(
        &mut self,
        daemon: &mut Daemon,
        incarnation: Incarnation,
        ended: Ended,
        by_signal: bool,
    ) -> Option<Event> {
        let state = daemon.dispatcher.team.members.get(&incarnation.name);
        let record = state.map(|state| &state.record);
        let is_it = record.is_some_and(|it| it.incarnation == incarnation.number);
        let is_lost = record.is_some_and(|it| it.phase == Phase::Lost);
        let counts_again = is_lost && self.is(Mutant::LostIsNotFinal);
        if !is_it || record.is_some_and(|it| it.phase.is_ended()) && !counts_again {
            return None;
        }
        if let Some(number) = daemon.connections.remove(&incarnation) {
            daemon.dispatcher.waiters.drop_connection(number);
        }
        let event = Event::Ended {
            incarnation: incarnation.clone(),
            ended,
        };
        if by_signal && daemon.heard.farewells.insert(incarnation.clone()) {
            daemon.from_far.push_back(event);
            return Some(Event::Leaving { incarnation });
        }
        Some(event)
    }

    pub(super) fn is_present_at_home(&self, daemon: &Daemon, of: &Incarnation) -> bool {
        let state = daemon.dispatcher.team.members.get(&of.name);
        state.is_some_and(|state| state.record.incarnation == of.number)
    }

    fn link_is(&self, state: LinkState) -> Event {
        let link = HostLink {
            state,
            since: self.clocks.wall,
            version: None,
        };
        let host = host_name();
        Event::Link { host, link }
    }
}
