//! How far a reader of an inbox has consumed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many bytes before the offset the fingerprint covers: mostly the last line with its id, and
/// some before it. With much less, lines of the same lengths that end alike would pass for each
/// other.
pub const TAIL: usize = 512;

/// A place between two lines of an inbox, with a fingerprint of the bytes before it.
///
/// The fingerprint is how a reader notices that a foreign program truncated or replaced the file:
/// the file is shorter than `offset`, or the bytes before it are different.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Position {
    /// Bytes from the start of the file; always just behind a newline, or 0.
    pub offset: u64,
    /// FNV-1a (64 bits) of up to [`TAIL`] bytes before `offset`, as 16 hex digits in the files.
    #[serde(with = "hex")]
    #[schemars(schema_with = "hex::schema")]
    pub tail: u64,
}

impl Position {
    /// The beginning of a file.
    pub const START: Self = Self {
        offset: 0,
        tail: FNV_OFFSET,
    };

    /// Makes the position at `offset`, given the bytes that end there (at least [`TAIL`] where
    /// there are so many).
    pub fn after(offset: u64, before: &[u8]) -> Self {
        let tail = &before[before.len().saturating_sub(TAIL)..];
        Self {
            offset,
            tail: fnv1a(tail),
        }
    }

    /// Tells whether it is the position at its offset, given the bytes that end there (at least
    /// [`TAIL`] where there are so many).
    pub fn fits(self, before: &[u8]) -> bool {
        Self::after(self.offset, before) == self
    }
}

impl Default for Position {
    fn default() -> Self {
        Self::START
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Hashes bytes with FNV-1a, 64 bits (<http://www.isthe.com/chongo/tech/comp/fnv/>). No defence
/// against an adversary is needed: a program that may write an inbox may also write any message.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(FNV_OFFSET, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME)
    })
}

/// 16 hex digits: JSON numbers lose bits beyond 53 in `jq`.
mod hex {
    use serde::de::{Error, Unexpected};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "pattern": "^[0-9a-f]{16}$"})
    }

    pub(super) fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{value:016x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_hex = text.len() == 16
            && text
                .bytes()
                .all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
        if !is_hex {
            return Err(D::Error::invalid_value(
                Unexpected::Str(&text),
                &"16 lower-case hex digits",
            ));
        }
        u64::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_the_position_after_no_bytes() {
        assert_eq!(Position::after(0, b""), Position::START);
    }

    #[test]
    fn only_the_last_bytes_count() {
        let long = [b'x'; 3 * TAIL];
        assert_eq!(
            Position::after(7000, &long),
            Position::after(7000, &long[2 * TAIL..])
        );
        assert_ne!(Position::after(3, b"abc"), Position::after(3, b"abd"));
    }

    #[test]
    fn it_is_written_so_that_jq_keeps_it() {
        let json = serde_json::to_string(&Position::START).unwrap();
        assert_eq!(json, r#"{"offset":0,"tail":"cbf29ce484222325"}"#);
        assert_eq!(
            serde_json::from_str::<Position>(&json).unwrap(),
            Position::START
        );
    }
}
