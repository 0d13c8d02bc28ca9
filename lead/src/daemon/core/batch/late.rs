//! Lives that go on after a crash, and for which no process could be started: that is taken in a while later. What is short
//! then is short for more than a moment, and each try is one that counts.

use super::{Batcher, RETRY};
use crate::daemon::core::event::{Event, Now};

impl Batcher {
    /// Takes in how [`super::Step::Start`] went. Whoever gave an order hears at once that it cannot be carried out.
    pub(crate) fn started(&mut self, started: Event, now: Now) {
        let Event::Started { life, process: Err(_), .. } = &started else { return self.happened(started) };
        let member = self.team.members.get(&life.name).map(|state| &state.record);
        if member.is_some_and(|member| member.restarted > 0) {
            self.late.push((now.monotonic + RETRY, started));
        } else {
            self.happened(started);
        }
    }

    /// Takes in what has waited long enough.
    pub(super) fn take_in_late(&mut self, now: Now) {
        let due = self.late.extract_if(.., |(at, _)| *at <= now.monotonic);
        self.events.extend(due.map(|(_, event)| event));
    }
}
