//! The inputs of tools: read from what a model says by serde, and described to it by the schema of
//! the same type. Pure.

use std::fmt::Display;

use crate::visible::is_hidden;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess,
};
use serde_json::{Map, Value, json, map};

use super::ToolText;

/// The longest description of an activity, in characters.
const MAX_ACTIVITY: usize = 60;

/// Reads a call of a tool. `subject`: the field that says what a call is about, for the people who
/// look on.
///
/// # Errors
/// A text for the model: which field is wrong, and what belongs there.
pub fn parse<T: DeserializeOwned>(
    tool: &str,
    subject: &str,
    input: &Value,
) -> Result<(String, T), String> {
    let mut fields = match input {
        Value::Object(fields) => fields.clone(),
        // Some models say nothing where a tool needs nothing.
        Value::Null => Map::new(),
        Value::String(text) => return Err(format!("{tool}: {}", unreadable(text))),
        _ => return Err(format!("{tool}: the input must be a JSON object")),
    };
    fields.retain(|_, value| !value.is_null());
    let activity = activity(tool, fields.get(subject));
    let fields = Fields {
        rest: fields.into_iter(),
        next: None,
    };
    let input = T::deserialize(MapAccessDeserializer::new(fields));
    Ok((activity, input.map_err(|error| format!("{tool}: {error}"))?))
}

/// Describes a tool to a model: what the tool does and when to use it is the comment of its type,
/// and each field has its own. The keywords of a schema that tell a model nothing are left out,
/// since each costs tokens in every call.
pub fn describe<T: JsonSchema>(name: &'static str) -> ToolText {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    let description = schema["description"]
        .as_str()
        .unwrap_or_default()
        .replace('\n', " ");
    let mut properties = match schema["properties"].take() {
        Value::Object(properties) => properties,
        _ => Map::new(),
    };
    for property in properties.values_mut().filter_map(Value::as_object_mut) {
        shorten(property);
    }
    let required = match schema["required"].take() {
        Value::Null => json!([]),
        required => required,
    };
    let input = json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    ToolText {
        name,
        description,
        input,
    }
}

/// Leaves out of the schema of a field what tells a model nothing. The elements of a list keep
/// their fields.
fn shorten(property: &mut Map<String, Value>) {
    property.retain(|keyword, value| match keyword.as_str() {
        "type" | "minimum" | "items" => true,
        "description" => value.as_str().is_some_and(|text| !text.is_empty()),
        _ => false,
    });
    // An optional field has its type, and null.
    if let Some(only) = property.get("type").and_then(|types| types.get(0)).cloned() {
        property.insert("type".to_owned(), only);
    }
    let Some(element) = property.get_mut("items").and_then(Value::as_object_mut) else {
        return;
    };
    element.retain(|keyword, _| matches!(keyword.as_str(), "type" | "properties" | "required"));
    let fields = element.get_mut("properties").and_then(Value::as_object_mut);
    for field in fields.into_iter().flat_map(Map::values_mut) {
        field.as_object_mut().map(shorten).unwrap_or_default();
    }
}

/// Describes a call in a few words, on one line, at most 60 characters; control characters are
/// shown.
fn activity(tool: &str, subject: Option<&Value>) -> String {
    let subject = match subject {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    // Control characters could move a cursor, turn the direction of text, or end a line.
    let subject: String = subject
        .trim()
        .chars()
        .take(MAX_ACTIVITY + 1)
        .map(|c| {
            if is_hidden(c) {
                c.escape_default().to_string()
            } else {
                c.to_string()
            }
        })
        .collect();
    let all = if subject.is_empty() {
        tool.to_owned()
    } else {
        format!("{tool}: {subject}")
    };
    if all.chars().count() <= MAX_ACTIVITY {
        return all;
    }
    all.chars().take(MAX_ACTIVITY - 1).chain(['…']).collect()
}

/// Says what is wrong with an input that is text: a service passes on as text what is no valid
/// JSON.
fn unreadable(text: &str) -> String {
    match serde_json::from_str::<Value>(text) {
        Err(error) if error.is_eof() => format!(
            "nothing was done: the input ends in the middle, after {} characters; if the answer grew too long, do it in \
             smaller pieces",
            text.chars().count()
        ),
        Err(error) => format!("nothing was done: the input is not valid JSON ({error})"),
        Ok(_) => "the input must be a JSON object, not a string".to_owned(),
    }
}

/// The fields of an input. An error in a value names its field, which `serde_json` does not.
struct Fields {
    rest: map::IntoIter,
    next: Option<(String, Value)>,
}

impl<'de> MapAccess<'de> for Fields {
    type Error = serde_json::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, serde_json::Error> {
        self.next = self.rest.next();
        let name = self.next.as_ref().map(|(name, _)| name.clone());
        name.map(|name| seed.deserialize(name.into_deserializer()))
            .transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, serde_json::Error> {
        let (name, value) = self.next.take().unwrap_or_default();
        seed.deserialize(value)
            .map_err(|error| serde_json::Error::custom(format!("the field `{name}`: {error}")))
    }
}

/// Reads a text that is not blank.
pub fn not_blank<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    checked(
        input,
        |text: &String| !text.trim().is_empty(),
        "a string that is not empty",
    )
}

/// Reads a text that is not blank and can be given to the system, which ends its strings with NUL.
pub fn without_nul<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    let text = not_blank(input)?;
    let is_bad = text.contains('\0');
    if is_bad {
        Err(D::Error::custom("must be a string without NUL characters"))
    } else {
        Ok(text)
    }
}

/// Reads a whole number from 1, as `5` or `5.0`: some models write every number as the latter.
pub fn count<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    let number = checked(
        input,
        |number: &f64| number.fract() == 0.0 && (1.0..=9e15).contains(number),
        "a whole number from 1",
    )?;
    Ok(format!("{number:.0}").parse().ok())
}

/// Reads a value that must be as a model is told.
pub fn checked<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    input: D,
    is_right: impl Fn(&T) -> bool,
    expected: impl Display,
) -> Result<T, D::Error> {
    let value = T::deserialize(input)?;
    if is_right(&value) {
        Ok(value)
    } else {
        Err(D::Error::custom(format!("must be {expected}")))
    }
}
