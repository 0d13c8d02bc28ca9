//! How work reaches the branches: merged with the integration branch, and landed on a branch of the
//! user.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A merge that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Merged {
    /// The commit.
    pub commit: String,
    /// Where the integration branch was: its first parent.
    pub old: String,
}

/// Where a branch of the user was before and after the work landed on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landed {
    /// The branch.
    pub branch: String,
    /// Where it was.
    pub before: String,
    /// Where it is. If that is not the tip, it has commits of its own.
    pub after: String,
    /// The tip of the integration branch.
    pub tip: String,
    /// The files of Git LFS whose content is nowhere here, so that they are pointers.
    pub pointers: Vec<String>,
}

impl Landed {
    /// Tells whether it is at the integration branch.
    pub fn has_landed(&self) -> bool {
        self.after == self.tip
    }
}
