//! Quarantine: the lines of an inbox that are no messages.

use std::fs::File;
use std::io;

use rustix::fs::OFlags;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::read_cut;
use crate::fs::{end_of_last_line, write_once};
use crate::json;
use crate::message::to_json_line;
use crate::name::Name;
use crate::team_dir::{DirError, TeamDir, TeamPath};

/// How many entries are searched for an existing one.
const LOOK_BACK: usize = 256;

/// A line of an inbox that is no message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RejectedLine {
    /// The line, or its first [`super::MAX_TEXT`] bytes and an ellipsis; what is not UTF-8
    /// replaced. The whole line stays in the inbox.
    pub line: String,
    /// Where it begins, in bytes from the start of the inbox.
    pub offset: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// One entry of `inbox/NAME.rejected.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rejected {
    /// The line.
    #[serde(flatten)]
    pub bad: RejectedLine,
    /// When it was read, in seconds since 1970.
    pub at: f64,
}

json::record!(Rejected);

/// Puts a line that is no message into quarantine; false if it is there already.
///
/// **Who writes**: the one reader of the inbox (for `lead` the daemon), and then records its
/// position. **When it dies** between the two, it reads the line again and finds the entry that it
/// made; when it dies in the write, the torn tail becomes a line of its own. Nothing is synced: the
/// line itself is in the inbox.
///
/// # Errors
/// [`DirError`] if the system refuses, or the disk is full.
pub fn quarantine(
    dir: &TeamDir,
    owner: &Name,
    bad: &RejectedLine,
    at: f64,
) -> Result<bool, DirError> {
    let path = TeamPath::rejected(owner);
    let file = dir.open_file(&path, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE)?;
    add(
        &file,
        &Rejected {
            bad: bad.clone(),
            at,
        },
    )
    .map_err(dir.cannot("append to", &path))
}

fn add(file: &File, entry: &Rejected) -> io::Result<bool> {
    let length = file.metadata()?.len();
    let end = end_of_last_line(file, length)?;
    if holds(file, end, &entry.bad)? {
        return Ok(false);
    }
    let mut line = if end < length {
        vec![b'\n']
    } else {
        Vec::new()
    };
    line.extend(to_json_line(&serde_json::to_value(entry)?));
    line.push(b'\n');
    write_once(file, &line).map_err(|short| short.source)?;
    Ok(true)
}

/// Looks for an entry, from the end backwards. The entries of one reading are in the order of the
/// inbox, so one of a smaller offset ends the search.
fn holds(file: &File, mut end: u64, bad: &RejectedLine) -> io::Result<bool> {
    for _ in 0..LOOK_BACK {
        if end == 0 {
            break;
        }
        let start = end_of_last_line(file, end - 1)?;
        if let Ok(earlier) = json::read::<Rejected>(&read_cut(file, start, end)?)
            && earlier.bad.offset <= bad.offset
        {
            return Ok(earlier.bad.offset == bad.offset && earlier.bad.line == bad.line);
        }
        end = start;
    }
    Ok(false)
}
