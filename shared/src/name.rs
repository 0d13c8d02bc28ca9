//! The names of members: validated here, at every entry point.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::message::RUNTIME;

/// Names that no member may take, since messages and commands use them for something else.
pub const RESERVED: [&str; 4] = ["lead", "user", "all", "teamd"];

/// Names that were free once. A member that has one is still read and can be commanded, but no member
/// begins with it any more.
const NO_LONGER_GIVEN: [&str; 1] = [RUNTIME];

/// The longest name, in bytes.
pub const MAX_LEN: usize = 32;

/// How much of a string that is no name is shown, in characters: an error about a hostile one stays
/// one readable line.
const SHOWN: usize = 64;

/// The name of a member: `[a-z0-9][a-z0-9_-]{0,31}`, and none of [`RESERVED`] unless made by
/// [`Name::lead`].
///
/// Since it holds no `/`, no `.` and no upper case, it is safe as a file name on every file system.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^[a-z0-9][a-z0-9_-]{0,31}$", "not" = {"enum": ["user", "all", "teamd"]}))]
pub struct Name(String);

/// Why a string is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The string does not match the pattern.
    #[error("{0:?} is not a name: 1 to 32 of a-z, 0-9, _ and -, beginning with a letter or digit")]
    IllFormed(String),
    /// The string is one of [`RESERVED`], or a member wants to begin with a name that is no longer
    /// given.
    #[error("the name {0:?} is reserved")]
    Reserved(String),
}

impl Name {
    /// Returns the name of the lead. The daemon and people read its inbox.
    pub fn lead() -> Self {
        Self("lead".to_owned())
    }

    /// Reads the name of a member.
    ///
    /// # Errors
    /// [`NameError`] if it does not match the pattern or is reserved.
    pub fn new(name: &str) -> Result<Self, NameError> {
        let name = Self::inbox_owner(name)?;
        if RESERVED.contains(&name.as_str()) {
            return Err(NameError::Reserved(name.0));
        }
        Ok(name)
    }

    /// Reads the name of an inbox: a member's, or `lead`.
    ///
    /// # Errors
    /// [`NameError`] if it does not match the pattern, or is reserved and not `lead`.
    pub fn of_inbox(name: &str) -> Result<Self, NameError> {
        if name == "lead" {
            Ok(Self::lead())
        } else {
            Self::new(name)
        }
    }

    /// Checks that an incarnation may begin with this name.
    ///
    /// # Errors
    /// [`NameError::Reserved`] if the name is no longer given.
    pub fn can_begin(&self) -> Result<(), NameError> {
        if NO_LONGER_GIVEN.contains(&self.as_str()) {
            return Err(NameError::Reserved(self.0.clone()));
        }
        Ok(())
    }

    /// Returns the name of one of several teammates of the same kind, such as `coder-2`; none if it
    /// would be too long.
    pub fn numbered(&self, number: u32) -> Option<Self> {
        Self::new(&format!("{self}-{number}")).ok()
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn inbox_owner(name: &str) -> Result<Self, NameError> {
        let fits = match name.as_bytes() {
            [first, rest @ ..] => {
                is_ordinary(*first)
                    && rest.len() < MAX_LEN
                    && rest
                        .iter()
                        .all(|&c| is_ordinary(c) || c == b'_' || c == b'-')
            }
            [] => false,
        };
        if fits {
            Ok(Self(name.to_owned()))
        } else {
            Err(NameError::IllFormed(name.chars().take(SHOWN).collect()))
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Name {
    type Err = NameError;
    fn from_str(s: &str) -> Result<Self, NameError> {
        Self::new(s)
    }
}

impl TryFrom<String> for Name {
    type Error = NameError;
    fn try_from(s: String) -> Result<Self, NameError> {
        Self::of_inbox(&s)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

fn is_ordinary(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_match_the_pattern_are_taken() {
        for good in ["a", "0", "alice", "web-1", "a_b-c", &"x".repeat(32)] {
            assert_eq!(Name::new(good).map(String::from), Ok(good.to_owned()));
        }
    }

    #[test]
    fn anything_that_could_be_a_path_a_flag_or_another_alphabet_is_refused() {
        let long = "x".repeat(33);
        for bad in [
            "", ".", "..", "../x", "a/b", "-a", "_a", "Alice", "a b", "a\n", "ä", "a\0", "a.jsonl",
            &long,
        ] {
            assert!(
                matches!(Name::new(bad), Err(NameError::IllFormed(_))),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn reserved_names_are_refused_but_lead_owns_an_inbox() {
        for reserved in RESERVED {
            assert_eq!(
                Name::new(reserved),
                Err(NameError::Reserved(reserved.to_owned()))
            );
        }
        assert_eq!(Name::of_inbox("lead"), Ok(Name::lead()));
        let of_a_record: Name = serde_json::from_str(r#""runtime""#).unwrap();
        assert_eq!(
            of_a_record.can_begin(),
            Err(NameError::Reserved("runtime".to_owned()))
        );
        assert!(Name::of_inbox("all").is_err());
    }

    #[test]
    fn an_error_about_a_huge_name_stays_short() {
        let error = Name::new(&"X".repeat(1 << 20)).unwrap_err().to_string();
        assert!(error.len() < 300, "{}", error.len());
    }
}
