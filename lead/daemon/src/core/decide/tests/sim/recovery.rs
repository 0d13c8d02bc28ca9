//! The start of a simulated daemon: the fold, which workers are adopted or reaped, and what is done
//! again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use teamd_shared::journal::{Daemon as DaemonRecord, TeamEvent, TeamRecord};
use teamd_shared::name::Name;

use super::super::harness::places;
use super::super::mutants::Mutant;
use super::daemon::{Daemon, Heard, Killed};
use super::hosts::hosts;
use super::machine::identity;
use super::world::{RULES, World};
use crate::core::dispatcher::Dispatcher;
use crate::core::effect_queues::EffectQueues;
use crate::core::event::Event;
use crate::core::incarnation::Incarnation;

/// What is made by itself where people have work done.
const ORDERS: &str = r#"[
    {"name": "tick", "every": "20s", "most": 20, "missed": "once", "task": {"subject": "tick"}},
    {"name": "tock", "every": "30s", "most": 20, "overlap": "queue", "task": {"subject": "tock"}},
    {"name": "mend", "on": "task.failed", "overlap": "queue", "task": {"subject": "mend"}},
    {"name": "raise", "on": "member.crashed", "task": {"subject": "raise"}}]"#;

impl World {
    /// Starts a daemon, as `run.rs` and `reconcile.rs` do.
    pub(super) fn start_daemon(&mut self) {
        self.note(|| "a daemon starts".to_owned());
        self.repairs_the_journal();
        let team = self.disk.fold();
        let mut daemon = Daemon {
            lead: team.lead.offset,
            lead_has_more: false,
            dispatcher: Dispatcher::new(team, RULES, places()),
            began: self.clocks.monotonic,
            connections: BTreeMap::new(),
            supervised: BTreeMap::new(),
            exited: BTreeSet::new(),
            reaping: Vec::new(),
            commands: VecDeque::new(),
            from_far: VecDeque::new(),
            effects: EffectQueues::default(),
            roster: BTreeMap::new(),
            unwritten: None,
            jobs: Vec::new(),
            unshown: BTreeMap::new(),
            unsynced: Vec::new(),
            tick: self.clocks.monotonic,
            heard: Heard::default(),
        };
        // What the earlier daemon had not read is lost.
        self.links.retain(|_, link| link.worker_open);
        self.disk.inboxes.entry(Name::lead()).or_default();
        let mut events = self.reconcile(&mut daemon);
        if self.begins_anew(&mut daemon).is_err() || daemon.dispatcher.end().is_some() {
            self.note(|| "  it ends at once".to_owned());
            return self.daemon_is_gone();
        }
        events.push(self.reads_its_inbox(&mut daemon));
        self.goes_on_with(daemon, events);
    }

    fn begins_anew(&mut self, daemon: &mut Daemon) -> Result<(), Killed> {
        let record = DaemonRecord {
            process: identity(1),
            started_at: self.clocks.wall,
            directory: None,
        };
        let is_first = self.works && daemon.dispatcher.team.orders.is_empty();
        let orders = is_first.then(|| serde_json::from_str(ORDERS).unwrap());
        let is_new = self.far.is_there && daemon.dispatcher.team.hosts.is_none();
        let started = TeamRecord {
            orders,
            hosts: is_new.then(hosts),
            ..TeamRecord::of(TeamEvent::Started, "default".to_owned(), Some(record))
        };
        self.dispatches(daemon, |dispatcher, hands| dispatcher.begin(started, hands))
    }

    fn reconcile(&mut self, daemon: &mut Daemon) -> Vec<Event> {
        let mut events = Vec::new();
        for state in daemon
            .dispatcher
            .team
            .members
            .values()
            .filter(|state| !state.record.phase.is_ended())
        {
            let member = &state.record;
            // A host reports its own when it is reached.
            let is_there = self.host_of(&member.name).is_some();
            if is_there && !self.is(Mutant::HostsAreNotWaitedFor) {
                continue;
            }
            let incarnation = Incarnation::of(member);
            let process = if self.lock_is_held(&member.name) {
                member.process.as_ref()
            } else {
                None
            };
            let there = process.filter(|process| {
                self.processes.contains_key(&process.pid) && identity(process.pid) == **process
            });
            match there {
                Some(process) => {
                    daemon.supervised.insert(incarnation.clone(), process.pid);
                    events.push(Event::Found { incarnation });
                }
                None => daemon.reaping.push(incarnation),
            }
        }
        events
    }
}
