//! Makes foreign text safe for a terminal.
//!
//! A message may contain sequences that move the cursor, change the title or fill the clipboard,
//! and marks that show text in another order. Output for people shows them as visible text; JSON
//! has them as `\u` escapes, which every parser reads back.

use std::borrow::Cow;

use teamd_shared::visible::is_hidden;

/// Escapes what a terminal would act on, except newline and tab.
pub fn text(text: &str) -> Cow<'_, str> {
    escape(
        text,
        |c| c != '\n' && c != '\t' && is_hidden(c),
        |c, safe| safe.extend(c.escape_default()),
    )
}

/// Escapes what a terminal would act on, newline and tab included: the result is one line.
pub fn line(text: &str) -> Cow<'_, str> {
    escape(text, is_hidden, |c, safe| safe.extend(c.escape_default()))
}

/// Escapes in JSON what a terminal would act on and JSON's own rules leave as it is.
pub fn json(text: &str) -> Cow<'_, str> {
    // Outside of strings JSON has no such characters.
    escape(text, is_hidden, |c, safe| {
        // A character beyond the first plane is two of them.
        let mut units = [0; 2];
        for unit in c.encode_utf16(&mut units).iter() {
            safe.push_str(&format!("\\u{unit:04x}"));
        }
    })
}

fn escape(text: &str, bad: impl Fn(char) -> bool, put: impl Fn(char, &mut String)) -> Cow<'_, str> {
    let Some(first) = text.find(&bad) else {
        return Cow::Borrowed(text);
    };
    let mut safe = String::with_capacity(text.len() + 16);
    safe.push_str(&text[..first]);
    for c in text[first..].chars() {
        if bad(c) {
            put(c, &mut safe);
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_becomes_visible() {
        assert_eq!(text("a\tb\nc"), "a\tb\nc");
        assert_eq!(text("\x1b]0;pwned\x07"), "\\u{1b}]0;pwned\\u{7}");
        assert_eq!(text("done\rfail"), "done\\rfail");
        assert_eq!(text("\u{9b}2J \u{7f}"), "\\u{9b}2J \\u{7f}");
        assert_eq!(text("\u{202e}txt.exe\u{2066}"), "\\u{202e}txt.exe\\u{2066}");
        assert_eq!(text("Grüße, 你好 🎉"), "Grüße, 你好 🎉");
    }

    #[test]
    fn a_cell_stays_on_its_line() {
        assert_eq!(line("one\ntwo\tthree"), "one\\ntwo\\tthree");
    }

    #[test]
    fn json_stays_json_and_means_the_same() {
        let value = serde_json::json!({"text": "\u{9b}2J\u{202e}\x1b\u{85}\u{2028}\u{e0041}x"});
        let written = value.to_string();
        let safe = json(&written);
        assert!(safe.chars().all(|c| c.is_ascii_graphic()), "{safe}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&safe).unwrap(),
            value
        );
    }
}
