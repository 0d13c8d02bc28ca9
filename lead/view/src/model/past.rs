//! When what happened, from the journal: incarnations, waits for an answer, and what tasks went
//! through. Pure.

use std::collections::BTreeMap;

use teamd_shared::id::RequestId;
use teamd_shared::journal::{Line, MemberEvent, MemberRecord, Record};
use teamd_shared::member::{Member, MemberStatus, Phase};
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Request, Status};
use teamd_shared::task::{Stage, Task, TaskEvent, TaskId, TaskStatus};

/// A time with its start and end, in seconds since 1970; without an end it continues.
pub(crate) type TimeSpan = (f64, Option<f64>);

/// What the lines so far say.
#[derive(Debug, Default)]
pub struct Past {
    /// The incarnations of each member, oldest first.
    pub(crate) lives: BTreeMap<Name, Vec<Life>>,
    /// When its plans waited for an answer.
    awaiting: BTreeMap<String, BTreeMap<RequestId, TimeSpan>>,
    /// When it was asked to leave; until its end, if it was to.
    leaving: BTreeMap<String, BTreeMap<RequestId, TimeSpan>>,
    /// How long requests waited for their answer, in seconds.
    answered: BTreeMap<RequestId, (Kind, f64)>,
    /// All tasks, also those that the fold of the journal has left out: it completed them long ago.
    pub tasks: BTreeMap<TaskId, TaskPast>,
}

/// An incarnation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Life {
    pub incarnation: u32,
    /// When it was decided, in seconds since 1970.
    pub decided: f64,
    /// When there was a process.
    pub began: Option<f64>,
    /// When that was gone, and how it ended.
    pub ended: Option<(f64, MemberStatus)>,
}

/// What a task went through.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskPast {
    /// As it is now.
    pub task: Task,
    /// How it stood when.
    pub(crate) spans: Vec<(Stand, TimeSpan)>,
    /// When something was decided about the work.
    pub(crate) marks: Vec<(f64, TaskEvent)>,
}

/// The state of a task.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stand {
    Pending,
    /// A teammate works on it.
    Held(Name),
    /// Its check runs.
    Checking,
    /// It waits for a review, or to be integrated.
    Waiting,
}

impl Past {
    /// Applies a line of the journal; one that is repeated changes nothing.
    pub fn line(&mut self, line: &Line) {
        match &line.record {
            Record::Member(record) => self.member(line.at, record),
            Record::Request(record) => self.request(&record.request),
            Record::Task(record) => self.task(line.at, &record.task, Some(record.event)),
            Record::Snapshot(team) => {
                for state in team.members.values() {
                    self.known(&state.record);
                }
                for request in team.requests.values() {
                    self.request(request);
                }
                for task in team.tasks.values() {
                    self.task(task.updated_at, task, None);
                }
            }
            Record::Team(_) => {}
        }
    }

    fn member(&mut self, at: f64, record: &MemberRecord) {
        let member = &record.member;
        match record.event {
            MemberEvent::Spawning => _ = self.life(&member.name, member.incarnation, at),
            MemberEvent::Spawned | MemberEvent::Adopted => {
                self.life(&member.name, member.incarnation, at)
                    .began
                    .get_or_insert(at);
            }
            MemberEvent::Exited => {
                let incarnation = record.ended_incarnation.unwrap_or(member.incarnation);
                self.life(&member.name, incarnation, at)
                    .ended
                    .get_or_insert((at, member.phase.ended_as()));
                if incarnation != member.incarnation {
                    self.life(&member.name, member.incarnation, at);
                }
            }
            _ => {}
        }
    }

    /// Takes in a member that a snapshot has.
    fn known(&mut self, member: &Member) {
        let life = self.life(&member.name, member.incarnation, member.spawned_at);
        if member.phase != Phase::Spawning {
            life.began.get_or_insert(member.spawned_at);
        }
        if !matches!(member.phase, Phase::Spawning | Phase::Running) {
            life.ended
                .get_or_insert((member.updated_at, member.phase.ended_as()));
        }
    }

    fn life(&mut self, name: &Name, incarnation: u32, at: f64) -> &mut Life {
        let lives = self.lives.entry(name.clone()).or_default();
        let place = lives
            .iter()
            .rposition(|life| life.incarnation == incarnation);
        let place = place.unwrap_or_else(|| {
            lives.push(Life {
                incarnation,
                decided: at,
                began: None,
                ended: None,
            });
            lives.len() - 1
        });
        &mut lives[place]
    }

    fn request(&mut self, request: &Request) {
        if request.status != Status::Expired
            && let Some(at) = request.resolved_at
        {
            let waited = (at - request.created_at).max(0.0);
            self.answered
                .insert(request.request_id.clone(), (request.kind, waited));
        }
        let (spans, end) = match (request.kind, request.status) {
            // Work on other tasks continues while a review waits.
            (Kind::PlanApproval | Kind::Permission, _) => (&mut self.awaiting, request.resolved_at),
            (Kind::Shutdown, Status::Approved) => (&mut self.leaving, None),
            (Kind::Shutdown, _) => (&mut self.leaving, request.resolved_at),
            _ => return,
        };
        let of_member = spans.entry(request.member().to_owned()).or_default();
        of_member.insert(request.request_id.clone(), (request.created_at, end));
    }

    pub(super) fn task(&mut self, at: f64, task: &Task, event: Option<TaskEvent>) {
        let past = self.tasks.entry(task.id).or_insert_with(|| TaskPast {
            task: task.clone(),
            spans: Vec::new(),
            marks: Vec::new(),
        });
        past.task.clone_from(task);
        let stage = task.submission.as_ref().map(|submission| &submission.stage);
        let stand = match (task.status, &task.owner) {
            (TaskStatus::Pending, _) => Some(Stand::Pending),
            (TaskStatus::InProgress, owner) => owner.clone().map(Stand::Held),
            (TaskStatus::InReview, _) if matches!(stage, Some(Stage::Checking)) => {
                Some(Stand::Checking)
            }
            (TaskStatus::InReview, _) => Some(Stand::Waiting),
            _ => None,
        };
        let last = past.spans.last_mut().filter(|(_, span)| span.1.is_none());
        if last.as_ref().map(|(stand, _)| stand) != stand.as_ref() {
            if let Some((_, span)) = last {
                span.1 = Some(at);
            }
            past.spans.extend(stand.map(|stand| (stand, (at, None))));
        }
        let mark = event
            .filter(|event| {
                use TaskEvent::{Cancelled, Completed, Failed, Returned};
                matches!(event, Cancelled | Completed | Failed | Returned)
            })
            .map(|event| (at, event));
        past.marks
            .extend(mark.filter(|mark| !past.marks.contains(mark)));
    }

    /// Returns how many requests of each kind were answered, and how many seconds they waited for
    /// it in all.
    pub(crate) fn handshakes(&self) -> BTreeMap<Kind, (u64, f64)> {
        let mut sums = BTreeMap::<Kind, (u64, f64)>::new();
        for (kind, waited) in self.answered.values() {
            let (count, sum) = sums.entry(*kind).or_default();
            *count += 1;
            *sum += waited;
        }
        sums
    }

    /// Returns when processes of a member ended.
    pub(super) fn exits(&self, name: &Name) -> Vec<f64> {
        let lives = self.lives.get(name).map(Vec::as_slice).unwrap_or_default();
        lives
            .iter()
            .filter_map(|life| life.ended)
            .map(|(at, _)| at)
            .collect()
    }

    /// Returns when plans of a member waited for an answer.
    pub(super) fn awaiting(&self, name: &Name) -> Vec<TimeSpan> {
        self.awaiting
            .get(name.as_str())
            .into_iter()
            .flat_map(BTreeMap::values)
            .copied()
            .collect()
    }

    /// Returns when a member was asked to leave.
    pub(super) fn leaving(&self, name: &Name) -> Vec<TimeSpan> {
        self.leaving
            .get(name.as_str())
            .into_iter()
            .flat_map(BTreeMap::values)
            .copied()
            .collect()
    }

    /// Returns when members held tasks, those of one member oldest first.
    pub(super) fn held(&self) -> BTreeMap<&Name, Vec<(TaskId, TimeSpan)>> {
        let mut held: BTreeMap<&Name, Vec<(TaskId, TimeSpan)>> = BTreeMap::new();
        for (id, task) in &self.tasks {
            for (stand, span) in &task.spans {
                if let Stand::Held(name) = stand {
                    held.entry(name).or_default().push((*id, *span));
                }
            }
        }
        for spans in held.values_mut() {
            spans.sort_by(|(_, a), (_, b)| a.0.total_cmp(&b.0));
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teamd_client::testing::{asked, spawned};

    #[test]
    fn a_restart_begins_the_next_incarnation_where_the_last_one_ended() {
        let mut past = Past::default();
        let alice = Name::new("alice").unwrap();
        let text = spawned(1, "alice") + &asked(2, "a1b2c3d4", "plan_approval");
        let lines: Vec<Line> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for line in lines.iter().chain(&lines) {
            past.line(line);
        }
        assert_eq!(past.lives[&alice].len(), 1, "a repeated line counts once");
        assert_eq!(past.awaiting(&alice).len(), 1);
        let Record::Member(mut record) = lines[0].record.clone() else {
            panic!("no member")
        };
        let first = record.member.incarnation;
        record.event = MemberEvent::Exited;
        record.ended_incarnation = Some(first);
        record.member.incarnation = first + 1;
        record.member.phase = Phase::Spawning;
        past.line(&Line {
            at: 50.0,
            record: Record::Member(record),
            ..lines[0].clone()
        });
        let lives = &past.lives[&alice];
        assert_eq!(lives[0].ended, Some((50.0, MemberStatus::Crashed)));
        assert_eq!(
            (lives[1].incarnation, lives[1].decided, lives[1].began),
            (first + 1, 50.0, None)
        );
        assert_eq!(past.exits(&alice), [50.0]);
    }
}
