//! What a reader finds, and what it costs.

use super::*;

#[test]
fn half_a_line_waits_for_its_other_half() {
    let (_scratch, dir) = team();
    let mut reader = reader(&dir, Position::START);
    let whole = line("one");
    let (first, rest) = whole.split_at(20);
    raw(&dir, first);
    assert_eq!(texts(&reader.read_new().unwrap().lines), [""; 0]);
    assert_eq!(reader.position(), Position::START);
    raw(&dir, rest);
    assert_eq!(texts(&reader.read_new().unwrap().lines), ["one"]);
}

#[test]
fn blank_lines_say_nothing_but_are_read() {
    let (_scratch, dir) = team();
    raw(&dir, b"\n \r\n\n");
    let mut reader = reader(&dir, Position::START);
    let batch = reader.read_new().unwrap();
    assert!(batch.lines.is_empty());
    assert_eq!(batch.position.offset, 5);
    assert_eq!(reader.position(), batch.position);
}

#[test]
fn lines_that_are_no_messages_are_told_apart_and_reading_goes_on() {
    let (_scratch, dir) = team();
    let bad: [&[u8]; 5] = [
        b"hello\n",
        b"\xff\xfe\n",
        b"[1]\n",
        b"{\"type\":\"message\"}\n",
        b"\0\0\0\n",
    ];
    for bad in bad {
        raw(&dir, bad);
    }
    raw(&dir, &line("good"));
    let lines = drain(&mut reader(&dir, Position::START));
    let reasons: Vec<_> = lines[..5]
        .iter()
        .map(|line| line.message.as_ref().unwrap_err())
        .collect();
    assert_eq!(reasons[0].line, "hello");
    assert_eq!(reasons[1].reason, ParseError::NotUtf8(0).to_string());
    assert_eq!(reasons[1].line, "\u{fffd}\u{fffd}");
    assert_eq!(reasons[2].reason, ParseError::NotAnObject.to_string());
    assert_eq!(reasons[3].reason, ParseError::Missing("from").to_string());
    assert_eq!(lines[4].offset, 6 + 3 + 4 + 19);
    assert_eq!(texts(&lines[5..]), ["good"]);
}

#[test]
fn the_text_of_a_rejected_line_is_short_and_whole_characters() {
    let (_scratch, dir) = team();
    raw(&dir, format!("x{}\n", "ü".repeat(1000)).as_bytes());
    let lines = drain(&mut reader(&dir, Position::START));
    let text = &lines[0].message.as_ref().unwrap_err().line;
    assert_eq!(*text, format!("x{}…", "ü".repeat(511)));
}

#[test]
fn a_line_that_is_too_long_is_passed_over() {
    for length in [
        MAX_LINE - 1,
        MAX_LINE,
        MAX_LINE + 1,
        3 * MAX_LINE + 7,
        6 * MAX_LINE,
    ] {
        let (_scratch, dir) = team();
        raw(&dir, &line("before"));
        let start = line("before").len() as u64;
        raw(
            &dir,
            &[&vec![b'x'; length][..], b"\n", &line("behind")].concat(),
        );
        let lines = drain(&mut reader(&dir, Position::START));
        assert_eq!(lines.len(), 3, "{length}");
        assert_eq!(
            (lines[1].offset, lines[1].position.offset),
            (start, start + length as u64 + 1)
        );
        let rejection = lines[1].message.as_ref().unwrap_err();
        assert!(rejection.line.len() <= MAX_TEXT + '…'.len_utf8());
        if length >= MAX_LINE {
            assert_eq!(
                rejection.reason,
                ParseError::TooLong(length as u64 + 1).to_string()
            );
        }
        assert_eq!(texts(&lines[2..]), ["behind"]);
        assert_eq!(
            count_lines(&dir, &alice(), Position::START).unwrap().mail,
            2
        );
    }
}

#[test]
fn a_line_that_grows_too_long_is_not_read_again_from_its_start() {
    let (_scratch, dir) = team();
    let mut reader = reader(&dir, Position::START);
    raw(&dir, &vec![b'x'; 5 * MAX_LINE]);
    assert!(drain(&mut reader).is_empty());
    assert_eq!(reader.position(), Position::START);
    let before = bytes_read();
    for _ in 0..10 {
        raw(&dir, &[b'x'; 1000]);
        assert!(drain(&mut reader).is_empty());
    }
    assert!(bytes_read() - before < 200_000);
    raw(&dir, &[b"\n", &line("behind")[..]].concat());
    let lines = drain(&mut reader);
    let whole = 5 * MAX_LINE as u64 + 10_001;
    assert_eq!(
        lines[0].message.as_ref().unwrap_err().reason,
        ParseError::TooLong(whole).to_string()
    );
    assert_eq!((lines[0].offset, lines[0].position.offset), (0, whole));
    assert_eq!(texts(&lines[1..]), ["behind"]);
}

#[test]
fn a_line_that_was_too_long_and_was_cut_off_is_looked_at_again() {
    let (_scratch, dir) = team();
    let mut reader = reader(&dir, Position::START);
    raw(&dir, &vec![b'x'; 2 * MAX_LINE]);
    assert!(drain(&mut reader).is_empty());
    overwrite(inbox_path(&dir), &line("one"));
    assert_eq!(texts(&drain(&mut reader)), ["one"]);
}

#[test]
fn a_line_written_twice_is_read_once() {
    let (_scratch, dir) = team();
    let mut reader = reader(&dir, Position::START);
    let [one, two] = [message("one"), message("two")];
    for sent in [&one, &one, &two] {
        append(&dir, &alice(), sent, Durability::Process).unwrap();
    }
    assert_eq!(texts(&drain(&mut reader)), ["one", "two"]);
    append(&dir, &alice(), &two, Durability::Process).unwrap();
    let batch = reader.read_new().unwrap();
    assert!(batch.lines.is_empty());
    assert_eq!(
        reader.position(),
        Count {
            ..count_lines(&dir, &alice(), Position::START).unwrap()
        }
        .end,
        "it is behind it all the same"
    );
}

#[test]
fn only_a_uuid_makes_a_repetition() {
    let (_scratch, dir) = team();
    for text in ["one", "two"] {
        raw(
            &dir,
            format!(
                "{{\"id\":\"1\",\"type\":\"message\",\"from\":\"x\",\"content\":\"{text}\"}}\n"
            )
            .as_bytes(),
        );
    }
    raw(&dir, &line("same"));
    raw(&dir, &line("same"));
    assert_eq!(read_all(&dir), ["one", "two", "same", "same"]);
}

#[test]
fn the_next_incarnation_goes_on_where_the_last_one_recorded() {
    let (_scratch, dir) = team();
    for text in ["one", "two", "three"] {
        send(&dir, text);
    }
    let lines = drain(&mut reader(&dir, Position::START));
    let recorded = serde_json::to_string(&lines[1].position).unwrap();
    let mut next = reader(&dir, serde_json::from_str(&recorded).unwrap());
    assert_eq!(texts(&drain(&mut next)), ["three"]);
    assert_eq!(next.position(), lines[2].position);
    let mut seeded = reader(&dir, Position::START);
    seeded.seen(lines[0].message.as_ref().unwrap().id.unwrap());
    assert_eq!(texts(&drain(&mut seeded)), ["two", "three"]);
}

#[test]
fn an_inbox_that_was_truncated_is_read_from_its_new_beginning() {
    let (_scratch, dir) = team();
    raw(&dir, &[line("one"), line("two")].concat());
    let mut reader = reader(&dir, Position::START);
    drain(&mut reader);
    overwrite(inbox_path(&dir), &line("new"));
    let batch = reader.read_new().unwrap();
    assert_eq!(
        (batch.restarted, texts(&batch.lines)),
        (Some(TRUNCATED), vec!["new".to_owned()])
    );
    assert_eq!(reader.read_new().unwrap().restarted, None);
}

#[test]
fn an_inbox_that_was_truncated_and_filled_again_is_noticed_by_its_bytes() {
    let (_scratch, dir) = team();
    raw(&dir, &line("one"));
    let mut reader = reader(&dir, Position::START);
    drain(&mut reader);
    overwrite(inbox_path(&dir), &[line("uno"), line("due")].concat());
    let batch = reader.read_new().unwrap();
    assert_eq!(batch.restarted, Some(CHANGED));
    assert_eq!(texts(&batch.lines), ["uno", "due"]);
    let count = count_lines(&dir, &alice(), Position::after(4, b"four")).unwrap();
    assert_eq!((count.mail, count.end), (2, reader.position()));
}

#[test]
fn what_the_protocol_says_and_what_is_no_message_is_not_counted_as_mail() {
    let (_scratch, dir) = team();
    let request =
        r#"{"type":"shutdown_request","from":"lead","request_id":"a1b2c3d4","content":"go"}"#;
    raw(
        &dir,
        &[
            line("one"),
            format!("{request}\nno message\n\n").into_bytes(),
            line("two"),
        ]
        .concat(),
    );
    let count = count_lines(&dir, &alice(), Position::START).unwrap();
    assert_eq!(count.mail, 2);
}

#[test]
fn an_inbox_that_was_replaced_is_followed() {
    let (_scratch, dir) = team();
    raw(&dir, &line("one"));
    let mut reader = reader(&dir, Position::START);
    drain(&mut reader);
    let replace = |bytes: &[u8]| {
        overwrite(inbox_path(&dir).with_extension("new"), bytes);
        std::fs::rename(inbox_path(&dir).with_extension("new"), inbox_path(&dir)).unwrap();
    };
    replace(&[line("one"), line("two")].concat());
    let batch = reader.read_new().unwrap();
    assert_eq!(
        (batch.restarted, texts(&batch.lines)),
        (None, vec!["two".to_owned()])
    );
    replace(&[line("other"), line("file"), line("here")].concat());
    let batch = reader.read_new().unwrap();
    assert_eq!(batch.restarted, Some(REPLACED));
    assert_eq!(texts(&batch.lines), ["other", "file", "here"]);
    std::fs::remove_file(inbox_path(&dir)).unwrap();
    assert!(reader.read_new().unwrap().lines.is_empty());
    raw(&dir, &line("back"));
    assert_eq!(texts(&reader.read_new().unwrap().lines), ["back"]);
}

#[test]
fn a_huge_inbox_is_read_in_pieces() {
    let (_scratch, dir) = team();
    raw(&dir, &line("x").repeat(10_000));
    let mut reader = reader(&dir, Position::START);
    let batch = reader.read_new().unwrap();
    assert!(batch.more && batch.lines.len() < 10_000);
    assert_eq!(batch.lines.len() + drain(&mut reader).len(), 10_000);
}

// A mailbox that another program empties, and a script that fills it with messages from a template.
#[test]
fn lines_of_the_same_length_that_end_alike_do_not_pass_for_each_other() {
    let (_scratch, dir) = team();
    let text = |what: &str| format!("{what}: {}", "and tell me when it is done. ".repeat(5));
    send(&dir, &text("build it"));
    let mut reader = reader(&dir, Position::START);
    assert_eq!(drain(&mut reader).len(), 1);
    overwrite(inbox_path(&dir), b"");
    send(&dir, &text("tests it"));
    let batch = reader.read_new().unwrap();
    assert_eq!(batch.restarted, Some(CHANGED));
    assert_eq!(texts(&batch.lines), [text("tests it")]);
}

#[test]
fn one_look_reads_little_however_long_the_lines_are() {
    let (_scratch, dir) = team();
    raw(&dir, &line(&"x".repeat(100_000)).repeat(60));
    raw(&dir, &vec![b'x'; 6 * MAX_LINE]);
    raw(&dir, b"\n");
    let mut reader = reader(&dir, Position::START);
    let mut looks = 0;
    let mut lines = 0;
    let mut more = true;
    while more {
        let before = bytes_read();
        let batch = reader.read_new().unwrap();
        assert!(bytes_read() - before < 5 << 20);
        looks += 1;
        lines += batch.lines.len();
        more = batch.more;
    }
    assert_eq!((looks, lines), (3, 61));
}

#[test]
fn reading_costs_what_is_new_whatever_the_length() {
    let (_scratch, dir) = team();
    let hole = 50 << 20;
    OpenOptions::new()
        .append(true)
        .open(inbox_path(&dir))
        .unwrap()
        .set_len(hole)
        .unwrap();
    raw(&dir, &[b"\n", &line("one")[..]].concat());
    let from = Position::after(hole + 1, &[&[0; TAIL][..], b"\n"].concat());
    let mut reader = reader(&dir, from);
    let before = bytes_read();
    assert_eq!(texts(&drain(&mut reader)), ["one"]);
    assert_eq!(count_lines(&dir, &alice(), from).unwrap().mail, 1);
    assert_eq!(last_lines(&dir, &alice(), 1).unwrap().lines.len(), 1);
    assert!(bytes_read() - before < 20_000);
}

/// What a foreign program may write: messages, blank lines, anything else.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "[a-z]{0,90}".prop_map(|text| line(&text)),
        1 => (0_u128..5).prop_map(|id| {
            let id = Uuid::from_u128(id);
            format!("{{\"id\":\"{id}\",\"type\":\"message\",\"from\":\"x\"}}\n").into_bytes()
        }),
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => proptest::strategy::Just(b"\n".to_vec()),
    ]
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 128, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_boundaries_between_writes_do_not_matter(
        pieces in prop::collection::vec(piece(), 0..40),
        sizes in prop::collection::vec(1_usize..200, 1..40),
    ) {
        let (_scratch, dir) = team();
        let mut growing = reader(&dir, Position::START);
        let mut rest = &pieces.concat()[..];
        let mut by_and_by = Vec::new();
        for size in sizes.iter().cycle() {
            let (now, later) = rest.split_at((*size).min(rest.len()));
            raw(&dir, now);
            by_and_by.extend(drain(&mut growing));
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        let at_once = drain(&mut reader(&dir, Position::START));
        prop_assert_eq!(format!("{by_and_by:?}"), format!("{at_once:?}"));
        let counted = count_lines(&dir, &alice(), Position::START).unwrap();
        prop_assert_eq!(counted.end, growing.position());
        for line in at_once {
            let behind = drain(&mut reader(&dir, line.position));
            prop_assert_eq!(behind.first().map(|next| next.offset >= line.position.offset), behind.first().map(|_| true));
        }
    }
}

#[test]
fn a_position_fits_only_behind_the_line_that_was_read() {
    let (_scratch, dir) = team();
    let write = |text: &str| overwrite(inbox_path(&dir), text.as_bytes());
    let look = |position| fits(&dir, &alice(), position).unwrap();
    write("one\ntwo\n");
    let end = count_lines(&dir, &alice(), Position::START).unwrap().end;
    assert_eq!(end.offset, 8);
    assert!(look(Position::START) && look(end) && !look(Position { offset: 6, ..end }));
    for other in ["one\nTWO\nthree\n", "one\n"] {
        write(other);
        assert!(!look(end), "{other}");
    }
}
