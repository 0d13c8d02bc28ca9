//! Waiting, as a person waits: meanwhile what is gone is started again.

use std::time::{Duration, Instant};

use super::{Checked, PATIENCE, Stage, Violation};

/// After that time the user looks after what lasts: frees the disk, say.
const HEALS_AFTER: Duration = Duration::from_secs(3);

impl Stage {
    /// Waits until no member is between two states.
    pub(super) fn settle(&mut self) -> Checked {
        self.until("all members to rest", |stage| {
            let roster = stage.roster();
            let members = roster["members"].as_array().cloned().unwrap_or_default();
            // What a member of a host that cannot be reached does is not known.
            let known = members
                .iter()
                .filter(|member| member["unreachable_since"].is_null());
            !known.into_iter().any(|member| {
                ["starting", "shutting_down"].contains(&member["status"].as_str().unwrap_or(""))
            })
        })
    }

    /// Waits until a condition holds; starts again meanwhile what is gone.
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Checked {
        let began = Instant::now();
        let mut pause = Duration::from_millis(1);
        while !holds(self) {
            self.ensure_daemon()?;
            self.revive()?;
            self.heal(began);
            if began.elapsed() > PATIENCE {
                return Err(Violation(format!("waited in vain for {what}")));
            }
            std::thread::park_timeout(pause);
            pause = (pause * 2).min(Duration::from_millis(15));
        }
        Ok(())
    }

    /// Does what is due while something is waited for: ends what lasts, some time after that has
    /// begun.
    pub(super) fn heal(&self, began: Instant) {
        self.strike();
        if began.elapsed() > HEALS_AFTER && self.tracer.look().fired.is_some() {
            self.tracer.unmark();
        }
    }

    /// Starts those again that crashed for good, and that the user wants.
    pub(crate) fn revive(&mut self) -> Checked {
        for name in self.wanted.clone() {
            if self.status(name) == "crashed" {
                self.revived = true;
                self.ctl(&["spawn", name, "--resume"])?;
            }
        }
        Ok(())
    }
}
