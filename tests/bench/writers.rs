//! Sixteen processes write one inbox at the same time, and one reader follows.
//!
//! The rate is that of the writers: from the signal to begin until the last of them has ended. The
//! limit is the least that appending can be: bytes that are ready, one `write` a line, and a reader
//! that counts newlines behind its cursor. Ours makes the line from the message, writes, and looks
//! back at the byte before and at the path; its reader parses. It must lose nothing, take nothing
//! in twice, and keep the order of each writer.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use teamd_shared::inbox::{self, Appender, Durability, Reader};
use teamd_shared::message::{Body, Message};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use uuid::Uuid;

use crate::Effort;
use crate::figure::Figure;
use crate::peer::{Peer, say_when, wait_for_go, wall_clock};
use crate::support::process::let_pass;

const WRITERS: usize = 16;
const MESSAGES: usize = 5000;
/// How often each way is measured: the best counts, since what disturbs only slows.
const ROUNDS: usize = 5;

/// Measures both ways to append.
pub(crate) fn measure(effort: Effort) -> Vec<Figure> {
    let messages = effort.of(MESSAGES);
    let mut best = [Run::default(); 3];
    for _ in 0..ROUNDS {
        for (how, best) in ["bare", "appender", "append"].into_iter().zip(&mut best) {
            let run = Run::of(how, messages);
            best.took = best.took.min(run.took);
            best.lost += run.lost;
        }
    }
    let total = (WRITERS * messages) as f64;
    let rate = |run: &Run| total / run.took.as_secs_f64();
    let [limit, appender, append] = best;
    let row = |run: Run, name: &str| {
        let ratio = rate(&run) / rate(&limit);
        Figure {
            name: format!("{WRITERS} writers × {messages} messages, {name}, durability `process`"),
            measured: format!("{} lost, {:.0} k/s", run.lost, rate(&run) / 1e3),
            limit: format!(
                "bare append + cursor: {} lost, {:.0} k/s",
                limit.lost,
                rate(&limit) / 1e3
            ),
            ratio: Some(ratio),
            aim: "0 lost, ≥ 0.5 of its rate",
            met: run.lost == 0 && ratio >= 0.5,
        }
    };
    vec![
        row(appender, "`inbox::Appender` (the inbox stays open)"),
        row(append, "`inbox::append` (opened for each)"),
    ]
}

/// What came out of one way to write: the time until the last writer had ended, and how many lines
/// were never read.
#[derive(Debug, Clone, Copy)]
struct Run {
    took: Duration,
    lost: usize,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            took: Duration::MAX,
            lost: 0,
        }
    }
}

impl Run {
    fn of(how: &str, messages: usize) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        inbox::create(&dir, &owner()).unwrap();
        let root = dir.root().to_str().unwrap().to_owned();
        let count = messages.to_string();
        let mut peers: Vec<Peer> = (0..WRITERS)
            .map(|who| Peer::start(&["write", how, &root, &who.to_string(), &count]))
            .collect();
        let began = Instant::now();
        for peer in &mut peers {
            peer.go();
        }
        let read = if how == "bare" {
            read_bare(&dir, messages)
        } else {
            read_ours(&Arc::new(dir), messages)
        };
        let took = began.elapsed();
        for peer in peers {
            Peer::finish(peer);
        }
        Self {
            took,
            lost: WRITERS * messages - read,
        }
    }
}

fn owner() -> Name {
    Name::new("reader").unwrap()
}

/// Reads until everything is there, and returns how many messages were consumed, each once and in
/// order.
fn read_ours(dir: &Arc<TeamDir>, messages: usize) -> usize {
    let mut reader = Reader::open(Arc::clone(dir), &owner(), Position::START).unwrap();
    let mut next = [0; WRITERS];
    let mut read = 0;
    let mut patience = Patience::new();
    while read < WRITERS * messages && patience.is_left() {
        let batch = reader.read_new().unwrap();
        for message in batch
            .lines
            .iter()
            .map(|line| line.message.as_ref().unwrap())
        {
            let (who, number) = message.content.split_once(' ').unwrap();
            let who: usize = who.parse().unwrap();
            let number: usize = number[..6].parse().unwrap();
            assert_eq!(number, next[who], "writer {who}");
            next[who] += 1;
            read += 1;
        }
        patience.after(batch.lines.len());
    }
    read
}

/// Reads until everything is there, and returns how many lines were.
fn read_bare(dir: &TeamDir, messages: usize) -> usize {
    let file = File::open(dir.path(&TeamPath::inbox(&owner()))).unwrap();
    let mut bytes = vec![0; 1 << 16];
    let mut cursor = 0;
    let mut read = 0;
    let mut patience = Patience::new();
    while read < WRITERS * messages && patience.is_left() {
        let length = file.read_at(&mut bytes, cursor).unwrap();
        cursor += length as u64;
        let lines = bytes[..length]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count();
        read += lines;
        patience.after(lines);
    }
    read
}

/// How long a reader waits for what never comes.
struct Patience(Instant);

impl Patience {
    fn new() -> Self {
        Self(Instant::now())
    }

    fn is_left(&self) -> bool {
        self.0.elapsed() < Duration::from_secs(5)
    }

    /// A reader that finds nothing leaves the processor to the writers.
    fn after(&mut self, lines: usize) {
        match lines {
            0 => let_pass(Duration::from_millis(1)),
            _ => self.0 = Instant::now(),
        }
    }
}

/// Writes messages into the inbox of a team directory, as a process of its own, and says when it
/// has.
pub(crate) fn write(how: &str, root: &Path, who: usize, count: usize) {
    let dir = TeamDir::open(root).unwrap();
    let from = format!("writer-{who}");
    let messages: Vec<Message> = (0..count)
        .map(|number| {
            let content = format!("{who} {number:06} {}", "x".repeat(80));
            let now = wall_clock().as_secs_f64();
            Message::new(Uuid::now_v7(), &from, owner().as_str(), now, Body::Message)
                .with_content(content)
        })
        .collect();
    match how {
        "bare" => {
            let line = messages[0].to_line().unwrap();
            let mut file = OpenOptions::new()
                .append(true)
                .open(dir.path(&TeamPath::inbox(&owner())))
                .unwrap();
            wait_for_go();
            messages
                .iter()
                .for_each(|_| assert_eq!(file.write(&line).unwrap(), line.len()));
        }
        "appender" => {
            let mut appender = Appender::new(&owner());
            wait_for_go();
            for message in &messages {
                appender.append(&dir, message, Durability::Process).unwrap();
            }
        }
        _ => {
            wait_for_go();
            for message in &messages {
                inbox::append(&dir, &owner(), message, Durability::Process).unwrap();
            }
        }
    }
    say_when();
}
