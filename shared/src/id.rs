//! The ids of requests, messages and tasks.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::name::Name;

/// The number of a task: 1, 2, 3 … in a team, never used again.
pub type TaskId = u32;

/// The longest request id that is read, in bytes.
pub const MAX_REQUEST_ID: usize = 64;

/// The id of a request. This project writes 8 lower-case hex digits; 1 to 64 of `[A-Za-z0-9_-]` are
/// read.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^[A-Za-z0-9_-]{1,64}$"))]
pub struct RequestId(String);

/// Why a string is no request id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a request id: 1 to 64 of A-Z, a-z, 0-9, _ and - are expected")]
pub struct RequestIdError;

impl RequestId {
    /// Reads a request id.
    ///
    /// # Errors
    /// [`RequestIdError`] if it has another length or alphabet.
    pub fn new(id: &str) -> Result<Self, RequestIdError> {
        let fits = (1..=MAX_REQUEST_ID).contains(&id.len())
            && id
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'-');
        if fits {
            Ok(Self(id.to_owned()))
        } else {
            Err(RequestIdError)
        }
    }

    /// Makes an id from 32 bits of a random source.
    pub fn from_bits(bits: u32) -> Self {
        Self(format!("{bits:08x}"))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for RequestId {
    type Error = RequestIdError;
    fn try_from(s: String) -> Result<Self, RequestIdError> {
        Self::new(&s)
    }
}

impl From<RequestId> for String {
    fn from(id: RequestId) -> Self {
        id.0
    }
}

/// Returns the id of the message that tells a teammate of the end of the background command with
/// this number, which it had started in this incarnation (none: an earlier version did not note
/// it): always the same, so that the message is consumed once, however often it is written.
pub fn of_background_end(teammate: &Name, incarnation: Option<u32>, number: u32) -> Uuid {
    let what = match incarnation {
        Some(incarnation) => format!("background {teammate} {incarnation} {number}"),
        None => format!("background {teammate} {number}"),
    };
    id_of_text(&what)
}

/// Returns an id that is always the same for the same text.
pub fn id_of_text(what: &str) -> Uuid {
    let digest = Sha256::digest(what);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// A source of new ids. The programs use [`RandomIds`]; tests and simulations count.
pub trait Ids: fmt::Debug {
    /// Returns a new message id (UUIDv7).
    fn message(&mut self) -> Uuid;
    /// Returns a new request id. The caller checks that it is not taken.
    fn request(&mut self) -> RequestId;
}

/// Ids from the system's clock and random source.
#[derive(Debug, Default, Clone, Copy)]
pub struct RandomIds;

impl Ids for RandomIds {
    fn message(&mut self) -> Uuid {
        Uuid::now_v7()
    }

    fn request(&mut self) -> RequestId {
        RequestId::from_bits(Uuid::new_v4().as_fields().0)
    }
}

/// Ids that count: the same in every run.
#[derive(Debug, Default, Clone)]
pub struct CountingIds(u32);

impl Ids for CountingIds {
    fn message(&mut self) -> Uuid {
        self.0 += 1;
        Uuid::from_u128(u128::from(self.0))
    }

    fn request(&mut self) -> RequestId {
        self.0 += 1;
        RequestId::from_bits(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_other_writers_are_read_and_hostile_ones_are_not() {
        for good in ["a1b2c3d4", "REQ_1", "x", &"9".repeat(64)] {
            assert!(RequestId::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "../x", "ä", "a\n", &"9".repeat(65)] {
            assert!(RequestId::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_end_of_a_command_has_one_id_in_each_incarnation() {
        let alice = Name::new("alice").unwrap();
        let id = |incarnation| of_background_end(&alice, incarnation, 1);
        assert_eq!(id(Some(1)), id(Some(1)));
        assert_ne!(id(Some(1)), id(Some(2)));
        assert_ne!(id(Some(1)), of_background_end(&alice, Some(11), 1));
        // As an earlier version has written it.
        assert_eq!(id(None).to_string(), "f0bcee8f-7c0a-854b-be36-3adceefce824");
    }

    #[test]
    fn a_new_id_has_eight_lower_case_hex_digits() {
        assert_eq!(RequestId::from_bits(0xA1).as_str(), "000000a1");
        let id = RandomIds.request();
        assert!(id.as_str().len() == 8 && id.as_str().bytes().all(|c| c.is_ascii_hexdigit()));
    }
}
