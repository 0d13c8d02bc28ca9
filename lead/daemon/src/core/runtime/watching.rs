//! Which workers should answer, and how long they have been silent.

use std::time::Duration;

use teamd_shared::journal::Team;
use teamd_shared::member::{Doing, Phase};
use teamd_shared::name::Name;

use super::{DecisionRules, MemberRuntime, Runtime};
use crate::core::event::Now;
use crate::core::incarnation::Incarnation;
use crate::core::watchdog::{LookResult, Should};

impl Runtime {
    /// Records that mail has come for an incarnation: its worker should react.
    pub(crate) fn mail_arrived(
        &mut self,
        team: &Team,
        incarnation: &Incarnation,
        now: Now,
        rules: DecisionRules,
    ) {
        let member = team.members.get(&incarnation.name);
        if member.is_some_and(|state| self.unreachable_since(&state.record).is_some()) {
            return;
        }
        if let Some(worker) = self.of_mut(incarnation)
            && worker.ready
        {
            worker.watch.mail_arrived();
            worker.arm_watch(team, &incarnation.name, now, rules);
        }
    }

    /// Examines the workers that should answer, where that is due.
    pub(crate) fn look(
        &mut self,
        team: &Team,
        now: Now,
        rules: DecisionRules,
    ) -> Vec<(Incarnation, LookResult)> {
        let Some(patience) = rules.watchdog else {
            return Vec::new();
        };
        let mut results = Vec::new();
        for (name, worker) in &mut self.members {
            if worker.watch.next().is_none_or(|next| next > now.monotonic) {
                continue;
            }
            let should = should_answer(team, name, worker);
            let times = (now.monotonic, now.wall);
            if let Some(result) = worker.watch.look(should, times, patience) {
                let incarnation = Incarnation {
                    name: name.clone(),
                    number: worker.incarnation,
                };
                results.push((incarnation, result));
            }
        }
        results
    }
}

impl MemberRuntime {
    /// Returns how long it has been silent although it should answer, where that is counted.
    pub(crate) fn silence(&self) -> Duration {
        self.watch.silence()
    }

    /// Tells whether it was asked on its present connection, and has not answered.
    pub(crate) fn is_asked(&self) -> bool {
        self.is_connected() && self.watch.is_open()
    }

    /// Returns when that silence began, in seconds since 1970.
    pub(crate) fn silent_since(&self) -> f64 {
        self.watch.since()
    }

    pub(super) fn arm_watch(&mut self, team: &Team, name: &Name, now: Now, rules: DecisionRules) {
        let Some(patience) = rules.watchdog else {
            return;
        };
        let should = should_answer(team, name, self);
        self.watch.arm(should, now.monotonic, patience);
    }
}

/// Tells whether a worker should answer now: it is at work, or has not reacted yet to something
/// that it was sent.
fn should_answer(team: &Team, name: &Name, worker: &MemberRuntime) -> Should {
    let Some(state) = team.members.get(name) else {
        return Should::Rest;
    };
    let member = &state.record;
    if member.phase != Phase::Running || member.incarnation != worker.incarnation {
        return Should::Rest;
    }
    // Signals end it anyway, and a released worker says nothing more.
    if member.ending.is_some() || team.release(name).is_some() {
        return Should::Rest;
    }
    if !worker.is_connected() {
        return Should::Connect;
    }
    let reacts = worker.state.doing == Doing::Working
        || worker.state.applied_seq < state.seq
        || worker.watch.has_mail()
        || member.silent_since.is_some()
        || !worker.watch.silence().is_zero();
    if worker.ready && reacts {
        Should::Answer
    } else {
        Should::Rest
    }
}
