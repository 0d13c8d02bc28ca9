//! Orders: the tasks that the daemon makes by itself, at their time or because something happened.
//!
//! The line of the task is the record of what was due ([`teamd_shared::order::OrderState`]): so a
//! kill between any two writes makes no second task, and loses none.

use teamd_shared::id::Ids;
use teamd_shared::journal::Record;
use teamd_shared::message::TEAMD;
use teamd_shared::order::OfOrder;
use teamd_shared::task::{Task, TaskEvent};

use super::{Decision, DecisionView};
use crate::core::caller::Actor;
use crate::core::event::Action;

impl DecisionView<'_> {
    /// Makes the tasks of the orders that are due.
    pub(super) fn orders(&self, ids: &mut dyn Ids) -> Decision {
        let mut decision = Decision::default();
        if self.team.stopping {
            return decision;
        }
        let zone = self.runtime.orders.zone();
        let mut id = self.team.last_task;
        for state in self.team.orders.values() {
            let Some(due) = state.due(self.now.wall, zone) else {
                continue;
            };
            let made = state.order.task(id + 1, due.at, due.cause, self.now.wall);
            // Its fields were checked when `team.toml` was read.
            let Ok(task) = made else {
                continue;
            };
            id += 1;
            let task = Task {
                // A teammate may have changed them since a person or the lead last set work.
                protected: self.team.protected.clone(),
                ..task
            };
            let record = self.recorded(TaskEvent::Created, (task, TEAMD), ids);
            decision = decision.record(Record::Task(Box::new(record)));
        }
        if decision.records.is_empty() {
            return decision;
        }
        decision.act(Action::Offer)
    }

    /// Returns the order from which a new task follows, if a member makes it: that of the task that
    /// it holds, or of one that the new one waits for.
    pub(super) fn follows_from(&self, by: &Actor, task: &Task) -> Option<OfOrder> {
        let Actor::Member(name) = by else {
            return None;
        };
        let waits_for = task.blocked_by.iter();
        let waits_for = waits_for.filter_map(|id| self.team.tasks.get(id));
        let held = self.team.held_by(name);
        let mut orders = held
            .into_iter()
            .chain(waits_for)
            .filter_map(|it| it.order.as_ref());
        orders.next().map(OfOrder::follow_up)
    }
}
