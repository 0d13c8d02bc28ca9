//! The part of the fold that is about orders: what triggers them, and what they have made.

use std::collections::BTreeMap;

use super::{Line, MemberEvent, MemberRecord, TaskRecord, Team};
use crate::member::{Member, Phase};
use crate::message::LEAD;
use crate::order::{Cause, Order, OrderState, Trigger};
use crate::task::{Task, TaskEvent};

impl Team {
    /// Takes over the orders of a start. One that was in force before keeps what it has made.
    pub(super) fn put_orders(&mut self, orders: &[Order], line: &Line) {
        let mut before = std::mem::take(&mut self.orders);
        let states = orders.iter().map(|order| {
            let state = match before.remove(&order.name) {
                Some(mut state) => {
                    state.replace(order.clone(), line.at);
                    state
                }
                None => OrderState::new(order.clone(), line.at),
            };
            (order.name.clone(), state)
        });
        self.orders = states.collect::<BTreeMap<_, _>>();
        self.orders_changed = line.seq;
    }

    /// Returns the orders that are in force.
    pub fn orders_in_force(&self) -> Vec<&Order> {
        self.orders.values().map(|state| &state.order).collect()
    }

    /// Tells the orders about a task: one that an order has made, the end of one, or what triggers
    /// others. What follows from an order triggers none.
    pub(super) fn tell_orders(&mut self, record: &TaskRecord, line: &Line) {
        if self.orders.is_empty() {
            return;
        }
        let task = &record.task;
        if let Some(of) = &task.order {
            let Some(state) = self.orders.get_mut(&of.name).filter(|_| !of.follows) else {
                return;
            };
            match record.event {
                TaskEvent::Created => state.made(task.id, of, line.at),
                TaskEvent::Retried => state.reopened(task.id),
                _ if task.status.is_finished() => state.ended(task.id, line.at),
                _ => return,
            }
            self.orders_changed = line.seq;
            return;
        }
        if let Some(trigger) = Trigger::of(record.event) {
            let cause = Cause {
                at: line.at,
                task: Some(task.id),
                member: None,
                failed: trigger == Trigger::TaskFailed,
            };
            self.trigger(trigger, &cause, line);
        }
    }

    /// Tells the orders about a crash, unless the member worked on what follows from an order.
    pub(super) fn trigger_by_crash(&mut self, record: &MemberRecord, line: &Line) {
        let member = &record.member;
        let has_crashed = member.phase == Phase::Crashed || record.ended_incarnation.is_some();
        if record.event != MemberEvent::Exited || !has_crashed {
            return;
        }
        let worked_on = self.held_by(&member.name);
        if worked_on.is_some_and(|task| task.order.is_some()) {
            return;
        }
        let cause = Cause {
            at: line.at,
            task: None,
            member: Some(member.name.clone()),
            failed: false,
        };
        self.trigger(Trigger::MemberCrashed, &cause, line);
    }

    fn trigger(&mut self, trigger: Trigger, cause: &Cause, line: &Line) {
        for state in self.orders.values_mut() {
            if state.order.on == Some(trigger) {
                state.triggered(cause.clone());
                self.orders_changed = line.seq;
            }
        }
    }

    /// Tells whether a member may claim what an order makes when its next time comes.
    pub fn has_order_for(&self, member: &Member) -> bool {
        let timed = self
            .orders_in_force()
            .into_iter()
            .filter(|order| order.every.is_some());
        timed
            .filter_map(|order| order.task(1, 0.0, None, 0.0).ok())
            .any(|task| task.is_for(member))
    }

    /// Says why no running teammate may claim the task of an order by itself; none if one may.
    pub fn no_claimer(&self, order: &Order) -> Option<String> {
        let running = self
            .members
            .values()
            .map(|state| &state.record)
            .filter(|member| member.name.as_str() != LEAD && !member.phase.is_ended());
        let mut running = running.filter(|member| member.terms.auto).peekable();
        if running.peek().is_none() {
            return Some("no teammate with --auto runs".to_owned());
        }
        let task: Option<Task> = order.task(1, 0.0, None, 0.0).ok();
        let task = task?;
        let whom = task.reserved_for.clone().unwrap_or_default();
        let is_claimed = running.any(|member| task.is_for(member));
        (!is_claimed)
            .then(|| format!("no teammate with --auto that runs is {whom}, or has this role"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::journal::{Record, TeamEvent, TeamRecord};
    use crate::message::{TEAMD, USER};
    use crate::name::Name;
    use crate::task::{TaskFields, TaskId, TaskStatus};
    use jiff::tz::TimeZone;

    struct Journal {
        team: Team,
    }

    impl Journal {
        fn with(orders: &str) -> Self {
            let orders = serde_json::from_str(orders).unwrap();
            let record = TeamRecord {
                orders: Some(orders),
                ..TeamRecord::of(TeamEvent::Started, "t".to_owned(), None)
            };
            let mut journal = Self {
                team: Team::default(),
            };
            journal.write(100.0, Record::Team(Box::new(record)));
            journal
        }

        fn write(&mut self, at: f64, record: Record) {
            let line = Line {
                seq: self.team.seq + 1,
                at,
                version: None,
                done: 0,
                lead: None,
                record,
            };
            // As it is read from the file.
            let text = serde_json::to_string(&line).unwrap();
            self.team
                .apply(&serde_json::from_str(&text).unwrap())
                .unwrap();
        }

        fn task(&mut self, at: f64, event: TaskEvent, task: Task) {
            let record = TaskRecord::of(event, task, TEAMD);
            self.write(at, Record::Task(Box::new(record)));
        }

        fn ends(&mut self, at: f64, id: TaskId, event: TaskEvent, status: TaskStatus) {
            let task = Task {
                status,
                ..self.team.tasks[&id].clone()
            };
            self.task(at, event, task);
        }

        /// Has an order make its task, if it is to.
        fn make(&mut self, order: &str, at: f64) -> Option<TaskId> {
            let state = &self.team.orders[&Name::new(order).unwrap()];
            let due = state.due(at, &TimeZone::UTC)?;
            let id = self.team.last_task + 1;
            let task = state.order.task(id, due.at, due.cause, at).unwrap();
            self.task(at, TaskEvent::Created, task);
            Some(id)
        }
    }

    fn plain(id: TaskId) -> Task {
        let fields = TaskFields {
            subject: Some("x".to_owned()),
            ..TaskFields::default()
        };
        fields.create(id, USER, 1.0).unwrap()
    }

    const ON_FAILURE: &str =
        r#"[{"name": "mend", "on": "task.failed", "task": {"subject": "look", "check": "true"}}]"#;

    #[test]
    fn a_failed_task_makes_one_and_that_ones_failing_makes_none() {
        let mut journal = Journal::with(ON_FAILURE);
        journal.task(110.0, TaskEvent::Created, plain(1));
        journal.ends(120.0, 1, TaskEvent::Completed, TaskStatus::Completed);
        assert_eq!(journal.make("mend", 121.0), None);
        journal.task(130.0, TaskEvent::Created, plain(2));
        journal.ends(140.0, 2, TaskEvent::Failed, TaskStatus::Failed);
        // A daemon that died here finds in the journal what is to be made; so does a snapshot.
        let snapshot = journal.team.snapshot().unwrap();
        journal.write(141.0, snapshot);
        assert_eq!(journal.make("mend", 142.0), Some(3));
        assert_eq!(journal.make("mend", 142.5), None, "once");
        assert_eq!(
            journal.team.tasks[&3].description,
            "Order mend: task 2 has failed."
        );
        let follow_up = Task {
            order: journal.team.tasks[&3]
                .order
                .as_ref()
                .map(|of| of.follow_up()),
            ..plain(4)
        };
        journal.task(143.0, TaskEvent::Created, follow_up);
        journal.ends(144.0, 4, TaskEvent::Failed, TaskStatus::Failed);
        journal.ends(145.0, 3, TaskEvent::Failed, TaskStatus::Failed);
        assert_eq!(journal.make("mend", 146.0), None);
        let state = &journal.team.orders[&Name::new("mend").unwrap()];
        assert_eq!(
            (state.open, state.ended_at, state.made.len()),
            (None, Some(145.0), 1)
        );
    }

    #[test]
    fn an_order_keeps_what_it_has_made_over_a_start_and_new_times_begin_anew() {
        let every = |every: &str| {
            json!([{"name": "a", "every": every, "most": 3, "task": {"subject": "x"}}]).to_string()
        };
        let mut journal = Journal::with(&every("10s"));
        assert_eq!(journal.make("a", 111.0), Some(1));
        let start = |journal: &mut Journal, at: f64, orders: &str| {
            let record = TeamRecord {
                orders: Some(serde_json::from_str(orders).unwrap()),
                ..TeamRecord::of(TeamEvent::Started, "t".to_owned(), None)
            };
            journal.write(at, Record::Team(Box::new(record)));
        };
        start(&mut journal, 115.0, &every("10s"));
        let name = Name::new("a").unwrap();
        let state = &journal.team.orders[&name];
        assert_eq!(
            (state.since, state.open, state.made.len()),
            (100.0, Some(1), 1)
        );
        start(&mut journal, 116.0, &every("20s"));
        assert_eq!(journal.team.orders[&name].since, 116.0);
        start(&mut journal, 117.0, "[]");
        assert!(journal.team.orders.is_empty());
    }
}
