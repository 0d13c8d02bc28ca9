//! JSON Schema (2020-12) of the files, for people who write their own readers and writers.
//!
//! The schemas of the journal, the roster and the transcript are derived from the types that read
//! and write them, with their field comments. A message is read by a reader of its own, which is
//! more generous than a type can say: its schema is written beside it, and tests hold the two
//! together. A file of lines has the schema of one line. Unknown fields are allowed everywhere: a
//! newer program may write more.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::{config, host, inbox, journal, message, request, task, transcript};

/// What has a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// A line of an inbox.
    Message,
    /// A line of `journal.jsonl`.
    Journal,
    /// `config.json`.
    Roster,
    /// A line of a transcript.
    Transcript,
    /// A line of `inbox/NAME.rejected.jsonl`.
    Rejected,
    /// What a command prints with `--json`.
    Output(&'static str),
}

/// The commands whose output has a schema, and `error`.
const OUTPUTS: &str = "agents agents-install mcp-list spawn up down shutdown status orders host-add host-invite host-list memory requests inbox transcript-output events logs send broadcast wait run land-pr diagram review \
    stats compact interrupt request-plan answer forget lint doctor error teamd-start teamd-stop teamd-status teamd-trust";

impl Of {
    /// Returns all of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let files = [
            Self::Message,
            Self::Journal,
            Self::Roster,
            Self::Transcript,
            Self::Rejected,
        ];
        files
            .into_iter()
            .chain(OUTPUTS.split_whitespace().map(Self::Output))
    }

    /// Returns its name, as it is written on a command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Journal => "journal",
            Self::Roster => "roster",
            Self::Transcript => "transcript",
            Self::Rejected => "rejected",
            Self::Output(name) => name,
        }
    }

    /// Makes the schema.
    pub fn schema(self) -> Value {
        match self {
            Self::Message => message::schema(),
            Self::Journal => derived::<journal::Line>("a line of journal.jsonl"),
            Self::Roster => derived::<config::Roster>("config.json"),
            Self::Transcript => derived::<transcript::Entry>("a line of transcript/NAME.jsonl"),
            Self::Rejected => derived::<inbox::Rejected>("a line of inbox/NAME.rejected.jsonl"),
            Self::Output(name) => output(name),
        }
    }
}

fn derived<T: JsonSchema>(title: &str) -> Value {
    let mut schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    schema["title"] = title.into();
    tighten(&mut schema);
    schema
}

/// The schemas of the outputs are in a file; the parts that they share with the files of a team are
/// derived.
fn output(name: &'static str) -> Value {
    let mut outputs: Map<String, Value> =
        serde_json::from_str(include_str!("schema/outputs.json")).unwrap_or_default();
    let mut schema = outputs.remove(name).unwrap_or_default();
    let mut records = derived::<(
        config::Roster,
        request::Request,
        task::Task,
        host::HostStatus,
    )>("")["$defs"]
        .take();
    if let Some(records) = records.as_object_mut()
        && let Some(Value::Object(more)) = outputs.remove("$defs")
    {
        records.extend(more);
    }
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = format!("what --json prints: {name}").into();
    schema["$defs"] = records;
    tighten(&mut schema);
    schema
}

/// Adds patterns and maxima where a `format` alone is too loose.
fn tighten(schema: &mut Value) {
    if let Value::Array(values) = schema {
        for item in values.iter_mut() {
            tighten(item);
        }
    }
    let Value::Object(fields) = schema else {
        return;
    };
    let bounds = match fields.get("format").and_then(Value::as_str) {
        Some("uuid") => json!({"pattern": message::UUID}),
        Some("uint32") => json!({"maximum": u32::MAX}),
        Some("uint64" | "uint") => json!({"maximum": u64::MAX}),
        Some("int32") => json!({"minimum": i32::MIN, "maximum": i32::MAX}),
        _ => json!({}),
    };
    // A set that names something twice is still read.
    fields.shift_remove("uniqueItems");
    for item in fields.values_mut() {
        tighten(item);
    }
    if let Value::Object(bounds) = bounds {
        fields.extend(bounds);
    }
}

#[cfg(test)]
mod comparison;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_schema_is_one_and_takes_what_is_written() {
        for of in Of::all() {
            let schema = of.schema();
            assert_eq!(
                schema["$schema"], "https://json-schema.org/draft/2020-12/schema",
                "{of:?}"
            );
            assert!(jsonschema::meta::is_valid(&schema), "{of:?}");
        }
    }

    #[test]
    fn every_output_has_a_schema_of_its_own() {
        let outputs: Map<String, Value> =
            serde_json::from_str(include_str!("schema/outputs.json")).unwrap();
        let names: Vec<&str> = outputs
            .keys()
            .map(String::as_str)
            .filter(|name| *name != "$defs")
            .collect();
        assert_eq!(names.join(" "), OUTPUTS);
        let mut all: Vec<&str> = Of::all().map(Of::as_str).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), Of::all().count(), "a name is taken twice");
    }

    #[test]
    fn what_a_reader_refuses_the_schema_does_not_take() {
        let validator = jsonschema::validator_for(&Of::Journal.schema()).unwrap();
        let line = json!({"seq": 1, "at": 1.5, "done": 0, "record": "team", "event": "started", "team_name": "t",
            "daemon": null, "tell": [{"to": "lead", "id": "0197f5f2-0000-7000-8000-000000000001"}]});
        let cases = [
            (
                "/tell/0/id",
                json!("0197F5F2000070008000000000000001"),
                true,
            ),
            (
                "/tell/0/id",
                json!("{0197f5f2-0000-7000-8000-000000000001}"),
                true,
            ),
            (
                "/tell/0/id",
                json!("urn:uuid:0197f5f2-0000-7000-8000-000000000001"),
                true,
            ),
            ("/tell/0/id", json!("7"), false),
            (
                "/tell/0/id",
                json!("{0197f5f2000070008000000000000001}"),
                false,
            ),
            (
                "/tell/0/id",
                json!("0197f5f2-0000-7000-8000-000000000001 "),
                false,
            ),
            ("/seq", json!(1.0), true),
            ("/seq", json!(1e30), false),
            ("/seq", json!(-1), false),
            ("/seq", json!(1.5), false),
        ];
        for (at, value, good) in cases {
            let mut changed = line.clone();
            *changed.pointer_mut(at).unwrap() = value;
            assert_eq!(validator.is_valid(&changed), good, "{changed}");
            let read = crate::json::read::<journal::Line>(changed.to_string().as_bytes());
            assert_eq!(read.is_ok(), good, "{changed}: {read:?}");
        }
    }

    #[test]
    fn a_line_of_the_journal_is_taken_and_a_broken_one_is_not() {
        let validator = jsonschema::validator_for(&Of::Journal.schema()).unwrap();
        let line = json!({"seq": 1, "at": 1.5, "version": 1, "done": 0, "record": "team", "event": "started",
            "team_name": "t", "daemon": {"pid": 7, "start_ticks": 9, "boot_id": "b", "started_at": 1.0}, "more": []});
        assert!(validator.is_valid(&line));
        assert!(serde_json::from_value::<journal::Line>(line.clone()).is_ok());
        for (field, value) in [
            ("record", json!("teem")),
            ("event", json!("spawned")),
            ("seq", json!("1")),
            ("daemon", json!(7)),
        ] {
            let mut broken = line.clone();
            broken[field] = value;
            assert!(!validator.is_valid(&broken), "{broken}");
            assert!(serde_json::from_value::<journal::Line>(broken).is_err());
        }
    }
}
