//! Markdown on a terminal: headings, lists, tables and code with colours, wrapped at words. Pure.
//!
//! What a model wrote is escaped after it is parsed: an entity such as `&#27;` is a control
//! character only then.

mod table;

use anstyle::{AnsiColor, Style};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use teamd_client::print::escape;
use teamd_client::print::render::{BOLD, DIM};
use teamd_client::print::table::width;

/// The style of code.
const CODE: Style = AnsiColor::Cyan.on_default();
/// By how much code is indented.
const INDENT: &str = "    ";
/// The narrowest that a text is wrapped to.
const NARROWEST: usize = 10;

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

/// Renders a text for so many columns: lines that end, or nothing.
pub(crate) fn render(text: &str, columns: usize) -> String {
    let mut page = Page {
        columns,
        ..Page::default()
    };
    for event in Parser::new_ext(text, options()) {
        page.event(event);
    }
    page.end_line();
    page.text
}

#[derive(Default)]
struct Page {
    columns: usize,
    text: String,
    /// The line in progress, with its styles.
    line: String,
    styles: Vec<Style>,
    /// What comes before each line of a list or a quotation.
    margins: Vec<String>,
    /// What comes before the next line instead of the last margin: the mark of an item.
    mark: Option<String>,
    /// The numbers of the lists; none: bullets.
    lists: Vec<Option<u64>>,
    links: Vec<String>,
    is_code: bool,
    /// The rows of a table, the first of which are its titles.
    table: Option<Vec<Vec<String>>>,
}

impl Page {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.is_code => self.line.push_str(&escape::text(&text)),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => {
                self.put(&escape::text(&text))
            }
            Event::Code(code) => {
                self.push(CODE);
                self.put(&escape::line(&code));
                self.pop();
            }
            // A model means the lines that it writes.
            Event::SoftBreak | Event::HardBreak => self.put("\n"),
            Event::Rule => {
                self.gap();
                self.text.extend([
                    "─".repeat(self.columns.clamp(NARROWEST, 40)),
                    "\n".to_owned(),
                ]);
            }
            Event::TaskListMarker(done) => self.put(if done { "[x] " } else { "[ ] " }),
            Event::FootnoteReference(_) | Event::InlineMath(_) | Event::DisplayMath(_) => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.gap(),
            Tag::Heading { .. } => {
                self.gap();
                self.push(BOLD);
            }
            Tag::CodeBlock(kind) => {
                self.end_line();
                self.gap();
                self.is_code = true;
                if let CodeBlockKind::Fenced(language) = &kind
                    && !language.is_empty()
                {
                    self.text
                        .push_str(&format!("{INDENT}{DIM}{}{DIM:#}\n", escape::line(language)));
                }
            }
            Tag::List(first) => {
                self.end_line();
                self.gap();
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::BlockQuote(_) => {
                self.gap();
                self.margins.push(format!("{DIM}│{DIM:#} "));
            }
            Tag::Table(_) => {
                self.gap();
                self.table = Some(Vec::new());
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(rows) = &mut self.table {
                    rows.push(Vec::new());
                }
            }
            Tag::Strong => self.push(BOLD),
            Tag::Emphasis => self.push(Style::new().italic()),
            Tag::Strikethrough => self.push(Style::new().strikethrough()),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push(dest_url.to_string())
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_line(),
            TagEnd::Heading(_) => {
                self.pop();
                self.end_line();
            }
            TagEnd::CodeBlock => {
                let code = std::mem::take(&mut self.line);
                let margin = self.margins.concat() + INDENT;
                let lines = code
                    .lines()
                    .map(|line| format!("{margin}{CODE}{line}{CODE:#}\n"));
                self.text.extend(lines);
                self.is_code = false;
            }
            TagEnd::List(_) => drop(self.lists.pop()),
            TagEnd::Item | TagEnd::BlockQuote(_) => {
                self.end_line();
                self.margins.pop();
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.line);
                for row in self.table.iter_mut().filter_map(|rows| rows.last_mut()) {
                    row.push(cell.clone());
                }
            }
            TagEnd::Table => {
                let margin = self.margins.concat();
                let room = self.columns.saturating_sub(width(&margin));
                let shown = table::lay_out(self.table.take().unwrap_or_default(), room);
                for line in shown.lines() {
                    self.text.extend([&margin, line, "\n"]);
                }
            }
            TagEnd::Strong | TagEnd::Emphasis | TagEnd::Strikethrough => self.pop(),
            TagEnd::Link | TagEnd::Image => self.link(),
            _ => {}
        }
    }

    fn item(&mut self) {
        self.end_line();
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{}. ", *number - 1)
            }
            _ => "• ".to_owned(),
        };
        self.margins.push(" ".repeat(mark.chars().count()));
        self.mark = Some(mark);
    }

    /// Shows the target of a link, unless its text is the target.
    fn link(&mut self) {
        let target = escape::line(&self.links.pop().unwrap_or_default()).into_owned();
        if !target.is_empty() && !self.line.ends_with(&target) {
            self.put(&format!(" ({target})"));
        }
    }

    /// Leaves a blank line before a block, unless it is the first one or part of another.
    fn gap(&mut self) {
        if self.margins.is_empty() && self.lists.is_empty() && !self.text.is_empty() {
            self.text.push('\n');
        }
    }

    fn put(&mut self, text: &str) {
        self.line.push_str(text);
    }

    fn push(&mut self, style: Style) {
        // The cells of a table are measured as they are.
        if self.table.is_none() {
            self.line.push_str(&style.to_string());
        }
        self.styles.push(style);
    }

    fn pop(&mut self) {
        if let Some(style) = self.styles.pop()
            && self.table.is_none()
        {
            self.line.push_str(&format!("{style:#}"));
            self.line.extend(self.styles.iter().map(Style::to_string));
        }
    }

    /// Wraps the line in progress.
    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if line.trim().is_empty() {
            return;
        }
        let rest = self.margins.concat();
        let first = match (self.mark.take(), self.margins.split_last()) {
            (Some(mark), Some((_, before))) => before.concat() + &mark,
            _ => rest.clone(),
        };
        let columns = self.columns.max(NARROWEST);
        let mut begin = first;
        for line in line.split('\n') {
            let options = textwrap::Options::new(columns)
                .initial_indent(&begin)
                .subsequent_indent(&rest);
            self.text.extend([
                textwrap::fill(&line.replace('\t', INDENT), options).trim_end(),
                "\n",
            ]);
            begin.clone_from(&rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str, columns: usize) -> String {
        anstream::adapter::strip_str(&render(text, columns)).to_string()
    }

    #[test]
    fn blocks_are_laid_out_and_wrapped_at_words() {
        let text = "# Plan\nThe **correct** test, not `sum()`.\n\n1. one two three four\n2. b\n   - nested item\n\n\
            ```rust\nfn a() {}\n```\n> quoted\n\n---\nsee [it](https://example.org/17)\n";
        insta::assert_snapshot!(plain(text, 19), @r"
        Plan

        The correct test,
        not sum().

        1. one two three
           four
        2. b
           • nested item

            rust
            fn a() {}

        │ quoted

        ───────────────────

        see it
        (https://example.or
        g/17)
        ");
        assert!(
            render("# A *b* c", 40).starts_with("\u{1b}[1mA \u{1b}[3mb\u{1b}[0m\u{1b}[1m c"),
            "{:?}",
            render("# A *b* c", 40)
        );
    }

    #[test]
    fn a_table_fits_the_terminal() {
        let text = "| name | what it does |\n|---|---|\n| alice | writes the tests of the parser |\n| bo | **reads** |\n";
        insta::assert_snapshot!(plain(text, 60), @r"
         name    what it does
        ────────────────────────────────────────
         alice   writes the tests of the parser
         bo      reads
        ");
        insta::assert_snapshot!(plain(text, 30), @r"
         name    what it does
        ──────────────────────────────
         alice   writes the tests of
                 the parser
        ──────────────────────────────
         bo      reads
        ");
        insta::assert_snapshot!(plain(text, 12), @r"
        name: alice
        what it
            does:
            writes
            the
            tests of
            the
            parser

        name: bo
        what it
            does:
            reads
        ");
        let in_list = format!(
            "- see\n\n{}",
            text.replace("| n", "  | n").replace("|--", "  |--")
        );
        assert!(
            plain(&in_list, 60).contains("\n   name "),
            "{}",
            plain(&in_list, 60)
        );
    }

    #[test]
    fn what_a_terminal_would_act_on_stays_text() {
        for text in [
            "a\x1b[2Jb",
            "&#27;[2J",
            "`\x1b]0;x\x07`",
            "```\x1b[2J\n\x1b[2J\n```",
            "[a](<x\x1b[2J>)",
            "<b\x1b[2J>",
            "| a\x1b[2J |\n|---|\n| \u{202e} |",
            "- \u{202e}x",
        ] {
            let shown = plain(text, 60);
            assert!(
                !shown.contains(['\x1b', '\x07', '\u{202e}']),
                "{text:?}: {shown:?}"
            );
            assert!(shown.contains("\\u{"), "{text:?}: {shown:?}");
            assert!(!render(text, 60).contains("\x1b[2J"), "{text:?}");
        }
    }
}
