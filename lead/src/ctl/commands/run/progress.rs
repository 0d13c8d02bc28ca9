//! Whether a run is over, and what holds it up. Pure: one state of the journal and of the roster in, a verdict out.

use std::collections::BTreeSet;

use serde::Serialize;
use teamd_shared::config::RosterMember;
use teamd_shared::id::RequestId;
use teamd_shared::journal::Team;
use teamd_shared::member::{ApproveBy, Member, MemberStatus};
use teamd_shared::message::IdleReason;
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Request};
use teamd_shared::task::{Task, TaskId, TaskStatus};

/// How many teammates are named that may not claim a task.
const NAMED: usize = 3;

/// The tasks that a run is about: those that were open when it began, and those that were made since.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Scope {
    pub(super) open: BTreeSet<TaskId>,
    pub(super) since: TaskId,
}

impl Scope {
    /// Tells whether a task is one of them.
    pub(super) fn has(&self, id: TaskId) -> bool {
        id >= self.since || self.open.contains(&id)
    }
}

/// A member, and whether nothing that it has read or has yet to read sets off work.
#[derive(Debug)]
pub(super) struct Seat<'r> {
    pub(super) member: &'r RosterMember,
    pub(super) rests: bool,
}

/// One state of a team.
pub(super) struct Seen<'s> {
    pub(super) team: &'s Team,
    pub(super) seats: &'s [Seat<'s>],
    pub(super) scope: &'s Scope,
    /// Whether the lead agent was given a goal, of which it is to make tasks.
    pub(super) has_goal: bool,
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// Something is to come.
    GoesOn(Wait),
    /// Nothing more happens by itself: nothing is left to do, or all that is left is stuck.
    Over,
}

/// What a run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// A member works, or a check runs.
    Work,
    /// A member has mail to read.
    Mail,
    /// A member is idle, and the daemon has yet to give it a task.
    Offer,
}

/// Why a task, or the goal itself, gets no further.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Obstacle {
    /// The task; null for the goal.
    pub(super) task: Option<TaskId>,
    /// The reason, for people.
    pub(super) why: String,
    /// The requests that wait for an answer.
    pub(super) requests: Vec<RequestId>,
}

impl Seen<'_> {
    /// Computes how far the run is.
    pub(super) fn progress(&self) -> Progress {
        let open: Vec<&Task> = self.team.tasks.values().filter(|task| !task.status.is_finished()).collect();
        // What teammates do for a goal, they report to the lead agent.
        let all = self.has_goal || !open.is_empty();
        let concerned = |seat: &&Seat<'_>| all || seat.member.name == Name::lead();
        let (mut works, mut settles) = (false, false);
        for seat in self.seats.iter().filter(concerned) {
            let RosterMember { name, status, .. } = seat.member;
            let has_ended = self.team.members.get(name).is_none_or(|state| state.record.phase.is_ended());
            match status {
                MemberStatus::Starting | MemberStatus::Working | MemberStatus::ShuttingDown => works = true,
                MemberStatus::Idle => settles |= !seat.rests,
                // The roster follows a moment after the journal.
                MemberStatus::AwaitingApproval => settles |= self.plan(name).is_none(),
                MemberStatus::Shutdown | MemberStatus::Killed | MemberStatus::Crashed => {
                    settles |= !has_ended
                }
            }
        }
        let is_under_way = || open.iter().any(|task| self.is_under_way(task));
        match (works, settles) {
            (true, _) => Progress::GoesOn(Wait::Work),
            (false, true) => Progress::GoesOn(Wait::Mail),
            _ if is_under_way() => Progress::GoesOn(Wait::Work),
            _ if self.seats.iter().any(|seat| self.is_given_work(seat)) => Progress::GoesOn(Wait::Offer),
            _ => Progress::Over,
        }
    }

    /// Says what holds up each task that is open, and the goal.
    pub(super) fn obstacles(&self) -> Vec<Obstacle> {
        let open = self.team.tasks.values().filter(|task| !task.status.is_finished());
        self.of_goal().into_iter().chain(open.map(|task| self.obstacle(task))).collect()
    }

    /// Tells whether a check or a merge of a task is under way. Its review is not: a person or the lead agent must answer it.
    fn is_under_way(&self, task: &Task) -> bool {
        task.status == TaskStatus::InReview && self.review(task).is_none()
    }

    fn review(&self, task: &Task) -> Option<&Request> {
        self.team.requests.get(task.review_id()?).filter(|review| review.is_pending())
    }

    /// Says who must answer a request.
    fn waits(&self, request: &Request) -> String {
        let whom = match self.team.judge_of(request) {
            ApproveBy::Lead => "the lead agent",
            ApproveBy::Person => "a person",
        };
        format!("the {} {} of {} waits for {whom}", request.kind.noun(), request.request_id, request.from)
    }

    /// Tells whether the daemon gives a member a task now, as it decides itself.
    fn is_given_work(&self, seat: &Seat<'_>) -> bool {
        let RosterMember { name, status, idle_reason, .. } = seat.member;
        let able = *status == MemberStatus::Idle && matches!(idle_reason, None | Some(IdleReason::Available));
        let Some(state) = self.team.members.get(name).filter(|state| able && state.record.terms.auto) else {
            return false;
        };
        !self.team.stopping
            && state.record.ending.is_none()
            && self.team.pending_of(name).next().is_none()
            && self.team.held_by(name).is_none()
            && self.team.next_for(&state.record, &BTreeSet::new()).is_some()
    }

    /// Says what the lead agent has not done of its goal.
    fn of_goal(&self) -> Option<Obstacle> {
        if !self.has_goal {
            return None;
        }
        let lead = Name::lead();
        let why = match self.seats.iter().find(|seat| seat.member.name == lead) {
            Some(seat) if seat.member.status.is_ended() || has_failed(seat.member) => self.standing(&lead),
            Some(_) if self.scope.open.is_empty() && self.team.last_task < self.scope.since => {
                "the lead agent has made no task of the goal".to_owned()
            }
            Some(_) => return None,
            None => self.standing(&lead),
        };
        Some(Obstacle { task: None, why, requests: Vec::new() })
    }

    fn obstacle(&self, task: &Task) -> Obstacle {
        if let Some(review) = self.review(task) {
            let requests = vec![review.request_id.clone()];
            return Obstacle { task: Some(task.id), why: self.waits(review), requests };
        }
        let concerned: Vec<&Name> = match (&task.owner, self.team.blockers(task).is_empty()) {
            (Some(owner), _) => vec![owner],
            (None, true) => self
                .team
                .members
                .values()
                .map(|state| &state.record)
                .filter(|it| may_claim(it, task))
                .map(|it| &it.name)
                .collect(),
            (None, false) => Vec::new(),
        };
        let requests =
            concerned.iter().filter_map(|name| self.plan(name)).map(|plan| plan.request_id.clone()).collect();
        Obstacle { task: Some(task.id), why: self.why(task, &concerned), requests }
    }

    fn why(&self, task: &Task, concerned: &[&Name]) -> String {
        let blockers = self.team.blockers(task);
        if task.status == TaskStatus::Pending && !blockers.is_empty() {
            let each =
                blockers.iter().map(|(id, status)| format!("{id} ({})", status.as_str().replace('_', " ")));
            return format!("it is blocked by {}", each.collect::<Vec<_>>().join(", "));
        }
        if concerned.is_empty() {
            return match &task.reserved_for {
                Some(whom) => format!("it is for {whom}, and there is no such teammate"),
                None => "there is no teammate".to_owned(),
            };
        }
        let mut each: Vec<String> = concerned.iter().take(NAMED).map(|name| self.standing(name)).collect();
        if concerned.len() > NAMED {
            each.push(format!("and {} more", concerned.len() - NAMED));
        }
        each.join("; ")
    }

    /// Says why a member does nothing.
    fn standing(&self, name: &Name) -> String {
        let Some(member) = self.seats.iter().map(|seat| seat.member).find(|member| member.name == *name)
        else {
            return format!("{name} is not running");
        };
        let terms = self.team.members.get(name).map(|state| &state.record.terms);
        if let Some(plan) = self.plan(name) {
            return self.waits(plan);
        }
        let reason = member.idle_reason.map(IdleReason::as_str).unwrap_or_default();
        match (member.status, member.activity.as_str()) {
            (MemberStatus::Idle, "") if has_failed(member) => format!("{name} could not go on: {reason}"),
            (MemberStatus::Idle, activity) if has_failed(member) => {
                format!("{name} could not go on: {activity}")
            }
            (MemberStatus::Idle, _) if terms.is_some_and(|terms| !terms.auto) => {
                format!("{name} is idle, and takes no task by itself (--auto)")
            }
            (MemberStatus::Idle, _) if self.team.held_by(name).is_none() => {
                format!("{name} is idle, and is given no task (`teamctl inbox` may say why)")
            }
            (status, _) if status.is_ended() => format!("{name} has ended ({})", status.as_str()),
            (status, _) => format!("{name} is {}", status.as_str()),
        }
    }

    fn plan(&self, name: &Name) -> Option<&Request> {
        self.team.pending(name, Kind::PlanApproval)
    }
}

fn has_failed(member: &RosterMember) -> bool {
    !matches!(member.idle_reason, None | Some(IdleReason::Available))
}

fn may_claim(member: &Member, task: &Task) -> bool {
    member.name != Name::lead() && task.is_for(member)
}

#[cfg(test)]
mod tests;
