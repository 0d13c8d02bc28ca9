//! What [`super::read`] accepts as a message, as a JSON Schema. A test compares both on the same
//! objects.

use serde_json::Value;

/// The spellings of a UUID that are read, as a pattern.
pub const UUID: &str = "^([0-9a-fA-F]{32}|(urn:uuid:)?[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\\{[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\\})$";

/// Returns the JSON Schema (2020-12) of a line of an inbox.
///
/// It accepts what the reader accepts, including the spellings of other writers. Messages of this
/// project have the names of the table in `docs/protocol.md`, which the descriptions repeat.
pub fn schema() -> Value {
    serde_json::from_str(include_str!("../schema/message.json")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
    use serde_json::json;

    const FIELDS: [&str; 26] = [
        "type",
        "from",
        "to",
        "id",
        "timestamp",
        "ts",
        "content",
        "text",
        "request_id",
        "requestId",
        "metadata",
        "approve",
        "approved",
        "reason",
        "plan",
        "feedback",
        "incarnation",
        "decide_within",
        "answered_by",
        "idle_reason",
        "summary",
        "name",
        "tool",
        "input",
        "message_id",
        "why",
    ];

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            (-2i64..1 << 33).prop_map(Value::from),
            Just(json!(0.5)),
            Just(json!(7.0)),
            Just(json!(-0.0)),
            Just(json!(1e30)),
            Just(json!("a1b2c3d4")),
            Just(json!("no id!")),
            Just(json!("available")),
            Just(json!([])),
            Just(json!({})),
            Just(json!({"request_id": "a", "approve": true})),
            Just(json!({"request_id": 7, "approve": null})),
        ]
    }

    fn kind() -> impl Strategy<Value = &'static str> {
        proptest::sample::select(vec![
            "message",
            "broadcast",
            "shutdown_request",
            "shutdown_response",
            "shutdown_approved",
            "shutdown_rejected",
            "plan_request",
            "plan_approval_request",
            "plan_approval_response",
            "review_request",
            "permission_request",
            "idle_notification",
            "teammate_terminated",
            "returned",
            "something_else",
        ])
    }

    proptest! {
        /// The reader and the schema agree on every object.
        #[test]
        fn the_reader_and_the_schema_agree(
            kind in kind(),
            from in proptest::sample::select(vec!["lead", "alice"]),
            fields in proptest::collection::vec((proptest::sample::select(FIELDS.to_vec()), value()), 0..6),
        ) {
            let mut message = json!({"type": kind, "from": from, "request_id": "a1", "approve": true});
            for (field, value) in fields {
                message[field] = value;
            }
            thread_local! {
                static VALIDATOR: jsonschema::Validator = jsonschema::validator_for(&schema()).unwrap();
            }
            let valid = VALIDATOR.with(|validator| validator.is_valid(&message));
            let read = Message::parse(message.to_string().as_bytes());
            proptest::prop_assert_eq!(valid, read.is_ok(), "{} {:?}", message, read);
        }
    }
}
