//! A text on which a person decides, as it was written. Markdown has parts that are not shown when
//! it is rendered, such as definitions of links, and a person must not approve what they cannot
//! see. Pure.

use anstyle::{AnsiColor, Style};
use teamd_client::print::escape;
use teamd_client::print::render::BOLD;
use teamd_client::print::style::paint;

/// The style of code.
const CODE: Style = AnsiColor::Cyan.on_default();
/// What begins and ends a block of code.
const FENCES: [&str; 2] = ["```", "~~~"];

/// Returns a text with its headings bold and its code in colour. Each character stays, and those on
/// which a terminal would act are escaped.
pub(crate) fn source(text: &str) -> String {
    let mut fence = None;
    let mut styled = String::new();
    for line in escape::text(text).lines() {
        let begin = line.trim_start();
        let mark = FENCES.into_iter().find(|mark| begin.starts_with(mark));
        let style = if fence.is_some() || mark.is_some() {
            CODE
        } else if begin.starts_with('#') {
            BOLD
        } else {
            Style::new()
        };
        if fence.is_none() {
            fence = mark;
        } else if fence == mark {
            fence = None;
        }
        styled.push_str(&paint(style, line));
        styled.push('\n');
    }
    styled
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::text::Text;

    use crate::terminal::wrapped;

    /// Texts of which a renderer of Markdown or a screen would leave something out.
    const HOSTILE: &[&str] = &[
        "[id]: https://example.org \"then delete the backups\"\n\n[id]: <second> 'again'",
        "see [it](https://example.org \"then delete it\")\n![image](a.png 'and push')",
        "| a | b |\n|---|:-:|\n| 1 | 2 | three | four |\n| only |",
        "text[^1]\n\n[^1]: and the footnote",
        "<!-- a comment -->\n<details hidden>inside</details>\n<script>x()</script>",
        "&lt;b&gt; &#27;[2J &nbsp;",
        "Title\n=====\nother\n-----\n***\n# Heading #",
        "```rust ignore\nfn a() {}\n```\n~~~\n```\n~~~ end",
        "1. one\n7. seven\n* star\n+ plus\n- [x] done\n> quoted\n>> twice",
        "a  \nb\\\nc \\* \\# `` ` `` $x$ $$y$$ ~~no~~ **b** __i__",
        "+++\ntoml = 1\n+++\n---\nyaml: 2\n---\n::: warning\n:::",
        "\x1b[2Ja\u{202e}b\u{200b}c\r\nd\re\x1b[8mhidden\x1b[0m",
        "\tindented\n\t\tdeeper and much longer than a line of a narrow screen is",
        "⚠\u{fe0f}⚠\u{fe0f}⚠\u{fe0f}⚠\u{fe0f}⚠\u{fe0f}⚠\u{fe0f}⚠\u{fe0f}⚠\u{fe0f} end",
        "小明小明小明小明小明 then 小 e\u{301}e\u{301} end",
        "one-long-word-that-is-wider-than-the-screen-and-never-ends-or-does-it",
    ];

    fn without_blanks(text: &str) -> String {
        text.chars().filter(|c| !c.is_whitespace()).collect()
    }

    /// What a screen of so many columns shows of a text.
    fn on_screen(text: &str, columns: u16) -> String {
        let lines = wrapped(&source(text), columns.into());
        let rows = u16::try_from(lines.len()).unwrap().max(1);
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal
            .draw(|frame| frame.render_widget(Text::from(lines), frame.area()))
            .unwrap();
        let cells = terminal.backend().buffer().content();
        cells.iter().map(|cell| cell.symbol()).collect()
    }

    #[test]
    fn every_character_of_a_hostile_source_is_on_the_screen() {
        for text in HOSTILE {
            let expected = without_blanks(&escape::text(text));
            for columns in [4, 7, 8, 20, 79] {
                assert_eq!(
                    without_blanks(&on_screen(text, columns)),
                    expected,
                    "{columns} columns: {text:?}"
                );
            }
        }
    }

    #[test]
    fn headings_are_bold_and_code_has_a_colour() {
        let text = "# Plan\nplain\n```sh\n# no heading\n~~~\n```\nplain";
        let bold = paint(BOLD, "# Plan");
        let code = ["```sh", "# no heading", "~~~", "```"].map(|line| paint(CODE, line));
        assert_eq!(
            source(text),
            format!("{bold}\nplain\n{}\nplain\n", code.join("\n"))
        );
    }
}
