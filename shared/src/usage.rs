//! The tokens that models use. Pure.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tokens, as the model's service counts them. What was read is the sum of the three inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Read, and neither found in a cache nor put there.
    pub input_tokens: u64,
    /// Written.
    pub output_tokens: u64,
    /// Read from a cache, at a fraction of the price.
    pub cache_read_input_tokens: u64,
    /// Read, and put into a cache.
    pub cache_creation_input_tokens: u64,
}

impl Usage {
    /// Returns all that was read.
    pub fn input(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.cache_read_input_tokens)
            .saturating_add(self.cache_creation_input_tokens)
    }

    /// Returns all that was read and written: the one number of tokens that is shown.
    pub fn all(&self) -> u64 {
        self.input().saturating_add(self.output_tokens)
    }

    /// Tells whether nothing was read or written.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the usage beyond what was counted already.
    pub fn beyond(&self, counted: &Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_sub(counted.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(counted.output_tokens),
            cache_read_input_tokens: self
                .cache_read_input_tokens
                .saturating_sub(counted.cache_read_input_tokens),
            cache_creation_input_tokens: self
                .cache_creation_input_tokens
                .saturating_sub(counted.cache_creation_input_tokens),
        }
    }

    /// Returns what counts against a budget: everything except what came from a cache.
    pub fn billed(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.cache_creation_input_tokens)
            .saturating_add(self.output_tokens)
    }
}

/// The tokens of a conversation, by the models that used them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsageByModel {
    /// What the recorded model has used.
    pub own: Usage,
    /// What others have used that answered in its place.
    pub others: BTreeMap<String, Usage>,
}

impl UsageByModel {
    /// Counts what a model has used; none: the recorded one.
    pub fn count(&mut self, model: Option<&str>, usage: Usage) {
        let Some(model) = model else {
            self.own += usage;
            return;
        };
        if !usage.is_nothing() {
            *self.others.entry(model.to_owned()).or_default() += usage;
        }
    }

    /// Parts a sum into what others have used, and the rest.
    pub fn parted(all: &Usage, others: BTreeMap<String, Usage>) -> Self {
        let own = all.beyond(&sum(&others));
        Self { own, others }
    }

    /// Sums up all models.
    pub fn all(&self) -> Usage {
        let mut all = self.own;
        all += sum(&self.others);
        all
    }
}

fn sum(usages: &BTreeMap<String, Usage>) -> Usage {
    let mut sum = Usage::default();
    for usage in usages.values() {
        sum += *usage;
    }
    sum
}

/// What a member has of models other than the recorded one.
///
/// It is also part of control frames: no field may be left out when it is written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct OtherModels {
    /// The one that answers now in the place of the recorded one; null: that one does.
    pub answers: Option<String>,
    /// What each of them has used. It is part of the usage of the conversation.
    pub usage: BTreeMap<String, Usage>,
}

impl OtherModels {
    /// Tells whether no other model answers or has answered.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        add(&mut self.input_tokens, other.input_tokens);
        add(&mut self.output_tokens, other.output_tokens);
        add(
            &mut self.cache_read_input_tokens,
            other.cache_read_input_tokens,
        );
        add(
            &mut self.cache_creation_input_tokens,
            other.cache_creation_input_tokens,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(input_tokens: u64) -> Usage {
        Usage {
            input_tokens,
            ..Usage::default()
        }
    }

    #[test]
    fn a_sum_is_parted_by_models_again() {
        let mut used = UsageByModel::default();
        used.count(None, tokens(5));
        used.count(Some("openai:small"), tokens(7));
        used.count(Some("openai:small"), tokens(1));
        used.count(Some("openai:other"), Usage::default());
        assert_eq!(used.all(), tokens(13));
        assert_eq!(used.others.len(), 1, "what was not used is not listed");
        assert_eq!(UsageByModel::parted(&used.all(), used.others.clone()), used);
    }
}
