//! What [`super::read`] takes for a message, as a JSON Schema. A test asks both about the same objects.

use serde_json::{Value, json};

/// The spellings of a UUID that are read, as a pattern.
pub const UUID: &str = "^([0-9a-fA-F]{32}|(urn:uuid:)?[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\\{[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\\})$";

/// Returns the JSON Schema (2020-12) of a line of an inbox.
///
/// It takes what the reader takes, other writers' spellings among them. What is written here has the names of the table
/// in `docs/protocol.md`, which the descriptions repeat.
pub fn schema() -> Value {
    let kinds: Vec<Value> = [
        ("message", json!({"description": "anyone to one"})),
        ("broadcast", json!({"description": "anyone to all others"})),
        ("shutdown_request", shutdown_request()),
        ("shutdown_response", shutdown_response(true)),
        ("shutdown_approved", shutdown_response(false)),
        ("shutdown_rejected", shutdown_response(false)),
        ("plan_request", json!({"description": "the lead asks a teammate for a plan; no request, no id"})),
        ("plan_approval_request", plan()),
        ("plan_approval_response", verdict_or_plan()),
        ("idle_notification", idle()),
        ("teammate_terminated", terminated()),
    ]
    .into_iter()
    .map(|(kind, then)| json!({"if": {"properties": {"type": {"const": kind}}}, "then": then}))
    .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "a line of inbox/NAME.jsonl",
        "description": "One message: a JSON object on one line of at most 1 MiB, in UTF-8. Unknown fields are kept, an unknown type is delivered as text. A field that is null counts as absent.",
        "type": "object",
        "required": ["type", "from"],
        "properties": {
            "type": {"type": "string", "description": "what it is; one that is not in this list is text", "examples": ["message"]},
            "from": {"type": "string", "description": "who says that it sent this"},
            "to": {"type": ["string", "null"], "description": "whom it is for"},
            "id": {"description": "a UUID (version 7 where we write it): a line that is written twice is read once. Anything else is kept and means nothing"},
            "timestamp": {"description": "a number: seconds since 1970. Anything else is kept and means nothing; `ts` is read likewise"},
            "content": {"description": "the text; it repeats what reason, plan or feedback say, for readers that know only this"}
        },
        "anyOf": [
            {"required": ["content"], "properties": {"content": {"type": "string"}}},
            {"properties": {"content": {"type": "null"}, "text": {"type": ["string", "null"], "description": "another writer's name for content"}}}
        ],
        "allOf": kinds,
        "$defs": {
            "request_id": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$", "description": "we write 8 lower-case hex digits"},
            "absent": {"type": "null"},
            "text": {"type": ["string", "null"]},
            "life": {"type": ["integer", "null"], "minimum": 0, "maximum": u32::MAX, "description": "the incarnation that it is about"},
            "names_a_request": one_of_these(&["request_id", "requestId"], "request_id", &json!({"$ref": "#/$defs/request_id"})),
            "decides": one_of_these(&["approve", "approved"], "approve", &json!({"type": "boolean"}))
        }
    })
}

/// A value that is looked for under several names, the first that is there counts, and at last in `metadata`.
fn one_of_these(names: &[&str], in_metadata: &str, value: &Value) -> Value {
    let absent = |names: &[&str]| -> serde_json::Map<String, Value> {
        names.iter().map(|&name| (name.to_owned(), json!({"$ref": "#/$defs/absent"}))).collect()
    };
    let mut ways: Vec<Value> = names
        .iter()
        .enumerate()
        .map(|(at, &name)| {
            let mut properties = absent(&names[..at]);
            properties.insert(name.to_owned(), value.clone());
            json!({"required": [name], "properties": properties})
        })
        .collect();
    let mut properties = absent(names);
    properties.insert(
        "metadata".to_owned(),
        json!({"type": "object", "required": [in_metadata], "properties": {in_metadata: value}}),
    );
    ways.push(json!({"required": ["metadata"], "properties": properties}));
    json!({"anyOf": ways})
}

fn shutdown_request() -> Value {
    json!({
        "description": "the lead asks a teammate to leave",
        "allOf": [{"$ref": "#/$defs/names_a_request"}],
        "properties": {
            "incarnation": {"$ref": "#/$defs/life"},
            "reason": {"$ref": "#/$defs/text"},
            "decide_within": {"description": "a number: seconds that the model has to decide"}
        }
    })
}

/// The type `shutdown_approved` of other writers says by itself what `approve` says.
fn shutdown_response(approve: bool) -> Value {
    let mut all = vec![json!({"$ref": "#/$defs/names_a_request"})];
    all.extend(approve.then(|| json!({"$ref": "#/$defs/decides"})));
    json!({
        "description": "a teammate answers a request to leave",
        "allOf": all,
        "properties": {
            "reason": {"$ref": "#/$defs/text"},
            "answered_by": {"$ref": "#/$defs/text", "examples": ["model", "runtime"]}
        }
    })
}

fn plan() -> Value {
    json!({
        "description": "a teammate submits a plan",
        "allOf": [{"$ref": "#/$defs/names_a_request"}],
        "properties": {"plan": {"$ref": "#/$defs/text"}, "incarnation": {"$ref": "#/$defs/life"}}
    })
}

/// Others use one type for both directions, and tell them apart by the plan in it.
fn verdict_or_plan() -> Value {
    json!({
        "description": "the verdict on a plan; with a plan in it, and not from the lead, a plan that is submitted",
        "if": {"required": ["plan"], "properties": {"from": {"not": {"const": "lead"}}}},
        "then": plan(),
        "else": {
            "allOf": [{"$ref": "#/$defs/names_a_request"}, {"$ref": "#/$defs/decides"}],
            "properties": {"feedback": {"$ref": "#/$defs/text"}}
        }
    })
}

fn idle() -> Value {
    json!({
        "description": "a teammate has ended a piece of work",
        "properties": {
            "idle_reason": {"enum": ["available", "failed", "max_turns", "max_tokens", "interrupted", null]},
            "summary": {"$ref": "#/$defs/text", "description": "the first line of the final answer, at most 200 characters"}
        }
    })
}

fn terminated() -> Value {
    json!({
        "description": "the daemon saw a teammate end",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "exit": {"description": "how it ended: `code`, `signal`, `at` and `request_id` of the `exit` object of config.json"},
            "unread": {"description": "a number: messages that it had not read"}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

    const FIELDS: [&str; 22] = [
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
            "idle_notification",
            "teammate_terminated",
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
