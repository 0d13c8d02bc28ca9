//! What a run has spent: the tokens that the roster shows beyond those at its beginning, by member,
//! model and task. Pure.

use std::collections::BTreeMap;

use teamd_client::read::money;
use teamd_shared::config::Roster;
use teamd_shared::name::Name;
use teamd_shared::price::{Dollars, Prices};
use teamd_shared::task::{Task, TaskId};
use teamd_shared::usage::{Usage, UsageByModel};

/// What was used, for what.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UsagePurpose {
    pub(super) member: Name,
    pub(super) model: String,
    /// The task that the member held last.
    pub(super) task: Option<TaskId>,
}

/// The account of a run.
#[derive(Debug, Default)]
pub(super) struct RunUsage {
    counted: BTreeMap<Name, UsageByModel>,
    held: BTreeMap<Name, TaskId>,
    all: BTreeMap<UsagePurpose, Usage>,
}

impl RunUsage {
    /// Begins an account: what was used so far is not of this run.
    pub(super) fn since(roster: &Roster) -> Self {
        let counted = roster
            .members
            .iter()
            .map(|member| (member.name.clone(), member.usage_by_model()))
            .collect();
        Self {
            counted,
            ..Self::default()
        }
    }

    /// Records a change of a task: what its owner uses from now on is for this task.
    pub(super) fn task(&mut self, task: &Task) {
        if let Some(owner) = &task.owner {
            self.held.insert(owner.clone(), task.id);
        }
    }

    /// Records what the members have used.
    pub(super) fn observe(&mut self, roster: &Roster) {
        for member in &roster.members {
            let used = member.usage_by_model();
            let before = self.counted.get(&member.name).cloned().unwrap_or_default();
            let goes_on = before.all().beyond(&used.all()).is_nothing();
            if goes_on && is_unsorted(&before, &used) {
                continue;
            }
            let before = if goes_on {
                before
            } else {
                // A new conversation counts from nothing.
                UsageByModel::default()
            };
            self.counted.insert(member.name.clone(), used.clone());
            let more = used.own.beyond(&before.own);
            self.add(&member.name, money::model(member), more);
            for (model, usage) in used.others {
                let before = before.others.get(&model).copied().unwrap_or_default();
                self.add(&member.name, model, usage.beyond(&before));
            }
        }
    }

    fn add(&mut self, member: &Name, model: String, more: Usage) {
        if more.is_nothing() {
            return;
        }
        let purpose = UsagePurpose {
            task: self.held.get(member).copied(),
            member: member.clone(),
            model,
        };
        *self.all.entry(purpose).or_default() += more;
    }

    /// Sums up what was used for a purpose, and what that cost; none if a price is not known.
    pub(super) fn sum(
        &self,
        prices: &Prices,
        is_wanted: impl Fn(&UsagePurpose) -> bool,
    ) -> (Usage, Option<Dollars>) {
        let mut usage = Usage::default();
        let mut cost = Some(Dollars::default());
        for (purpose, more) in self.all.iter().filter(|(purpose, _)| is_wanted(purpose)) {
            usage += *more;
            cost = cost.and_then(|cost| Some(cost + prices.cost(&purpose.model, more)?));
        }
        (usage, cost)
    }
}

/// Tells whether the roster does not know yet which part of it another model has used, and shows
/// that as used by the recorded one: so it is right after a restart of the daemon.
fn is_unsorted(before: &UsageByModel, used: &UsageByModel) -> bool {
    let mut others = before.others.iter();
    others.any(|(model, before)| {
        let now = used.others.get(model).copied().unwrap_or_default();
        !before.beyond(&now).is_nothing()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use teamd_shared::testing::roster_member;

    fn roster(members: &[(&str, &str, u64)]) -> Roster {
        let members: Vec<_> = members
            .iter()
            .map(|(name, model, tokens)| {
                let usage = Usage {
                    input_tokens: *tokens,
                    ..Usage::default()
                };
                roster_member(
                    &json!({"name": name, "model": model, "status": "idle", "usage": usage}),
                )
            })
            .collect();
        serde_json::from_value(
            json!({"version": 1, "seq": 1, "team_name": "t", "daemon": null, "members": members}),
        )
        .unwrap()
    }

    fn hold(spent: &mut RunUsage, name: &str, id: TaskId) {
        let fields = teamd_shared::task::TaskFields {
            subject: Some("x".to_owned()),
            ..Default::default()
        };
        let task = fields.create(id, "user", 0.0).unwrap();
        spent.task(&Task {
            owner: Some(Name::new(name).unwrap()),
            ..task
        });
    }

    #[test]
    fn what_is_used_is_for_the_task_that_is_held_and_a_new_conversation_counts_from_nothing() {
        let prices = Prices::built_in();
        let mut spent = RunUsage::since(&roster(&[("bob", "script", 100)]));
        spent.observe(&roster(&[("bob", "script", 110)]));
        hold(&mut spent, "bob", 7);
        spent.observe(&roster(&[
            ("bob", "script", 130),
            ("amy", "openai:unknown", 5),
        ]));
        // Spawned again, it has used 3 since.
        spent.observe(&roster(&[
            ("bob", "script", 3),
            ("amy", "openai:unknown", 5),
        ]));
        let tokens = |id| {
            spent
                .sum(&prices, |purpose| purpose.task == id)
                .0
                .input_tokens
        };
        assert_eq!(
            (tokens(None), tokens(Some(7)), tokens(Some(8))),
            (15, 23, 0)
        );
        assert_eq!(spent.sum(&prices, |_| true).1, None, "a price is not known");
        assert_eq!(
            spent.sum(&prices, |_| false),
            (Usage::default(), Some(Dollars::default()))
        );
    }

    #[test]
    fn what_another_model_has_used_is_counted_once_though_the_roster_learns_of_it_late() {
        let with = |own: u64, small: u64| {
            let mut roster = roster(&[("bob", "script", own + small)]);
            let usage = Usage {
                input_tokens: small,
                ..Usage::default()
            };
            if small > 0 {
                let others = &mut roster.members[0].other_models.usage;
                others.insert("openai:small".to_owned(), usage);
            }
            roster
        };
        let mut spent = RunUsage::since(&with(10, 3));
        spent.observe(&with(20, 8));
        // The daemon has just begun.
        spent.observe(&with(28, 0));
        hold(&mut spent, "bob", 7);
        spent.observe(&with(20, 8));
        spent.observe(&with(20, 10));
        let of = |model: &str| {
            let (usage, _) = spent.sum(&Prices::built_in(), |purpose| purpose.model == model);
            usage.input_tokens
        };
        assert_eq!((of("script"), of("openai:small")), (10, 7));
    }
}
