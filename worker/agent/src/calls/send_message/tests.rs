use std::sync::Arc;
use std::task::Poll;

use serde_json::{Value, json};
use teamd_shared::inbox::Durability;
use teamd_shared::process::Identity;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::testing::roster_member;

use teamd_shared::inbox;

use super::*;
use teamd_worker_core::tools::Outcome;

struct Scene {
    _scratch: tempfile::TempDir,
    outbox: Outbox,
}

fn team(members: &[(&str, &str)]) -> Scene {
    let scratch = tempfile::tempdir().unwrap();
    let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
    let roster: Vec<Value> = members
        .iter()
        .map(|(name, status)| roster_member(&json!({"name": name, "status": status})))
        .collect();
    write_roster(&dir, &roster);
    inbox::create(&dir, &Name::lead()).unwrap();
    for (name, _) in members {
        inbox::create(&dir, &Name::new(name).unwrap()).unwrap();
    }
    let outbox = Outbox::new(dir, Name::new("alice").unwrap(), Durability::Process);
    Scene {
        _scratch: scratch,
        outbox,
    }
}

fn write_roster(dir: &TeamDir, members: &[Value]) {
    let me = Identity::of_self().unwrap();
    let daemon = json!({"pid": me.pid, "start_ticks": me.start_ticks, "boot_id": me.boot_id, "started_at": 1.0});
    let roster =
        json!({"version": 1, "seq": 1, "team_name": "t", "daemon": daemon, "members": members});
    teamd_shared::fs::replace(dir, &TeamPath::config(), roster.to_string().as_bytes()).unwrap();
}

/// What the first incarnation sends.
const LETTER: Letter<'static> = Letter {
    id: Uuid::from_u128(5),
    repeated: false,
    content: "hello",
};

fn send(team: &Scene, to: &str) -> Outcome {
    send_letter(team, to, LETTER)
}

/// As an incarnation does that goes on after a crash.
fn send_again(team: &Scene, to: &str) -> Outcome {
    send_letter(
        team,
        to,
        Letter {
            repeated: true,
            ..LETTER
        },
    )
}

fn send_letter(team: &Scene, to: &str, letter: Letter<'_>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime
        .block_on(send_message(&team.outbox, to, letter))
        .into()
}

fn lines(team: &Scene, owner: &str) -> Vec<Value> {
    let bytes = team
        .outbox
        .dir()
        .read(&TeamPath::inbox(&Name::of_inbox(owner).unwrap()))
        .unwrap();
    bytes
        .split(|&b| b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect()
}

#[test]
fn a_running_teammate_gets_the_line_under_the_given_id() {
    let team = team(&[("alice", "working"), ("bob", "idle")]);
    let outcome = send(&team, "bob");
    assert!(!outcome.is_error, "{outcome:?}");
    let line = &lines(&team, "bob")[0];
    assert_eq!(line["id"], json!(Uuid::from_u128(5)));
    assert_eq!(
        (&line["from"], &line["to"], &line["content"]),
        (&json!("alice"), &json!("bob"), &json!("hello"))
    );
}

#[test]
fn a_message_to_another_machine_is_said_to_be_on_its_way() {
    let team = team(&[("bob", "idle"), ("carol", "idle"), ("dave", "idle")]);
    let on_host = |name: &str, host: Value, since: Value| {
        let fields =
            json!({"name": name, "status": "idle", "host": host, "unreachable_since": since});
        roster_member(&fields)
    };
    let mut roster = vec![
        on_host("bob", json!("box"), Value::Null),
        on_host("carol", json!("gpu"), json!(7.0)),
        on_host("dave", Value::Null, Value::Null),
    ];
    write_roster(team.outbox.dir(), &roster);
    assert_eq!(send(&team, "bob").content, "on its way to bob, on box");
    let waits = send(&team, "carol");
    assert!(!waits.is_error, "{waits:?}");
    assert!(waits.content.starts_with("waiting for gpu"), "{waits:?}");
    assert_eq!(send(&team, "dave").content, "sent to dave");
    // Of a sender on that host.
    roster.push(on_host("alice", json!("box"), Value::Null));
    write_roster(team.outbox.dir(), &roster);
    assert_eq!(send(&team, "bob").content, "sent to bob");
    let home = send(&team, "dave").content;
    assert_eq!(home, "on its way to dave, on another machine");
}

#[test]
fn lead_and_user_are_reached_through_the_leads_inbox() {
    let team = team(&[]);
    assert!(!send(&team, "lead").is_error && !send(&team, "user").is_error);
    let receivers: Vec<_> = lines(&team, "lead")
        .into_iter()
        .map(|line| line["to"].clone())
        .collect();
    assert_eq!(receivers, [json!("lead"), json!("user")]);
}

#[test]
fn no_line_is_written_to_an_unknown_or_ended_member_or_the_sender() {
    let team = team(&[("alice", "working"), ("carol", "shutdown")]);
    for (to, told) in [
        ("bob", "there is no teammate named bob"),
        ("../x", "there is no teammate named ../x"),
        ("carol", "carol is not running (shutdown)"),
        ("alice", "yourself"),
    ] {
        let outcome = send(&team, to);
        assert!(
            outcome.is_error && outcome.content.contains(told),
            "{outcome:?}"
        );
    }
    assert!(lines(&team, "carol").is_empty());
    assert!(
        team.outbox
            .dir()
            .identity(&TeamPath::inbox(&Name::new("bob").unwrap()))
            .unwrap()
            .is_none()
    );
}

/// Sends to bob, whose entry in the roster changes between the append and the second look.
fn send_while(changes: impl FnOnce(&Scene)) -> String {
    let team = team(&[("alice", "working"), ("bob", "idle")]);
    let before = Roster::load(team.outbox.dir()).unwrap().unwrap();
    let bob = before.member(&Name::new("bob").unwrap()).unwrap();
    let line = append(&team.outbox, "bob", &bob.name, LETTER).unwrap();
    changes(&team);
    check_delivery(
        &team.outbox,
        bob,
        line,
        &roster(Roster::load(team.outbox.dir())),
    )
    .unwrap_err()
}

#[test]
fn what_becomes_of_a_message_is_told_from_a_second_look_at_the_roster() {
    let bob_is = |change: Value| {
        move |team: &Scene| {
            let me = Identity::of_self().unwrap();
            let mut bob = roster_member(&json!({"name": "bob", "status": "idle",
                "pid": me.pid, "start_ticks": me.start_ticks}));
            bob.as_object_mut()
                .unwrap()
                .extend(change.as_object().unwrap().clone());
            write_roster(team.outbox.dir(), &[bob]);
        }
    };
    let exit = |offset: u64| {
        json!({"code": null, "signal": 9, "at": 1.0, "request_id": null, "unread": 1,
            "inbox": {"offset": offset, "tail": "0000000000000000"}, "note": null})
    };
    for (change, expected) in [
        (
            json!({"status": "shutdown", "exit": exit(0)}),
            "waits for its next incarnation",
        ),
        (
            json!({"status": "shutdown", "exit": exit(9999)}),
            "only a resume reads it",
        ),
        (
            json!({"spawned_seq": 9, "last_exit": exit(9999)}),
            "spawned again",
        ),
        // Its process is gone, and the policy may start it again.
        (
            json!({"start_ticks": 1}),
            "find out before you send it again",
        ),
    ] {
        let outcome = send_while(bob_is(change));
        assert!(
            outcome.contains("in its inbox") || outcome.contains("in the inbox of bob"),
            "{outcome}"
        );
        assert!(outcome.contains(expected), "{outcome}");
    }
    let outcome = send_while(|team| {
        std::fs::remove_file(team.outbox.dir().path(&TeamPath::config())).unwrap()
    });
    assert!(
        outcome.ends_with("find out before you send it again"),
        "{outcome}"
    );
}

#[test]
fn a_repeated_call_that_finds_its_receiver_ended_says_that_the_message_is_there() {
    let team = team(&[("alice", "working"), ("bob", "idle")]);
    assert!(!send(&team, "bob").is_error);
    let ended = roster_member(&json!({"name": "bob", "status": "shutdown"}));
    write_roster(team.outbox.dir(), &[ended]);
    let again = send_again(&team, "bob");
    assert!(
        again
            .content
            .starts_with("sent to bob before the worker was restarted"),
        "{again:?}"
    );
    assert!(again.content.contains("may not have read it"), "{again:?}");
    assert_eq!(lines(&team, "bob").len(), 1);
}

/// A teammate that began afresh since the first line knows nothing of its id: it would consume a
/// second line.
#[test]
fn a_repeated_call_whose_line_stands_in_the_inbox_writes_no_second_one() {
    let team = team(&[("alice", "working"), ("bob", "idle"), ("carol", "idle")]);
    for (to, owner) in [("bob", "bob"), ("lead", "lead"), ("user", "lead")] {
        let count = lines(&team, owner).len();
        let letter = Letter {
            id: Uuid::new_v4(),
            ..LETTER
        };
        send_letter(&team, to, letter);
        let again = send_letter(
            &team,
            to,
            Letter {
                repeated: true,
                ..letter
            },
        );
        assert!(!again.is_error, "{again:?}");
        assert!(
            again
                .content
                .starts_with(&format!("sent to {to} before the worker was restarted")),
            "{again:?}"
        );
        assert_eq!(lines(&team, owner).len(), count + 1, "{to}");
    }
    // Its first incarnation came as far as bob.
    let sent = team
        .outbox
        .message(LETTER.id, ALL, Body::Broadcast)
        .with_content(LETTER.content);
    for owner in ["lead", "bob"] {
        team.outbox
            .send(&Name::of_inbox(owner).unwrap(), &sent, false)
            .unwrap();
    }
    let counts = || ["lead", "bob", "carol"].map(|owner| lines(&team, owner).len());
    let [lead, bob, carol] = counts();
    let again = send_again(&team, "all");
    assert_eq!(
        again,
        Outcome::ok(
            "sent to carol; sent to lead, bob before the worker was restarted, and not a second time (a teammate that \
             ended or was spawned again since then may not have read it)"
        )
    );
    assert_eq!(counts(), [lead, bob, carol + 1]);
}

#[test]
fn a_repeated_call_whose_line_is_not_there_sends_it() {
    let team = team(&[("alice", "working"), ("bob", "idle")]);
    assert_eq!(send_again(&team, "bob"), Outcome::ok("sent to bob"));
    assert_eq!(lines(&team, "bob")[0]["id"], json!(LETTER.id));
    // It is not known whether a second one would be read: none is sent.
    let inbox = team
        .outbox
        .dir()
        .path(&TeamPath::inbox(&Name::new("bob").unwrap()));
    std::fs::remove_file(&inbox).unwrap();
    std::fs::create_dir(&inbox).unwrap();
    let again = send_again(&team, "bob");
    assert!(
        again.is_error && again.content.contains("cannot be seen"),
        "{again:?}"
    );
}

#[test]
fn a_broadcast_reaches_the_lead_and_all_others_who_run() {
    let team = team(&[
        ("alice", "working"),
        ("bob", "idle"),
        ("carol", "crashed"),
        ("dave", "working"),
    ]);
    assert_eq!(send(&team, "all").content, "sent to lead, bob, dave");
    for (owner, count) in [
        ("lead", 1),
        ("alice", 0),
        ("bob", 1),
        ("carol", 0),
        ("dave", 1),
    ] {
        assert_eq!(lines(&team, owner).len(), count, "{owner}");
    }
    assert_eq!(lines(&team, "bob")[0]["type"], json!("broadcast"));
}

#[tokio::test]
async fn a_broadcast_leaves_room_for_others_after_each_receiver() {
    let team = team(&[("alice", "working"), ("bob", "idle"), ("carol", "idle")]);
    let mut sending = std::pin::pin!(send_message(&team.outbox, ALL, LETTER));
    for reached in [
        ["lead"].as_slice(),
        &["lead", "bob"],
        &["lead", "bob", "carol"],
    ] {
        let polled =
            std::future::poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await;
        assert!(polled.is_pending());
        let have = ["lead", "bob", "carol"]
            .into_iter()
            .filter(|name| !lines(&team, name).is_empty());
        assert_eq!(have.collect::<Vec<_>>(), reached);
    }
    assert_eq!(sending.await.unwrap(), "sent to lead, bob, carol");
}

#[tokio::test]
async fn what_becomes_of_a_broadcast_is_told_from_a_second_look_at_the_roster() {
    let names = ["alice", "bob", "carol", "dave", "erin"];
    let team = team(&names.map(|name| (name, "idle")));
    for second in [true, false] {
        let mut members = names
            .map(|name| roster_member(&json!({"name": name, "status": "idle", "spawned_seq": 7})));
        write_roster(team.outbox.dir(), &members);
        let mut sending = std::pin::pin!(send_message(&team.outbox, ALL, LETTER));
        for _ in ["lead", "bob", "carol", "dave", "erin"] {
            let polled =
                std::future::poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await;
            assert!(polled.is_pending());
        }
        members[1]["status"] = json!("shutdown");
        members[2]["spawned_seq"] = json!(9);
        // Started again by the policy: it reads what is unread.
        members[3]["incarnation"] = json!(2);
        write_roster(team.outbox.dir(), &members);
        if !second {
            std::fs::remove_file(team.outbox.dir().path(&TeamPath::config())).unwrap();
        }
        let error = sending.await.unwrap_err();
        if second {
            assert!(
                error.starts_with(
                    "sent to lead, dave, erin; bob ended while the message was sent: the message is in its inbox"
                ),
                "{error}"
            );
            assert!(
                error.contains("the message is in the inbox of carol, but it was"),
                "{error}"
            );
        } else {
            assert!(
                error.starts_with("sent to lead; the message is in the inbox of bob"),
                "{error}"
            );
            assert!(
                error.contains(
                    "in the inbox of erin, but whether it reads the message cannot be seen: cannot read the roster"
                ),
                "{error}"
            );
        }
    }
}
