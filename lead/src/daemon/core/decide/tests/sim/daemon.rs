//! The simulated daemon: the real batcher, and a loop that takes its steps and may die between any two of them.
//!
//! What is decided, folded and said, and in which order, comes from the real code; only what touches the world is played
//! here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use teamd_shared::control::{Command, ToWorker};
use teamd_shared::environment::Environment;
use teamd_shared::journal::Line;
use teamd_shared::member::MemberStatus;
use teamd_shared::name::Name;

use super::super::mutants::Mutant;
use super::super::promises::Promises;
use super::machine::identity;
use super::world::World;
use crate::daemon::core::batch::{Batcher, End, NewWorker, Step};
use crate::daemon::core::completion::Completion;
use crate::daemon::core::decide::{Decision, View, decide};
use crate::daemon::core::event::{Event, Incarnation, Now};
use crate::daemon::core::waiters::status;

pub(in super::super) struct Daemon {
    pub(in super::super) batcher: Batcher,
    pub(super) began: Duration,
    /// The present connection of each incarnation.
    pub(super) connections: BTreeMap<Incarnation, u64>,
    pub(super) supervised: BTreeMap<Incarnation, u32>,
    /// The incarnations whose process has ended, until their connection does.
    pub(super) exited: BTreeSet<Incarnation>,
    /// The incarnations that have ended, until nothing is left of them.
    pub(super) reaping: Vec<Incarnation>,
    pub(super) commands: VecDeque<Event>,
    pub(super) completion: Completion,
    /// The roster as it is to be written, and since when it cannot be.
    pub(super) roster: BTreeMap<Name, MemberStatus>,
    pub(in super::super) unwritten: Option<Duration>,
    /// Lines that a mutant takes for written.
    pub(super) unsynced: Vec<Line>,
    /// How many lines of the lead's inbox are read, and when it is looked at without a ring.
    pub(super) lead: u64,
    pub(super) lead_has_more: bool,
    pub(super) tick: Duration,
    pub(super) heard: Heard,
}

/// What this daemon was told.
#[derive(Default)]
pub(super) struct Heard {
    /// The incarnations that have said that SIGTERM ends them.
    pub(super) farewells: BTreeSet<Incarnation>,
    /// The environments that it was given.
    pub(super) environments: BTreeMap<Name, Environment>,
}

/// The daemon was killed.
pub(super) struct Killed;

impl World {
    pub(super) fn since(&self, daemon: &Daemon) -> Duration {
        self.clocks.monotonic - daemon.began
    }

    pub(super) fn now(&self, daemon: &Daemon) -> Now {
        Now { wall: self.clocks.wall, monotonic: self.since(daemon) }
    }

    /// The daemon takes in something of what is ready, and handles it.
    pub(super) fn daemon_step(&mut self) {
        let Some(mut daemon) = self.daemon.take() else { return };
        let mut events = Vec::new();
        let many = if self.calm { 64 } else { 1 + self.rng.below(5) };
        for _ in 0..many {
            events.extend(self.takes_in(&mut daemon));
        }
        events.extend(self.looks_at_its_inbox(&mut daemon));
        self.answers_any_line(&daemon, &mut events);
        if !events.is_empty() {
            self.note(|| format!("the daemon handles {events:?}"));
        }
        self.goes_on_with(daemon, events);
    }

    /// Handles events, and keeps the daemon if it survives.
    pub(super) fn goes_on_with(&mut self, mut daemon: Daemon, events: Vec<Event>) {
        match self.handles(&mut daemon, events) {
            Err(Killed) => {
                self.note(|| "  the daemon is killed".to_owned());
                self.daemon_is_gone();
            }
            Ok(()) if daemon.batcher.end.is_some() => {
                self.note(|| format!("  the daemon ends: {:?}", daemon.batcher.end));
                let checked = self.promises.ends(matches!(daemon.batcher.end, Some(End::Stopped)));
                self.check(checked);
                self.links.values_mut().for_each(|link| link.daemon_open = false);
            }
            Ok(()) => self.daemon = Some(daemon),
        }
    }

    fn handles(&mut self, daemon: &mut Daemon, events: Vec<Event>) -> Result<(), Killed> {
        daemon.batcher.handle(events, self.now(daemon));
        self.takes_its_steps(daemon)?;
        if daemon.batcher.has_answers() {
            daemon.batcher.answer(self.now(daemon));
            self.takes_its_steps(daemon)?;
        }
        if self.is(Mutant::RosterComesLate) {
            self.disk.roster.clone_from(&daemon.roster);
        }
        if self.calm || !self.rng.one_in(20) {
            self.settles(daemon);
        }
        Ok(())
    }

    /// Takes one step after the other, until none is left.
    pub(super) fn takes_its_steps(&mut self, daemon: &mut Daemon) -> Result<(), Killed> {
        while let Some(step) = self.next_step(daemon) {
            if !self.calm && self.rng.one_in(250) {
                return Err(Killed);
            }
            if let Step::Append(lines) = step {
                self.appends(daemon, &lines)?;
                continue;
            }
            if knows_its_journal(daemon) {
                let checked = self.promises.is_written(&daemon.batcher.team, self.disk.journal.len());
                self.check(checked);
            }
            self.takes(daemon, step)?;
        }
        // A mutant has put them off.
        let lines = std::mem::take(&mut daemon.unsynced);
        self.journals(daemon, &lines);
        Ok(())
    }

    fn next_step(&mut self, daemon: &mut Daemon) -> Option<Step> {
        let now = self.now(daemon);
        let Daemon { batcher, heard, .. } = daemon;
        batcher.next(now, &mut |view, event| self.decides(heard, view, event))
    }

    fn decides(&mut self, heard: &mut Heard, view: &View<'_>, event: &Event) -> Decision {
        let doctored = self.doctored(view.team, event);
        let seen = View { team: doctored.as_ref().unwrap_or(view.team), ..*view };
        let mut decision = decide(&seen, event, &mut self.ids);
        self.spoil(view.team, event, &mut decision);
        self.remember(heard, event, !decision.records.is_empty());
        if let Event::Command(client, _) | Event::Spawn(client, ..) = event {
            let checked = self.promises.is_asked(*client, &decision.actions);
            self.check(checked);
            if !decision.records.is_empty() {
                let checked = self.promises.done_for(*client, view.team);
                self.check(checked);
            }
        }
        decision
    }

    /// What the promises must know of an event that was decided.
    fn remember(&mut self, heard: &mut Heard, event: &Event, decided: bool) {
        match event {
            Event::Spawn(_, _, order, _) if decided => {
                heard.environments.insert(order.name.clone(), order.environment.clone());
                heard.farewells.retain(|incarnation| incarnation.name != order.name);
                self.promises.environments.insert(order.name.clone(), order.environment.clone());
            }
            Event::Command(client, Command::Answer { request_id, approve, .. }) if decided => {
                let Promises { verdicts, verdicts_of_the_lead, .. } = &mut self.promises;
                let verdicts = if client.agent { verdicts_of_the_lead } else { verdicts };
                verdicts.insert((request_id.clone(), *approve));
            }
            _ => {}
        }
    }

    fn takes(&mut self, daemon: &mut Daemon, step: Step) -> Result<(), Killed> {
        match step {
            Step::Append(_) => {}
            Step::Complete { again } => self.completes(daemon, again)?,
            Step::Settle => self.settles(daemon),
            Step::Start(beginning) => {
                let started = self.starts(daemon, *beginning);
                daemon.batcher.started(started, self.now(daemon));
            }
            Step::Terminate(incarnation) => self.signal(daemon, &incarnation, false),
            Step::Kill(incarnation) => self.signal(daemon, &incarnation, true),
            Step::Say(incarnation, frame) => self.say(daemon, &incarnation, frame),
            Step::Show(names) => {
                for name in names {
                    self.shows(daemon, &name);
                }
                let checked = self.promises.agrees_with(&daemon.batcher.team);
                self.check(checked);
            }
            Step::WriteRoster => self.writes_the_roster(daemon),
            Step::Reply(client, answer) => {
                self.note(|| format!("  {client:?} is answered {answer:?}"));
                self.reply(daemon, client, answer);
            }
        }
        Ok(())
    }

    fn starts(&mut self, daemon: &mut Daemon, new: NewWorker) -> Event {
        let NewWorker { incarnation, environment, .. } = new;
        if !self.calm && self.rng.one_in(40) {
            return Event::not_started(incarnation, "cannot run it");
        }
        let checked = self.promises.starts(&incarnation, &environment);
        self.check(checked);
        self.disk.inboxes.entry(incarnation.name.clone()).or_default();
        let (pid, link) = self.fork(&incarnation, environment);
        daemon.supervised.insert(incarnation.clone(), pid);
        daemon.connections.insert(incarnation.clone(), link);
        Event::Started { incarnation, process: Ok(identity(pid)), cgroup: None }
    }

    pub(super) fn say(&mut self, daemon: &Daemon, incarnation: &Incarnation, frame: ToWorker) {
        let link = daemon.connections.get(incarnation).and_then(|number| self.links.get_mut(number));
        if let Some(link) = link.filter(|link| link.daemon_open && link.worker_open) {
            link.down.push_back(frame);
        }
    }

    pub(in super::super) fn signal(&mut self, daemon: &Daemon, incarnation: &Incarnation, kill: bool) {
        let Some(&pid) = daemon.supervised.get(incarnation) else { return };
        let checked = self.promises.signalled(incarnation);
        self.check(checked);
        if kill {
            self.kill(pid);
        } else if let Some(worker) = self.processes.get_mut(&pid) {
            (worker.term, worker.frozen) = (true, false);
        }
    }

    fn shows(&mut self, daemon: &mut Daemon, name: &Name) {
        let Daemon { batcher, roster, .. } = daemon;
        match batcher.team.members.get(name) {
            Some(state) => roster.insert(name.clone(), status(&batcher.team, &batcher.live, &state.record)),
            None => roster.remove(name),
        };
    }

    fn writes_the_roster(&mut self, daemon: &mut Daemon) {
        let now = self.now(daemon);
        let fails = !self.calm && self.rng.one_in(20);
        if fails {
            self.note(|| "  the roster cannot be written".to_owned());
            daemon.unwritten.get_or_insert(now.monotonic);
            daemon.batcher.try_again_later(now);
        } else if !self.is(Mutant::RosterComesLate) {
            self.disk.roster.clone_from(&daemon.roster);
            daemon.unwritten = None;
        }
        daemon.batcher.shown(!fails, now);
    }
}

/// Tells whether the state of a daemon is what its journal says. After a refused sync that is not known: what it still says,
/// before it ends, rests on earlier lines.
pub(super) fn knows_its_journal(daemon: &Daemon) -> bool {
    !matches!(daemon.batcher.end, Some(End::Failed(_)))
}
