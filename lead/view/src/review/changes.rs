//! What a submission changes, as `git diff` tells it: files, hunks and numbered lines. Pure.
//!
//! Names and lines are those of a teammate. They are kept as they are; [`DiffLine::shown`] and
//! [`ChangedFile::title`] return them as a screen may show them.

use std::borrow::Cow;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::Serialize;
use teamd_client::print::escape;

/// The files that a tool writes, by their names.
const GENERATED: [&str; 16] = [
    "**/*.lock",
    "**/package-lock.json",
    "**/npm-shrinkwrap.json",
    "**/pnpm-lock.yaml",
    "**/go.sum",
    "**/*.min.*",
    "**/*.map",
    "**/*.pb.go",
    "**/*_pb2.py",
    "**/*.snap",
    "**/vendor/**",
    "**/third_party/**",
    "**/node_modules/**",
    "**/dist/**",
    "**/*.generated.*",
    "**/*.designer.cs",
];

/// What a submission changes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Changes {
    /// The files, in the order of their names.
    pub files: Vec<ChangedFile>,
    /// What `git` said besides: that a part is cut, or that a file is not in git.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// How a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileChange {
    /// It is new.
    Added,
    /// It is gone.
    Deleted,
    /// Its content, or its mode, is another one.
    Modified,
    /// It has another name.
    Renamed,
    /// It began as a copy of another file.
    Copied,
}

impl FileChange {
    /// Returns the letter by which `git` names it.
    pub const fn letter(self) -> char {
        match self {
            Self::Added => 'A',
            Self::Deleted => 'D',
            Self::Modified => 'M',
            Self::Renamed => 'R',
            Self::Copied => 'C',
        }
    }
}

/// A file that has changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangedFile {
    /// Its name now, or the last one that it had.
    pub path: String,
    /// Its name before, if that was another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_path: Option<String>,
    /// How it has changed.
    pub change: FileChange,
    /// Its mode before, if that was another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_mode: Option<String>,
    /// Its mode now, if that is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Whether `git` shows no lines of it.
    pub binary: bool,
    /// Whether a tool writes it, and no author.
    pub generated: bool,
    /// How many lines came.
    pub added: usize,
    /// How many lines went.
    pub removed: usize,
    /// The places that have changed.
    pub hunks: Vec<Hunk>,
}

/// A place that has changed, with the lines around it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hunk {
    /// The line `@@ … @@` with what follows it.
    pub heading: String,
    /// The lines.
    pub lines: Vec<DiffLine>,
}

/// On which side a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LineKind {
    /// On both.
    Context,
    /// It is new.
    Added,
    /// It is gone.
    Removed,
}

impl LineKind {
    /// Returns the sign before such a line.
    pub const fn sign(self) -> char {
        match self {
            Self::Context => ' ',
            Self::Added => '+',
            Self::Removed => '-',
        }
    }
}

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiffLine {
    /// On which side it is.
    pub kind: LineKind,
    /// Its number before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<u32>,
    /// Its number now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<u32>,
    /// What is in it, without the end of the line.
    pub text: String,
    /// Whether the file ends with it, and has no end of the line there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_unended: bool,
}

/// A text of a file as one row of a screen: what a terminal would act on becomes visible.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    match escape::text(text) {
        text if text.contains(['\t', '\n']) => {
            Cow::Owned(text.replace('\t', "    ").replace('\n', "\\n"))
        }
        text => text,
    }
}

impl DiffLine {
    /// Returns the line as a screen shows it.
    pub(crate) fn shown(&self) -> Cow<'_, str> {
        shown(&self.text)
    }
}

impl ChangedFile {
    /// Returns its name for people, with the one before.
    pub(crate) fn title(&self) -> String {
        let path = escape::line(&self.path);
        match &self.old_path {
            Some(old) => format!("{} → {path}", escape::line(old)),
            None => path.into_owned(),
        }
    }

    /// Returns what is special about it, for people.
    pub(crate) fn remark(&self) -> String {
        let mode = match (&self.old_mode, &self.mode) {
            (Some(old), Some(new)) => format!("mode {old} → {new}"),
            (None, Some(new)) if new != "100644" => format!("mode {new}"),
            _ => String::new(),
        };
        let binary = if self.binary { "binary" } else { "" };
        let generated = if self.generated { "generated" } else { "" };
        let remarks = [mode.as_str(), binary, generated];
        let remarks = remarks.into_iter().filter(|it| !it.is_empty());
        remarks.collect::<Vec<_>>().join(", ")
    }
}

impl Changes {
    /// Reads what `git diff` wrote. `attributes` are the `.gitattributes` from before the change:
    /// an author must not choose what is folded in the review of its own work.
    pub fn parse(diff: &str, attributes: &str) -> Self {
        let generated = generated(attributes);
        let mut reader = DiffReader::default();
        for line in diff.split('\n') {
            reader.line(line);
        }
        let mut changes = reader.changes;
        for file in &mut changes.files {
            file.generated = generated.is_match(&file.path);
        }
        changes
    }

    /// Returns how many lines came.
    pub fn added(&self) -> usize {
        self.files.iter().map(|file| file.added).sum()
    }

    /// Returns how many lines went.
    pub fn removed(&self) -> usize {
        self.files.iter().map(|file| file.removed).sum()
    }
}

/// Returns the patterns of the files that a tool writes.
fn generated(attributes: &str) -> GlobSet {
    let mut patterns = GlobSetBuilder::new();
    let mut add = |pattern: &str| {
        // A pattern that cannot be read names no file: then nothing is folded.
        if let Ok(glob) = GlobBuilder::new(pattern).literal_separator(true).build() {
            patterns.add(glob);
        }
    };
    for pattern in GENERATED {
        add(pattern);
    }
    for line in attributes.lines().map(str::trim) {
        let mut words = line.split_whitespace();
        let Some(pattern) = words.next().filter(|it| !it.starts_with('#')) else {
            continue;
        };
        if words.any(|word| word == "linguist-generated" || word == "linguist-generated=true") {
            match pattern.strip_prefix('/') {
                Some(rooted) => add(rooted),
                None if pattern.contains('/') => add(pattern),
                None => add(&format!("**/{pattern}")),
            }
        }
    }
    patterns.build().unwrap_or_default()
}

/// What is read so far.
#[derive(Default)]
struct DiffReader {
    changes: Changes,
    /// How many lines of each side are missing in the hunk, and their next numbers.
    old: HunkSide,
    new: HunkSide,
}

#[derive(Default)]
struct HunkSide {
    left: u32,
    next: u32,
}

impl HunkSide {
    fn take(&mut self) -> Option<u32> {
        self.left = self.left.saturating_sub(1);
        let number = self.next;
        self.next = self.next.saturating_add(1);
        Some(number)
    }
}

impl DiffReader {
    fn line(&mut self, line: &str) {
        if (self.old.left > 0 || self.new.left > 0) && self.hunk_line(line) {
            return;
        }
        self.old.left = 0;
        self.new.left = 0;
        if let Some(names) = line.strip_prefix("diff --git ") {
            self.changes.files.push(begin(names));
            return;
        }
        if line.starts_with("@@ ") && self.begin_hunk(line) {
            return;
        }
        let Some(file) = self.changes.files.last_mut() else {
            // The summary before the first file.
            return;
        };
        if line == "\\ No newline at end of file" {
            if let Some(last) = last_line(file) {
                last.is_unended = true;
            }
            return;
        }
        if file.hunks.is_empty() && heading(file, line) {
            return;
        }
        if !line.is_empty() {
            self.changes.notes.push(line.to_owned());
        }
    }

    fn begin_hunk(&mut self, line: &str) -> bool {
        let Some((old, new)) = places(line) else {
            return false;
        };
        let Some(file) = self.changes.files.last_mut() else {
            return false;
        };
        let heading = line.to_owned();
        let lines = Vec::new();
        file.hunks.push(Hunk { heading, lines });
        self.old = old;
        self.new = new;
        true
    }

    /// Takes a line of a hunk; returns whether it is one.
    fn hunk_line(&mut self, line: &str) -> bool {
        let Some(file) = self.changes.files.last_mut() else {
            return false;
        };
        if line == "\\ No newline at end of file" {
            if let Some(last) = last_line(file) {
                last.is_unended = true;
            }
            return true;
        }
        let kind = match line.as_bytes().first() {
            Some(b'+') if self.new.left > 0 => LineKind::Added,
            Some(b'-') if self.old.left > 0 => LineKind::Removed,
            Some(b' ') if self.old.left > 0 && self.new.left > 0 => LineKind::Context,
            _ => return false,
        };
        let is_old = kind != LineKind::Added;
        let is_new = kind != LineKind::Removed;
        let old = if is_old { self.old.take() } else { None };
        let new = if is_new { self.new.take() } else { None };
        file.added += usize::from(!is_old);
        file.removed += usize::from(!is_new);
        if let Some(hunk) = file.hunks.last_mut() {
            hunk.lines.push(DiffLine {
                kind,
                old,
                new,
                text: line[1..].to_owned(),
                is_unended: false,
            });
        }
        true
    }
}

fn last_line(file: &mut ChangedFile) -> Option<&mut DiffLine> {
    file.hunks.last_mut()?.lines.last_mut()
}

/// Begins a file with its names. They are ambiguous where they have blanks; lines that follow say
/// them again unless both are the same.
fn begin(names: &str) -> ChangedFile {
    let both = match unquote(names) {
        Some((old, rest)) => (old, unquoted(rest.trim_start_matches(' '))),
        None => {
            let half = names.len() / 2;
            let is_half = names.is_char_boundary(half) && names[half..].starts_with(' ');
            let (old, new) = if is_half {
                (&names[..half], &names[half + 1..])
            } else {
                names.split_once(' ').unwrap_or((names, names))
            };
            (old.to_owned(), unquoted(new))
        }
    };
    ChangedFile {
        path: without_side(&both.1).to_owned(),
        old_path: None,
        change: FileChange::Modified,
        old_mode: None,
        mode: None,
        binary: false,
        generated: false,
        added: 0,
        removed: 0,
        hunks: Vec::new(),
    }
}

/// Takes a line between the names of a file and its first hunk; returns whether it is one.
fn heading(file: &mut ChangedFile, line: &str) -> bool {
    let after = |start: &str| line.strip_prefix(start);
    if let Some(mode) = after("new file mode ") {
        file.change = FileChange::Added;
        file.mode = Some(mode.to_owned());
    } else if let Some(mode) = after("deleted file mode ") {
        file.change = FileChange::Deleted;
        file.old_mode = Some(mode.to_owned());
    } else if let Some(mode) = after("old mode ") {
        file.old_mode = Some(mode.to_owned());
    } else if let Some(mode) = after("new mode ") {
        file.mode = Some(mode.to_owned());
    } else if let Some(path) = after("rename from ") {
        file.change = FileChange::Renamed;
        file.old_path = Some(unquoted(path));
    } else if let Some(path) = after("copy from ") {
        file.change = FileChange::Copied;
        file.old_path = Some(unquoted(path));
    } else if let Some(path) = after("rename to ").or(after("copy to ")) {
        file.path = unquoted(path);
    } else if let Some(path) = after("--- ") {
        // A name with a blank has a tab behind it.
        let path = unquoted(path.trim_end_matches('\t'));
        if path != "/dev/null" && file.change == FileChange::Deleted {
            file.path = without_side(&path).to_owned();
        }
    } else if let Some(path) = after("+++ ") {
        let path = unquoted(path.trim_end_matches('\t'));
        if path != "/dev/null" {
            file.path = without_side(&path).to_owned();
        }
    } else if line.starts_with("Binary files ") || line == "GIT binary patch" {
        file.binary = true;
    } else {
        return line.starts_with("index ")
            || line.starts_with("similarity index ")
            || line.starts_with("dissimilarity index ");
    }
    true
}

fn without_side(path: &str) -> &str {
    path.strip_prefix("a/")
        .or_else(|| path.strip_prefix("b/"))
        .unwrap_or(path)
}

fn unquoted(name: &str) -> String {
    unquote(name).map_or_else(|| name.to_owned(), |(name, _)| name)
}

/// Reads a name that `git` has put into quotes, as C does. Returns it with what follows it.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let inside = quoted.strip_prefix('"')?.as_bytes();
    let mut name = Vec::new();
    let mut at = 0;
    loop {
        match *inside.get(at)? {
            b'"' => break,
            b'\\' => {
                at += 1;
                let byte = *inside.get(at)?;
                let octal = inside.get(at..at + 3).filter(|it| {
                    it[0] <= b'3' && it.iter().all(|digit| (b'0'..=b'7').contains(digit))
                });
                if let Some(digits) = octal {
                    let value = digits
                        .iter()
                        .fold(0_u32, |sum, it| sum * 8 + u32::from(it - b'0'));
                    name.push(u8::try_from(value).ok()?);
                    at += 2;
                } else {
                    name.push(match byte {
                        b'a' => 7,
                        b'b' => 8,
                        b't' => b'\t',
                        b'n' => b'\n',
                        b'v' => 11,
                        b'f' => 12,
                        b'r' => b'\r',
                        other => other,
                    });
                }
            }
            byte => name.push(byte),
        }
        at += 1;
    }
    let name = String::from_utf8_lossy(&name).into_owned();
    quoted.get(at + 2..).map(|rest| (name, rest))
}

/// Reads `@@ -1,2 +3,4 @@`.
fn places(line: &str) -> Option<(HunkSide, HunkSide)> {
    let inside = line.strip_prefix("@@ -")?;
    let (places, _) = inside.split_once(" @@")?;
    let (old, new) = places.split_once(" +")?;
    Some((side(old)?, side(new)?))
}

fn side(place: &str) -> Option<HunkSide> {
    let (from, count) = place.split_once(',').unwrap_or((place, "1"));
    Some(HunkSide {
        left: count.parse().ok()?,
        next: from.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "\
 a.rs | 2 +-
 1 file changed

diff --git a/src/a.rs b/src/a.rs
index 1..2 100644
--- a/src/a.rs
+++ b/src/a.rs
@@ -1,3 +1,4 @@ fn main() {
 one
-two
+two and a half
+three
 four
\\ No newline at end of file
diff --git a/old name b/new name
similarity index 90%
rename from old name
rename to new name
diff --git a/run b/run
old mode 100644
new mode 100755
diff --git a/pic b/pic
new file mode 100644
index 0..1
Binary files /dev/null and b/pic differ
diff --git a/Cargo.lock b/Cargo.lock
deleted file mode 100644
--- a/Cargo.lock
+++ /dev/null
@@ -1 +0,0 @@
---- a line that looks like a heading
";

    #[test]
    fn files_hunks_and_numbers_are_read() {
        let changes = Changes::parse(DIFF, "");
        assert_eq!(changes.files.len(), 5);
        assert_eq!((changes.added(), changes.removed()), (2, 2));
        let a = &changes.files[0];
        assert_eq!((a.path.as_str(), a.added, a.removed), ("src/a.rs", 2, 1));
        let lines: Vec<_> = a.hunks[0]
            .lines
            .iter()
            .map(|it| (it.kind.sign(), it.old, it.new))
            .collect();
        assert_eq!(
            lines,
            [
                (' ', Some(1), Some(1)),
                ('-', Some(2), None),
                ('+', None, Some(2)),
                ('+', None, Some(3)),
                (' ', Some(3), Some(4)),
            ]
        );
        assert!(a.hunks[0].lines[4].is_unended);
        assert_eq!(changes.files[1].title(), "old name → new name");
        assert_eq!(changes.files[2].remark(), "mode 100644 → 100755");
        assert!(changes.files[3].binary);
        assert_eq!(changes.files[3].change, FileChange::Added);
        let lock = &changes.files[4];
        assert_eq!(
            lock.hunks[0].lines[0].text,
            "--- a line that looks like a heading"
        );
        assert!(lock.generated && lock.change == FileChange::Deleted);
        assert!(changes.notes.is_empty(), "{:?}", changes.notes);
    }

    #[test]
    fn a_name_cannot_deceive() {
        let diff = "diff --git \"a/x\\n+++ b\\033[2J\\\"\\303\\244\" \"b/x\\n+++ b\\033[2J\\\"\\303\\244\"\nnew file mode 100644\n\
                    --- /dev/null\n+++ \"b/x\\n+++ b\\033[2J\\\"\\303\\244\"\n@@ -0,0 +1 @@\n+\u{202e}x\x1b[2J\t<b>\r\n\
                    diff --git a/a b c b/a b c\nold mode 100644\nnew mode 120000\n";
        let changes = Changes::parse(diff, "");
        assert_eq!(changes.files[0].path, "x\n+++ b\x1b[2J\"ä");
        assert_eq!(changes.files[0].title(), "x\\n+++ b\\u{1b}[2J\"ä");
        assert_eq!(
            changes.files[0].hunks[0].lines[0].shown(),
            "\\u{202e}x\\u{1b}[2J    <b>\\r"
        );
        assert_eq!(changes.files[1].path, "a b c");
    }

    #[test]
    fn lines_of_a_hunk_are_never_headings() {
        let diff = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n-diff --git a/x b/x\n+@@ -1 +1 @@\n--- a/b\n+++ b/b\n[9 characters cut]\n";
        let changes = Changes::parse(diff, "");
        assert_eq!(changes.files.len(), 1);
        assert_eq!(changes.files[0].hunks.len(), 1);
        assert_eq!(changes.files[0].hunks[0].lines.len(), 4);
        assert_eq!(changes.notes, ["[9 characters cut]"]);
    }

    #[test]
    fn what_is_generated_is_said_by_names_and_by_earlier_attributes() {
        let diff = |path: &str| format!("diff --git a/{path} b/{path}\nold mode 1\nnew mode 2\n");
        let attributes = "# a comment\n/api.rs linguist-generated\n*.out text linguist-generated=true\nno.rs -linguist-generated\n[ linguist-generated";
        for (path, expected) in [
            ("a/package-lock.json", true),
            ("x.min.js", true),
            ("vendor/a.c", true),
            ("api.rs", true),
            ("sub/api.rs", false),
            ("sub/a.out", true),
            ("no.rs", false),
            ("src/main.rs", false),
        ] {
            let changes = Changes::parse(&diff(path), attributes);
            assert_eq!(changes.files[0].generated, expected, "{path}");
        }
    }

    #[test]
    fn nothing_of_what_is_cut_short_makes_it_fail() {
        for end in 0..DIFF.len() {
            if DIFF.is_char_boundary(end) {
                Changes::parse(&DIFF[..end], "");
            }
        }
        for line in [
            "@@ -1 +1",
            "@@ -x +y @@",
            "diff --git ",
            "diff --git \"a",
            "diff --git \"a\\",
            "@@ -4294967295,4294967295 +4294967295,4 @@\n+\n+\n+",
        ] {
            Changes::parse(&format!("diff --git a/a b/a\n{line}\n+x"), "");
        }
    }
}
