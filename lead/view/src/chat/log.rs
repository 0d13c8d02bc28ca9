//! What a chat has shown, oldest first, laid out for the screen: parts of the conversation, and
//! what the chat itself has printed between them.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Text};

use crate::markdown;
use crate::model::ConversationPart;
use crate::terminal::{Motion, Scroll, wrapped, write};
use teamd_client::print::output::wrap;
use teamd_client::print::render::DIM;
use teamd_client::print::style::paint;

/// The most lines that are kept, as they were when they came: neither a narrower screen nor results
/// that are shown whole make them more. Beyond them the oldest ones go.
const MOST_LINES: usize = 10_000;
/// What is in their place.
const DROPPED: &str = "earlier lines are not kept here; `teamctl transcript` shows what was said";

/// A piece of the log.
#[derive(Debug, Clone)]
pub(super) enum LogBlock {
    /// A part of the conversation.
    Part(ConversationPart),
    /// What the chat has printed: lines with our escape sequences.
    Printed(String),
}

impl LogBlock {
    /// Writes it for so many columns.
    pub(super) fn write(&self, unfolded: bool, columns: usize) -> String {
        match self {
            Self::Part(part) => write(part, unfolded, columns),
            Self::Printed(text) => wrap(text, columns),
        }
    }
}

/// The log of a chat with one agent.
#[derive(Debug)]
pub(super) struct Log {
    blocks: Vec<LogBlock>,
    /// How many lines each block had when it was laid out first; none if it was not.
    first_heights: Vec<Option<usize>>,
    /// How many blocks are from before the chat.
    past: usize,
    /// How many of the first blocks are not shown.
    hidden: usize,
    /// Whether the results of tools are shown whole.
    unfolded: bool,
    /// How many blocks were added, those included that are dropped.
    added: usize,
    /// Whether blocks from before the chat, and whether others, were dropped.
    has_dropped: bool,
    has_dropped_new: bool,
    /// The blocks that are shown, laid out for so many columns.
    lines: Vec<Line<'static>>,
    /// How many lines each of them has.
    heights: Vec<usize>,
    laid_out: usize,
    columns: usize,
    /// The lines of the answer in progress.
    live: Vec<Line<'static>>,
    scroll: Scroll,
}

impl Log {
    /// Begins with what was said before the chat, of which the last `shown` blocks are shown.
    pub(super) fn begin(past: Vec<ConversationPart>, shown: usize) -> Self {
        Self {
            past: past.len(),
            hidden: past.len().saturating_sub(shown),
            first_heights: vec![None; past.len()],
            blocks: past.into_iter().map(LogBlock::Part).collect(),
            unfolded: false,
            added: 0,
            has_dropped: false,
            has_dropped_new: false,
            lines: Vec::new(),
            heights: Vec::new(),
            laid_out: 0,
            columns: 0,
            live: Vec::new(),
            scroll: Scroll::at_end(),
        }
    }

    /// Adds a block.
    pub(super) fn push(&mut self, block: LogBlock) {
        self.blocks.push(block);
        self.first_heights.push(None);
        self.added += 1;
    }

    /// Returns how many blocks were added.
    pub(super) fn added(&self) -> usize {
        self.added
    }

    /// Puts parts before all others.
    pub(super) fn put_before(&mut self, earlier: Vec<ConversationPart>) {
        self.past += earlier.len();
        self.hidden += earlier.len();
        self.laid_out += earlier.len();
        self.first_heights.splice(0..0, vec![None; earlier.len()]);
        self.blocks
            .splice(0..0, earlier.into_iter().map(LogBlock::Part));
    }

    /// Returns what was added since the chat began, as far as it was kept.
    pub(super) fn into_new(mut self) -> Vec<LogBlock> {
        let new = self.blocks.split_off(self.past);
        if !self.has_dropped_new {
            return new;
        }
        let mut kept = vec![dropped()];
        kept.extend(new);
        kept
    }

    /// Hides all blocks, until a person scrolls up.
    pub(super) fn clear(&mut self) {
        self.hidden = self.blocks.len();
        self.forget_layout();
    }

    /// Shows the results of tools whole, or no longer.
    pub(super) fn unfold(&mut self) {
        self.unfolded = !self.unfolded;
        self.forget_layout();
    }

    /// Scrolls.
    pub(super) fn go(&mut self, by: Motion) {
        self.scroll.go(by, self.lines.len() + self.live.len());
    }

    /// Shows the end again.
    pub(super) fn go_to_end(&mut self) {
        self.go(Motion::Lines(isize::MAX));
    }

    /// Tells whether the first line that is shown is in sight.
    pub(super) fn is_at_start(&self) -> bool {
        self.scroll.is_at_start()
    }

    /// Tells whether the oldest lines were dropped: what was before them is not shown.
    pub(super) fn has_dropped(&self) -> bool {
        self.has_dropped
    }

    /// Tells whether there are blocks that are not shown.
    pub(super) fn hides_any(&self) -> bool {
        self.hidden > 0
    }

    /// Shows what is hidden, above what is in sight.
    pub(super) fn show_hidden(&mut self) {
        let before = self.lines.len();
        self.hidden = 0;
        self.forget_layout();
        self.lay_out(self.columns);
        self.scroll
            .lines_were_added_before(self.lines.len().saturating_sub(before));
    }

    /// Returns how many lines are below those that are in sight.
    pub(super) fn lines_below(&self) -> usize {
        self.scroll.lines_below(self.lines.len() + self.live.len())
    }

    /// Draws what is in sight, at the bottom of the area, with the answer in progress below it.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, live: &str) {
        let columns = usize::from(area.width);
        let page = usize::from(area.height);
        self.lay_out(columns);
        self.live.clear();
        if !live.is_empty() {
            self.live = wrapped(&markdown::render(live, columns), columns);
        }
        let from = self.scroll.place(self.lines.len() + self.live.len(), page);
        let lines = self.lines.iter().chain(&self.live).skip(from).take(page);
        let shown: Vec<Line<'_>> = lines.cloned().collect();
        let blank = u16::try_from(page - shown.len()).unwrap_or(0);
        let rest = Rect {
            y: area.y + blank,
            height: area.height - blank,
            ..area
        };
        frame.render_widget(Text::from(shown), rest);
    }

    /// Lays out the blocks that are new.
    fn lay_out(&mut self, columns: usize) {
        if columns != self.columns {
            self.columns = columns;
            self.forget_layout();
        }
        let from = self.laid_out.max(self.hidden).min(self.blocks.len());
        let blocks = self.blocks[from..].iter();
        for (block, first_height) in blocks.zip(&mut self.first_heights[from..]) {
            let text = block.write(self.unfolded, columns);
            let lines = wrapped(&text, columns);
            first_height.get_or_insert(lines.len());
            self.heights.push(lines.len());
            self.lines.extend(lines);
        }
        self.laid_out = self.blocks.len();
        let kept: usize = self.first_heights.iter().flatten().sum();
        if kept > MOST_LINES {
            self.drop_oldest(kept - MOST_LINES * 9 / 10);
        }
    }

    /// Drops the oldest blocks until so many lines are gone.
    fn drop_oldest(&mut self, excess: usize) {
        let mut blocks = 0;
        let mut lines = 0;
        // Those that are hidden are older still.
        let mut gone: usize = self.first_heights[..self.hidden].iter().flatten().sum();
        // The last block stays, however long it is.
        while gone < excess && blocks + 1 < self.heights.len() {
            gone += self.first_heights[self.hidden + blocks].unwrap_or(0);
            lines += self.heights[blocks];
            blocks += 1;
        }
        if blocks == 0 {
            return;
        }
        let block = dropped();
        let in_place = wrapped(&block.write(false, self.columns), self.columns);
        self.scroll
            .lines_were_removed_before(lines.saturating_sub(in_place.len()));
        let in_place_height = in_place.len();
        self.heights.splice(..blocks, [in_place_height]);
        self.lines.splice(..lines, in_place);
        let blocks = self.hidden + blocks;
        self.blocks.splice(..blocks, [block]);
        self.first_heights.splice(..blocks, [Some(in_place_height)]);
        self.has_dropped = true;
        self.has_dropped_new |= blocks > self.past;
        self.past = self.past.saturating_sub(blocks) + 1;
        self.hidden = 0;
        self.laid_out = self.blocks.len();
    }

    fn forget_layout(&mut self) {
        self.laid_out = 0;
        self.lines.clear();
        self.heights.clear();
    }
}

fn dropped() -> LogBlock {
    LogBlock::Printed(paint(DIM, DROPPED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn draw(log: &mut Log, live: &str) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(10, 4)).unwrap();
        terminal
            .draw(|frame| log.draw(frame, frame.area(), live))
            .unwrap();
        let cells = terminal.backend().buffer().content();
        let rows = cells.chunks(10).map(|row| {
            let row: String = row.iter().map(|cell| cell.symbol()).collect();
            row.trim_end().to_owned()
        });
        rows.collect()
    }

    fn past(count: usize) -> Vec<ConversationPart> {
        let parts = (1..=count).map(|number| ConversationPart::Aside(format!("past {number}")));
        parts.collect()
    }

    #[test]
    fn the_end_is_at_the_bottom_and_what_was_before_comes_when_a_person_scrolls_up() {
        let mut log = Log::begin(past(4), 1);
        assert_eq!(draw(&mut log, ""), ["", "", "", "past 4"]);
        log.push(LogBlock::Printed("new".to_owned()));
        assert_eq!(draw(&mut log, "live"), ["", "past 4", "new", "live"]);
        log.show_hidden();
        assert_eq!(draw(&mut log, ""), ["past 2", "past 3", "past 4", "new"]);
        log.go(Motion::Lines(-1));
        assert_eq!(draw(&mut log, ""), ["past 1", "past 2", "past 3", "past 4"]);
        log.put_before(past(2));
        log.push(LogBlock::Printed("more".to_owned()));
        assert_eq!(draw(&mut log, "")[0], "past 1", "what is read stays");
        assert_eq!((log.lines_below(), log.hides_any()), (2, true));
        log.go_to_end();
        assert_eq!(draw(&mut log, ""), ["past 3", "past 4", "new", "more"]);
        let new = log.into_new();
        assert_eq!(new.len(), 2);
        assert_eq!(new[0].write(false, 80), "new\n");
    }

    #[test]
    fn the_oldest_lines_go_and_a_line_says_so() {
        let mut log = Log::begin(past(10), 1);
        for number in 1..=MOST_LINES {
            log.push(LogBlock::Printed(format!("{number}\n")));
            if number % 999 == 0 {
                draw(&mut log, "");
            }
        }
        assert_eq!(draw(&mut log, "")[3], MOST_LINES.to_string());
        assert!(log.lines.len() < MOST_LINES && log.has_dropped() && !log.hides_any());
        assert_eq!(log.lines.len(), log.heights.iter().sum::<usize>());
        let blocks = log.blocks.len();
        log.unfold();
        log.lay_out(2);
        assert_eq!(log.blocks.len(), blocks, "a narrow screen drops nothing");
        log.unfold();
        draw(&mut log, "");
        log.go(Motion::Lines(isize::MIN));
        assert_eq!(draw(&mut log, "")[..2], ["earlier", "    lines"]);
        let shown = draw(&mut log, "");
        log.push(LogBlock::Printed("new".to_owned()));
        assert_eq!(draw(&mut log, ""), shown, "what is read stays");
        let lines = log.lines.len();
        let new = log.into_new();
        assert_eq!(new[0].write(false, 80), dropped().write(false, 80));
        assert!(new.len() > lines - 20 && new.len() < MOST_LINES);
    }

    #[test]
    fn a_block_that_is_longer_than_the_log_is_shown() {
        let mut log = Log::begin(past(2), 2);
        log.push(LogBlock::Printed("line\n".repeat(2 * MOST_LINES)));
        draw(&mut log, "");
        assert_eq!(draw(&mut log, "")[3], "line");
        assert_eq!(log.into_new().len(), 1, "nothing new was dropped");
    }

    #[test]
    fn a_screen_of_another_width_shows_each_line_once() {
        let mut log = Log::begin(Vec::new(), 0);
        log.push(LogBlock::Part(ConversationPart::Answer(
            "one two three four".to_owned(),
        )));
        assert_eq!(draw(&mut log, ""), ["", "", "one two", "three four"]);
        log.clear();
        assert_eq!(draw(&mut log, ""), ["", "", "", ""]);
    }
}
