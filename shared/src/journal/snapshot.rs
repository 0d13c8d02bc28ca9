//! Snapshots: lines of the journal that repeat the whole state, so that a fold can begin at the last one.
//!
//! **Who writes**: the daemon, behind the decisions of a batch, once the lines since the last snapshot are many
//! ([`Team::snapshot_is_due`]). **Who reads**: a starting daemon and the commands; they look for the last one from the end of
//! the file ([`from_last_snapshot`]). **When the daemon dies** before, within or behind the line, nothing is lost: a
//! snapshot decides nothing, and a torn one is cut off as any torn line is.
//!
//! A snapshot holds whole what decisions rest on: the members, the pending requests, the last request of each kind of
//! each member, the lines whose effects are not complete, and the requests that ended last. Older requests stand in the
//! lines before it alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::OFlags;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Daemon, Line, MemberState, Record, Team};
use crate::id::RequestId;
use crate::member::Member;
use crate::name::Name;
use crate::position::Position;
use crate::request::Request;
use crate::team_dir::{DirError, TeamDir, TeamPath};

/// How many lines stand between two snapshots at least, in a daemon.
pub const SNAPSHOT_LINES: u64 = 500;

/// How many lines stand between two snapshots for each record that a snapshot holds, at least: so that the
/// snapshots stay a small part of the file.
const LINES_PER_RECORD: u64 = 4;

/// How many of the requests that ended last a snapshot holds.
const ENDED_REQUESTS: usize = 64;

/// How much of the end of a journal is read at first, in bytes.
const FIRST_LOOK: u64 = 256 << 10;

/// How far from its start a line says what kind of record it is, in bytes.
const HEAD: usize = 512;

/// What only the line of a snapshot says, as this program writes it. Within a JSON string the quotes would be escaped.
const MARK: &[u8] = br#""record":"snapshot""#;

/// The state of a team, whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// The name of the team.
    pub team_name: String,
    /// The daemon that runs, if one does.
    pub daemon: Option<Daemon>,
    /// Whether the daemon is about to end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopping: bool,
    /// How far the daemon has read the lead's inbox.
    pub lead_inbox: Position,
    /// The members that are not forgotten.
    pub members: Vec<SnapshotMember>,
    /// The last incarnation of each forgotten name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub forgotten: BTreeMap<Name, u32>,
    /// Each path that tools of a member could ever write, and the first such member.
    pub writable: BTreeMap<PathBuf, Name>,
    /// The requests that decisions can rest on, in the order of their ids.
    pub requests: Vec<Request>,
    /// The last request of each kind of each member.
    pub last_requests: Vec<RequestId>,
    /// The lines whose effects are not known to be complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub undone: Vec<Line>,
}

/// A member in a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotMember {
    /// The member.
    #[serde(flatten)]
    pub member: Member,
    /// What its conversation began with.
    pub prompt: Option<String>,
    /// The `seq` of the line that last changed it or one of its requests.
    pub changed_seq: u64,
    /// The `seq` of the line that spawned it.
    pub spawned_seq: u64,
    /// The id of the command that spawned it.
    pub spawn_id: Option<RequestId>,
    /// The id of the last command that asked it for a plan, and the `seq` of its line.
    pub plan_request: Option<(RequestId, u64)>,
}

impl Team {
    /// Tells whether a snapshot is worth its line: `at_least` lines stand behind the last one, and more if it would be large.
    pub fn snapshot_is_due(&self, at_least: u64) -> bool {
        let records = (self.members.len() + self.requests.len().min(ENDED_REQUESTS)) as u64;
        let lines = self.seq - self.snapshot_seq;
        lines >= at_least.max(records * LINES_PER_RECORD)
    }

    /// Returns the state as a snapshot; none while a derived record still needs its line.
    pub fn snapshot(&self) -> Option<Snapshot> {
        if !self.pending_derived.is_empty() {
            return None;
        }
        let members = self.members.values().map(|state| SnapshotMember {
            member: state.record.clone(),
            prompt: state.prompt.clone(),
            changed_seq: state.seq,
            spawned_seq: state.spawned,
            spawn_id: state.spawn_id.clone(),
            plan_request: state.plan_request.clone(),
        });
        Some(Snapshot {
            team_name: self.team_name.clone(),
            daemon: self.daemon.clone(),
            stopping: self.stopping,
            lead_inbox: self.lead,
            members: members.collect(),
            forgotten: self.forgotten.clone(),
            writable: self.territory.clone(),
            requests: self.requests_to_keep(),
            last_requests: self.last.values().cloned().collect(),
            undone: self.undone.iter().cloned().collect(),
        })
    }

    /// Tells whether a snapshot holds the members and pending requests of this state, as they stand.
    pub fn is_snapshot(&self, snapshot: &Snapshot) -> bool {
        let mut restored = Self::default();
        restored.restore(snapshot);
        restored.members == self.members
            && restored.pending.values().flatten().eq(self.pending.values().flatten())
            && restored.requests.iter().all(|(id, request)| self.requests.get(id) == Some(request))
    }

    /// Takes a snapshot over: what it does not hold is forgotten, in a live daemon as in a fold.
    pub(super) fn restore(&mut self, snapshot: &Snapshot) {
        let requests: BTreeMap<RequestId, Request> =
            snapshot.requests.iter().map(|request| (request.request_id.clone(), request.clone())).collect();
        let mut pending: BTreeMap<Name, BTreeSet<RequestId>> = BTreeMap::new();
        for request in requests.values().filter(|request| request.is_pending()) {
            if let Ok(name) = Name::of_inbox(request.member()) {
                pending.entry(name).or_default().insert(request.request_id.clone());
            }
        }
        let last = snapshot.last_requests.iter().filter_map(|id| {
            let request = requests.get(id)?;
            Some(((Name::of_inbox(request.member()).ok()?, request.kind), id.clone()))
        });
        let last = last.collect();
        let members = snapshot.members.iter().map(|state| {
            let SnapshotMember {
                member: record,
                prompt,
                changed_seq: seq,
                spawned_seq: spawned,
                spawn_id,
                plan_request,
            } = state.clone();
            (record.name.clone(), MemberState { record, prompt, seq, spawned, spawn_id, plan_request })
        });
        *self = Self {
            seq: self.seq,
            snapshot_seq: self.seq,
            team_name: snapshot.team_name.clone(),
            daemon: snapshot.daemon.clone(),
            stopping: snapshot.stopping,
            lead: snapshot.lead_inbox,
            members: members.collect(),
            forgotten: snapshot.forgotten.clone(),
            territory: snapshot.writable.clone(),
            requests,
            done: self.done,
            undone: snapshot.undone.iter().cloned().collect(),
            pending,
            last,
            pending_derived: VecDeque::new(),
        };
    }

    /// Returns the pending requests, the last ones of the members, and those that ended last, in the order of their ids.
    fn requests_to_keep(&self) -> Vec<Request> {
        let last: BTreeSet<&RequestId> = self.last.values().collect();
        let (mut kept, mut ended): (Vec<&Request>, Vec<&Request>) = self
            .requests
            .values()
            .partition(|request| request.is_pending() || last.contains(&request.request_id));
        let resolved_at = |request: &Request| request.resolved_at.unwrap_or_default();
        ended.sort_by(|a, b| resolved_at(b).total_cmp(&resolved_at(a)));
        kept.extend(ended.into_iter().take(ENDED_REQUESTS));
        kept.sort_by(|a, b| a.request_id.cmp(&b.request_id));
        kept.into_iter().cloned().collect()
    }
}

impl Record {
    /// Makes a snapshot a record.
    pub fn snapshot(snapshot: Snapshot) -> Self {
        Self::Snapshot(Box::new(snapshot))
    }
}

/// The end of a journal: what a fold needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tail {
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// The lines from the last snapshot on, or all lines if there is none.
    pub bytes: Vec<u8>,
}

impl Tail {
    /// Reads the end of the journal; empty if there is no journal.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub fn read(dir: &TeamDir) -> Result<Self, DirError> {
        let at = TeamPath::journal();
        let io = |source| DirError::Io { verb: "read", path: dir.path(&at), source };
        let journal = match dir.open_file(&at, OFlags::RDONLY) {
            Err(error) if error.is_not_found() => return Ok(Self::default()),
            other => other?,
        };
        let length = journal.metadata().map_err(io)?.len();
        let (offset, bytes) = from_last_snapshot(&journal, length).map_err(io)?;
        Ok(Self { offset, bytes })
    }

    /// Counts the lines before it: they tell the number of a line that cannot be read.
    pub fn lines_before(&self, dir: &TeamDir) -> usize {
        let before = dir.read(&TeamPath::journal()).unwrap_or_default();
        let end = usize::try_from(self.offset).unwrap_or(usize::MAX).min(before.len());
        before[..end].iter().filter(|&&byte| byte == b'\n').count()
    }
}

/// Reads a journal of `length` bytes from its last snapshot on, or from its start if it has none. Returns the offset of what
/// was read, too.
fn from_last_snapshot(journal: &File, length: u64) -> io::Result<(u64, Vec<u8>)> {
    let mut size = FIRST_LOOK;
    loop {
        let from = length.saturating_sub(size);
        let mut bytes = vec![0; usize::try_from(length - from).map_err(io::Error::other)?];
        journal.read_exact_at(&mut bytes, from)?;
        if let Some(line) = last_snapshot_line(&bytes, from == 0) {
            return Ok((from + line as u64, bytes.split_off(line)));
        }
        if from == 0 {
            return Ok((0, bytes));
        }
        size *= 4;
    }
}

/// Finds where the last whole line begins that is a snapshot. The bytes may begin within a line, unless they are the whole
/// file.
fn last_snapshot_line(bytes: &[u8], is_whole_file: bool) -> Option<usize> {
    let mut end = bytes.iter().rposition(|&byte| byte == b'\n')?;
    loop {
        let newline = bytes[..end].iter().rposition(|&byte| byte == b'\n');
        let start = newline.map_or(0, |newline| newline + 1);
        let head = &bytes[start..end.min(start + HEAD)];
        if (newline.is_some() || is_whole_file) && head.windows(MARK.len()).any(|window| window == MARK) {
            return Some(start);
        }
        end = newline?;
    }
}

#[cfg(test)]
mod tests;
