//! The files in which Codex keeps its threads.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use uuid::Uuid;

use super::super::open_kept;

/// How long the first line of the file of a thread may be, in bytes.
const MAX_FIRST_LINE: u64 = 4 << 20;

/// Finds the file of a session below the state directory.
pub(super) fn find(state: &Path, session: Uuid) -> Option<PathBuf> {
    let mut level = vec![state.join("codex/sessions")];
    // One folder for the year, one for the month, one for the day.
    for _ in 0..4 {
        let inside = level
            .iter()
            .filter_map(|folder| std::fs::read_dir(folder).ok())
            .flatten();
        level = inside
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
    }
    level.retain(|file| thread_of(file).is_some() && is_marked(file, session));
    level.into_iter().max()
}

/// Returns the thread whose file it is: `rollout-TIME-THREAD.jsonl`.
pub(super) fn thread_of(file: &Path) -> Option<String> {
    let name = file
        .file_name()?
        .to_str()?
        .strip_prefix("rollout-")?
        .strip_suffix(".jsonl")?;
    let thread: Uuid = name.get(name.len().checked_sub(36)?..)?.parse().ok()?;
    Some(thread.to_string())
}

/// Returns the texts of the messages at the end of a thread whose ids are missing there.
pub(super) fn texts_without_id(history: &str) -> Vec<String> {
    let lines = history
        .lines()
        .rev()
        .filter(|line| line.contains("\"user\"") || line.contains("UserMessage"));
    let mut texts = Vec::new();
    for entry in lines.filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let payload = &entry["payload"];
        if payload["item"]["type"] == "UserMessage" {
            break;
        }
        if payload["type"] == "message" && payload["role"] == "user" {
            texts.extend(payload["content"][0]["text"].as_str().map(str::to_owned));
        }
    }
    texts.reverse();
    texts
}

/// Returns whether a file belongs to a session.
fn is_marked(file: &Path, session: Uuid) -> bool {
    let Ok(file) = open_kept(file) else {
        return false;
    };
    let mut first = Vec::new();
    let read = BufReader::new(file.take(MAX_FIRST_LINE)).read_until(b'\n', &mut first);
    let first: Value = serde_json::from_slice(&first).unwrap_or_default();
    read.is_ok() && first["payload"]["thread_source"] == json!(session)
}
