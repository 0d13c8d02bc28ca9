use proptest::prelude::*;
use teamd_shared::image::{Image, ImageType};
use teamd_shared::transcript::{Block, Cut};

use super::*;
use crate::ModelAnswer;
use crate::service::events::EventReader;
use crate::service::events::ServerEvent;
use crate::service::failure::{Failure, FailureKind};
use crate::service::streams;

/// A stream as OpenAI sends it: text, two calls in turns, the cost with no choice.
const STREAM: &str = r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"choices":[{"index":0,"delta":{"content":"Grü"},"finish_reason":null}]}

: a comment

data: {"choices":[{"index":0,"delta":{"content":"ße 🦀"},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"bash","arguments":""}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"comm"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_2","type":"function","function":{"name":"read_inbox","arguments":""}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"and\":\"ls\"}"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"choices":[],"usage":{"prompt_tokens":1900,"completion_tokens":40,"total_tokens":1940,"prompt_tokens_details":{"cached_tokens":1792}}}

data: [DONE]

"#;

fn read(chunks: &[&[u8]]) -> Result<(ModelAnswer, String), Failure> {
    let mut events = EventReader::default();
    let wire = OpenAi::new("x", true);
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

fn text(text: &str) -> Block {
    Block::Text {
        text: text.to_owned(),
    }
}

fn expected() -> ModelAnswer {
    ModelAnswer {
        content: vec![
            text("Grüße 🦀"),
            call("call_1", "bash", json!({"command": "ls"})),
            call("call_2", "read_inbox", json!({})),
        ],
        usage: Usage {
            input_tokens: 108,
            output_tokens: 40,
            cache_read_input_tokens: 1792,
            cache_creation_input_tokens: 0,
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
    fn a_stream_that_ends_before_it_says_why_is_no_answer(end in 0..STREAM.find("\"finish_reason\":\"tool").unwrap()) {
        prop_assert_eq!(read(&[&STREAM.as_bytes()[..end]]), Err(cut_off()));
    }
}

fn short(chunks: &[Value]) -> Result<ModelAnswer, Failure> {
    let text: String = chunks
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect();
    read(&[text.as_bytes()]).map(|(answer, _)| answer)
}

fn delta(delta: Value) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta }] })
}

fn end(reason: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

#[test]
fn how_an_answer_ended_is_told() {
    for (reason, cut) in [
        ("stop", None),
        ("tool_calls", None),
        ("length", Some(Cut::Length)),
        ("content_filter", Some(Cut::Refusal)),
    ] {
        let answer = short(&[end(reason)]).unwrap();
        assert_eq!((answer.cut, answer.content), (cut, vec![]), "{reason}");
    }
    let refused = short(&[
        delta(json!({"content": null, "refusal": "I will not."})),
        end("stop"),
    ])
    .unwrap();
    assert_eq!(
        (refused.cut, refused.content),
        (Some(Cut::Refusal), vec![text("I will not.")])
    );
}

#[test]
fn calls_are_told_apart_however_a_server_writes_them() {
    let whole = |id: &str, index: Value, arguments: Value| json!({"id": id, "index": index, "function": {"name": "bash", "arguments": arguments}});
    // Whole, all under one index (Ollama); without an index; without ids; the arguments as an
    // object.
    for calls in [
        json!([
            whole("a", json!(0), json!("{}")),
            whole("b", json!(0), json!("{}"))
        ]),
        json!([
            whole("a", Value::Null, json!("{}")),
            whole("b", Value::Null, json!("{}"))
        ]),
        json!([
            whole("a", json!(0), json!({})),
            whole("b", json!(1), json!({}))
        ]),
    ] {
        let answer = short(&[delta(json!({"tool_calls": calls})), end("tool_calls")]).unwrap();
        assert_eq!(
            answer.content,
            [call("a", "bash", json!({})), call("b", "bash", json!({}))]
        );
    }
    let pieces = [
        json!({"function": {"name": "bash", "arguments": "{\"a\""}}),
        json!({"function": {"arguments": ":1}"}}),
        json!({"function": {"name": "bash", "arguments": null}}),
    ];
    let chunks: Vec<_> = pieces
        .into_iter()
        .map(|piece| delta(json!({"tool_calls": [piece]})))
        .collect();
    let answer = short(&[&chunks[..], &[end("tool_calls")]].concat()).unwrap();
    assert_eq!(
        answer.content,
        [
            call("", "bash", json!({"a": 1})),
            call("", "bash", json!({}))
        ]
    );
}

#[test]
fn half_a_json_stays_what_it_is() {
    for (arguments, input) in [
        ("{\"comm", json!("{\"comm")),
        ("\"x\"", json!("\"x\"")),
        ("null", json!({})),
        (" ", json!({})),
    ] {
        let piece =
            json!({"index": 0, "id": "c", "function": {"name": "bash", "arguments": arguments}});
        let answer = short(&[delta(json!({"tool_calls": [piece]})), end("length")]).unwrap();
        assert_eq!(answer.content, [call("c", "bash", input)]);
    }
}

#[test]
fn an_error_in_the_stream_is_the_services_word() {
    for (error, status) in [
        (
            json!({"error": {"message": "The server is overloaded", "type": "server_error"}}),
            529,
        ),
        (json!({"error": {"message": "slow", "code": 503}}), 503),
        (
            json!({"object": "error", "message": "bad", "code": 400}),
            400,
        ),
    ] {
        assert_eq!(
            short(&[error]).unwrap_err().kind,
            FailureKind::Status(status)
        );
    }
    assert_eq!(
        read(&[b"data: {oops\n\n"]).unwrap_err().kind,
        FailureKind::Incomplete
    );
    let odd = [
        json!(7),
        json!({"choices": "x"}),
        delta(json!({"tool_calls": {"a": 1}})),
        end("stop"),
    ];
    assert_eq!(short(&odd).unwrap().content, []);
}

#[test]
fn an_answer_in_one_piece_is_read_as_well() {
    let message = json!({"role": "assistant", "content": "hi", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}]});
    let body =
        json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
    let wire = OpenAi::new("x", true);
    let mut draft = Draft::default();
    wire.read(&whole(&body), &mut draft).unwrap();
    assert_eq!(draft.new_text, "hi");
    assert_eq!(
        draft.end().answer.content,
        [text("hi"), call("c", "bash", json!({}))]
    );
    assert!(
        OpenAi::new("x", true)
            .read(
                &whole(&json!({"error": "model not found"})),
                &mut Draft::default()
            )
            .is_err()
    );
}

fn turns() -> Vec<PromptTurn> {
    let called = |id: &str, name: &str, input| TurnPart::Call {
        id: id.to_owned(),
        name: name.to_owned(),
        input,
    };
    let result = |id: &str, content: &str, is_error| TurnPart::Result {
        id: id.to_owned(),
        content: content.to_owned(),
        is_error,
        images: Vec::new(),
    };
    let text_part = |text: &str| TurnPart::Text(text.to_owned());
    let turn = |role, parts| PromptTurn { role, parts };
    vec![
        turn(Role::User, vec![text_part("do it"), text_part("now")]),
        turn(
            Role::Assistant,
            vec![
                TurnPart::Opaque(json!({"type": "thinking", "thinking": "of another provider"})),
                TurnPart::Opaque(json!({"reasoning_content": "hm"})),
                called("a", "bash", json!({"command": "ls"})),
                called("b", "", json!("{\"half")),
            ],
        ),
        turn(
            Role::User,
            vec![
                result("a", "", false),
                result("b", "unknown", true),
                text_part("mail"),
            ],
        ),
        turn(Role::Assistant, vec![text_part("done")]),
        turn(Role::User, vec![text_part("more")]),
    ]
}

#[test]
fn a_prompt_becomes_a_request() {
    let schema = json!({"type": "object", "properties": {}});
    let tools = [ToolText {
        name: "bash",
        description: "does".to_owned(),
        input: schema.clone(),
    }];
    let turns = turns();
    let prompt = Prompt {
        system: "you are alice",
        tools: &tools,
        turns: &turns,
        max_output: None,
    };
    assert_eq!(
        OpenAi::new("gpt-x", true).body(&prompt),
        json!({
            "model": "gpt-x",
            "stream": true,
            "stream_options": {"include_usage": true},
            "tools": [{"type": "function", "function":
                {"name": "bash", "description": "does", "parameters": schema}}],
            "messages": [
                {"role": "system", "content": "you are alice"},
                {"role": "user", "content": "do it\n\nnow"},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "a", "type": "function",
                        "function": {"name": "bash", "arguments": "{\"command\":\"ls\"}"}},
                    {"id": "b", "type": "function",
                        "function": {"name": "unnamed", "arguments": "{\"unparsed\":\"{\\\"half\"}"}},
                ]},
                {"role": "tool", "tool_call_id": "a", "content": ""},
                {"role": "tool", "tool_call_id": "b", "content": "error: unknown"},
                {"role": "user", "content": "mail"},
                {"role": "assistant", "content": "done"},
                {"role": "user", "content": "more"},
            ],
        })
    );
}

#[test]
fn what_a_server_does_not_take_is_asked_in_another_way_once() {
    let turns = turns();
    let prompt = Prompt {
        system: "",
        tools: &[],
        turns: &turns,
        max_output: Some(9),
    };
    let complain = |message: &str| Failure::new(FailureKind::Status(400), message);
    let mut wire = OpenAi::new("x", true);
    assert_eq!(wire.body(&prompt)["max_completion_tokens"], 9);
    let limit = complain("Unsupported parameter: 'max_completion_tokens'");
    assert!(wire.adapt(&limit) && wire.body(&prompt)["max_tokens"] == 9 && !wire.adapt(&limit));
    let options = complain("unknown field: stream_options");
    assert!(wire.adapt(&options) && wire.body(&prompt).get("stream_options").is_none());
    assert!(!wire.adapt(&options) && !wire.adapt(&complain("tools[0] is bad")));
    let reasons = complain("Missing `reasoning_content` field in the assistant message");
    assert!(wire.adapt(&reasons) && !wire.adapt(&reasons));
    assert_eq!(wire.body(&prompt)["messages"][1]["reasoning_content"], "hm");
}

#[test]
fn images_follow_the_results_in_a_message_of_the_user() {
    let picture = TurnPart::Result {
        id: "a".to_owned(),
        content: "[image: png, 34B]".to_owned(),
        is_error: false,
        images: vec![Image {
            media_type: ImageType::Png,
            data: "AAAA".to_owned(),
        }],
    };
    let turns = [PromptTurn {
        role: Role::User,
        parts: vec![picture, TurnPart::Text("mail".to_owned())],
    }];
    let prompt = Prompt {
        system: "",
        tools: &[],
        turns: &turns,
        max_output: None,
    };
    let result = json!({"role": "tool", "tool_call_id": "a", "content": "[image: png, 34B]"});
    let shown = json!({"role": "user", "content": [
        {"type": "text", "text": "The images of the results above, in their order.\n\nmail"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]});
    let sees = OpenAi::new("gpt-5.1", true);
    assert_eq!(sees.body(&prompt)["messages"], json!([result, shown]));
    let blind = OpenAi::new("qwen3:8b", false);
    let text = json!({"role": "user", "content": "mail"});
    assert_eq!(blind.body(&prompt)["messages"], json!([result, text]));
}
