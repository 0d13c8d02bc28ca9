//! The simulated daemon: the real dispatcher, and owners of its resources that may kill it at any
//! call.
//!
//! What is decided, folded and said, and in which order, comes from the real code; only what
//! touches the world is played here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use teamd_shared::control::{Command, SpawnOrder, TaskOrder, ToWorker};
use teamd_shared::environment::Environment;
use teamd_shared::id::RequestId;
use teamd_shared::inbox::Unread;
use teamd_shared::journal::{Line, Team};
use teamd_shared::member::{Gate, MemberStatus};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::task::{Task, TaskId};

use super::super::mutants::Mutant;
use super::super::promises::Promises;
use super::jobs::SimJob;
use super::machine::identity;
use super::world::{RULES, World};
use crate::core::caller::Actor;
use crate::core::decide::{Decision, DecisionView, decide};
use crate::core::dispatcher::{DaemonEnd, Dispatcher};
use crate::core::effect_queues::EffectQueues;
use crate::core::event::{Action, Event, Now};
use crate::core::incarnation::Incarnation;
use crate::core::io::{Io, IoFailed, NotWritten};
use crate::core::job::{JobPlaces, Then};
use crate::core::runtime::Runtime;
use crate::core::status::status;

pub(in super::super) struct Daemon {
    pub(in super::super) dispatcher: Dispatcher,
    pub(super) began: Duration,
    /// The present connection of each incarnation.
    pub(super) connections: BTreeMap<Incarnation, u64>,
    pub(super) supervised: BTreeMap<Incarnation, u32>,
    /// The incarnations whose process has ended, until their connection does.
    pub(super) exited: BTreeSet<Incarnation>,
    /// The incarnations that have ended, until nothing is left of them.
    pub(super) reaping: Vec<Incarnation>,
    pub(super) commands: VecDeque<Event>,
    /// What follows from what a host has said, and is not handled yet.
    pub(super) from_far: VecDeque<Event>,
    pub(super) effects: EffectQueues,
    /// The roster as it is to be written, and since when it cannot be.
    pub(super) roster: BTreeMap<Name, MemberStatus>,
    pub(in super::super) unwritten: Option<Duration>,
    /// The jobs that run or wait.
    pub(super) jobs: Vec<SimJob>,
    /// The tasks whose files could not be written.
    pub(super) unshown: BTreeMap<TaskId, Task>,
    /// Lines that a mutant takes for written.
    pub(super) unsynced: Vec<Line>,
    /// How many lines of the lead's inbox are read, and when it is looked at without a wake-up.
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
        Now {
            wall: self.clocks.wall,
            monotonic: self.since(daemon),
            since_boot: self.clocks.monotonic,
        }
    }

    /// The daemon takes in something of what is ready, and handles it.
    pub(super) fn daemon_step(&mut self) {
        let Some(mut daemon) = self.daemon.take() else {
            return;
        };
        self.begins_a_turn();
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
                self.loses_jobs(&mut daemon);
                self.daemon_is_gone();
            }
            Ok(()) if daemon.dispatcher.end().is_some() => {
                self.note(|| format!("  the daemon ends: {:?}", daemon.dispatcher.end()));
                let checked = self
                    .promises
                    .ends(matches!(daemon.dispatcher.end(), Some(DaemonEnd::Stopped)));
                self.check(checked);
                self.far_loses_home();
                self.links
                    .values_mut()
                    .filter(|link| link.far.is_none())
                    .for_each(|link| link.daemon_open = false);
            }
            Ok(()) => self.daemon = Some(daemon),
        }
    }

    fn handles(&mut self, daemon: &mut Daemon, events: Vec<Event>) -> Result<(), Killed> {
        self.dispatches(daemon, |dispatcher, hands| dispatcher.handle(events, hands))?;
        if self.is(Mutant::BacklogIsForgotten) {
            daemon.dispatcher.forget_undecided();
        }
        if daemon.dispatcher.has_answers() {
            self.dispatches(daemon, |dispatcher, hands| dispatcher.answer(hands))?;
        }
        for (client, answer) in daemon.dispatcher.take_replies() {
            if !self.calm && self.rng.one_in(250) {
                return Err(Killed);
            }
            self.note(|| format!("  {client:?} is answered {answer:?}"));
            self.reply(daemon, client, answer);
        }
        if self.is(Mutant::RosterComesLate) {
            self.disk.roster.clone_from(&daemon.roster);
        }
        // The lazy write of the roster brings them.
        for task in std::mem::take(&mut daemon.unshown).into_values() {
            self.writes_task(daemon, &task);
        }
        if self.calm || !self.rng.one_in(20) {
            match self.finishes_effects(daemon)? {
                Ok(seq) => daemon.dispatcher.mark_done(seq),
                Err(IoFailed) => daemon.dispatcher.try_again_later(self.now(daemon)),
            }
        }
        Ok(())
    }

    /// Has the real dispatcher act on the world, until the daemon is killed.
    pub(super) fn dispatches(
        &mut self,
        daemon: &mut Daemon,
        act: impl FnOnce(&mut Dispatcher, &mut Hands<'_>),
    ) -> Result<(), Killed> {
        let knows_its_journal = knows_its_journal(daemon);
        let mut dispatcher = std::mem::replace(
            &mut daemon.dispatcher,
            Dispatcher::new(Team::default(), RULES, JobPlaces::default()),
        );
        let mut hands = Hands {
            world: self,
            daemon,
            killed: false,
            unjournaled: false,
            knows_its_journal,
        };
        act(&mut dispatcher, &mut hands);
        let killed = hands.killed;
        daemon.dispatcher = dispatcher;
        if killed {
            return Err(Killed);
        }
        // A mutant has put them off.
        let lines = std::mem::take(&mut daemon.unsynced);
        self.journals(daemon, &lines);
        Ok(())
    }

    fn decides(&mut self, heard: &mut Heard, view: &DecisionView<'_>, event: &Event) -> Decision {
        let doctored = self.doctored(view.team, event);
        let seen = DecisionView {
            team: doctored.as_ref().unwrap_or(view.team),
            ..*view
        };
        let as_person = self.as_a_person(event);
        let mut decision = decide(&seen, as_person.as_ref().unwrap_or(event), &mut self.ids);
        if let Some(_) = as_person
            && let Event::Command(_, Actor::Member(name), _) = event
        {
            decision.is_by(name);
        }
        self.spoil(view.team, event, &mut decision);
        if !decision.records.is_empty() {
            self.remember(heard, view, event);
        }
        let members = view
            .team
            .members
            .values()
            .map(|state| Incarnation::of(&state.record));
        self.promises
            .forced
            .extend(members.filter(|member| is_forced(event, &member.name)));
        if let Event::Command(_, _, Command::Task(TaskOrder::Add { id, tasks, .. })) = event {
            self.promises.tasks.is_to_make(id, tasks.len());
        }
        if let Some(client) = view.runtime.client(event) {
            let follows = decision.actions.iter().filter(|it| **it != Action::Offer);
            let is_gone = client.agent && decision.records.is_empty() && follows.count() == 0;
            if !is_gone {
                let checked = self.promises.is_asked(client, &decision.actions);
                self.check(checked);
            }
            if !decision.records.is_empty() && spawn_of(view, event).is_none() {
                let checked = self.promises.done_for(client, view.team);
                self.check(checked);
            }
        }
        decision
    }

    /// What the promises must know of an event that was decided.
    fn remember(&mut self, heard: &mut Heard, view: &DecisionView<'_>, event: &Event) {
        match (event, spawn_of(view, event)) {
            (_, Some((id, order))) => {
                self.promises.asked_at.insert(id.clone(), order.asked_at);
                heard
                    .environments
                    .insert(order.name.clone(), order.environment.clone());
                heard
                    .farewells
                    .retain(|incarnation| incarnation.name != order.name);
                self.promises
                    .environments
                    .insert(order.name.clone(), order.environment.clone());
            }
            (
                Event::Command(
                    client,
                    _,
                    Command::Answer {
                        request_id,
                        approve,
                        ..
                    },
                ),
                _,
            ) => {
                let Promises {
                    verdicts,
                    verdicts_of_the_lead,
                    ..
                } = &mut self.promises;
                let verdicts = if client.agent {
                    verdicts_of_the_lead
                } else {
                    verdicts
                };
                verdicts.insert((request_id.clone(), *approve));
            }
            _ => {}
        }
    }

    fn starts(
        &mut self,
        daemon: &mut Daemon,
        incarnation: Incarnation,
        environment: Environment,
    ) -> Vec<Event> {
        if self.host_of(&incarnation.name).is_some() {
            return self.starts_there(daemon, incarnation, environment);
        }
        if !self.calm && self.rng.one_in(40) {
            return vec![Event::not_started(incarnation, "cannot run it")];
        }
        let checked = self.promises.starts(&incarnation, &environment);
        self.check(checked);
        self.disk
            .inboxes
            .entry(incarnation.name.clone())
            .or_default();
        let (pid, link) = self.fork(&incarnation, environment);
        daemon.supervised.insert(incarnation.clone(), pid);
        daemon.connections.insert(incarnation.clone(), link);
        vec![Event::Started {
            incarnation,
            process: Ok(identity(pid)),
            cgroup: None,
        }]
    }

    pub(super) fn say(&mut self, daemon: &Daemon, incarnation: &Incarnation, mut frame: ToWorker) {
        if let ToWorker::Directive(directive) = &mut frame
            && directive.checking.is_some()
            && self.is(Mutant::ChecksLeaveTheGateOpen)
        {
            directive.gate = Gate::Open;
        }
        if !self.is_heard(&incarnation.name) {
            return;
        }
        let link = daemon
            .connections
            .get(incarnation)
            .and_then(|number| self.links.get_mut(number));
        if let Some(link) = link.filter(|link| link.daemon_open && link.worker_open) {
            link.down.push_back(frame);
        }
    }

    pub(in super::super) fn signal(
        &mut self,
        daemon: &Daemon,
        incarnation: &Incarnation,
        kill: bool,
    ) {
        // What has ended by now its host knows, too.
        let is_there =
            self.host_of(&incarnation.name).is_some() && self.present_there(incarnation).is_some();
        let pid = daemon.supervised.get(incarnation).copied();
        if pid.is_none() && !is_there {
            return;
        }
        let checked = self.promises.signalled(incarnation);
        self.check(checked);
        let Some(pid) = pid else {
            return self.signals_there(incarnation, kill);
        };
        if kill {
            self.kill(pid);
        } else if let Some(worker) = self.processes.get_mut(&pid) {
            worker.term = true;
            worker.frozen = false;
        }
    }
}

/// Returns the spawn that goes on with an event.
fn spawn_of<'a>(
    view: &'a DecisionView<'_>,
    event: &'a Event,
) -> Option<(&'a RequestId, &'a SpawnOrder)> {
    match event {
        Event::Spawn(_, id, order, _) => Some((id, order)),
        Event::JobEnded { job, .. } => match view.runtime.jobs.then(*job)? {
            Then::Spawn(_, id, order, _) => Some((id, order)),
            _ => None,
        },
        _ => None,
    }
}

/// Tells whether an event ends a member whatever that says, also when it cannot be journaled.
fn is_forced(event: &Event, name: &Name) -> bool {
    match event {
        Event::Command(_, _, Command::Shutdown(order)) => {
            order.force_after.is_some() && order.name == *name
        }
        Event::Command(_, _, Command::Stop { force }) => *force,
        event => *event == Event::Terminate,
    }
}

/// What the dispatcher of a simulated daemon acts on. Once the daemon is killed, nothing that it
/// does has an effect.
pub(super) struct Hands<'a> {
    world: &'a mut World,
    daemon: &'a mut Daemon,
    killed: bool,
    /// Whether a decision is not journaled yet: nothing may follow from it.
    unjournaled: bool,
    knows_its_journal: bool,
}

impl Hands<'_> {
    /// Kills the daemon now and then. Returns true if it is dead.
    fn dies(&mut self) -> bool {
        self.killed |= !self.world.calm && self.world.rng.one_in(250);
        self.killed
    }

    /// Tells whether the daemon is alive to act, which it may only on what is journaled.
    fn acts(&mut self) -> bool {
        if self.dies() {
            return false;
        }
        let checked = if self.unjournaled && self.knows_its_journal {
            Err("something follows from a decision that is not journaled".to_owned())
        } else {
            Ok(())
        };
        self.world.check(checked);
        true
    }

    fn rests_on(&mut self, team: &Team) {
        if self.knows_its_journal {
            let checked = self
                .world
                .promises
                .is_written(team, self.world.disk.journal.len());
            self.world.check(checked);
        }
    }

    fn lives<T>(&mut self, done: Result<Result<T, IoFailed>, Killed>) -> Result<T, IoFailed> {
        done.unwrap_or_else(|Killed| {
            self.killed = true;
            Err(IoFailed)
        })
    }
}

impl Io for Hands<'_> {
    fn unread_mail(&mut self, _: &Name, _: Position) -> Unread {
        Unread::default()
    }

    fn position_at(&mut self, _: &Name, _: u64) -> Position {
        Position::START
    }

    fn has_unread(&mut self, _: &Name, _: u64) -> bool {
        false
    }

    fn show_tasks(&mut self, tasks: &[&Task]) {
        for task in tasks {
            if !self.acts() {
                return;
            }
            self.world.writes_task(self.daemon, task);
        }
    }

    fn now(&self) -> Now {
        self.world.now(self.daemon)
    }

    fn decide(&mut self, view: &DecisionView<'_>, event: &Event) -> Decision {
        let decision = self.world.decides(&mut self.daemon.heard, view, event);
        self.unjournaled |= !decision.records.is_empty();
        decision
    }

    fn append(&mut self, lines: &[Line]) -> Result<(), NotWritten> {
        self.unjournaled = false;
        let dead = || NotWritten {
            why: "it is dead".to_owned(),
            journal: Err("it is dead".to_owned()),
        };
        if self.dies() {
            return Err(dead());
        }
        let appended = self
            .world
            .appends(self.daemon, lines)
            .unwrap_or_else(|Killed| {
                self.killed = true;
                Err(dead())
            });
        if let Err(NotWritten {
            journal: Err(_), ..
        }) = appended
        {
            self.knows_its_journal = false;
        }
        appended
    }

    fn complete(&mut self, team: &Team, again: bool) -> Result<(), IoFailed> {
        if !self.acts() {
            return Err(IoFailed);
        }
        self.rests_on(team);
        let done = self.world.completes(self.daemon, team, again);
        self.lives(done)
    }

    fn finish_effects(&mut self) -> Result<u64, IoFailed> {
        if !self.acts() {
            return Err(IoFailed);
        }
        let settled = self.world.finishes_effects(self.daemon);
        self.lives(settled)
    }

    fn perform(&mut self, _: &Team, action: &Action) -> Vec<Event> {
        let acts = self.acts();
        let Hands { world, daemon, .. } = self;
        match action {
            Action::Start(incarnation, _) if !acts => {
                return vec![Event::not_started(incarnation.clone(), "it is dead")];
            }
            _ if !acts => {}
            Action::Start(incarnation, ordered) => {
                let environment = ordered.clone().unwrap().environment;
                return world.starts(daemon, incarnation.clone(), environment);
            }
            Action::Terminate(incarnation) => world.signal(daemon, incarnation, false),
            Action::Kill(incarnation) => world.signal(daemon, incarnation, true),
            Action::Say(incarnation, frame) => world.say(daemon, incarnation, frame.clone()),
            Action::Look(client, id, order, _) => {
                let facts = world.spawn_facts(order);
                return vec![Event::Spawn(*client, id.clone(), order.clone(), facts)];
            }
            Action::Run(job, order) => world.begins_job(daemon, *job, order),
            Action::EndJob(job) => World::ends_job(daemon, *job),
            other => panic!("{other:?}"),
        }
        Vec::new()
    }

    fn show(&mut self, team: &Team, runtime: &Runtime, names: &BTreeSet<Name>) {
        if !self.acts() {
            return;
        }
        self.rests_on(team);
        let roster = &mut self.daemon.roster;
        for name in names {
            match team.members.get(name) {
                Some(state) => roster.insert(name.clone(), status(team, runtime, &state.record)),
                None => roster.remove(name),
            };
        }
        if self.knows_its_journal {
            let checked = self.world.promises.agrees_with(team);
            self.world.check(checked);
        }
    }

    fn write_roster(&mut self, team: &Team) -> Result<(), IoFailed> {
        if !self.acts() {
            return Err(IoFailed);
        }
        self.rests_on(team);
        let unshown = std::mem::take(&mut self.daemon.unshown);
        self.show_tasks(&unshown.values().collect::<Vec<_>>());
        let now = self.now();
        let world = &mut *self.world;
        if !world.calm && world.rng.one_in(20) {
            world.note(|| "  the roster cannot be written".to_owned());
            self.daemon.unwritten.get_or_insert(now.monotonic);
            return Err(IoFailed);
        }
        if !world.is(Mutant::RosterComesLate) {
            world.disk.roster.clone_from(&self.daemon.roster);
            self.daemon.unwritten = None;
        }
        Ok(())
    }
}

/// Tells whether the state of a daemon is what its journal says. After a refused sync that is not
/// known: what it still says, before it ends, rests on earlier lines.
pub(super) fn knows_its_journal(daemon: &Daemon) -> bool {
    !matches!(daemon.dispatcher.end(), Some(DaemonEnd::Failed(_)))
}
