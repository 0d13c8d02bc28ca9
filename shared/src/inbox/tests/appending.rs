//! Append, then look back.

use super::*;
use crate::fs::write_once;

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
    assert!(
        lines[0].message.is_err(),
        "the tail, and what was glued to it"
    );
    assert_eq!(
        [lines[1].offset, lines[2].offset],
        [two.offset, three.offset]
    );
    assert_eq!(texts(&lines[1..]), ["two", "three"]);
}

#[test]
fn several_messages_are_read_in_their_order_behind_a_torn_tail() {
    for tail in ["", "{\"type\":\"mess"] {
        let (_scratch, dir) = team();
        raw(&dir, tail.as_bytes());
        let messages = ["one", "two", "three"].map(message);
        Appender::new(&alice()).append_all(&dir, &messages).unwrap();
        let read = read_all(&dir);
        let (torn, sent) = read.split_at(read.len() - 3);
        assert_eq!(sent, ["one", "two", "three"]);
        assert_eq!(torn.len(), usize::from(!tail.is_empty()), "{torn:?}");
    }
}

#[test]
fn a_torn_tail_of_spaces_does_not_double_the_message() {
    let (_scratch, dir) = team();
    raw(&dir, b"  ");
    send(&dir, "one");
    assert_eq!(read_all(&dir), ["one"]);
    assert_eq!(
        count_lines(&dir, &alice(), Position::START).unwrap().mail,
        2,
        "it stands there twice"
    );
}

#[test]
fn a_kept_writer_follows_the_path() {
    let (_scratch, dir) = team();
    let mut appender = Appender::new(&alice());
    appender
        .append(&dir, &message("lost"), Durability::Process)
        .unwrap();
    overwrite(inbox_path(&dir).with_extension("new"), b"");
    std::fs::rename(inbox_path(&dir).with_extension("new"), inbox_path(&dir)).unwrap();
    let there = appender
        .append(&dir, &message("there"), Durability::Process)
        .unwrap();
    assert_eq!(there.offset, 1, "led by a newline");
    assert_eq!(read_all(&dir), ["there"]);
    std::fs::remove_file(inbox_path(&dir)).unwrap();
    let gone = appender
        .append(&dir, &message("gone"), Durability::Process)
        .unwrap_err();
    assert!(matches!(gone, AppendError::NoInbox(_)), "{gone}");
    assert!(!inbox_path(&dir).exists(), "only the daemon makes an inbox");
}

#[test]
fn a_kept_writer_repeats_its_line_in_a_truncated_inbox() {
    let (_scratch, dir) = team();
    let mut appender = Appender::new(&alice());
    for text in ["one", "two"] {
        appender
            .append(&dir, &message(text), Durability::Process)
            .unwrap();
    }
    overwrite(inbox_path(&dir), b"torn");
    appender
        .append(&dir, &message("three"), Durability::Process)
        .unwrap();
    assert_eq!(read_all(&dir)[1..], ["three"]);
}

#[test]
fn what_cannot_be_appended_leaves_no_trace() {
    let (_scratch, dir) = team();
    let huge = append(
        &dir,
        &alice(),
        &message(&"x".repeat(MAX_LINE)),
        Durability::Process,
    )
    .unwrap_err();
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
    assert_eq!(
        lines[0].message.as_ref().unwrap().content.len(),
        MAX_LINE - overhead
    );
}

#[test]
fn a_full_disk_is_an_error_that_says_so() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let short = write_once(&full, b"{}\n").unwrap_err();
    assert_eq!(short.written, 0);
    let error = AppendError::short(short, PathBuf::from("alice.jsonl"), 3);
    assert!(
        error.to_string().starts_with("only 0 of 3 bytes"),
        "{error}"
    );
    assert!(error.to_string().contains("No space left"), "{error}");
    assert!(error.hint().unwrap().contains("free some space"));
}

/// A pipe takes all of it, and has no position: as if the system refused to tell that of a file.
#[test]
fn a_line_that_was_written_is_not_called_short_because_its_place_cannot_be_seen() {
    let (_scratch, dir) = team();
    let (_reader, writer) = nix::unistd::pipe().unwrap();
    let mut appender = Appender::new(&alice());
    appender.open = Some(OpenInbox {
        file: writer.into(),
        identity: (0, 0),
    });
    let error = appender
        .append(&dir, &message("x"), Durability::Process)
        .unwrap_err();
    assert!(matches!(error, AppendError::Unseen { .. }), "{error}");
    assert!(
        error.hint().unwrap().ends_with("before you send it again"),
        "{error}"
    );
}

#[test]
fn a_fifo_or_a_link_in_the_place_of_an_inbox_blocks_no_writer() {
    let (_scratch, dir) = team();
    std::fs::remove_file(inbox_path(&dir)).unwrap();
    nix::unistd::mkfifo(&inbox_path(&dir), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = append(&dir, &alice(), &message("x"), Durability::Process).unwrap_err();
    assert!(
        matches!(error, AppendError::Dir(DirError::NotAFile(_))),
        "{error}"
    );
    let error = Reader::open(Arc::clone(&dir), &alice(), Position::START).unwrap_err();
    assert!(
        matches!(error, ReadError::Dir(DirError::NotAFile(_))),
        "{error}"
    );
    std::fs::remove_file(inbox_path(&dir)).unwrap();
    std::os::unix::fs::symlink("/dev/null", inbox_path(&dir)).unwrap();
    let error = append(&dir, &alice(), &message("x"), Durability::Process).unwrap_err();
    assert!(
        matches!(error, AppendError::Dir(DirError::Link(_))),
        "{error}"
    );
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
                let mut file = OpenOptions::new()
                    .append(true)
                    .open(inbox_path(&dir))
                    .unwrap();
                while !done.load(Ordering::Relaxed) {
                    file.write_all(b"{\"type\":\"message\",\"from\":\"kil")
                        .unwrap();
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
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write(writer)))
            .collect();
        let ended: Vec<_> = writers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.into_iter().all(|writer| writer.is_ok()));
        taking.join().unwrap()
    });
    let messages: Vec<_> = read
        .iter()
        .filter_map(|line| line.message.as_ref().ok())
        .collect();
    for writer in 0..WRITERS {
        let own = format!("{writer} ");
        let numbers: Vec<usize> = messages
            .iter()
            .filter_map(|it| it.content.strip_prefix(&own)?.parse().ok())
            .collect();
        assert_eq!(numbers, (0..EACH).collect::<Vec<_>>(), "writer {writer}");
    }
    assert_eq!(messages.len(), WRITERS * EACH);
}

#[test]
fn appending_costs_the_same_whatever_the_length() {
    let (_scratch, dir) = team();
    OpenOptions::new()
        .append(true)
        .open(inbox_path(&dir))
        .unwrap()
        .set_len(50 << 20)
        .unwrap();
    let before = bytes_read();
    send(&dir, "one");
    assert!(bytes_read() - before < 1000);
}
