//! Reads the journal: a start of the daemon, the commands, `doctor` and the lead agent share this
//! reader, so that they agree on what a start accepts. It changes nothing.

use std::io;

use super::snapshot::read_end;
use super::{FoldError, Line, Team, VERSION, read_lines};
use crate::team_dir::{DirError, TeamDir, TeamPath};
use serde::Deserialize;

/// Why the journal cannot be used. It is then left as it is.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be opened.
    #[error(transparent)]
    Dir(#[from] DirError),
    /// The open file cannot be read.
    #[error("cannot read journal.jsonl: {0}")]
    Io(#[from] io::Error),
    /// A line is not one of a journal.
    #[error("line {number} of journal.jsonl cannot be read: {why}")]
    Unreadable {
        /// Its number: 1, 2, 3 …
        number: usize,
        /// Why it cannot be read.
        why: String,
    },
    /// A line does not follow from the line before.
    #[error("line {number} of journal.jsonl does not continue it: {why}")]
    Fold {
        /// Its number: 1, 2, 3 …
        number: usize,
        /// Why it does not.
        why: FoldError,
    },
}

impl JournalError {
    /// Explains why a line cannot be read. A line of a newer program need not look like ours.
    pub(super) fn of_line(number: usize, text: &[u8], error: &serde_json::Error) -> Self {
        match version_of(text).filter(|&version| version > VERSION) {
            Some(version) => Self::Fold {
                number,
                why: FoldError::Newer(version),
            },
            None => Self::Unreadable {
                number,
                why: error.to_string(),
            },
        }
    }

    /// Returns what to do about it.
    pub fn next_step(&self) -> &'static str {
        match self {
            Self::Dir(_) | Self::Io(_) => {
                "nothing was changed; look at the permissions and the disk"
            }
            Self::Fold {
                why: FoldError::Newer(_),
                ..
            } => "nothing was changed; use the newer teamd that wrote it",
            Self::Unreadable { .. } | Self::Fold { .. } => {
                "nothing was changed; correct that line, or move journal.jsonl aside to begin with an empty \
                 roster (workers that still run then get a directive to exit)"
            }
        }
    }
}

/// Reads the file; nothing if there is none yet.
///
/// # Errors
/// [`JournalError`] if the file cannot be read.
pub fn read(dir: &TeamDir) -> Result<Option<Vec<u8>>, JournalError> {
    match dir.read(&TeamPath::journal()) {
        Err(error) if error.is_not_found() => Ok(None),
        other => Ok(Some(other?)),
    }
}

/// Where reading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// At the last snapshot.
    Snapshot,
    /// At the first line.
    Start,
}

/// Reads and folds the journal; an empty team if there is none yet. A torn last line does not count
/// yet. Hands over each line with the state after it.
///
/// # Errors
/// [`JournalError`] for a file or a line that cannot be read.
pub fn load(
    dir: &TeamDir,
    since: Since,
    each: impl FnMut(&Team, &Line),
) -> Result<Team, JournalError> {
    let (offset, bytes) = match since {
        Since::Snapshot => read_end(dir)?,
        Since::Start => (0, read(dir)?.unwrap_or_default()),
    };
    fold(&bytes, each).map_err(|mut error| {
        if let JournalError::Unreadable { number, .. } | JournalError::Fold { number, .. } =
            &mut error
        {
            *number += lines_before(dir, offset);
        }
        error
    })
}

/// Counts the lines before an offset.
fn lines_before(dir: &TeamDir, offset: u64) -> usize {
    let before = dir.read(&TeamPath::journal()).unwrap_or_default();
    let end = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .min(before.len());
    before[..end].iter().filter(|&&byte| byte == b'\n').count()
}

/// Folds the whole lines of a journal. Hands over each line with the state after it.
///
/// # Errors
/// [`JournalError`] for the first line that cannot be read, or does not continue the lines before.
pub fn fold(bytes: &[u8], mut each: impl FnMut(&Team, &Line)) -> Result<Team, JournalError> {
    let mut team = Team::default();
    for line in read_lines(bytes) {
        let (number, line) = line?;
        team.apply(&line)
            .map_err(|why| JournalError::Fold { number, why })?;
        each(&team, &line);
    }
    Ok(team)
}

/// Returns how many bytes are behind the last newline of a file.
pub fn torn(bytes: &[u8]) -> Option<usize> {
    let rest = bytes
        .rsplit(|&byte| byte == b'\n')
        .next()
        .map_or(0, <[u8]>::len);
    (rest > 0).then_some(rest)
}

/// Returns the version that a line, or another JSON object, names.
pub fn version_of(json: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    serde_json::from_slice::<Versioned>(json)
        .ok()
        .map(|it| it.version)
}
