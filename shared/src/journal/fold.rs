//! The fold: the state of a team is what its journal says, line by line.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    Daemon, Line, MemberEvent, MemberRecord, Notice, Record, RequestEvent, RequestRecord,
    TaskRecord, TeamEvent, TeamRecord, VERSION,
};
use crate::fingerprint::Baseline;
use crate::host::Hosts;
use crate::id::RequestId;
use crate::id::TaskId;
use crate::member::{ApproveBy, Gate, Member, Phase};
use crate::message::TEAMD;
use crate::name::Name;
use crate::order::OrderState;
use crate::position::Position;
use crate::request::{Kind, Payload, Request, Span, Status, Trigger};
use crate::task::{Task, TaskEvent};
use crate::work::Work;

/// The state of a team. Only [`Team::apply`] changes it, in a running daemon as in a fold. A
/// snapshot holds all of it except what is in its line already (`seq`, `done`): it is a record, the
/// line of a snapshot.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Snapshot")]
pub struct Team {
    /// The last line's `seq`.
    #[serde(skip)]
    pub seq: u64,
    /// The `seq` of the last snapshot; 0 before the first.
    #[serde(skip)]
    pub(super) snapshot_seq: u64,
    /// The name of the team.
    pub team_name: String,
    /// The daemon that wrote the last `started` line, unless it stopped.
    pub daemon: Option<Daemon>,
    /// Whether it is about to end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopping: bool,
    /// How work is checked.
    #[serde(default, skip_serializing_if = "Work::is_empty")]
    pub work: Work,
    /// The orders that are in force, and what they have made.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub orders: BTreeMap<Name, OrderState>,
    /// The `seq` of the last line that changed what an order is to make; 0 behind a snapshot.
    #[serde(skip)]
    pub orders_changed: u64,
    /// The `seq` of the last line about what is to be remembered; 0 behind a snapshot.
    #[serde(skip)]
    pub memory_changed: u64,
    /// The hosts; none: there never was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Hosts>,
    /// How far the daemon has read the lead's inbox.
    #[serde(rename = "lead_inbox")]
    pub lead: Position,
    /// All members that are not forgotten.
    #[serde(serialize_with = "values", deserialize_with = "members")]
    #[schemars(with = "Vec<MemberState>")]
    pub members: BTreeMap<Name, MemberState>,
    /// The last incarnation of each name that was forgotten: a name that is used again continues
    /// the count, so that nothing that was written about an earlier incarnation ever fits a later
    /// one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) forgotten: BTreeMap<Name, u32>,
    /// Where tools of a member may write, or once could, and who had it first: each workspace, and
    /// each path that was allowed by name. What the tools have made there stays when a member is
    /// forgotten.
    #[serde(rename = "writable")]
    pub(super) territory: BTreeMap<PathBuf, Name>,
    /// The requests that decisions can depend on: all that were asked since the last snapshot, and
    /// those that it holds.
    #[serde(serialize_with = "values", deserialize_with = "requests")]
    #[schemars(with = "Vec<Request>")]
    pub requests: BTreeMap<RequestId, Request>,
    /// The tasks that decisions can depend on: all that are not completed, and those that were
    /// completed since the last snapshot.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        serialize_with = "values",
        deserialize_with = "tasks"
    )]
    #[schemars(with = "Vec<Task>")]
    pub tasks: BTreeMap<TaskId, Task>,
    /// The last number that a task was given.
    #[serde(default, skip_serializing_if = "crate::json::is_zero")]
    pub last_task: TaskId,
    /// The last commands that made tasks, and which: each pair is a first and a last one.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    #[schemars(with = "Vec<(RequestId, Vec<(TaskId, TaskId)>)>")]
    pub(super) added: VecDeque<(RequestId, Vec<(TaskId, TaskId)>)>,
    /// The task that was made of each source outside of the team: none is imported twice.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<String, TaskId>,
    /// The state of the protected files when a person or the lead last set the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protected: Option<Baseline>,
    /// The highest `done` of a line.
    #[serde(skip)]
    pub done: u64,
    /// The lines above `done` that entail inbox lines or moves of files, oldest first.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub undone: VecDeque<Line>,
    /// What became true with the line of another record, and has no line of its own yet.
    #[serde(skip)]
    pub(super) pending_derived: VecDeque<(u64, PendingDerived)>,
}

/// A member, what its conversation begins with, and its requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemberState {
    /// The record.
    #[serde(flatten)]
    pub record: Member,
    /// The prompt, of the incarnation in which the conversation began.
    pub prompt: Option<String>,
    /// The `seq` of the line that last changed the record or one of its requests: it orders the
    /// daemon's directives.
    #[serde(rename = "changed_seq")]
    pub seq: u64,
    /// The `seq` of the line in which it was spawned on request: it orders the members, and a
    /// restart by the policy keeps it.
    #[serde(rename = "spawned_seq")]
    pub spawned: u64,
    /// The id of the command that spawned it.
    pub spawn_id: Option<RequestId>,
    /// The id of the last command that asked it for a plan, and the `seq` of its line.
    pub plan_request: Option<(RequestId, u64)>,
    /// Its pending requests: the only ones that a decision about it must look at.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) pending: BTreeSet<RequestId>,
    /// The last request of each kind that concerns it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = Kind::json_schema(&mut schemars::SchemaGenerator::default())))]
    pub(super) last_requests: BTreeMap<Kind, RequestId>,
}

impl MemberState {
    /// Makes the state of a member that appears in a line.
    fn new(record: Member, seq: u64) -> Self {
        Self {
            record,
            prompt: None,
            seq,
            spawned: seq,
            spawn_id: None,
            plan_request: None,
            pending: BTreeSet::new(),
            last_requests: BTreeMap::new(),
        }
    }
}

/// A snapshot has only the values of a map: each of them contains its key.
fn values<K, V: Serialize, S: Serializer>(
    map: &BTreeMap<K, V>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(map.values())
}

fn members<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<Name, MemberState>, D::Error> {
    let members = Vec::<MemberState>::deserialize(deserializer)?.into_iter();
    Ok(members
        .map(|member| (member.record.name.clone(), member))
        .collect())
}

fn requests<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<RequestId, Request>, D::Error> {
    let requests = Vec::<Request>::deserialize(deserializer)?.into_iter();
    Ok(requests
        .map(|request| (request.request_id.clone(), request))
        .collect())
}

fn tasks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<TaskId, Task>, D::Error> {
    let tasks = Vec::<Task>::deserialize(deserializer)?.into_iter();
    Ok(tasks.map(|task| (task.id, task)).collect())
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum PendingDerived {
    Expired(RequestId),
    Gate(Name),
    Released(TaskId),
}

/// A line that does not continue the journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// A line is missing or doubled.
    #[error("seq {found} follows {last}")]
    Gap {
        /// The seq before.
        last: u64,
        /// The seq found.
        found: u64,
    },
    /// The file was written by a newer program.
    #[error("the journal has version {0}, this program knows {VERSION}")]
    Newer(u32),
}

impl Team {
    /// Changes the state by one line.
    ///
    /// # Errors
    /// [`FoldError`] if the line does not continue the journal; the state is then as before.
    pub fn apply(&mut self, line: &Line) -> Result<(), FoldError> {
        // A fold may begin at a snapshot.
        let begins = self.seq == 0 && matches!(line.record, Record::Snapshot(_));
        if line.seq != self.seq + 1 && !begins {
            return Err(FoldError::Gap {
                last: self.seq,
                found: line.seq,
            });
        }
        if let Some(newer) = line.version.filter(|&version| version > VERSION) {
            return Err(FoldError::Newer(newer));
        }
        self.seq = line.seq;
        match &line.record {
            Record::Team(record) => {
                self.team_name.clone_from(&record.team_name);
                self.daemon.clone_from(&record.daemon);
                if let Some(work) = &record.work {
                    self.work = Work::clone(work);
                }
                if let Some(hosts) = &record.hosts {
                    self.hosts = Some(hosts.clone());
                }
                if let Some(orders) = &record.orders {
                    self.put_orders(orders, line);
                }
                self.stopping = match record.event {
                    TeamEvent::Stopping => true,
                    TeamEvent::Read | TeamEvent::Restored | TeamEvent::Noted | TeamEvent::Hosts => {
                        self.stopping
                    }
                    TeamEvent::Started | TeamEvent::Staying | TeamEvent::Stopped => false,
                };
            }
            Record::Member(record) => self.apply_member(line, record),
            Record::Request(record) => self.apply_request(line, record),
            Record::Task(record) => self.apply_task(line, record),
            // What the snapshot does not hold is dropped, in a live daemon as in a fold.
            Record::Snapshot(snapshot) => {
                let seq = self.seq;
                let done = self.done;
                *self = Self {
                    seq,
                    snapshot_seq: seq,
                    done,
                    ..(**snapshot).clone()
                };
            }
        }
        if let Some(lead) = line.lead {
            self.lead = lead;
        }
        if line.record.has_effects() {
            self.undone.push_back(line.clone());
        }
        self.mark_done(line.done);
        Ok(())
    }

    /// Returns where tools of any member, also of one that was forgotten, may or once could write,
    /// and whose they are.
    pub fn territory(&self) -> impl Iterator<Item = (&Path, &Name)> {
        self.territory
            .iter()
            .map(|(path, name)| (path.as_path(), name))
    }

    /// Records that the effects of all lines up to `seq` are complete. The next line that is
    /// written says so.
    pub fn mark_done(&mut self, seq: u64) {
        self.done = self.done.max(seq);
        while self
            .undone
            .front()
            .is_some_and(|line| line.seq <= self.done)
        {
            self.undone.pop_front();
        }
    }

    fn apply_member(&mut self, line: &Line, record: &MemberRecord) {
        let name = record.member.name.clone();
        if record.derived_from.is_some() {
            self.pending_derived
                .retain(|(_, it)| *it != PendingDerived::Gate(name.clone()));
            return;
        }
        self.trigger_by_crash(record, line);
        for id in &record.expired {
            self.expire(line, id, "the member ended or was spawned again");
        }
        for id in &record.released {
            self.release_task(*id, record.member.phase == Phase::Crashed, line);
        }
        let terms = &record.member.terms;
        // What tools can write on another machine is nothing here.
        let here = terms.host.is_none();
        let writable = std::iter::once(&terms.workspace).chain(&terms.sandbox.writable);
        for path in writable.filter(|_| here) {
            self.territory
                .entry(path.into())
                .or_insert_with(|| name.clone());
        }
        if record.event == MemberEvent::Forgotten {
            self.forgotten
                .insert(name.clone(), record.member.incarnation);
            self.members.remove(&name);
            return;
        }
        self.forgotten.remove(&name);
        let state = self.members.entry(name);
        let state = state.or_insert_with(|| MemberState::new(record.member.clone(), line.seq));
        if record.event == MemberEvent::Spawning {
            state.spawned = line.seq;
            state.spawn_id = record.command_id.clone();
            state.plan_request = None;
        }
        if let MemberEvent::GateClosed = record.event
            && let Some(id) = &record.command_id
        {
            state.plan_request = Some((id.clone(), line.seq));
        }
        if record.prompt.is_some() || state.record.conversation != record.member.conversation {
            state.prompt.clone_from(&record.prompt);
        }
        state.record = record.member.clone();
        state.seq = line.seq;
    }

    fn apply_request(&mut self, line: &Line, record: &RequestRecord) {
        let request = record.request.clone();
        if record.derived_from.is_some() {
            self.pending_derived
                .retain(|(_, it)| *it != PendingDerived::Expired(request.request_id.clone()));
            return;
        }
        let why = match request.kind {
            Kind::Shutdown => "its author shuts down",
            Kind::PlanApproval | Kind::Review | Kind::Permission | Kind::Memory => {
                "another request took its place"
            }
        };
        for id in &record.expired {
            self.expire(line, id, why);
        }
        if let Some(member) = member_of(&mut self.members, &request) {
            member.seq = line.seq;
            if record.event == RequestEvent::Asked {
                member
                    .last_requests
                    .insert(request.kind, request.request_id.clone());
            }
            if request.is_pending() {
                member.pending.insert(request.request_id.clone());
            } else {
                member.pending.remove(&request.request_id);
            }
            if record.event == RequestEvent::Approved
                && let Some(permissions) = request.permissions
            {
                member.record.terms.permissions = permissions;
            }
            if let Some(gate) =
                gate_after(record.event, request.kind).filter(|&gate| gate != member.record.gate)
            {
                member.record.gate = gate;
                member.record.updated_at = line.at;
                let pending = PendingDerived::Gate(member.record.name.clone());
                self.pending_derived.push_back((line.seq, pending));
            }
        }
        if request.kind == Kind::Memory {
            self.memory_changed = line.seq;
        }
        self.requests.insert(request.request_id.clone(), request);
    }

    pub(super) fn expire(&mut self, line: &Line, id: &RequestId, reason: &str) {
        let Some(request) = self.requests.get_mut(id) else {
            return;
        };
        let Ok(next) = request.after(Trigger::Withdrawn, line.at, reason) else {
            return;
        };
        if next.status == request.status {
            return;
        }
        *request = next;
        if let Some(member) = member_of(&mut self.members, request) {
            member.pending.remove(id);
            member.seq = line.seq;
        }
        self.pending_derived
            .push_back((line.seq, PendingDerived::Expired(id.clone())));
    }

    /// Returns the records that became true with the line of another one and have no line of their
    /// own yet.
    pub fn pending_derived(&self) -> Vec<Record> {
        self.pending_derived
            .iter()
            .filter_map(|(seq, pending)| self.derived_record(*seq, pending))
            .collect()
    }

    fn derived_record(&self, seq: u64, pending: &PendingDerived) -> Option<Record> {
        match pending {
            PendingDerived::Expired(id) => {
                let request = self.requests.get(id)?.clone();
                let event = RequestEvent::Expired;
                Some(Record::Request(Box::new(RequestRecord {
                    derived_from: Some(seq),
                    ..RequestRecord::of(event, request)
                })))
            }
            PendingDerived::Released(id) => {
                let task = self.tasks.get(id)?.clone();
                let record = TaskRecord::of(TaskEvent::Released, task, TEAMD);
                Some(Record::Task(Box::new(TaskRecord {
                    derived_from: Some(seq),
                    ..record
                })))
            }
            PendingDerived::Gate(name) => {
                let member = self.members.get(name)?.record.clone();
                let event = match member.gate {
                    Gate::Open => MemberEvent::GateOpened,
                    Gate::Closed => MemberEvent::GateClosed,
                };
                Some(Record::Member(Box::new(MemberRecord {
                    derived_from: Some(seq),
                    ..MemberRecord::of(event, member)
                })))
            }
        }
    }

    /// Returns the number of the last incarnation of a name, also of one that was forgotten; 0 if
    /// it never had one.
    pub fn last_incarnation(&self, name: &Name) -> u32 {
        let present = self
            .members
            .get(name)
            .map(|member| member.record.incarnation);
        present
            .or_else(|| self.forgotten.get(name).copied())
            .unwrap_or(0)
    }

    /// Returns the pending plan or permission of a member.
    pub fn awaited_by(&self, name: &Name) -> Option<&Request> {
        self.pending_of(name)
            .find(|request| request.kind.is_judged())
    }

    /// Returns who answers a plan, a review or a permission question.
    pub fn judge_of(&self, request: &Request) -> ApproveBy {
        if let Payload::Review(review) = &request.payload {
            return review.by;
        }
        if request.kind == Kind::Memory {
            return ApproveBy::Person;
        }
        let author = self
            .members
            .iter()
            .find(|(name, _)| name.as_str() == request.member());
        author
            .map(|(_, state)| state.record.terms.approve_by)
            .unwrap_or_default()
    }

    /// Returns the pending requests of a member that it waits for or must answer: a shutdown, a
    /// plan, a permission.
    pub fn pending_of(&self, name: &Name) -> impl Iterator<Item = &Request> {
        let pending = self.members.get(name).map(|member| &member.pending);
        pending
            .into_iter()
            .flatten()
            .filter_map(|id| self.requests.get(id))
    }

    /// Returns the pending request of one kind, if there is one.
    pub fn pending(&self, name: &Name, kind: Kind) -> Option<&Request> {
        self.pending_of(name).find(|request| request.kind == kind)
    }

    /// Returns the last shutdown that was asked of a member's present incarnation.
    pub fn shutdown_of(&self, name: &Name) -> Option<&Request> {
        let incarnation = self.members.get(name)?.record.incarnation;
        self.last_of(name, Kind::Shutdown)
            .filter(|request| request.incarnation == incarnation)
    }

    /// Returns the last plan of a member's present conversation.
    pub fn plan_of(&self, name: &Name) -> Option<&Request> {
        let conversation = self.members.get(name)?.record.conversation;
        self.last_of(name, Kind::PlanApproval)
            .filter(|request| request.incarnation >= conversation)
    }

    fn last_of(&self, name: &Name, kind: Kind) -> Option<&Request> {
        self.requests
            .get(self.members.get(name)?.last_requests.get(&kind)?)
    }

    /// Returns the shutdown of a member's present incarnation, if it was approved.
    pub fn release(&self, name: &Name) -> Option<&Request> {
        self.shutdown_of(name)
            .filter(|request| request.status == Status::Approved)
    }
}

/// Returns the member whose conversation a request belongs to. Submitted work belongs to none.
fn member_of<'m>(
    members: &'m mut BTreeMap<Name, MemberState>,
    request: &Request,
) -> Option<&'m mut MemberState> {
    if matches!(
        request.kind.rules().belongs_to,
        Span::Submission | Span::Team
    ) {
        return None;
    }
    members.get_mut(&Name::of_inbox(request.member()).ok()?)
}

/// A submitted plan closes the gate of its author, an approved one opens it.
fn gate_after(event: RequestEvent, kind: Kind) -> Option<Gate> {
    match (kind, event) {
        (Kind::PlanApproval, RequestEvent::Asked) => Some(Gate::Closed),
        (Kind::PlanApproval, RequestEvent::Approved) => Some(Gate::Open),
        _ => None,
    }
}

impl Record {
    /// Tells whether something outside the journal follows from the decision.
    pub fn has_effects(&self) -> bool {
        let forgets =
            matches!(self, Self::Member(record) if record.event == MemberEvent::Forgotten);
        forgets || !self.tell().is_empty()
    }

    /// Returns the inbox lines that follow from the decision.
    pub fn tell(&self) -> &[Notice] {
        match self {
            Self::Team(record) => &record.tell,
            Self::Member(record) => &record.tell,
            Self::Request(record) => &record.tell,
            Self::Task(record) => &record.tell,
            Self::Snapshot(_) => &[],
        }
    }
}

impl TeamRecord {
    /// Makes the record of an event that entails nothing else.
    pub fn of(event: TeamEvent, team_name: String, daemon: Option<Daemon>) -> Self {
        Self {
            event,
            team_name,
            daemon,
            rejected: Vec::new(),
            work: None,
            orders: None,
            hosts: None,
            content: None,
            tell: Vec::new(),
        }
    }
}

impl MemberRecord {
    /// Makes the record of an event that entails nothing else.
    pub fn of(event: MemberEvent, member: Member) -> Self {
        Self {
            event,
            member,
            prompt: None,
            content: None,
            command_id: None,
            agent: false,
            ended_incarnation: None,
            expired: Vec::new(),
            released: Vec::new(),
            returned: Vec::new(),
            not_returned: 0,
            tell: Vec::new(),
            derived_from: None,
        }
    }
}

impl RequestRecord {
    /// Makes the record of an event that entails nothing else.
    pub fn of(event: RequestEvent, request: Request) -> Self {
        Self {
            event,
            request,
            expired: Vec::new(),
            tell: Vec::new(),
            derived_from: None,
        }
    }
}
