//! Reading JSON as other programs write it. Python and Lua write whole numbers as `1.0`, and a text
//! that was cut inside an emoji as half of a surrogate pair (`"\ud83d"`). JSON allows both.

mod shape;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Error, Value};

pub use shape::Shape;

/// The whole numbers that a 64-bit float holds exactly.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// A record of a file: it is read exactly as its schema says.
pub trait JsonRecord: DeserializeOwned + Serialize {
    /// Returns the shape that its schema describes.
    fn shape() -> &'static Shape;
}

/// Declares that a type is a record of a file.
macro_rules! record {
    ($($type:ty),+) => {
        $(impl $crate::json::JsonRecord for $type {
            fn shape() -> &'static $crate::json::Shape {
                static SHAPE: std::sync::LazyLock<$crate::json::Shape> =
                    std::sync::LazyLock::new($crate::json::Shape::of::<$type>);
                &SHAPE
            }
        })+
    };
}
pub(crate) use record;

/// Tells whether a number is zero: a record leaves it out.
pub(crate) fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// Reads a record: the one reader of a start, of `lint` and of every command. One that cannot be
/// read is read again with its whole numbers written without a fraction.
///
/// # Errors
/// The error of the first reading.
pub fn read<T: JsonRecord>(text: &[u8]) -> Result<T, Error> {
    as_it_stands(text).or_else(|error| read_with_whole_numbers(text).map_err(|_| error))
}

fn read_with_whole_numbers<T: JsonRecord>(text: &[u8]) -> Result<T, Error> {
    let value = with_whole_numbers(value(text)?);
    T::shape().check(&value)?;
    serde_json::from_value(value)
}

fn as_it_stands<T: JsonRecord>(text: &[u8]) -> Result<T, Error> {
    let record = serde_json::from_slice(text)?;
    // Almost every record is one that this program wrote. It has the shape, and to derive the shape
    // from the schema takes longer than most commands.
    if !is_as_written(&record, text) {
        T::shape().check(&mut serde_json::Deserializer::from_slice(text))?;
    }
    Ok(record)
}

/// Tells whether a text is what is written for this record, apart from the ends of lines between its
/// parts: no string of JSON holds one.
fn is_as_written(record: &impl Serialize, text: &[u8]) -> bool {
    let text = text.iter().filter(|byte| **byte != b'\n');
    serde_json::to_vec(record).is_ok_and(|written| written.iter().eq(text))
}

/// Reads any JSON. Half of a surrogate pair is read as U+FFFD.
///
/// # Errors
/// The text is no JSON.
pub fn value(text: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(text).or_else(|error| match whole_surrogates(text) {
        Some(text) => serde_json::from_slice(&text),
        None => Err(error),
    })
}

/// Returns a number without a fraction, however it is written.
pub fn whole(number: &Value) -> Option<u64> {
    number.as_u64().or_else(|| {
        let float = number
            .as_f64()
            .filter(|float| float.fract() == 0.0 && (0.0..MAX_EXACT).contains(float));
        float?.abs().to_string().parse().ok()
    })
}

fn with_whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(_) => whole(&value).map_or(value, Value::from),
        Value::Array(values) => values.into_iter().map(with_whole_numbers).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name, with_whole_numbers(value)))
            .collect(),
        other => other,
    }
}

/// Returns the code unit of the escape `\uXXXX` at an index, if one is there.
fn code_unit(text: &[u8], at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

/// Replaces each half of a surrogate pair by an escape of the same length; none if there is none.
fn whole_surrogates(text: &[u8]) -> Option<Vec<u8>> {
    let mut mended = text.to_vec();
    let mut at = 0;
    while let Some(step) = text.get(at..) {
        at += match (step, code_unit(text, at), code_unit(text, at + 6)) {
            ([], ..) => break,
            (_, Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
            (_, Some(0xD800..=0xDFFF), _) => {
                mended[at + 2..at + 6].copy_from_slice(b"fffd");
                6
            }
            ([b'\\', ..], ..) => 2,
            _ => 1,
        };
    }
    (mended != text).then_some(mended)
}

/// A value that travels in a frame as JSON: bincode cannot read fields that are left out
/// (`#[serde(with = "as_text")]`).
pub(crate) mod as_text {
    use serde::de::{DeserializeOwned, Error as _};
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        serde_json::to_string(value)
            .map_err(S::Error::custom)?
            .serialize(to)
    }

    pub(crate) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        serde_json::from_str(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::position::Position;

    record!(Position);

    #[test]
    fn a_whole_number_is_one_however_it_is_written() {
        let read = |offset: &str| {
            let text = format!("{{\"offset\":{offset},\"tail\":\"00000000000000ff\"}}");
            read::<Position>(text.as_bytes()).ok().map(|it| it.offset)
        };
        for (text, number) in [
            ("1", 1),
            ("1.0", 1),
            ("1e0", 1),
            ("-0", 0),
            ("-0.0", 0),
            ("12e2", 1200),
        ] {
            assert_eq!(read(text), Some(number), "{text}");
        }
        for text in [
            "1.5",
            "-1",
            "-1.0",
            "1e30",
            "18446744073709551616.0",
            "\"1\"",
            "true",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn only_a_record_as_this_program_writes_it_needs_no_look_at_its_shape() {
        let is_as_written = |text: &str| {
            let position: Position = serde_json::from_str(text).unwrap();
            is_as_written(&position, text.as_bytes())
        };
        assert!(is_as_written(
            "{\"offset\":1,\n\"tail\":\"00000000000000ff\"}\n"
        ));
        for text in [
            "[1,\"00000000000000ff\"]",
            "{\"offset\": 1,\"tail\":\"00000000000000ff\"}",
            "{\"tail\":\"00000000000000ff\",\"offset\":1}",
            "{\"offset\":1,\"tail\":\"00000000000000ff\",\"more\":1}",
        ] {
            assert!(!is_as_written(text), "{text}");
        }
    }

    #[test]
    fn half_of_a_surrogate_pair_is_read_as_the_replacement_character() {
        for (text, read) in [
            (r#""a\ud83d""#, "a\u{fffd}"),
            (r#""\uDE00b""#, "\u{fffd}b"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
            (r#""\\ud83d\ud83dx""#, "\\ud83d\u{fffd}x"),
            (r#""\ud83d\u0041""#, "\u{fffd}A"),
        ] {
            assert_eq!(value(text.as_bytes()).unwrap(), json!(read), "{text}");
        }
        for text in [
            r#""\ud83"#,
            r#""\u+123""#,
            r#""\ud83d"#,
            r#"{"a":"\ud83d"} x"#,
            "\\",
            "",
        ] {
            assert!(value(text.as_bytes()).is_err(), "{text}");
        }
    }
}
