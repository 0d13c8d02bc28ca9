//! A text over the whole body of the screen.

use crossterm::event::KeyCode;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::Clear;

use super::layout::{headed, inset, page};
use super::motion::motion;
use super::pager::Pager;

/// A text over the whole body.
#[derive(Debug)]
pub(crate) struct Overlay {
    title: String,
    text: String,
    pub(crate) pager: Pager,
}

impl Overlay {
    /// Begins at the first line of a text.
    pub(crate) fn new(title: String, text: String) -> Self {
        Self {
            title,
            text,
            pager: Pager::default(),
        }
    }

    /// Draws the part of the text that is in sight.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>, area: Rect) {
        frame.render_widget(Clear, area);
        self.pager
            .set(&self.title, &self.text, inset(area).width.into());
        page(frame, headed(area), &self.title, &mut self.pager);
    }

    /// Takes a key. Returns whether the text stays on the screen.
    pub(crate) fn take_key(&mut self, code: KeyCode) -> bool {
        if matches!(
            code,
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q' | '?')
        ) {
            return false;
        }
        if let Some(by) = motion(code) {
            self.pager.go(by);
        }
        true
    }
}
