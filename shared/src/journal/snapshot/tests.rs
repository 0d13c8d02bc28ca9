use std::io::Write;

use uuid::Uuid;

use super::*;
use crate::journal::{Line, RequestEvent, RequestRecord, VERSION, read_lines};
use crate::request::{Kind, Payload, Status};

/// A journal that a daemon wrote: a team that worked for some time.
const JOURNAL: &[u8] = include_bytes!("../../hostile/journal.jsonl");

fn lines() -> Vec<Line> {
    read_lines(JOURNAL).map(|line| line.unwrap().1).collect()
}

fn fold(lines: &[Line]) -> Team {
    let mut team = Team::default();
    for line in lines.iter() {
        team.apply(line).unwrap();
    }
    team
}

fn snapshot_line(team: &Team) -> Option<Line> {
    let record = team.snapshot()?;
    Some(Line {
        seq: team.seq + 1,
        at: 1.0,
        version: Some(VERSION),
        done: team.done,
        lead: None,
        record,
    })
}

/// As it is read from a file.
fn reread(line: &Line) -> Line {
    serde_json::from_slice(&serde_json::to_vec(line).unwrap()).unwrap()
}

#[test]
fn a_fold_from_any_snapshot_ends_as_the_fold_of_all_lines() {
    let all = lines();
    let mut snapshots = 0;
    for cut in 0..=all.len() {
        let before = fold(&all[..cut]);
        let Some(snapshot) = snapshot_line(&before) else {
            continue;
        };
        snapshots += 1;
        assert_eq!(reread(&snapshot), snapshot);
        let mut from_snapshot = Team::default();
        let mut live = before;
        from_snapshot.apply(&reread(&snapshot)).unwrap();
        live.apply(&snapshot).unwrap();
        for line in &all[cut..] {
            let line = Line {
                seq: line.seq + 1,
                ..line.clone()
            };
            from_snapshot.apply(&line).unwrap();
            live.apply(&line).unwrap();
        }
        assert_eq!(from_snapshot, live, "cut at {cut}");
        let whole = fold(&all);
        assert_eq!(
            (live.members.len(), live.requests),
            (whole.members.len(), whole.requests),
            "cut at {cut}"
        );
    }
    assert!(snapshots > all.len() / 2, "{snapshots}");
}

#[test]
fn of_a_thousand_ended_requests_the_last_ones_are_kept_and_all_pending_ones() {
    let mut team = fold(&lines());
    let pending = team
        .requests
        .values()
        .filter(|request| request.is_pending())
        .count();
    for number in 0..1000_u32 {
        let request = Request {
            request_id: RequestId::new(&format!("{number:08x}")).unwrap(),
            kind: Kind::Shutdown,
            from: "lead".to_owned(),
            to: "zoe".to_owned(),
            status: if number == 0 {
                Status::Pending
            } else {
                Status::Expired
            },
            payload: Payload::Shutdown {
                reason: String::new(),
                decide_within: 1.0,
                force_after: None,
            },
            incarnation: 1,
            message_id: Uuid::from_u128(7),
            created_at: f64::from(number),
            resolved_at: (number > 0).then_some(1e10 + f64::from(number)),
            reason: None,
            answered_by: None,
            agent: false,
            permissions: None,
            answered_from: None,
        };
        let record = Record::Request(Box::new(RequestRecord::of(RequestEvent::Asked, request)));
        let seq = team.seq + 1;
        let done = team.done;
        team.apply(&Line {
            seq,
            at: 1.0,
            version: None,
            done,
            lead: None,
            record,
        })
        .unwrap();
    }
    let line = snapshot_line(&team).unwrap();
    team.apply(&line).unwrap();
    let is_kept = |number: u32| {
        team.requests
            .contains_key(&RequestId::new(&format!("{number:08x}")).unwrap())
    };
    assert!(is_kept(0), "it is pending");
    assert!(is_kept(999) && is_kept(950));
    assert!(!is_kept(1) && !is_kept(600));
    assert_eq!(
        team.requests
            .values()
            .filter(|request| request.is_pending())
            .count(),
        pending + 1
    );
}

#[test]
fn a_snapshot_is_due_after_some_lines_and_not_again_at_once() {
    let mut team = fold(&lines());
    assert!(!team.snapshot_is_due(SNAPSHOT_LINES));
    team.seq += SNAPSHOT_LINES;
    assert!(team.snapshot_is_due(SNAPSHOT_LINES));
    let line = snapshot_line(&team).unwrap();
    team.apply(&line).unwrap();
    assert!(!team.snapshot_is_due(SNAPSHOT_LINES));
}

#[test]
fn the_last_snapshot_is_found_from_the_end_of_a_file() {
    let team = fold(&lines());
    let snapshot = [
        serde_json::to_vec(&snapshot_line(&team).unwrap()).unwrap(),
        b"\n".to_vec(),
    ]
    .concat();
    let filler = [vec![b'x'; 300_000], b"\n".to_vec()].concat();
    let impostor = b"{\"seq\":1,\"content\":\"\\\"record\\\":\\\"snapshot\\\"\"}\n".to_vec();
    let read = |parts: &[&[u8]]| {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&parts.concat()).unwrap();
        from_last_snapshot(&file, parts.concat().len() as u64).unwrap()
    };
    assert_eq!(read(&[]), (0, Vec::new()));
    assert_eq!(read(&[&impostor]), (0, impostor.clone()));
    assert_eq!(read(&[&snapshot, &impostor]).0, 0);
    let nine = filler.repeat(9);
    assert_eq!(
        read(&[&snapshot, &nine]),
        (0, [&snapshot[..], &nine].concat())
    );
    assert_eq!(
        read(&[&nine, &snapshot, &nine]),
        (nine.len() as u64, [&snapshot[..], &nine].concat())
    );
    let two = read(&[&nine, &snapshot, &impostor, &snapshot, b"torn"]);
    assert_eq!(two.1, [&snapshot[..], b"torn"].concat());
    let torn = &snapshot[..snapshot.len() - 1];
    assert_eq!(
        read(&[&snapshot, torn]).1,
        [&snapshot[..], torn].concat(),
        "a torn one is none"
    );
}
