//! How an answer goes over the wire: in pieces that are cut anywhere.

use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::http;
use super::reply::{How, Say};
use super::{Api, Bill, Reply};

/// What an answer is written with.
pub(super) struct Speech {
    pub(super) api: Api,
    pub(super) bill: Bill,
    /// Whether a stream was asked for.
    pub(super) streams: bool,
    /// Whether the cost was asked for.
    pub(super) counts: bool,
}

/// Returns an id that no other answer has: agents tell by it which of their lines belong to one
/// answer.
fn new_id(kind: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    format!("{kind}_{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Writes a reply; false if the connection is to be closed.
pub(super) fn speak(connection: &TcpStream, speech: &Speech, reply: Reply) -> bool {
    match reply {
        Reply::Reset => false,
        Reply::Garbage { kind, bytes } => http::whole(
            connection,
            200,
            &[("content-type".to_owned(), kind.to_owned())],
            &bytes,
        ),
        Reply::Fail {
            status,
            mut headers,
            kind,
            message,
        } => {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
            let body = Reply::error(speech.api, &kind, &message).to_string();
            http::whole(connection, status, &headers, body.as_bytes())
        }
        Reply::Answer { says, stop, how } if how == How::Whole || !speech.streams => {
            let body = match speech.api {
                Api::Anthropic => anthropic_whole(&says, stop, speech.bill),
                Api::OpenAi => openai_whole(&says, stop, speech.bill),
                Api::Responses => response(&says, speech.bill),
                Api::Google => google(&says, speech.bill),
            };
            let headers = [("content-type".to_owned(), "application/json".to_owned())];
            http::whole(connection, 200, &headers, body.to_string().as_bytes())
        }
        Reply::Answer { says, stop, how } => {
            let stream = match speech.api {
                Api::Anthropic => anthropic_stream(&says, stop, speech.bill),
                Api::OpenAi => openai_stream(&says, stop, speech.counts.then_some(speech.bill)),
                Api::Responses => responses_stream(&says, speech.bill),
                Api::Google => google_stream(&says, speech.bill),
            };
            http::begin(connection) && stream_out(connection, speech.api, &stream, &how)
        }
    }
}

fn stream_out(connection: &TcpStream, api: Api, stream: &str, how: &How) -> bool {
    let half = &stream.as_bytes()[..stream.len() / 2];
    match how {
        How::Streamed | How::Whole => {
            pieces(connection, stream.as_bytes()) && http::piece(connection, b"")
        }
        How::Cut => pieces(connection, half) && http::piece(connection, b""),
        How::Broken => {
            pieces(connection, half);
            false
        }
        How::Stalled => {
            if pieces(connection, half) {
                http::stall(connection);
            }
            false
        }
        How::Error(kind) => {
            // At the end of an event.
            let end = stream[..stream.len() / 2]
                .rfind("\n\n")
                .map_or(0, |end| end + 2);
            let error = Reply::error(api, kind, "in the middle of it");
            let event = format!("event: error\ndata: {error}\n\n");
            pieces(connection, &stream.as_bytes()[..end])
                && pieces(connection, event.as_bytes())
                && http::piece(connection, b"")
        }
    }
}

/// Writes bytes in pieces of odd lengths, which grow so that a long answer does not take long.
fn pieces(connection: &TcpStream, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut length = 1;
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(length.min(rest.len()));
        if !http::piece(connection, piece) {
            return false;
        }
        rest = more;
        length = if length > 5000 { 1 } else { length * 3 + 1 };
    }
    true
}

/// Parts a text, so that there are several deltas even of a short one.
fn parts(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters
        .chunks(letters.len().div_ceil(2).clamp(1, 40))
        .map(|part| part.iter().collect())
        .collect()
}

fn calls(says: &[Say]) -> bool {
    says.iter().any(|say| matches!(say, Say::Call { .. }))
}

fn anthropic_usage(bill: Bill) -> Value {
    json!({"input_tokens": bill.input, "cache_creation_input_tokens": bill.written,
        "cache_read_input_tokens": bill.read, "output_tokens": bill.output})
}

fn anthropic_stream(says: &[Say], stop: Option<&str>, bill: Bill) -> String {
    let mut usage = anthropic_usage(bill);
    usage["output_tokens"] = json!(1);
    let message = json!({"id": new_id("msg"), "type": "message", "role": "assistant", "model": "fake", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage});
    let mut events = vec![
        json!({"type": "message_start", "message": message}),
        json!({"type": "ping"}),
    ];
    for (index, say) in says.iter().enumerate() {
        let (block, deltas) = match say {
            Say::Text(text) => (
                json!({"type": "text", "text": ""}),
                parts(text)
                    .into_iter()
                    .map(|text| json!({"type": "text_delta", "text": text}))
                    .collect(),
            ),
            Say::Call { id, name, input } => {
                let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                (
                    block,
                    parts(input)
                        .into_iter()
                        .map(|json| json!({"type": "input_json_delta", "partial_json": json}))
                        .collect(),
                )
            }
            Say::Opaque(block) => (block.clone(), Vec::new()),
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        for delta in deltas {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let stop = stop.unwrap_or(if calls(says) { "tool_use" } else { "end_turn" });
    events.push(
        json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null},
        "usage": {"output_tokens": bill.output}}),
    );
    events.push(json!({"type": "message_stop"}));
    events
        .iter()
        .map(|event| {
            format!(
                "event: {}\ndata: {event}\n\n",
                event["type"].as_str().unwrap()
            )
        })
        .collect()
}

fn anthropic_whole(says: &[Say], stop: Option<&str>, bill: Bill) -> Value {
    let stop = stop.unwrap_or(if calls(says) { "tool_use" } else { "end_turn" });
    let content: Vec<_> = says
        .iter()
        .map(|say| match say {
            Say::Text(text) => json!({"type": "text", "text": text}),
            Say::Call { id, name, input } => {
                let input: Value = serde_json::from_str(input).unwrap_or_default();
                json!({"type": "tool_use", "id": id, "name": name, "input": input})
            }
            Say::Opaque(block) => block.clone(),
        })
        .collect();
    json!({"id": new_id("msg"), "type": "message", "role": "assistant", "model": "fake", "content": content,
        "stop_reason": stop, "stop_sequence": null, "usage": anthropic_usage(bill)})
}

fn openai_usage(bill: Bill) -> Value {
    let prompt = bill.input + bill.read;
    json!({"prompt_tokens": prompt, "completion_tokens": bill.output, "total_tokens": prompt + bill.output,
        "prompt_tokens_details": {"cached_tokens": bill.read}})
}

fn openai_stream(says: &[Say], stop: Option<&str>, bill: Option<Bill>) -> String {
    let chunk = |delta: Value, finish: Option<&str>| {
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "fake",
            "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]})
    };
    let mut chunks = vec![chunk(
        json!({"role": "assistant", "content": "", "refusal": null}),
        None,
    )];
    let mut index = 0;
    for say in says {
        match say {
            Say::Text(text) => {
                chunks.extend(
                    parts(text)
                        .iter()
                        .map(|text| chunk(json!({ "content": text }), None)),
                );
            }
            Say::Call { id, name, input } => {
                let first = json!({"index": index, "id": id, "type": "function",
                    "function": {"name": name, "arguments": ""}});
                chunks.push(chunk(json!({ "tool_calls": [first] }), None));
                for half in parts(input) {
                    let more = json!({"index": index, "function": {"arguments": half}});
                    chunks.push(chunk(json!({ "tool_calls": [more] }), None));
                }
                index += 1;
            }
            Say::Opaque(_) => {}
        }
    }
    let stop = stop.unwrap_or(if calls(says) { "tool_calls" } else { "stop" });
    chunks.push(chunk(json!({}), Some(stop)));
    if let Some(bill) = bill {
        chunks.push(
            json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
            "model": "fake", "choices": [], "usage": openai_usage(bill)}),
        );
    }
    let events: String = chunks
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect();
    format!("{events}data: [DONE]\n\n")
}

fn openai_whole(says: &[Say], stop: Option<&str>, bill: Bill) -> Value {
    let text: String = says
        .iter()
        .filter_map(|say| {
            if let Say::Text(text) = say {
                Some(text.as_str())
            } else {
                None
            }
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": text, "refusal": null});
    if calls(says) {
        message["tool_calls"] = says.iter().filter_map(|say| match say {
        Say::Call { id, name, input } => Some(
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": input}}),
        ),
        _ => None,
    }).collect();
    }
    let stop = stop.unwrap_or(if calls(says) { "tool_calls" } else { "stop" });
    json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "fake",
        "choices": [{"index": 0, "message": message, "finish_reason": stop}], "usage": openai_usage(bill)})
}

/// An answer of the newer API of OpenAI.
fn response(says: &[Say], bill: Bill) -> Value {
    let item = |say: &Say| match say {
        Say::Text(text) => {
            let text = json!({"type": "output_text", "text": text, "annotations": []});
            json!({"type": "message", "id": new_id("msg"), "role": "assistant", "status": "completed", "content": [text]})
        }
        Say::Call { id, name, input } => {
            json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name, "arguments": input, "status": "completed"})
        }
        Say::Opaque(item) => item.clone(),
    };
    let input = bill.input + bill.read;
    let usage = json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": bill.read}, "output_tokens": bill.output,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": input + bill.output});
    json!({"id": "resp_1", "object": "response", "created_at": 1, "model": "fake", "status": "completed",
        "output": says.iter().map(item).collect::<Vec<_>>(), "usage": usage})
}

fn responses_stream(says: &[Say], bill: Bill) -> String {
    let whole = response(says, bill);
    let mut events = vec![
        json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}}),
    ];
    for (index, item) in whole["output"].as_array().into_iter().flatten().enumerate() {
        events.push(
            json!({"type": "response.output_item.added", "output_index": index, "item": item}),
        );
        events.push(
            json!({"type": "response.output_item.done", "output_index": index, "item": item}),
        );
    }
    events.push(json!({"type": "response.completed", "response": whole}));
    events
        .iter()
        .map(|event| {
            format!(
                "event: {}\ndata: {event}\n\n",
                event["type"].as_str().unwrap()
            )
        })
        .collect()
}

/// An answer of Google's API, or the last part of one.
fn google(says: &[Say], bill: Bill) -> Value {
    let part = |say: &Say| match say {
        Say::Text(text) => json!({ "text": text }),
        Say::Call { name, input, .. } => {
            let input: Value = serde_json::from_str(input).unwrap();
            json!({"functionCall": {"name": name, "args": input}})
        }
        Say::Opaque(part) => part.clone(),
    };
    let parts: Vec<_> = says.iter().map(part).collect();
    let content = json!({"role": "model", "parts": parts});
    let prompt = bill.input + bill.read;
    // One token of the output is a thought.
    let usage = json!({"promptTokenCount": prompt, "cachedContentTokenCount": bill.read,
        "candidatesTokenCount": bill.output - 1, "thoughtsTokenCount": 1, "totalTokenCount": prompt + bill.output});
    json!({"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage,
        "modelVersion": "fake", "responseId": new_id("google")})
}

fn google_stream(says: &[Say], bill: Bill) -> String {
    let mut events = Vec::new();
    for say in says {
        if let Say::Text(text) = say {
            // What it has cost so far comes with each part.
            events.extend(parts(text).into_iter().map(|text| {
                let so_far = Bill { output: 1, ..bill };
                let mut part = google(&[Say::Text(text)], so_far);
                part["candidates"][0]["finishReason"] = Value::Null;
                part
            }));
        }
    }
    let calls: Vec<Say> = says
        .iter()
        .filter(|say| !matches!(say, Say::Text(_)))
        .cloned()
        .collect();
    events.push(google(&calls, bill));
    events
        .iter()
        .map(|event| format!("data: {event}\r\n\r\n"))
        .collect()
}
