//! The fold: the state of a team is what its journal says, line by line.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use super::{
    Daemon, Line, MemberEvent, MemberRecord, Notice, Record, RequestEvent, RequestRecord, TeamEvent,
    TeamRecord, VERSION,
};
use crate::id::RequestId;
use crate::member::{Gate, Member};
use crate::name::Name;
use crate::position::Position;
use crate::request::{Event, Kind, Request, Status};

/// The state of a team. [`Team::apply`] is the only thing that changes it, in a running daemon as in a fold.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Team {
    /// The last line's `seq`.
    pub seq: u64,
    /// The `seq` of the last snapshot; 0 before the first.
    pub(super) snapshot_seq: u64,
    /// The name of the team.
    pub team_name: String,
    /// The daemon that wrote the last `started` line, unless it stopped.
    pub daemon: Option<Daemon>,
    /// Whether it is about to end.
    pub stopping: bool,
    /// How far the daemon has read the lead's inbox.
    pub lead: Position,
    /// All members that are not forgotten.
    pub members: BTreeMap<Name, MemberState>,
    /// The last life of each name that was forgotten: a name that comes back goes on counting, so that nothing
    /// that was written about an earlier life ever fits a later one.
    pub(super) forgotten: BTreeMap<Name, u32>,
    /// Where tools of a member may or might write, or once could: each workspace, and each path that was allowed by name;
    /// of whom it was first. What they have made stays when a member is forgotten.
    pub(super) territory: BTreeMap<PathBuf, Name>,
    /// All requests that were ever asked.
    pub requests: BTreeMap<RequestId, Request>,
    /// The highest `done` of a line.
    pub done: u64,
    /// The lines above `done` that entail inbox lines or moves of files, oldest first.
    pub undone: VecDeque<Line>,
    /// The pending requests of each member: the only ones that a decision about it must look at.
    pub(super) pending: BTreeMap<Name, BTreeSet<RequestId>>,
    /// The last request of each kind that concerns each member.
    pub(super) last: BTreeMap<(Name, Kind), RequestId>,
    /// What became true with the line of another record, and has no line of its own yet.
    pub(super) pending_derived: VecDeque<(u64, PendingDerived)>,
}

/// A member, and what its conversation begins with.
#[derive(Debug, Clone, PartialEq)]
pub struct MemberState {
    /// The record.
    pub record: Member,
    /// The prompt, of the life in which the conversation began.
    pub prompt: Option<String>,
    /// The `seq` of the line that last changed the record or one of its requests: it orders the daemon's words.
    pub seq: u64,
    /// The `seq` of the line in which somebody spawned it: it orders the members, and a restart by the policy keeps it.
    pub spawned: u64,
    /// The id of the command that spawned it.
    pub spawn_id: Option<RequestId>,
    /// The id of the last command that asked it for a plan, and the `seq` of its line.
    pub plan_request: Option<(RequestId, u64)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum PendingDerived {
    Expired(RequestId),
    Gate(Name),
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
            return Err(FoldError::Gap { last: self.seq, found: line.seq });
        }
        if let Some(newer) = line.version.filter(|&version| version > VERSION) {
            return Err(FoldError::Newer(newer));
        }
        self.seq = line.seq;
        self.done = self.done.max(line.done);
        match &line.record {
            Record::Team(record) => {
                self.team_name.clone_from(&record.team_name);
                self.daemon.clone_from(&record.daemon);
                self.stopping = match record.event {
                    TeamEvent::Stopping => true,
                    TeamEvent::Read | TeamEvent::ModesRestored => self.stopping,
                    TeamEvent::Started | TeamEvent::Staying | TeamEvent::Stopped => false,
                };
            }
            Record::Member(record) => self.apply_member(line, record),
            Record::Request(record) => self.apply_request(line, record),
            Record::Snapshot(snapshot) => self.restore(snapshot),
        }
        if let Some(lead) = line.lead {
            self.lead = lead;
        }
        if line.record.has_effects() {
            self.undone.push_back(line.clone());
        }
        while self.undone.front().is_some_and(|line| line.seq <= self.done) {
            self.undone.pop_front();
        }
        Ok(())
    }

    /// Returns where tools of any member, also of one that was forgotten, may or once could write, and whose they are.
    pub fn territory(&self) -> impl Iterator<Item = (&Path, &Name)> {
        self.territory.iter().map(|(path, name)| (path.as_path(), name))
    }

    /// Says that the effects of all lines up to `seq` are complete. It stands in the next line that is written.
    pub fn mark_done(&mut self, seq: u64) {
        self.done = self.done.max(seq);
        while self.undone.front().is_some_and(|line| line.seq <= self.done) {
            self.undone.pop_front();
        }
    }

    fn apply_member(&mut self, line: &Line, record: &MemberRecord) {
        let name = record.member.name.clone();
        if record.derived_from.is_some() {
            self.pending_derived.retain(|(_, it)| *it != PendingDerived::Gate(name.clone()));
            return;
        }
        for id in &record.expired {
            self.expire(line, id, "the member ended or was spawned afresh");
        }
        for path in
            std::iter::once(&record.member.terms.workspace).chain(&record.member.terms.sandbox.writable)
        {
            if !self.territory.contains_key(Path::new(path)) {
                self.territory.insert(path.into(), name.clone());
            }
        }
        if record.event == MemberEvent::Forgotten {
            self.forgotten.insert(name.clone(), record.member.incarnation);
            self.members.remove(&name);
            self.pending.remove(&name);
            self.last.retain(|(member, _), _| *member != name);
            return;
        }
        self.forgotten.remove(&name);
        let before = self.members.remove(&name);
        let begins = record.event == MemberEvent::Spawning;
        let earlier = before.as_ref().filter(|_| !begins);
        let spawned = earlier.map_or(line.seq, |before| before.spawned);
        let spawn_id = match begins {
            true => record.command_id.clone(),
            false => earlier.and_then(|before| before.spawn_id.clone()),
        };
        let asked = record.command_id.clone().filter(|_| record.event == MemberEvent::GateClosed);
        let plan_request =
            asked.map(|id| (id, line.seq)).or_else(|| earlier.and_then(|before| before.plan_request.clone()));
        let same = before.filter(|old| old.record.conversation == record.member.conversation);
        let prompt = record.prompt.clone().or_else(|| same.and_then(|old| old.prompt));
        let (record, seq) = (record.member.clone(), line.seq);
        self.members.insert(name, MemberState { record, prompt, seq, spawned, spawn_id, plan_request });
    }

    fn apply_request(&mut self, line: &Line, record: &RequestRecord) {
        let request = record.request.clone();
        if record.derived_from.is_some() {
            self.pending_derived.retain(|(_, it)| *it != PendingDerived::Expired(request.request_id.clone()));
            return;
        }
        for id in &record.expired {
            self.expire(line, id, "another request took its place, or its author leaves");
        }
        if let Ok(name) = Name::of_inbox(request.member()) {
            self.follow_gate(line, &name, record.event, request.kind);
            if record.event == RequestEvent::Asked {
                self.last.insert((name.clone(), request.kind), request.request_id.clone());
            }
            let pending = self.pending.entry(name).or_default();
            if request.is_pending() {
                pending.insert(request.request_id.clone());
            } else {
                pending.remove(&request.request_id);
            }
        }
        self.requests.insert(request.request_id.clone(), request);
    }

    /// A submitted plan closes the gate of its author, an approved one opens it.
    fn follow_gate(&mut self, line: &Line, name: &Name, event: RequestEvent, kind: Kind) {
        let Some(member) = self.members.get_mut(name) else { return };
        member.seq = line.seq;
        let gate = match (kind, event) {
            (Kind::PlanApproval, RequestEvent::Asked) => Gate::Closed,
            (Kind::PlanApproval, RequestEvent::Approved) => Gate::Open,
            _ => return,
        };
        if member.record.gate != gate {
            member.record.gate = gate;
            member.record.updated_at = line.at;
            self.pending_derived.push_back((line.seq, PendingDerived::Gate(name.clone())));
        }
    }

    fn expire(&mut self, line: &Line, id: &RequestId, reason: &str) {
        let Some(request) = self.requests.get_mut(id) else { return };
        let Ok(next) = request.after(Event::Withdrawn, line.at, reason) else { return };
        if next.status == request.status {
            return;
        }
        *request = next;
        if let Ok(name) = Name::of_inbox(request.member()) {
            if let Some(pending) = self.pending.get_mut(&name) {
                pending.remove(id);
            }
            if let Some(member) = self.members.get_mut(&name) {
                member.seq = line.seq;
            }
        }
        self.pending_derived.push_back((line.seq, PendingDerived::Expired(id.clone())));
    }

    /// Returns the records that became true with the line of another one and have no line of their own yet.
    pub fn pending_derived(&self) -> Vec<Record> {
        self.pending_derived.iter().filter_map(|(seq, pending)| self.derived_record(*seq, pending)).collect()
    }

    fn derived_record(&self, seq: u64, pending: &PendingDerived) -> Option<Record> {
        match pending {
            PendingDerived::Expired(id) => {
                let request = self.requests.get(id)?.clone();
                let event = RequestEvent::Expired;
                let (expired, tell) = (Vec::new(), Vec::new());
                Some(Record::Request(Box::new(RequestRecord {
                    event,
                    request,
                    expired,
                    tell,
                    derived_from: Some(seq),
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

    /// Returns the number of the last incarnation of a name, also of one that was forgotten; 0 if it never had one.
    pub fn last_incarnation(&self, name: &Name) -> u32 {
        let known = self.members.get(name).map(|member| member.record.incarnation);
        known.or_else(|| self.forgotten.get(name).copied()).unwrap_or(0)
    }

    /// Returns the pending requests of a member, of both kinds.
    pub fn pending_of(&self, name: &Name) -> impl Iterator<Item = &Request> {
        self.pending.get(name).into_iter().flatten().filter_map(|id| self.requests.get(id))
    }

    /// Returns the pending request of one kind, if there is one.
    pub fn pending(&self, name: &Name, kind: Kind) -> Option<&Request> {
        self.pending_of(name).find(|request| request.kind == kind)
    }

    /// Returns the last shutdown that was asked of a member's present life.
    pub fn shutdown_of(&self, name: &Name) -> Option<&Request> {
        let incarnation = self.members.get(name)?.record.incarnation;
        self.last_of(name, Kind::Shutdown).filter(|request| request.incarnation == incarnation)
    }

    /// Returns the last plan of a member's present conversation.
    pub fn plan_of(&self, name: &Name) -> Option<&Request> {
        let conversation = self.members.get(name)?.record.conversation;
        self.last_of(name, Kind::PlanApproval).filter(|request| request.incarnation >= conversation)
    }

    fn last_of(&self, name: &Name, kind: Kind) -> Option<&Request> {
        self.requests.get(self.last.get(&(name.clone(), kind))?)
    }

    /// Returns the shutdown of a member's present life, if it was answered with yes.
    pub fn release(&self, name: &Name) -> Option<&Request> {
        self.shutdown_of(name).filter(|request| request.status == Status::Approved)
    }
}

impl Record {
    /// Tells whether something outside the journal follows from the decision.
    pub fn has_effects(&self) -> bool {
        let forgets = matches!(self, Self::Member(record) if record.event == MemberEvent::Forgotten);
        forgets || !self.tell().is_empty()
    }

    /// Returns the inbox lines that follow from the decision.
    pub fn tell(&self) -> &[Notice] {
        match self {
            Self::Team(record) => &record.tell,
            Self::Member(record) => &record.tell,
            Self::Request(record) => &record.tell,
            Self::Snapshot(_) => &[],
        }
    }
}

impl TeamRecord {
    /// Makes the record of an event that entails nothing else.
    pub fn of(event: TeamEvent, team_name: String, daemon: Option<Daemon>) -> Self {
        Self { event, team_name, daemon, rejected: Vec::new(), content: None, tell: Vec::new() }
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
            tell: Vec::new(),
            derived_from: None,
        }
    }
}

impl RequestRecord {
    /// Makes the record of an event that entails nothing else.
    pub fn of(event: RequestEvent, request: Request) -> Self {
        Self { event, request, expired: Vec::new(), tell: Vec::new(), derived_from: None }
    }
}
