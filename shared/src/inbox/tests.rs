use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::prelude::{Strategy, any, prop};
use proptest::{prop_assert_eq, prop_oneof, proptest};
use uuid::Uuid;

use super::append::Inbox;
use super::*;
use crate::message::{Body, Message, ParseError};

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
    OpenOptions::new().append(true).open(inbox_path(dir)).unwrap().write_all(bytes).unwrap();
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
fn drain(reader: &mut Reader) -> Vec<Line> {
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
fn texts(lines: &[Line]) -> Vec<String> {
    let text = |line: &Line| match &line.message {
        Ok(message) => message.content.clone(),
        Err(rejection) => format!("rejected: {}", rejection.reason),
    };
    lines.iter().map(text).collect()
}

fn read_all(dir: &Arc<TeamDir>) -> Vec<String> {
    texts(&drain(&mut reader(dir, Position::START)))
}

/// Bytes that this thread has read so far, from anywhere.
fn bytes_read() -> u64 {
    let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

mod appending {
    use super::*;

    #[test]
    fn a_message_is_one_line_and_its_place_is_told() {
        let (_scratch, dir) = team();
        assert_eq!(send(&dir, "one").offset, 0);
        let sent = message("two");
        let two = append(&dir, &alice(), &sent, Durability::Disk).unwrap();
        let line = read_line_at(&dir, &alice(), two.offset, two.len).unwrap();
        assert_eq!(Message::parse(&line).unwrap(), sent);
        assert_eq!(read_all(&dir), ["one", "two"]);
    }

    #[test]
    fn a_line_behind_a_torn_tail_is_written_again() {
        let (_scratch, dir) = team();
        raw(&dir, b"{\"type\":\"mess");
        let two = send(&dir, "two");
        let three = send(&dir, "three");
        let lines = drain(&mut reader(&dir, Position::START));
        assert_eq!(lines.len(), 3);
        assert!(lines[0].message.is_err(), "the tail, and what was glued to it");
        assert_eq!([lines[1].offset, lines[2].offset], [two.offset, three.offset]);
        assert_eq!(texts(&lines[1..]), ["two", "three"]);
    }

    #[test]
    fn a_torn_tail_of_spaces_does_not_double_the_message() {
        let (_scratch, dir) = team();
        raw(&dir, b"  ");
        send(&dir, "one");
        assert_eq!(read_all(&dir), ["one"]);
        assert_eq!(count_lines(&dir, &alice(), Position::START).unwrap().lines, 2, "it stands there twice");
    }

    #[test]
    fn a_kept_writer_follows_the_path() {
        let (_scratch, dir) = team();
        let mut appender = Appender::new(&alice());
        appender.append(&dir, &message("lost"), Durability::Process).unwrap();
        overwrite(inbox_path(&dir).with_extension("new"), b"");
        std::fs::rename(inbox_path(&dir).with_extension("new"), inbox_path(&dir)).unwrap();
        let there = appender.append(&dir, &message("there"), Durability::Process).unwrap();
        assert_eq!(there.offset, 1, "led by a newline");
        assert_eq!(read_all(&dir), ["there"]);
        std::fs::remove_file(inbox_path(&dir)).unwrap();
        let gone = appender.append(&dir, &message("gone"), Durability::Process).unwrap_err();
        assert!(matches!(gone, AppendError::NoInbox(_)), "{gone}");
        assert!(!inbox_path(&dir).exists(), "only the daemon makes an inbox");
    }

    #[test]
    fn a_kept_writer_repeats_its_line_in_a_truncated_inbox() {
        let (_scratch, dir) = team();
        let mut appender = Appender::new(&alice());
        for text in ["one", "two"] {
            appender.append(&dir, &message(text), Durability::Process).unwrap();
        }
        overwrite(inbox_path(&dir), b"torn");
        appender.append(&dir, &message("three"), Durability::Process).unwrap();
        assert_eq!(read_all(&dir)[1..], ["three"]);
    }

    #[test]
    fn what_cannot_be_appended_leaves_no_trace() {
        let (_scratch, dir) = team();
        let huge = append(&dir, &alice(), &message(&"x".repeat(MAX_LINE)), Durability::Process).unwrap_err();
        assert!(huge.to_string().contains("the limit is 1048576"), "{huge}");
        assert!(huge.hint().is_some());
        let mut no_id = message("x");
        no_id.id = None;
        let no_id = append(&dir, &alice(), &no_id, Durability::Process).unwrap_err();
        assert!(matches!(no_id, AppendError::NoId), "{no_id}");
        let bob = Name::new("bob").unwrap();
        let error = append(&dir, &bob, &message("x"), Durability::Process).unwrap_err();
        assert!(matches!(error, AppendError::NoInbox(_)), "{error}");
        assert_eq!(std::fs::read(inbox_path(&dir)).unwrap(), b"");
    }

    #[test]
    fn the_largest_message_goes_through() {
        let (_scratch, dir) = team();
        let overhead = message("").to_line().unwrap().len();
        let largest = send(&dir, &"x".repeat(MAX_LINE - overhead));
        assert_eq!(largest.len, MAX_LINE as u64);
        read_line_at(&dir, &alice(), largest.offset, largest.len).unwrap();
        let lines = drain(&mut reader(&dir, Position::START));
        assert_eq!(lines[0].message.as_ref().unwrap().content.len(), MAX_LINE - overhead);
    }

    #[test]
    fn a_full_disk_is_an_error_that_says_so() {
        let full =
            Inbox { file: OpenOptions::new().write(true).open("/dev/full").unwrap(), identity: (0, 0) };
        let short = full.write(b"{}\n").unwrap_err();
        assert_eq!(short.written, 0);
        let error = short.at(PathBuf::from("alice.jsonl"), 3);
        assert!(error.to_string().starts_with("only 0 of 3 bytes"), "{error}");
        assert!(error.to_string().contains("No space left"), "{error}");
        assert!(error.hint().unwrap().contains("free some space"));
    }

    #[test]
    fn a_fifo_or_a_link_in_the_place_of_an_inbox_blocks_nobody() {
        let (_scratch, dir) = team();
        std::fs::remove_file(inbox_path(&dir)).unwrap();
        nix::unistd::mkfifo(&inbox_path(&dir), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = append(&dir, &alice(), &message("x"), Durability::Process).unwrap_err();
        assert!(matches!(error, AppendError::Dir(DirError::NotAFile(_))), "{error}");
        let error = Reader::open(Arc::clone(&dir), &alice(), Position::START).unwrap_err();
        assert!(matches!(error, ReadError::Dir(DirError::NotAFile(_))), "{error}");
        std::fs::remove_file(inbox_path(&dir)).unwrap();
        std::os::unix::fs::symlink("/dev/null", inbox_path(&dir)).unwrap();
        let error = append(&dir, &alice(), &message("x"), Durability::Process).unwrap_err();
        assert!(matches!(error, AppendError::Dir(DirError::Link(_))), "{error}");
    }

    #[test]
    fn creating_an_inbox_again_keeps_what_is_in_it() {
        let (_scratch, dir) = team();
        send(&dir, "one");
        create(&dir, &alice()).unwrap();
        assert_eq!(read_all(&dir), ["one"]);
    }

    /// Writers, programs that leave torn tails (as a kill does), and a reader, all at once.
    #[test]
    fn nothing_is_lost_doubled_or_reordered_among_torn_tails() {
        const WRITERS: usize = 4;
        const EACH: usize = 400;
        let (_scratch, dir) = team();
        let done = AtomicBool::new(false);
        let read = thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut file = OpenOptions::new().append(true).open(inbox_path(&dir)).unwrap();
                    while !done.load(Ordering::Relaxed) {
                        file.write_all(b"{\"type\":\"message\",\"from\":\"kil").unwrap();
                        thread::yield_now();
                    }
                });
            }
            let taking = scope.spawn(|| {
                let mut reader = reader(&dir, Position::START);
                let mut lines = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    lines.extend(reader.read_new().unwrap().lines);
                    thread::yield_now();
                }
                lines.extend(drain(&mut reader));
                lines
            });
            let write = |writer: usize| {
                let mut kept = Appender::new(&alice());
                for number in 0..EACH {
                    let sent = message(&format!("{writer} {number}"));
                    let at = kept.append(&dir, &sent, Durability::Process).unwrap();
                    let line = read_line_at(&dir, &alice(), at.offset, at.len).unwrap();
                    assert_eq!(Message::parse(&line).unwrap(), sent);
                }
            };
            let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
            let ended: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            done.store(true, Ordering::Relaxed);
            assert!(ended.into_iter().all(|writer| writer.is_ok()));
            taking.join().unwrap()
        });
        let messages: Vec<_> = read.iter().filter_map(|line| line.message.as_ref().ok()).collect();
        for writer in 0..WRITERS {
            let own = format!("{writer} ");
            let numbers: Vec<usize> =
                messages.iter().filter_map(|it| it.content.strip_prefix(&own)?.parse().ok()).collect();
            assert_eq!(numbers, (0..EACH).collect::<Vec<_>>(), "writer {writer}");
        }
        assert_eq!(messages.len(), WRITERS * EACH);
    }

    #[test]
    fn appending_costs_the_same_whatever_the_length() {
        let (_scratch, dir) = team();
        OpenOptions::new().append(true).open(inbox_path(&dir)).unwrap().set_len(50 << 20).unwrap();
        let before = bytes_read();
        send(&dir, "one");
        assert!(bytes_read() - before < 1000);
    }
}

mod reading {
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
        assert_eq!(reader.unread_bytes().unwrap(), 20);
        raw(&dir, rest);
        assert_eq!(texts(&reader.read_new().unwrap().lines), ["one"]);
        assert_eq!(reader.unread_bytes().unwrap(), 0);
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
        let bad: [&[u8]; 5] = [b"hello\n", b"\xff\xfe\n", b"[1]\n", b"{\"type\":\"message\"}\n", b"\0\0\0\n"];
        for bad in bad {
            raw(&dir, bad);
        }
        raw(&dir, &line("good"));
        let lines = drain(&mut reader(&dir, Position::START));
        let reasons: Vec<_> = lines[..5].iter().map(|line| line.message.as_ref().unwrap_err()).collect();
        assert_eq!(reasons[0].text, "hello");
        assert_eq!(reasons[1].reason, ParseError::NotUtf8(0));
        assert_eq!(reasons[1].text, "\u{fffd}\u{fffd}");
        assert_eq!(reasons[2].reason, ParseError::NotAnObject);
        assert_eq!(reasons[3].reason, ParseError::Missing("from"));
        assert_eq!(lines[4].offset, 6 + 3 + 4 + 19);
        assert_eq!(texts(&lines[5..]), ["good"]);
    }

    #[test]
    fn the_text_of_a_rejected_line_is_short_and_whole_characters() {
        let (_scratch, dir) = team();
        raw(&dir, format!("x{}\n", "ü".repeat(1000)).as_bytes());
        let lines = drain(&mut reader(&dir, Position::START));
        let text = &lines[0].message.as_ref().unwrap_err().text;
        assert_eq!(*text, format!("x{}…", "ü".repeat(511)));
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over() {
        for length in [MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, 3 * MAX_LINE + 7, 6 * MAX_LINE] {
            let (_scratch, dir) = team();
            raw(&dir, &line("before"));
            let start = line("before").len() as u64;
            raw(&dir, &[&vec![b'x'; length][..], b"\n", &line("behind")].concat());
            let lines = drain(&mut reader(&dir, Position::START));
            assert_eq!(lines.len(), 3, "{length}");
            assert_eq!((lines[1].offset, lines[1].position.offset), (start, start + length as u64 + 1));
            let rejection = lines[1].message.as_ref().unwrap_err();
            assert!(rejection.text.len() <= MAX_TEXT + '…'.len_utf8());
            if length >= MAX_LINE {
                assert_eq!(rejection.reason, ParseError::TooLong(length as u64 + 1));
            }
            assert_eq!(texts(&lines[2..]), ["behind"]);
            assert_eq!(count_lines(&dir, &alice(), Position::START).unwrap().lines, 3);
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
        assert_eq!(lines[0].message.as_ref().unwrap_err().reason, ParseError::TooLong(whole));
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
        assert_eq!(reader.unread_bytes().unwrap(), 0, "the position is behind it all the same");
    }

    #[test]
    fn only_a_uuid_makes_a_repetition() {
        let (_scratch, dir) = team();
        for text in ["one", "two"] {
            raw(
                &dir,
                format!("{{\"id\":\"1\",\"type\":\"message\",\"from\":\"x\",\"content\":\"{text}\"}}\n")
                    .as_bytes(),
            );
        }
        raw(&dir, &line("same"));
        raw(&dir, &line("same"));
        assert_eq!(read_all(&dir), ["one", "two", "same", "same"]);
    }

    #[test]
    fn the_next_life_goes_on_where_the_last_one_recorded() {
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
            (Some(Truncated::Shorter), vec!["new".to_owned()])
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
        assert_eq!(batch.restarted, Some(Truncated::Changed));
        assert_eq!(texts(&batch.lines), ["uno", "due"]);
        let count = count_lines(&dir, &alice(), Position::after(4, b"four")).unwrap();
        assert_eq!((count.lines, count.end), (2, reader.position()));
    }

    #[test]
    fn what_the_protocol_says_and_what_is_no_message_is_not_counted_as_mail() {
        let (_scratch, dir) = team();
        let request = r#"{"type":"shutdown_request","from":"lead","request_id":"a1b2c3d4","content":"go"}"#;
        raw(&dir, &[line("one"), format!("{request}\nno message\n\n").into_bytes(), line("two")].concat());
        let count = count_lines(&dir, &alice(), Position::START).unwrap();
        assert_eq!((count.lines, count.mail), (4, 2));
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
        assert_eq!((batch.restarted, texts(&batch.lines)), (None, vec!["two".to_owned()]));
        replace(&[line("other"), line("file"), line("here")].concat());
        let batch = reader.read_new().unwrap();
        assert_eq!(batch.restarted, Some(Truncated::Replaced));
        assert_eq!(texts(&batch.lines), ["other", "file", "here"]);
        std::fs::remove_file(inbox_path(&dir)).unwrap();
        let gone = reader.read_new().unwrap_err();
        assert!(matches!(gone, ReadError::NoInbox(_)), "{gone}");
        overwrite(inbox_path(&dir), &line("back"));
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

    #[test]
    fn one_look_reads_little_however_long_the_lines_are() {
        let (_scratch, dir) = team();
        raw(&dir, &line(&"x".repeat(100_000)).repeat(60));
        raw(&dir, &vec![b'x'; 6 * MAX_LINE]);
        raw(&dir, b"\n");
        let mut reader = reader(&dir, Position::START);
        let (mut looks, mut lines, mut more) = (0, 0, true);
        while more {
            let before = bytes_read();
            let batch = reader.read_new().unwrap();
            assert!(bytes_read() - before < 5 << 20);
            (looks, lines, more) = (looks + 1, lines + batch.lines.len(), batch.more);
        }
        assert_eq!((looks, lines), (3, 61));
    }

    #[test]
    fn reading_costs_what_is_new_whatever_the_length() {
        let (_scratch, dir) = team();
        let hole = 50 << 20;
        OpenOptions::new().append(true).open(inbox_path(&dir)).unwrap().set_len(hole).unwrap();
        raw(&dir, &[b"\n", &line("one")[..]].concat());
        let from = Position::after(hole + 1, &[&[0; TAIL][..], b"\n"].concat());
        let mut reader = reader(&dir, from);
        let before = bytes_read();
        assert_eq!(texts(&drain(&mut reader)), ["one"]);
        assert_eq!(count_lines(&dir, &alice(), from).unwrap().lines, 1);
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
}

mod looking {
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
            assert!(matches!(error, ReadError::NotALine { .. }), "{offset} {len}: {error}");
        }
        assert!(named(u64::MAX, 10).is_err());
    }

    #[test]
    fn the_last_lines_are_found_from_the_end() {
        let (_scratch, dir) = team();
        assert_eq!(last_lines(&dir, &alice(), 3).unwrap(), Last { lines: vec![], position: Position::START });
        raw(&dir, b"one\ntwo\n\nnot json\n\n");
        raw(&dir, &[b'x'; 5000]);
        let last = last_lines(&dir, &alice(), 2).unwrap();
        assert_eq!(last.lines, [&b"two"[..], b"not json"]);
        assert_eq!(last.position.offset, 19);
        assert_eq!(last_lines(&dir, &alice(), 9).unwrap().lines.len(), 3);
        raw(&dir, b"\n");
        assert_eq!(texts(&drain(&mut reader(&dir, last.position))).len(), 1, "one can follow from there");
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
        for other in
            ["alice.rejected.jsonl", "alice", ".jsonl", "all.jsonl", "Alice.jsonl", "alice.jsonl.new"]
        {
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
    fn a_durability_has_two_names() {
        assert_eq!(["disk".parse(), "process".parse()], [Ok(Durability::Disk), Ok(Durability::Process)]);
        let error = "sync".parse::<Durability>().unwrap_err();
        assert_eq!(error.to_string(), "\"sync\" is no durability: disk or process");
    }
}

mod quarantine {
    use super::*;

    fn rejection(text: &str) -> Rejection {
        Rejection { reason: ParseError::NotAnObject, text: text.to_owned() }
    }

    fn entries(dir: &TeamDir) -> Vec<Rejected> {
        let bytes = dir.read(&TeamPath::rejected(&alice())).unwrap();
        let lines = bytes.split(|&byte| byte == b'\n');
        lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }

    #[test]
    fn a_reader_that_died_before_it_recorded_its_position_rejects_once() {
        let (_scratch, dir) = team();
        let put = |offset, text| reject(&dir, &alice(), offset, &rejection(text), 1.5).unwrap();
        assert!(put(0, "a") && put(10, "b") && put(20, "c"));
        assert!(!put(0, "a") && !put(10, "b") && !put(20, "c"), "the next life reads the batch again");
        assert!(put(30, "d"));
        assert!(put(0, "other"), "in a truncated inbox another line has this place");
        let texts: Vec<_> = entries(&dir).into_iter().map(|entry| entry.line).collect();
        assert_eq!(texts, ["a", "b", "c", "d", "other"]);
    }

    #[test]
    fn an_entry_has_the_fields_that_people_look_for() {
        let (_scratch, dir) = team();
        reject(&dir, &alice(), 7, &rejection("a\u{2028}b"), 1.5).unwrap();
        let bytes = dir.read(&TeamPath::rejected(&alice())).unwrap();
        let expected = r#"{"line":"a\u2028b","offset":7,"reason":"not a JSON object","at":1.5}"#;
        assert_eq!(String::from_utf8(bytes).unwrap(), format!("{expected}\n"));
    }

    #[test]
    fn a_torn_entry_becomes_a_line_of_its_own() {
        let (_scratch, dir) = team();
        reject(&dir, &alice(), 0, &rejection("a"), 1.5).unwrap();
        let path = dir.path(&TeamPath::rejected(&alice()));
        OpenOptions::new().append(true).open(path).unwrap().write_all(b"{\"line\":\"b").unwrap();
        assert!(!reject(&dir, &alice(), 0, &rejection("a"), 1.5).unwrap());
        assert!(reject(&dir, &alice(), 10, &rejection("b"), 1.5).unwrap());
        assert_eq!(entries(&dir).len(), 2);
    }
}
