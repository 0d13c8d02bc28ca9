//! What a piece of work has cost, pure. An agent says what its model costs; its gateway counts the
//! calls of the agent and of its tools. The larger of both counts holds, each kind of tokens for
//! itself. The two come at different times, so what is recorded next is what that has more than was
//! recorded before.

use teamd_shared::transcript::Usage;

/// Tokens, and model calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// What the model was charged for.
    pub usage: Usage,
    /// How many times it was asked.
    pub calls: u32,
}

/// The counts of a piece of work.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    reported: Spent,
    metered: Spent,
    recorded: Spent,
}

impl Ledger {
    /// Takes in what the agent, or any model, has said.
    pub fn report(&mut self, usage: Usage, calls: u32) {
        self.reported.add(usage, calls);
    }

    /// Takes in what the gateway has counted.
    pub fn meter(&mut self, (usage, calls): (Usage, u32)) {
        self.metered.add(usage, calls);
    }

    /// Takes out what is to be recorded now.
    pub fn due(&mut self) -> Spent {
        let Self {
            reported,
            metered,
            recorded,
        } = *self;
        let extra = metered.usage.beyond(&reported.usage);
        let mut all = reported.usage;
        all += extra;
        let usage = all.beyond(&recorded.usage);
        let calls = reported
            .calls
            .max(metered.calls)
            .saturating_sub(recorded.calls);
        self.recorded.add(usage, calls);
        Spent { usage, calls }
    }
}

impl Spent {
    fn add(&mut self, usage: Usage, calls: u32) {
        self.usage += usage;
        self.calls = self.calls.saturating_add(calls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
        Usage {
            input_tokens,
            output_tokens,
            ..Usage::default()
        }
    }

    fn due(ledger: &mut Ledger) -> (u64, u64, u32) {
        let Spent { usage, calls } = ledger.due();
        (usage.input_tokens, usage.output_tokens, calls)
    }

    #[test]
    fn the_larger_count_holds_whichever_comes_first() {
        let mut ledger = Ledger::default();
        // The gateway is ahead of what the agent says of the same call.
        ledger.report(usage(100, 1), 1);
        ledger.meter((usage(100, 7), 1));
        assert_eq!(due(&mut ledger), (100, 7, 1));
        ledger.report(usage(0, 6), 0);
        assert_eq!(due(&mut ledger), (0, 0, 0));
        // Calls that the agent knows nothing of.
        ledger.meter((usage(50, 5), 2));
        assert_eq!(due(&mut ledger), (50, 5, 2));
        // An agent that says more is believed.
        ledger.report(usage(80, 0), 4);
        assert_eq!(due(&mut ledger), (30, 0, 2));
        assert_eq!(due(&mut ledger), (0, 0, 0));
    }

    #[test]
    fn without_a_gateway_it_is_what_was_reported() {
        let mut ledger = Ledger::default();
        for _ in 0..3 {
            ledger.report(usage(10, 1), 1);
            assert_eq!(due(&mut ledger), (10, 1, 1));
        }
    }
}
