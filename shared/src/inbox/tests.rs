//! An inbox in a team directory, to append to and read from.

mod appending;
mod looking;
mod quarantine;
mod reading;
mod relayed;
mod rotation;
mod simulation;

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use proptest::prelude::{Strategy, any, prop};
use proptest::{prop_assert_eq, prop_oneof, proptest};
use uuid::Uuid;

use super::append::OpenInbox;
use super::read::{CHANGED, REPLACED, TRUNCATED};
use super::*;
use crate::message::{Body, ParseError};

fn team() -> (tempfile::TempDir, Arc<TeamDir>) {
    let scratch = tempfile::tempdir().unwrap();
    let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
    create(&dir, &alice()).unwrap();
    (scratch, dir)
}

fn alice() -> Name {
    Name::new("alice").unwrap()
}

fn inbox_path(dir: &TeamDir) -> PathBuf {
    dir.path(&TeamPath::inbox(&alice()))
}

/// Appends as a foreign program does.
fn raw(dir: &TeamDir, bytes: &[u8]) {
    OpenOptions::new()
        .append(true)
        .open(inbox_path(dir))
        .unwrap()
        .write_all(bytes)
        .unwrap();
}

fn overwrite(path: PathBuf, bytes: &[u8]) {
    File::create(path).unwrap().write_all(bytes).unwrap();
}

fn message(text: &str) -> Message {
    Message::new(Uuid::now_v7(), "bob", "alice", 1.5, Body::Message).with_content(text)
}

fn send(dir: &TeamDir, text: &str) -> Appended {
    append(dir, &alice(), &message(text), Durability::Process).unwrap()
}

fn line(text: &str) -> Vec<u8> {
    format!("{{\"type\":\"message\",\"from\":\"user\",\"content\":\"{text}\"}}\n").into_bytes()
}

fn reader(dir: &Arc<TeamDir>, from: Position) -> Reader {
    Reader::open(Arc::clone(dir), &alice(), from).unwrap()
}

/// Reads until nothing is left.
fn drain(reader: &mut Reader) -> Vec<InboxLine> {
    let mut lines = Vec::new();
    loop {
        let batch = reader.read_new().unwrap();
        lines.extend(batch.lines);
        if !batch.more {
            return lines;
        }
    }
}

/// The texts of messages, and why the others are none.
fn texts(lines: &[InboxLine]) -> Vec<String> {
    lines
        .iter()
        .map(|line| match &line.message {
            Ok(message) => message.content.clone(),
            Err(rejection) => format!("rejected: {}", rejection.reason),
        })
        .collect()
}

fn read_all(dir: &Arc<TeamDir>) -> Vec<String> {
    texts(&drain(&mut reader(dir, Position::START)))
}

/// Bytes that this thread has read so far, from anywhere.
fn bytes_read() -> u64 {
    let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    io.lines()
        .find_map(|line| line.strip_prefix("rchar: "))
        .unwrap()
        .parse()
        .unwrap()
}
