use serde_json::Value;
use teamd_shared::message::IdleReason;

use super::*;

fn scene() -> (tempfile::TempDir, Outbox) {
    let scratch = tempfile::tempdir().unwrap();
    let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
    inbox::create(&dir, &Name::lead()).unwrap();
    let outbox = Outbox::new(dir, Name::new("alice").unwrap(), Durability::Process);
    (scratch, outbox)
}

fn lines(outbox: &Outbox) -> Vec<Value> {
    let bytes = outbox.dir().read(&TeamPath::inbox(&Name::lead())).unwrap();
    bytes
        .split(|&b| b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect()
}

fn idle(content: &str) -> PendingNotice {
    PendingNotice::Idle {
        idle_reason: IdleReason::Available,
        content: content.to_owned(),
        message_id: Uuid::from_u128(1 << 70),
    }
}

#[test]
fn a_notice_carries_the_whole_answer_and_its_first_line() {
    let (_scratch, mut outbox) = scene();
    outbox.notify(idle("\nfixed it\nin three files"), false);
    let line = &lines(&outbox)[0];
    assert_eq!(line["type"], "idle_notification");
    assert_eq!(
        (&line["summary"], &line["content"]),
        (&"fixed it".into(), &"\nfixed it\nin three files".into())
    );
    assert_eq!((&line["from"], &line["idle_reason"]), (&"alice".into(), &"available".into()));
}

#[test]
fn a_notice_that_is_there_is_not_written_again() {
    let (_scratch, mut outbox) = scene();
    outbox.notify(idle("done"), true);
    outbox.notify(idle("done"), true);
    assert_eq!(lines(&outbox).len(), 1);
}

#[test]
fn an_answer_that_is_too_long_for_a_message_is_cut_and_said_so() {
    let (_scratch, mut outbox) = scene();
    outbox.notify(idle(&"→".repeat(1 << 20)), false);
    let content = lines(&outbox)[0]["content"].as_str().unwrap().to_owned();
    assert!(content.starts_with("→→") && content.contains("transcript") && content.len() < CUT + 100);
}

#[test]
fn a_rejected_line_is_told_with_file_offset_and_reason() {
    let (_scratch, mut outbox) = scene();
    let (reason, message_id) = ("not JSON; it is kept".to_owned(), Uuid::from_u128(7));
    outbox.notify(PendingNotice::Rejected { offset: 42, reason, message_id }, false);
    let line = &lines(&outbox)[0];
    let content = line["content"].as_str().unwrap();
    for part in ["inbox/alice.jsonl", "offset 42", "not JSON; it is kept"] {
        assert!(content.contains(part), "{content}");
    }
    assert_eq!((&line["type"], &line["from"]), (&"message".into(), &"alice".into()));
}

#[test]
fn what_cannot_be_written_is_pending_and_told_later_in_order() {
    let (_scratch, mut outbox) = scene();
    let inbox = outbox.dir().path(&TeamPath::inbox(&Name::lead()));
    std::fs::rename(&inbox, inbox.with_extension("aside")).unwrap();
    outbox.notify(idle("one"), false);
    outbox.notify(
        PendingNotice::Rejected { offset: 0, reason: "two".to_owned(), message_id: Uuid::from_u128(8) },
        false,
    );
    assert!(outbox.pending().len() == 2 && outbox.flush().is_err());
    std::fs::rename(inbox.with_extension("aside"), &inbox).unwrap();
    outbox.flush().unwrap();
    let lines = lines(&outbox);
    assert!(outbox.pending().is_empty() && lines.len() == 2);
    assert_eq!(lines[0]["summary"], "one");
    assert!(lines[1]["content"].as_str().unwrap().contains("two"));
}

/// As [`scene`], where what is told must outlive a loss of power.
fn scene_that_lasts() -> (tempfile::TempDir, Outbox) {
    let (scratch, outbox) = scene();
    (scratch, Outbox { durability: Durability::Disk, ..outbox })
}

#[test]
fn what_cannot_be_synced_is_pending_and_not_written_again() {
    let (_scratch, mut outbox) = scene_that_lasts();
    crate::sim::where_no_inbox_can_be_synced(|| {
        outbox.notify(idle("done"), false);
        for _ in 0..3 {
            assert!(outbox.flush().is_err() && outbox.pending().len() == 1);
        }
    });
    outbox.flush().unwrap();
    assert!(outbox.pending().is_empty() && lines(&outbox).len() == 1);
}

#[test]
fn what_an_earlier_incarnation_has_told_is_pending_until_it_lasts() {
    let (_scratch, mut outbox) = scene_that_lasts();
    outbox.notify(idle("done"), false);
    let mut next = Outbox::new(outbox.dir.clone(), outbox.from.clone(), Durability::Disk);
    crate::sim::where_no_inbox_can_be_synced(|| next.notify(idle("done"), true));
    let looked = || next.has_sent(&Name::lead(), Uuid::from_u128(1 << 70)).unwrap_err();
    let told = crate::sim::where_no_inbox_can_be_synced(looked);
    assert!(told.contains("do not send it again"), "{told}");
    assert_eq!(next.pending().len(), 1, "its writer may have been killed before the sync");
    next.flush().unwrap();
    assert!(next.pending().is_empty() && lines(&next).len() == 1);
}

#[test]
fn what_was_sent_and_not_synced_is_found_where_it_stands() {
    let (_scratch, outbox) = scene_that_lasts();
    let message = outbox.message(Uuid::from_u128(6), LEAD, Body::Message);
    outbox.send(&Name::lead(), &message, false).unwrap();
    let message = outbox.message(Uuid::from_u128(7), LEAD, Body::Message);
    let send = || outbox.send(&Name::lead(), &message, true);
    crate::sim::where_no_inbox_can_be_synced(|| assert!(send().is_err() && send().is_err()));
    let line = send().unwrap();
    let found = inbox::read_line_at(outbox.dir(), &Name::lead(), line.offset, line.len).unwrap();
    assert_eq!(Message::parse(&found).unwrap().id, message.id);
    assert_eq!(lines(&outbox).len(), 2);
}
