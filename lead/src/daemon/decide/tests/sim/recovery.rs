//! The start of a simulated daemon: the fold, who is adopted, who is seen off, what is done again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use teamd_shared::journal::{Daemon as DaemonRecord, Line, Record, Team, TeamEvent, TeamRecord};

use super::super::mutants::Mutant;
use super::daemon::{Batch, Daemon, End};
use super::machine::identity;
use super::world::{RULES, World};
use crate::daemon::event::{Event, Life, Now};
use crate::daemon::live::Live;
use crate::daemon::waiters::Waiters;

/// The state that a journal says.
pub(super) fn fold(journal: &[Line]) -> Team {
    let mut team = Team::default();
    for line in journal {
        team.apply(line).unwrap();
    }
    team
}

impl World {
    /// Starts a daemon, as `run.rs` and `reconcile.rs` do.
    pub(super) fn start_daemon(&mut self) {
        self.note(|| "a daemon starts".to_owned());
        let team = fold(&self.disk.journal);
        let mut daemon = Daemon {
            lead: team.lead,
            team,
            live: Live::default(),
            began: self.clocks.monotonic,
            connections: BTreeMap::new(),
            supervised: BTreeMap::new(),
            births: BTreeMap::new(),
            departed: BTreeSet::new(),
            seen_off: Vec::new(),
            waiters: Waiters::default(),
            commands: VecDeque::new(),
            backlog: VecDeque::new(),
            progress: (0, 0),
            retry_at: None,
            farewells: BTreeSet::new(),
            environments: BTreeMap::new(),
        };
        // Nobody hears any more what the one before had not read.
        self.links.retain(|_, link| link.worker_open);
        self.disk.inboxes.entry(teamd_shared::name::Name::lead()).or_default();
        let events = self.reconcile(&mut daemon);
        if self.record_start(&mut daemon).is_err() {
            self.note(|| "  it is killed".to_owned());
            return self.daemon_is_gone();
        }
        if self.is(Mutant::NothingIsDoneAgain) {
            daemon.team.mark_done(daemon.team.seq);
        }
        let dies_at = (!self.calm && self.rng.one_in(20)).then(|| self.rng.below(3));
        let done = self.complete(&mut daemon, false, dies_at).and_then(|()| self.settle_effects(&mut daemon));
        if done.is_err() {
            return self.daemon_is_gone();
        }
        self.goes_on_with(daemon, events);
    }

    fn reconcile(&mut self, daemon: &mut Daemon) -> Vec<Event> {
        let mut events = Vec::new();
        for state in daemon.team.members.values().filter(|state| !state.record.phase.is_ended()) {
            let member = &state.record;
            let life = Life { name: member.name.clone(), incarnation: member.incarnation };
            let process = member.process.as_ref().filter(|_| self.lock_is_held(&member.name));
            let there = process.filter(|process| {
                self.processes.contains_key(&process.pid) && identity(process.pid) == **process
            });
            match there {
                Some(process) => {
                    daemon.supervised.insert(life.clone(), process.pid);
                    events.push(Event::Found { life });
                }
                None => daemon.seen_off.push(life),
            }
        }
        events
    }

    fn record_start(&mut self, daemon: &mut Daemon) -> Result<(), End> {
        let mut batch = Batch::default();
        let record = DaemonRecord { process: identity(1), started_at: self.clocks.wall, directory: None };
        let team_name = "default".to_owned();
        let (event, rejected, tell) = (TeamEvent::Started, Vec::new(), Vec::new());
        let started = TeamRecord { event, team_name, daemon: Some(record), rejected, tell };
        self.apply(daemon, Record::Team(started), &mut batch);
        for record in daemon.team.untold() {
            self.apply(daemon, record, &mut batch);
        }
        if !self.calm && self.rng.one_in(20) {
            let lines = self.rng.below(u32::try_from(batch.lines.len()).unwrap() + 1);
            self.append(daemon, &batch.lines[..lines as usize]);
            return Err(End::Killed);
        }
        self.append(daemon, &batch.lines);
        let now = Now { wall: self.clocks.wall, monotonic: self.since(daemon) };
        let names: Vec<_> = daemon.team.members.keys().cloned().collect();
        for name in &names {
            daemon.live.arm(&daemon.team, name, now, RULES);
        }
        let kept = self.promises.agrees_with(&daemon.team);
        self.promise(kept);
        Ok(())
    }
}
