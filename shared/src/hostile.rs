//! Whatever bytes are in a file or come over a connection: every reader says what is wrong with
//! them, or reads them. None panics, overflows its stack, or keeps more than it must.
//! `scripts/fuzz` runs these with many more cases.

use std::sync::Arc;

use proptest::prelude::*;
use uuid::Uuid;

use crate::config::Roster;
use crate::inbox::{self, Reader};
use crate::journal::{Line, Team, read_lines};
use crate::message::{MAX_LINE, MAX_NEST, Message};
use crate::name::Name;
use crate::position::Position;
use crate::team_dir::{TeamDir, TeamPath};
use crate::team_file::TeamFile;
use crate::transcript::{Entry, Event, last_entry, position};

/// A team that spawned, planned, worked and ended.
const JOURNAL: &str = include_str!("hostile/journal.jsonl");
const ROSTER: &str = include_str!("hostile/config.json");
const TRANSCRIPT: &str = include_str!("hostile/transcript.jsonl");
const INBOX: &str = include_str!("hostile/inbox.jsonl");
const TEAM_FILE: &str = "model = \"script\"\nmax_turns = 5\nrestart = \"never\"\n\n[sandbox]\nmode = \"read-only\"\n\n\
    [roles.coder]\nmodel = \"anthropic\"\nprompt = \"\"\"\nwrite\n\"\"\"\n";

/// What is done to bytes.
#[derive(Debug, Clone)]
enum Edit {
    Set(usize, u8),
    Insert(usize, Vec<u8>),
    Cut(usize, usize),
    Repeat(usize, usize),
    End(usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let at = any::<usize>;
    let pieces: [&[u8]; 12] = [
        b"{", b"[", b"\"", b"\\", b"\n", b"\xff", b"null", b"1e999", b"-1", b"\\ud800", b"\0", b":",
    ];
    let piece = prop::sample::select(pieces.to_vec()).prop_map(<[u8]>::to_vec);
    let edit = prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        (at(), piece).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (at(), 0_usize..64).prop_map(|(at, length)| Edit::Cut(at, length)),
        (at(), 0_usize..200).prop_map(|(at, length)| Edit::Repeat(at, length)),
        at().prop_map(Edit::End),
    ];
    prop::collection::vec(edit, 0..6)
}

fn edited(bytes: &[u8], edits: Vec<Edit>) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for edit in edits {
        let length = bytes.len().max(1);
        let range = |at: usize, count: usize, bytes: &Vec<u8>| {
            let from = (at % length).min(bytes.len());
            from..(from + count).min(bytes.len())
        };
        match edit {
            Edit::Set(at, byte) => {
                for it in bytes.iter_mut().skip(at % length).take(1) {
                    *it = byte;
                }
            }
            Edit::Insert(at, more) => drop(bytes.splice(range(at, 0, &bytes), more)),
            Edit::Cut(at, count) => drop(bytes.drain(range(at, count, &bytes))),
            Edit::Repeat(at, count) => {
                let range = range(at, count, &bytes);
                let again = bytes[range.clone()].to_vec();
                bytes.splice(range.end..range.end, again);
            }
            Edit::End(at) => bytes.truncate(at % length),
        }
    }
    bytes
}

/// Any bytes, deep nests, and what was valid before it was edited.
fn soup(valid: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let lines: Vec<&'static str> = valid.lines().collect();
    let nest = prop::sample::select(vec!["[", "{\"a\":", "{\"content\":[", "[[{\"type\":"]);
    prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 0..300),
        1 => (nest, 0_usize..5000).prop_map(|(nest, deep)| nest.repeat(deep).into_bytes()),
        3 => (prop::sample::select(lines), edits()).prop_map(|(line, edits)| edited(line.as_bytes(), edits)),
        3 => edits().prop_map(move |edits| edited(valid.as_bytes(), edits)),
    ]
}

fn alice() -> Name {
    Name::new("alice").unwrap()
}

thread_local! {
    static TEAM: (tempfile::TempDir, Arc<TeamDir>) = {
        let memory = std::path::Path::new("/dev/shm");
        let scratch =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
        (scratch, dir)
    };
}

fn with_file<T>(at: &TeamPath, bytes: &[u8], act: impl FnOnce(&Arc<TeamDir>) -> T) -> T {
    TEAM.with(|(_, dir)| {
        crate::fs::replace(dir, at, bytes).unwrap();
        act(dir)
    })
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_none_and_what_is_one_can_be_sent_on(bytes in soup(INBOX)) {
        let Ok(mut message) = Message::parse(&bytes) else { return Ok(()) };
        message.id.get_or_insert(Uuid::from_u128(7));
        prop_assert!(message.relevance(&alice()) >= message.relevance(&alice()));
        if let Ok(line) = message.to_line() {
            prop_assert!(line.len() <= MAX_LINE && line.ends_with(b"\n"));
            prop_assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1);
            let again = Message::parse(&line[..line.len() - 1]);
            prop_assert_eq!(again.as_ref().map(|it| (&it.id, &it.from, &it.content)), Ok((&message.id, &message.from, &message.content)));
            // What was written by us is read as it was meant, as often as it is sent on.
            prop_assert_eq!(again.unwrap().to_line().unwrap(), line);
        }
    }

    #[test]
    fn what_is_consumed_can_be_read_again_from_the_transcript(
        deep in 40_usize..140,
        braces: bool,
        number in prop::sample::select(vec!["1e15", "1E-7", "-0.0", "18446744073709551616", "0.1e1"]),
    ) {
        let (open, close) = if braces { ("{\"a\":", "}") } else { ("[", "]") };
        let nest = format!("{}{number}{}", open.repeat(deep), close.repeat(deep));
        let line = format!(r#"{{"type":"message","from":"bob","content":"hi","x":{nest},"metadata":[{number}]}}"#);
        let parsed = Message::parse(line.as_bytes());
        prop_assert_eq!(parsed.is_ok(), deep < MAX_NEST);
        let Ok(message) = parsed else { return Ok(()) };
        let event = Event::Messages { messages: vec![message.to_json()] };
        let entry = Entry { at: 1.5, inbox: Position::START, pending_notices: Vec::new(), call: None, model: None, event };
        let written = serde_json::to_vec(&entry).unwrap();
        let read: Entry = serde_json::from_slice(&written).unwrap();
        prop_assert_eq!(&read, &entry);
        let Event::Messages { messages } = read.event else { panic!("another entry") };
        prop_assert_eq!(Message::from_json(messages[0].clone()).unwrap(), message);
        let (at, mut lines) = (TeamPath::transcript(&alice()), written);
        lines.push(b'\n');
        prop_assert!(with_file(&at, &lines, |dir| position(dir, &alice()).unwrap()).is_some());
    }

    #[test]
    fn any_inbox_is_read_to_its_end_from_any_position(
        bytes in soup(INBOX),
        position in (prop_oneof![0_u64..2000, any::<u64>()], any::<u64>()),
        line in (any::<u16>(), any::<u16>()),
    ) {
        let from = Position { offset: position.0, tail: position.1 };
        with_file(&TeamPath::inbox(&alice()), &bytes, |dir| {
            let Ok(mut reader) = Reader::open(Arc::clone(dir), &alice(), from) else { return Ok(()) };
            let mut last = 0;
            for _ in 0..8 {
                let Ok(batch) = reader.read_new() else { break };
                for line in &batch.lines {
                    prop_assert!(line.offset >= last && line.position.offset <= bytes.len() as u64);
                    last = line.position.offset;
                }
            }
            if let Ok(batch) = reader.read_new() {
                prop_assert!(batch.lines.is_empty() && !batch.more && batch.restarted.is_none());
                prop_assert!(batch.position.offset <= bytes.len() as u64);
            }
            drop(inbox::count_lines(dir, &alice(), from));
            drop(inbox::read_line_at(dir, &alice(), u64::from(line.0), u64::from(line.1)));
            drop(inbox::holds(dir, &alice(), Uuid::from_u128(1)));
            let last = inbox::last_lines(dir, &alice(), 5).unwrap();
            prop_assert!(last.position.offset <= bytes.len() as u64);
            Ok(())
        })?;
    }

    #[test]
    fn any_journal_is_read_up_to_the_line_that_is_wrong(bytes in soup(JOURNAL)) {
        let mut team = Team::default();
        for line in read_lines(&bytes) {
            let Ok((_, line)) = line else { break };
            if team.apply(&line).is_err() {
                break;
            }
            let written = serde_json::to_vec(&line).unwrap();
            prop_assert_eq!(serde_json::from_slice::<Line>(&written).unwrap(), line);
            drop(team.pending_derived());
        }
    }

    #[test]
    fn any_roster_is_one_or_none(bytes in soup(ROSTER)) {
        with_file(&TeamPath::config(), &bytes, |dir| {
            if let Ok(Some(roster)) = Roster::load(dir) {
                assert!(roster.members.iter().filter(|member| roster.process_is_gone(member).unwrap_or(false)).count() < 1000);
            }
        });
    }

    #[test]
    fn any_transcript_has_entries_or_none(bytes in soup(TRANSCRIPT)) {
        for line in bytes.split(|&byte| byte == b'\n') {
            if let Ok(entry) = serde_json::from_slice::<Entry>(line) {
                prop_assert!(entry.event.is_rest(&alice()) || !entry.event.is_rest(&alice()));
                let written = serde_json::to_vec(&entry).unwrap();
                prop_assert_eq!(serde_json::from_slice::<Entry>(&written).unwrap(), entry);
            }
        }
        with_file(&TeamPath::transcript(&alice()), &bytes, |dir| {
            position(dir, &alice()).unwrap();
            last_entry(dir, &alice()).unwrap();
        });
    }

    #[test]
    fn any_team_file_is_one_or_says_where_it_is_wrong(bytes in soup(TEAM_FILE)) {
        drop(TeamFile::parse(&String::from_utf8_lossy(&bytes)));
    }
}

/// Deeper than any stack.
const DEEP: usize = 100_000;
/// Likewise, for what reads it in a time that grows faster.
const DEEP_KEYS: usize = 20_000;

#[test]
fn deep_nests_overflow_nothing() {
    for nest in ["[", "{\"a\":", "{\"metadata\":", "{\"content\":["] {
        let bytes = nest.repeat(DEEP).into_bytes();
        assert!(Message::parse(&bytes).is_err());
        assert!(serde_json::from_slice::<Line>(&bytes).is_err());
        assert!(serde_json::from_slice::<Entry>(&bytes).is_err());
        assert!(serde_json::from_slice::<Roster>(&bytes).is_err());
    }
}

#[test]
fn a_deep_team_file_overflows_nothing() {
    for (before, nest) in [
        ("a = ", "["),
        ("a = ", "{a="),
        ("", "a."),
        ("[", "a."),
        ("[[", "a."),
    ] {
        for close in ["", "a = 1", "a]", "a]]"] {
            let text = format!("{before}{}{close}", nest.repeat(DEEP_KEYS));
            assert!(TeamFile::parse(&text).is_err());
        }
    }
}

#[test]
fn an_endless_line_is_passed_over_in_bounded_memory() {
    with_file(&TeamPath::inbox(&alice()), b"", |dir| {
        let file = dir
            .open_file(
                &TeamPath::inbox(&alice()),
                rustix::fs::OFlags::RDWR | rustix::fs::OFlags::APPEND,
            )
            .unwrap();
        file.set_len(128 << 20).unwrap();
        let mut reader = Reader::open(Arc::clone(dir), &alice(), Position::START).unwrap();
        let before = resident();
        let mut looks = 0;
        while reader.read_new().unwrap().more {
            looks += 1;
        }
        assert!(looks >= 30, "{looks} looks: each is bounded");
        // Some of what other tests of this process need is counted with it.
        assert!(
            resident() < before + (96 << 20),
            "{before} to {}",
            resident()
        );
        std::io::Write::write_all(&mut &file, b"\n").unwrap();
        let mut lines = Vec::new();
        loop {
            let batch = reader.read_new().unwrap();
            lines.extend(batch.lines);
            if !batch.more {
                break;
            }
        }
        assert_eq!(lines.len(), 1);
        assert!(lines[0].message.is_err());
    });
}

/// The memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
