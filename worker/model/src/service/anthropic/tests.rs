use proptest::prelude::*;
use teamd_shared::image::ImageType;
use teamd_shared::transcript::{Block, Cut};

use super::*;
use crate::ModelAnswer;
use crate::service::events::EventReader;
use crate::service::events::ServerEvent;
use crate::service::failure::{Failure, FailureKind};
use crate::service::streams;

/// A stream as the service sends it: thinking, text, two calls, an unknown kind of block and of
/// event.
const STREAM: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"cache_creation_input_tokens":7,"cache_read_input_tokens":1800,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me "}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"see."}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQB"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"xyz"}}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"Grü"}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"ße 🦀"}}

event: something_new
data: {"type":"something_new","index":2}

event: content_block_start
data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_1","name":"bash","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"command\": \"ec"}}

event: content_block_delta
data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"ho\"}"}}

event: content_block_start
data: {"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"toolu_2","name":"read_inbox","input":{}}}

event: content_block_start
data: {"type":"content_block_start","index":5,"content_block":{"type":"novelty","part":"a"}}

event: content_block_delta
data: {"type":"content_block_delta","index":5,"delta":{"type":"novelty_delta","part":"b","more":1}}

event: content_block_start
data: {"type":"content_block_start","index":6,"content_block":{"type":"text","text":""}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":89}}

event: message_stop
data: {"type":"message_stop"}

"#;

fn read(chunks: &[&[u8]]) -> Result<(ModelAnswer, String), Failure> {
    let mut events = EventReader::default();
    let wire = Anthropic::new("x", 200_000);
    let mut draft = Draft::default();
    let mut heard = String::new();
    for chunk in chunks {
        for event in events.push(chunk).unwrap() {
            wire.read(&event, &mut draft)?;
            heard += &std::mem::take(&mut draft.new_text);
        }
    }
    if draft.is_complete() {
        Ok((draft.end().answer, heard))
    } else {
        Err(cut_off())
    }
}

fn cut_off() -> Failure {
    Failure::new(FailureKind::Incomplete, "cut off")
}

/// An answer that comes in one piece.
fn whole(body: &Value) -> ServerEvent {
    ServerEvent {
        name: String::new(),
        data: body.to_string(),
    }
}

fn call(id: &str, name: &str, input: Value) -> Block {
    Block::ToolUse {
        id: id.to_owned(),
        name: name.to_owned(),
        input,
        message_id: None,
        request_id: None,
    }
}

fn expected() -> ModelAnswer {
    let opaque = |value| Block::Opaque { value };
    ModelAnswer {
        content: vec![
            opaque(json!({"type": "thinking", "thinking": "Let me see.", "signature": "EqQB"})),
            opaque(json!({"type": "redacted_thinking", "data": "xyz"})),
            Block::Text {
                text: "Grüße 🦀".to_owned(),
            },
            call("toolu_1", "bash", json!({"command": "echo"})),
            call("toolu_2", "read_inbox", json!({})),
            opaque(json!({"type": "novelty", "part": "ab", "more": 1})),
        ],
        usage: Usage {
            input_tokens: 25,
            output_tokens: 89,
            cache_read_input_tokens: 1800,
            cache_creation_input_tokens: 7,
        },
        cut: None,
        length: None,
    }
}

#[test]
fn a_stream_becomes_an_answer_and_its_text_is_heard() {
    assert_eq!(
        read(&[STREAM.as_bytes()]).unwrap(),
        (expected(), "Grüße 🦀".to_owned())
    );
    let bytes: Vec<_> = STREAM.as_bytes().chunks(1).collect();
    assert_eq!(read(&bytes).unwrap().0, expected());
}

proptest! {
    #[test]
    fn any_stream_is_an_answer_or_none_wherever_it_is_cut(
        bytes in streams::edited(STREAM),
        cut in 0..STREAM.len(),
    ) {
        let whole = read(&[&bytes]);
        let (head, tail) = bytes.split_at(cut.min(bytes.len()));
        prop_assert_eq!(format!("{:?}", read(&[head, tail])), format!("{whole:?}"));
    }

    #[test]
    fn where_a_stream_is_cut_into_pieces_does_not_matter(pieces in streams::in_pieces(STREAM)) {
        prop_assert_eq!(read(&pieces).unwrap().0, expected());
    }

    #[test]
    fn a_stream_that_ends_before_it_says_why_is_no_answer(end in 0..STREAM.rfind("stop_reason").unwrap()) {
        prop_assert_eq!(read(&[&STREAM.as_bytes()[..end]]), Err(cut_off()));
    }

    #[test]
    fn one_that_ends_later_is_one(end in STREAM.rfind("event: message_stop").unwrap()..STREAM.len()) {
        prop_assert_eq!(read(&[&STREAM.as_bytes()[..end]]).unwrap().0, expected());
    }
}

fn short(events: &[Value]) -> Result<ModelAnswer, Failure> {
    let text: String = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    read(&[text.as_bytes()]).map(|(answer, _)| answer)
}

#[test]
fn how_an_answer_ended_is_told() {
    for (reason, cut) in [
        ("end_turn", None),
        ("stop_sequence", None),
        ("max_tokens", Some(Cut::Length)),
        ("model_context_window_exceeded", Some(Cut::Length)),
        ("refusal", Some(Cut::Refusal)),
    ] {
        let stop = json!({"type": "message_delta", "delta": {"stop_reason": reason}});
        let answer = short(&[stop, json!({"type": "message_stop"})]).unwrap();
        assert_eq!((answer.cut, answer.content), (cut, vec![]), "{reason}");
    }
}

#[test]
fn an_answer_that_is_paused_is_told_from_one_that_has_ended() {
    for (reason, paused) in [
        ("pause_turn", true),
        ("end_turn", false),
        ("max_tokens", false),
    ] {
        let body = json!({"content": [{"type": "text", "text": "so"}], "stop_reason": reason});
        let wire = Anthropic::new("x", 200_000);
        let mut draft = Draft::default();
        wire.read(&whole(&body), &mut draft).unwrap();
        let piece = draft.end();
        assert_eq!(
            (piece.paused, piece.answer.cut.is_some()),
            (paused, reason == "max_tokens")
        );
    }
}

#[test]
fn half_a_json_stays_what_it_is() {
    let start = json!({"type": "content_block_start", "index": 0,
        "content_block": {"type": "tool_use", "id": "t", "name": "bash", "input": {}}});
    let delta = |text: &str| {
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": text}})
    };
    let stop = json!({"type": "message_stop"});
    for (text, input) in [
        ("{\"comm", json!("{\"comm")),
        ("[1]", json!("[1]")),
        ("", json!({})),
        ("{\"a\":1}", json!({"a": 1})),
    ] {
        let answer = short(&[start.clone(), delta(text), stop.clone()]).unwrap();
        assert_eq!(answer.content, [call("t", "bash", input)]);
    }
}

#[test]
fn an_error_in_the_stream_is_the_services_word_and_noise_is_noise() {
    let error =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    assert_eq!(short(&[error]).unwrap_err().kind, FailureKind::Status(529));
    assert_eq!(
        read(&[b"data: {oops\n\n"]).unwrap_err().kind,
        FailureKind::Incomplete
    );
    // What makes no sense is passed over.
    let odd = [
        json!({"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "x"}}),
        json!({"type": "content_block_start", "index": 1, "content_block": 7}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"text": "x"}}),
        json!(["message_stop"]),
        json!({"type": "message_stop"}),
    ];
    assert_eq!(short(&odd).unwrap().content, []);
}

#[test]
fn an_answer_in_one_piece_is_read_as_well() {
    let body = json!({"type": "message", "content": [
        {"type": "text", "text": "hello"}, {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "x"}}],
        "stop_reason": "tool_use", "usage": {"input_tokens": 3, "output_tokens": 4}});
    let wire = Anthropic::new("x", 200_000);
    let mut draft = Draft::default();
    wire.read(&whole(&body), &mut draft).unwrap();
    assert_eq!(draft.new_text, "hello");
    let answer = draft.end().answer;
    assert_eq!(
        answer.content[1],
        call("t", "bash", json!({"command": "x"}))
    );
    assert_eq!(answer.usage.output_tokens, 4);
    let error = json!({"type": "error", "error": {"type": "api_error", "message": "oops"}});
    assert!(
        Anthropic::new("x", 200_000)
            .read(&whole(&error), &mut Draft::default())
            .is_err()
    );
}

fn turn(role: Role, parts: Vec<TurnPart>) -> PromptTurn {
    PromptTurn { role, parts }
}

fn text(text: &str) -> TurnPart {
    TurnPart::Text(text.to_owned())
}

fn result(id: &str, content: &str, is_error: bool) -> TurnPart {
    TurnPart::Result {
        id: id.to_owned(),
        content: content.to_owned(),
        is_error,
        images: Vec::new(),
    }
}

fn tools() -> Vec<ToolText> {
    let of = |name| ToolText {
        name,
        description: "does".to_owned(),
        input: json!({"type": "object", "properties": {}}),
    };
    vec![of("bash"), of("read_file")]
}

fn turns() -> Vec<PromptTurn> {
    let called = |id: &str, name: &str, input| TurnPart::Call {
        id: id.to_owned(),
        name: name.to_owned(),
        input,
    };
    vec![
        turn(Role::User, vec![text("do it")]),
        turn(
            Role::Assistant,
            vec![
                TurnPart::Opaque(json!({"type": "thinking", "thinking": "hm", "signature": "s"})),
                TurnPart::Opaque(json!({"reasoning_content": "of another provider"})),
                text("so"),
                called("toolu_1", "bash", json!({"command": "ls"})),
                called("functions.x:0", "no such\u{7}tool", json!("{\"half")),
            ],
        ),
        turn(
            Role::User,
            vec![
                result("toolu_1", "", false),
                result("functions.x:0", "unknown", true),
                text(" "),
            ],
        ),
        turn(Role::Assistant, vec![text("done")]),
        turn(Role::User, vec![text("more")]),
    ]
}

#[test]
fn a_prompt_becomes_a_request() {
    let tools = tools();
    let turns = turns();
    let prompt = Prompt {
        system: "you are alice",
        tools: &tools,
        turns: &turns,
        max_output: None,
    };
    let mark = json!({"type": "ephemeral"});
    let schema = json!({"type": "object", "properties": {}});
    assert_eq!(
        Anthropic::new("claude-sonnet-5-5", 200_000).body(&prompt),
        json!({
            "model": "claude-sonnet-5-5",
            "max_tokens": 32000,
            "stream": true,
            "tools": [
                {"name": "bash", "description": "does", "input_schema": schema},
                {"name": "read_file", "description": "does", "input_schema": schema, "cache_control": mark},
            ],
            "system": [{"type": "text", "text": "you are alice", "cache_control": mark}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "do it"}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "so"},
                    {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}},
                    {"type": "tool_use", "id": "functions_x_0", "name": "no_such_tool",
                        "input": {"unparsed": "{\"half"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "(no output)"},
                    {"type": "tool_result", "tool_use_id": "functions_x_0", "content": "unknown",
                        "is_error": true, "cache_control": mark},
                ]},
                {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
                {"role": "user", "content": [{"type": "text", "text": "more", "cache_control": mark}]},
            ],
        })
    );
    let prompt = Prompt {
        system: "",
        tools: &[],
        turns: &turns[..1],
        max_output: Some(7),
    };
    let body = Anthropic::new("x", 200_000).body(&prompt);
    assert!(body.get("tools").is_none() && body.get("system").is_none() && body["max_tokens"] == 7);
    // An answer is not asked for more than the window has room for.
    let wide = [PromptTurn {
        role: Role::User,
        parts: vec![TurnPart::Text("x".repeat(90_000))],
    }];
    for (window, room) in [
        (32_000, 1_000..2_000),
        (40_000, 9_000..10_000),
        (200_000, 32_000..32_001),
    ] {
        let prompt = Prompt {
            system: "",
            tools: &[],
            turns: &wide,
            max_output: None,
        };
        let asked = Anthropic::new("claude-sonnet-5-5", window).body(&prompt)["max_tokens"]
            .as_u64()
            .unwrap();
        assert!(room.contains(&asked), "{window}: {asked}");
    }
}

#[test]
fn a_paused_answer_goes_back_as_it_is_and_once_it_has_ended_without_what_is_half() {
    let search = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}});
    let answer = vec![text("I look. "), TurnPart::Opaque(search.clone())];
    let mut turns = vec![
        turn(Role::User, vec![text("find it")]),
        turn(Role::Assistant, answer),
    ];
    let messages = |turns: &[PromptTurn]| {
        let prompt = Prompt {
            system: "",
            tools: &[],
            turns,
            max_output: None,
        };
        Anthropic::new("x", 200_000).body(&prompt)["messages"].clone()
    };
    let text_block = json!({"type": "text", "text": "I look. "});
    assert_eq!(
        messages(&turns)[1],
        json!({"role": "assistant", "content": [text_block, search]})
    );
    turns.push(turn(Role::User, vec![text("and now?")]));
    assert_eq!(
        messages(&turns)[1],
        json!({"role": "assistant", "content": [text_block]})
    );
    assert_eq!(messages(&turns)[2]["content"][0]["text"], "and now?");
    // Neither a space at the end nor an empty answer is taken.
    let ends = |parts| [turns[0].clone(), turn(Role::Assistant, parts)];
    assert_eq!(
        messages(&ends(vec![text("I look. \n")]))[1]["content"][0]["text"],
        "I look."
    );
    let other = TurnPart::Opaque(json!({"reasoning_content": "of another provider"}));
    assert_eq!(messages(&ends(vec![other])).as_array().unwrap().len(), 1);
}

#[test]
fn what_another_model_thought_is_left_out_once_it_is_refused() {
    let turns = turns();
    let prompt = Prompt {
        system: "",
        tools: &[],
        turns: &turns,
        max_output: None,
    };
    let mut wire = Anthropic::new("x", 200_000);
    let message = "messages.1.content.0: Invalid `signature` in `thinking` block";
    let complaint = Failure::new(FailureKind::Status(400), message);
    assert!(wire.body(&prompt).to_string().contains("signature"));
    assert!(wire.adapt(&complaint) && !wire.adapt(&complaint));
    assert!(!wire.body(&prompt).to_string().contains("signature"));
}

#[test]
fn the_key_goes_into_one_header() {
    let names = |wire: &Anthropic| {
        wire.headers(None)
            .into_iter()
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&Anthropic::new("x", 200_000)), ["anthropic-version"]);
}

#[test]
fn a_stream_that_says_why_it_stopped_is_whole_and_any_other_is_not() {
    let (before, _) = STREAM.split_once("event: message_stop").unwrap();
    assert_eq!(
        read(&[before.as_bytes()]).unwrap().0,
        read(&[STREAM.as_bytes()]).unwrap().0
    );
    let (before, _) = STREAM.split_once("event: message_delta").unwrap();
    assert_eq!(read(&[before.as_bytes()]).unwrap_err(), cut_off());
}

#[test]
fn a_tool_of_the_service_without_its_result_or_the_other_way_round_is_left_out() {
    let used =
        |id: &str| json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {}});
    let result =
        |id: &str| json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []});
    let text = || json!({"type": "text", "text": "so"});
    let ours = || json!({"type": "tool_use", "id": "t", "name": "bash", "input": {}});
    for (mut content, left) in [
        (
            vec![text(), used("a"), result("a"), ours()],
            vec![text(), used("a"), result("a"), ours()],
        ),
        (vec![text(), used("a")], vec![text()]),
        (vec![result("a"), text()], vec![text()]),
        (vec![result("a"), used("a"), text()], vec![text()]),
        (
            vec![used("a"), used("b"), result("b")],
            vec![used("b"), result("b")],
        ),
        (
            vec![used("a"), used("b"), result("b"), result("a")],
            vec![used("a"), used("b"), result("b"), result("a")],
        ),
        (
            vec![used("a"), used("a"), result("a")],
            vec![used("a"), result("a")],
        ),
    ] {
        pair(&mut content);
        assert_eq!(content, left);
    }
}

#[test]
fn an_image_stands_behind_the_text_of_its_result_until_the_service_refuses_it() {
    let picture = TurnPart::Result {
        id: "a".to_owned(),
        content: "[image: png, 34B]".to_owned(),
        is_error: false,
        images: vec![Image {
            media_type: ImageType::Png,
            data: "A".repeat(3 << 20),
        }],
    };
    let turns = [turn(Role::User, vec![picture])];
    let prompt = Prompt {
        system: "",
        tools: &[],
        turns: &turns,
        max_output: None,
    };
    let mut sees = Anthropic::new("claude-sonnet-4-5", 200_000);
    let body = sees.body(&prompt);
    let result = &body["messages"][0]["content"][0];
    assert_eq!(
        result["content"][0],
        json!({"type": "text", "text": "[image: png, 34B]"})
    );
    let source = &result["content"][1]["source"];
    assert_eq!(
        (&source["type"], &source["media_type"]),
        (&json!("base64"), &json!("image/png"))
    );
    assert_eq!(body["max_tokens"], 32_000, "it counts as what it costs");
    let text = json!("[image: png, 34B]");
    let failure = Failure::new(FailureKind::Status(400), "Could not process image");
    assert!(sees.adapt(&failure) && !sees.adapt(&failure));
    let blind = Anthropic::new("fake", 200_000);
    for wire in [sees, blind] {
        assert_eq!(
            wire.body(&prompt)["messages"][0]["content"][0]["content"],
            text
        );
    }
}
