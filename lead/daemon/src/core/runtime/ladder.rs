//! The termination ladder of an incarnation: its steps, and when each is due.

use std::time::Duration;

use teamd_shared::journal::Team;
use teamd_shared::member::{Ending, Member, Phase};
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Payload, Status};

use super::DecisionRules;
use crate::core::event::Now;

/// Longer than any deadline, and still a time that can be added to another one.
const FOREVER: Duration = Duration::from_secs(u64::MAX / 4);

/// What is to come for an incarnation.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ladder {
    /// These steps are due some time.
    Steps(Deadlines),
    /// SIGKILL was sent, or its process has ended: only its end is awaited, and no step is due.
    EndAwaited,
}

impl Default for Ladder {
    fn default() -> Self {
        Self::Steps(Deadlines::default())
    }
}

impl Ladder {
    pub(super) fn deadlines(self) -> Deadlines {
        match self {
            Self::Steps(deadlines) => deadlines,
            Self::EndAwaited => Deadlines::default(),
        }
    }
}

/// When each step is due, since the daemon began.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Deadlines {
    /// `--force`: then signals end it.
    pub(super) forced: Option<Duration>,
    /// It was released: then it counts as overdue.
    overdue: Option<Duration>,
    /// SIGTERM was sent: then SIGKILL follows.
    kill: Option<Duration>,
    /// Its time limit.
    limit: Option<Duration>,
    /// It has asked for a permission: then that is refused.
    permission: Option<Duration>,
    /// It is idle: then it is asked to leave.
    idle: Option<Duration>,
}

/// A step that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DueStep {
    /// SIGTERM, for this reason.
    Terminate(Ending),
    /// SIGKILL.
    Kill,
    /// Its permission question is refused.
    Refuse,
    /// It is asked to leave.
    Leave,
}

impl Deadlines {
    /// Returns when each step is due, the one that counts most first.
    pub(super) fn steps(self) -> impl Iterator<Item = (Duration, DueStep)> {
        let steps = [
            (self.kill, DueStep::Kill),
            (self.forced, DueStep::Terminate(Ending::Force)),
            (self.overdue, DueStep::Terminate(Ending::Overdue)),
            (self.limit, DueStep::Terminate(Ending::Limit)),
            (self.permission, DueStep::Refuse),
            (self.idle, DueStep::Leave),
        ];
        steps.into_iter().filter_map(|(at, due)| Some((at?, due)))
    }

    pub(super) fn arm_limit(&mut self, team: &Team, member: &Member, now: Now, age: Duration) {
        let runs = member.phase == Phase::Running
            && member.ending.is_none()
            && team.release(&member.name).is_none();
        match member.terms.bounds.max_time {
            Some(most) if runs => {
                let left = Duration::from_secs(most).min(FOREVER).saturating_sub(age);
                self.limit.get_or_insert(now.monotonic + left);
            }
            _ => self.limit = None,
        }
    }

    /// `is_idle`: whether its worker has nothing to do. The lead agent waits for its team.
    pub(super) fn arm_idle(&mut self, team: &Team, member: &Member, is_idle: bool, now: Now) {
        let is_lead = member.name == Name::lead();
        let asked = team.shutdown_of(&member.name);
        let is_asked =
            asked.is_some_and(|asked| matches!(asked.status, Status::Pending | Status::Approved));
        match member.terms.bounds.max_idle {
            Some(most) if is_idle && !is_asked && member.ending.is_none() && !is_lead => {
                let most = Duration::from_secs(most).min(FOREVER);
                self.idle.get_or_insert(now.monotonic + most);
            }
            _ => self.idle = None,
        }
    }

    /// Lets it be idle for as long again, if it is due to be asked to leave, and there is a reason
    /// to keep it.
    pub(super) fn spare(&mut self, team: &Team, member: &Member, now: Now) {
        let is_due = self.idle.is_some_and(|at| at <= now.monotonic);
        if is_due && is_needed(team, member) {
            let most = Duration::from_secs(member.terms.bounds.max_idle.unwrap_or_default());
            self.idle = Some(now.monotonic + most.min(FOREVER));
        }
    }

    pub(super) fn arm_permission(
        &mut self,
        team: &Team,
        name: &Name,
        now: Now,
        rules: DecisionRules,
    ) {
        if team.pending(name, Kind::Permission).is_some() {
            let until = now.monotonic + rules.permission_timeout;
            self.permission.get_or_insert(until);
        } else {
            self.permission = None;
        }
    }

    pub(super) fn arm_termination(
        &mut self,
        team: &Team,
        member: &Member,
        now: Now,
        rules: DecisionRules,
    ) {
        if member.ending.is_some() {
            self.kill.get_or_insert(now.monotonic + rules.grace);
            self.forced = None;
            self.overdue = None;
            return;
        }
        let Some(request) = team.shutdown_of(&member.name) else {
            return;
        };
        if team.release(&member.name).is_some() {
            self.overdue.get_or_insert(now.monotonic + rules.grace);
        }
        if let Payload::Shutdown {
            force_after: Some(seconds),
            ..
        } = request.payload
        {
            let after = Duration::try_from_secs_f64(seconds).unwrap_or(FOREVER);
            let due = now.monotonic + after.min(FOREVER);
            self.forced = Some(self.forced.map_or(due, |before| before.min(due)));
        }
    }
}

/// Tells whether a teammate holds a task, or can get one by itself.
pub(crate) fn is_needed(team: &Team, member: &Member) -> bool {
    let holds_task = team.held_by(&member.name).is_some();
    let may_get_task = team.has_work_for(member) || team.has_order_for(member);
    holds_task || (member.terms.auto && may_get_task)
}
