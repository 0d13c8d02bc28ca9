//! Tasks in the simulated team: what people and teammates want of them, their checks, and their
//! files.

use teamd_shared::control::TaskOrder;
use teamd_shared::id::Ids;
use teamd_shared::name::Name;
use teamd_shared::task::{Task, TaskFields, TaskId, TaskStatus};

use super::super::promises::check;
use super::daemon::Daemon;
use super::world::{NAMES, World};
use crate::core::incarnation::Incarnation;
use crate::core::quiet::{TaskStanding, standing};

/// How many tasks are open before no more are made.
const OPEN: usize = 5;

impl World {
    /// Returns what a person wants of tasks.
    pub(super) fn task_order(&mut self) -> TaskOrder {
        let open = self
            .promises
            .fold
            .tasks
            .values()
            .filter(|task| !task.status.is_finished())
            .count();
        let id = self.some_task();
        let name = self.some_name(true);
        // Work that is withdrawn while it is checked, and submitted again, is rare otherwise.
        if self.rng.one_in(5)
            && let Some(in_review) = self.some_at(TaskStatus::InReview)
        {
            return TaskOrder::Release(in_review);
        }
        match self.rng.below(18) {
            0..=2 if open < OPEN => self.new_tasks(true),
            0..=6 => TaskOrder::Submit(
                self.some_at(TaskStatus::InProgress).unwrap_or(id),
                "done by a person".to_owned(),
            ),
            7 => TaskOrder::Release(id),
            8 => TaskOrder::Assign(id, name),
            9 => TaskOrder::Cancel(id),
            10 => {
                let fields = TaskFields {
                    blocked_by: self.rng.one_in(2).then(|| vec![self.some_task()]),
                    ..self.fields(true)
                };
                TaskOrder::Edit(id, Box::new(fields))
            }
            11 => TaskOrder::Retry(id, Box::default()),
            12 => TaskOrder::Retry(id, Box::new(self.fields(true))),
            13 => TaskOrder::Claim(None),
            14 | 15 => TaskOrder::Release(self.some_at(TaskStatus::InReview).unwrap_or(id)),
            _ => TaskOrder::List(self.rng.one_in(2).then_some(id)),
        }
    }

    /// Returns what a member wants of tasks: mostly to claim one, or to submit the one that it
    /// holds.
    pub(super) fn task_wish(&mut self, name: &Name) -> TaskOrder {
        let held = self.promises.fold.held_by(name).map(|task| task.id);
        match (self.rng.below(12), held) {
            (0..=6, Some(id)) => TaskOrder::Submit(id, "it is done".to_owned()),
            (9, Some(id)) => TaskOrder::Release(id),
            (0..=3, None) => TaskOrder::Claim(None),
            (4..=6, None) => TaskOrder::Claim(Some(self.some_task())),
            (7, _) => {
                let reserved = self.rng.one_in(3);
                self.new_tasks(reserved)
            }
            (8, _) => TaskOrder::Claim(None),
            _ => self.task_order(),
        }
    }

    /// Returns the number of a task, mostly of one that is not finished, or of none.
    fn some_task(&mut self) -> TaskId {
        let fold = &self.promises.fold;
        let open: Vec<TaskId> = fold
            .tasks
            .values()
            .filter(|task| !task.status.is_finished())
            .map(|task| task.id)
            .collect();
        let any = self.rng.below(fold.last_task + 2);
        if self.rng.one_in(4) {
            any
        } else {
            self.rng.pick(&open).unwrap_or(any)
        }
    }

    /// Returns the number of a task of that status.
    fn some_at(&mut self, status: TaskStatus) -> Option<TaskId> {
        let tasks = self.promises.fold.tasks.values();
        let at: Vec<TaskId> = tasks
            .filter(|task| task.status == status)
            .map(|task| task.id)
            .collect();
        self.rng.pick(&at)
    }

    fn new_tasks(&mut self, reserved: bool) -> TaskOrder {
        let within = self.rng.one_in(3);
        let many = if within { 2 } else { 1 };
        let mut tasks: Vec<TaskFields> = (0..many).map(|_| self.fields(reserved)).collect();
        if self.rng.one_in(2)
            && let Some(last) = tasks.last_mut()
        {
            last.blocked_by = Some(vec![if within { 1 } else { self.some_task() }]);
        }
        TaskOrder::Add {
            id: self.ids.request(),
            tasks,
            within,
        }
    }

    fn fields(&mut self, reserved: bool) -> TaskFields {
        let chosen = TaskFields {
            subject: Some("build it".to_owned()),
            priority: self.rng.one_in(4).then_some(1),
            plan: self.rng.one_in(6).then_some(true),
            ..TaskFields::default()
        };
        if !reserved {
            return chosen;
        }
        let whom = self.rng.pick(&NAMES).map(str::to_owned);
        TaskFields {
            reserved_for: if self.rng.one_in(4) { whom } else { None },
            check: (!self.rng.one_in(4)).then(|| "make test".to_owned()),
            review: self
                .rng
                .one_in(4)
                .then(|| self.rng.pick(&["person", "lead"]).unwrap().to_owned()),
            no_check: self.rng.one_in(6).then_some(true),
            max_attempts: self.rng.one_in(4).then_some(1),
            ..chosen
        }
    }

    /// Writes the file of a task, unless the disk refuses.
    pub(super) fn writes_task(&mut self, daemon: &mut Daemon, task: &Task) {
        if !self.calm && self.rng.one_in(30) {
            self.note(|| format!("  the file of task {} cannot be written", task.id));
            daemon.unshown.insert(task.id, task.clone());
            self.disk.refused.insert(task.id);
            return;
        }
        daemon.unshown.remove(&task.id);
        self.disk.tasks.insert(task.id, task.clone());
    }

    /// Looks whether the tasks have come to rest: each file says how its task stands, no check or
    /// review is due, and no member that takes work is without it while there is some.
    pub(super) fn tasks_rest(&self) -> Result<(), String> {
        let Some(daemon) = &self.daemon else {
            return Ok(());
        };
        let fold = &self.promises.fold;
        for task in self.promises.tasks.all() {
            let review = task.review_id().and_then(|id| fold.requests.get(id));
            let waits = review.is_some_and(|review| review.is_pending());
            // It can still write, as far as is known.
            let author = task.checked_in_place();
            let hangs = self
                .processes
                .values()
                .any(|it| it.hung && author == Some(&it.incarnation.name));
            check(
                task.status != TaskStatus::InReview || waits || hangs,
                || {
                    format!(
                        "task {} is never checked, or no review of it is asked for",
                        task.id
                    )
                },
            )?;
            // A daemon that died behind a refusal has told in its log that the file is old.
            let is_excused =
                self.disk.refused.contains(&task.id) && !fold.tasks.contains_key(&task.id);
            let shown = self.disk.tasks.get(&task.id);
            // What waits for it can come when it is completed, and no more in memory.
            check(
                is_excused
                    || shown.is_some_and(|shown| match task.status {
                        TaskStatus::Completed => {
                            shown.status == task.status && shown.result == task.result
                        }
                        _ => *shown == *task,
                    }),
                || format!("task {} is {task:?}, and its file says {shown:?}", task.id),
            )?;
        }
        let members = fold.members.values().map(|state| &state.record);
        for member in members
            .filter(|member| !member.phase.is_ended())
            .filter(|member| {
                let worker = daemon.dispatcher.runtime.of(&Incarnation::of(member));
                let hung = self
                    .processes
                    .values()
                    .any(|it| it.hung && it.incarnation.name == member.name);
                let rests =
                    worker.is_some_and(|worker| worker.is_connected() && worker.ready) && !hung;
                let team = &daemon.dispatcher.team;
                let standing = standing(team, &daemon.dispatcher.runtime, member);
                rests
                    && !matches!(standing, TaskStanding::Refused(_))
                    && member.terms.auto
                    && member.ending.is_none()
                    && fold.pending_of(&member.name).next().is_none()
                    && fold.held_by(&member.name).is_none()
            })
        {
            let next = fold.next_for(member, &Default::default());
            let next = if !fold.stopping { next } else { None };
            check(next.is_none(), || {
                format!("{} is idle, and is not given {next:?}", member.name)
            })?;
        }
        Ok(())
    }
}
