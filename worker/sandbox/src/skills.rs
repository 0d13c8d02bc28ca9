//! The folders of skills in a workspace: what stands there becomes part of what models are told, so
//! no tool of a teammate writes there.

use std::path::Path;

use super::protected::{Missing, Protected};

/// The folders of skills, below a workspace and below a home.
pub const SKILL_FOLDERS: [&str; 2] = [".agents/skills", ".claude/skills"];

/// Tells whether a path within a workspace is such a folder, or lies below one.
pub fn is_of_skills(way: &Path) -> bool {
    SKILL_FOLDERS.iter().any(|folder| way.starts_with(folder))
}

/// Returns what is protected of them in a directory that a command may write. An empty folder is no
/// skill.
pub(super) fn protected_in(folder: &Path) -> impl Iterator<Item = Protected> {
    SKILL_FOLDERS.iter().map(|skills| Protected {
        path: folder.join(skills),
        if_missing: Missing::MakeEmpty,
    })
}
