//! Puts wrong values into each field of each record: the schema and the reader must agree on them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{Of, derived};
use crate::config::Roster;
use crate::inbox::Rejected;
use crate::journal::Line;
use crate::json::{self, JsonRecord};
use crate::task::Task;
use crate::transcript::Entry;

/// Returns records that together have every field of a schema, with each type that it may have.
fn samples(schema: &Value, root: &Value) -> Vec<Value> {
    if schema["$ref"] == "#" {
        // A snapshot holds lines, and lines hold snapshots.
        let line = json!({"seq": 1, "at": 1.5, "done": 0, "record": "team", "event": "started", "team_name": "t"});
        return vec![line];
    }
    let schema = &resolved(schema, root);
    if let Some(word) = schema.get("const") {
        return vec![word.clone()];
    }
    if let Some(words) = schema["enum"].as_array() {
        return vec![words[0].clone()];
    }
    let bases = of_type(schema, root);
    let variants = ["anyOf", "oneOf"]
        .into_iter()
        .filter_map(|key| schema[key].as_array())
        .flatten();
    let variants: Vec<Value> = variants
        .flat_map(|variant| samples(variant, root))
        .collect();
    match (bases.is_empty(), variants.is_empty()) {
        (_, true) => bases,
        (true, false) => variants,
        (false, false) => {
            let merge = |base: &Value, variant: &Value| {
                let mut both = base.clone();
                if let Some(both) = both.as_object_mut()
                    && let Some(variant) = variant.as_object()
                {
                    both.extend(variant.clone());
                }
                both
            };
            let first = variants[0].clone();
            let of_variants = variants.iter().map(|variant| merge(&bases[0], variant));
            of_variants
                .chain(bases[1..].iter().map(|base| merge(base, &first)))
                .collect()
        }
    }
}

/// Returns a schema with its references resolved.
fn resolved(schema: &Value, root: &Value) -> Value {
    let Some(name) = schema["$ref"].as_str() else {
        return schema.clone();
    };
    let mut whole = resolved(root.pointer(name.trim_start_matches('#')).unwrap(), root);
    let own = schema.as_object().unwrap();
    for (key, value) in own.iter().filter(|(key, _)| *key != "$ref") {
        match (
            whole.get_mut(key).and_then(Value::as_object_mut),
            value.as_object(),
        ) {
            (Some(fields), Some(more)) => fields.extend(more.clone()),
            _ => whole[key] = value.clone(),
        }
    }
    whole
}

fn of_type(schema: &Value, root: &Value) -> Vec<Value> {
    let several = schema["type"]
        .as_array()
        .and_then(|types| types.iter().find(|it| *it != "null"));
    let kind = schema["type"]
        .as_str()
        .or_else(|| several.and_then(Value::as_str));
    match kind {
        Some("object") => objects(schema, root),
        Some("array") => {
            let Some(items) = schema["prefixItems"].as_array() else {
                let of_items = samples(&schema["items"], root);
                return of_items.into_iter().map(|item| json!([item])).collect();
            };
            let items = items.iter().map(|item| samples(item, root)[0].clone());
            vec![items.collect()]
        }
        Some("string") => vec![text(schema).into()],
        Some("number") => vec![json!(1.5)],
        Some("integer") => vec![json!(1)],
        Some("boolean") => vec![json!(true)],
        Some(other) => vec![Value::Null; usize::from(other == "null")],
        None if schema["anyOf"].is_array() || schema["oneOf"].is_array() => Vec::new(),
        // Anything may be there.
        None => vec![json!({"any": [1]})],
    }
}

fn objects(schema: &Value, root: &Value) -> Vec<Value> {
    let none = Map::new();
    let fields = schema["properties"].as_object().unwrap_or(&none);
    let of_fields: BTreeMap<&String, Vec<Value>> = fields
        .iter()
        .map(|(name, field)| (name, samples(field, root)))
        .collect();
    let firsts = of_fields
        .iter()
        .filter_map(|(name, values)| Some(((*name).clone(), values.first()?.clone())));
    let mut first: Map<String, Value> = firsts.collect();
    let mut others = Vec::new();
    for key in ["additionalProperties", "patternProperties"] {
        let Some(of_values) = schema[key].as_object() else {
            continue;
        };
        let value = if key == "additionalProperties" {
            &schema[key]
        } else {
            of_values.values().next().unwrap()
        };
        let word = schema
            .get("propertyNames")
            .map(|names| samples(names, root).swap_remove(0));
        let word = word.unwrap_or_else(|| {
            if key == "patternProperties" {
                json!("1")
            } else {
                json!("alice")
            }
        });
        let name = word.as_str().unwrap();
        others.extend(
            samples(value, root)
                .into_iter()
                .map(|value| (name.to_owned(), value)),
        );
    }
    first.extend(others.first().cloned());
    let mut all = vec![Value::Object(first.clone())];
    let more = of_fields.iter().flat_map(|(name, values)| {
        values
            .iter()
            .skip(1)
            .map(|value| ((*name).clone(), value.clone()))
    });
    for (name, value) in more.chain(others.into_iter().skip(1)) {
        let mut changed = first.clone();
        changed.insert(name, value);
        all.push(Value::Object(changed));
    }
    all
}

fn text(schema: &Value) -> &'static str {
    match (schema["pattern"].as_str(), schema["format"].as_str()) {
        (_, Some("uuid")) => "0197f5f2-0000-7000-8000-000000000001",
        (Some("^[0-9a-f]{16}$"), _) => "00000000000000ff",
        _ => "alice",
    }
}

/// Returns the values that replace a value.
fn wrong(value: &Value) -> Vec<Value> {
    let mut wrong = vec![
        json!(null),
        json!("closed"),
        json!(""),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(1e30),
        json!(4_294_967_296_u64),
        json!(true),
        json!([]),
        json!({}),
        json!([value]),
    ];
    match value {
        Value::String(text) => {
            wrong.extend([
                json!(format!("{text}0")),
                json!(text[1..]),
                json!(text.to_uppercase()),
                json!({text: null}),
            ]);
        }
        Value::Object(fields) => {
            wrong.push(fields.values().cloned().collect());
            wrong.extend(fields.keys().map(|name| {
                let mut without = fields.clone();
                without.shift_remove(name);
                without.into()
            }));
        }
        Value::Array(items) => {
            wrong.push(items.iter().chain(items).cloned().collect());
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    wrong
}

/// Returns every place in a value, as a JSON pointer.
fn places(value: &Value, at: &str, places: &mut Vec<String>) {
    places.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter() {
                self::places(value, &format!("{at}/{name}"), places);
            }
        }
        Value::Array(items) => {
            for (n, value) in items.iter().enumerate() {
                self::places(value, &format!("{at}/{n}"), places);
            }
        }
        _ => {}
    }
}

fn agree<T: JsonRecord>(schema: &Value) {
    let validator = jsonschema::validator_for(schema).unwrap();
    let mut tried = BTreeSet::new();
    let mut disagreements = Vec::new();
    for sample in samples(schema, schema) {
        let mut judge = |value: &Value, at: &str| {
            let valid = validator.is_valid(value);
            let read = json::read::<T>(value.to_string().as_bytes());
            if valid != read.is_ok() {
                let found = value.pointer(at);
                disagreements.push(format!(
                    "{at}: {found:?}: the schema says {valid}, the reader {:?}",
                    read.err()
                ));
            }
            valid
        };
        assert!(
            judge(&sample, ""),
            "{sample}: {:?}",
            validator
                .iter_errors(&sample)
                .map(|it| it.to_string())
                .collect::<Vec<_>>()
        );
        let mut all = Vec::new();
        places(&sample, "", &mut all);
        for at in all {
            for wrong in wrong(sample.pointer(&at).unwrap()) {
                if tried.insert((at.clone(), wrong.to_string())) {
                    let mut changed = sample.clone();
                    *changed.pointer_mut(&at).unwrap() = wrong;
                    judge(&changed, &at);
                }
            }
        }
    }
    assert!(tried.len() > 50, "{}", tried.len());
    disagreements.sort();
    disagreements.dedup();
    assert!(
        disagreements.is_empty(),
        "{} of {}:\n{}",
        disagreements.len(),
        tried.len(),
        disagreements[..disagreements.len().min(20)].join("\n")
    );
}

#[test]
fn a_line_of_the_journal_is_read_as_its_schema_says() {
    agree::<Line>(&Of::Journal.schema());
}

#[test]
fn a_roster_is_read_as_its_schema_says() {
    agree::<Roster>(&Of::Roster.schema());
}

#[test]
fn an_entry_of_a_transcript_is_read_as_its_schema_says() {
    agree::<Entry>(&Of::Transcript.schema());
}

#[test]
fn a_rejected_line_is_read_as_its_schema_says() {
    agree::<Rejected>(&Of::Rejected.schema());
}

#[test]
fn the_file_of_a_task_is_read_as_its_schema_says() {
    agree::<Task>(&derived::<Task>("tasks/ID.json"));
}
