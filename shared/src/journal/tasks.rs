//! The part of the fold that is about tasks, and what decisions and commands ask of it.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::fold::PendingDerived;
use super::{Line, TaskRecord, Team};
use crate::id::RequestId;
use crate::id::TaskId;
use crate::member::{Gate, Member};
use crate::message::USER;
use crate::name::Name;
use crate::task::{Task, TaskEvent, TaskStatus};

/// How many commands that made tasks are remembered: a client that has lost the daemon repeats its
/// own.
const COMMANDS: usize = 64;

/// What was made of a source before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierImport {
    /// The task.
    pub task: TaskId,
    /// That it is there. Fits behind "error: ".
    pub message: String,
    /// What to do next. Fits behind "hint: ".
    pub hint: String,
}

impl Team {
    /// Returns what was made of a source before, if anything: it is imported once.
    pub fn imported_before(&self, source: &str) -> Option<EarlierImport> {
        let task = *self.sources.get(source)?;
        let known = self.tasks.get(&task);
        let title = known.map_or_else(|| format!("task {task}"), Task::title);
        let hint = match self.task_status(task) {
            Some(TaskStatus::Failed | TaskStatus::Cancelled) => {
                format!("`teamctl task retry {task}` opens it again")
            }
            _ => format!("`teamctl task show {task}` shows it"),
        };
        Some(EarlierImport {
            task,
            message: format!("{source} is imported already: {title}"),
            hint,
        })
    }

    pub(super) fn apply_task(&mut self, line: &Line, record: &TaskRecord) {
        let task = record.task.clone();
        if record.derived_from.is_some() {
            self.pending_derived
                .retain(|(_, it)| *it != PendingDerived::Released(task.id));
            return;
        }
        for id in &record.expired {
            self.expire(line, id, "the work was released or cancelled");
        }
        let authors = self
            .tasks
            .get(&task.id)
            .into_iter()
            .chain([&task])
            .filter_map(Task::checked_in_place);
        let authors: BTreeSet<Name> = authors.cloned().collect();
        let gates: Vec<(Name, Gate)> = authors
            .into_iter()
            .map(|name| (name.clone(), self.gate(&name)))
            .collect();
        if let Some(command) = &record.command_id {
            self.is_added(command, task.id);
        }
        self.last_task = self.last_task.max(task.id);
        self.tell_orders(record, line);
        if let Some(source) = &task.source {
            self.sources.entry(source.clone()).or_insert(task.id);
        }
        let sets_work = matches!(
            record.event,
            TaskEvent::Created | TaskEvent::Edited | TaskEvent::Retried
        );
        if sets_work && (record.by == USER || record.by == Name::lead().as_str()) {
            self.protected.clone_from(&task.protected);
        }
        let before = self
            .tasks
            .get(&task.id)
            .map(|before| before.blocked_by.clone())
            .unwrap_or_default();
        for gone in before.difference(&task.blocked_by) {
            self.tasks
                .get_mut(gone)
                .map(|other| other.blocks.remove(&task.id));
        }
        for new in task.blocked_by.difference(&before) {
            self.tasks
                .get_mut(new)
                .map(|other| other.blocks.insert(task.id));
        }
        if record.event == TaskEvent::Claimed
            && task.plan
            && let Some(owner) = task
                .owner
                .as_ref()
                .and_then(|owner| self.members.get_mut(owner))
            && owner.record.gate == Gate::Open
        {
            owner.record.gate = Gate::Closed;
            owner.record.updated_at = line.at;
            owner.seq = line.seq;
            let gate = PendingDerived::Gate(owner.record.name.clone());
            self.pending_derived.push_back((line.seq, gate));
        }
        self.tasks.insert(task.id, task);
        // Its next directive depends on this line.
        for (author, before) in gates {
            let gate = self.gate(&author);
            if gate != before
                && let Some(author) = self.members.get_mut(&author)
            {
                author.seq = line.seq;
            }
        }
    }

    /// Returns the gate of a member: closed until a plan is approved, and while its work is checked
    /// in its workspace.
    pub fn gate(&self, name: &Name) -> Gate {
        let own = self
            .members
            .get(name)
            .map_or(Gate::Closed, |state| state.record.gate);
        if self.checked_in_place(name).is_some() {
            Gate::Closed
        } else {
            own
        }
    }

    /// Returns the task for which the work of a teammate is checked in its workspace.
    pub fn checked_in_place(&self, name: &Name) -> Option<TaskId> {
        self.tasks
            .values()
            .find(|task| task.checked_in_place() == Some(name))
            .map(|task| task.id)
    }

    fn is_added(&mut self, command: &RequestId, task: TaskId) {
        let at_command = self.added.iter().rposition(|(id, _)| id == command);
        match at_command.and_then(|at| self.added[at].1.last_mut()) {
            Some((_, last)) if *last + 1 == task => *last = task,
            Some(_) => self.added[at_command.unwrap_or_default()]
                .1
                .push((task, task)),
            None => self.added.push_back((command.clone(), vec![(task, task)])),
        }
        if self.added.len() > COMMANDS {
            self.added.pop_front();
        }
    }

    /// Returns the tasks that a command has made, unless many others have made tasks since.
    pub fn made_by(&self, command: &RequestId) -> Vec<TaskId> {
        let made = self.added.iter().find(|(id, _)| id == command);
        made.into_iter()
            .flat_map(|(_, ranges)| ranges)
            .flat_map(|&(first, last)| first..=last)
            .collect()
    }

    /// Takes a task from an owner that has ended for good; `died`: neither a person nor the lead
    /// ended it.
    pub(super) fn release_task(&mut self, id: TaskId, died: bool, line: &Line) {
        if let Some(task) = self.tasks.get_mut(&id) {
            let let_lie = died && task.status == TaskStatus::InProgress;
            *task = task.without_owner(line.at);
            if let_lie {
                *task = task.clone().let_lie();
            }
            self.pending_derived
                .push_back((line.seq, PendingDerived::Released(id)));
        }
    }

    /// Returns the status of a task; none if there never was one. A snapshot leaves out what was
    /// completed before it.
    pub fn task_status(&self, id: TaskId) -> Option<TaskStatus> {
        let status = self.tasks.get(&id).map(|task| task.status);
        status.or((id > 0 && id <= self.last_task).then_some(TaskStatus::Completed))
    }

    /// Returns the tasks that a task still waits for, with their status.
    pub fn blockers(&self, task: &Task) -> Vec<(TaskId, TaskStatus)> {
        task.blocked_by
            .iter()
            .filter_map(|&id| Some((id, self.task_status(id)?)))
            .filter(|(_, it)| *it != TaskStatus::Completed)
            .collect()
    }

    /// Returns the task that a teammate holds: in progress, or in review.
    pub fn held_by(&self, name: &Name) -> Option<&Task> {
        self.tasks
            .values()
            .find(|task| task.owner.as_ref() == Some(name))
    }

    /// Returns the task for which the work of a teammate is checked, reviewed or integrated: its
    /// terms apply to that.
    pub fn in_review_of(&self, name: &Name) -> Option<&Task> {
        self.tasks
            .values()
            .filter(|task| task.status == TaskStatus::InReview)
            .find(|task| task.submission.as_ref().is_some_and(|it| it.by == *name))
    }

    /// Returns the task that a member claims next, none of those that are `taken`: the highest
    /// priority, then the lowest number.
    pub fn next_for(&self, member: &Member, taken: &BTreeSet<TaskId>) -> Option<&Task> {
        if !member.can_take_tasks() {
            return None;
        }
        self.tasks
            .values()
            .filter(|task| {
                let is_open = task.status == TaskStatus::Pending && !taken.contains(&task.id);
                is_open
                    && !task.waits_for_person()
                    && task.is_for(member)
                    && self.blockers(task).is_empty()
            })
            .min_by_key(|task| (Reverse(task.priority), task.id))
    }

    /// Tells whether a task is, or can become, one that a member may claim.
    pub fn has_work_for(&self, member: &Member) -> bool {
        let is_open = |task: &Task| !task.status.is_finished() && !task.waits_for_person();
        member.can_take_tasks()
            && self
                .tasks
                .values()
                .any(|task| is_open(task) && task.is_for(member))
    }

    /// Returns the teammates that may claim a task, including those that have ended.
    pub fn able<'a>(&'a self, task: &'a Task) -> impl Iterator<Item = &'a Member> {
        let members = self.members.values().map(|state| &state.record);
        members.filter(|member| {
            member.name != Name::lead() && member.can_take_tasks() && task.is_for(member)
        })
    }

    /// Says why no teammate can take a pending task, as the team is; none if one can.
    pub fn no_taker(&self, task: &Task) -> Option<String> {
        if task.status != TaskStatus::Pending {
            return None;
        }
        let mut able = self.able(task).peekable();
        let Some(first) = able.peek() else {
            return Some(match &task.reserved_for {
                Some(whom) => format!("it is reserved for {whom}, but no such teammate exists"),
                None => "there is no teammate".to_owned(),
            });
        };
        let name = first.name.clone();
        let count = self.able(task).count();
        let all_ended = able.all(|member| member.phase.is_ended());
        let why = if count == 1 {
            format!("{name} has ended")
        } else {
            "every teammate that may take it has ended".to_owned()
        };
        all_ended.then_some(why)
    }

    /// Returns the pending tasks that will not be done as things are, each with the reason. While
    /// a lead agent runs, it can still start a teammate.
    pub fn stuck(&self) -> BTreeMap<TaskId, String> {
        let lead = self.members.get(&Name::lead());
        let is_led = lead.is_some_and(|lead| !lead.record.phase.is_ended());
        let mut stuck = BTreeMap::new();
        for task in self
            .tasks
            .values()
            .filter(|task| task.status == TaskStatus::Pending)
        {
            let blocked = self
                .blockers(task)
                .into_iter()
                .find(|(_, status)| status.is_finished());
            let blocked =
                blocked.map(|(id, status)| format!("it is blocked by {id} ({})", status.as_str()));
            let why = blocked.or_else(|| if !is_led { self.no_taker(task) } else { None });
            stuck.extend(why.map(|why| (task.id, why)));
        }
        let mut open: Vec<TaskId> = stuck.keys().copied().collect();
        while let Some(id) = open.pop() {
            for later in self
                .tasks
                .get(&id)
                .into_iter()
                .flat_map(|task| &task.blocks)
            {
                let waits = self
                    .tasks
                    .get(later)
                    .is_some_and(|task| task.status == TaskStatus::Pending);
                if waits && !stuck.contains_key(later) {
                    stuck.insert(*later, format!("it is blocked by {id}"));
                    open.push(*later);
                }
            }
        }
        stuck
    }

    /// Returns the cycle of tasks by which a task would wait for itself if it waited for these:
    /// `3, 5, 3`.
    pub fn cycle(&self, id: TaskId, blocked_by: &BTreeSet<TaskId>) -> Option<Vec<TaskId>> {
        let waits_for = |at: TaskId| {
            if at == id {
                Some(blocked_by)
            } else {
                self.tasks.get(&at).map(|task| &task.blocked_by)
            }
        };
        // Each task that was reached, and the one that waits for it.
        let mut from = BTreeMap::new();
        let mut open = vec![id];
        while let Some(at) = open.pop() {
            for &next in waits_for(at).into_iter().flatten() {
                if let Entry::Vacant(new) = from.entry(next) {
                    new.insert(at);
                    open.push(next);
                }
            }
        }
        let mut way = vec![id, *from.get(&id)?];
        while let Some(&before) = way
            .last()
            .filter(|last| **last != id)
            .and_then(|last| from.get(last))
        {
            way.push(before);
        }
        way.reverse();
        Some(way)
    }

    /// Tells whether a task is pending, in progress or in review.
    pub fn has_open_tasks(&self) -> bool {
        self.tasks.values().any(|task| !task.status.is_finished())
    }
}

impl TaskRecord {
    /// Makes the record of an event that entails nothing else.
    pub fn of(event: TaskEvent, task: Task, by: &str) -> Self {
        Self {
            event,
            task,
            by: by.to_owned(),
            content: None,
            command_id: None,
            expired: Vec::new(),
            tell: Vec::new(),
            derived_from: None,
        }
    }
}
