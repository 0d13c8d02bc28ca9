//! What members and tasks took: turns, tokens, cost and time. Pure, but for the prices.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use teamd_shared::name::Name;
use teamd_shared::price::{Dollars, Prices};
use teamd_shared::task::TaskId;
use teamd_shared::transcript::Usage;

use super::ledger::{ConversationLedger, SpentUsage};
use super::past::{Past, Stand, TimeSpan};

/// What a member or a task took.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CostShare {
    /// How many answers the model gave.
    pub turns: u32,
    /// By model.
    usage: BTreeMap<String, Usage>,
    /// What was used when, oldest first of each member.
    pub spent: Vec<SpentUsage>,
    /// Seconds.
    pub working: f64,
    /// Seconds.
    pub waiting: f64,
}

/// The account of a team.
pub struct CostAccount<'p> {
    past: &'p Past,
    held: BTreeMap<&'p Name, Vec<(TaskId, TimeSpan)>>,
    now: f64,
    /// What each member has cost.
    pub members: BTreeMap<Name, CostShare>,
    /// What each task has cost.
    pub tasks: BTreeMap<TaskId, CostShare>,
}

impl<'p> CostAccount<'p> {
    /// Begins with the times of the tasks.
    pub fn new(past: &'p Past, now: f64) -> Self {
        let mut tasks: BTreeMap<TaskId, CostShare> = BTreeMap::new();
        for (id, task) in &past.tasks {
            let share = tasks.entry(*id).or_default();
            for (stand, (from, to)) in &task.spans {
                let seconds = (to.unwrap_or(now) - from).max(0.0);
                match stand {
                    Stand::Pending => {}
                    Stand::Held(_) => share.working += seconds,
                    Stand::Checking | Stand::Waiting => share.waiting += seconds,
                }
            }
        }
        Self {
            past,
            held: past.held(),
            now,
            members: BTreeMap::new(),
            tasks,
        }
    }

    /// Takes in the conversation of a member: its name, its model, and whether it runs.
    pub fn member(
        &mut self,
        (name, model, runs): (&Name, &str, bool),
        ledger: &ConversationLedger,
    ) {
        let waits: Vec<(f64, f64)> = self
            .past
            .awaiting(name)
            .iter()
            .map(|(from, to)| (*from, to.unwrap_or(self.now)))
            .collect();
        let share = self.members.entry(name.clone()).or_default();
        for (from, to) in ledger.worked(&self.past.exits(name), runs) {
            let to = to.unwrap_or(self.now).max(from);
            let waited = waits
                .iter()
                .map(|(a, b)| (b.min(to) - a.max(from)).max(0.0))
                .sum::<f64>()
                .min(to - from);
            share.waiting += waited;
            share.working += to - from - waited;
        }
        let held = self.held.get(name).map(Vec::as_slice).unwrap_or_default();
        for spent in &ledger.spent {
            share.add(model, spent);
            let before = &held[..held.partition_point(|(_, (from, _))| *from <= spent.at)];
            if let Some((id, _)) = before
                .iter()
                .rev()
                .find(|(_, span)| span.1.is_none_or(|end| spent.at <= end))
            {
                self.tasks.entry(*id).or_default().add(model, spent);
            }
        }
    }
}

impl CostShare {
    fn add(&mut self, model: &str, spent: &SpentUsage) {
        self.turns = self.turns.saturating_add(spent.turns);
        let model = spent.model.as_deref().unwrap_or(model);
        match self.usage.get_mut(model) {
            Some(usage) => *usage += spent.usage,
            None => _ = self.usage.insert(model.to_owned(), spent.usage),
        }
        self.spent.push(spent.clone());
    }

    /// Sums up the tokens.
    pub fn usage(&self) -> Usage {
        let mut sum = Usage::default();
        for usage in self.usage.values() {
            sum += *usage;
        }
        sum
    }

    /// Returns what it cost; none if a price is not known.
    pub fn cost(&self, prices: &Prices) -> Option<Dollars> {
        let used = self.usage.iter().filter(|(_, usage)| !usage.is_nothing());
        used.map(|(model, usage)| prices.cost(model, usage))
            .try_fold(Dollars::default(), |sum, cost| Some(sum + cost?))
    }

    /// Adds it to what it is of, for programs.
    pub fn to_json(&self, prices: &Prices, mut of: Value) -> Value {
        of["turns"] = json!(self.turns);
        of["usage"] = json!(self.usage());
        of["cost"] = json!(self.cost(prices));
        of["working_seconds"] = json!(self.working);
        of["waiting_seconds"] = json!(self.waiting);
        of
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ledger::tests::of_alice;
    use teamd_client::testing::asked;
    use teamd_shared::task::{Task, TaskFields, TaskStatus};

    #[test]
    fn what_waits_for_an_answer_is_no_work_and_a_task_has_what_its_owner_used() {
        let (alice, ledger) = of_alice();
        let mut past = Past::default();
        let plan = asked(4, "a1b2c3d4", "plan_approval")
            .replace("\"resolved_at\":null", "\"resolved_at\":7.0");
        past.line(&serde_json::from_str(plan.trim_end()).unwrap());
        let fields = TaskFields {
            subject: Some("x".to_owned()),
            ..Default::default()
        };
        let task = fields.create(7, "user", 0.0).unwrap();
        let at = |status, owner: Option<&Name>| Task {
            status,
            owner: owner.cloned(),
            ..task.clone()
        };
        past.task(0.0, &at(TaskStatus::Pending, None), None);
        past.task(1.0, &at(TaskStatus::InProgress, Some(&alice)), None);
        past.task(3.0, &at(TaskStatus::InReview, Some(&alice)), None);
        past.task(9.0, &at(TaskStatus::Completed, None), None);
        let mut account = CostAccount::new(&past, 50.0);
        account.member((&alice, "script", true), &ledger);
        let member = &account.members[&alice];
        let task = &account.tasks[&7];
        // No record says when its process was killed; it counts as working until the next began.
        assert_eq!(
            (member.turns, member.working, member.waiting),
            (2, 27.0, 3.0)
        );
        assert_eq!(
            (
                task.turns,
                task.usage().input_tokens,
                task.working,
                task.waiting
            ),
            (1, 10, 2.0, 6.0)
        );
    }
}
