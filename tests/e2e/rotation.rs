//! Inboxes that other programs rename, replace or delete: their owner goes on reading at once, and
//! what was sent is read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;
use teamd_shared::inbox::{AppendError, Appender, Durability};
use teamd_shared::message::{Body, Message};
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;

use crate::support::{Team, signal};

/// Far below the slow timer, on which a reader looks that was not woken, and far above what a
/// wake-up takes.
const AT_ONCE: Duration = Duration::from_secs(5);

/// What a program may do with an inbox.
#[derive(Debug, Clone, Copy)]
enum Meddling {
    /// `rm`: the owner makes it again.
    Delete,
    /// `mv` alone: the owner makes it again.
    Rename,
    /// `mv`, and a new file in its place.
    Rotate,
    /// `mv` of an empty file over it.
    Replace,
    /// `mv`, and `mv` of an empty file to where it was.
    Exchange,
}

const ALL: [Meddling; 5] = [
    Meddling::Delete,
    Meddling::Rename,
    Meddling::Rotate,
    Meddling::Replace,
    Meddling::Exchange,
];

impl Meddling {
    fn with(self, team: &Team, name: &str) {
        let inbox = team.path(&format!("inbox/{name}.jsonl"));
        let old = inbox.with_extension("jsonl.1");
        let new = inbox.with_extension("jsonl.new");
        let make = |path| {
            std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(path)
                .map(drop)
        };
        match self {
            Self::Delete => std::fs::remove_file(inbox),
            Self::Rename => std::fs::rename(inbox, old),
            Self::Rotate => std::fs::rename(&inbox, old).and_then(|()| make(&inbox)),
            Self::Replace => make(&new).and_then(|()| std::fs::rename(new, inbox)),
            Self::Exchange => make(&new)
                .and_then(|()| std::fs::rename(&inbox, old))
                .and_then(|()| std::fs::rename(new, inbox)),
        }
        .unwrap();
    }
}

fn text(content: &str) -> String {
    json!({ "type": "message", "from": "bob", "content": content }).to_string()
}

fn contents(team: &Team, name: &str) -> Vec<String> {
    team.consumed(name)
        .iter()
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect()
}

/// How long it takes until a line that a shell appends is consumed.
fn delay(team: &Team, name: &str, content: &str) -> Duration {
    team.until("the inbox", || {
        team.path(&format!("inbox/{name}.jsonl")).exists()
    });
    let sent = Instant::now();
    team.echo(name, &text(content));
    team.until(content, || team.has_consumed(name, content));
    sent.elapsed()
}

#[test]
fn a_worker_reads_on_at_once_whatever_became_of_its_inbox() {
    let team = Team::started();
    team.spawn("alice", "");
    let mut delays = Vec::new();
    for round in 0..3 {
        for meddling in ALL {
            meddling.with(&team, "alice");
            delays.push(delay(&team, "alice", &format!("{meddling:?} {round}")));
        }
    }
    assert!(delays.iter().all(|delay| *delay < AT_ONCE), "{delays:?}");
    delays.sort_unstable();
    let median = delays[delays.len() / 2];
    assert!(median < Duration::from_millis(100), "{delays:?}");
}

#[test]
fn what_was_sent_to_a_file_that_is_gone_is_read_before_what_came_after() {
    let team = Team::started();
    team.spawn("alice", "");
    team.spawn("bob", "");
    let mut expected = Vec::new();
    for meddling in ALL {
        // The file is gone before its reader can look.
        let pid = team.pid("alice");
        let inbox = team.path("inbox/alice.jsonl");
        signal(pid, Signal::SIGSTOP);
        team.send("alice", &format!("{meddling:?}, old file"));
        meddling.with(&team, "alice");
        std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&inbox)
            .unwrap();
        team.send("alice", &format!("{meddling:?}, new file"));
        signal(pid, Signal::SIGCONT);
        expected.extend(["old", "new"].map(|which| format!("{meddling:?}, {which} file")));
        team.until("both", || contents(&team, "alice") == expected);
    }
    assert_eq!(team.json(["status"])["members"][0]["unread"], 0);
}

/// Rotates an inbox while writers append to it, and looks whether each message that was sent is
/// consumed, once, in order.
fn rotations_under_load(team: &Team, rotations: usize) {
    const WRITERS: usize = 3;
    const BURST: usize = 10;
    team.spawn("alice", "");
    let dir = TeamDir::open(&team.path("")).unwrap();
    let alice = Name::new("alice").unwrap();
    let rounds = AtomicUsize::new(0);
    let write = |writer: usize| {
        let mut appender = Appender::new(&alice);
        let mut sent = 0;
        while rounds.load(Ordering::Relaxed) < rotations {
            let message = Message::new(
                uuid::Uuid::now_v7(),
                &format!("w{writer}"),
                "alice",
                1.0,
                Body::Message,
            )
            .with_content(format!("{writer} {sent}"));
            match appender.append(&dir, &message, Durability::Process) {
                Ok(_) => sent += 1,
                // Between a rename and the new file. The same message is sent again, under the same
                // id.
                Err(AppendError::NoInbox(_) | AppendError::Unseen { .. }) => {
                    team.until("a place to send it to", || {
                        appender.append(&dir, &message, Durability::Process).is_ok()
                    });
                    sent += 1;
                }
                Err(error) => panic!("{error}"),
            }
            // Bursts, and no more than the reader can consume while the test looks.
            if sent % BURST == 0 {
                team.until("the burst, or the end", || {
                    rounds.load(Ordering::Relaxed) >= rotations
                        || team.has_consumed("alice", &message.content)
                });
            }
        }
        sent
    };
    let sent: Vec<usize> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write(writer)))
            .collect();
        for meddling in ALL.iter().cycle().take(rotations) {
            // It has opened the file of this round when it has read from it.
            let round = rounds.load(Ordering::Relaxed);
            team.until("the inbox", || {
                team.teamctl(["send", "alice", &format!("round {round}")])
                    .code
                    == Some(0)
            });
            team.until("the round", || {
                team.has_consumed("alice", &format!("round {round}"))
            });
            meddling.with(team, "alice");
            rounds.fetch_add(1, Ordering::Relaxed);
        }
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect()
    });
    for (writer, count) in sent.into_iter().enumerate() {
        assert!(count >= rotations / 2, "writer {writer} sent only {count}");
        let expected: Vec<String> = (0..count)
            .map(|number| format!("{writer} {number}"))
            .collect();
        team.until("all of one writer", || {
            contents(team, "alice")
                .into_iter()
                .filter(|content| content.starts_with(&format!("{writer} ")))
                .collect::<Vec<_>>()
                == expected
        });
    }
}

#[test]
fn rotations_under_load_lose_nothing_that_was_sent() {
    rotations_under_load(&Team::started(), 25);
}

#[test]
fn rotations_lose_nothing_where_files_are_looked_at_on_a_timer() {
    let team = Team::new().with("TEAM_POLL", "1");
    team.teamd(["start"]).ok();
    rotations_under_load(&team, 5);
}

#[test]
fn the_daemon_reads_a_rotated_lead_inbox_to_its_end_first() {
    let team = Team::started();
    let pid = team.daemon_pid();
    let mut expected = Vec::new();
    for meddling in ALL {
        signal(pid, Signal::SIGSTOP);
        team.echo("lead", &format!("{meddling:?}, old file"));
        meddling.with(&team, "lead");
        let inbox = team.path("inbox/lead.jsonl");
        std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(inbox)
            .unwrap();
        team.echo("lead", &format!("{meddling:?}, new file"));
        signal(pid, Signal::SIGCONT);
        expected.extend(["old", "new"].map(|which| format!("{meddling:?}, {which} file")));
        team.until("both lines to be kept aside", || {
            let kept = team.lines("inbox/lead.rejected.jsonl");
            kept.iter()
                .map(|entry| entry["line"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
                == expected
        });
    }
    team.spawn("alice", "");
    assert_eq!(team.shutdown("alice", &[], 0)["outcome"], "shutdown");
}
