//! A batch: events that are decided one after the other, and journaled together.

use std::collections::BTreeSet;

use teamd_shared::control::Command;
use teamd_shared::inbox::Unread;
use teamd_shared::journal::{Line, MemberEvent, Record, Team, VERSION};
use teamd_shared::name::Name;
use teamd_shared::task::{TaskId, TaskStatus};

use super::Dispatcher;
use crate::core::decide::DecisionView;
use crate::core::event::{Action, Event, Now};
use crate::core::incarnation::Incarnation;
use crate::core::io::Io;
use crate::core::job::Then;
use crate::core::runtime::members_of;

/// What a batch of events led to.
#[derive(Debug, Default)]
pub(super) struct DecisionBatch {
    pub(super) lines: Vec<Line>,
    pub(super) actions: Vec<Action>,
    pub(super) events: Vec<Event>,
    /// The members that lines were written about.
    pub(super) subjects: BTreeSet<Name>,
    /// The members that something was decided about, or that an event is about.
    pub(super) touched: BTreeSet<Name>,
    /// The tasks that lines were written about, and those that they wait for, or waited for.
    pub(super) tasks: BTreeSet<TaskId>,
    /// Whether its last decision forgets a member.
    pub(super) forgets: bool,
    /// Whether the next event must be decided after this batch is carried out.
    pub(super) is_complete: bool,
}

impl Dispatcher {
    /// Decides queued events, until one must be carried out before the next is decided.
    pub(super) fn decide_all(&mut self, io: &mut dyn Io) -> DecisionBatch {
        let now = io.now();
        let mut batch = DecisionBatch::default();
        while !batch.is_complete
            && let Some(event) = self.events.pop_front()
        {
            self.runtime.apply(&self.team, &event);
            let unread = self.unread_of(&event, io);
            let view = DecisionView {
                unread: &unread,
                ..self.view(now)
            };
            let decision = io.decide(&view, &event);
            batch.touched.extend(
                event
                    .incarnation()
                    .map(|incarnation| incarnation.name.clone()),
            );
            if let Event::Link { host, .. } = &event {
                let there = members_of(&self.team, host);
                batch
                    .touched
                    .extend(there.map(|member| member.name.clone()));
            }
            if let Event::LeadRead { position, .. } = &event {
                self.lead = *position;
            }
            if let Event::JobEnded { job, .. } = &event
                && let Some(name) = self.runtime.jobs.then(*job).and_then(Then::shows)
            {
                batch.touched.insert(name.clone());
            }
            let authors = decision.actions.iter().filter_map(author_of);
            batch.touched.extend(authors.cloned());
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

    /// Returns what a member has not read that the event may forget, or take for lost: no other
    /// incarnation of it reads that.
    fn unread_of(&self, event: &Event, io: &mut dyn Io) -> Unread {
        let command = match event {
            Event::Command(_, _, command) => command,
            Event::JobEnded { job, .. } => match self.runtime.jobs.then(*job) {
                Some(Then::Command(suspended)) => &suspended.command,
                _ => return Unread::default(),
            },
            _ => return Unread::default(),
        };
        let name = match command {
            Command::Forget { name, .. } => name,
            Command::Lose { name } => return self.unread_of_lost(name, io),
            _ => return Unread::default(),
        };
        let member = self.team.members.get(name).map(|state| &state.record);
        match member.and_then(|member| member.exit.as_ref()) {
            Some(exit) => io.unread_mail(name, exit.inbox),
            None => Unread::default(),
        }
    }

    /// Returns what a member on a host has not read, as far as its host has said.
    fn unread_of_lost(&self, name: &Name, io: &mut dyn Io) -> Unread {
        let Some(state) = self.team.members.get(name) else {
            return Unread::default();
        };
        let member = &state.record;
        let worker = self.runtime.of(&Incarnation::of(member));
        let read = worker.map_or(0, |worker| worker.state.read);
        let began = member.begins_at.offset;
        let from = io.position_at(name, read.max(began));
        io.unread_mail(name, from)
    }

    /// Gives records their lines, and derived records lines of their own.
    pub(super) fn record(&mut self, records: Vec<Record>, now: Now, batch: &mut DecisionBatch) {
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
    pub(super) fn apply(&mut self, record: Record, now: Now, batch: &mut DecisionBatch) {
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
}

/// Returns what is to be kept of the work of teammates that no longer hold a task after this
/// record.
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

/// Tells whether an action changes which jobs are under way. Later decisions rest on that.
fn changes_jobs(action: &Action) -> bool {
    matches!(action, Action::Begin(_) | Action::CallOff(_))
}

/// Returns the member whose submission begins with an action.
fn author_of(action: &Action) -> Option<&Name> {
    let Action::Begin(job) = action else {
        return None;
    };
    let (author, _) = job.then.submission()?;
    Some(&author.name)
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
                .filter(|submission| submission.commit.is_none())
                .map(|submission| submission.by.clone());
            let owner = if task.plan { task.owner.clone() } else { None };
            owner.into_iter().chain(author).collect()
        }
        Record::Team(_) | Record::Snapshot(_) => BTreeSet::new(),
        Record::Member(record) => BTreeSet::from([record.member.name.clone()]),
        Record::Request(record) => Name::of_inbox(record.request.member())
            .into_iter()
            .collect(),
    }
}
