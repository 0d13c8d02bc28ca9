//! What a receiver did not read before its end comes back to the sender, once.

use serde_json::{Value, json};

use crate::support::Team;
use crate::support::look::HELD;

/// Returns what has come back to the owner of an inbox.
fn came_back(team: &Team, inbox: &str) -> Vec<Value> {
    let mut lines = team.inbox(inbox);
    lines.retain(|line| line["type"] == "returned");
    lines
}

/// Starts bob, and alice, who works and reads nothing; the person and bob write to her.
fn with_unread_mail() -> Team {
    let team = Team::new().with("TEAM_GRACE", "300ms");
    team.teamd(["start"]).ok();
    team.spawn("bob", "");
    team.spawn("alice", HELD);
    team.until_held();
    team.send("alice", "the log is too long");
    team.does("bob", "/send_message alice the tests are green");
    team.teamctl(["broadcast", "to all"]).ok();
    team
}

fn sent(team: &Team, text: &str) -> Value {
    let mail = team.inbox("alice");
    mail.into_iter()
        .find(|line| line["content"] == text)
        .unwrap()
}

/// Tells whether the mail of both senders has come back, and nothing else.
fn check_returned(team: &Team) {
    for (inbox, to, text) in [
        ("lead", "lead", "the log is too long"),
        ("bob", "bob", "the tests are green"),
    ] {
        team.until("mail to come back", || !came_back(team, inbox).is_empty());
        let back = came_back(team, inbox);
        let [line] = back.as_slice() else {
            panic!("{back:?}")
        };
        assert_eq!(line["message_id"], sent(team, text)["id"], "{line}");
        let shown = ["from", "to", "name", "why", "text"].map(|field| line[field].clone());
        let expected = ["teamd", to, "alice", "killed", text].map(|it| json!(it));
        assert_eq!(shown, expected, "{line}");
    }
}

#[test]
fn unread_mail_comes_back_and_starts_no_turn() {
    let team = with_unread_mail();
    team.wait_for("bob", "idle");
    let answers = team.answers("bob");
    team.teamctl(["shutdown", "alice", "--force", "--timeout", "0"])
        .ok();
    check_returned(&team);
    team.until("bob to have it", || {
        let consumed = team.consumed("bob");
        consumed.iter().any(|line| line["type"] == "returned")
    });
    assert_eq!(
        (team.answers("bob"), team.status("bob")),
        (answers, "idle".to_owned())
    );
    // What comes back does not come back itself.
    team.shutdown("bob", &[], 0);
    let shown = team.teamctl(["inbox", "--last", "20"]).ok().stdout;
    assert!(shown.contains("returned killed"), "{shown}");
    // The conversation that a person continues reads it after all, which is said.
    let resumed = team.teamctl(["spawn", "alice", "--resume"]).ok();
    let notes = format!("{}{}", resumed.stdout, resumed.stderr);
    assert!(notes.contains("2 messages that had come back"), "{notes}");
    team.until("alice to read it", || {
        let consumed = team.consumed("alice");
        consumed
            .iter()
            .any(|line| line["content"] == "the log is too long")
    });
    team.release();
    team.shutdown("alice", &["--force"], 0);
    check_returned(&team);
}

#[test]
fn a_daemon_that_is_killed_in_between_returns_mail_once() {
    let team = with_unread_mail();
    // It ends without a daemon, and the next daemon finds it gone.
    let pid = team.pid("alice");
    team.teamctl(["shutdown", "alice", "--no-wait"]).ok();
    team.kill_daemon();
    crate::support::signal(pid, nix::sys::signal::Signal::SIGTERM);
    team.until("alice to be gone", || !crate::support::is_alive(pid));
    team.teamd(["start"]).ok();
    check_returned(&team);
    // Another start does nothing again.
    team.kill_daemon();
    team.teamd(["start"]).ok();
    check_returned(&team);
}

#[test]
fn mail_that_was_read_and_mail_to_one_that_is_restarted_stay() {
    let team = Team::started();
    team.spawn("alice", "");
    team.does("alice", "hello");
    team.kill_and_wait_for_restart("alice");
    team.shutdown("alice", &[], 0);
    assert_eq!(came_back(&team, "lead"), Vec::<Value>::new());
    // What is queued after her end waits for her next incarnation, or comes back when there is none.
    team.teamctl(["send", "alice", "--queue", "later"]).ok();
    team.teamctl(["forget", "alice"]).ok();
    let back = came_back(&team, "lead");
    assert_eq!(back.len(), 1, "{back:?}");
    assert_eq!(
        (&back[0]["why"], &back[0]["text"]),
        (&json!("forgotten"), &json!("later"))
    );
}
