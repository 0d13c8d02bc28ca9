//! What a lease does next. Nothing here waits, reads or writes.
//!
//! A command needs one slot for itself and one for each token that it has taken. A lease holds one
//! more where it can, and its token waits in the FIFO: when that is taken, the command wants more.
//! So slots go to commands that use them, one by one, while there are free ones. When none is free,
//! a lease below its fair share waits for it, and those above theirs take back the next token that
//! is not in use.
//!
//! A command that has not taken a token yet can take one for which no slot is held: so it costs
//! nothing until it builds. It can where a slot is free or its fair share would be more than one.
//! Then it runs one process that no slot covers, until another lease gives one back; cargo gives
//! none back while it has work.

use std::time::Duration;

/// How long a token waits until the command counts as one that builds nothing just now. A program
/// that waits for a token takes it at once.
const IDLE_FOR: Duration = Duration::from_millis(100);

/// How long a command that has no token and could take none counts as one that builds. Then its
/// slots are free for others.
const UNCLEAR_FOR: Duration = Duration::from_secs(5);

/// How long tokens may stay taken while none is taken or brought back. Then they count as lost: the
/// commands of an agent are killed, and the agent goes on.
const LOST_AFTER: Duration = Duration::from_secs(600);

/// What a lease sees when it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// How many tokens its command has taken.
    pub(crate) taken: u32,
    /// How many tokens wait in the FIFO.
    pub(crate) waiting: u32,
    /// What it sees of the pool.
    pub(crate) pool: View,
}

/// What a lease sees of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// It has no part in it.
    Outside {
        /// Whether its command may take a first token.
        may_begin: bool,
    },
    /// It takes part.
    Inside(Share),
}

/// What a lease that takes part sees of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// How many slots it holds.
    pub(crate) held: u32,
    /// How many it may hold while others wait for theirs.
    pub(crate) fair: u32,
    /// What it has said.
    pub(crate) wish: Wish,
    /// The most that another lease has said.
    pub(crate) wish_of_others: Wish,
    /// Whether it has just found that no slot is free.
    pub(crate) none_free: bool,
}

/// What a lease has no slot for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    /// It has all that it uses.
    Nothing,
    /// It would use another slot, if one was free.
    More,
    /// It waits for its fair share.
    FairShare,
}

/// What a lease does next. It looks again after each, up to [`Step::Rest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Takes part in the pool.
    Join,
    /// Takes one slot, if one is free.
    TakeSlot,
    /// Puts one token into the FIFO.
    Put,
    /// Takes one token out of the FIFO. It was there without a slot.
    TakeOut,
    /// Takes one token out of the FIFO, and frees its slot.
    GiveBack,
    /// Says what it has no slot for.
    Wish(Wish),
    /// Nothing, until something changes.
    Rest,
}

impl Seen {
    /// Decides.
    pub(crate) fn step(self) -> Step {
        let tokens = self.taken + self.waiting;
        let share = match self.pool {
            View::Inside(share) => share,
            View::Outside { .. } if self.taken > 0 => return Step::Join,
            View::Outside { may_begin: true } if self.waiting == 0 => return Step::Put,
            View::Outside { may_begin: false } if self.waiting > 0 => return Step::TakeOut,
            View::Outside { .. } => return Step::Rest,
        };
        let covered = share.held.max(1) - 1;
        if tokens > covered && self.waiting > 0 {
            return Step::TakeOut;
        }
        if tokens < covered {
            return Step::Put;
        }
        let needed = 1 + self.taken + 1;
        let others_wait = share.wish_of_others == Wish::FairShare;
        let is_above = share.held > needed || (others_wait && share.held > share.fair);
        if is_above && self.waiting > 0 {
            return Step::GiveBack;
        }
        let is_below = share.held < share.fair;
        let wish = match (share.held < needed, is_below) {
            (false, _) => Wish::Nothing,
            (true, false) => Wish::More,
            (true, true) => Wish::FairShare,
        };
        let may_take = is_below || !others_wait;
        if wish > Wish::Nothing && may_take && !share.none_free {
            return Step::TakeSlot;
        }
        if wish != share.wish {
            return Step::Wish(wish);
        }
        Step::Rest
    }

    /// Returns how long its command may go on like this, with the same tokens, until the lease leaves
    /// the pool; none if the lease has no part.
    pub(crate) fn patience(self) -> Option<Duration> {
        match (self.pool, self.taken, self.waiting) {
            (View::Outside { .. }, _, _) => None,
            (View::Inside(_), 1.., _) => Some(LOST_AFTER),
            (View::Inside(_), 0, 1..) => Some(IDLE_FOR),
            (View::Inside(_), 0, 0) => Some(UNCLEAR_FOR),
        }
    }
}

#[cfg(test)]
mod tests;
