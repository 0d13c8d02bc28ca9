//! The record of a session: what the worker keeps of it, since the agent shows nothing. One line
//! names the session as the agent calls it, and stands there before the first prompt; a line for
//! each message stands there before the message is written to the pipe. A message that is sent into
//! a turn has a line of its own kind before, and the usual one once it is known to be part of a turn.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use uuid::Uuid;

/// Returns the name of the record of a session, below the state directory.
pub(super) fn name(session: Uuid) -> PathBuf {
    Path::new("acp").join(format!("{session}.jsonl"))
}

/// Returns the line that names the session.
pub(super) fn session_line(session: &str) -> String {
    format!("{}\n", json!({"session": session}))
}

/// Returns the line of a message.
pub(super) fn message_line(message: Uuid) -> String {
    format!("{}\n", json!({"message": message}))
}

/// Returns the line of a message that is sent into a turn.
pub(super) fn steered_line(message: Uuid) -> String {
    format!("{}\n", json!({"steered": message}))
}

/// Returns whether an entry says that this message was sent into a turn.
pub(super) fn is_steered(entry: &Value, message: Uuid) -> bool {
    entry["steered"] == json!(message)
}

/// Returns whether an entry is this message.
pub(super) fn is_message(entry: &Value, message: Uuid) -> bool {
    entry["message"] == json!(message)
}

/// Returns the session that a record names.
pub(super) fn session_in(record: &str) -> Option<String> {
    let entries = record
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    entries
        .filter_map(|entry| entry["session"].as_str().map(str::to_owned))
        .next()
}

/// Returns whether a record holds a message: many agents keep no session before the first one.
pub(super) fn has_message(record: &str) -> bool {
    record.lines().any(|line| line.starts_with("{\"message\""))
}
