//! When the next step of a termination ladder, or the end of a permission question, is due.

use std::time::Duration;

use teamd_shared::journal::Team;
use teamd_shared::member::Doing;
use teamd_shared::name::Name;

use super::ladder::{DueStep, Ladder};
use super::{DecisionRules, MemberRuntime, Runtime};
use crate::core::event::Now;
use crate::core::incarnation::Incarnation;

impl Runtime {
    /// Sets or clears the deadlines of a member, as the state of the team demands them now.
    pub(crate) fn arm(&mut self, team: &Team, name: &Name, now: Now, rules: DecisionRules) {
        let member = team.members.get(name).map(|state| &state.record);
        let Some(member) = member.filter(|member| !member.phase.is_ended()) else {
            // Its environment is forgotten with it.
            self.members.remove(name);
            return;
        };
        let is_unreachable = self.unreachable_since(member).is_some();
        let worker = self.enter(&Incarnation::of(member));
        if is_unreachable {
            worker.stop_clocks();
            return;
        }
        worker.arm_watch(team, name, now, rules);
        // The clock of a member on a host stood still: its age counts by its record.
        let age = match &member.terms.host {
            Some(_) => {
                Duration::try_from_secs_f64(now.wall - member.spawned_at).unwrap_or_default()
            }
            None => worker.adopted_age,
        };
        let is_idle = worker.ready
            && worker.state.doing == Doing::Idle
            && !worker.has_unread
            && worker.is_connected();
        let Ladder::Steps(deadlines) = &mut worker.ladder else {
            return;
        };
        deadlines.arm_limit(team, member, now, age);
        deadlines.arm_idle(team, member, is_idle, now);
        deadlines.arm_permission(team, name, now, rules);
        deadlines.arm_termination(team, member, now, rules);
    }

    /// Returns when the next step is due, since the daemon began.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let workers = self.members.values();
        workers.filter_map(MemberRuntime::next_deadline).min()
    }

    /// Returns the steps that are due.
    pub(crate) fn due(&self, now: Now) -> Vec<(Incarnation, DueStep)> {
        let mut due = Vec::new();
        for (name, worker) in &self.members {
            let mut steps = worker.ladder.deadlines().steps();
            if let Some((_, step)) = steps.find(|(at, _)| *at <= now.monotonic) {
                let incarnation = Incarnation {
                    name: name.clone(),
                    number: worker.incarnation,
                };
                due.push((incarnation, step));
            }
        }
        due
    }

    /// Lets the teammates that were idle for long enough be so for as long again, where there is a
    /// reason to keep them.
    pub(crate) fn spare_idle(&mut self, team: &Team, now: Now) {
        for (name, worker) in &mut self.members {
            if let Some(state) = team.members.get(name)
                && let Ladder::Steps(deadlines) = &mut worker.ladder
            {
                deadlines.spare(team, &state.record, now);
            }
        }
    }

    /// Records that the process of an incarnation has ended: no step of the ladder is due any more,
    /// however long the processes that it started take to end.
    pub(crate) fn process_exited(&mut self, incarnation: &Incarnation) {
        self.enter(incarnation).ladder = Ladder::EndAwaited;
    }

    /// Records that SIGKILL was sent: only the end of this incarnation is awaited now.
    pub(crate) fn killed(&mut self, incarnation: &Incarnation) {
        if let Some(worker) = self.of_mut(incarnation) {
            worker.ladder = Ladder::EndAwaited;
        }
    }
}

impl MemberRuntime {
    /// Tells whether a time is set at which signals end it.
    pub(crate) fn will_be_forced(&self) -> bool {
        self.ladder.deadlines().forced.is_some()
    }

    fn next_deadline(&self) -> Option<Duration> {
        let steps = self.ladder.deadlines().steps().map(|(at, _)| at);
        steps.chain(self.watch.next()).min()
    }
}
