//! Lines that came from another machine.

use super::*;

fn message(number: u128) -> Message {
    let id = Uuid::from_u128(number);
    Message::new(id, "lead", "alice", 1.0, Body::Message).with_content("text")
}

fn from_box(number: u128, offset: u64) -> Message {
    let mut message = message(number);
    let via = Via {
        host: "box".to_owned(),
        line: LinePlace {
            offset,
            id: message.id,
        },
    };
    via.put_into(&mut message);
    message
}

#[test]
fn an_inbox_says_how_far_each_outbox_was_taken() {
    let (_scratch, dir) = team();
    let mut appender = Appender::new(&alice());
    let mut put = |message: &Message| {
        let appended = appender.append(&dir, message, Durability::Process);
        appended.unwrap().offset
    };
    assert_eq!(last_via(&dir, &alice(), "box", None).unwrap(), None);
    put(&from_box(1, 0));
    put(&message(2));
    let third = put(&from_box(3, 70));
    put(&message(4));
    let last = last_via(&dir, &alice(), "box", None).unwrap().unwrap();
    assert_eq!((last.offset, last.id), (70, Some(Uuid::from_u128(3))));
    assert_eq!(last_via(&dir, &alice(), "gpu", None).unwrap(), None);
    let before = last_via(&dir, &alice(), "box", Some(third)).unwrap();
    assert_eq!(before.unwrap().offset, 0);
    let behind_first = position_after_via(&dir, &alice(), "box", before.unwrap()).unwrap();
    let between =
        |to| last_via_between(&dir, &alice(), "box", (behind_first.unwrap(), to)).unwrap();
    assert_eq!(between(third), None, "the first one is before that part");
    assert_eq!(between(third + 1), Some(last));
    let position = position_after_via(&dir, &alice(), "box", last).unwrap();
    let fourth = line_before(&dir, &alice(), u64::MAX).unwrap().unwrap();
    assert_eq!(position.unwrap().offset, fourth.offset);
    let found = message_via(&dir, &alice(), "box", last).unwrap().unwrap();
    assert_eq!(found.id, Some(Uuid::from_u128(3)));
}

#[test]
fn a_line_of_another_file_is_not_found() {
    let (_scratch, dir) = team();
    append(&dir, &alice(), &message(1), Durability::Process).unwrap();
    let here = line_before(&dir, &alice(), u64::MAX).unwrap().unwrap();
    let end = position_after(&dir, &alice(), here).unwrap().unwrap();
    assert_eq!(position_at(&dir, &alice(), end.offset).unwrap(), end);
    let other = LinePlace {
        id: Some(Uuid::from_u128(2)),
        ..here
    };
    assert_eq!(position_after(&dir, &alice(), other).unwrap(), None);
    let beyond = position_at(&dir, &alice(), end.offset + 1).unwrap();
    assert_eq!(beyond, Position::START);
}
