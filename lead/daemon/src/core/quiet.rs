//! Whether a team has come to rest, and what holds up its tasks. Pure: the team, and what its
//! workers said last.
//!
//! What an idle member is given rests on the same look at it ([`standing`]): a run does not end
//! before a task that is about to be given, and does not wait for one that never is.

use teamd_shared::control::Obstacle;
use teamd_shared::journal::Team;
use teamd_shared::member::{ApproveBy, Doing, Member, MemberStatus};
use teamd_shared::message::IdleReason;
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Request};
use teamd_shared::task::{Task, TaskId, TaskStatus};

use crate::core::incarnation::Incarnation;
use crate::core::runtime::Runtime;
use crate::core::status::doing;

/// How often in a row a teammate is offered a task whose branch cannot be begun.
pub(crate) const MOST_REFUSALS: u32 = 3;
/// How often in a row a check cannot be run before its task counts as stuck: that takes about a
/// minute.
const MOST_TRIES: u32 = 6;
/// How many teammates are named that may not claim a task.
const NAMED: usize = 3;

/// What a member does, and whether it could be given a task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TaskStanding<'t> {
    /// Something of it is to come: it works, starts, leaves, or has mail to read.
    Busy,
    /// It waits for the answer to its plan.
    Waits(&'t Request),
    /// Its last piece of work came to nothing: why.
    Failed(&'t str),
    /// It holds this task, and is idle.
    Holds(TaskId),
    /// The branch of this task is being begun in its checkout, so that it is given that.
    Offered(TaskId),
    /// No branch can be begun in its checkout: why.
    Refused(&'t str),
    /// It takes a task.
    Free,
    /// It has ended.
    Ended(MemberStatus),
}

/// Returns the standing of a member.
pub(crate) fn standing<'t>(
    team: &'t Team,
    runtime: &'t Runtime,
    member: &Member,
) -> TaskStanding<'t> {
    let name = &member.name;
    if member.phase.is_ended() {
        return TaskStanding::Ended(member.phase.ended_as());
    }
    let leaves = team.stopping
        || member.ending.is_some()
        || team.release(name).is_some()
        || team.pending(name, Kind::Shutdown).is_some();
    let worker = runtime.of(&Incarnation::of(member));
    let worker =
        worker.filter(|worker| worker.is_connected() && worker.ready && !worker.has_unread);
    if leaves || doing(team, runtime, member) != Doing::Idle {
        return TaskStanding::Busy;
    }
    let Some(worker) = worker else {
        return TaskStanding::Busy;
    };
    if let Some(asked) = team.awaited_by(name) {
        return TaskStanding::Waits(asked);
    }
    if let Some(reason) = worker
        .state
        .idle_reason
        .filter(|reason| *reason != IdleReason::Available)
    {
        let activity = worker.state.activity.as_str();
        return TaskStanding::Failed(if activity.is_empty() {
            reason.as_str()
        } else {
            activity
        });
    }
    if let Some(task) = team.held_by(name) {
        return TaskStanding::Holds(task.id);
    }
    match runtime.jobs.branch(name) {
        Some(task) => TaskStanding::Offered(task),
        None if worker.refusals.is_current || worker.refusals.in_a_row >= MOST_REFUSALS => {
            TaskStanding::Refused(&worker.refusals.reason)
        }
        None => TaskStanding::Free,
    }
}

/// Says what holds up each task that is open, once nothing happens any more by itself; none before.
/// With a goal, the lead agent was to make tasks of it, the first of which has this id or a higher
/// one.
pub(crate) fn obstacles(
    team: &Team,
    runtime: &Runtime,
    goal: Option<TaskId>,
) -> Option<Vec<Obstacle>> {
    let quiet = Quiet { team, runtime };
    let open: Vec<&Task> = team
        .tasks
        .values()
        .filter(|task| !task.status.is_finished())
        .collect();
    // Without a task and a goal, what teammates still say changes nothing.
    let all = goal.is_some() || team.has_open_tasks();
    let members = team.members.values().map(|state| &state.record);
    let mut concerned = members.filter(|member| all || member.name == Name::lead());
    if concerned.any(|member| quiet.moves(member))
        || open.iter().any(|task| quiet.is_under_way(task))
    {
        return None;
    }
    let of_goal = goal.and_then(|first| quiet.of_goal(first));
    Some(
        of_goal
            .into_iter()
            .chain(open.iter().map(|task| quiet.of_task(task)))
            .collect(),
    )
}

struct Quiet<'t> {
    team: &'t Team,
    runtime: &'t Runtime,
}

impl Quiet<'_> {
    /// Tells whether something of a member is to come, or it is about to be given a task.
    fn moves(&self, member: &Member) -> bool {
        match standing(self.team, self.runtime, member) {
            TaskStanding::Busy | TaskStanding::Offered(_) => true,
            TaskStanding::Free => {
                member.terms.auto && self.team.next_for(member, &Default::default()).is_some()
            }
            _ => false,
        }
    }

    /// Tells whether a check or a merge of a task is under way. Its review is not: a person or the
    /// lead agent must answer it.
    fn is_under_way(&self, task: &Task) -> bool {
        task.status == TaskStatus::InReview
            && self.review(task).is_none()
            && self.stalled(task).is_none()
    }

    fn review(&self, task: &Task) -> Option<&Request> {
        self.team
            .requests
            .get(task.review_id()?)
            .filter(|review| review.is_pending())
    }

    /// Returns why the check of a task cannot be run, after some attempts.
    fn stalled<'a>(&self, task: &'a Task) -> Option<&'a str> {
        if self.runtime.fruitless_checks(task.id) >= MOST_TRIES {
            task.stalled.as_deref()
        } else {
            None
        }
    }

    /// Says what the lead agent has not done of its goal.
    fn of_goal(&self, first: TaskId) -> Option<Obstacle> {
        let lead = self
            .team
            .members
            .get(&Name::lead())
            .map(|state| &state.record);
        let why = match lead.map(|lead| (lead, standing(self.team, self.runtime, lead))) {
            None => "lead is not running".to_owned(),
            Some((lead, TaskStanding::Ended(_) | TaskStanding::Failed(_))) => {
                self.why_idle(lead, 0)
            }
            Some(_) if self.team.last_task < first => {
                "the lead agent has created no tasks for the goal".to_owned()
            }
            Some(_) => return None,
        };
        Some(Obstacle {
            task: None,
            why,
            requests: Vec::new(),
        })
    }

    fn of_task(&self, task: &Task) -> Obstacle {
        let blockers = self.team.blockers(task);
        let members = self.team.members.values().map(|state| &state.record);
        let concerned: Vec<&Member> = match &task.owner {
            Some(owner) => members.filter(|member| member.name == *owner).collect(),
            None => members
                .filter(|it| it.name != Name::lead() && task.is_for(it))
                .collect(),
        };
        let (requests, why) = if let Some(review) = self.review(task) {
            (vec![review], self.waits(review))
        } else if let Some(why) = self.stalled(task) {
            (Vec::new(), format!("its check cannot be run: {why}"))
        } else if task.waits_for_person()
            && let Some(why) = task.held_up()
        {
            (Vec::new(), why)
        } else if task.owner.is_none() && !blockers.is_empty() {
            let each = blockers
                .iter()
                .map(|(id, status)| format!("{id} ({})", status.as_str().replace('_', " ")));
            (
                Vec::new(),
                format!("it is blocked by {}", each.collect::<Vec<_>>().join(", ")),
            )
        } else {
            (
                concerned
                    .iter()
                    .filter_map(|member| self.team.awaited_by(&member.name))
                    .collect(),
                self.why_of(task, &concerned),
            )
        };
        let requests = requests
            .into_iter()
            .map(|request| request.request_id.clone())
            .collect();
        Obstacle {
            task: Some(task.id),
            why,
            requests,
        }
    }

    /// Says why none of the teammates does a task that could.
    fn why_of(&self, task: &Task, concerned: &[&Member]) -> String {
        if concerned.is_empty() {
            return match &task.reserved_for {
                Some(whom) => format!("it is reserved for {whom}, but no such teammate exists"),
                None => "there is no teammate".to_owned(),
            };
        }
        let mut each: Vec<String> = concerned
            .iter()
            .take(NAMED)
            .map(|member| self.why_idle(member, task.id))
            .collect();
        if concerned.len() > NAMED {
            each.push(format!("and {} more", concerned.len() - NAMED));
        }
        each.join("; ")
    }

    /// Says why a member does nothing for a task.
    fn why_idle(&self, member: &Member, task: TaskId) -> String {
        let name = &member.name;
        match standing(self.team, self.runtime, member) {
            TaskStanding::Busy | TaskStanding::Offered(_) => format!("{name} is at work"),
            TaskStanding::Waits(plan) => self.waits(plan),
            TaskStanding::Failed(why) => format!("{name} could not continue: {why}"),
            TaskStanding::Holds(held) if held == task => {
                format!("{name} is idle and has not submitted it")
            }
            TaskStanding::Holds(held) => format!("{name} holds task {held}"),
            TaskStanding::Refused(why) => format!("{name} cannot be given a task: {why}"),
            TaskStanding::Free => format!("{name} is idle, and takes no task by itself (--auto)"),
            TaskStanding::Ended(status) => format!("{name} has ended ({})", status.as_str()),
        }
    }

    /// Says who must answer a request.
    fn waits(&self, request: &Request) -> String {
        let whom = match self.team.judge_of(request) {
            ApproveBy::Lead => "the lead agent",
            ApproveBy::Person => "a person",
        };
        format!(
            "the {} {} of {} waits for {whom}",
            request.kind.noun(),
            request.request_id,
            request.from
        )
    }
}

#[cfg(test)]
mod tests;
