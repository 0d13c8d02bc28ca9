//! The batches: which events are taken together, what is journaled before what is done, and what is said when (group
//! commit, as databases call it). Pure.
//!
//! The batcher does nothing itself. It gives out one step after the other ([`Batcher::next`]), and is told how those steps went
//! whose outcome matters. The event loop does the steps; the simulation plays them, and kills the daemon between any two.

mod answers;
mod failed;
mod step;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use teamd_shared::control::{Done, Refusal, ToWorker};
use teamd_shared::environment::Environment;
use teamd_shared::journal::{Line, Record, Team, TeamEvent, TeamRecord, VERSION};
use teamd_shared::name::Name;
use teamd_shared::position::Position;

use crate::daemon::core::decide::{Decision, View, is_being_archived};
use crate::daemon::core::event::{Action, Client, Event, Incarnation, Now};
use crate::daemon::core::live::{Live, Rules};
use crate::daemon::core::waiters::Waiters;
use crate::daemon::core::watchdog::Finding;
pub(crate) use step::{End, Introduction, NewWorker, Step};

/// How long what failed waits, before it is tried again.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// Decides what follows from an event: [`crate::daemon::core::decide::decide`], and the source of its ids.
pub(crate) type Decide<'a> = dyn FnMut(&View<'_>, &Event) -> Decision + 'a;

/// The answer to a command.
pub(crate) type Reply = Result<Done, Refusal>;

/// The state that decisions rest on, and what waits to be done.
#[derive(Debug)]
pub(crate) struct Batcher {
    /// The fold of the journal.
    pub(crate) team: Team,
    /// What only this run of the daemon knows.
    pub(crate) live: Live,
    /// The commands that wait for something.
    pub(crate) waiters: Waiters,
    /// How far the lead's inbox is taken in: this stands in the next line of the journal.
    pub(crate) lead: Position,
    /// Set when the daemon shall end.
    pub(crate) end: Option<End>,
    /// The settings that decisions rest on.
    pub(crate) rules: Rules,
    /// Which half of its start each new worker has behind it.
    introductions: HashMap<Incarnation, Introduction>,
    /// What has happened and is not decided yet, in its order.
    pub(super) events: VecDeque<Event>,
    /// Starts that failed, and when that is taken in.
    delayed: Vec<(Duration, Event)>,
    steps: VecDeque<Step>,
    /// The batch whose lines are being written.
    writing: Option<Batch>,
    /// How far the journal of this run has come.
    journal: Journal,
    /// The answers to commands, which wait until the roster shows what they say.
    answers: Vec<(Client, Reply)>,
    /// Since when they wait for a roster that cannot be written.
    unshown: Option<Duration>,
    /// When undone effects are tried again.
    retry_at: Option<Duration>,
    /// While the journal cannot be written: when that is tried again.
    stuck_until: Option<Duration>,
    /// The last line that was to be settled before a spawn is decided.
    settled_for: u64,
}

/// How far the journal of this run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Journal {
    Open,
    /// The line of the end is due.
    Closes,
    /// It is written: nothing is decided any more.
    Closed,
}

/// What a batch of events led to.
#[derive(Debug, Default)]
struct Batch {
    lines: Vec<Line>,
    actions: Vec<Action>,
    events: Vec<Event>,
    /// The incarnations that were ordered, with their environments.
    ordered: Vec<(Incarnation, Environment)>,
    /// The members that are started again.
    restarted: BTreeSet<Name>,
    /// The members that lines were written about.
    subjects: BTreeSet<Name>,
    /// The members that something was decided or said about.
    touched: BTreeSet<Name>,
    /// Whether a teammate has rejected the stop.
    stop_rejected: bool,
    boundary: Option<Boundary>,
}

/// The first or the last batch of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Boundary {
    Start,
    End,
}

impl Batcher {
    /// Makes the batcher of a daemon that begins with this state.
    pub(crate) fn new(team: Team, rules: Rules) -> Self {
        Self {
            lead: team.lead,
            team,
            live: Live::default(),
            waiters: Waiters::default(),
            end: None,
            rules,
            introductions: HashMap::new(),
            events: VecDeque::new(),
            delayed: Vec::new(),
            steps: VecDeque::new(),
            writing: None,
            journal: Journal::Open,
            answers: Vec::new(),
            unshown: None,
            retry_at: None,
            stuck_until: None,
            settled_for: 0,
        }
    }

    /// Begins. First comes what every start of a daemon writes, then what the daemon before may not have done. No client is
    /// served earlier.
    pub(crate) fn begin(&mut self, record: TeamRecord, now: Now) {
        let mut batch = Batch { boundary: Some(Boundary::Start), ..Batch::default() };
        batch.touched.extend(self.team.members.keys().cloned());
        self.record(vec![Record::Team(record)], now, &mut batch);
        self.write(batch);
    }

    /// Takes in events, and what is due now. [`Batcher::next`] then gives out the steps.
    pub(crate) fn handle(&mut self, events: Vec<Event>, now: Now) {
        events.into_iter().for_each(|event| self.queue(event));
        let due: Vec<_> = self.delayed.extract_if(.., |(at, _)| *at <= now.monotonic).collect();
        due.into_iter().for_each(|(_, event)| self.queue(event));
        if self.retry_at.is_some_and(|at| at <= now.monotonic) {
            self.retry_at = None;
            self.steps.push_back(Step::Complete { again: true });
        }
        if self.live.next_deadline().is_some_and(|at| at <= now.monotonic) {
            self.look_at_workers(now);
            self.queue(Event::Deadline);
        }
    }

    /// Takes in how [`Step::Start`] went. If no process could be started for an incarnation that follows a crash, that is taken
    /// in after [`RETRY`]: what is short is short for more than a moment, and each attempt counts.
    pub(crate) fn started(&mut self, started: Event, now: Now) {
        let Event::Started { incarnation, process: Err(_), .. } = &started else {
            return self.happened(started);
        };
        let member = self.team.members.get(&incarnation.name).map(|state| &state.record);
        if member.is_some_and(|member| member.restarted > 0) {
            self.delayed.push((now.monotonic + RETRY, started));
        } else {
            self.happened(started);
        }
    }

    /// Queues what a step has brought about. It is handled when everything that was decided before is done.
    fn happened(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Tells whether the daemon is about to end, or has written that it has.
    pub(crate) fn is_stopping(&self) -> bool {
        self.team.stopping || self.journal != Journal::Open
    }

    /// Takes in that mail has come for an incarnation: its worker should react.
    pub(crate) fn mail_arrived(&mut self, incarnation: &Incarnation, now: Now) {
        self.live.mail_arrived(&self.team, incarnation, now, self.rules);
    }

    /// Returns what is to be done next; none if nothing is left to be done.
    pub(crate) fn next(&mut self, now: Now, decide: &mut Decide<'_>) -> Option<Step> {
        debug_assert!(
            self.writing.is_none() || !self.steps.is_empty(),
            "the outcome of the append was not reported"
        );
        loop {
            if let Some(step) = self.steps.pop_front() {
                return Some(step);
            }
            if self.end.is_some() || self.journal == Journal::Closed {
                return None;
            }
            if self.journal == Journal::Closes {
                self.journal = Journal::Open;
                self.close(now);
                continue;
            }
            if self.is_stuck(now) {
                return None;
            }
            if self.stuck_until.is_some() && self.events.is_empty() {
                // The line of the end follows from no event.
                self.stuck_until = None;
                self.close_if_all_are_gone();
                continue;
            }
            if self.events.is_empty() {
                return None;
            }
            if self.settles_first() {
                continue;
            }
            let batch = self.decide_all(now, decide);
            if batch.lines.is_empty() { self.carry_out(batch, now) } else { self.write(batch) }
        }
    }

    /// Returns when something is due without any event, since the daemon began.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let delayed = self.delayed.iter().map(|(at, _)| *at).min();
        let decides = match self.stuck_until {
            Some(until) => Some(until),
            None if self.events.is_empty() => self.live.next_deadline(),
            None => Some(Duration::ZERO),
        };
        [decides, self.retry_at, delayed].into_iter().flatten().min()
    }

    /// Lets a spawn of a forgotten name wait until the files of its earlier owner are in the archive and synced. If that cannot
    /// be done, the spawn is refused.
    fn settles_first(&mut self) -> bool {
        let waits = self.events.front().is_some_and(|event| waits_for_the_archive(&self.team, event));
        if !waits || self.settled_for == self.team.seq {
            return false;
        }
        self.settled_for = self.team.seq;
        if self.retry_at.take().is_some() {
            self.steps.push_back(Step::Complete { again: true });
        }
        self.steps.push_back(Step::Settle);
        true
    }

    /// Tells whether an event is not decided yet.
    pub(crate) fn has_undecided(&self) -> bool {
        !self.events.is_empty()
    }

    /// Asks the workers that should answer, and finds those that have not.
    fn look_at_workers(&mut self, now: Now) {
        // Their answers are not looked at either.
        if self.stuck_until.is_some() {
            return;
        }
        for (incarnation, finding) in self.live.look(&self.team, now, self.rules) {
            match finding {
                Finding::Ask(number) => {
                    self.steps.push_back(Step::Say(incarnation, ToWorker::Ping { number }))
                }
                Finding::Silent => self.events.push_back(Event::Silent { incarnation }),
                Finding::Hung => self.events.push_back(Event::Hung { incarnation }),
            }
        }
    }

    fn decide_all(&mut self, now: Now, decide: &mut Decide<'_>) -> Batch {
        let mut batch = Batch::default();
        while let Some(event) = self.events.pop_front() {
            // What is forgotten in this batch is not in the archive yet.
            if !batch.lines.is_empty() && waits_for_the_archive(&self.team, &event) {
                self.events.push_front(event);
                break;
            }
            self.live.wall = now.wall;
            self.live.observe(&self.team, &event);
            let view = View { team: &self.team, live: &self.live, now, rules: self.rules };
            let decision = decide(&view, &event);
            batch.touched.extend(concerned(&event));
            if let Event::LeadRead { position, .. } = &event {
                self.lead = *position;
            }
            if let Event::Ended { incarnation, .. } = &event {
                self.introductions.remove(incarnation);
            }
            batch.ordered.extend(decision.ordered(&event));
            self.record(decision.records, now, &mut batch);
            batch.actions.extend(decision.actions);
            batch.events.push(event);
        }
        batch
    }

    /// Gives records their lines, and derived records lines of their own.
    fn record(&mut self, records: Vec<Record>, now: Now, batch: &mut Batch) {
        for record in records {
            self.apply(record, now, batch);
        }
        for record in self.team.pending_derived() {
            self.apply(record, now, batch);
        }
        if self.team.snapshot_is_due(self.rules.snapshot_lines)
            && let Some(snapshot) = self.team.snapshot()
        {
            self.apply(snapshot, now, batch);
        }
    }

    /// Gives a record its line, and changes the state by it.
    fn apply(&mut self, record: Record, now: Now, batch: &mut Batch) {
        let lead = Some(self.lead).filter(|&position| position != self.team.lead);
        let line = Line {
            seq: self.team.seq + 1,
            at: now.wall,
            version: (self.team.seq == 0).then_some(VERSION),
            done: self.team.done,
            lead,
            record,
        };
        if let Err(error) = self.team.apply(&line) {
            tracing::error!("a decision does not continue the journal: {error}");
            return;
        }
        batch.subjects.extend(subject(&line.record));
        if let Record::Member(record) = &line.record
            && record.ended_incarnation.is_some()
        {
            batch.restarted.insert(record.member.name.clone());
        }
        batch.stop_rejected |= matches!(&line.record, Record::Team(team) if team.event == TeamEvent::Staying);
        batch.lines.push(line);
    }

    fn write(&mut self, mut batch: Batch) {
        self.steps.push_back(Step::Append(std::mem::take(&mut batch.lines)));
        self.writing = Some(batch);
    }

    /// Takes in that the lines are on the disk: what follows from them is due now.
    pub(crate) fn appended(&mut self, now: Now) {
        let Some(batch) = self.writing.take() else { return };
        self.stuck_until = None;
        match batch.boundary {
            None => self.steps.push_back(Step::Complete { again: false }),
            Some(Boundary::Start) => self.steps.extend([Step::Complete { again: true }, Step::Settle]),
            Some(Boundary::End) => return self.journal_closed(),
        }
        self.carry_out(batch, now);
    }

    /// Queues what follows from a batch: the workers hear first, then the roster shows it, then commands are answered.
    fn carry_out(&mut self, mut batch: Batch, now: Now) {
        batch.touched.extend(batch.subjects.iter().cloned());
        for (incarnation, environment) in batch.ordered {
            self.live.ordered(&incarnation, environment);
        }
        for state in batch.restarted.iter().filter_map(|name| self.team.members.get(name)) {
            self.live.restarted(&state.record, now);
        }
        for name in &batch.touched {
            self.live.arm(&self.team, name, now, self.rules);
        }
        for action in batch.actions {
            self.perform(action);
        }
        // The directives come after what was said to a worker directly: it must know that its plan is recorded
        // before it hears that it is pending.
        for name in &batch.subjects {
            self.push_directive(name);
        }
        for name in &batch.touched {
            self.answers.extend(self.waiters.answered(&self.team, &self.live, name));
        }
        self.steps.push_back(Step::Show(batch.touched));
        if batch.stop_rejected {
            self.answer_rejected_stop();
        }
        self.close_if_all_are_gone();
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Start(incarnation) => self.start(incarnation),
            Action::Welcome(incarnation) => self.introduce(&incarnation, Introduction::Journaled),
            Action::Say(incarnation, frame) => self.steps.push_back(Step::Say(incarnation, frame)),
            Action::Terminate(incarnation) => self.steps.push_back(Step::Terminate(incarnation)),
            Action::Kill(incarnation) => self.kill(incarnation),
            Action::Reply(client, answer) => self.answers.push((client, answer)),
            Action::Wait(client, name, until) => {
                self.waiters.add(client, name.clone(), until);
                self.answers.extend(self.waiters.answered(&self.team, &self.live, &name));
            }
            Action::WaitForStop(client) => self.waiters.add_for_stop(client),
        }
    }

    fn start(&mut self, incarnation: Incarnation) {
        let member = self.team.members.get(&incarnation.name).map(|state| state.record.clone());
        let environment = self.live.member(&incarnation.name).and_then(|alive| alive.environment.clone());
        let why = match (member, environment) {
            (Some(member), Some(environment)) => {
                return self.steps.push_back(Step::Start(Box::new(NewWorker {
                    incarnation,
                    member,
                    environment,
                })));
            }
            (None, _) => "it was forgotten",
            (Some(_), None) => "its environment was lost",
        };
        self.happened(Event::not_started(incarnation, why));
    }

    fn kill(&mut self, incarnation: Incarnation) {
        self.live.killed(&incarnation);
        self.steps.push_back(Step::Kill(incarnation));
    }

    /// Tells whether some effects are not known to be on the disk yet.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.team.done < self.team.seq
    }

    /// Takes in that the effects of all lines up to this one are on the disk. The next line of the journal says so.
    pub(crate) fn settled(&mut self, seq: u64) {
        self.team.mark_done(seq);
    }

    /// Closes the journal once the daemon is stopping and no teammate is left.
    fn close_if_all_are_gone(&mut self) {
        let all_are_gone = self.team.members.values().all(|state| state.record.phase.is_ended());
        if self.team.stopping && all_are_gone {
            // The last line says that nothing is left to be done, so what has failed is tried once more before it.
            if self.retry_at.is_some() {
                self.steps.push_back(Step::Complete { again: true });
            }
            self.steps.push_back(Step::Settle);
            self.journal = Journal::Closes;
        }
    }

    fn close(&mut self, now: Now) {
        let record = TeamRecord::of(TeamEvent::Stopped, self.team.team_name.clone(), None);
        let mut batch = Batch { boundary: Some(Boundary::End), ..Batch::default() };
        self.apply(Record::Team(record), now, &mut batch);
        self.write(batch);
    }
}

/// Tells whether an event is a spawn of a name whose earlier files are not in the archive yet.
fn waits_for_the_archive(team: &Team, event: &Event) -> bool {
    matches!(event, Event::Spawn(_, _, order, _) if is_being_archived(team, &order.name))
}

/// Returns the member that an event is about, beyond those of the records that follow from it.
fn concerned(event: &Event) -> Option<Name> {
    match event {
        Event::Submitted { .. } | Event::Leaving { .. } | Event::Silent { .. } | Event::Hung { .. } => None,
        other => other.incarnation().map(|incarnation| incarnation.name.clone()),
    }
}

fn subject(record: &Record) -> Option<Name> {
    match record {
        Record::Team(_) | Record::Snapshot(_) => None,
        Record::Member(record) => Some(record.member.name.clone()),
        Record::Request(record) => Name::of_inbox(record.request.member()).ok(),
    }
}
