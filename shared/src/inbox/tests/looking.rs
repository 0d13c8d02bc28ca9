//! Looks at an inbox that consume nothing.

use super::*;

#[test]
fn only_exactly_one_whole_line_can_be_named() {
    let (_scratch, dir) = team();
    let one = send(&dir, "one");
    let two = send(&dir, "two");
    raw(&dir, b"{\"half\":");
    let end = two.offset + two.len;
    let named = |offset, len| read_line_at(&dir, &alice(), offset, len);
    assert!(named(one.offset, one.len).is_ok() && named(two.offset, two.len).is_ok());
    let others = [
        (one.offset, 0),
        (one.offset, one.len - 1),
        (one.offset, one.len + 1),
        (one.offset, end),
        (one.offset + 1, one.len - 1),
        (two.offset - 1, two.len + 1),
        (end, 8),
        (end, 9),
        (end + 100, 10),
        (0, MAX_LINE as u64 + 1),
        (0, u64::MAX),
    ];
    for (offset, len) in others {
        let error = named(offset, len).unwrap_err();
        assert!(
            matches!(error, ReadError::NotALine { .. }),
            "{offset} {len}: {error}"
        );
    }
    assert!(named(u64::MAX, 10).is_err());
}

#[test]
fn the_last_lines_are_found_from_the_end() {
    let (_scratch, dir) = team();
    assert_eq!(
        last_lines(&dir, &alice(), 3).unwrap(),
        Last {
            lines: vec![],
            position: Position::START
        }
    );
    raw(&dir, b"one\ntwo\n\nnot json\n\n");
    raw(&dir, &[b'x'; 5000]);
    let last = last_lines(&dir, &alice(), 2).unwrap();
    assert_eq!(last.lines, [&b"two"[..], b"not json"]);
    assert_eq!(last.position.offset, 19);
    assert_eq!(last_lines(&dir, &alice(), 9).unwrap().lines.len(), 3);
    raw(&dir, b"\n");
    assert_eq!(
        texts(&drain(&mut reader(&dir, last.position))).len(),
        1,
        "one can follow from there"
    );
}

#[test]
fn a_last_line_that_is_too_long_is_cut() {
    let (_scratch, dir) = team();
    raw(&dir, &[&vec![b'x'; MAX_LINE][..], b"\nbehind\n"].concat());
    let last = last_lines(&dir, &alice(), 2).unwrap();
    assert_eq!([last.lines[0].len(), last.lines[1].len()], [MAX_TEXT, 6]);
}

#[test]
fn a_file_of_the_folder_tells_its_owner() {
    assert_eq!(owner_of("alice.jsonl"), Some(alice()));
    assert_eq!(owner_of("lead.jsonl"), Some(Name::lead()));
    for other in [
        "alice.rejected.jsonl",
        "alice",
        ".jsonl",
        "all.jsonl",
        "Alice.jsonl",
        "alice.jsonl.new",
    ] {
        assert_eq!(owner_of(other), None, "{other}");
    }
}

#[test]
fn a_message_that_stands_near_the_end_is_found_by_its_id() {
    let (_scratch, dir) = team();
    let sent = message("one");
    let id = sent.id.unwrap();
    assert!(!holds(&dir, &alice(), id).unwrap());
    append(&dir, &alice(), &sent, Durability::Process).unwrap();
    assert!(holds(&dir, &alice(), id).unwrap());
    assert!(!holds(&dir, &alice(), Uuid::now_v7()).unwrap());
}

#[test]
fn a_message_that_is_torn_or_glued_to_something_torn_is_not_held() {
    let sent = message("one");
    let line = sent.to_line().unwrap();
    let id = sent.id.unwrap();
    let held = |pieces: &[&[u8]]| {
        let (_scratch, dir) = team();
        for piece in pieces.iter() {
            raw(&dir, piece);
        }
        holds(&dir, &alice(), id).unwrap()
    };
    let torn = &line[..line.len() - 1];
    assert!(held(&[&line]) && held(&[b"half\n", &line, b"half"]));
    assert!(!held(&[torn]), "its writer was killed before the last byte");
    assert!(!held(&[torn, &line]), "the next line was glued to it");
    assert!(!held(&[b"half", &line]), "and it to another");
    assert!(
        held(&[torn, &line, b"\n", &line]),
        "until it is written again"
    );
}

#[test]
fn a_torn_line_is_not_found_by_the_id_that_it_begins_with() {
    let (_scratch, dir) = team();
    let sent = message("one");
    let id = sent.id.unwrap();
    let line = sent.to_line().unwrap();
    let torn = &line[..line.len() - 5];
    raw(&dir, torn);
    assert!(!holds(&dir, &alice(), id).unwrap());
    // The next writer has found it, and led its own line by a newline.
    raw(&dir, b"\n{}\n");
    assert!(!holds(&dir, &alice(), id).unwrap());
    append(&dir, &alice(), &sent, Durability::Process).unwrap();
    assert!(holds(&dir, &alice(), id).unwrap());
}
