use serde_json::json;
use teamd_shared::message::RUNTIME;
use teamd_shared::transcript::Usage;

use super::*;
use crate::cut::CONTINUE;

fn begins(prompt: Option<&str>) -> Event {
    Event::Incarnation {
        incarnation: 1,
        conversation: 1,
        prompt: prompt.map(str::to_owned),
        tools: teamd_shared::tool_set::ToolSet::default(),
    }
}

fn next_incarnation() -> Event {
    Event::Incarnation {
        incarnation: 2,
        conversation: 1,
        prompt: None,
        tools: teamd_shared::tool_set::ToolSet::default(),
    }
}

fn messages(kinds: &[&str]) -> Event {
    Event::Messages {
        messages: kinds.iter().enumerate().map(|(at, kind)| {
        let id = Uuid::from_u128(at as u128);
        json!({"id": id, "type": kind, "from": "lead", "content": "x", "name": "bob", "request_id": "r1"})
    }).collect(),
    }
}

fn answer(calls: &[&str]) -> Event {
    let mut content = vec![Block::Text {
        text: "so be it".to_owned(),
    }];
    content.extend(calls.iter().enumerate().map(|(at, name)| Block::ToolUse {
        id: at.to_string(),
        name: (*name).to_owned(),
        input: json!({}),
        message_id: None,
        request_id: None,
    }));
    Event::Answer {
        content,
        usage: Usage::default(),
        cut: None,
        length: None,
        model_calls: 1,
    }
}

fn result(id: &str) -> Event {
    Event::Result {
        tool_use_id: id.to_owned(),
        content: String::new(),
        is_error: false,
        images: Vec::new(),
        killed_for_memory: None,
    }
}

fn idle() -> Event {
    Event::Idle {
        idle_reason: IdleReason::Available,
        content: "done".to_owned(),
        message_id: Uuid::from_u128(9),
        goes_on: false,
    }
}

fn left() -> Event {
    Event::Left {
        reason: "SIGTERM".to_owned(),
        incarnation: 1,
        by_signal: false,
        goes_on: false,
    }
}

fn entry((at, event): (usize, &Event)) -> Entry {
    let inbox = Position {
        offset: at as u64,
        tail: 0,
    };
    Entry {
        at: 0.0,
        inbox,
        pending_notices: Vec::new(),
        call: None,
        model: None,
        event: event.clone(),
    }
}

fn replayed_of(owner: Name, events: &[Event]) -> WorkProgress {
    let mut work = WorkProgress::new(owner);
    for it in events.iter().enumerate() {
        work.replay(&entry(it));
    }
    work
}

fn replayed(events: &[Event]) -> WorkProgress {
    replayed_of(Name::new("alice").unwrap(), events)
}

/// Follows the results that calls get because their incarnation ended; returns them.
fn interrupted(work: &mut WorkProgress) -> Vec<(String, String)> {
    let results = work.interrupted();
    for result in results.iter() {
        work.follow(result);
    }
    results
        .into_iter()
        .map(|result| match result {
            Event::Result {
                tool_use_id,
                content,
                ..
            } => (tool_use_id, content),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn is_idle(notice: &PendingNotice) -> bool {
    matches!(notice.body, Body::IdleNotification { .. })
}

fn names(replayed: &WorkProgress) -> Vec<&str> {
    replayed
        .calls
        .iter()
        .map(|call| call.name.as_str())
        .collect()
}

#[test]
fn work_stands_where_the_last_entry_left_it() {
    let turn = |results| At::Turn { results };
    let done = At::Done(IdleReason::Available);
    let message = || messages(&["message"]);
    let cases: Vec<(Vec<Event>, At)> = vec![
        (vec![begins(None)], At::Idle),
        (vec![begins(Some("go"))], turn(false)),
        (
            vec![begins(None), messages(&["teammate_terminated"])],
            At::Idle,
        ),
        (
            vec![begins(None), messages(&["shutdown_request"])],
            At::Idle,
        ),
        (vec![begins(None), message()], turn(false)),
        (
            vec![begins(None), message(), next_incarnation()],
            turn(false),
        ),
        (vec![begins(None), message(), answer(&[])], done.clone()),
        (vec![begins(None), message(), answer(&["bash"])], At::Call),
        (
            vec![
                begins(None),
                message(),
                answer(&["bash", "bash"]),
                result("0"),
            ],
            At::Call,
        ),
        (
            vec![begins(None), message(), answer(&["bash"]), result("0")],
            turn(true),
        ),
        (
            vec![
                begins(None),
                message(),
                answer(&["bash"]),
                message(),
                result("0"),
            ],
            turn(true),
        ),
        (vec![begins(None), message(), answer(&[]), idle()], At::Idle),
        (
            vec![
                begins(None),
                message(),
                answer(&["bash"]),
                result("0"),
                left(),
                next_incarnation(),
            ],
            At::Idle,
        ),
        (
            vec![
                begins(None),
                message(),
                answer(&[]),
                idle(),
                messages(&["unheard_of"]),
            ],
            turn(false),
        ),
    ];
    for (events, at) in cases {
        assert_eq!(replayed(&events).at, at, "{events:?}");
    }
}

#[test]
fn a_piece_of_work_keeps_its_count_of_turns_across_incarnations() {
    let events = [
        begins(Some("go")),
        answer(&["bash"]),
        result("0"),
        next_incarnation(),
        answer(&[]),
    ];
    assert_eq!(replayed(&events).turns, 2);
    let more = [&events[..], &[idle(), messages(&["message"])]].concat();
    assert_eq!(replayed(&more).turns, 0);
}

#[test]
fn what_an_answer_cost_that_did_not_come_counts_and_the_work_stands_as_before() {
    let usage = Usage {
        input_tokens: 7,
        cache_read_input_tokens: 100,
        ..Usage::default()
    };
    let before = [begins(Some("go")), answer(&["bash"]), result("0")];
    let after = [
        &before[..],
        &[
            Event::Charged {
                usage,
                model_calls: 0,
            },
            next_incarnation(),
        ],
    ]
    .concat();
    let before = replayed(&before);
    let after = replayed(&after);
    assert_eq!((&after.at, after.turns), (&before.at, before.turns));
    assert_eq!(
        (
            after.spent.all().billed(),
            after.usage.all().cache_read_input_tokens
        ),
        (before.spent.all().billed() + 7, 100)
    );
    let next = replayed(&[
        begins(Some("go")),
        Event::Charged {
            usage,
            model_calls: 0,
        },
        idle(),
        messages(&["message"]),
    ]);
    assert_eq!(
        (next.spent.all(), next.usage.all()),
        (Usage::default(), usage),
        "a budget is that of a piece of work"
    );
}

#[test]
fn a_command_that_may_have_run_is_answered_and_not_run_again() {
    let mut after = replayed(&[
        begins(Some("go")),
        answer(&["bash", "write_file", "send_message"]),
    ]);
    let texts = interrupted(&mut after);
    assert_eq!(texts.len(), 2);
    assert!(
        texts[0].0 == "0" && texts[0].1.contains("may have run"),
        "{texts:?}"
    );
    assert!(
        texts[1].0 == "1" && texts[1].1.starts_with("not run"),
        "{texts:?}"
    );
    assert_eq!(
        (names(&after), &after.at),
        (vec!["send_message"], &At::Call)
    );
}

#[test]
fn what_sends_is_repeated_and_what_stands_behind_it_follows() {
    for tool in ["send_message", "plan_approval", "shutdown_response"] {
        let mut after = replayed(&[begins(Some("go")), answer(&[tool, "bash"])]);
        assert!(interrupted(&mut after).is_empty());
        assert_eq!((names(&after), &after.at), (vec![tool, "bash"], &At::Call));
    }
}

#[test]
fn an_answer_beside_a_call_changes_nothing_but_what_it_cost_and_its_calls_stand_behind_it() {
    let beside = |id: &str, name: &str| Event::Answer {
        content: vec![Block::ToolUse {
            id: id.to_owned(),
            name: name.to_owned(),
            input: json!({}),
            message_id: None,
            request_id: None,
        }],
        usage: Usage {
            output_tokens: 5,
            ..Usage::default()
        },
        cut: None,
        length: None,
        model_calls: 1,
    };
    let plan = [begins(Some("go")), answer(&["plan_approval"])];
    let events = [&plan[..], &[beside("w", "Write"), answer(&[])]].concat();
    let mut work = replayed(&events);
    assert_eq!(
        (names(&work), &work.at, work.turns),
        (vec!["plan_approval", "Write"], &At::Call, 3)
    );
    assert_eq!(work.spent.own.output_tokens, 5);
    work.follow(&result("w"));
    assert_eq!((names(&work), &work.at), (vec!["plan_approval"], &At::Call));
    work.follow(&result("0"));
    assert_eq!(work.at, At::Turn { results: true });
    // A call that still runs when the verdict comes is next.
    let mut work = replayed(&events);
    work.follow(&result("0"));
    assert_eq!((names(&work), &work.at), (vec!["Write"], &At::Call));
    // What waits is not changed by what the state has made of it.
    let mut work = replayed(&events);
    work.at = At::Asking;
    work.follow(&result("w"));
    assert_eq!(work.at, At::Asking);
    // After a crash the plan is submitted again, and whatever was made beside it may have run.
    let more = [
        &events[..],
        &[beside("s", "send_message"), next_incarnation()],
    ]
    .concat();
    let mut work = replayed(&more);
    let results = interrupted(&mut work);
    assert!(
        results
            .iter()
            .all(|(_, content)| content.contains("may have run")),
        "{results:?}"
    );
    assert_eq!(
        results
            .iter()
            .map(|(id, _)| id.as_str())
            .collect::<Vec<_>>(),
        ["w", "s"]
    );
    assert_eq!(
        (names(&work), work.calls[0].repeated),
        (vec!["plan_approval"], true)
    );
    // What a foreign hand has taken out of the file does not wait for ever.
    let lost = [&plan[..], &[idle(), messages(&["message"]), answer(&[])]].concat();
    assert_eq!(replayed(&lost).at, At::Done(IdleReason::Available));
}

#[test]
fn without_open_calls_the_model_is_asked_with_the_results() {
    let mut after = replayed(&[begins(Some("go")), answer(&["bash"])]);
    assert_eq!(interrupted(&mut after).len(), 1);
    assert_eq!(after.at, At::Turn { results: true });
    let mut before = replayed(&[begins(Some("go"))]);
    assert!(interrupted(&mut before).is_empty());
    assert_eq!(before.at, At::Turn { results: false });
}

#[test]
fn a_notice_is_pending_as_long_as_the_entries_that_follow_say_so() {
    let mut work = replayed(&[begins(None), idle()]);
    let pending_notices = work.pending_notices();
    for event in [messages(&["message"]), next_incarnation()] {
        work.replay(&Entry {
            pending_notices: pending_notices.clone(),
            call: None,
            model: None,
            ..entry((0, &event))
        });
    }
    assert!(work.notices.len() == 1 && is_idle(&work.notices[0]) && work.notices[0].repeated);
    work.replay(&entry((0, &messages(&["message"]))));
    assert!(work.notices.is_empty());
}

#[test]
fn a_notice_is_pending_only_while_no_entry_followed_its_own() {
    let rejected = Event::Rejected {
        offset: 4,
        reason: "not JSON".to_owned(),
        message_id: Uuid::from_u128(7),
    };
    let last = |events: &[Event]| replayed(events).notices.pop_back();
    assert!(last(&[begins(None), idle()]).is_some_and(|it| is_idle(&it)));
    assert!(last(&[begins(None), idle(), next_incarnation()]).is_some_and(|it| is_idle(&it)));
    let content = last(&[begins(None), rejected.clone()]).unwrap().content;
    for part in ["inbox/alice.jsonl", "offset 4", "not JSON"] {
        assert!(content.contains(part), "{content}");
    }
    for follower in [messages(&["message"]), rejected, left()] {
        assert!(!last(&[begins(None), idle(), follower]).is_some_and(|it| is_idle(&it)));
    }
}

#[test]
fn why_work_came_to_nothing_is_known_after_a_crash_until_other_work_begins() {
    let failed = Event::Idle {
        idle_reason: IdleReason::Failed,
        content: "no key".to_owned(),
        message_id: Uuid::from_u128(9),
        goes_on: false,
    };
    let is_well = |more: &[Event]| {
        replayed(&[&[begins(Some("go")), failed.clone()], more].concat())
            .last
            .trouble
            .is_empty()
    };
    assert!(!is_well(&[]) && !is_well(&[next_incarnation()]));
    assert!(is_well(&[messages(&["message"])]) && is_well(&[left(), next_incarnation()]));
}

#[test]
fn the_cursor_is_that_of_the_last_entry() {
    let after = replayed(&[
        begins(None),
        messages(&["message", "broadcast"]),
        next_incarnation(),
    ]);
    assert_eq!(after.position.offset, 2);
    assert_eq!(replayed(&[]).position, Position::START);
}

#[test]
fn what_wakes_the_lead_agent_is_work_that_it_goes_on_with() {
    let line = |kind: &str| serde_json::json!({"type": kind, "from": "bob", "content": "x", "name": "bob"});
    let of = |owner: Name, kind: &str| {
        replayed_of(
            owner,
            &[Event::Messages {
                messages: vec![line(kind)],
            }],
        )
        .at
    };
    assert_eq!(
        of(Name::lead(), "idle_notification"),
        At::Turn { results: false }
    );
    assert_eq!(of(Name::lead(), "teammate_terminated"), At::Idle);
}

#[test]
fn the_lead_agent_asks_again_what_the_daemon_takes_for_the_same() {
    let results_of = |tool: &str| {
        let calls = vec![Block::ToolUse {
            id: "c1".to_owned(),
            name: tool.to_owned(),
            input: serde_json::json!({}),
            message_id: None,
            request_id: None,
        }];
        let event = Event::Answer {
            content: calls,
            usage: Usage::default(),
            cut: None,
            length: None,
            model_calls: 1,
        };
        interrupted(&mut replayed_of(Name::lead(), &[event])).len()
    };
    for (tool, results) in [
        ("spawn_teammate", 1),
        ("request_plan", 1),
        ("bash", 1),
        ("shutdown_request", 1),
        ("plan_approval", 0),
    ] {
        assert_eq!(results_of(tool), results, "{tool}");
    }
}

#[test]
fn what_a_spawn_gives_to_a_teammate_counts_even_if_nothing_says_that_it_has_run() {
    let input = serde_json::json!({
        "name": "alice", "role": "coder", "prompt": "go", "max_tokens": 100, "count": 2,
    });
    let spawn = Event::Answer {
        content: vec![Block::ToolUse {
            id: "0".to_owned(),
            name: "spawn_teammate".to_owned(),
            input,
            message_id: None,
            request_id: None,
        }],
        usage: Usage::default(),
        cut: None,
        length: None,
        model_calls: 1,
    };
    let ends = |content: &str, is_error| Event::Result {
        tool_use_id: "0".to_owned(),
        content: content.to_owned(),
        is_error,
        images: Vec::new(),
        killed_for_memory: None,
    };
    let granted = |events: &[Event]| replayed_of(Name::lead(), events).granted.tokens;
    let begins = begins(Some("go"));
    let after = |result: Event| [begins.clone(), spawn.clone(), result];
    assert_eq!(granted(&after(ends("alice-1 has started", false))), 200);
    assert_eq!(granted(&after(ends("alice is running already", true))), 0);
    let lost = format!("the daemon was lost before it answered: it {IN_DOUBT}");
    assert_eq!(granted(&after(ends(&lost, true))), 200);
    let mut crashed = replayed_of(Name::lead(), &[begins.clone(), spawn.clone()]);
    for event in crashed.interrupted() {
        crashed.follow(&event);
    }
    assert_eq!(crashed.granted.tokens, 200);
    let next = [&after(ends("", false))[..], &[idle(), begins.clone()]].concat();
    assert_eq!(granted(&next), 0, "a budget is that of a piece of work");
}

#[test]
fn a_subagent_costs_its_member_and_changes_nothing_else_of_its_work() {
    let mut work = replayed(&[begins(Some("go")), answer(&["delegate", "bash"])]);
    let of_subagent = |work: &mut WorkProgress, event: Event| {
        work.replay(&Entry {
            call: Some("0".to_owned()),
            ..entry((5, &event))
        });
    };
    // Its calls may have the ids of those of its member.
    of_subagent(&mut work, answer(&["bash", "read_file"]));
    assert_eq!(
        (work.turns, work.calls.len(), work.subagent.calls.len()),
        (2, 2, 2)
    );
    of_subagent(&mut work, result("0"));
    assert_eq!((work.calls.len(), work.subagent.calls.len()), (2, 1));
    of_subagent(&mut work, answer(&[]));
    assert_eq!((work.turns, &work.at), (3, &At::Call));
    let lost = interrupted(&mut work);
    assert!(lost[0].1.contains("may have run"), "{lost:?}");
    assert!(lost[1].1.contains("not run"), "{lost:?}");
    assert!(work.subagent.calls.is_empty());
}

#[test]
fn the_steps_are_those_of_the_last_call_that_was_carried_out() {
    let writes = |step: &str| {
        let mut written = answer(&["todo_write"]);
        if let Event::Answer { content, .. } = &mut written
            && let Block::ToolUse { input, .. } = &mut content[1]
        {
            *input = json!({"todos": [{"content": step, "status": "in_progress"}]});
        }
        written
    };
    let refused = Event::Result {
        tool_use_id: "0".to_owned(),
        content: "no".to_owned(),
        is_error: true,
        images: Vec::new(),
        killed_for_memory: None,
    };
    let all = [
        begins(Some("go")),
        writes("one"),
        result("0"),
        writes("two"),
        refused,
        next_incarnation(),
    ];
    assert_eq!(replayed(&all).todo.summary(), "0/1, now: one");
    assert_eq!(replayed(&all[..2]).todo.summary(), "0/0");
}

#[test]
fn a_fallback_answers_until_the_piece_of_work_ends_and_has_its_own_cost() {
    const SMALL: Option<&str> = Some("openai:small");
    let charged = Event::Charged {
        usage: Usage {
            output_tokens: 5,
            ..Usage::default()
        },
        model_calls: 0,
    };
    let replayed = |entries: &[(Option<&str>, Event)]| {
        let mut work = WorkProgress::new(Name::new("alice").unwrap());
        for (model, event) in entries {
            work.replay(&Entry {
                model: model.map(str::to_owned),
                ..entry((0, event))
            });
        }
        work
    };
    let fallback = Event::Fallback {
        answers: "openai:small".to_owned(),
        reason: "overloaded".to_owned(),
    };
    let work = [
        (None, begins(Some("go"))),
        (None, charged.clone()),
        (None, fallback),
        (SMALL, charged.clone()),
    ];
    let resumed = |model| {
        let entries = [(None, next_incarnation()), (model, charged.clone())];
        replayed(&[&work[..], &entries].concat())
    };
    let during = resumed(SMALL);
    assert_eq!(during.fallback.as_deref(), SMALL);
    let others = |work: &WorkProgress| work.usage.others["openai:small"].output_tokens;
    assert_eq!((during.usage.own.output_tokens, others(&during)), (5, 10));
    // An incarnation with other terms has answered with the recorded model.
    let without = resumed(None);
    assert_eq!(without.fallback, None);
    assert_eq!((without.usage.own.output_tokens, others(&without)), (10, 5));
    let left = Event::Left {
        reason: String::new(),
        incarnation: 1,
        by_signal: true,
        goes_on: false,
    };
    for end in [idle(), left] {
        let next = [end, messages(&["message"]), charged.clone()].map(|event| (None, event));
        let after = replayed(&[&work[..], &next].concat());
        assert_eq!(after.fallback, None);
        assert_eq!((after.usage.own.output_tokens, others(&after)), (10, 5));
        assert!(after.spent.others.is_empty(), "another piece of work");
    }
}

#[test]
fn a_subagent_goes_on_where_its_text_was_cut_and_the_next_one_begins_anew() {
    let mut work = replayed(&[begins(Some("go")), answer(&["delegate", "delegate"])]);
    let says = |text: &str, cut| Event::Answer {
        content: vec![Block::Text {
            text: text.to_owned(),
        }],
        usage: Usage::default(),
        cut,
        length: None,
        model_calls: 1,
    };
    let told = Event::Messages {
        messages: vec![json!({"from": RUNTIME, "content": CONTINUE})],
    };
    for piece in ["a", "b", "c"] {
        work.follow_subagent(&says(piece, Some(Cut::Length)));
        assert!(work.subagent.cut.must_be_told());
        work.follow_subagent(&told);
        assert!(work.subagent.cut.goes_on() && !work.subagent.cut.must_be_told());
    }
    work.follow_subagent(&says("d", Some(Cut::Length)));
    assert!(!work.subagent.cut.goes_on(), "three times are enough");
    assert_eq!(work.subagent.text, "abcd");
    assert!(!work.cut.goes_on(), "it is not the member's own answer");
    work.follow(&result("0"));
    work.follow_subagent(&says("x", Some(Cut::Length)));
    assert!(work.subagent.cut.goes_on());
    assert_eq!(work.subagent.text, "x");
}

#[test]
fn a_call_that_waited_for_memory_has_begun_only_when_that_is_recorded() {
    let held = Event::Held {
        tool_use_id: "0".to_owned(),
    };
    let admitted = Event::Admitted {
        tool_use_id: "0".to_owned(),
        waited: 2.5,
    };
    let told = |events: &[Event]| {
        let before = [begins(Some("go")), answer(&["bash", "bash"])];
        let mut work = replayed(&[&before[..], events].concat());
        interrupted(&mut work)
            .into_iter()
            .map(|(_, content)| content)
            .collect::<Vec<_>>()
    };
    assert_eq!(told(std::slice::from_ref(&held)), [NOT_BEGUN, NOT_BEGUN]);
    let begun = told(&[held.clone(), admitted.clone()]);
    assert!(begun[0].contains("may have run"), "{begun:?}");
    let next = told(&[held, admitted, result("0")]);
    assert!(next[0].contains("may have run"), "{next:?}");
}
