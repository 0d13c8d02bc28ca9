//! Texts of others, as a model reads them, and texts of models, as GitHub shows them. Pure.

use teamd_client::print::escape;

/// The words that close an issue, before a reference to it.
const CLOSING: [&str; 9] = [
    "close", "closes", "closed", "fix", "fixes", "fixed", "resolve", "resolves", "resolved",
];

/// Has no width: it parts what would work together.
const PARTED: char = '\u{2060}';

/// Quotes a text, at most so many characters of it: each line begins with `> `, and what a person
/// would not see is visible.
pub(crate) fn quoted(text: &str, most: usize) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let shown = escape::text(text.trim());
    let mut kept: String = shown.chars().take(most).collect();
    let left = shown.chars().count().saturating_sub(most);
    if left > 0 {
        kept.push_str(&format!("\n[cut: {left} more characters]"));
    }
    let lines: Vec<String> = kept
        .split('\n')
        .map(|line| format!("> {line}").trim_end().to_owned())
        .collect();
    lines.join("\n")
}

/// Returns a text as a block of code that nothing in it ends, in which nothing works.
pub(crate) fn fenced(text: &str) -> String {
    let text = harmless(text.trim());
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat((longest + 1).max(3));
    format!("{fence}text\n{text}\n{fence}")
}

/// Returns a text that looks the same, and in which no mention, no reference and no word that closes
/// an issue works, also where it becomes the message of a commit.
pub(crate) fn harmless(text: &str) -> String {
    let text = escape::text(text);
    let mut safe = String::with_capacity(text.len() + 16);
    let mut rest = text.as_ref();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            'a'..='z' | 'A'..='Z' => rest
                .find(|c: char| !c.is_ascii_alphabetic())
                .unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (word, after) = rest.split_at(length);
        rest = after;
        if CLOSING.contains(&word.to_ascii_lowercase().as_str()) {
            safe.push(first);
            safe.push(PARTED);
            safe.push_str(&word[1..]);
            continue;
        }
        safe.push_str(word);
        let parts = match first {
            '@' | '#' => rest.starts_with(|c: char| c.is_ascii_alphanumeric()),
            _ => word.eq_ignore_ascii_case("gh") && rest.starts_with('-'),
        };
        if parts {
            safe.push(PARTED);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_is_bounded_and_shows_what_is_hidden_in_it() {
        assert_eq!(quoted("one\r\n\ntwo \n", 100), "> one\n>\n> two");
        assert_eq!(quoted("a\u{202e}b\x1b[2J", 100), "> a\\u{202e}b\\u{1b}[2J");
        assert_eq!(quoted("abcdef", 2), "> ab\n> [cut: 4 more characters]");
        assert_eq!(quoted("a\rb", 9), "> a\n> b");
    }

    #[test]
    fn nothing_in_a_fenced_text_ends_it_or_works() {
        let text = "```\n@owner fixes #1, Closes: o/r#2 and GH-3\n`````";
        let shown = fenced(text);
        let fence = "`".repeat(6);
        assert!(
            shown.starts_with(&format!("{fence}text\n")) && shown.ends_with(&format!("\n{fence}"))
        );
        for works in ["@owner", "fixes", "#1", "Closes", "#2", "GH-3"] {
            assert!(!shown.contains(works), "{works}: {shown}");
        }
        assert_eq!(
            shown.replace(PARTED, ""),
            format!("{fence}text\n{text}\n{fence}")
        );
        assert_eq!(fenced("plain"), "```text\nplain\n```");
        assert_eq!(harmless("prefix fixture @ # a"), "prefix fixture @ # a");
    }
}
