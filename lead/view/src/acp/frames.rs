//! The lines of the protocol: one JSON-RPC 2.0 frame each.

use std::fmt;

use agent_client_protocol_schema::v1::{Error, RequestId};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

/// What the client has sent.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Frame {
    /// A request: it is answered.
    Request {
        id: RequestId,
        method: String,
        params: Value,
    },
    /// A notification: it is not.
    Notification { method: String, params: Value },
    /// The answer to a request of ours; none: the client has refused it.
    Response {
        id: RequestId,
        result: Option<Value>,
    },
    /// None of these: the request that it may have been, and why it is none.
    Bad { id: RequestId, error: Error },
}

/// The fields of every frame.
#[derive(Deserialize)]
struct FrameFields {
    id: Option<RequestId>,
    method: Option<String>,
    #[serde(default)]
    params: Value,
    #[serde(default, deserialize_with = "present")]
    result: Option<Value>,
    error: Option<Value>,
}

/// Reads a field that is there, whatever it is: also null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Reads a line.
pub(super) fn read(line: &[u8]) -> Frame {
    let value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(error) => return bad(None, Error::parse_error(), &error.to_string()),
    };
    let fields = match FrameFields::deserialize(value) {
        Ok(fields) => fields,
        Err(error) => return bad(None, Error::invalid_request(), &error.to_string()),
    };
    let params = fields.params;
    match (fields.method, fields.id) {
        (Some(method), Some(id)) => Frame::Request { id, method, params },
        (Some(method), None) => Frame::Notification { method, params },
        (None, Some(id)) if fields.result.is_some() || fields.error.is_some() => {
            let result = fields.result;
            Frame::Response { id, result }
        }
        (None, id) => bad(id, Error::invalid_request(), "it has no method"),
    }
}

/// Returns the id of a request of which only the beginning is known; null if that does not tell it.
pub(super) fn id_at_beginning(line: &[u8]) -> RequestId {
    let mut beginning = FrameBeginning::default();
    let mut json = serde_json::Deserializer::from_slice(line);
    // It breaks off: what was read until then counts.
    drop(json.deserialize_map(&mut beginning));
    match beginning {
        FrameBeginning {
            id: Some(id),
            is_answer: false,
        } => id,
        _ => RequestId::Null,
    }
}

/// What the beginning of a frame tells.
#[derive(Default)]
struct FrameBeginning {
    id: Option<RequestId>,
    /// Whether it answers a request of ours: its id is none of the client's.
    is_answer: bool,
}

impl<'de> Visitor<'de> for &mut FrameBeginning {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a frame")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut id = None;
        while let Some(field) = fields.next_key::<String>()? {
            // A number could be cut; one that a field follows is whole.
            self.id.clone_from(&id);
            self.is_answer |= field == "result" || field == "error";
            if field == "id" {
                id = fields.next_value()?;
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

fn bad(id: Option<RequestId>, error: Error, why: &str) -> Frame {
    Frame::Bad {
        id: id.unwrap_or(RequestId::Null),
        error: error.data(Value::from(why)),
    }
}

/// Writes a request.
pub(super) fn request(id: i64, method: &str, params: &impl Serialize) -> String {
    line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

/// Writes a notification.
pub(super) fn notification(method: &str, params: &impl Serialize) -> String {
    line(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

/// Writes the answer to a request.
pub(super) fn response(id: &RequestId, result: &impl Serialize) -> String {
    line(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// Writes the refusal of a request.
pub(super) fn refusal(id: &RequestId, error: &Error) -> String {
    line(&json!({"jsonrpc": "2.0", "id": id, "error": error}))
}

fn line(frame: &Value) -> String {
    format!("{frame}\n")
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::v1::ErrorCode;

    use super::*;

    #[test]
    fn a_line_is_a_request_a_notification_or_an_answer() {
        let read = |text: &str| read(text.as_bytes());
        let asked = Frame::Request {
            id: RequestId::Str("a".to_owned()),
            method: "m".to_owned(),
            params: json!([1]),
        };
        assert_eq!(read(r#"{"id": "a", "method": "m", "params": [1]}"#), asked);
        let told = Frame::Notification {
            method: "m".to_owned(),
            params: Value::Null,
        };
        assert_eq!(read(r#"{"method": "m", "id": null}"#), told);
        for (text, result) in [
            (r#"{"id": 7, "result": true}"#, Some(json!(true))),
            (r#"{"id": 7, "result": null}"#, Some(Value::Null)),
            (r#"{"id": 7, "error": {"code": 1, "message": "no"}}"#, None),
        ] {
            let id = RequestId::Number(7);
            assert_eq!(read(text), Frame::Response { id, result });
        }
        for (text, code) in [
            ("{\"id\": 7", ErrorCode::ParseError),
            ("[]", ErrorCode::InvalidRequest),
            (r#"{"id": [1], "method": "m"}"#, ErrorCode::InvalidRequest),
            ("{}", ErrorCode::InvalidRequest),
        ] {
            let Frame::Bad { error, .. } = read(text) else {
                panic!("{text}");
            };
            assert_eq!(error.code, code, "{text}");
        }
    }

    #[test]
    fn the_beginning_of_a_request_tells_its_id_unless_that_comes_later() {
        let number = RequestId::Number(7);
        let text = RequestId::Str("a".to_owned());
        for (line, id) in [
            (
                r#"{"jsonrpc": "2.0", "id": 7, "params": {"id": 8, "x": "y"#,
                &number,
            ),
            (r#"{"params": [{}], "id": "a", "method": "m", "x": "#, &text),
            (
                r#"{"method": "m", "params": {"id": 7, "x": "y"#,
                &RequestId::Null,
            ),
            (r#"{"method": "m", "id": 7"#, &RequestId::Null),
            (
                r#"{"id": [1], "method": "m", "params": "y"#,
                &RequestId::Null,
            ),
            (r#"{"id": 7, "result": "y"#, &RequestId::Null),
            (r#"[{"id": 7, "method": "m"}, "#, &RequestId::Null),
            ("", &RequestId::Null),
        ] {
            assert_eq!(id_at_beginning(line.as_bytes()), *id, "{line}");
        }
    }
}
