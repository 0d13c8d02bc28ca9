//! The simulated daemon: the dispatcher's order of steps, with a death possible between any two of them.
//!
//! What is decided, folded and said comes from the real code; only what touches the world is played here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use teamd_shared::control::{Command, ToWorker};
use teamd_shared::environment::Environment;
use teamd_shared::journal::{Line, Record, Team, TeamEvent, TeamRecord, VERSION};
use teamd_shared::name::Name;
use teamd_shared::position::Position;

use super::super::mutants::Mutant;
use super::super::promises::Promises;
use super::machine::identity;
use super::world::{RULES, World};
use crate::daemon::decide::{View, decide};
use crate::daemon::event::{Action, Client, Event, Life, Now};
use crate::daemon::live::Live;
use crate::daemon::waiters::Waiters;
use crate::daemon::watchdog::Finding;
use crate::daemon::word::{welcome, word};

/// How long events wait that could not be journaled.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// A daemon.
pub(in super::super) struct Daemon {
    pub(in super::super) team: Team,
    pub(super) live: Live,
    pub(super) began: Duration,
    /// The present connection of each life.
    pub(super) connections: BTreeMap<Life, u64>,
    pub(super) supervised: BTreeMap<Life, u32>,
    /// What has happened of each birth.
    pub(super) births: BTreeMap<Life, Birth>,
    /// Lives whose process has ended, until their connection does.
    pub(super) departed: BTreeSet<Life>,
    /// Lives that have ended, until nothing is left of them.
    pub(super) seen_off: Vec<Life>,
    /// What the lead agent waits for.
    pub(super) waiters: Waiters,
    pub(super) commands: VecDeque<Event>,
    pub(super) backlog: VecDeque<Event>,
    /// The lines up to which all effects are there, and were tried.
    pub(super) progress: (u64, u64),
    pub(super) retry_at: Option<Duration>,
    /// How far the lead's inbox is read.
    pub(super) lead: Position,
    /// The lives that have said to this daemon that SIGTERM ends them.
    pub(super) farewells: BTreeSet<Life>,
    /// The environments that this daemon was given.
    pub(super) environments: BTreeMap<Name, Environment>,
}

/// One half of a birth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Birth {
    Journaled,
    Greeted,
}

/// A daemon that does not go on.
pub(super) enum End {
    /// Killed.
    Killed,
    /// It ended by itself.
    Left,
}

/// What a batch of events led to.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) lines: Vec<Line>,
    pub(super) actions: Vec<Action>,
    touched: BTreeSet<Name>,
    pub(super) events: Vec<Event>,
}

/// How a batch fares.
enum Fate {
    Well,
    /// Killed when so many of its lines were written.
    Cut(usize),
    /// The disk is full.
    Unwritten,
    /// Killed when so many of its effects, or actions, were done.
    DiesAtEffect(u32),
    DiesAtAction(u32),
}

impl World {
    pub(super) fn since(&self, daemon: &Daemon) -> Duration {
        self.clocks.monotonic - daemon.began
    }

    fn now(&self, daemon: &Daemon) -> Now {
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
        if !events.is_empty() {
            self.note(|| format!("the daemon handles {events:?}"));
        }
        self.goes_on_with(daemon, events);
    }

    /// Handles events, and keeps the daemon if it lives on.
    pub(super) fn goes_on_with(&mut self, mut daemon: Daemon, events: Vec<Event>) {
        match self.handle(&mut daemon, events) {
            Ok(()) => self.daemon = Some(daemon),
            Err(End::Killed) => {
                self.note(|| "  the daemon is killed".to_owned());
                self.daemon_is_gone();
            }
            Err(End::Left) => {
                self.note(|| "  the daemon ends".to_owned());
                self.links.values_mut().for_each(|link| link.daemon_open = false);
            }
        }
    }

    /// As the dispatcher's function of this name, like all that follow.
    pub(super) fn handle(&mut self, daemon: &mut Daemon, events: Vec<Event>) -> Result<(), End> {
        let mut events: VecDeque<Event> = events.into();
        let now = self.since(daemon);
        if daemon.retry_at.is_some_and(|at| at <= now) {
            daemon.retry_at = None;
            let mut again = self.take_backlog(daemon);
            again.append(&mut events);
            events = again;
            self.complete(daemon, false, None)?;
        } else {
            // An end comes after what could not be journaled of that life before.
            let waits = |event: &Event| match event {
                Event::Ended { life, .. } => {
                    daemon.backlog.iter().any(|earlier| life_of(earlier) == Some(life))
                }
                _ => false,
            };
            let (late, ready): (VecDeque<_>, VecDeque<_>) = events.into_iter().partition(waits);
            daemon.backlog.extend(late);
            events = ready;
        }
        if daemon.live.next_deadline().is_some_and(|at| at <= now) {
            self.looks_at_workers(daemon, &mut events);
            events.push_back(Event::Deadline);
        }
        self.answers_any_line(daemon, &mut events);
        while !events.is_empty() {
            let batch = self.decide_all(daemon, std::mem::take(&mut events));
            events = self.carry_out(daemon, batch)?.into();
        }
        self.settle_effects(daemon)
    }

    fn looks_at_workers(&mut self, daemon: &mut Daemon, events: &mut VecDeque<Event>) {
        let now = self.now(daemon);
        for (life, finding) in daemon.live.look(&daemon.team, now, RULES) {
            self.note(|| format!("  {} {}: {finding:?}", life.name, life.incarnation));
            match finding {
                Finding::Ask(number) => self.say(daemon, &life, ToWorker::Ping { number }),
                Finding::Silent => events.push_back(Event::Silent { life }),
                Finding::Hung => events.push_back(Event::Hung { life }),
            }
        }
    }

    /// Takes out what could not be journaled. A worker may stand elsewhere by now than where it said.
    fn take_backlog(&mut self, daemon: &mut Daemon) -> VecDeque<Event> {
        let mut backlog = std::mem::take(&mut daemon.backlog);
        for event in &mut backlog {
            if let Event::Said { life, state } = event {
                if let Some(alive) = daemon.live.of(life) {
                    state.clone_from(&alive.said);
                }
                self.say_word(daemon, &life.name);
            }
        }
        backlog
    }

    fn decide_all(&mut self, daemon: &mut Daemon, events: VecDeque<Event>) -> Batch {
        let mut batch = Batch::default();
        for event in events {
            let now = self.now(daemon);
            daemon.live.wall = now.wall;
            daemon.live.observe(&daemon.team, &event);
            let doctored = self.doctored(&daemon.team, &event);
            let team = doctored.as_ref().unwrap_or(&daemon.team);
            let view = View { team, live: &daemon.live, now, rules: RULES };
            let mut decision = decide(&view, &event, &mut self.ids);
            self.spoil(&daemon.team, &event, &mut decision);
            self.remember(daemon, &event, !decision.records.is_empty());
            if let Event::Command(client, _) | Event::Spawn(client, ..) = &event
                && !decision.records.is_empty()
            {
                let kept = self.promises.done_for(*client, &daemon.team);
                self.promise(kept);
            }
            batch.touched.extend(concerned(&event));
            for record in decision.records {
                self.apply(daemon, record, &mut batch);
            }
            for record in daemon.team.untold() {
                self.apply(daemon, record, &mut batch);
            }
            batch.actions.extend(decision.actions);
            batch.events.push(event);
        }
        batch
    }

    /// What the promises must know of an event that was decided.
    fn remember(&mut self, daemon: &mut Daemon, event: &Event, decided: bool) {
        match event {
            Event::Spawn(_, order, _) if decided => {
                daemon.environments.insert(order.name.clone(), order.environment.clone());
                daemon.farewells.retain(|life| life.name != order.name);
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

    pub(super) fn apply(&mut self, daemon: &mut Daemon, record: Record, batch: &mut Batch) {
        let line = Line {
            seq: daemon.team.seq + 1,
            at: self.clocks.wall,
            version: (daemon.team.seq == 0).then_some(VERSION),
            done: daemon.team.done,
            lead: Some(daemon.lead).filter(|&position| position != daemon.team.lead),
            record,
        };
        let continues = daemon.team.apply(&line).map_err(|e| format!("a decision does not continue: {e}"));
        self.promise(continues);
        batch.touched.extend(subject(&line.record));
        batch.lines.push(line);
    }

    fn fate(&mut self, batch: &Batch) -> Fate {
        let unlucky = !self.calm && !batch.events.is_empty() && self.rng.one_in(30);
        if !unlucky {
            return Fate::Well;
        }
        let lines = u32::try_from(batch.lines.len()).unwrap();
        match self.rng.below(4) {
            0 => Fate::Cut(self.rng.below(lines + 1) as usize),
            1 if lines > 0 => Fate::Unwritten,
            2 => Fate::DiesAtEffect(self.rng.below(4)),
            _ => Fate::DiesAtAction(self.rng.below(4)),
        }
    }

    fn carry_out(&mut self, daemon: &mut Daemon, batch: Batch) -> Result<Vec<Event>, End> {
        let fate = self.fate(&batch);
        self.signals_first(daemon, &batch.actions);
        match fate {
            Fate::Cut(lines) => {
                self.append(daemon, &batch.lines[..lines]);
                return Err(End::Killed);
            }
            Fate::Unwritten => return self.not_written(daemon, batch).map(|()| Vec::new()),
            _ => self.append(daemon, &batch.lines),
        }
        let dies_at = |fate: &Fate| if let Fate::DiesAtEffect(at) = fate { Some(*at) } else { None };
        if !batch.lines.is_empty() {
            self.complete(daemon, true, dies_at(&fate))?;
        }
        let now = self.now(daemon);
        for name in &batch.touched {
            daemon.live.arm(&daemon.team, name, now, RULES);
        }
        let mut brought = Vec::new();
        let mut answered = Vec::new();
        let dies_at = if let Fate::DiesAtAction(at) = fate { at } else { u32::MAX };
        for (action, at) in batch.actions.into_iter().zip(0..) {
            if at == dies_at {
                return Err(End::Killed);
            }
            self.perform(daemon, action, &mut brought, &mut answered);
        }
        if dies_at < u32::MAX {
            return Err(End::Killed);
        }
        let subjects: BTreeSet<Name> = batch.lines.iter().filter_map(|line| subject(&line.record)).collect();
        subjects.iter().for_each(|name| self.say_word(daemon, name));
        batch.touched.iter().for_each(|name| self.answer_waiters(daemon, name));
        let kept = self.promises.answered(&batch.events, &answered);
        self.promise(kept);
        let kept = self.promises.agrees_with(&daemon.team);
        self.promise(kept);
        self.end_if_all_are_gone(daemon)?;
        Ok(brought)
    }

    fn perform(
        &mut self,
        daemon: &mut Daemon,
        action: Action,
        brought: &mut Vec<Event>,
        answered: &mut Vec<Client>,
    ) {
        self.note(|| format!("  {action:?}"));
        match action {
            Action::Start(life) => brought.push(self.start(daemon, life)),
            Action::Welcome(life) => self.half_born(daemon, &life, Birth::Journaled),
            Action::Say(_, ToWorker::Word(_)) if self.is(Mutant::NoWordOnReconnect) => {}
            Action::Say(life, frame) => self.say(daemon, &life, frame),
            Action::Terminate(life) => self.signal(daemon, &life, false),
            Action::Kill(life) => self.kill_journaled(daemon, &life),
            Action::Reply(client, answer) => {
                answered.push(client);
                if client.agent {
                    self.reply(daemon, client, answer);
                }
            }
            Action::Wait(client, life, what) => {
                answered.push(client);
                if client.agent {
                    let name = life.name.clone();
                    daemon.waiters.add(client, life, what);
                    self.answer_waiters(daemon, &name);
                }
            }
            Action::WaitForStop(client) => answered.push(client),
        }
    }

    fn start(&mut self, daemon: &mut Daemon, life: Life) -> Event {
        let environment = daemon.live.member(&life.name).and_then(|alive| alive.environment.clone());
        let Some(environment) = environment else {
            return Event::Started {
                life,
                process: Err("its environment was lost".to_owned()),
                cgroup: None,
            };
        };
        if !self.calm && self.rng.one_in(40) {
            return Event::Started { life, process: Err("cannot run it".to_owned()), cgroup: None };
        }
        let kept = self.promises.starts(&life, &environment);
        self.promise(kept);
        self.disk.inboxes.entry(life.name.clone()).or_default();
        let (pid, link) = self.fork(&life, environment);
        daemon.supervised.insert(life.clone(), pid);
        daemon.connections.insert(life.clone(), link);
        Event::Started { life, process: Ok(identity(pid)), cgroup: None }
    }

    /// A worker is welcomed once its process is in the journal and it has greeted, which it does under its lock.
    pub(super) fn half_born(&mut self, daemon: &mut Daemon, life: &Life, half: Birth) {
        match daemon.births.insert(life.clone(), half) {
            Some(other) if other != half => {
                daemon.births.remove(life);
                self.welcome(daemon, life);
            }
            _ => {}
        }
    }

    fn welcome(&mut self, daemon: &Daemon, life: &Life) {
        let Some(welcome) = welcome(&daemon.team, &daemon.live, life) else { return };
        self.say(daemon, life, ToWorker::Welcome(Box::new(welcome)));
    }

    pub(super) fn say(&mut self, daemon: &Daemon, life: &Life, frame: ToWorker) {
        let link = daemon.connections.get(life).and_then(|number| self.links.get_mut(number));
        if let Some(link) = link.filter(|link| link.daemon_open && link.worker_open) {
            link.down.push_back(frame);
        }
    }

    pub(super) fn say_word(&mut self, daemon: &Daemon, name: &Name) {
        let Some(incarnation) = daemon.team.members.get(name).map(|state| state.record.incarnation) else {
            return;
        };
        let life = Life { name: name.clone(), incarnation };
        if !daemon.live.of(&life).is_some_and(|alive| alive.connected) {
            return;
        }
        if let Some(word) = word(&daemon.team, &daemon.live, name) {
            self.say(daemon, &life, ToWorker::Word(word));
        }
    }

    pub(super) fn kill_journaled(&mut self, daemon: &mut Daemon, life: &Life) {
        self.signal(daemon, life, true);
        daemon.live.killed(life);
    }

    pub(in super::super) fn signal(&mut self, daemon: &Daemon, life: &Life, kill: bool) {
        let Some(&pid) = daemon.supervised.get(life) else { return };
        let kept = self.promises.signalled(life);
        self.promise(kept);
        if kill {
            self.kill(pid);
        } else if let Some(worker) = self.processes.get_mut(&pid) {
            (worker.term, worker.frozen) = (true, false);
        }
    }

    fn end_if_all_are_gone(&mut self, daemon: &mut Daemon) -> Result<(), End> {
        let alive = daemon.team.members.values().any(|state| !state.record.phase.is_ended());
        if !daemon.team.stopping || alive {
            return Ok(());
        }
        self.settle_effects(daemon)?;
        let team_name = daemon.team.team_name.clone();
        let (event, rejected, tell) = (TeamEvent::Stopped, Vec::new(), Vec::new());
        let mut batch = Batch::default();
        self.apply(
            daemon,
            Record::Team(TeamRecord { event, team_name, daemon: None, rejected, tell }),
            &mut batch,
        );
        self.append(daemon, &batch.lines);
        Err(End::Left)
    }
}

fn concerned(event: &Event) -> Option<Name> {
    match event {
        Event::Named { .. } | Event::Leaving { .. } => None,
        // With a spawn that was refused goes its environment.
        Event::Spawn(_, order, _) => Some(order.name.clone()),
        other => life_of(other).map(|life| life.name.clone()),
    }
}

fn life_of(event: &Event) -> Option<&Life> {
    match event {
        Event::Connected { life, .. }
        | Event::Said { life, .. }
        | Event::Named { life, .. }
        | Event::Leaving { life }
        | Event::Started { life, .. }
        | Event::Found { life }
        | Event::Ended { life, .. }
        | Event::Pong { life, .. }
        | Event::Silent { life }
        | Event::Hung { life }
        | Event::Disconnected { life } => Some(life),
        _ => None,
    }
}

fn subject(record: &Record) -> Option<Name> {
    match record {
        Record::Team(_) => None,
        Record::Member(record) => Some(record.member.name.clone()),
        Record::Request(record) => Name::of_inbox(record.request.member()).ok(),
    }
}
