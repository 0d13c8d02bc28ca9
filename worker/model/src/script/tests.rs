use proptest::prelude::*;
use teamd_shared::message::IdleReason;
use uuid::Uuid;

use super::*;

fn begins(prompt: &str) -> Event {
    Event::Incarnation {
        incarnation: 1,
        conversation: 1,
        prompt: Some(prompt.to_owned()),
        tools: teamd_shared::tool_set::ToolSet::default(),
    }
}

fn resumed() -> Event {
    Event::Incarnation {
        incarnation: 2,
        conversation: 1,
        prompt: None,
        tools: teamd_shared::tool_set::ToolSet::default(),
    }
}

fn mail(from: &str, kind: &str, content: &str) -> Event {
    Event::Messages {
        messages: vec![json!({ "type": kind, "from": from, "content": content })],
    }
}

fn asked(id: &str) -> Event {
    Event::Asked {
        request_id: RequestId::new(id).unwrap(),
        reason: "enough".to_owned(),
    }
}

fn idle(idle_reason: IdleReason) -> Event {
    Event::Idle {
        idle_reason,
        content: String::new(),
        message_id: Uuid::nil(),
        goes_on: false,
    }
}

/// A conversation as the runtime leads it.
#[derive(Default)]
struct Talk {
    script: Script,
    history: Vec<Event>,
}

impl Talk {
    fn with(prompt: &str) -> Self {
        let mut talk = Self::default();
        talk.record(begins(prompt));
        talk
    }

    fn record(&mut self, event: Event) {
        self.script.observe(&event);
        self.history.push(event);
    }

    /// Lets the model answer, records that, and returns the call (with its id), or the text.
    fn answer(&mut self) -> Result<(String, String, Value), String> {
        let answer = self.script.answer().unwrap();
        self.record(answer.clone());
        let Event::Answer { content, .. } = answer else {
            panic!("{answer:?}")
        };
        match content.into_iter().next().unwrap() {
            Block::ToolUse {
                id, name, input, ..
            } => Ok((id, name, input)),
            Block::Text { text } => Err(text),
            Block::Opaque { value } => panic!("{value}"),
        }
    }

    fn result(&mut self, id: &str, content: &str) {
        self.record(Event::Result {
            tool_use_id: id.to_owned(),
            content: content.to_owned(),
            is_error: false,
            images: Vec::new(),
            killed_for_memory: None,
        });
    }

    /// Lets the model make its next call, and gives it a result.
    fn call(&mut self, result: &str) -> (String, Value) {
        let (id, name, input) = self.answer().unwrap();
        self.result(&id, result);
        (name, input)
    }
}

#[test]
fn a_prompt_becomes_one_call_an_answer_and_then_the_text() {
    let mut talk = Talk::with("/bash date\nall is well\n/read_inbox\n//etc is untouched");
    assert_eq!(
        talk.call("Monday"),
        ("bash".to_owned(), json!({ "command": "date" }))
    );
    assert_eq!(talk.call("nothing"), ("read_inbox".to_owned(), json!({})));
    assert_eq!(talk.answer().unwrap_err(), "all is well\n/etc is untouched");
}

#[test]
fn without_text_the_last_result_is_the_answer() {
    let mut talk = Talk::with("/bash one\n/bash two");
    talk.call("1");
    talk.call("2");
    assert_eq!(talk.answer().unwrap_err(), "2");
    assert_eq!(Talk::default().answer().unwrap_err(), "done");
    let mut silent = Talk::with("/bash true");
    silent.call(" \n");
    assert_eq!(silent.answer().unwrap_err(), "done");
}

#[test]
fn the_next_piece_of_work_knows_nothing_of_the_last() {
    let mut talk = Talk::with("/bash one\nfirst");
    talk.call("1");
    assert_eq!(talk.answer().unwrap_err(), "first");
    talk.record(idle(IdleReason::Available));
    talk.record(mail("lead", "message", "second"));
    assert_eq!(talk.answer().unwrap_err(), "second");
    talk.record(idle(IdleReason::Available));
    talk.record(mail("bob", "message", "hello"));
    assert_eq!(talk.answer().unwrap_err(), "done");
}

#[test]
fn lines_that_come_between_the_last_answer_and_its_end_are_not_lost() {
    let mut talk = Talk::with("first");
    assert_eq!(talk.answer().unwrap_err(), "first");
    talk.record(mail("user", "message", "/bash late\nlater"));
    talk.record(idle(IdleReason::Available));
    assert_eq!(talk.call("x").1, json!({ "command": "late" }));
    assert_eq!(talk.answer().unwrap_err(), "later");
}

#[test]
fn work_that_was_broken_off_is_forgotten() {
    for end in [
        idle(IdleReason::Interrupted),
        idle(IdleReason::MaxTurns),
        idle(IdleReason::Failed),
        Event::Left {
            reason: "SIGTERM".to_owned(),
            incarnation: 1,
            by_signal: false,
            goes_on: false,
        },
    ] {
        let mut talk = Talk::with("/bash one\n/bash two\ntext");
        talk.call("1");
        talk.record(end);
        assert_eq!(talk.answer().unwrap_err(), "done");
    }
}

#[test]
fn only_lead_and_user_give_orders() {
    for (from, kind, obeyed) in [
        ("lead", "message", true),
        ("user", "message", true),
        ("lead", "broadcast", true),
        ("lead", "plan_request", true),
        ("bob", "message", false),
        ("teamd", "message", false),
        ("bob", "broadcast", false),
        ("Lead", "message", false),
        ("lead", "weather_report", false),
    ] {
        let mut talk = Talk::with("");
        talk.record(mail(from, kind, "/bash rm -r x"));
        assert_eq!(talk.answer().is_ok(), obeyed, "{kind} from {from}");
    }
}

#[test]
fn messages_of_other_spellings_and_no_messages_at_all_are_survived() {
    let mut talk = Talk::with("");
    let messages = vec![
        json!({ "type": "message", "from": "user", "text": "/bash other spelling" }),
        json!({ "type": "message", "from": 7 }),
        json!("no object"),
        json!({ "type": "shutdown_request", "from": "lead", "request_id": "a1", "content": "/bash no" }),
    ];
    talk.record(Event::Messages { messages });
    assert_eq!(talk.call("").1, json!({ "command": "other spelling" }));
    assert!(talk.answer().is_err());
}

#[test]
fn new_lines_queue_behind_the_old_ones() {
    let mut talk = Talk::with("/bash one\n/bash two");
    talk.call("1");
    talk.record(mail("lead", "message", "/bash three"));
    assert_eq!(talk.call("2").1, json!({ "command": "two" }));
    assert_eq!(talk.call("3").1, json!({ "command": "three" }));
}

#[test]
fn a_shutdown_request_is_approved_before_anything_else() {
    let mut talk = Talk::with("/bash one\n/bash two");
    talk.call("1");
    talk.record(asked("a1b2c3d4"));
    let (name, input) = talk.call("approved");
    assert_eq!(name, "shutdown_response");
    assert_eq!(
        input,
        json!({ "request_id": "a1b2c3d4", "approve": true, "reason": "done" })
    );
}

#[test]
fn a_rejection_is_used_once_and_the_work_goes_on() {
    let mut talk = Talk::with("/reject_shutdown still writing\n/bash one\n/bash two");
    talk.call("1");
    talk.record(asked("a1"));
    assert_eq!(
        talk.call("rejected").1,
        json!({ "request_id": "a1", "approve": false, "reason": "still writing" })
    );
    assert_eq!(talk.call("2").1, json!({ "command": "two" }));
    talk.record(asked("b2"));
    assert_eq!(
        talk.call("approved").1,
        json!({ "request_id": "b2", "approve": true, "reason": "done" })
    );
    // The answer to a request is no result of the work.
    assert_eq!(talk.answer().unwrap_err(), "2");
}

#[test]
fn a_rejection_waits_for_its_request_across_pieces_of_work() {
    let mut talk = Talk::with("/reject_shutdown busy all day");
    assert_eq!(talk.answer().unwrap_err(), "done");
    talk.record(idle(IdleReason::Available));
    talk.record(resumed());
    talk.record(mail("lead", "message", "/bash one\n/bash two"));
    talk.call("1");
    talk.record(asked("a1"));
    assert_eq!(talk.call("x").1["reason"], "busy all day");
}

#[test]
fn an_unanswered_request_ends_with_the_work_or_the_incarnation() {
    for end in [idle(IdleReason::Available), resumed()] {
        let mut talk = Talk::with("");
        talk.record(asked("a1"));
        talk.record(end);
        assert_eq!(talk.answer().unwrap_err(), "done");
    }
}

#[test]
fn two_requests_are_answered_each_by_its_id_and_a_repeated_one_once() {
    let mut talk = Talk::with("");
    for id in ["a1", "b2"] {
        talk.record(asked(id));
    }
    assert_eq!(
        talk.call("").1["request_id"],
        "b2",
        "at most one is pending"
    );
    assert!(talk.answer().is_err());
}

#[test]
fn a_request_that_is_asked_while_an_answer_is_recorded_takes_nothing_from_the_queue() {
    let mut talk = Talk::with("/bash one");
    let answer = talk.script.answer().unwrap();
    talk.record(asked("a1"));
    talk.record(answer);
    assert_eq!(talk.call("").0, "shutdown_response");
    assert!(talk.answer().is_err());
}

#[test]
fn a_resumed_conversation_goes_on_and_a_fresh_one_begins_anew() {
    let mut talk = Talk::with("/bash one\n/bash two");
    let (first, ..) = talk.answer().unwrap();
    talk.record(resumed());
    talk.result(&first, "interrupted, may have run");
    let (second, _, input) = talk.answer().unwrap();
    assert_eq!(input, json!({ "command": "two" }));
    talk.record(Event::Incarnation {
        incarnation: 3,
        conversation: 3,
        prompt: Some("/bash new".to_owned()),
        tools: teamd_shared::tool_set::ToolSet::default(),
    });
    let (third, _, input) = talk.answer().unwrap();
    assert_eq!(input, json!({ "command": "new" }));
    assert_eq!([first, second, third], ["call-1-1", "call-1-2", "call-3-1"]);
}

#[test]
fn a_prompt_that_a_resumed_conversation_repeats_is_not_done_again() {
    let mut talk = Talk::with("/bash one");
    talk.call("1");
    talk.record(Event::Incarnation {
        incarnation: 2,
        conversation: 1,
        prompt: Some("/bash one".to_owned()),
        tools: teamd_shared::tool_set::ToolSet::default(),
    });
    assert_eq!(talk.answer().unwrap_err(), "1");
}

/// What the runtime may do next.
#[derive(Debug, Clone)]
enum NextStep {
    Record(Event),
    /// The model is asked, and what it says is thrown away (a call that was dropped).
    AskInVain,
    /// The model is asked, its answer recorded, and the result of its call too.
    Turn(String),
}

fn step() -> impl Strategy<Value = NextStep> {
    let line = prop_oneof![
        Just("/bash date".to_owned()),
        Just("/reject_shutdown no".to_owned()),
        Just("/read_inbox".to_owned()),
        Just(r#"/shutdown_response {"request_id":"a1","approve":true}"#.to_owned()),
        "[a-z/ \n]{0,12}",
    ];
    let from = prop_oneof![Just("lead"), Just("user"), Just("bob")];
    let reason = prop_oneof![Just(IdleReason::Available), Just(IdleReason::Interrupted)];
    prop_oneof![
        4 => "[a-z]{0,3}".prop_map(NextStep::Turn),
        1 => Just(NextStep::AskInVain),
        2 => (from, prop::collection::vec(line, 1..4))
            .prop_map(|(from, lines)| NextStep::Record(mail(from, "message", &lines.join("\n")))),
        1 => "[ab][12]".prop_map(|id| NextStep::Record(asked(&id))),
        1 => reason.prop_map(|reason| NextStep::Record(idle(reason))),
        1 => Just(NextStep::Record(resumed())),
        1 => Just(NextStep::Record(Event::Left { reason: String::new(), incarnation: 1, by_signal: false, goes_on: false })),
        1 => Just(NextStep::Record(Event::Restarted { reason: String::new() })),
    ]
}

proptest! {
    /// A worker that is killed anywhere and started again answers as if nothing had happened.
    #[test]
    fn a_replay_cut_anywhere_gives_the_same_next_answer(
        steps in prop::collection::vec(step(), 0..40),
        prompt in "(/bash x\n|text\n){0,3}",
    ) {
        let mut talk = Talk::with(&prompt);
        let mut ids = std::collections::BTreeSet::new();
        for step in steps {
            match step {
                NextStep::Record(event) => talk.record(event),
                NextStep::AskInVain => drop(talk.script.answer()),
                NextStep::Turn(result) => {
                    if let Ok((id, ..)) = talk.answer() {
                        prop_assert!(ids.insert(id.clone()), "{} twice", id);
                        talk.result(&id, &result);
                    }
                }
            }
            let mut replayed = Script::default();
            talk.history.iter().for_each(|event| replayed.observe(event));
            prop_assert_eq!(&replayed, &talk.script);
            prop_assert_eq!(replayed.answer(), talk.script.answer());
        }
    }
}
