//! A text that is longer than its room, and how much of it was on the screen. Pure.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Text};

use super::motion::Motion;
use super::scroll::Scroll;
use super::text::wrapped;

/// A text, and which part of it is shown.
#[derive(Debug, Default)]
pub(crate) struct Pager {
    /// Of what the text is: two things can have the same text.
    of: String,
    text: String,
    columns: usize,
    lines: Vec<Line<'static>>,
    scroll: Scroll,
    /// The lines from the first one on that were on the screen.
    seen: usize,
}

impl Pager {
    /// Makes one that shows the end of its text.
    pub(crate) fn at_end() -> Self {
        Self {
            scroll: Scroll::at_end(),
            ..Self::default()
        }
    }

    /// Takes the text as it is now. Another text, and another width, is on the screen from its
    /// beginning.
    pub(crate) fn set(&mut self, of: &str, text: &str, columns: usize) {
        if self.of == of && self.text == text && self.columns == columns {
            return;
        }
        if self.of != of || self.columns != columns || !text.starts_with(self.text.as_str()) {
            self.seen = 0;
        }
        // What is added was not on the screen, and may continue the last line.
        self.seen = self.seen.min(self.lines.len().saturating_sub(1));
        if self.of != of {
            self.scroll.go_to_start();
        }
        self.of = of.to_owned();
        self.text = text.to_owned();
        self.columns = columns;
        self.lines = wrapped(text, columns);
    }

    /// Draws what is in sight.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let page = area.height.into();
        let from = self.scroll.place(self.lines.len(), page);
        let widest = self.lines.iter().map(Line::width).max().unwrap_or(0);
        // A line that is cut off is not seen.
        if from <= self.seen && widest <= usize::from(area.width) {
            self.seen = self.seen.max(from + page);
        }
        let shown = self.lines.iter().skip(from).take(page).cloned();
        frame.render_widget(Text::from_iter(shown), area);
    }

    /// Scrolls.
    pub(crate) fn go(&mut self, by: Motion) {
        self.scroll.go(by, self.lines.len());
    }

    /// Scrolls to the first line that was not on the screen yet.
    pub(crate) fn go_to_unseen(&mut self) {
        self.scroll.go_to(self.seen);
    }

    /// Tells whether every line was on the screen. A text that was never drawn was not.
    pub(crate) fn is_seen(&self) -> bool {
        self.seen >= self.lines.len().max(1)
    }

    /// Returns how many lines the text has.
    pub(crate) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Returns how many lines are below those that are in sight.
    pub(crate) fn lines_below(&self) -> usize {
        self.scroll.lines_below(self.lines.len())
    }

    /// Tells whether the first line is in sight.
    pub(crate) fn is_at_start(&self) -> bool {
        self.scroll.is_at_start()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn draw(pager: &mut Pager, rows: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(20, rows)).unwrap();
        terminal
            .draw(|frame| pager.draw(frame, frame.area()))
            .unwrap();
        terminal.backend().buffer().content()[..20]
            .iter()
            .map(|cell| cell.symbol())
            .collect::<String>()
    }

    fn numbers(last: usize) -> String {
        (1..=last).map(|n| format!("{n}\n")).collect()
    }

    #[test]
    fn a_text_is_seen_when_each_of_its_lines_was_on_the_screen() {
        let mut pager = Pager::default();
        pager.set("a", &numbers(10), 20);
        assert!(draw(&mut pager, 4).starts_with("1 ") && !pager.is_seen());
        // What is passed over was not on the screen.
        pager.go(Motion::Lines(isize::MAX));
        assert!(draw(&mut pager, 4).starts_with("7 ") && !pager.is_seen());
        pager.go_to_unseen();
        assert!(draw(&mut pager, 4).starts_with("5 ") && !pager.is_seen());
        pager.go(Motion::Lines(2));
        draw(&mut pager, 4);
        assert!(pager.is_seen() && pager.lines_below() == 0);
        pager.set("a", &numbers(10), 10);
        assert!(!pager.is_seen(), "another width: other lines");
        draw(&mut pager, 20);
        pager.set("b", &numbers(10), 10);
        assert!(!pager.is_seen(), "the same text of another request");
        draw(&mut pager, 20);
        assert!(pager.is_seen());
        pager.set("b", &numbers(11), 10);
        assert!(!pager.is_seen(), "a line was added in a room that was free");
        draw(&mut pager, 20);
        assert!(pager.is_seen());
    }

    #[test]
    fn the_end_is_followed_until_a_person_scrolls_up() {
        let mut pager = Pager::at_end();
        pager.set("a", &numbers(10), 20);
        assert!(draw(&mut pager, 4).starts_with("7 "));
        pager.set("a", &numbers(12), 20);
        assert!(draw(&mut pager, 4).starts_with("9 "));
        pager.go(Motion::Lines(-1));
        pager.set("a", &numbers(20), 20);
        assert!(draw(&mut pager, 4).starts_with("8 "));
        pager.go(Motion::Lines(isize::MAX));
        pager.set("a", &numbers(30), 20);
        assert!(draw(&mut pager, 4).starts_with("27 "));
    }
}
