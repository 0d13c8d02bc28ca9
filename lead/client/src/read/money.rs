//! What members and the whole team have cost, by the prices that are known.

use std::collections::BTreeSet;

use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::price::{Dollars, Prices};
use teamd_shared::terms::model_of;

use crate::context::Context;

/// Returns the prices of models. A file of the user that makes no sense is reported, and counts for
/// nothing.
pub fn prices(context: &Context) -> Prices {
    Prices::load(|name| std::env::var_os(name)).unwrap_or_else(|error| {
        context.out.note(&error);
        context.out.hint(error.hint());
        Prices::built_in()
    })
}

/// Names the model of a member in full.
pub fn model(member: &RosterMember) -> String {
    model_of(
        &member.model,
        member.agent.as_ref().map(|agent| agent.protocol),
    )
}

/// Returns what a member has cost, at the prices of its present model and of those that answered in
/// its place; none if that is not known, or
/// no model was used.
pub fn of_member(member: &RosterMember, prices: &Prices) -> Option<Dollars> {
    if member.usage.is_nothing() {
        return None;
    }
    let used = member.usage_by_model();
    let own = prices.cost(&model(member), &used.own)?;
    let others = used.others.iter();
    others
        .map(|(model, usage)| prices.cost(model, usage))
        .try_fold(own, |sum, cost| Some(sum + cost?))
}

/// Returns the first model of a member whose price is not known.
fn unpriced<'m>(member: &'m RosterMember, prices: &Prices) -> &'m str {
    let mut others = member.other_models.usage.keys();
    let other = others.find(|other| prices.of(other).is_none());
    match other {
        Some(other) if prices.of(&model(member)).is_some() => other,
        _ => &member.model,
    }
}

/// What a team has cost.
pub struct TeamCost<'r> {
    /// As far as it is known.
    known: Dollars,
    /// The models that were used and have no known price.
    unpriced: BTreeSet<&'r str>,
}

impl<'r> TeamCost<'r> {
    /// Sums up the members.
    pub fn of(roster: &'r Roster, prices: &Prices) -> Self {
        let mut cost = Self {
            known: Dollars::default(),
            unpriced: BTreeSet::new(),
        };
        for member in &roster.members {
            match of_member(member, prices) {
                Some(more) => cost.known = cost.known + more,
                None if member.usage.is_nothing() => {}
                None => _ = cost.unpriced.insert(unpriced(member, prices)),
            }
        }
        cost
    }

    /// Returns the sum; none if a part of it is not known.
    pub fn all(&self) -> Option<Dollars> {
        self.unpriced.is_empty().then_some(self.known)
    }

    /// Formats the sum that follows the tokens; nothing if no price is known, or nothing was to be
    /// paid.
    pub fn describe(&self) -> String {
        if self.known == Dollars::default() {
            return String::new();
        }
        let models: Vec<&str> = self.unpriced.iter().copied().collect();
        if models.is_empty() {
            format!("; {}", self.known)
        } else {
            format!(
                "; {} without {} (no price is known)",
                self.known,
                models.join(", ")
            )
        }
    }
}
