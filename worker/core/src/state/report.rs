//! What the worker says of itself, from what is known.

use std::collections::BTreeMap;

use teamd_shared::control::WorkerState;
use teamd_shared::member::Doing;
use teamd_shared::message::IdleReason;
use teamd_shared::price::{Dollars, Price};
use teamd_shared::request::Status;
use teamd_shared::terms::Total;
use teamd_shared::transcript::Usage;
use teamd_shared::usage::{OtherModels, UsageByModel};

use super::{Budget, State};
use crate::at::{At, Pending, SubmissionProgress};
use crate::tools::Grant;

impl Budget {
    /// Returns why nothing more may be spent, if so.
    pub fn reached(&self, spent: &Usage) -> Option<IdleReason> {
        if self.tokens.is_some_and(|most| spent.billed() >= most) {
            return Some(IdleReason::MaxTokens);
        }
        let (most, price) = self.cost?;
        price
            .is_none_or(|price| price.cost(spent) >= most)
            .then_some(IdleReason::MaxCost)
    }

    /// Returns what may still be spent, but for the cost.
    fn less_tokens(self, spent: &Usage) -> Self {
        let tokens = self.tokens.map(|most| most.saturating_sub(spent.billed()));
        Self { tokens, ..self }
    }

    /// Returns what may still be spent.
    pub fn less(self, spent: &Usage) -> Self {
        let cost = self.cost.map(|(most, price)| {
            (
                price.map_or(most, |price| most.less(price.cost(spent))),
                price,
            )
        });
        Self {
            cost,
            ..self.less_tokens(spent)
        }
    }

    /// Returns what is left of it after something was given to teammates.
    #[must_use]
    pub fn less_granted(self, granted: Grant) -> Self {
        let tokens = self.tokens.map(|most| most.saturating_sub(granted.tokens));
        let cost = self
            .cost
            .map(|(most, price)| (most.less(granted.cost), price));
        Self {
            tokens,
            cost,
            ..self
        }
    }

    /// Makes sure that it holds what is to be given to teammates, and that they have a limit where
    /// it has one.
    ///
    /// # Errors
    /// A text for the model: what is left, and what to name.
    pub fn can_grant(&self, grant: Grant) -> Result<(), String> {
        let nothing = self.tokens == Some(0)
            || self
                .cost
                .is_some_and(|(left, _)| left == Dollars::default());
        if nothing {
            return Err("nothing is left of the budget of your own piece of work, and what you give to teammates counts into it".to_owned());
        }
        if let Some(left) = self.tokens
            && (grant.tokens == 0 || grant.tokens > left)
        {
            return Err(format!(
                "your own piece of work has {left} tokens left, and what you give to teammates counts into it: name max_tokens, \
                 at most {left} for all of them together"
            ));
        }
        if let Some((left, _)) = self.cost
            && (grant.cost == Dollars::default() || grant.cost > left)
        {
            return Err(format!(
                "your own piece of work has {left} left, and what you give to teammates counts into it: name max_cost, at most \
                 {left} for all of them together"
            ));
        }
        Ok(())
    }

    /// Returns this budget, of which no more is left than of the total; `left`: of that.
    #[must_use]
    pub(super) fn within_total(self, left: Self) -> Self {
        Self {
            tokens: least(self.tokens, left.tokens, Ord::min),
            cost: least(self.cost, left.cost, |of_work, of_total| {
                (of_work.0.min(of_total.0), of_work.1)
            }),
            ..self
        }
    }

    /// Returns the total as a budget.
    pub(super) fn of_total(self) -> Self {
        let price = self.cost.and_then(|(_, price)| price);
        Self {
            tokens: self.total.tokens,
            cost: self.total.cost.map(|most| (most, price)),
            ..self
        }
    }

    /// Returns which limit ended a piece of work, and how it can continue; none for another end.
    pub fn explain(self, reason: IdleReason) -> Option<String> {
        let (what, flag) = match (reason, self.tokens) {
            (IdleReason::MaxTurns, _) if self.turns == 1 => {
                ("1 model call".to_owned(), "--max-turns")
            }
            (IdleReason::MaxTurns, _) => (format!("{} model calls", self.turns), "--max-turns"),
            (IdleReason::MaxTokens, Some(tokens)) => (format!("{tokens} tokens"), "--max-tokens"),
            (IdleReason::MaxTokens, None) => ("its tokens".to_owned(), "--max-tokens"),
            (IdleReason::MaxCost, _) => match self.cost {
                Some((most, Some(_))) => (most.to_string(), "--max-cost"),
                _ => (
                    "its cost (the price of its model is not known: `prices.toml` names none)"
                        .to_owned(),
                    "--max-cost",
                ),
            },
            _ => return None,
        };
        let key = flag.trim_start_matches("--").replace('-', "_");
        Some(format!(
            "stopped at the limit of {what} for one piece of work; a message lets it go on with as much again, \
             `{flag}` of `teamctl spawn` or `{key}` in team.toml raises the limit"
        ))
    }
}

/// Says that a command or a check waits, with so many before it.
pub fn waits_for_memory(before: u32) -> String {
    match before {
        0 => "waits for memory".to_owned(),
        before => format!("waits for memory, {before} before it"),
    }
}

/// Returns what holds of two limits, each of which may be none.
fn least<T>(one: Option<T>, other: Option<T>, lower: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(lower(one, other)),
        (one, other) => one.or(other),
    }
}

/// What it does while it writes a summary that a person has asked for.
const WRITES_SUMMARY: &str = "putting the conversation into a summary";

impl State {
    /// Returns which limit ended a piece of work, and what the lead or a person can do; none for
    /// another end.
    pub fn explain(&self, reason: IdleReason) -> Option<String> {
        if self.total_left().reached(&Usage::default()) != Some(reason) {
            return self.limits.explain(reason);
        }
        let Total { tokens, cost } = self.limits.total;
        let (spent, flag) = match (reason, tokens, cost) {
            (IdleReason::MaxTokens, Some(tokens), _) => {
                (format!("{tokens} tokens"), "--max-tokens N")
            }
            (IdleReason::MaxCost, _, Some(cost)) => (cost.to_string(), "--max-cost DOLLARS"),
            _ => return self.limits.explain(reason),
        };
        let name = self.work.owner();
        Some(format!(
            "stopped: it has spent all of the {spent} that its lead gave it for all its work, and no message lets it go on; \
             `spawn_teammate` starts another one, which counts into the lead's own budget, or a person shuts it down and \
             gives it more: `teamctl spawn {name} --resume {flag}`"
        ))
    }

    /// Returns what the worker says of itself; `needs_waking`: its inbox is not watched.
    pub fn report(&self, needs_waking: bool) -> WorkerState {
        let held;
        let (doing, activity) = match &self.work.at {
            At::Idle if self.compaction.runs.is_some() => (Doing::Idle, WRITES_SUMMARY),
            At::Idle => (Doing::Idle, self.work.last.trouble.as_str()),
            At::Pending(Pending {
                progress: SubmissionProgress::Recorded(Status::Pending),
                ..
            }) => (Doing::Idle, "waiting for approval"),
            At::Pending(_) => (Doing::Working, "asking for approval"),
            At::Asking => (Doing::Working, "waiting for a person"),
            At::Calling { activity, .. } => (Doing::Working, activity.as_str()),
            At::Thinking { .. } if self.compaction.runs.is_some() => {
                (Doing::Working, WRITES_SUMMARY)
            }
            At::Held { before, .. } => {
                held = waits_for_memory(*before);
                (Doing::Working, held.as_str())
            }
            At::Turn { .. } | At::Thinking { .. } | At::Call | At::Done(_) => {
                (Doing::Working, "thinking")
            }
        };
        let mut activity = activity.to_owned();
        if doing == Doing::Working && self.work.memory.killed {
            activity.push_str(" · its last command was killed for memory");
        }
        if doing == Doing::Working && !self.work.todo.is_done() {
            activity = format!("{activity} · {}", self.work.todo.summary());
        }
        if doing == Doing::Working && self.must_compact() && self.compaction.runs.is_none() {
            activity = format!("{activity} · then a summary of the conversation");
        }
        // Beside the activity, which the lead agent is shown: a pause is for people. One that was
        // told late belongs to a call that is over.
        let waiting = if matches!(self.work.at, At::Thinking { .. }) {
            self.service.pause.clone()
        } else {
            None
        };
        // Reported from before it is submitted: a state without it would let it expire as soon as
        // it is recorded.
        let awaits = self
            .submission()
            .map(|submission| submission.request_id.clone());
        WorkerState {
            applied_seq: self.directed.applied_seq,
            doing,
            activity,
            idle_reason: if matches!(self.work.at, At::Idle) {
                self.work.last.idle_reason
            } else {
                None
            },
            waiting,
            awaits,
            doubts: self.doubts(),
            needs_waking,
            read: self.work.position.offset,
            usage: self.work.usage.all(),
        }
    }

    /// Returns what the worker says of models other than the recorded one.
    pub fn other_models(&self) -> OtherModels {
        OtherModels {
            answers: self.work.fallback.clone(),
            usage: self.work.usage.others.clone(),
        }
    }

    /// Takes in what models cost that answer in the place of its own.
    pub fn know_prices(&mut self, prices: BTreeMap<String, Price>) {
        self.other_prices = prices;
    }

    /// Returns the price of the model that answers now.
    pub(super) fn price_of_answers(&self) -> Option<Price> {
        match &self.work.fallback {
            Some(model) => self.other_prices.get(model).copied(),
            None => self.limits.cost.and_then(|(_, price)| price),
        }
    }

    /// Returns what is left of limits after this was used, each model at its price. Nothing is left
    /// where a model was used whose price is not known.
    pub(super) fn left_of(&self, limits: Budget, used: &UsageByModel) -> Budget {
        let mut left = limits.less(&used.own);
        for (model, usage) in &used.others {
            let price = self.other_prices.get(model);
            let cost = left.cost.map(|(most, of_own)| {
                let most = price.map_or(Dollars::default(), |price| most.less(price.cost(usage)));
                (most, of_own)
            });
            left = left.less_tokens(usage);
            left.cost = cost;
        }
        left
    }

    /// Returns what is left of what a lead has given it for all its work.
    pub(super) fn total_left(&self) -> Budget {
        self.left_of(self.limits.of_total(), &self.work.usage)
    }
}
