//! `write_file`: makes or replaces a file in the workspace.

use teamd_shared::amount::count;
use teamd_worker_core::tools::WriteFile;

use super::workspace::{FileUse, Workspace};

impl Workspace {
    /// Makes a file, or replaces the one that is there; makes the directories that are missing.
    pub(super) fn write(&self, WriteFile { path, content }: &WriteFile) -> Result<String, String> {
        let place = self.find(path, FileUse::Make)?;
        self.replace(path, &place, content.as_bytes())?;
        Ok(format!("wrote {} to {path}", count(content.len(), "byte")))
    }
}
