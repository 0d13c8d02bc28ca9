//! The texts of other programs and of the renderers as lines of a screen: styles, and wrapped at
//! words. Pure.
//!
//! What others wrote is escaped before it gets here: each escape sequence is one of ours.

use std::fmt::Display;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use teamd_client::print::style::paint;
use teamd_client::print::table::cut;
use teamd_client::print::{escape, table};

/// The narrowest that a text is wrapped to, in columns.
const NARROWEST: usize = 8;

/// Wraps a text with our escape sequences, for so many columns.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<Line<'static>> {
    let text = text.replace('\t', "    ");
    let mut style = Style::new();
    text.lines()
        .flat_map(|line| -> Vec<String> {
            let indent =
                " ".repeat((line.len() - line.trim_start_matches(' ').len()).min(columns / 2));
            let options = textwrap::Options::new(columns.max(NARROWEST)).subsequent_indent(&indent);
            textwrap::wrap(line, options)
                .into_iter()
                .map(std::borrow::Cow::into_owned)
                .collect()
        })
        .map(|line| styled(&line, &mut style))
        .flat_map(|line| fold(line, columns.max(1)))
        .collect()
}

/// Parts a line that is wider than the screen. Some emoji take more columns than their characters
/// one by one, by which words are wrapped: what is behind them must not be cut off.
fn fold(line: Line<'static>, columns: usize) -> Vec<Line<'static>> {
    if line.width() <= columns {
        return vec![line];
    }
    let mut lines = Vec::new();
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut taken = 0;
    for grapheme in line.styled_graphemes(Style::new()) {
        let width = Span::raw(grapheme.symbol).width();
        if taken > 0 && taken + width > columns {
            lines.push(Line::from(std::mem::take(&mut spans)));
            taken = 0;
        }
        taken += width;
        match spans.last_mut() {
            Some(span) if span.style == grapheme.style => {
                span.content.to_mut().push_str(grapheme.symbol);
            }
            _ => spans.push(Span::styled(grapheme.symbol.to_owned(), grapheme.style)),
        }
    }
    lines.push(Line::from(spans));
    lines
}

/// Reads one line with our escape sequences; `style` is the one before and behind it.
fn styled(line: &str, style: &mut Style) -> Line<'static> {
    let mut spans = Vec::new();
    let mut parts = line.split("\x1b[");
    let first = parts.next().unwrap_or_default();
    spans.push(Span::styled(first.to_owned(), *style));
    for part in parts {
        let (codes, text) = part.split_once('m').unwrap_or((part, ""));
        for code in codes.split(';') {
            *style = after(*style, code);
        }
        spans.push(Span::styled(text.to_owned(), *style));
    }
    spans.retain(|span| !span.content.is_empty());
    Line::from(spans)
}

/// Returns a style after a code of SGR, as far as our renderers write them.
fn after(style: Style, code: &str) -> Style {
    let colours = [
        Color::Black,
        Color::Red,
        Color::Green,
        Color::Yellow,
        Color::Blue,
        Color::Magenta,
        Color::Cyan,
        Color::Gray,
    ];
    match code.parse().unwrap_or(0) {
        1 => style.add_modifier(Modifier::BOLD),
        2 => style.add_modifier(Modifier::DIM),
        3 => style.add_modifier(Modifier::ITALIC),
        4 => style.add_modifier(Modifier::UNDERLINED),
        9 => style.add_modifier(Modifier::CROSSED_OUT),
        code @ 30..=37 => style.fg(colours[code - 30]),
        _ => Style::new(),
    }
}

/// Makes a line of one row of a text with our escape sequences.
pub(crate) fn row(text: &str) -> Line<'static> {
    styled(text, &mut Style::new())
}

/// Puts a text of others into a style, in exactly so many columns.
pub(crate) fn cell(style: anstyle::Style, text: impl Display, columns: usize) -> String {
    let text = cut(&escape::line(&text.to_string()), Some(columns));
    let text = if columns == 0 { String::new() } else { text };
    let blank = columns.saturating_sub(table::width(&text));
    format!("{}{}", paint(style, &text), " ".repeat(blank))
}

#[cfg(test)]
mod tests {
    use super::*;
    use teamd_client::print::render::{BAD, BOLD};

    #[test]
    fn styles_go_on_over_lines_and_end_where_they_do() {
        let text = format!(
            "a {} c\n  {}",
            paint(BOLD, "one two\nthree"),
            paint(BAD, "x")
        );
        let lines = wrapped(&text, 8);
        let shown: Vec<String> = lines.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["a one", "two", "three c", "  x"]);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        assert_eq!(
            (lines[1].spans[0].style, lines[2].spans[1].style),
            (bold, Style::new())
        );
        assert_eq!(lines[3].spans[1].style, Style::new().fg(Color::Red));
    }

    #[test]
    fn a_cell_has_its_columns_whatever_the_text_is() {
        for (text, columns, shown) in [
            ("ana", 5, "ana  "),
            ("\u{202e}a", 12, "\\u{202e}a   "),
            ("小明小明", 5, "小明…"),
            ("ana", 0, ""),
        ] {
            assert_eq!(row(&cell(BOLD, text, columns)).to_string(), shown);
        }
    }
}
