//! The chat as cells of a screen: from top to bottom who the agent is, the conversation, the plan
//! about which the person is asked, what the agent does, what is typed, and the keys.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Text};

use super::look::WorkStatus;
use super::questions::OpenQuestion;
use super::{ChatSession, unusable};
use crate::chat::console::Console;
use crate::chat::log::Log;
use crate::chat::prompt::line::PromptLine;
use crate::terminal::{
    HELP_HINT, Hint, Overlay, TypedRows, headed, inset, keys_row, page, rule, wrapped,
};
use teamd_client::error::CommandError;
use teamd_client::print::escape;
use teamd_client::print::render::{BOLD, DIM, count};
use teamd_client::print::style::paint;

/// Below so many lines there is no room for a heading and for the keys.
const LOW: u16 = 8;
/// The most lines that a text which is typed has on the screen.
const TYPED: u16 = 8;
/// The keys that are listed.
const KEYS: &[Hint] = &[
    ("⏎", "send"),
    ("Alt-⏎", "another line"),
    ("⇥", "complete"),
    ("PgUp", "scroll"),
    ("Ctrl-G", HELP_HINT),
    ("Ctrl-D", "leave"),
];
/// Those of a text over the conversation.
const KEYS_OF_OVERLAY: &[Hint] = &[("j k space", "scroll"), ("Esc", "back")];

impl ChatSession<'_> {
    /// Draws everything, and notes since when a question is on the screen.
    pub(super) fn draw(&mut self) -> Result<(), CommandError> {
        self.take_printed();
        let status = self.status();
        let prompt = self.prompt();
        let Console { screen, line, .. } = &mut *self.console;
        let mut scene = ChatScene {
            title: &self.seen.title,
            spent: &self.seen.spent,
            log: &mut self.log,
            live: self.view.live(),
            status,
            open: self.questions.open.as_mut(),
            prompt: &prompt,
            line,
            overlay: self.overlay.as_mut(),
        };
        screen.draw(|frame| scene.draw(frame)).map_err(unusable)
    }

    /// Returns the prompt before the line, which shows what Enter does with it.
    pub(super) fn prompt(&self) -> String {
        if let Some(wanted) = self.console.line.search() {
            return format!("(search) {}: ", escape::line(wanted));
        }
        let line_is_empty = self.console.line.is_empty();
        match &self.questions.open {
            Some(open) if self.questions.is_answered_by_line(line_is_empty) => {
                open.question.prompt().to_owned()
            }
            _ => format!("{}> ", self.target.name),
        }
    }
}

/// What a frame shows.
struct ChatScene<'s> {
    title: &'s str,
    spent: &'s str,
    log: &'s mut Log,
    live: &'s str,
    status: Option<WorkStatus>,
    open: Option<&'s mut OpenQuestion>,
    prompt: &'s str,
    line: &'s PromptLine,
    overlay: Option<&'s mut Overlay>,
}

impl ChatScene<'_> {
    fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let columns = usize::from(area.width);
        let edge = u16::from(area.height >= LOW);
        let typed = TypedRows::of(self.prompt, self.line.area(), columns);
        let most = TYPED.min(area.height / 2).max(1);
        let typed_rows = u16::try_from(typed.count()).unwrap_or(most).min(most);
        // On a low screen the heading of the plan says what is asked about.
        let asks = edge > 0;
        let notes = self.notes(columns, asks);
        let note_rows = u16::try_from(notes.len()).unwrap_or(u16::MAX);
        let heights = [
            Constraint::Length(edge),
            Constraint::Min(0),
            Constraint::Length(note_rows),
            Constraint::Length(typed_rows),
            Constraint::Length(edge),
        ];
        let [heading, body, below, line, keys] = Layout::vertical(heights).areas(area);
        // What lies below an overlay is not on the screen, and must not count as seen.
        match &mut self.overlay {
            Some(overlay) => overlay.draw(frame, body),
            None => self.body(frame, body),
        }
        let right = match self.log.lines_below() {
            0 => self.spent.to_owned(),
            lines => count(lines, "more line"),
        };
        rule(frame, heading, self.title, &right);
        frame.render_widget(Text::from(notes), below);
        typed.draw(frame, line);
        let hints = if self.overlay.is_some() {
            KEYS_OF_OVERLAY
        } else {
            KEYS
        };
        frame.render_widget(keys_row(hints.to_vec(), keys.width.into()), keys);
    }

    /// Draws the conversation, and below it the plan about which the person is asked.
    fn body(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let Some(open) = &mut self.open else {
            return self.log.draw(frame, area, self.live);
        };
        let columns = usize::from(inset(area).width);
        let id = open.request_id().to_string();
        open.pager.set(&id, &open.page(), columns);
        let needed = u16::try_from(open.pager.lines() + 1).unwrap_or(u16::MAX);
        let rows = if open.is_whole {
            area.height
        } else {
            needed.min((area.height / 2).max(2))
        };
        let [above, plan] =
            Layout::vertical([Constraint::Min(0), Constraint::Length(rows)]).areas(area);
        self.log.draw(frame, above, self.live);
        open.area = plan;
        page(frame, headed(plan), &open.heading, &mut open.pager);
        open.note_shown(Instant::now());
    }

    /// Says what the agent does, and with `asks` puts the question about the plan.
    fn notes(&self, columns: usize, asks: bool) -> Vec<Line<'static>> {
        let mut text = String::new();
        if let Some(status) = &self.status {
            text.push_str(&format!("{}\n", paint(DIM, status.line(columns))));
        }
        if let Some(open) = &self.open
            && asks
        {
            text.push_str(&paint(BOLD, escape::line(open.text())));
        }
        wrapped(&text, columns)
    }
}

#[cfg(test)]
mod tests {
    use super::super::questions::tests::question;
    use super::*;
    use crate::chat::prompt::history::LineHistory;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn draw(open: &mut OpenQuestion, overlay: Option<&mut Overlay>) -> String {
        let mut log = Log::begin(Vec::new(), 0);
        let line = PromptLine::new(LineHistory::default());
        let mut scene = ChatScene {
            title: "lead",
            spent: "",
            log: &mut log,
            live: "",
            status: None,
            open: Some(open),
            prompt: "lead> ",
            line: &line,
            overlay,
        };
        let mut terminal = Terminal::new(TestBackend::new(60, 20)).unwrap();
        terminal.draw(|frame| scene.draw(frame)).unwrap();
        let cells = terminal.backend().buffer().content();
        cells.iter().map(|cell| cell.symbol()).collect()
    }

    #[test]
    fn a_plan_below_the_help_is_not_seen_and_nothing_answers_it() {
        let mut open = question();
        let mut help = Overlay::new("keys".to_owned(), "the keys".to_owned());
        let screen = draw(&mut open, Some(&mut help));
        assert!(!screen.contains("Drop the cache."), "{screen}");
        assert!(!open.pager.is_seen());
        assert!(!open.is_settled() && open.settles_in().is_none());
        let screen = draw(&mut open, None);
        assert!(screen.contains("Drop the cache."), "{screen}");
        assert!(open.pager.is_seen());
        assert!(
            open.settles_in().is_some(),
            "it is on the screen from now on"
        );
    }
}
