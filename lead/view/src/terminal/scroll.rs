//! Which lines of a text are in sight. Pure.

use super::motion::Motion;

/// Which lines of a text are in sight.
#[derive(Debug, Default)]
pub(crate) struct Scroll {
    from: usize,
    /// How many lines were on the screen at once.
    page: usize,
    /// Whether the end is shown, also when more comes, until a person scrolls up.
    is_tail: bool,
    is_reading_back: bool,
}

impl Scroll {
    /// Makes one that shows the end of its text.
    pub(crate) fn at_end() -> Self {
        Self {
            is_tail: true,
            ..Self::default()
        }
    }

    /// Returns the first line in sight of so many, where a page has `page` of them.
    pub(crate) fn place(&mut self, lines: usize, page: usize) -> usize {
        self.page = page;
        let last = lines.saturating_sub(page);
        self.from = if self.is_tail && !self.is_reading_back {
            last
        } else {
            self.from.min(last)
        };
        self.from
    }

    /// Scrolls in so many lines.
    pub(crate) fn go(&mut self, by: Motion, lines: usize) {
        let last = lines.saturating_sub(self.page);
        let by = by.lines(self.page);
        self.from = self.from.saturating_add_signed(by).min(last);
        self.is_reading_back = self.from < last;
    }

    /// Scrolls to a line.
    pub(crate) fn go_to(&mut self, line: usize) {
        self.from = line;
        self.is_reading_back = true;
    }

    /// Scrolls to the first line, or to the end where that is followed.
    pub(crate) fn go_to_start(&mut self) {
        self.from = 0;
    }

    /// Keeps what is in sight there, although so many lines were added before it.
    pub(crate) fn lines_were_added_before(&mut self, lines: usize) {
        self.from += lines;
    }

    /// Keeps what is in sight there, although so many lines were removed before it.
    pub(crate) fn lines_were_removed_before(&mut self, lines: usize) {
        self.from = self.from.saturating_sub(lines);
    }

    /// Returns how many of so many lines are below those that are in sight.
    pub(crate) fn lines_below(&self, lines: usize) -> usize {
        lines.saturating_sub(self.from + self.page)
    }

    /// Tells whether the first line is in sight.
    pub(crate) fn is_at_start(&self) -> bool {
        self.from == 0
    }
}
