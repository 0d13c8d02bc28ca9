//! Tasks: who may do what with them, and what follows from a check. Where a task stands after an event says
//! [`TaskEvent::leads_to`]; here is who may cause it, and who is told.

use std::collections::BTreeSet;

use teamd_shared::check::CheckReport;
use teamd_shared::control::{Done, Refusal, RefusalCode, TaskOrder};
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::journal::{Notice, Record, TaskRecord};
use teamd_shared::member::{Doing, Member};
use teamd_shared::message::{IdleReason, TEAMD};
use teamd_shared::name::Name;
use teamd_shared::request::Kind;
use teamd_shared::task::{
    Check, CheckResult, MAX_REMINDERS, Submission, Task, TaskEvent, TaskFields, TaskId, TaskResult,
    TaskStatus, Verified,
};

use super::{Decision, View, conflict};
use crate::daemon::core::event::{Action, Actor, Incarnation, ReplyTo};

impl View<'_> {
    pub(super) fn task(
        &self,
        client: ReplyTo,
        by: &Actor,
        order: &TaskOrder,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        let decision = match order {
            TaskOrder::List(id) => return self.tell_tasks(client, *id),
            TaskOrder::Add { id, tasks, within } => {
                return self.add(client, by, (id, tasks, *within), ids);
            }
            TaskOrder::Claim(id) => self.claim(by, *id)?,
            TaskOrder::Submit(id, summary) => self.submit(by, *id, summary, ids)?,
            TaskOrder::Release(id) => self.give_back(by, *id, ids)?,
            TaskOrder::Assign(id, to) => self.assign(by, *id, to, ids)?,
            TaskOrder::Cancel(id) => self.cancel(by, *id, ids)?,
            TaskOrder::Edit(id, fields) => self.edit(by, *id, fields, ids)?,
            TaskOrder::Retry(id) => {
                self.is_lead(by)?;
                let mut record = self.stepped(*id, TaskEvent::Retried, by)?;
                record.task.protected = self.protected(by);
                Decision::default().task(record)
            }
        };
        let changed = decision.records.iter().filter_map(|record| match record {
            Record::Task(record) => Some(record.task.clone()),
            _ => None,
        });
        let changed = changed.collect();
        Ok(self.fits(decision)?.act(Action::Reply(client, Ok(Done::Tasks(changed)))).act(Action::Offer))
    }

    fn tell_tasks(&self, client: ReplyTo, id: Option<TaskId>) -> Result<Decision, Refusal> {
        let tasks = match id {
            Some(id) => vec![self.known_task(id)?.clone()],
            None => self.team.tasks.values().filter(|task| !task.status.is_finished()).cloned().collect(),
        };
        Ok(Decision::default().act(Action::Reply(client, Ok(Done::Tasks(tasks)))))
    }

    /// Returns a task that is not completed long ago: those are out of the daemon's memory, and nothing can happen to them.
    fn known_task(&self, id: TaskId) -> Result<&Task, Refusal> {
        self.team.tasks.get(&id).ok_or_else(|| match self.team.task_status(id) {
            Some(status) => conflict(
                format!("task {id} is {}", status.as_str()),
                format!("`teamctl task show {id}` shows its result"),
            ),
            None => Refusal::new(RefusalCode::NotFound, format!("there is no task {id}"))
                .hint("`teamctl task list` lists them"),
        })
    }

    /// Returns the record of a task after an event.
    fn stepped(&self, id: TaskId, event: TaskEvent, by: &Actor) -> Result<TaskRecord, Refusal> {
        let task = self.known_task(id)?;
        match task.after(event, self.now.wall) {
            Some(next) => Ok(TaskRecord::of(event, next, by.as_str())),
            None => Err(self.does_not_fit(task, event)),
        }
    }

    fn does_not_fit(&self, task: &Task, event: TaskEvent) -> Refusal {
        let id = task.id;
        let owner = task.owner.as_ref().map(|owner| format!(" by {owner}")).unwrap_or_default();
        let hint = match (task.status, event) {
            (TaskStatus::InReview, _) => {
                let number = task.submission.as_ref().map_or(0, |submission| submission.number);
                format!("attempt {number} is in review; `teamctl task release {id}` withdraws it")
            }
            (TaskStatus::Failed | TaskStatus::Cancelled, _) => {
                format!("`teamctl task retry {id}` opens it again")
            }
            (TaskStatus::Pending, TaskEvent::Submitted) => "claim it first".to_owned(),
            (TaskStatus::InProgress, TaskEvent::Claimed) => {
                format!("`teamctl task release {id}` takes it away from its owner")
            }
            _ => format!("`teamctl task show {id}` says more"),
        };
        conflict(format!("{} is {}{owner}", task.title(), task.status.as_str().replace('_', " ")), hint)
    }

    fn add(
        &self,
        client: ReplyTo,
        by: &Actor,
        (command, fields, within): (&RequestId, &[TaskFields], bool),
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        let usage = |message: String| {
            Refusal::new(RefusalCode::Usage, message).hint("`teamctl task add --help` shows what can be said")
        };
        // A kill may have cut off the last lines of an earlier attempt.
        let earlier = self.team.last_added.as_ref().filter(|(id, _)| id == command).map(|(_, first)| *first);
        let first = earlier.unwrap_or(self.team.last_task + 1);
        let mut made: Vec<Task> = Vec::new();
        let (mut decision, mut id) = (Decision::default(), first);
        for fields in fields {
            if let Some(field) = fields.reserved().filter(|_| by.is_teammate()) {
                return Err(not_for_teammates(&format!("`{field}` is for a person or the lead to set")));
            }
            let mut task = fields.create(id, by.as_str(), self.now.wall).map_err(usage)?;
            task.protected = self.protected(by);
            if within {
                task.blocked_by = task.blocked_by.iter().map(|place| first + place - 1).collect();
            }
            let is_known = |before: &TaskId| {
                *before < id && (*before >= first || self.team.task_status(*before).is_some())
            };
            if let Some(unknown) = task.blocked_by.iter().find(|before| !is_known(before)) {
                return Err(Refusal::new(
                    RefusalCode::NotFound,
                    format!("there is no task {unknown} to wait for"),
                )
                .hint("`teamctl task list` lists them"));
            }
            if id > self.team.last_task {
                let record = TaskRecord {
                    command_id: Some(command.clone()),
                    ..TaskRecord::of(TaskEvent::Created, task.clone(), by.as_str())
                };
                decision = decision.task(self.told_for(record, ids));
            } else if let Some(known) = self.team.tasks.get(&id) {
                task = known.clone();
            }
            made.push(task);
            id += 1;
        }
        Ok(self.fits(decision)?.act(Action::Reply(client, Ok(Done::Tasks(made)))).act(Action::Offer))
    }

    /// Returns what the protected files must still be when the work is done. A teammate may have changed them already, so what it
    /// wants goes by what they were for a person or the lead.
    fn protected(&self, by: &Actor) -> Option<String> {
        if by.is_teammate() { self.team.protected.clone() } else { self.protected.map(str::to_owned) }
    }

    /// Tells a teammate of a task that is for it by name, unless it is given its work.
    fn told_for(&self, record: TaskRecord, ids: &mut dyn Ids) -> TaskRecord {
        let named = record
            .task
            .reserved_for
            .as_ref()
            .and_then(|who| self.team.members.iter().find(|(name, _)| name.as_str() == who));
        let told = named.filter(|(_, state)| !state.record.phase.is_ended() && !state.record.terms.auto);
        let tell = told.map(|(name, _)| Notice { to: name.clone(), id: ids.message() });
        TaskRecord { tell: record.tell.into_iter().chain(tell).collect(), ..record }
    }

    fn claim(&self, by: &Actor, id: Option<TaskId>) -> Result<Decision, Refusal> {
        let Actor::Member(name) = by else {
            return Err(conflict(
                "a person claims no task",
                "`teamctl task assign ID NAME` gives it to a teammate",
            ));
        };
        let member = self.running(name)?;
        if let Some(held) = self.team.held_by(name) {
            let message = format!("{name} holds {} already", held.title());
            return Err(conflict(message, "submit or release it first"));
        }
        let task = match id {
            Some(id) => self.known_task(id)?,
            None => self.team.next_for(member, &BTreeSet::new()).ok_or_else(|| {
                conflict("no task can be claimed now", "`teamctl task list` shows what the others wait for")
            })?,
        };
        if task.status == TaskStatus::Pending {
            self.may_claim(task, member)?;
        }
        let mut record = self.stepped(task.id, TaskEvent::Claimed, by)?;
        self.give(&mut record.task, name);
        Ok(Decision::default().task(record))
    }

    fn may_claim(&self, task: &Task, member: &Member) -> Result<(), Refusal> {
        if !task.is_for(member) {
            let whom = task.reserved_for.as_deref().unwrap_or_default();
            return Err(conflict(format!("{} is for {whom}", task.title()), "claim another one"));
        }
        let blockers = self.team.blockers(task);
        if blockers.is_empty() {
            return Ok(());
        }
        let blockers: Vec<String> = blockers
            .iter()
            .map(|(id, status)| format!("{id} ({})", status.as_str().replace('_', " ")))
            .collect();
        Err(conflict(format!("{} is blocked by {}", task.title(), blockers.join(", ")), "claim another one"))
    }

    fn submit(&self, by: &Actor, id: TaskId, summary: &str, ids: &mut dyn Ids) -> Result<Decision, Refusal> {
        let task = self.known_task(id)?;
        self.is_theirs(by, task)?;
        let mut record = self.stepped(id, TaskEvent::Submitted, by)?;
        let Some(owner) = record.task.owner.clone() else {
            return Err(self.does_not_fit(task, TaskEvent::Submitted));
        };
        let number = task.submission.as_ref().map_or(0, |before| before.number) + 1;
        let checks = match task.no_check {
            true => Vec::new(),
            false => self.team.work.check().into_iter().chain(task.check.clone()).collect(),
        };
        record.task.submission =
            Some(Submission { number, by: owner, summary: summary.trim().to_owned(), checks });
        let next = self.next_step(&record.task, ids);
        Ok(Decision::default().task(record).and(next))
    }

    /// Tells what a submitted task needs next: its check, or nothing more.
    fn next_step(&self, task: &Task, ids: &mut dyn Ids) -> Decision {
        let Some(submission) = &task.submission else { return Decision::default() };
        if !submission.checks.is_empty() {
            return Decision::default().act(Action::Check(task.id));
        }
        let result = TaskResult {
            submission: submission.number,
            summary: submission.summary.clone(),
            check: None,
            verified: Verified::No,
            touched_protected: false,
        };
        self.passed(task, result, ids)
    }

    /// Goes on with a task in review: after a start of the daemon, or when a check could not run.
    pub(super) fn review(&self, id: TaskId, ids: &mut dyn Ids) -> Decision {
        match self.team.tasks.get(&id).filter(|task| task.status == TaskStatus::InReview) {
            Some(task) => self.next_step(task, ids),
            None => Decision::default(),
        }
    }

    /// Takes in how a check has ended. One that is not of the present submission says nothing.
    pub(super) fn checked(
        &self,
        (id, number): (TaskId, u32),
        ended: &CheckReport,
        ids: &mut dyn Ids,
    ) -> Decision {
        let in_review = self.team.tasks.get(&id).filter(|task| task.status == TaskStatus::InReview);
        let present = in_review
            .and_then(|task| Some((task, task.submission.as_ref().filter(|it| it.number == number)?)));
        let Some((task, submission)) = present else { return Decision::default() };
        let Some(check) = submission.checks.get(ended.command).or(submission.checks.last()) else {
            return Decision::default();
        };
        let passed = ended.exit == Some(0);
        let result = TaskResult {
            submission: number,
            summary: submission.summary.clone(),
            check: Some(CheckResult {
                check: check.clone(),
                exit: ended.exit,
                seconds: ended.seconds,
                log: format!("log/task-{id}.log"),
            }),
            verified: if passed { Verified::InPlace } else { Verified::No },
            touched_protected: ended.touched_protected,
        };
        if passed {
            return self.passed(task, result, ids).act(Action::Offer);
        }
        let attempts = task.attempts + 1;
        let text = failed_check(task, (check, attempts), ended);
        let event = if attempts < task.max_attempts { TaskEvent::Returned } else { TaskEvent::Failed };
        let changed = Task { attempts, reminders: 0, result: Some(result), ..task.clone() };
        self.system(&changed, event, Some(text), ids).act(Action::Offer)
    }

    /// Tells the lead once that a check could not run. That is no attempt: it is tried again.
    pub(super) fn not_checked(&self, (id, number): (TaskId, u32), why: &str, ids: &mut dyn Ids) -> Decision {
        let is_it = |task: &&Task| {
            task.status == TaskStatus::InReview
                && task.submission.as_ref().is_some_and(|it| it.number == number)
        };
        let Some(task) = self.team.tasks.get(&id).filter(is_it) else { return Decision::default() };
        let again = Decision::default().act(Action::CheckAgain(id));
        match task.stalled.as_deref() == Some(why) {
            true => again,
            false => {
                let stalled = Task { stalled: Some(why.to_owned()), ..task.clone() };
                self.system(&stalled, TaskEvent::Checked, Some(why.to_owned()), ids).and(again)
            }
        }
    }

    fn passed(&self, task: &Task, result: TaskResult, ids: &mut dyn Ids) -> Decision {
        self.system(&Task { result: Some(result), ..task.clone() }, TaskEvent::Completed, None, ids)
    }

    /// Records what the daemon itself decides about a task, and tells its owner and the lead.
    fn system(&self, task: &Task, event: TaskEvent, content: Option<String>, ids: &mut dyn Ids) -> Decision {
        let Some(next) = task.after(event, self.now.wall) else { return Decision::default() };
        let owner =
            task.owner.clone().filter(|_| !matches!(event, TaskEvent::Completed | TaskEvent::Checked));
        let lead = matches!(
            event,
            TaskEvent::Completed | TaskEvent::Failed | TaskEvent::Released | TaskEvent::Checked
        );
        let lead = lead.then(Name::lead);
        let mut tell: Vec<Notice> = Vec::new();
        for to in owner.into_iter().chain(lead) {
            if tell.iter().all(|notice| notice.to != to) {
                tell.push(Notice { to, id: ids.message() });
            }
        }
        let record = TaskRecord { content, tell, ..TaskRecord::of(event, next, TEAMD) };
        Decision::default().task(record)
    }

    fn give_back(&self, by: &Actor, id: TaskId, ids: &mut dyn Ids) -> Result<Decision, Refusal> {
        let task = self.known_task(id)?;
        self.is_theirs(by, task)?;
        let record = self.stepped(id, TaskEvent::Released, by)?;
        Ok(self.withdrawn(task, self.told_owner(record, (task, by), ids)))
    }

    fn assign(&self, by: &Actor, id: TaskId, to: &Name, ids: &mut dyn Ids) -> Result<Decision, Refusal> {
        self.is_lead(by)?;
        let (task, member) = (self.known_task(id)?, self.known(to)?);
        if member.name == Name::lead() {
            return Err(conflict("the lead agent works on no task", "assign it to a teammate"));
        }
        let mut record = self.stepped(id, TaskEvent::Assigned, by)?;
        record.task.reserved_for = Some(to.to_string());
        Ok(Decision::default().task(self.told_for(self.told_owner(record, (task, by), ids), ids)))
    }

    fn cancel(&self, by: &Actor, id: TaskId, ids: &mut dyn Ids) -> Result<Decision, Refusal> {
        self.is_lead(by)?;
        let record = self.stepped(id, TaskEvent::Cancelled, by)?;
        let task = self.known_task(id)?;
        Ok(self.withdrawn(task, self.told_owner(record, (task, by), ids)))
    }

    /// Records the end of a review, and ends the check.
    fn withdrawn(&self, task: &Task, record: TaskRecord) -> Decision {
        let decision = Decision::default().task(record);
        if task.status == TaskStatus::InReview { decision.act(Action::EndCheck(task.id)) } else { decision }
    }

    fn edit(
        &self,
        by: &Actor,
        id: TaskId,
        fields: &TaskFields,
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        self.is_lead(by)?;
        let task = self.known_task(id)?;
        let mut record = self.stepped(id, TaskEvent::Edited, by)?;
        let usage = |message| {
            Refusal::new(RefusalCode::Usage, message)
                .hint("`teamctl task edit --help` shows what can be said")
        };
        record.task = fields.change(&record.task, by.as_str()).map_err(usage)?;
        record.task.protected = self.protected(by);
        if let Some(unknown) =
            record.task.blocked_by.iter().find(|before| self.team.task_status(**before).is_none())
        {
            return Err(Refusal::new(
                RefusalCode::NotFound,
                format!("there is no task {unknown} to wait for"),
            )
            .hint("`teamctl task list` lists them"));
        }
        if let Some(cycle) = self.team.cycle(id, &record.task.blocked_by) {
            let way: Vec<String> = cycle.iter().map(TaskId::to_string).collect();
            let message = format!("task {id} would wait for itself: {}", way.join(" waits for "));
            return Err(conflict(message, "leave one of these out of `--after`"));
        }
        Ok(Decision::default().task(self.told_owner(record, (task, by), ids)))
    }

    /// Tells the owner of a task what another party did with it.
    fn told_owner(&self, record: TaskRecord, (before, by): (&Task, &Actor), ids: &mut dyn Ids) -> TaskRecord {
        let owner = before.owner.clone().filter(|owner| owner.as_str() != by.as_str());
        let tell = owner.map(|to| Notice { to, id: ids.message() });
        TaskRecord { tell: record.tell.into_iter().chain(tell).collect(), ..record }
    }

    /// Refuses a teammate that is not the owner.
    fn is_theirs(&self, by: &Actor, task: &Task) -> Result<(), Refusal> {
        match by {
            Actor::Member(name) if by.is_teammate() && task.owner.as_ref() != Some(name) => {
                let owner = task
                    .owner
                    .as_ref()
                    .map_or("claimed by no teammate".to_owned(), |owner| format!("{owner}'s"));
                Err(conflict(format!("{} is {owner}", task.title()), "claim a task before you work on it"))
            }
            _ => Ok(()),
        }
    }

    fn is_lead(&self, by: &Actor) -> Result<(), Refusal> {
        match by.is_teammate() {
            true => Err(not_for_teammates("that is for a person or the lead to do")),
            false => Ok(()),
        }
    }

    /// Has idle members looked at, if there is work for any of them, or will be when this decision is applied.
    pub(super) fn offer_later(&self) -> Decision {
        let is_open = |task: &Task| matches!(task.status, TaskStatus::Pending | TaskStatus::InProgress);
        let open = self.team.tasks.values().any(is_open);
        if open { Decision::default().act(Action::Offer) } else { Decision::default() }
    }

    /// Gives work to the members that are idle and take it by themselves.
    pub(super) fn offer(&self, ids: &mut dyn Ids) -> Decision {
        let mut decision = Decision::default();
        let mut taken = BTreeSet::new();
        for member in self.alive().filter(|member| member.terms.auto && self.takes_work(member)) {
            let Some(task) = self.team.next_for(member, &taken) else { continue };
            let Some(mut next) = task.after(TaskEvent::Claimed, self.now.wall) else { continue };
            taken.insert(task.id);
            self.give(&mut next, &member.name);
            let tell = vec![Notice { to: member.name.clone(), id: ids.message() }];
            decision = decision.task(TaskRecord { tell, ..TaskRecord::of(TaskEvent::Claimed, next, TEAMD) });
        }
        decision
    }

    fn give(&self, task: &mut Task, owner: &Name) {
        (task.owner, task.reminders) = (Some(owner.clone()), 0);
    }

    fn takes_work(&self, member: &Member) -> bool {
        let idle = self.live.of(&Incarnation::of(member)).filter(|alive| {
            alive.connected && alive.ready && !alive.has_unread && alive.said.doing == Doing::Idle
        });
        let able =
            idle.is_some_and(|alive| matches!(alive.said.idle_reason, None | Some(IdleReason::Available)));
        able && !self.team.stopping
            && member.ending.is_none()
            && self.team.pending_of(&member.name).next().is_none()
            && self.team.release(&member.name).is_none()
            && self.team.held_by(&member.name).is_none()
    }

    /// Reminds a member that has become idle of the task that it holds; the third time the task is released, and that counts
    /// as a failed attempt.
    pub(super) fn remind(&self, incarnation: &Incarnation, ids: &mut dyn Ids) -> Decision {
        let became_idle =
            self.live.of(incarnation).is_some_and(|alive| alive.became_idle && !alive.has_unread);
        let waits = self.team.pending(&incarnation.name, Kind::PlanApproval).is_some();
        let held = self.team.held_by(&incarnation.name).filter(|task| task.status == TaskStatus::InProgress);
        let Some(task) = held.filter(|_| became_idle && !waits) else { return Decision::default() };
        let reminders = task.reminders + 1;
        if reminders <= MAX_REMINDERS {
            return self.system(&Task { reminders, ..task.clone() }, TaskEvent::Reminded, None, ids);
        }
        let attempts = task.attempts + 1;
        let event = if attempts < task.max_attempts { TaskEvent::Released } else { TaskEvent::Failed };
        let text = "it became idle three times, and did not submit".to_owned();
        self.system(&Task { attempts, reminders: 0, ..task.clone() }, event, Some(text), ids)
            .act(Action::Offer)
    }

    /// Returns the tasks that lose their owner when it ends for good.
    pub(super) fn released_by(&self, name: &Name) -> Vec<TaskId> {
        self.team.held_by(name).map(|task| task.id).into_iter().collect()
    }
}

fn not_for_teammates(message: &str) -> Refusal {
    Refusal::new(RefusalCode::Rejected, message).hint("tell the lead what you need, with send_message")
}

fn failed_check(task: &Task, (check, attempts): (&Check, u32), ended: &CheckReport) -> String {
    let how = match ended.exit {
        Some(code) => format!("exited with {code}"),
        None => ended.how.clone(),
    };
    let (id, most) = (task.id, task.max_attempts);
    format!(
        "the check of task {id} failed (attempt {attempts} of {most}): `{}` {how}\n{}",
        check.command,
        ended.output.trim_end()
    )
}
