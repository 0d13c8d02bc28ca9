//! Comments on lines, as the author gets them: the terminal and the page write them in the same
//! words. Pure.

use teamd_client::print::escape;
use teamd_client::print::table::cut;

use super::changes::{ChangedFile, DiffLine, LineKind};

/// How many columns of a line are quoted.
const QUOTED: usize = 400;

/// A comment on a line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LineComment {
    /// The file and the number of the line.
    pub(crate) place: String,
    /// The line, with its sign.
    pub(crate) quoted: String,
    /// What is said of it.
    pub(crate) text: String,
}

impl LineComment {
    /// Makes a comment on a line of a file.
    pub(crate) fn on(file: &ChangedFile, line: &DiffLine, text: &str) -> Self {
        let number = line.new.or(line.old).unwrap_or(0);
        let gone = match line.kind {
            LineKind::Removed => " (removed)",
            LineKind::Context | LineKind::Added => "",
        };
        let quoted = format!("{}{}", line.kind.sign(), line.shown());
        Self {
            place: format!("{}:{number}{gone}", escape::line(&file.path)),
            quoted: cut(&quoted, Some(QUOTED)),
            text: text.to_owned(),
        }
    }
}

/// Returns what the author is told: what was typed, and the comments with their places.
pub(crate) fn feedback(typed: &str, comments: impl IntoIterator<Item = LineComment>) -> String {
    let comments = comments
        .into_iter()
        .map(|it| format!("{}: {}\n> {}", it.place, it.text, it.quoted));
    let typed = Some(typed.trim().to_owned()).filter(|it| !it.is_empty());
    typed
        .into_iter()
        .chain(comments)
        .collect::<Vec<_>>()
        .join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::Changes;

    #[test]
    fn a_comment_names_its_file_and_line_and_quotes_it() {
        let diff = "diff --git a/a.rs b/a.rs\n--- a/a.rs\n+++ b/a.rs\n@@ -7,2 +7,2 @@\n-old\n+\u{202e}new\n same\n";
        let changes = Changes::parse(diff, "");
        let file = &changes.files[0];
        let lines = &file.hunks[0].lines;
        let said = [(0, "why?"), (1, "<b>no</b>"), (2, "fine")];
        let comments = said.map(|(line, text)| LineComment::on(file, &lines[line], text));
        assert_eq!(
            feedback(" fix it \n", comments),
            "fix it\n\na.rs:7 (removed): why?\n> -old\n\na.rs:7: <b>no</b>\n> +\\u{202e}new\n\na.rs:8: fine\n>  same"
        );
        let long = DiffLine {
            text: "x".repeat(1 << 20),
            ..lines[0].clone()
        };
        assert!(LineComment::on(file, &long, "long").quoted.len() < 500);
        assert_eq!(feedback(" ", []), "");
    }
}
