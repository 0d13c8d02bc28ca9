//! Inboxes that are renamed, replaced or deleted under their reader: what was sent is read.

use super::*;

fn moved(dir: &TeamDir) -> PathBuf {
    inbox_path(dir).with_extension("1")
}

fn rename_away(dir: &TeamDir) {
    std::fs::rename(inbox_path(dir), moved(dir)).unwrap();
}

#[test]
fn what_was_sent_before_a_rename_is_read_before_the_new_file() {
    let (_scratch, dir) = team();
    let mut reader = reader(&dir, Position::START);
    send(&dir, "read");
    assert_eq!(texts(&drain(&mut reader)), ["read"]);
    send(&dir, "sent to the old file");
    rename_away(&dir);
    create(&dir, &alice()).unwrap();
    send(&dir, "sent to the new file");
    let old = reader.read_new().unwrap();
    assert_eq!(
        (texts(&old.lines), old.more),
        (vec!["sent to the old file".to_owned()], true)
    );
    let new = reader.read_new().unwrap();
    assert_eq!(texts(&new.lines), ["sent to the new file"]);
    assert_eq!((new.restarted, new.more), (Some(REPLACED), false));
}

#[test]
fn what_was_sent_before_a_deletion_is_read_before_the_new_file() {
    let (_scratch, dir) = team();
    let mut reader = reader(&dir, Position::START);
    send(&dir, "sent");
    std::fs::remove_file(inbox_path(&dir)).unwrap();
    let batch = reader.read_new().unwrap();
    assert_eq!(
        (texts(&batch.lines), batch.more),
        (vec!["sent".to_owned()], true)
    );
    send(&dir, "back");
    assert_eq!(texts(&drain(&mut reader)), ["back"]);
}

#[test]
fn a_file_that_was_held_is_read_though_two_more_took_its_place() {
    let (_scratch, dir) = team();
    let mut reader = reader(&dir, Position::START);
    for number in 1..=3 {
        send(&dir, &format!("file {number}"));
        reader.follow_path().unwrap();
        std::fs::remove_file(inbox_path(&dir)).unwrap();
        create(&dir, &alice()).unwrap();
    }
    assert_eq!(texts(&drain(&mut reader)), ["file 1", "file 2", "file 3"]);
}

#[test]
fn an_owner_makes_the_inbox_again_and_holds_what_it_made() {
    let (_scratch, dir) = team();
    std::fs::remove_file(inbox_path(&dir)).unwrap();
    let mut owner = Reader::open(Arc::clone(&dir), &alice(), Position::START).unwrap();
    for number in 1..=3 {
        std::fs::remove_file(inbox_path(&dir)).unwrap();
        assert!(drain(&mut owner).is_empty());
        // Another program may rename it before the owner reads it.
        send(&dir, &format!("to what was made {number}"));
        rename_away(&dir);
        assert_eq!(
            texts(&drain(&mut owner)),
            [format!("to what was made {number}")]
        );
        assert!(inbox_path(&dir).exists());
    }
}

#[test]
fn a_copy_that_lacks_the_last_lines_repeats_none_and_loses_none() {
    let (_scratch, dir) = team();
    raw(&dir, &line("one"));
    let mut growing = reader(&dir, Position::START);
    drain(&mut growing);
    // A program copies the inbox, a line without an id comes, and the copy takes the place of the
    // inbox.
    let copy = inbox_path(&dir).with_extension("copy");
    std::fs::copy(inbox_path(&dir), &copy).unwrap();
    raw(&dir, &line("two"));
    std::fs::rename(copy, inbox_path(&dir)).unwrap();
    assert_eq!(texts(&growing.read_new().unwrap().lines), ["two"]);
    let batch = growing.read_new().unwrap();
    assert_eq!(
        (batch.lines.len(), batch.restarted, batch.repeated),
        (0, None, true)
    );
    // The next incarnation begins where this one recorded.
    raw(&dir, &line("three"));
    assert_eq!(texts(&drain(&mut reader(&dir, batch.position))), ["three"]);
    assert_eq!(texts(&drain(&mut growing)), ["three"]);
}

#[test]
fn a_line_that_is_too_long_for_one_look_is_not_left_behind() {
    let (_scratch, dir) = team();
    let mut reader = reader(&dir, Position::START);
    raw(&dir, &vec![b'x'; 6 * MAX_LINE]);
    raw(&dir, &[b"\n", &line("behind")[..]].concat());
    rename_away(&dir);
    create(&dir, &alice()).unwrap();
    send(&dir, "new");
    let lines = drain(&mut reader);
    assert_eq!(
        (lines.len(), texts(&lines[1..])),
        (3, vec!["behind".to_owned(), "new".to_owned()])
    );
}

#[test]
fn half_a_line_of_the_old_file_is_no_line_of_the_new_one() {
    let (_scratch, dir) = team();
    let mut reader = reader(&dir, Position::START);
    raw(&dir, b"{\"type\":\"mess");
    assert!(drain(&mut reader).is_empty());
    rename_away(&dir);
    create(&dir, &alice()).unwrap();
    send(&dir, "whole");
    assert_eq!(texts(&drain(&mut reader)), ["whole"]);
}

#[test]
fn rotations_lose_nothing_that_was_sent() {
    const ROTATIONS: usize = 30;
    let (_scratch, dir) = team();
    let mut reader = reader(&dir, Position::START);
    let over = AtomicBool::new(false);
    let appended = AtomicUsize::new(0);
    let mut read = Vec::new();
    let sent = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut appender = Appender::new(&alice());
            for number in 0_usize.. {
                if over.load(Ordering::Relaxed) {
                    return number;
                }
                let message = message(&number.to_string());
                // Between a rename and the new file there is no inbox. The same id is sent again.
                while let Err(error) = appender.append(&dir, &message, Durability::Process) {
                    assert!(
                        matches!(error, AppendError::NoInbox(_) | AppendError::Unseen { .. }),
                        "{error}"
                    );
                    thread::yield_now();
                }
                appended.store(number + 1, Ordering::Relaxed);
            }
            unreachable!("it writes until it is told to stop")
        });
        for number in 0..ROTATIONS {
            // The writer is at work when the inbox is rotated.
            while appended.load(Ordering::Relaxed) <= number {
                thread::yield_now();
            }
            reader.follow_path().unwrap();
            match number % 3 {
                0 => rename_away(&dir),
                1 => std::fs::remove_file(inbox_path(&dir)).unwrap(),
                _ => {
                    overwrite(inbox_path(&dir).with_extension("new"), b"");
                    std::fs::rename(inbox_path(&dir).with_extension("new"), inbox_path(&dir))
                        .unwrap();
                }
            }
            create(&dir, &alice()).unwrap();
            read.extend(reader.read_new().unwrap().lines);
        }
        over.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    read.extend(drain(&mut reader));
    assert!(sent >= ROTATIONS, "only {sent} were sent");
    assert_eq!(
        texts(&read),
        (0..sent)
            .map(|number| number.to_string())
            .collect::<Vec<_>>()
    );
}
