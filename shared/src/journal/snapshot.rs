//! Snapshots: lines of the journal that repeat the whole state, so that a fold can begin at the
//! last one.
//!
//! **Who writes**: the daemon, behind the decisions of a batch, once the lines since the last
//! snapshot are many ([`Team::snapshot_is_due`]). **Who reads**: a starting daemon and the
//! commands; they look for the last one from the end of the file ([`from_last_snapshot`]). **When
//! the daemon dies** before, within or behind the line, nothing is lost: a snapshot decides
//! nothing, and a torn one is cut off as any torn line is.
//!
//! A snapshot holds everything that decisions depend on: the members, the pending requests, the
//! last request of each kind of each member, the lines whose effects are not complete, and the
//! requests that ended last. Older requests are only in the lines before it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;

use super::{Record, Team};
use crate::id::RequestId;
use crate::id::TaskId;
use crate::request::{Kind, Request, Status as RequestStatus};
use crate::task::TaskStatus;
use crate::team_dir::{DirError, TeamDir, TeamPath};

/// How many lines are between two snapshots at least, in a daemon.
pub const SNAPSHOT_LINES: u64 = 500;

/// How many lines are between two snapshots at least for each record that a snapshot holds, so that
/// the snapshots stay a small part of the file.
const LINES_PER_RECORD: u64 = 4;

/// How many of the requests that ended last a snapshot holds.
const ENDED_REQUESTS: usize = 64;

/// How much of the end of a journal is read at first, in bytes.
const FIRST_LOOK: u64 = 256 << 10;

/// How far from its start a line says what kind of record it is, in bytes.
const HEAD: usize = 512;

/// The mark of the line of a snapshot, as this program writes it. Within a JSON string the quotes
/// would be escaped.
const MARK: &[u8] = br#""record":"snapshot""#;

impl Team {
    /// Tells whether a snapshot is worth its line: `at_least` lines follow the last one, and more
    /// if it would be large.
    pub fn snapshot_is_due(&self, at_least: u64) -> bool {
        let records = (self.members.len()
            + self.requests.len().min(ENDED_REQUESTS)
            + self.tasks.len()) as u64;
        let lines = self.seq - self.snapshot_seq;
        lines >= at_least.max(records * LINES_PER_RECORD)
    }

    /// Returns the state as a snapshot; none while a derived record still needs its line.
    pub fn snapshot(&self) -> Option<Record> {
        if !self.pending_derived.is_empty() {
            return None;
        }
        // The line itself has these.
        let own = Self {
            seq: 0,
            snapshot_seq: 0,
            orders_changed: 0,
            memory_changed: 0,
            done: 0,
            ..self.without_what_is_old()
        };
        Some(Record::Snapshot(Box::new(own)))
    }

    /// Leaves out the requests that ended long ago, unless they are the last ones of a member, and
    /// the completed tasks.
    fn without_what_is_old(&self) -> Self {
        let last: BTreeSet<&RequestId> = self
            .members
            .values()
            .flat_map(|member| member.last_requests.values())
            .collect();
        let mut ended: Vec<&Request> = self
            .requests
            .values()
            .filter(|request| !request.is_pending() && !last.contains(&request.request_id))
            // What was accepted is the memory, however old it is.
            .filter(|request| {
                request.kind != Kind::Memory || request.status != RequestStatus::Approved
            })
            .collect();
        ended.sort_by(|a, b| {
            let later = b.resolved_at.unwrap_or_default();
            later.total_cmp(&a.resolved_at.unwrap_or_default())
        });
        let mut kept = self.clone();
        // The file of a task is written with the effects of its line: until then a start must know
        // its state.
        let undone: BTreeSet<TaskId> = self
            .undone
            .iter()
            .filter_map(|line| match &line.record {
                Record::Task(record) => Some(record.task.id),
                _ => None,
            })
            .collect();
        kept.tasks
            .retain(|id, task| task.status != TaskStatus::Completed || undone.contains(id));
        for request in ended.into_iter().skip(ENDED_REQUESTS) {
            kept.requests.remove(&request.request_id);
        }
        kept
    }
}

/// Reads the end of the journal, as much as a fold needs: the lines from the last snapshot on, or
/// all lines if there is none. Also returns where that begins in the file. Returns nothing if there
/// is no journal.
///
/// # Errors
/// [`DirError`] if the system refuses.
pub(super) fn read_end(dir: &TeamDir) -> Result<(u64, Vec<u8>), DirError> {
    let at = TeamPath::journal();
    let journal = match dir.open_file(&at, OFlags::RDONLY) {
        Err(error) if error.is_not_found() => return Ok((0, Vec::new())),
        other => other?,
    };
    let read = journal
        .metadata()
        .and_then(|it| from_last_snapshot(&journal, it.len()));
    read.map_err(dir.cannot("read", &at))
}

/// Reads a journal of `length` bytes from its last snapshot on, or from its start if it has none.
/// Also returns the offset of what was read.
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

/// Finds where the last whole line begins that is a snapshot. The bytes may begin within a line,
/// unless they are the whole file.
fn last_snapshot_line(bytes: &[u8], is_whole_file: bool) -> Option<usize> {
    let mut end = bytes.iter().rposition(|&byte| byte == b'\n')?;
    loop {
        let newline = bytes[..end].iter().rposition(|&byte| byte == b'\n');
        let start = newline.map_or(0, |newline| newline + 1);
        let head = &bytes[start..end.min(start + HEAD)];
        if (newline.is_some() || is_whole_file)
            && head.windows(MARK.len()).any(|window| window == MARK)
        {
            return Some(start);
        }
        end = newline?;
    }
}

#[cfg(test)]
mod tests;
