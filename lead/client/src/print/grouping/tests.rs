use serde_json::{Value, json};
use teamd_shared::testing::roster_member;

use super::*;

const NOW: f64 = 10_000.0;

fn member(status: &str, more: &Value) -> RosterMember {
    let mut member =
        roster_member(&json!({"name": "ana", "status": status, "updated_at": 9_000.0}));
    for (key, value) in more.as_object().unwrap() {
        member[key] = value.clone();
    }
    serde_json::from_value(member).unwrap()
}

fn request(kind: &str, status: &str, payload: &Value) -> Request {
    let (from, to) = if kind == "shutdown" {
        ("lead", "ana")
    } else {
        ("ana", "lead")
    };
    serde_json::from_value(
        json!({"request_id": "7b468522", "kind": kind, "from": from, "to": to, "status": status,
        "payload": payload, "incarnation": 1, "message_id": "018f0000-0000-7000-8000-000000000000",
        "created_at": 9_500.0, "resolved_at": 9_600.0, "reason": "chapter two is not written yet"}),
    )
    .unwrap()
}

fn plan(text: &str) -> Request {
    request("plan_approval", "pending", &json!({"plan": text}))
}

fn refusal() -> Request {
    let payload = json!({"reason": "done", "decide_within": 30.0, "force_after": null});
    request("shutdown", "rejected", &payload)
}

fn stands(member: &RosterMember, facts: Facts<'_>) -> (Group, &'static str, String, f64) {
    let MemberStanding {
        group,
        word,
        what,
        since,
        ..
    } = MemberStanding::of(member, facts, NOW);
    (group, word, what, since)
}

fn at(
    group: Group,
    word: &'static str,
    what: &str,
    since: f64,
) -> (Group, &'static str, String, f64) {
    (group, word, what.to_owned(), since)
}

#[test]
fn a_plan_and_a_rejected_shutdown_need_a_person() {
    let plan = plan("# Plan\n\n1. Split the parser\n");
    let waits = member(
        "awaiting_approval",
        &json!({"activity": "waiting for approval"}),
    );
    let facts = Facts {
        plan: Some(&plan),
        ..Facts::default()
    };
    assert_eq!(
        stands(&waits, facts),
        at(
            Group::NeedsYou,
            "plan",
            "7b468522 1. Split the parser",
            9_500.0
        )
    );
    let again = stands(
        &waits,
        Facts {
            rejected: 1,
            ..facts
        },
    );
    assert_eq!(again.2, "7b468522 try 2: 1. Split the parser");
    let unread = stands(&waits, Facts::default());
    assert_eq!(
        unread,
        at(Group::NeedsYou, "plan", "waiting for approval", 9_000.0)
    );
    let refusal = refusal();
    let facts = Facts {
        refusal: Some(&refusal),
        ..Facts::default()
    };
    let stays = at(
        Group::NeedsYou,
        "stays",
        "rejected the shutdown: chapter two is not written yet",
        9_600.0,
    );
    for status in ["idle", "working"] {
        assert_eq!(stands(&member(status, &json!({})), facts), stays);
    }
    let now = MemberStanding::of(&member("idle", &json!({})), facts, NOW);
    assert_eq!(now.changes_at, Some(9_600.0 + REFUSAL_FADES));
    let later = MemberStanding::of(&member("idle", &json!({})), facts, NOW + REFUSAL_FADES);
    assert_eq!(later.changes_at, None, "an idle team needs no second look");
    assert_eq!((later.group, later.word), (Group::Idle, "idle"));
}

#[test]
fn trouble_is_told_apart_from_rest() {
    let idle = |reason: &str, activity: &str| {
        member(
            "idle",
            &json!({"idle_reason": reason, "activity": activity}),
        )
    };
    let none = Facts::default();
    let failed = idle("failed", "failed: 127.0.0.1:9 refused the connection");
    let refused = "127.0.0.1:9 refused the connection";
    assert_eq!(
        stands(&failed, none),
        at(Group::Stuck, "failed", refused, 9_000.0)
    );
    let limit = idle("max_turns", "stopped: turn limit");
    assert_eq!(
        stands(&limit, none),
        at(Group::Stuck, "limit", "stopped: turn limit", 9_000.0)
    );
    for fine in [
        idle("available", ""),
        idle("interrupted", "interrupted"),
        member("idle", &json!({})),
    ] {
        assert_eq!(stands(&fine, none).0, Group::Idle);
    }
    let silent = member(
        "working",
        &json!({"silent_since": 9_910.0, "activity": "bash: make"}),
    );
    let words = "not responding for 1m30s; bash: make";
    assert_eq!(
        stands(&silent, none),
        at(Group::Stuck, "silent", words, 9_910.0)
    );
    let facts = Facts {
        unnoticed: true,
        ..none
    };
    assert_eq!(
        stands(&silent, facts),
        at(Group::Stuck, "gone", "its process is gone", 9_000.0)
    );
    let exit = json!({"exit": {"code": null, "signal": 9, "at": 1.0, "request_id": null, "unread": 0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}, "note": "3 times"}});
    let crashed = member("crashed", &exit);
    assert_eq!(
        stands(&crashed, none),
        at(Group::Stuck, "crashed", "signal 9; 3 times", 9_000.0)
    );
    assert_eq!(stands(&member("killed", &exit), none).0, Group::Ended);
}

#[test]
fn what_works_says_what_it_does() {
    let waits = json!({"activity": "thinking", "waiting": {"until": NOW + 17.5, "why": "overloaded (529)"}});
    let none = Facts::default();
    let (group, word, what, _) = stands(&member("working", &waits), none);
    assert_eq!(
        (group, word, what.as_str()),
        (Group::Working, "working", "waiting 18 s: overloaded (529)")
    );
    assert_eq!(
        stands(&member("shutting_down", &json!({})), none).1,
        "leaving"
    );
    assert_eq!(
        stands(&member("starting", &json!({})), none).0,
        Group::Working
    );
}

#[test]
fn the_longest_wait_is_first_where_a_person_is_needed_and_names_are_in_natural_order() {
    let row = |group, since, name| {
        (
            MemberStanding {
                group,
                word: "",
                what: String::new(),
                since,
                changes_at: None,
            },
            name,
        )
    };
    let mut rows = [
        row(Group::Idle, 1.0, "w10"),
        row(Group::Idle, 2.0, "w2"),
        row(Group::Stuck, 5.0, "a"),
        row(Group::NeedsYou, 9.0, "b"),
        row(Group::NeedsYou, 8.0, "z"),
        row(Group::Working, 8.0, "x"),
    ];
    rows.sort_by(|(a, name), (b, other)| MemberStanding::order((a, name), (b, other)));
    assert_eq!(
        rows.map(|(_, name)| name),
        ["z", "b", "a", "x", "w2", "w10"]
    );
    let mut names = [
        "w10",
        "w2",
        "w",
        "w2b",
        "w-1",
        "w2a10",
        "w2a9",
        "w02",
        "lead",
        "w99999999999999999999",
    ];
    names.sort_by(|a, b| natural(a, b));
    assert_eq!(
        names,
        [
            "lead",
            "w",
            "w02",
            "w2",
            "w2a9",
            "w2a10",
            "w2b",
            "w10",
            "w99999999999999999999",
            "w-1"
        ]
    );
}

#[test]
fn the_headline_of_a_plan_is_its_first_line_that_says_something() {
    for (plan, line) in [
        ("# Plan\n\nSplit the parser\n", "Split the parser"),
        ("## Plan: split the parser\nfirst", "Plan: split the parser"),
        ("**Plan**\n- Move the lexer\n", "Move the lexer"),
        (
            "1. **Correct the test**, not `sum`",
            "1. Correct the test, not `sum`",
        ),
        ("# Plan\n", "Plan"),
        ("\n\n", ""),
        ("Drop the cache.\nThen rebuild.", "Drop the cache."),
    ] {
        assert_eq!(headline(plan), line, "{plan:?}");
    }
    assert_eq!(headline(&"x".repeat(1 << 20)).len(), HEADLINE);
}
