//! The transcript file: its lock, which is the liveness lock; its entries, read once and appended.
//!
//! **Who writes**: this process alone, an entry a line, each with the position (how far the inbox
//! is consumed). **When it dies** in the middle of an entry, the next incarnation cuts the torn
//! tail off. An entry that cannot be written ends the process: nothing may happen that is not in
//! the transcript.

use std::error::Error;
use std::fs::{File, TryLockError};
use std::io::BufRead;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use teamd_shared::fs::AppendLog;
use teamd_shared::json;
use teamd_shared::message::to_json_line;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};
use teamd_shared::tool_set::ToolSet;
use teamd_shared::transcript::{Entry, Event};

/// A text that every line that begins an incarnation has, and hardly any other line.
const INCARNATION: &[u8] = b"\"entry\":\"incarnation\"";

/// Why the transcript cannot be used. Fits behind "error: ".
#[derive(Debug, thiserror::Error)]
pub(crate) enum TranscriptError {
    /// Another process is this incarnation, or still ends a call of it.
    #[error("{} is locked: this teammate (or a tool call of it) still runs", .0.display())]
    Locked(PathBuf),
    /// The system refused.
    #[error(transparent)]
    Dir(#[from] DirError),
    /// The system refused to open, lock, read or write it.
    #[error("cannot {verb} the transcript {}: {source}", .path.display())]
    Failed {
        /// What was tried.
        verb: &'static str,
        /// The transcript.
        path: PathBuf,
        /// Why not.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// The transcript of this member, open and locked.
#[derive(Debug)]
pub(crate) struct Transcript {
    log: AppendLog,
    path: PathBuf,
    /// Whether entries that must outlive a loss of power are synced.
    durable: bool,
}

impl Transcript {
    /// Takes the liveness lock and repairs the end of the file. Nothing is read yet.
    pub(crate) fn lock(dir: &TeamDir, name: &Name) -> Result<Self, TranscriptError> {
        let at = TeamPath::transcript(name);
        let aside = TeamPath::transcript_torn(name);
        let path = dir.path(&at);
        let file = dir.open_file(&at, OFlags::RDWR | OFlags::CREATE | OFlags::APPEND)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(TranscriptError::Locked(path)),
            Err(TryLockError::Error(error)) => return Err(failed("lock", &path, error)),
        }
        let opened = AppendLog::repair(file, dir, &at, &aside)?;
        if let Some(torn) = opened.torn {
            tracing::warn!(
                "{} bytes of a torn entry were moved to {}",
                torn.len(),
                dir.path(&aside).display()
            );
        }
        Ok(Self {
            log: opened.log,
            path,
            durable: true,
        })
    }

    /// Sets whether [`Transcript::sync`] syncs.
    pub(crate) fn set_durable(&mut self, durable: bool) {
        self.durable = durable;
    }

    /// Returns another descriptor of the file: a process that holds it holds the liveness lock.
    pub(crate) fn liveness_lock(&self) -> Result<File, TranscriptError> {
        self.log
            .file()
            .try_clone()
            .map_err(|error| failed("open", &self.path, error))
    }

    /// Reads a conversation: the entries from the incarnation in which it began; none if it never
    /// began.
    ///
    /// Earlier conversations in the same file are passed over without being understood. Each entry
    /// is handed over when it is read: all of them may be more than the memory holds.
    pub(crate) fn each_entry(
        &mut self,
        conversation: u32,
        mut take: impl FnMut(Entry),
    ) -> Result<(), TranscriptError> {
        let begins = |line: &[u8]| beginning(line, conversation).is_some();
        let Self { log, path, .. } = self;
        let cannot_read = |error| failed("read", path, error);
        let mut reader = log.reader().map_err(cannot_read)?;
        let mut read = Vec::new();
        let mut has_begun = false;
        loop {
            read.clear();
            if reader.read_until(b'\n', &mut read).map_err(cannot_read)? == 0 {
                return Ok(());
            }
            let line = read.trim_ascii_end();
            has_begun = has_begun || begins(line);
            if !has_begun || line.is_empty() {
                continue;
            }
            match json::read::<Entry>(line) {
                Ok(entry) => take(entry),
                // Another program has changed the file. The rest of the conversation is worth more
                // than this entry.
                Err(error) => {
                    tracing::error!("an entry of {} cannot be read: {error}", path.display())
                }
            }
        }
    }

    /// Returns what a conversation was offered when it began; none if it never began.
    pub(crate) fn began_with(
        &mut self,
        conversation: u32,
    ) -> Result<Option<ToolSet>, TranscriptError> {
        let Self { log, path, .. } = self;
        let cannot_read = |error| failed("read", path, error);
        let mut reader = log.reader().map_err(cannot_read)?;
        let mut read = Vec::new();
        loop {
            read.clear();
            if reader.read_until(b'\n', &mut read).map_err(cannot_read)? == 0 {
                return Ok(None);
            }
            if let Some(tools) = beginning(&read, conversation) {
                return Ok(Some(tools));
            }
        }
    }

    /// Reads a conversation whole.
    #[cfg(test)]
    pub(crate) fn conversation(
        &mut self,
        conversation: u32,
    ) -> Result<Vec<Entry>, TranscriptError> {
        let mut entries = Vec::new();
        self.each_entry(conversation, |entry| entries.push(entry))
            .map(|()| entries)
    }

    /// Appends an entry.
    pub(crate) fn append(&mut self, entry: &Entry) -> Result<(), TranscriptError> {
        let value =
            serde_json::to_value(entry).map_err(|error| failed("write", &self.path, error))?;
        let mut line = to_json_line(&value);
        line.push(b'\n');
        #[cfg(test)]
        let line = crate::sim::writes_an_entry(self.log.file(), &entry.event, line)
            .map_err(|error| failed("write", &self.path, error))?;
        self.log
            .append(&line)
            .map_err(|error| failed("write", &self.path, error))
    }

    /// Makes the entries outlive a loss of power.
    pub(crate) fn sync(&self) -> Result<(), TranscriptError> {
        if !self.durable {
            return Ok(());
        }
        self.log
            .sync()
            .map_err(|error| failed("write", &self.path, error))
    }
}

fn failed(
    verb: &'static str,
    path: &Path,
    source: impl Into<Box<dyn Error + Send + Sync>>,
) -> TranscriptError {
    TranscriptError::Failed {
        verb,
        path: path.to_owned(),
        source: source.into(),
    }
}

/// Returns what a conversation is offered, if the line is an entry that begins an incarnation of
/// it.
fn beginning(line: &[u8], conversation: u32) -> Option<ToolSet> {
    if !contains(line, INCARNATION) {
        return None;
    }
    match json::read::<Entry>(line).ok()?.event {
        Event::Incarnation {
            conversation: of,
            tools,
            ..
        } if of == conversation => Some(tools),
        _ => None,
    }
}

fn contains(line: &[u8], part: &[u8]) -> bool {
    // The key is near the beginning: `at`, `inbox`, `entry`.
    line[..line.len().min(256)]
        .windows(part.len())
        .any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::{Duration, Instant};

    use teamd_shared::position::Position;

    fn scratch() -> (tempfile::TempDir, TeamDir, Name) {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        (scratch, dir, Name::new("alice").unwrap())
    }

    /// Locks it again. What another test starts has all descriptors of this process for a moment,
    /// and the lock with them.
    fn lock_again(dir: &TeamDir, owner: &Name) -> Transcript {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match Transcript::lock(dir, owner) {
                Err(TranscriptError::Locked(_)) if Instant::now() < deadline => {
                    std::thread::yield_now()
                }
                locked => return locked.unwrap(),
            }
        }
    }

    fn entry(event: Event) -> Entry {
        Entry {
            at: 1.0,
            inbox: Position::START,
            pending_notices: Vec::new(),
            call: None,
            model: None,
            event,
        }
    }

    fn begins(incarnation: u32, conversation: u32) -> Entry {
        entry(Event::Incarnation {
            incarnation,
            conversation,
            prompt: None,
            tools: ToolSet::default(),
        })
    }

    fn text(content: &str) -> Entry {
        entry(Event::Left {
            reason: content.to_owned(),
            incarnation: 1,
            by_signal: false,
            goes_on: false,
        })
    }

    #[test]
    fn an_incarnation_is_locked_until_every_descriptor_of_its_transcript_is_closed() {
        let (_scratch, dir, alice) = scratch();
        let transcript = Transcript::lock(&dir, &alice).unwrap();
        let lock = transcript.liveness_lock().unwrap();
        drop(transcript);
        let error = Transcript::lock(&dir, &alice).unwrap_err();
        assert!(matches!(error, TranscriptError::Locked(_)), "{error}");
        drop(lock);
        lock_again(&dir, &alice);
    }

    #[test]
    fn only_the_conversation_that_is_asked_for_is_read() {
        let (_scratch, dir, alice) = scratch();
        let mut transcript = Transcript::lock(&dir, &alice).unwrap();
        for entry in [
            begins(1, 1),
            text("old"),
            begins(2, 2),
            text("new"),
            begins(3, 2),
            text("newer"),
        ] {
            transcript.append(&entry).unwrap();
        }
        let read = transcript.conversation(2).unwrap();
        assert_eq!(
            read,
            [begins(2, 2), text("new"), begins(3, 2), text("newer")]
        );
        assert!(transcript.conversation(4).unwrap().is_empty());
    }

    #[test]
    fn the_cursor_stands_in_every_entry() {
        let (_scratch, dir, alice) = scratch();
        let mut transcript = Transcript::lock(&dir, &alice).unwrap();
        transcript.append(&begins(1, 1)).unwrap();
        let position = Position::after(5, b"abcd\n");
        transcript
            .append(&Entry {
                inbox: position,
                ..text("later")
            })
            .unwrap();
        let positions: Vec<_> = transcript
            .conversation(1)
            .unwrap()
            .iter()
            .map(|entry| entry.inbox)
            .collect();
        assert_eq!(positions, [Position::START, position]);
        assert_eq!(
            teamd_shared::transcript::position(&dir, &alice).unwrap(),
            Some(position)
        );
    }

    #[test]
    fn a_torn_or_unreadable_entry_does_not_take_the_others_with_it() {
        let (_scratch, dir, alice) = scratch();
        let mut transcript = Transcript::lock(&dir, &alice).unwrap();
        transcript.append(&begins(1, 1)).unwrap();
        drop(transcript);
        let path = dir.path(&TeamPath::transcript(&alice));
        let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"not an entry\n{\"at\":1,\"inb").unwrap();
        let mut transcript = lock_again(&dir, &alice);
        transcript.append(&text("after")).unwrap();
        assert_eq!(transcript.conversation(1).unwrap().len(), 2);
    }
}
