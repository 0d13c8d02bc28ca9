//! The dispatcher: it decides events, and has what follows done in order. Pure: the [`Owners`] do
//! it.
//!
//! All events that are ready are decided and applied one by one. Then their lines are journaled
//! together (group commit, as databases call it), the effects are done, processes are started and
//! ended, directives are sent, and the roster takes it over. What cannot be journaled has not
//! happened ([`failed`]).

mod answers;
mod failed;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use teamd_shared::control::{Command, Done, Refusal, RefusalCode, ToWorker};
use teamd_shared::environment::Environment;
use teamd_shared::journal::{Line, MemberEvent, Record, Team, TeamEvent, TeamRecord, VERSION};
use teamd_shared::mutant;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::task::{TaskId, TaskStatus};

use super::decide::{View, called_off};
use super::directive::{directive, welcome};
use super::event::{Action, Event, Incarnation, Now, ReplyTo};
use super::job::{Job, Places, Then};
use super::live::{Live, Rules};
use super::owners::{Failed, Owners};
use super::waiters::Waiters;
use super::watchdog::LookResult;

/// How long what failed waits, before it is tried again.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// How long a check waits that could not run, before it is tried again.
const CHECK_AGAIN: Duration = Duration::from_secs(10);

/// The answer to a command.
pub(crate) type Answer = Result<Done, Refusal>;

/// The state that decisions rest on, and what waits to be decided or done.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    /// The fold of the journal.
    pub(crate) team: Team,
    /// What only this run of the daemon knows.
    pub(crate) live: Live,
    /// The commands that wait for something.
    pub(crate) waiters: Waiters,
    /// How far the lead's inbox is consumed: this stands in the next line of the journal.
    pub(crate) lead: Position,
    /// Set when the daemon shall end.
    pub(crate) end: Option<End>,
    /// The settings that decisions rest on.
    pub(crate) rules: Rules,
    /// What has happened and is not decided yet, in its order.
    pub(super) events: VecDeque<Event>,
    /// The tasks whose check waits until the gate of their author is closed.
    held_checks: BTreeSet<TaskId>,
    places: Places,
    /// Starts that failed, and when that is taken in.
    delayed: Vec<(Duration, Event)>,
    /// Whether the journal has the line of the end: nothing is decided any more.
    is_closed: bool,
    /// The answers to commands, which wait until the roster shows what they say.
    answers: Vec<(ReplyTo, Answer)>,
    /// Since when they wait for a roster that cannot be written.
    unshown: Option<Duration>,
    /// The answers that can be given now.
    replies: Vec<(ReplyTo, Answer)>,
    /// When undone effects are tried again.
    retry_at: Option<Duration>,
    /// While the journal cannot be written: when that is tried again.
    stuck_until: Option<Duration>,
    /// Why the last line could not be written, until one could.
    trouble: Option<String>,
}

/// Why the daemon ends.
#[derive(Debug)]
pub(crate) enum End {
    /// It was told to, and no worker is left.
    Stopped,
    /// It becomes another program.
    HandedOver,
    /// It cannot go on: why.
    Failed(String),
}

/// What a batch of events led to.
#[derive(Debug, Default)]
struct Batch {
    lines: Vec<Line>,
    actions: Vec<Action>,
    events: Vec<Event>,
    /// The members that lines were written about.
    subjects: BTreeSet<Name>,
    /// The members that something was decided or said about.
    touched: BTreeSet<Name>,
    /// The tasks that lines were written about, and those that they wait for, or waited for.
    tasks: BTreeSet<TaskId>,
    /// Whether its last decision forgets a member.
    forgets: bool,
    /// Whether the next event must be decided after this batch is carried out.
    is_complete: bool,
}

impl Dispatcher {
    /// Makes the dispatcher of a daemon that begins with this state.
    pub(crate) fn new(team: Team, rules: Rules, places: Places) -> Self {
        Self {
            lead: team.lead,
            team,
            live: Live::default(),
            waiters: Waiters::default(),
            end: None,
            rules,
            events: VecDeque::new(),
            held_checks: BTreeSet::new(),
            places,
            delayed: Vec::new(),
            is_closed: false,
            answers: Vec::new(),
            unshown: None,
            replies: Vec::new(),
            retry_at: None,
            stuck_until: None,
            trouble: None,
        }
    }

    /// Begins. First comes what every start of a daemon writes, then what the daemon before may not
    /// have done. No client is served earlier.
    pub(crate) fn begin(&mut self, record: TeamRecord, owners: &mut dyn Owners) {
        let mut batch = Batch {
            touched: self.team.members.keys().cloned().collect(),
            ..Batch::default()
        };
        self.record(vec![Record::Team(record)], owners.now(), &mut batch);
        if let Err(error) = owners.append(&batch.lines) {
            self.end = Some(End::Failed(format!(
                "cannot write the journal: {}",
                error.why
            )));
            return;
        }
        owners.show_tasks(&self.team.tasks.values().collect::<Vec<_>>());
        self.complete(true, owners);
        self.finish_effects(owners);
        self.carry_out(batch, owners);
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
                self.perform(Action::Keep(name, None), owners);
            }
        }
    }

    /// Takes in events, decides them and all that is due, and has what follows done.
    pub(crate) fn handle(&mut self, events: Vec<Event>, owners: &mut dyn Owners) {
        let now = owners.now();
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
            self.complete(true, owners);
        }
        if self
            .live
            .next_deadline()
            .is_some_and(|at| at <= now.monotonic)
        {
            self.look_at_workers(owners);
            self.queue(Event::Deadline);
        }
        while self.end.is_none() && !self.is_closed && !self.is_stuck(owners.now()) {
            if !self.events.is_empty() {
                self.take_batch(owners);
            } else if self.stuck_until.take().is_some() {
                // The line of the end follows from no event.
                self.close_if_all_are_gone(owners);
            } else {
                break;
            }
        }
        self.answer_quiet(owners);
    }

    fn take_batch(&mut self, owners: &mut dyn Owners) {
        // A name is free once the files of its earlier owner are in the archive. A spawn does not
        // wait for the next try.
        if self.retry_at.is_some()
            && self.events.iter().any(|event| {
                matches!(
                    event,
                    Event::Spawn(..) | Event::Command(_, _, Command::Spawn { .. })
                )
            })
        {
            self.complete(true, owners);
            self.finish_effects(owners);
        }
        let batch = self.decide_all(owners);
        if !batch.lines.is_empty() {
            if mutant::is_on("effect-before-journal") {
                self.complete(false, owners);
            }
            if let Err(error) = owners.append(&batch.lines) {
                return self.not_written(batch, error, owners);
            }
            self.stuck_until = None;
            self.trouble = None;
            // What a message says of a task, the task's file says already.
            let changed = batch.tasks.iter().filter_map(|id| self.team.tasks.get(id));
            owners.show_tasks(&changed.collect::<Vec<_>>());
            self.complete(false, owners);
        }
        if batch.forgets {
            // The name is free for a spawn once the files of its earlier owner are in the archive,
            // and that is synced.
            self.finish_effects(owners);
        }
        self.carry_out(batch, owners);
    }

    /// Returns when something is due without any event, since the daemon began.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let delayed = self.delayed.iter().map(|(at, _)| *at).min();
        let decides = match self.stuck_until {
            Some(until) => Some(until),
            None if self.events.is_empty() => self.live.next_deadline(),
            None => Some(Duration::ZERO),
        };
        [decides, self.retry_at, delayed]
            .into_iter()
            .flatten()
            .min()
    }

    /// Tells whether the daemon is about to end, or has written that it has.
    pub(crate) fn is_stopping(&self) -> bool {
        self.team.stopping || self.is_closed
    }

    /// Tells whether an event is not decided yet.
    pub(crate) fn has_undecided(&self) -> bool {
        !self.events.is_empty()
    }

    /// Takes in that mail has come for an incarnation: its worker should react.
    pub(crate) fn mail_arrived(&mut self, incarnation: &Incarnation, now: Now) {
        self.live
            .mail_arrived(&self.team, incarnation, now, self.rules);
    }

    /// Asks the workers that should answer, and finds those that have not.
    fn look_at_workers(&mut self, owners: &mut dyn Owners) {
        // While the journal cannot be written, their answers are not looked at either.
        if self.stuck_until.is_some() {
            return;
        }
        for (incarnation, finding) in self.live.look(&self.team, owners.now(), self.rules) {
            match finding {
                LookResult::Ask(number) => {
                    let ping = ToWorker::Ping { number };
                    self.hand_on(Action::Say(incarnation, ping), owners);
                }
                LookResult::Silent => self.events.push_back(Event::Silent { incarnation }),
            }
        }
    }

    fn decide_all(&mut self, owners: &mut dyn Owners) -> Batch {
        let now = owners.now();
        let mut batch = Batch::default();
        while !batch.is_complete
            && let Some(event) = self.events.pop_front()
        {
            self.live.observe(&self.team, &event);
            let decision = owners.decide(&self.view(now), &event);
            batch.touched.extend(
                event
                    .incarnation()
                    .map(|incarnation| incarnation.name.clone()),
            );
            if let Event::LeadRead { position, .. } = &event {
                self.lead = *position;
            }
            if let Event::JobEnded { job, .. } = &event
                && let Some(name) = self.live.jobs.then(*job).and_then(Then::prepares)
            {
                batch.touched.insert(name.clone());
            }
            batch.forgets = decision.records.iter().any(forgets);
            batch.is_complete = batch.forgets
                || matches!(event, Event::JobEnded { .. })
                || decision.actions.iter().any(changes_jobs);
            self.record(decision.records, now, &mut batch);
            batch.actions.extend(decision.actions);
            batch.events.push(event);
        }
        batch
    }

    fn view(&self, now: Now) -> View<'_> {
        View {
            team: &self.team,
            live: &self.live,
            now,
            rules: self.rules,
            places: &self.places,
            prepared: None,
        }
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
        if let Record::Task(record) = &line.record {
            let before = self.team.tasks.get(&record.task.id);
            let waited_for = before
                .into_iter()
                .chain([&record.task])
                .flat_map(|task| &task.blocked_by);
            batch.tasks.extend(waited_for.chain([&record.task.id]));
        }
        batch.actions.extend(left_behind(&self.team, &line.record));
        if let Err(error) = self.team.apply(&line) {
            tracing::error!("a decision does not continue the journal: {error}");
            return;
        }
        batch.subjects.extend(subjects(&line.record));
        batch.lines.push(line);
    }

    /// Does what follows from a batch: the workers hear first, then the roster takes it over, then
    /// commands have their answers.
    fn carry_out(&mut self, mut batch: Batch, owners: &mut dyn Owners) {
        let now = owners.now();
        batch.touched.extend(batch.subjects.iter().cloned());
        for name in &batch.touched {
            self.live.arm(&self.team, name, now, self.rules);
        }
        for event in &batch.events {
            if let Event::JobEnded { job, ended } = event {
                self.live.job_ended(*job, ended);
            }
        }
        for action in batch.actions {
            self.perform(action, owners);
        }
        self.check_held(owners);
        // The directives come after what was said to a worker directly: it must know that its plan
        // is recorded before it hears that it is pending.
        for name in &batch.subjects {
            self.send_directive(name, owners);
        }
        for name in &batch.touched {
            self.answers
                .extend(self.waiters.answered(&self.team, &self.live, name));
        }
        owners.show(&self.team, &self.live, &batch.touched);
        self.close_if_all_are_gone(owners);
    }

    /// Does what was decided: here what concerns the state of the dispatcher, and the owners do the
    /// rest.
    fn perform(&mut self, action: Action, owners: &mut dyn Owners) {
        match action {
            Action::Start(incarnation, environment) => self.start(incarnation, environment, owners),
            Action::Welcome(incarnation) => {
                if let Some(welcome) = welcome(&self.team, &self.live, &incarnation) {
                    let frame = ToWorker::Welcome(Box::new(welcome));
                    self.hand_on(Action::Say(incarnation, frame), owners);
                }
            }
            Action::Kill(incarnation) => self.kill(&incarnation, owners),
            Action::Begin(job) => self.begin_job(*job, owners),
            Action::CallOff(name) => {
                let now = owners.now().since_boot;
                for (job, client) in self.live.jobs.call_off(&name, now) {
                    self.answers.push((client, Err(called_off(&name))));
                    self.hand_on(Action::EndJob(job), owners);
                }
            }
            Action::Check(id) => {
                self.held_checks.insert(id);
            }
            Action::CheckAgain(task) => {
                self.delayed
                    .push((owners.now().monotonic + CHECK_AGAIN, Event::Review { task }));
            }
            Action::EndCheck(id) => {
                for job in self.live.jobs.end_check(id) {
                    self.hand_on(Action::EndJob(job), owners);
                }
            }
            Action::IntegrateNext => self.events.push_back(Event::Integrate),
            Action::Offer => self.offer(),
            Action::Keep(name, task) => {
                if let Some(job) = self.view(owners.now()).keep(&name, task) {
                    self.begin_job(job, owners);
                }
            }
            Action::Reply(client, answer) => self.answers.push((client, answer)),
            Action::Wait(client, name, until) => {
                self.waiters.add(client, name.clone(), until);
                self.answers
                    .extend(self.waiters.answered(&self.team, &self.live, &name));
            }
            Action::WaitForStop(client) => self.waiters.add_for_stop(client),
            Action::WaitForQuiet(client, goal) => self.waiters.add_for_quiet(client, goal),
            Action::RejectStop => self.answer_rejected_stop(),
            Action::Say(..)
            | Action::Terminate(_)
            | Action::Look(..)
            | Action::Run(..)
            | Action::EndJob(_) => self.hand_on(action, owners),
        }
    }

    fn hand_on(&mut self, action: Action, owners: &mut dyn Owners) {
        let followed = owners.perform(&self.team, &action);
        self.events.extend(followed);
    }

    fn begin_job(&mut self, Job { order, then }: Job, owners: &mut dyn Owners) {
        let client = then.client();
        match (self.live.jobs.begin(then), client) {
            (Some(job), _) => self.hand_on(Action::Run(job, order), owners),
            (None, Some(client)) => self.answers.push((client, Err(being_given_a_task()))),
            (None, None) => {}
        }
    }

    /// Begins the checks whose author cannot change anything any more.
    fn check_held(&mut self, owners: &mut dyn Owners) {
        for id in std::mem::take(&mut self.held_checks) {
            // It may have been withdrawn in the same batch.
            let Some(task) = self.team.tasks.get(&id).filter(|task| task.is_checked()) else {
                continue;
            };
            let author = task.checked_in_place();
            if author.is_some_and(|author| self.may_change(author)) {
                self.held_checks.insert(id);
            } else if let Some(job) = self.view(owners.now()).check(task) {
                self.begin_job(job, owners);
            }
        }
    }

    /// Tells whether the author of work that is to be checked where it works may still change it:
    /// what it has started may run, as long as its worker has not said that its gate is closed.
    fn may_change(&self, author: &Name) -> bool {
        let Some(state) = self
            .team
            .members
            .get(author)
            .filter(|it| !it.record.phase.is_ended())
        else {
            return false;
        };
        let alive = self.live.of(&Incarnation::of(&state.record));
        alive.is_none_or(|alive| alive.said.applied_seq < state.seq)
    }

    /// Has work offered, if there is any; once, however many events have asked for it.
    fn offer(&mut self) {
        if self.events.back() != Some(&Event::Offer)
            && self
                .team
                .tasks
                .values()
                .any(|task| task.status == TaskStatus::Pending)
        {
            self.events.push_back(Event::Offer);
        }
    }

    /// Starts a process. If that fails for an incarnation that follows a crash, it is reported
    /// after [`RETRY`]: what is short is short for more than a moment, and each attempt counts.
    fn start(
        &mut self,
        incarnation: Incarnation,
        environment: Option<Environment>,
        owners: &mut dyn Owners,
    ) {
        let member = self
            .team
            .members
            .get(&incarnation.name)
            .map(|state| &state.record);
        match (environment, member) {
            (Some(environment), _) => self.live.ordered(&incarnation, environment),
            (None, Some(member)) => self.live.restarted(member, owners.now()),
            (None, None) => {}
        }
        let alive = self.live.member(&incarnation.name);
        let environment = alive.and_then(|alive| alive.environment.clone());
        let started = match (member, environment) {
            (Some(_), Some(environment)) => {
                let start = Action::Start(incarnation, Some(environment));
                owners.perform(&self.team, &start)
            }
            (None, _) => vec![Event::not_started(incarnation, "it was forgotten")],
            (Some(_), None) => vec![Event::not_started(incarnation, "its environment was lost")],
        };
        let follows_a_crash = member.is_some_and(|member| member.restarted > 0);
        for event in started {
            let is_failure = matches!(
                event,
                Event::Started {
                    process: Err(_),
                    ..
                }
            );
            if follows_a_crash && is_failure {
                self.delayed.push((owners.now().monotonic + RETRY, event));
            } else {
                self.events.push_back(event);
            }
        }
    }

    fn kill(&mut self, incarnation: &Incarnation, owners: &mut dyn Owners) {
        self.live.killed(incarnation);
        self.hand_on(Action::Kill(incarnation.clone()), owners);
    }

    fn send_directive(&mut self, name: &Name, owners: &mut dyn Owners) {
        let Some(member) = self.team.members.get(name) else {
            return;
        };
        let incarnation = Incarnation::of(&member.record);
        // A worker that is not welcomed yet hears everything in its welcome.
        if self
            .live
            .of(&incarnation)
            .is_some_and(|alive| alive.connected && !alive.is_awaited)
            && let Some(directive) = directive(&self.team, &self.live, name)
        {
            let frame = ToWorker::Directive(directive);
            self.hand_on(Action::Say(incarnation, frame), owners);
        }
    }

    /// Does the effects of new lines; `again` also what failed.
    fn complete(&mut self, again: bool, owners: &mut dyn Owners) {
        if again {
            self.retry_at = None;
        }
        if let Err(Failed) = owners.complete(&self.team, again) {
            self.try_again_later(owners.now());
        }
    }

    /// Does and syncs all effects.
    pub(crate) fn finish_effects(&mut self, owners: &mut dyn Owners) {
        match owners.finish_effects() {
            Ok(seq) => self.mark_done(seq),
            Err(Failed) => self.try_again_later(owners.now()),
        }
    }

    /// Tells whether some effects are not known to be on the disk yet.
    pub(crate) fn has_unfinished_effects(&self) -> bool {
        self.team.done < self.team.seq
    }

    /// Takes in that the effects of all lines up to this one are on the disk. The next line of the
    /// journal says so.
    pub(crate) fn mark_done(&mut self, seq: u64) {
        self.team.mark_done(seq);
    }

    /// Closes the journal once the daemon is stopping and no teammate is left. The last line says
    /// that nothing is left to be done, so what has failed is tried once more before it.
    fn close_if_all_are_gone(&mut self, owners: &mut dyn Owners) {
        let all_are_gone = self
            .team
            .members
            .values()
            .all(|state| state.record.phase.is_ended());
        if !self.team.stopping || !all_are_gone {
            return;
        }
        if self.retry_at.is_some() {
            self.complete(true, owners);
        }
        self.finish_effects(owners);
        let record = TeamRecord::of(TeamEvent::Stopped, self.team.team_name.clone(), None);
        let mut batch = Batch::default();
        self.apply(Record::Team(record), owners.now(), &mut batch);
        match owners.append(&batch.lines) {
            Ok(()) => self.journal_closed(),
            Err(error) => self.not_written(batch, error, owners),
        }
    }
}

/// Returns what is to be kept of the work of teammates that hold a task no more after this record.
fn left_behind(team: &Team, record: &Record) -> Vec<Action> {
    match record {
        Record::Task(record)
            if record.task.owner.is_none() && record.task.status != TaskStatus::Completed =>
        {
            let before = team
                .tasks
                .get(&record.task.id)
                .and_then(|task| task.owner.clone());
            before
                .into_iter()
                .map(|owner| Action::Keep(owner, Some(record.task.id)))
                .collect()
        }
        Record::Member(record) => {
            let name = &record.member.name;
            record
                .released
                .iter()
                .map(|&task| Action::Keep(name.clone(), Some(task)))
                .collect()
        }
        _ => Vec::new(),
    }
}

fn being_given_a_task() -> Refusal {
    Refusal::new(
        RefusalCode::Conflict,
        "a branch is being begun in the checkout just now",
    )
    .hint("try again in a moment")
}

/// Tells whether an action changes which jobs are under way. Later decisions rest on that.
fn changes_jobs(action: &Action) -> bool {
    matches!(action, Action::Begin(_) | Action::CallOff(_))
}

fn forgets(record: &Record) -> bool {
    matches!(record, Record::Member(record) if record.event == MemberEvent::Forgotten)
}

/// Returns the members that a record says something new about.
fn subjects(record: &Record) -> BTreeSet<Name> {
    match record {
        // A claim can close the gate of its owner, and a check in place that of its author.
        Record::Task(record) => {
            let task = &record.task;
            let author = task
                .submission
                .as_ref()
                .filter(|it| it.commit.is_none())
                .map(|it| it.by.clone());
            task.owner
                .clone()
                .filter(|_| task.plan)
                .into_iter()
                .chain(author)
                .collect()
        }
        Record::Team(_) | Record::Snapshot(_) => BTreeSet::new(),
        Record::Member(record) => BTreeSet::from([record.member.name.clone()]),
        Record::Request(record) => Name::of_inbox(record.request.member())
            .into_iter()
            .collect(),
    }
}
