//! Lists files by a pattern.

use std::cmp::Reverse;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use teamd_worker_core::tools::Glob;

use super::file_pattern;
use super::walk::{Met, files, shown, unreadable};

/// The most files that are listed.
const LISTED: usize = 200;

/// Lists the files of the current directory that a pattern matches, the last changed first.
///
/// # Errors
/// Why it cannot.
pub(super) fn list(glob: &Glob, out: &mut impl Write) -> Result<(), String> {
    let pattern = file_pattern(&glob.pattern)?;
    let mut found: Vec<(Reverse<SystemTime>, PathBuf)> = Vec::new();
    let mut missing = 0;
    for met in files(Path::new(".")) {
        let Met::File(entry) = met else {
            missing += 1;
            continue;
        };
        let path = entry.path().strip_prefix(".").unwrap_or(entry.path());
        if !pattern.is_match(path) {
            continue;
        }
        let changed = entry.metadata().ok().and_then(|it| it.modified().ok());
        let changed = changed.unwrap_or(SystemTime::UNIX_EPOCH);
        found.push((Reverse(changed), path.to_owned()));
    }
    found.sort();
    let mut lines: Vec<String> = found
        .iter()
        .take(LISTED)
        .map(|(_, path)| shown(path))
        .collect();
    if found.is_empty() {
        lines.push("no file matches".to_owned());
    }
    if found.len() > LISTED {
        let more = found.len() - LISTED;
        lines.push(format!("[and {more} more: narrow the pattern]"));
    }
    lines.extend(unreadable(missing));
    for line in lines {
        writeln!(out, "{line}").map_err(|error| error.to_string())?;
    }
    Ok(())
}
