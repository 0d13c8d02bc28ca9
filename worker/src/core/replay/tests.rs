use serde_json::json;
use teamd_shared::transcript::Usage;

use super::*;

fn begins(prompt: Option<&str>) -> Event {
    Event::Incarnation { incarnation: 1, conversation: 1, prompt: prompt.map(str::to_owned) }
}

fn next_incarnation() -> Event {
    Event::Incarnation { incarnation: 2, conversation: 1, prompt: None }
}

fn messages(kinds: &[&str]) -> Event {
    let message = |(at, kind): (usize, &&str)| {
        let id = Uuid::from_u128(at as u128);
        json!({"id": id, "type": kind, "from": "lead", "content": "x", "name": "bob", "request_id": "r1"})
    };
    Event::Messages { messages: kinds.iter().enumerate().map(message).collect() }
}

fn answer(calls: &[&str]) -> Event {
    let call = |(at, name): (usize, &&str)| Block::ToolUse {
        id: at.to_string(),
        name: (*name).to_owned(),
        input: json!({}),
        message_id: None,
        request_id: None,
    };
    let mut content = vec![Block::Text { text: "so be it".to_owned() }];
    content.extend(calls.iter().enumerate().map(call));
    Event::Answer { content, usage: Usage::default(), cut: None, length: None }
}

fn result(id: &str) -> Event {
    Event::Result { tool_use_id: id.to_owned(), content: String::new(), is_error: false }
}

fn idle() -> Event {
    Event::Idle {
        idle_reason: IdleReason::Available,
        content: "done".to_owned(),
        message_id: Uuid::from_u128(9),
    }
}

fn left() -> Event {
    Event::Left { reason: "SIGTERM".to_owned(), incarnation: 1, by_signal: false }
}

fn replayed(events: &[Event]) -> ReplayedState {
    let entry = |(at, event): (usize, &Event)| Entry {
        at: 0.0,
        inbox: Position { offset: at as u64, tail: 0 },
        pending_notices: Vec::new(),
        event: event.clone(),
    };
    ReplayedState::of(&Name::new("alice").unwrap(), &events.iter().enumerate().map(entry).collect::<Vec<_>>())
}

fn names(replayed: &ReplayedState) -> Vec<&str> {
    replayed.calls.iter().map(|call| call.name.as_str()).collect()
}

#[test]
fn work_stands_where_the_last_entry_left_it() {
    let turn = |results| At::Turn { results };
    let done = At::Done(IdleReason::Available);
    let message = || messages(&["message"]);
    let cases: Vec<(Vec<Event>, At)> = vec![
        (vec![begins(None)], At::Idle),
        (vec![begins(Some("go"))], turn(false)),
        (vec![begins(None), messages(&["teammate_terminated"])], At::Idle),
        (vec![begins(None), messages(&["shutdown_request"])], At::Idle),
        (vec![begins(None), message()], turn(false)),
        (vec![begins(None), message(), next_incarnation()], turn(false)),
        (vec![begins(None), message(), answer(&[])], done.clone()),
        (vec![begins(None), message(), answer(&["bash"])], At::Call),
        (vec![begins(None), message(), answer(&["bash", "bash"]), result("0")], At::Call),
        (vec![begins(None), message(), answer(&["bash"]), result("0")], turn(true)),
        (vec![begins(None), message(), answer(&["bash"]), message(), result("0")], turn(true)),
        (vec![begins(None), message(), answer(&[]), idle()], At::Idle),
        (vec![begins(None), message(), answer(&["bash"]), result("0"), left(), next_incarnation()], At::Idle),
        (vec![begins(None), message(), answer(&[]), idle(), messages(&["unheard_of"])], turn(false)),
    ];
    for (events, at) in cases {
        assert_eq!(replayed(&events).at, at, "{events:?}");
    }
}

#[test]
fn a_piece_of_work_keeps_its_count_of_turns_across_incarnations() {
    let events = [begins(Some("go")), answer(&["bash"]), result("0"), next_incarnation(), answer(&[])];
    assert_eq!(replayed(&events).turns, 2);
    let more = [&events[..], &[idle(), messages(&["message"])]].concat();
    assert_eq!(replayed(&more).turns, 0);
}

#[test]
fn what_an_answer_cost_that_did_not_come_counts_and_the_work_stands_as_before() {
    let usage = Usage { input_tokens: 7, cache_read_input_tokens: 100, ..Usage::default() };
    let before = [begins(Some("go")), answer(&["bash"]), result("0")];
    let after = [&before[..], &[Event::Charged { usage }, next_incarnation()]].concat();
    let (before, after) = (replayed(&before), replayed(&after));
    assert_eq!((&after.at, after.turns), (&before.at, before.turns));
    assert_eq!((after.spent, after.usage.cache_read_input_tokens), (before.spent + 7, 100));
    let next = replayed(&[begins(Some("go")), Event::Charged { usage }, idle(), messages(&["message"])]);
    assert_eq!((next.spent, next.usage), (0, usage), "a budget is that of a piece of work");
}

#[test]
fn a_command_that_may_have_run_is_answered_and_not_run_again() {
    let mut after = replayed(&[begins(Some("go")), answer(&["bash", "write_file", "send_message"])]);
    let texts: Vec<_> = after.interrupted().into_iter().map(|it| (it.tool_use_id, it.content)).collect();
    assert_eq!(texts.len(), 2);
    assert!(texts[0].0 == "0" && texts[0].1.contains("may have run"), "{texts:?}");
    assert!(texts[1].0 == "1" && texts[1].1.starts_with("not run"), "{texts:?}");
    assert_eq!((names(&after), &after.at), (vec!["send_message"], &At::Call));
}

#[test]
fn what_sends_is_repeated_and_what_stands_behind_it_follows() {
    for tool in ["send_message", "plan_approval", "shutdown_response"] {
        let mut after = replayed(&[begins(Some("go")), answer(&[tool, "bash"])]);
        assert!(after.interrupted().is_empty());
        assert_eq!((names(&after), &after.at), (vec![tool, "bash"], &At::Call));
    }
}

#[test]
fn without_open_calls_the_model_is_asked_with_the_results() {
    let mut after = replayed(&[begins(Some("go")), answer(&["bash"])]);
    assert_eq!(after.interrupted().len(), 1);
    assert_eq!(after.at, At::Turn { results: true });
    let mut before = replayed(&[begins(Some("go"))]);
    assert!(before.interrupted().is_empty());
    assert_eq!(before.at, At::Turn { results: false });
}

#[test]
fn a_notice_is_pending_as_long_as_the_entries_that_follow_say_so() {
    let mut replayed = replayed(&[begins(None), idle()]);
    let pending_notices = [replayed.pending_notices[0].id()];
    replayed.follow(&messages(&["message"]), &pending_notices);
    replayed.follow(&next_incarnation(), &pending_notices);
    assert!(matches!(replayed.pending_notices[..], [PendingNotice::Idle { .. }]));
    replayed.follow(&messages(&["message"]), &[]);
    assert!(replayed.pending_notices.is_empty());
}

#[test]
fn a_notice_is_pending_only_while_no_entry_followed_its_own() {
    let rejected =
        Event::Rejected { offset: 4, reason: "not JSON".to_owned(), message_id: Uuid::from_u128(7) };
    assert!(matches!(
        replayed(&[begins(None), idle()]).pending_notices.last(),
        Some(PendingNotice::Idle { .. })
    ));
    assert!(matches!(
        replayed(&[begins(None), idle(), next_incarnation()]).pending_notices.last(),
        Some(PendingNotice::Idle { .. })
    ));
    assert!(matches!(
        replayed(&[begins(None), rejected.clone()]).pending_notices.last(),
        Some(PendingNotice::Rejected { offset: 4, .. })
    ));
    for follower in [messages(&["message"]), rejected, left()] {
        assert!(!matches!(
            replayed(&[begins(None), idle(), follower]).pending_notices.last(),
            Some(PendingNotice::Idle { .. })
        ));
    }
}

#[test]
fn cursor_and_ids_are_those_of_what_was_taken_in() {
    let after = replayed(&[begins(None), messages(&["message", "broadcast"]), next_incarnation()]);
    assert_eq!(after.cursor.offset, 2);
    assert_eq!(after.seen, [Uuid::from_u128(0), Uuid::from_u128(1)]);
    assert_eq!(replayed(&[]).cursor, Position::START);
}

#[test]
fn what_wakes_the_lead_agent_is_work_that_it_goes_on_with() {
    let line = |kind: &str| serde_json::json!({"type": kind, "from": "bob", "content": "x", "name": "bob"});
    let of = |owner: Name, kind: &str| {
        let event = Event::Messages { messages: vec![line(kind)] };
        ReplayedState::of(
            &owner,
            &[Entry { at: 1.0, inbox: Position::START, pending_notices: Vec::new(), event }],
        )
        .at
    };
    assert_eq!(of(Name::lead(), "idle_notification"), At::Turn { results: false });
    assert_eq!(of(Name::lead(), "teammate_terminated"), At::Idle);
}

#[test]
fn the_lead_agent_asks_again_what_the_daemon_takes_for_the_same() {
    let interrupted = |tool: &str| {
        let calls = vec![Block::ToolUse {
            id: "c1".to_owned(),
            name: tool.to_owned(),
            input: serde_json::json!({}),
            message_id: None,
            request_id: None,
        }];
        let event = Event::Answer { content: calls, usage: Usage::default(), cut: None, length: None };
        ReplayedState::of(
            &Name::lead(),
            &[Entry { at: 1.0, inbox: Position::START, pending_notices: Vec::new(), event }],
        )
        .interrupted()
        .len()
    };
    for (tool, results) in [
        ("spawn_teammate", 1),
        ("request_plan", 1),
        ("bash", 1),
        ("shutdown_request", 1),
        ("plan_approval", 0),
    ] {
        assert_eq!(interrupted(tool), results, "{tool}");
    }
}
