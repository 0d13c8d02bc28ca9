//! What a command may not write although it lies below something that it may write.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Something that a command may not write, although it lies below something that it may write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Protected {
    pub(crate) path: PathBuf,
    pub(crate) if_missing: Missing,
}

/// What becomes of a protected path that is not there. Without this, a command makes the file, and
/// the user's next `git` runs what it names (the attacks are in `tests/e2e/sandbox/outside.rs` and
/// `places.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Missing {
    /// Nothing: what a command makes there is its own.
    Leave,
    /// An empty directory is made, which stays.
    MakeEmpty,
    /// What a command has made there is put aside.
    PutAside,
}
