//! Walks over the files of a folder.

use std::path::Path;

use ignore::{DirEntry, WalkBuilder};

/// What a walk has met.
pub(super) enum Met {
    /// A file.
    File(DirEntry),
    /// A place that cannot be read.
    Unreadable,
}

/// Walks over the files at and below a place, in the order of their names. No link is followed. Of
/// the files that name what is ignored, only those in the workspace count: what the user has
/// elsewhere would make the same search find other files on another machine.
pub(super) fn files(from: &Path) -> impl Iterator<Item = Met> {
    let mut walk = WalkBuilder::new(from);
    walk.hidden(false)
        .parents(false)
        .git_global(false)
        .require_git(false)
        .follow_links(false)
        .sort_by_file_name(Ord::cmp)
        .filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git");
    walk.build().filter_map(|met| match met {
        Ok(entry) => {
            let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
            is_file.then_some(Met::File(entry))
        }
        Err(_) => Some(Met::Unreadable),
    })
}

/// Returns a path as it is shown: from the workspace, on one line.
pub(super) fn shown(path: &Path) -> String {
    let path = path.strip_prefix(".").unwrap_or(path);
    let mut shown = String::new();
    for character in path.to_string_lossy().chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Says what of a search is missing, if anything is.
pub(super) fn unreadable(places: u64) -> Option<String> {
    match places {
        0 => None,
        1 => Some("[1 place could not be read]".to_owned()),
        _ => Some(format!("[{places} places could not be read]")),
    }
}
