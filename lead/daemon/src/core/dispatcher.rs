//! The dispatcher: it decides events, and has what follows done in order. Pure: [`Io`] does it.
//!
//! The events that are ready are decided and applied one by one ([`batch`]), until one must be
//! carried out before the next is decided. Then their lines are
//! journaled together (group commit, as databases call it), and what follows is done: effects
//! ([`effects`]), then processes, jobs and directives ([`actions`]), then the roster and the
//! answers to commands ([`answers`]). What cannot be journaled has not happened ([`failed`]).

mod actions;
mod answers;
mod batch;
mod effects;
mod failed;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use teamd_shared::control::Command;
use teamd_shared::host::HostStatus;
use teamd_shared::inbox::NOTHING_UNREAD;
use teamd_shared::journal::{Record, Team, TeamRecord};
use teamd_shared::mutant;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::task::{TaskId, TaskStatus};

use self::answers::AnswerQueue;
use self::batch::DecisionBatch;
use self::failed::JournalState;
use super::decide::DecisionView;
use super::event::{Action, Event, Now};
use super::incarnation::Incarnation;
use super::io::Io;
use super::job::JobPlaces;
use super::runtime::{DecisionRules, Runtime};
use super::waiters::Waiters;

/// The pause before something that failed is tried again.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// The state that decisions rest on, and what waits to be decided or done.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    /// The fold of the journal.
    pub(crate) team: Team,
    /// What only this run of the daemon knows.
    pub(crate) runtime: Runtime,
    /// The commands that wait for something.
    pub(crate) waiters: Waiters,
    /// How far the lead's inbox is consumed. The next line of the journal says so.
    pub(crate) lead: Position,
    stage: DaemonStage,
    /// The settings that decisions rest on.
    pub(crate) rules: DecisionRules,
    /// What has happened and is not decided yet, in its order.
    pub(super) events: VecDeque<Event>,
    /// The tasks whose check waits until the gate of their author is closed.
    held_checks: BTreeSet<TaskId>,
    places: JobPlaces,
    /// Events that are queued later, and when: failed starts, and checks that could not run.
    delayed: Vec<(Duration, Event)>,
    answers: AnswerQueue,
    /// When undone effects are tried again.
    retry_at: Option<Duration>,
    journal: JournalState,
}

/// How long a teammate that holds a task may wait for its commands in the background.
const WAITS_FOR_COMMANDS: Duration = Duration::from_secs(600);

/// How far the daemon has come.
#[derive(Debug, Default)]
enum DaemonStage {
    /// It decides events.
    #[default]
    Running,
    /// The journal has the line of the end: nothing is decided any more.
    Closed,
    /// It is to end, for this reason.
    Ended(DaemonEnd),
}

/// Why the daemon ends.
#[derive(Debug)]
pub(crate) enum DaemonEnd {
    /// It was ordered to, and no worker is left.
    Stopped,
    /// It becomes another program.
    HandedOver,
    /// It cannot continue, for this reason.
    Failed(String),
}

/// Tells whether an event orders a spawn.
fn is_spawn(event: &Event) -> bool {
    matches!(
        event,
        Event::Spawn(..) | Event::Command(_, _, Command::Spawn { .. })
    )
}

impl Dispatcher {
    /// Makes the dispatcher of a daemon that begins with this state.
    pub(crate) fn new(team: Team, rules: DecisionRules, places: JobPlaces) -> Self {
        Self {
            lead: team.lead,
            team,
            runtime: Runtime::default(),
            waiters: Waiters::default(),
            stage: DaemonStage::default(),
            rules,
            events: VecDeque::new(),
            held_checks: BTreeSet::new(),
            places,
            delayed: Vec::new(),
            answers: AnswerQueue::default(),
            retry_at: None,
            journal: JournalState::default(),
        }
    }

    /// Begins. First comes what every start of a daemon writes, then what the daemon before may not
    /// have done. No client is served earlier.
    pub(crate) fn begin(&mut self, record: TeamRecord, io: &mut dyn Io) {
        let mut batch = DecisionBatch {
            touched: self.team.members.keys().cloned().collect(),
            ..DecisionBatch::default()
        };
        self.record(vec![Record::Team(Box::new(record))], io.now(), &mut batch);
        if let Err(error) = io.append(&batch.lines) {
            let why = format!("cannot write the journal: {}", error.why);
            return self.end_with(DaemonEnd::Failed(why));
        }
        io.show_tasks(&self.team.tasks.values().collect::<Vec<_>>());
        self.complete(true, io);
        self.finish_effects(io);
        self.carry_out(batch, io);
        let in_review = self
            .team
            .tasks
            .values()
            .filter(|task| task.status == TaskStatus::InReview);
        self.events
            .extend(in_review.map(|task| Event::Review { task: task.id }));
        // The daemon before may have died in between.
        let names: Vec<Name> = self.team.members.keys().cloned().collect();
        for name in names {
            if self.team.held_by(&name).is_none() {
                self.perform(Action::Keep(name, None), io);
            }
        }
    }

    /// Decides events and all that is due, and has what follows done.
    pub(crate) fn handle(&mut self, events: Vec<Event>, io: &mut dyn Io) {
        let now = io.now();
        for event in events {
            self.queue(event);
        }
        let due: Vec<_> = self
            .delayed
            .extract_if(.., |(at, _)| *at <= now.monotonic)
            .collect();
        for (_, event) in due {
            self.queue(event);
        }
        if self.retry_at.is_some_and(|at| at <= now.monotonic) {
            self.complete(true, io);
        }
        if self
            .runtime
            .next_deadline()
            .is_some_and(|at| at <= now.monotonic)
        {
            self.look_at_workers(io);
            self.runtime.spare_idle(&self.team, now);
            self.queue(Event::Deadline);
        }
        while matches!(self.stage, DaemonStage::Running) && !self.journal.is_blocked(io.now()) {
            if self.runtime.orders.look(&self.team, io.now()) {
                self.events.push_back(Event::Orders);
            }
            if !self.events.is_empty() {
                self.take_batch(io);
            } else if self.journal.take_retry() {
                // The line of the end follows from no event.
                self.close_if_all_are_gone(io);
            } else {
                break;
            }
        }
        self.answer_quiet(io);
    }

    fn take_batch(&mut self, io: &mut dyn Io) {
        // A name is free once the files of its earlier owner are in the archive. A spawn does not
        // wait for the next try.
        if self.retry_at.is_some() && self.events.iter().any(is_spawn) {
            self.complete(true, io);
            self.finish_effects(io);
        }
        let batch = self.decide_all(io);
        if !batch.lines.is_empty() {
            if mutant::is_on("effect-before-journal") {
                self.complete(false, io);
            }
            if let Err(error) = io.append(&batch.lines) {
                return self.not_written(batch, error, io);
            }
            self.journal = JournalState::Writable;
            // The file of a task is written first: a message may refer to it.
            let changed = batch.tasks.iter().filter_map(|id| self.team.tasks.get(id));
            io.show_tasks(&changed.collect::<Vec<_>>());
            self.complete(false, io);
        }
        if batch.forgets {
            // The name is free for a spawn once the files of its earlier owner are in the archive,
            // and that is synced.
            self.finish_effects(io);
        }
        self.carry_out(batch, io);
    }

    /// Returns when something is due without any event, since the daemon began.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let delayed = self.delayed.iter().map(|(at, _)| *at).min();
        let decides = match self.journal.retry_at() {
            Some(until) => Some(until),
            None if self.events.is_empty() => {
                let deadline = self.runtime.next_deadline();
                let orders = self.runtime.orders.wakes_at();
                deadline.into_iter().chain(orders).min()
            }
            None => Some(Duration::ZERO),
        };
        [decides, self.retry_at, delayed]
            .into_iter()
            .flatten()
            .min()
    }

    /// Tells whether the daemon is about to end, or has written that it has.
    pub(crate) fn is_stopping(&self) -> bool {
        self.team.stopping || !matches!(self.stage, DaemonStage::Running)
    }

    /// Returns why the daemon is to end, if it is.
    pub(crate) fn end(&self) -> Option<&DaemonEnd> {
        match &self.stage {
            DaemonStage::Ended(end) => Some(end),
            DaemonStage::Running | DaemonStage::Closed => None,
        }
    }

    /// Ends the daemon, for this reason.
    pub(crate) fn end_with(&mut self, end: DaemonEnd) {
        self.stage = DaemonStage::Ended(end);
    }

    /// Tells whether an event is not decided yet.
    pub(crate) fn has_undecided(&self) -> bool {
        !self.events.is_empty()
    }

    /// Records that mail has come for an incarnation: its worker should react.
    pub(crate) fn mail_arrived(&mut self, incarnation: &Incarnation, now: Now) {
        self.runtime
            .mail_arrived(&self.team, incarnation, now, self.rules);
    }

    /// Records whether a worker runs commands in the background. Their end wakes it, so it is not
    /// reminded of its task meanwhile; but not for ever.
    pub(crate) fn runs_commands(&mut self, incarnation: &Incarnation, run: bool, now: Now) {
        let until = run.then(|| now.monotonic + WAITS_FOR_COMMANDS);
        self.runtime.record_commands(incarnation, until);
        if let Some(until) = until {
            let incarnation = incarnation.clone();
            self.delayed.push((until, Event::Remind { incarnation }));
        }
    }

    /// Returns the hosts and their links.
    pub(crate) fn hosts(&self, now: Now) -> Vec<HostStatus> {
        self.view(now).hosts()
    }

    fn view(&self, now: Now) -> DecisionView<'_> {
        DecisionView {
            team: &self.team,
            runtime: &self.runtime,
            now,
            rules: self.rules,
            places: &self.places,
            prepared: None,
            unread: &NOTHING_UNREAD,
        }
    }
}
