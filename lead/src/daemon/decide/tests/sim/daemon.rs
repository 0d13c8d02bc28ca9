//! The simulated daemon: the dispatcher's order of steps, with a death possible between any two of them.
//!
//! What is decided, folded and said comes from the real code; only what touches the world is played here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use teamd_shared::control::{Command, FromWorker, ToWorker, Welcome};
use teamd_shared::environment::Environment;
use teamd_shared::journal::{Line, Record, Team, TeamEvent, TeamRecord, VERSION};
use teamd_shared::message::Message;
use teamd_shared::name::Name;
use teamd_shared::position::Position;

use super::super::mutants::Mutant;
use super::machine::{Up, identity};
use super::world::{GRACE, World};
use crate::daemon::decide::{View, decide};
use crate::daemon::event::{Action, Client, Ended, Event, Life, Now};
use crate::daemon::live::Live;
use crate::daemon::word::word;

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
    /// Lives that have ended, until nothing is left of them.
    pub(super) seen_off: Vec<Life>,
    pub(super) commands: VecDeque<Event>,
    pub(super) backlog: VecDeque<Event>,
    pub(super) retry_at: Option<Duration>,
    /// How far the lead's inbox is read.
    pub(super) lead: Position,
    /// The environments that this daemon was given, and by whom.
    pub(super) environments: BTreeMap<Name, Environment>,
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
    actions: Vec<Action>,
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

    /// One of the things that are ready; each source keeps its order.
    fn takes_in(&mut self, daemon: &mut Daemon) -> Option<Event> {
        let readable = self.links.iter().filter(|(_, link)| link.daemon_open || !link.worker_open);
        let readable = readable.filter(|(_, link)| !link.up.is_empty() || !link.worker_open);
        // Connections are accepted in their order: the greeting on a later one overtakes none.
        let waits = |number: &u64, life: &Life| {
            self.links.range(..number).any(|(_, older)| older.life == *life && older.greets())
        };
        let readable: Vec<u64> =
            readable.filter(|(number, link)| !waits(number, &link.life)).map(|(number, _)| *number).collect();
        let gone = daemon.supervised.iter().filter(|(_, pid)| !self.processes.contains_key(pid));
        let gone: Vec<Life> = gone.map(|(life, _)| life.clone()).collect();
        let early = self.is(Mutant::BuriesBeforeTheLockIsFree);
        let over = daemon.seen_off.iter().filter(|life| early || !self.lock_is_held(&life.name));
        let over: Vec<Life> = over.cloned().collect();
        let sources = [readable.len(), gone.len(), over.len(), daemon.commands.len().min(1)];
        let at = self.rng.pick(&(0..4).filter(|&source| sources[source] > 0).collect::<Vec<_>>())?;
        match at {
            0 => self.rng.pick(&readable).and_then(|number| self.reads(daemon, number)),
            1 => {
                let life = self.rng.pick(&gone)?;
                daemon.supervised.remove(&life);
                daemon.connections.remove(&life);
                daemon.seen_off.push(life);
                None
            }
            2 => {
                let life = self.rng.pick(&over)?;
                daemon.seen_off.retain(|other| *other != life);
                let left = self.lock_is_held(&life.name) || self.processes.values().any(|it| it.begun && it.life == life);
                let kept = if left { Err(format!("{} is buried, and something of it is left", life.name)) } else { Ok(()) };
                self.promise(kept);
                let inbox = Position { offset: u64::from(self.rng.below(9)), tail: 0 };
                let unread = u64::from(self.rng.below(3));
                Some(Event::Ended { life, ended: Ended { code: None, signal: None, inbox, unread } })
            }
            _ => self.looks_up(daemon),
        }
    }

    fn looks_up(&self, daemon: &mut Daemon) -> Option<Event> {
        let mut event = daemon.commands.pop_front()?;
        match &mut event {
            Event::Spawn(_, order, facts) => {
                let name = &order.name;
                let ended = daemon.team.members.get(name).is_none_or(|member| member.record.phase.is_ended());
                facts.held = (ended && self.lock_is_held(name)).then(|| "something".to_owned());
            }
            Event::Unreadable { position, .. } => daemon.lead = *position,
            _ => {}
        }
        Some(event)
    }

    fn reads(&mut self, daemon: &mut Daemon, number: u64) -> Option<Event> {
        let link = self.links.get_mut(&number)?;
        let (life, pid) = (link.life.clone(), link.pid);
        let Some(up) = link.up.pop_front() else {
            self.links.remove(&number);
            let present = daemon.connections.get(&life) == Some(&number);
            return present.then(|| {
                daemon.connections.remove(&life);
                Event::Disconnected { life }
            });
        };
        match up {
            Up::Born => {
                daemon.connections.insert(life, number);
                None
            }
            Up::Back(environment, state) => {
                if daemon.supervised.get(&life) != Some(&pid) {
                    link.down.push_back(ToWorker::Stranger { why: "no such life".to_owned() });
                    return None;
                }
                daemon.connections.insert(life.clone(), number);
                daemon.environments.insert(life.name.clone(), environment.clone());
                let state = if self.is(Mutant::StatesAreNotHeard) { Default::default() } else { state };
                Some(Event::Connected { life, environment: Some(environment), state })
            }
            Up::Says(_) if daemon.connections.get(&life) != Some(&number) => None,
            Up::Says(FromWorker::State(_)) if self.is(Mutant::StatesAreNotHeard) => None,
            Up::Says(FromWorker::State(state)) => Some(Event::Said { life, state }),
            Up::Says(FromWorker::Leaving) => Some(Event::Leaving { life }),
            Up::Says(FromWorker::Named { request_id, offset, .. }) => {
                let line = self.line_of_the_lead(offset);
                Some(Event::Named { life, request_id, line })
            }
        }
    }

    fn line_of_the_lead(&mut self, offset: u64) -> Result<Box<Message>, String> {
        if !self.calm && self.rng.one_in(60) {
            return Err("cannot read it".to_owned());
        }
        let inbox = self.disk.inboxes.get(&Name::lead());
        let line = inbox.and_then(|inbox| inbox.get(usize::try_from(offset).unwrap()));
        line.cloned().map(Box::new).ok_or_else(|| "there is no such line".to_owned())
    }

    /// As the dispatcher's function of this name, like all that follow.
    pub(super) fn handle(&mut self, daemon: &mut Daemon, events: Vec<Event>) -> Result<(), End> {
        let mut events: VecDeque<Event> = events.into();
        let now = self.since(daemon);
        if daemon.retry_at.is_some_and(|at| at <= now) {
            daemon.retry_at = None;
            self.complete(daemon, false, None)?;
            // They were taken in when they came: what was said since then is newer.
            let again = std::mem::take(&mut daemon.backlog);
            let batch = self.decide_all(daemon, again, false);
            events.extend(self.carry_out(daemon, batch)?);
        }
        if daemon.live.next_deadline().is_some_and(|at| at <= now) {
            events.push_back(Event::Deadline);
        }
        self.answers_any_line(daemon, &mut events);
        while !events.is_empty() {
            let batch = self.decide_all(daemon, std::mem::take(&mut events), true);
            events = self.carry_out(daemon, batch)?.into();
        }
        Ok(())
    }

    fn decide_all(&mut self, daemon: &mut Daemon, events: VecDeque<Event>, are_new: bool) -> Batch {
        let mut batch = Batch::default();
        for event in events {
            let now = self.now(daemon);
            daemon.live.wall = now.wall;
            if are_new {
                daemon.live.observe(&daemon.team, &event);
            }
            let doctored = self.doctored(&daemon.team);
            let team = doctored.as_ref().unwrap_or(&daemon.team);
            let view = View { team, live: &daemon.live, now, grace: GRACE };
            let mut decision = decide(&view, &event, &mut self.ids);
            self.spoil(&daemon.team, &event, &mut decision);
            for action in &decision.actions {
                if let Action::Kill(life) = action {
                    daemon.live.killed(life);
                }
            }
            self.remember(daemon, &event, !decision.records.is_empty());
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
                self.promises.environments.insert(order.name.clone(), order.environment.clone());
            }
            Event::Command(_, Command::Answer { request_id, approve, .. }) => {
                self.promises.verdicts.insert((request_id.clone(), *approve));
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
            daemon.live.arm(&daemon.team, name, now, GRACE);
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
            Action::Welcome(life) => self.welcome(daemon, &life),
            Action::Say(_, ToWorker::Word(_)) if self.is(Mutant::NoWordOnReconnect) => {}
            Action::Say(life, frame) => self.say(daemon, &life, frame),
            Action::Terminate(life) => self.signal(daemon, &life, false),
            Action::Kill(life) => self.signal(daemon, &life, true),
            Action::Reply(client, _) | Action::Wait(client, ..) | Action::WaitForStop(client) => {
                answered.push(client);
            }
        }
    }

    fn start(&mut self, daemon: &mut Daemon, life: Life) -> Event {
        let environment = daemon.live.member(&life.name).and_then(|alive| alive.environment.clone());
        let Some(environment) = environment else {
            return Event::Started { life, process: Err("its environment was lost".to_owned()) };
        };
        if !self.calm && self.rng.one_in(40) {
            return Event::Started { life, process: Err("cannot run it".to_owned()) };
        }
        let kept = self.promises.starts(&life, &environment);
        self.promise(kept);
        self.disk.inboxes.entry(life.name.clone()).or_default();
        let (pid, link) = self.fork(&life, environment);
        daemon.supervised.insert(life.clone(), pid);
        daemon.connections.insert(life.clone(), link);
        Event::Started { life, process: Ok(identity(pid)) }
    }

    fn welcome(&mut self, daemon: &Daemon, life: &Life) {
        let Some(state) = daemon.team.members.get(&life.name) else { return };
        let Some(word) = word(&daemon.team, &daemon.live, &life.name) else { return };
        let (member, alive) = (&state.record, daemon.live.of(life));
        let welcome = Welcome {
            role: member.role.clone(),
            model: member.model.clone(),
            workspace: member.workspace.clone(),
            conversation: member.conversation,
            begins_at: member.begins_at,
            prompt: state.prompt.clone(),
            watch: alive.is_some_and(|alive| alive.watches),
            environment: alive.and_then(|alive| alive.environment.clone()).unwrap_or_default(),
            word,
        };
        self.say(daemon, life, ToWorker::Welcome(Box::new(welcome)));
    }

    fn say(&mut self, daemon: &Daemon, life: &Life, frame: ToWorker) {
        let link = daemon.connections.get(life).and_then(|number| self.links.get_mut(number));
        if let Some(link) = link.filter(|link| link.daemon_open && link.worker_open) {
            link.down.push_back(frame);
        }
    }

    fn say_word(&mut self, daemon: &Daemon, name: &Name) {
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
        Event::Connected { life, .. }
        | Event::Said { life, .. }
        | Event::Started { life, .. }
        | Event::Found { life }
        | Event::Ended { life, .. }
        | Event::Disconnected { life } => Some(life.name.clone()),
        _ => None,
    }
}

fn subject(record: &Record) -> Option<Name> {
    match record {
        Record::Team(_) => None,
        Record::Member(record) => Some(record.member.name.clone()),
        Record::Request(record) => Name::new(record.request.member()).ok(),
    }
}
