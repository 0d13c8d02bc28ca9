//! How this program ends.

use teamd_shared::host::NEEDS_PERSON;

/// Why there is no stream. The text fits behind "error: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NatsError {
    /// Trying again can help.
    #[error("{0}")]
    Passing(String),
    /// It cannot: a person must do something first.
    #[error("{0}")]
    NeedsPerson(String),
}

impl NatsError {
    pub(crate) fn passing(why: impl Into<String>) -> Self {
        Self::Passing(why.into())
    }

    pub(crate) fn needs_person(why: impl Into<String>) -> Self {
        Self::NeedsPerson(why.into())
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Passing(_) => 1,
            Self::NeedsPerson(_) => NEEDS_PERSON,
        }
    }
}
