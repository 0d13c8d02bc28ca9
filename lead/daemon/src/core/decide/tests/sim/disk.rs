//! The files of the simulated team: the journal (in some schedules byte for byte), inboxes,
//! transcripts, the roster.

use std::collections::{BTreeMap, BTreeSet};

use teamd_shared::id::RequestId;
use teamd_shared::journal::{Line, Record, Team};
use teamd_shared::member::MemberStatus;
use teamd_shared::message::{Message, to_json_line};
use teamd_shared::name::Name;
use teamd_shared::task::{Task, TaskId};
use uuid::Uuid;

use super::super::mutants::Mutant;
use super::mail::UnreadOf;
use super::world::World;
use crate::io::journal;

#[derive(Default)]
pub(in super::super) struct Disk {
    /// The whole lines of the journal.
    pub(in super::super) journal: Vec<Line>,
    /// Its bytes, in the schedules that look at them: what makes and reads them takes most of the
    /// time.
    bytes: Option<Vec<u8>>,
    pub(in super::super) inboxes: BTreeMap<Name, Vec<Message>>,
    /// The numbers of the lines of the lead's inbox that are no messages.
    pub(super) bad: BTreeSet<u64>,
    /// Whether its last line has no end.
    torn: bool,
    /// Whether the daemon is woken for it.
    pub(super) woken: bool,
    pub(in super::super) transcripts: BTreeMap<Name, Transcript>,
    /// What `config.json` says.
    pub(super) roster: BTreeMap<Name, MemberStatus>,
    /// What `tasks/ID.json` say, and which of them could not be written at some time.
    pub(super) tasks: BTreeMap<TaskId, Task>,
    pub(super) refused: BTreeSet<TaskId>,
    /// What members had not read when they ended.
    pub(super) unread: UnreadOf,
}

/// What of a transcript matters here.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Transcript {
    pub(super) conversation: u32,
    /// The plan without a result.
    pub(in super::super) plan: Option<PlanCall>,
    /// The incarnation that wrote last that SIGTERM ends it.
    pub(super) left_by_signal: Option<u32>,
}

/// A call of `plan_approval`.
#[derive(Debug, Clone)]
pub(in super::super) struct PlanCall {
    pub(super) first: (RequestId, Uuid),
    /// The ids that it was submitted under, of the request and of the line.
    pub(in super::super) submitted: BTreeSet<(RequestId, Uuid)>,
}

impl Disk {
    pub(super) fn new(bytewise: bool) -> Self {
        Self {
            bytes: bytewise.then(Vec::new),
            ..Self::default()
        }
    }

    /// Adds a line to the journal.
    pub(super) fn writes(&mut self, line: &Line) {
        if let Some(bytes) = &mut self.bytes {
            bytes.extend(in_bytes(line));
        }
        self.journal.push(line.clone());
    }

    /// Adds a piece of a line to the journal.
    pub(super) fn tears(&mut self, piece: &[u8]) {
        if let Some(bytes) = &mut self.bytes {
            bytes.extend(piece);
        }
    }

    /// Returns the state that the journal says, folded from its last snapshot as a starting daemon
    /// does.
    pub(super) fn fold(&self) -> Team {
        let mut team = Team::default();
        let first = self
            .journal
            .iter()
            .rposition(|line| matches!(line.record, Record::Snapshot(_)))
            .unwrap_or(0);
        for line in &self.journal[first..] {
            team.apply(line).unwrap();
        }
        team
    }

    /// Returns how many lines the lead's inbox has, of both sorts.
    pub(super) fn lead_lines(&self) -> u64 {
        let messages = self.inboxes.get(&Name::lead()).map_or(0, Vec::len);
        u64::try_from(messages + self.bad.len()).unwrap()
    }

    /// Ends a torn line with the next line.
    fn glue(&mut self) -> bool {
        let torn = std::mem::take(&mut self.torn);
        if torn {
            self.bad.insert(self.lead_lines());
        }
        torn
    }
}

/// Returns a line as the journal holds it.
pub(super) fn in_bytes(line: &Line) -> Vec<u8> {
    [
        to_json_line(&serde_json::to_value(line).unwrap()).as_slice(),
        b"\n",
    ]
    .concat()
}

impl World {
    /// Appends a message as the rules say: behind what is torn it looks back, and writes its line
    /// again.
    pub(super) fn sends(&mut self, to: &Name, message: Message) {
        if *to == Name::lead() {
            self.disk.glue();
            self.rings_the_daemon();
        }
        self.disk
            .inboxes
            .entry(to.clone())
            .or_default()
            .push(message);
    }

    /// Appends a message as a foreign program does, if there is such an inbox: behind what is torn
    /// it is lost.
    pub(super) fn echoes(&mut self, to: &Name, message: Message) {
        if *to == Name::lead() && self.disk.glue() {
            return self.rings_the_daemon();
        }
        if self.disk.inboxes.contains_key(to) {
            self.sends(to, message);
        }
    }

    /// Kills a writer while it appends to the inbox of the lead, now and then.
    pub(super) fn tears_a_line(&mut self) {
        if !self.calm && self.rng.one_in(3) {
            self.note(|| "  a line in the inbox of the lead is torn".to_owned());
            self.disk.torn = true;
            self.rings_the_daemon();
        }
    }

    /// Reports a change of the inbox, unless the event is lost.
    fn rings_the_daemon(&mut self) {
        self.disk.woken |= !self.rng.one_in(4);
    }

    /// Reads the journal as a daemon does that starts, and cuts off what is torn.
    pub(super) fn repairs_the_journal(&mut self) {
        let Some(bytes) = &self.disk.bytes else {
            return;
        };
        let checked = match journal::fold(bytes) {
            Ok(team) if team == self.disk.fold() => Ok(()),
            Ok(_) => Err("the journal is read as another one".to_owned()),
            Err(error) => Err(format!("the journal cannot be read: {error}")),
        };
        let whole = bytes
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        if !self.is(Mutant::TornTailStays)
            && let Some(bytes) = &mut self.disk.bytes
        {
            bytes.truncate(whole);
        }
        self.check(checked);
    }

    /// Returns some of these bytes, from the first on.
    pub(super) fn some_of(&mut self, bytes: &[u8]) -> Vec<u8> {
        let some = self.rng.below(u32::try_from(bytes.len()).unwrap().max(1)) as usize;
        bytes[..some].to_vec()
    }
}
