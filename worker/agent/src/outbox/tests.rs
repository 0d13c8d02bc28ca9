use serde_json::Value;
use teamd_shared::message::{IdleReason, summary_of};
use teamd_shared::team_dir::TeamPath;

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

fn idle(content: &str, repeated: bool) -> PendingNotice {
    let id = Uuid::from_u128(1 << 70);
    let content = content.to_owned();
    let body = Body::IdleNotification {
        idle_reason: IdleReason::Available,
        summary: summary_of(&content),
    };
    PendingNotice {
        id,
        body,
        content,
        repeated,
    }
}

#[test]
fn a_notice_carries_the_whole_answer_and_its_first_line() {
    let (_scratch, outbox) = scene();
    outbox
        .notify(&idle("\nfixed it\nin three files", false))
        .unwrap();
    let line = &lines(&outbox)[0];
    assert_eq!(line["type"], "idle_notification");
    assert_eq!(
        (&line["summary"], &line["content"]),
        (&"fixed it".into(), &"\nfixed it\nin three files".into())
    );
    assert_eq!(
        (&line["from"], &line["idle_reason"]),
        (&"alice".into(), &"available".into())
    );
}

#[test]
fn a_notice_that_is_there_is_not_written_again() {
    let (_scratch, outbox) = scene();
    outbox.notify(&idle("done", true)).unwrap();
    outbox.notify(&idle("done", true)).unwrap();
    assert_eq!(lines(&outbox).len(), 1);
}

#[test]
fn an_answer_that_is_too_long_for_a_message_is_cut_and_said_so() {
    let (_scratch, outbox) = scene();
    outbox.notify(&idle(&"→".repeat(1 << 20), false)).unwrap();
    let content = lines(&outbox)[0]["content"].as_str().unwrap().to_owned();
    assert!(
        content.starts_with("→→") && content.contains("transcript") && content.len() < CUT + 100
    );
}

/// As [`scene`], where what is told must outlive a loss of power.
fn scene_that_lasts() -> (tempfile::TempDir, Outbox) {
    let (scratch, outbox) = scene();
    (
        scratch,
        Outbox {
            durability: Durability::Disk,
            ..outbox
        },
    )
}

#[test]
fn what_cannot_be_synced_is_not_written_again() {
    let (_scratch, outbox) = scene_that_lasts();
    crate::sim::where_no_inbox_can_be_synced(|| {
        for repeated in [false, true, true] {
            assert!(outbox.notify(&idle("done", repeated)).is_err());
        }
    });
    outbox.notify(&idle("done", true)).unwrap();
    assert_eq!(lines(&outbox).len(), 1);
}

#[test]
fn what_an_earlier_incarnation_has_told_is_told_only_when_it_lasts() {
    let (_scratch, outbox) = scene_that_lasts();
    outbox.notify(&idle("done", false)).unwrap();
    let next = Outbox::new(outbox.dir.clone(), outbox.from.clone(), Durability::Disk);
    let again = crate::sim::where_no_inbox_can_be_synced(|| next.notify(&idle("done", true)));
    assert!(
        again.is_err(),
        "its writer may have been killed before the sync"
    );
    let error = crate::sim::where_no_inbox_can_be_synced(|| {
        next.has_sent(&Name::lead(), Uuid::from_u128(1 << 70))
            .unwrap_err()
    });
    assert!(error.contains("do not send it again"), "{error}");
    next.notify(&idle("done", true)).unwrap();
    assert_eq!(lines(&next).len(), 1);
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
    let line_read =
        inbox::read_line_at(outbox.dir(), &Name::lead(), line.offset, line.len).unwrap();
    assert_eq!(Message::parse(&line_read).unwrap().id, message.id);
    assert_eq!(lines(&outbox).len(), 2);
}
