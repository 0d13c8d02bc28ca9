//! What the model of the agent has cost, and is in no entry yet.

use teamd_shared::transcript::Usage;
use teamd_worker_core::state::Budget;

/// The cost.
#[derive(Debug, Default)]
pub(super) struct Cost {
    usage: Usage,
    model_calls: u32,
    /// Whether an answer has begun that is in no entry yet: its cost is recorded with it.
    pub(super) is_answering: bool,
    /// How many answers have begun since the agent was to end its turn.
    pub(super) begun_in_vain: u32,
}

impl Cost {
    /// Applies that an answer begins.
    pub(super) fn begin_answer(&mut self) {
        self.model_calls = self.model_calls.saturating_add(1);
        self.begun_in_vain = self.begun_in_vain.saturating_add(1);
        self.is_answering = true;
    }

    pub(super) fn add(&mut self, usage: Usage) {
        self.usage += usage;
    }

    /// Takes out the cost, and the number of answers that have begun.
    pub(super) fn take(&mut self) -> (Usage, u32) {
        let usage = std::mem::take(&mut self.usage);
        let model_calls = std::mem::take(&mut self.model_calls);
        (usage, model_calls)
    }

    /// Returns whether the budget is spent.
    pub(super) fn exceeds(&self, budget: &Budget) -> bool {
        self.model_calls > budget.turns || budget.reached(&self.usage).is_some()
    }
}
