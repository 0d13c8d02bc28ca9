//! An answer that arrives piece by piece: each block of it is printed once, when no more text can
//! change it. Pure.

use pulldown_cmark::{Event, Parser};
use teamd_client::print::output::Layout;

use crate::markdown::{options, render};

/// How many bytes of an answer in progress are looked at for the end of a block. A block that is
/// longer is shown in parts.
const LONGEST: usize = 64 * 1024;

/// The answer in progress.
#[derive(Debug, Default)]
pub(in crate::chat) struct AnswerText {
    /// The blocks that may still change.
    rest: String,
    /// Whether a block of the answer is printed already.
    begun: bool,
}

impl AnswerText {
    /// Adds a piece, and returns the blocks that are complete now.
    pub(in crate::chat) fn push(&mut self, more: &str) -> Option<Layout> {
        self.rest.push_str(more);
        self.take(complete(&self.rest))
    }

    /// Returns what is left: the answer is over.
    pub(in crate::chat) fn end(&mut self) -> Option<Layout> {
        let last = self.take(self.rest.len());
        self.begun = false;
        last
    }

    /// Returns the blocks in progress as they would be printed now.
    pub(in crate::chat) fn in_progress(&self) -> Layout {
        self.lay_out(self.rest.clone())
    }

    fn take(&mut self, bytes: usize) -> Option<Layout> {
        let blocks: String = self.rest.drain(..bytes).collect();
        let shown = (!blocks.trim().is_empty()).then(|| self.lay_out(blocks));
        self.begun |= shown.is_some();
        shown
    }

    fn lay_out(&self, text: String) -> Layout {
        let gap = if self.begun && !text.trim().is_empty() {
            "\n"
        } else {
            ""
        };
        Box::new(move |columns| format!("{gap}{}", render(&text, columns)))
    }
}

/// Returns how many bytes of a text more text cannot change: all blocks but the last one. The line
/// in progress may become anything: the next row of a table looks like a paragraph at first.
fn complete(text: &str) -> usize {
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    if text.len() > LONGEST {
        return if whole > 0 { whole } else { text.len() };
    }
    let mut depth = 0;
    let mut last = 0;
    for (event, range) in Parser::new_ext(&text[..whole], options()).into_offset_iter() {
        if depth == 0 {
            last = range.start;
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            _ => {}
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid_out(text: Option<Layout>) -> String {
        text.map_or_else(String::new, |text| {
            anstream::adapter::strip_str(&text(79)).to_string()
        })
    }

    #[test]
    fn an_answer_is_printed_by_blocks() {
        let mut answer = AnswerText::default();
        assert!(answer.push("one ").is_none());
        assert_eq!(answer.in_progress()(79), "one\n");
        assert!(answer.push("two\n\nth").is_none());
        assert_eq!(answer.in_progress()(79), "one two\n\nth\n");
        assert_eq!(laid_out(answer.push("ree\n\n")), "one two\n");
        assert_eq!(answer.in_progress()(79), "\nthree\n");
        assert_eq!(laid_out(answer.push("```\na\n\nb\n")), "\nthree\n");
        assert_eq!(
            laid_out(answer.push("```\nend\n")),
            "\n    a\n    \n    b\n"
        );
        assert_eq!(laid_out(answer.end()), "\nend\n");
        assert_eq!(laid_out(answer.push("next\n\n.\n")), "next\n");
    }

    #[test]
    fn a_table_that_arrives_in_pieces_stays_one() {
        let mut answer = AnswerText::default();
        for piece in "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n".split_inclusive(' ') {
            assert!(answer.push(piece).is_none());
        }
        assert_eq!(laid_out(answer.end()).lines().count(), 4);
    }

    #[test]
    fn a_block_without_an_end_is_shown_in_parts() {
        let mut answer = AnswerText::default();
        let shown = laid_out(answer.push(&"word ".repeat(20_000)));
        assert!(shown.len() > LONGEST && answer.in_progress()(79).is_empty());
    }
}
