//! `write_file`: makes or replaces a file in the workspace.

use schemars::JsonSchema;
use serde::Deserialize;
use teamd_shared::amount::count;

use super::input;
use super::workspace::{Purpose, Workspace};

/// Makes a file in the workspace, or replaces all of one that is there, with `content`; makes
/// missing directories. To change a part of a file, use `edit_file`. Refused while the gate is
/// closed.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFile {
    /// The file: relative to the workspace, or absolute and inside it.
    #[serde(deserialize_with = "input::without_nul")]
    pub(crate) path: String,
    /// All that the file shall hold.
    pub(crate) content: String,
}

impl Workspace {
    /// Makes a file, or replaces the one that is there; makes the directories that are missing.
    pub(super) fn write(&self, WriteFile { path, content }: &WriteFile) -> Result<String, String> {
        let place = self.find(path, Purpose::Make)?;
        self.replace(path, &place, content.as_bytes())?;
        Ok(format!("wrote {} to {path}", count(content.len(), "byte")))
    }
}
