//! Whether something that asks may begin. Pure.

use std::time::Duration;

/// What one that asks sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueView {
    /// How long it has waited.
    pub(crate) waited: Duration,
    /// How many wait before it.
    pub(crate) before: u32,
    /// Whether another one runs that was admitted.
    pub(crate) others_run: bool,
    /// Whether memory is short. It is looked at where something depends on it.
    pub(crate) is_short: bool,
}

/// Whether it may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueStanding {
    /// It begins.
    Begins,
    /// It waits.
    Waits {
        /// How many are before it.
        before: u32,
    },
}

impl QueueView {
    /// Tells whether the memory decides.
    pub(crate) fn depends_on_memory(self) -> bool {
        self.before == 0 && self.others_run
    }

    /// Decides. What waits longer than its patience begins: memory that stays short is no reason to
    /// do nothing.
    pub(crate) fn decide(self, patience: Duration) -> QueueStanding {
        let before = self.before;
        if self.waited >= patience {
            return QueueStanding::Begins;
        }
        if before > 0 || self.others_run && self.is_short {
            return QueueStanding::Waits { before };
        }
        QueueStanding::Begins
    }
}

#[cfg(test)]
mod tests;
