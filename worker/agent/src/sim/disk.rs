//! The moments of death: each write of the worker may be its last, after any number of bytes, or
//! come up short. The files themselves are real.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::panic::resume_unwind;

use rustix::fs::OFlags;
use teamd_shared::inbox::AppendError;
use teamd_shared::message::{Message, to_json_line};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::transcript::{Block, Entry, Event};
use uuid::Uuid;

use super::{Mutant, Rng};

thread_local! {
    /// None where nothing is simulated.
    static DISK: RefCell<Option<Disk>> = const { RefCell::new(None) };
}

/// What unwinds when the worker is killed.
pub(super) struct Killed;

/// How the writes of this thread's worker fare.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) rng: Rng,
    pub(super) mutant: Option<Mutant>,
    /// How many more writes and calls there are before it dies.
    pub(super) fuse: Option<u32>,
    /// Nothing fails any more.
    pub(super) calm: bool,
    /// Decides which syncs are refused; none where all are.
    syncs: Option<Rng>,
    /// Of a mutant: bytes that are written later than they should be.
    pub(super) held: Vec<u8>,
    /// Of a mutant: the position of the entry before.
    before: Position,
    /// Of a mutant: what was sent already.
    sent: BTreeSet<String>,
    ids: u128,
    /// Of a mutant: calls that are to run again.
    pub(super) again: Vec<String>,
}

impl Disk {
    pub(super) fn new(rng: Rng, mutant: Option<Mutant>) -> Self {
        let held = Vec::new();
        let before = Position::START;
        let sent = BTreeSet::new();
        let syncs = Some(Rng(rng.0 ^ 0x5f2c));
        let ids = 1 << 80;
        Self {
            rng,
            mutant,
            fuse: None,
            calm: false,
            syncs,
            held,
            before,
            sent,
            ids,
            again: Vec::new(),
        }
    }

    /// Tells whether this is where it dies.
    fn is_the_end(&mut self) -> bool {
        match &mut self.fuse {
            Some(0) => {
                self.fuse = None;
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    /// How much of a last write is there: often nothing, or all but the newline, or all.
    fn part(&mut self, length: usize) -> usize {
        match self.rng.below(5) {
            0 => 0,
            1 => length.saturating_sub(1),
            2 => length,
            _ => length * self.rng.below(256) as usize / 256,
        }
    }

    fn spoiled_entry(&mut self, event: &Event, line: Vec<u8>) -> Vec<u8> {
        let late = match self.mutant {
            Some(Mutant::AnswersAreLate) => {
                matches!(event, Event::Answer { content, .. } if content.iter().any(|block| matches!(block, Block::ToolUse { .. })))
            }
            Some(Mutant::ResultsAreLate) => matches!(event, Event::Result { .. }),
            Some(Mutant::AdmissionsAreLate) => matches!(event, Event::Admitted { .. }),
            Some(Mutant::PositionLags) => {
                let mut entry: Entry = serde_json::from_slice(&line).unwrap();
                let at = std::mem::replace(&mut self.before, entry.inbox);
                if !matches!(event, Event::Messages { .. }) {
                    return line;
                }
                entry.inbox = at;
                return [
                    to_json_line(&serde_json::to_value(entry).unwrap()),
                    b"\n".to_vec(),
                ]
                .concat();
            }
            Some(Mutant::InterruptedIsNotTold) if matches!(event, Event::Result { content, .. } if content.contains("may have run")) =>
            {
                return Vec::new();
            }
            Some(Mutant::RunsAgain) => {
                if let Event::Result {
                    tool_use_id,
                    content,
                    ..
                } = event
                    && content.contains("may have run")
                {
                    self.again.push(tool_use_id.clone());
                }
                false
            }
            _ => false,
        };
        self.held.extend(line);
        if late {
            Vec::new()
        } else {
            std::mem::take(&mut self.held)
        }
    }
}

/// Does something with the simulated disk of this thread, if there is one.
pub(super) fn with<T>(act: impl FnOnce(&mut Disk) -> T) -> Option<T> {
    DISK.with_borrow_mut(|disk| disk.as_mut().map(act))
}

pub(super) fn put(disk: Option<Disk>) {
    DISK.set(disk);
}

/// A call begins, or has had its effect: the worker may die here.
pub(super) fn acts() {
    if with(Disk::is_the_end) == Some(true) {
        resume_unwind(Box::new(Killed));
    }
}

/// An entry is about to be written; returns what is written.
pub(crate) fn writes_an_entry(
    mut file: &File,
    event: &Event,
    line: Vec<u8>,
) -> io::Result<Vec<u8>> {
    let fate = with(|disk| {
        let line = disk.spoiled_entry(event, line.clone());
        let end = disk.is_the_end().then(|| disk.part(line.len()));
        let fails = !disk.calm && disk.rng.one_in(400);
        (line, end, fails)
    });
    match fate {
        None => Ok(line),
        Some((line, Some(end), _)) => {
            file.write_all(&line[..end])?;
            resume_unwind(Box::new(Killed))
        }
        Some((_, None, true)) => Err(io::ErrorKind::StorageFull.into()),
        Some((line, None, false)) => Ok(line),
    }
}

/// A line is about to be written into an inbox; returns what is sent.
pub(crate) fn writes_a_line(
    dir: &TeamDir,
    owner: &Name,
    message: &Message,
) -> Result<Message, AppendError> {
    let mut message = message.clone();
    let line = message.to_line()?;
    let fate = with(|disk| {
        let again = !disk.sent.insert(message.content.clone()) && message.content.contains("call-");
        if again && disk.mutant == Some(Mutant::OtherIdsWhenRepeated) {
            disk.ids += 1;
            message.id = Some(Uuid::from_u128(disk.ids));
        }
        let end = disk.is_the_end().then(|| disk.part(line.len()));
        let short = (!disk.calm && disk.rng.one_in(40)).then(|| disk.part(line.len() - 1));
        (end, short)
    });
    let Some((end, short)) = fate else {
        return Ok(message);
    };
    let Some(part) = end.or(short) else {
        return Ok(message);
    };
    let at = TeamPath::inbox(owner);
    if let Ok(mut file) = dir.open_file(&at, OFlags::WRONLY | OFlags::APPEND) {
        file.write_all(&line[..part]).unwrap();
    }
    if end.is_some() {
        resume_unwind(Box::new(Killed));
    }
    let path = dir.path(&at);
    let source = io::ErrorKind::StorageFull.into();
    Err(AppendError::Short {
        path,
        written: part,
        size: line.len(),
        source,
    })
}

/// An inbox with a line that must last is synced.
pub(crate) fn syncs_an_inbox(dir: &TeamDir, owner: &Name) -> Result<(), AppendError> {
    let refused = with(|disk| match &mut disk.syncs {
        Some(rng) => !disk.calm && rng.one_in(20),
        None => true,
    });
    if refused != Some(true) {
        return Ok(());
    }
    let path = dir.path(&TeamPath::inbox(owner));
    Err(AppendError::Unsynced {
        path,
        source: io::Error::other("the device has failed"),
    })
}

/// Does something on a disk where no inbox can be synced.
pub(crate) fn where_no_inbox_can_be_synced<T>(act: impl FnOnce() -> T) -> T {
    put(Some(Disk {
        calm: true,
        syncs: None,
        ..Disk::new(Rng(0), None)
    }));
    let done = act();
    put(None);
    done
}
