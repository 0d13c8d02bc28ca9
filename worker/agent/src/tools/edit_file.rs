//! `edit_file`: replaces a text that occurs exactly once in a file of the workspace.

use std::io::Read;
use teamd_worker_core::tools::EditFile;

use super::workspace::{FileUse, Workspace, not_text, size};

/// The largest file that is edited, in bytes.
const MAX_EDIT: u64 = 16 << 20;

impl Workspace {
    /// Replaces a text that occurs exactly once.
    pub(super) fn edit(
        &self,
        EditFile {
            path,
            old_text,
            new_text,
        }: &EditFile,
    ) -> Result<String, String> {
        if old_text.is_empty() {
            return Err("old_text is empty: use write_file to make a file".to_owned());
        }
        if old_text == new_text {
            return Err("old_text and new_text are the same".to_owned());
        }
        let place = self.find(path, FileUse::Change)?;
        let (file, stat) = place.open(path)?;
        if size(&stat) > MAX_EDIT {
            return Err(format!(
                "{path} has {} bytes, the limit for edit_file is {MAX_EDIT}",
                size(&stat)
            ));
        }
        let mut content = Vec::new();
        let read = file.take(MAX_EDIT).read_to_end(&mut content);
        read.map_err(|error| format!("cannot read {path}: {error}"))?;
        let mut content = String::from_utf8(content).map_err(|_| not_text(path, &stat))?;
        let at = only_place_of(path, &content, old_text)?;
        let line = 1 + content[..at].matches('\n').count();
        content.replace_range(at..at + old_text.len(), new_text);
        self.replace(path, &place, content.as_bytes())?;
        Ok(format!("edited {path} at line {line}"))
    }
}

/// Returns where a text begins that occurs exactly once; places that overlap count each.
fn only_place_of(path: &str, content: &str, old: &str) -> Result<usize, String> {
    let step = old.chars().next().map_or(1, char::len_utf8);
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(at) = content[from..].find(old) {
        places.push(from + at);
        from += at + step;
    }
    match places[..] {
        [at] => Ok(at),
        [] if holds_but_for_white_space(content, old) => Err(format!(
            "old_text not found in {path}, where it has other white space: read the file and copy it exactly"
        )),
        [] => Err(format!("old_text not found in {path}")),
        _ => Err(format!(
            "old_text occurs {} times in {path}: make it unique",
            places.len()
        )),
    }
}

/// Compares only the words.
fn holds_but_for_white_space(content: &str, old: &str) -> bool {
    let old = words(old);
    !old.is_empty() && words(content).contains(&old)
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
