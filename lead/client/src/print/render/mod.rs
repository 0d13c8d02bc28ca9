//! Records as people read them. Pure: bytes of a file in, escaped text out.

pub mod event;
pub mod message;

use anstyle::{AnsiColor, Style};
use teamd_shared::member::Exit;

use super::escape;
use super::style::paint;

pub use teamd_shared::amount::count;

/// The style of what is less important.
pub const DIM: Style = Style::new().dimmed();
/// The style of what something is called.
pub const BOLD: Style = Style::new().bold();
/// The style of what went wrong.
pub const BAD: Style = AnsiColor::Red.on_default();

/// Describes how an incarnation ended, as far as the daemon could observe it.
pub fn exit(exit: &Exit) -> String {
    match (exit.code, exit.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "exit code unknown".to_owned(),
    }
}

/// The room for the labels of facts, in columns; longer ones have more.
const LABEL: usize = 11;

/// Lays out a heading, and below it each fact that has a text behind its label.
pub fn facts(heading: String, facts: &[(&str, String)]) -> String {
    let mut shown = heading;
    let facts = facts.iter().filter(|(_, text)| !text.is_empty());
    let longest = facts.clone().map(|(label, _)| label.len()).max();
    let columns = longest.unwrap_or_default().max(LABEL);
    for (label, text) in facts {
        let label = format!("  {} ", paint(DIM, format_args!("{label:<columns$}")));
        shown.push('\n');
        shown.push_str(&under(&label, text));
    }
    shown + "\n"
}

/// How many blank lines in a row are shown as such.
const MOST_BLANK: usize = 3;

/// Puts a text of any length behind a heading: on its line if it has one line, else indented below
/// it.
pub fn under(heading: &str, text: &str) -> String {
    let text = escape::text(text.trim_matches('\n'));
    if text.is_empty() {
        return heading.trim_end().to_owned();
    }
    if !text.contains('\n') {
        let plain = anstream::adapter::strip_str(heading).to_string();
        let gap = if plain.is_empty() || plain.ends_with(char::is_whitespace) {
            ""
        } else {
            " "
        };
        return format!("{heading}{gap}{text}");
    }
    let mut shown = heading.trim_end().to_owned();
    let mut blank = 0;
    for line in text.lines() {
        if line.trim().is_empty() {
            blank += 1;
            continue;
        }
        // They would push what follows off the screen.
        let gap = if blank > MOST_BLANK {
            format!("\n    [{blank} blank lines]")
        } else {
            "\n".repeat(blank)
        };
        shown.push_str(&format!("{gap}\n    {line}"));
        blank = 0;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_never_sticks_to_its_text() {
        let styled = paint(BOLD, "a plan:");
        for (heading, text, shown) in [
            ("a plan:", "x", "a plan: x"),
            ("a plan:  ", "x", "a plan:  x"),
            ("", "x", "x"),
            (&styled, "x\n", "a plan: x"),
        ] {
            assert_eq!(
                anstream::adapter::strip_str(&under(heading, text)).to_string(),
                shown
            );
        }
        assert_eq!(under("a plan: ", "x\n\ny"), "a plan:\n    x\n\n    y");
        let far = format!("x\n{}y", " \n".repeat(60));
        assert_eq!(
            under("a plan: ", &far),
            "a plan:\n    x\n    [60 blank lines]\n    y"
        );
    }
}
