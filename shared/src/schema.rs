//! JSON Schema (2020-12) of the files, for those who write readers and writers of their own.
//!
//! The journal, the roster and the transcript are derived from the types that read and write them, with what those say of
//! their fields. A message is read by a reader of its own, which is more generous than a type can say: its schema is
//! written beside it, and tests hold the two together. A file of lines has the schema of one line. Unknown fields are
//! allowed everywhere: a newer program may write more.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::{config, journal, message, transcript};

/// What there is a schema of.
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
}

impl Of {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Message, Self::Journal, Self::Roster, Self::Transcript];

    /// Returns its name, as it is written on a command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Journal => "journal",
            Self::Roster => "roster",
            Self::Transcript => "transcript",
        }
    }

    /// Makes the schema.
    pub fn schema(self) -> Value {
        match self {
            Self::Message => message::schema(),
            Self::Journal => derived::<journal::Line>("a line of journal.jsonl"),
            Self::Roster => derived::<config::Roster>("config.json"),
            Self::Transcript => derived::<transcript::Entry>("a line of transcript/NAME.jsonl"),
        }
    }
}

fn derived<T: JsonSchema>(title: &str) -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    schema.to_value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_schema_is_one_and_takes_what_is_written() {
        for of in Of::ALL {
            let schema = of.schema();
            assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema", "{of:?}");
            assert!(jsonschema::meta::is_valid(&schema), "{of:?}");
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
