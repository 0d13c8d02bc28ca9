//! From a line that another process appends to an idle worker that has parsed it.
//!
//! Both ends read the same clock. The line is stamped just before its `write`; the worker stamps
//! the entry of its transcript, field `at`, when it has read and parsed the line, just before it
//! writes that entry. The limit is a process that does nothing but `read` an inotify descriptor,
//! read the file, and stamp.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::Effort;
use crate::figure::{Figure, Sample};
use crate::peer::{Peer, wall_clock};
use crate::support::Team;
use crate::support::process::let_pass;

/// Between two lines: so long that everything sleeps again.
const PAUSE: Duration = Duration::from_millis(60);

/// Measures it.
pub(crate) fn measure(effort: Effort) -> Vec<Figure> {
    let team = Team::started();
    team.spawn("reader", "");
    let bare = team.root().join("bare.jsonl");
    let mut to_peer = open(&bare);
    let mut to_worker = open(&team.path("inbox/reader.jsonl"));
    let mut peer = Peer::start(&["watch", bare.to_str().unwrap()]);
    let mut ours = Sample::default();
    let mut limit = Sample::default();
    for round in 1..=effort.of(200) {
        let_pass(PAUSE);
        let written = write(&mut to_peer, round);
        let read = Duration::from_nanos(peer.hear().parse().unwrap());
        limit.add(read.saturating_sub(written));
        let_pass(PAUSE);
        let written = write(&mut to_worker, round);
        // It works on the message then, and must not be disturbed.
        let_pass(PAUSE);
        team.until_finished("reader", round);
        let consumed = &team.entries("reader", "messages")[round - 1];
        ours.add(Duration::from_secs_f64(consumed["at"].as_f64().unwrap()).saturating_sub(written));
    }
    team.teamd(["stop"]).ok();
    let ratio = ours.ratio(&limit);
    vec![Figure {
        name: "line appended by another process → parsed by an idle worker, p50".to_owned(),
        measured: ours.to_string(),
        limit: format!("inotify + read: {limit}"),
        ratio: Some(ratio),
        aim: "≤ 3 ×",
        met: ratio <= 3.0,
    }]
}

fn open(path: &Path) -> File {
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap()
}

/// Writes a message with one system call, and returns when that began.
fn write(file: &mut File, round: usize) -> Duration {
    let id = uuid::Uuid::now_v7();
    let line = format!(
        "{{\"id\":\"{id}\",\"type\":\"message\",\"from\":\"user\",\"content\":\"line {round}\"}}\n"
    );
    let began = wall_clock();
    assert_eq!(file.write(line.as_bytes()).unwrap(), line.len());
    began
}
