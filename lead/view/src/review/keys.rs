//! What a key means in a review. Pure: keys in, wishes out.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseEvent, MouseEventKind};
use ratatui_textarea::{CursorMove, TextArea};
use teamd_client::print::render::count;

use super::rows::Row;
use super::screen::{ReviewScreen, ReviewWish, Typing, WIDE};
use crate::terminal::{Motion, Overlay, SETTLES, WHEEL, edit, motion, paste};

/// The longest text that is typed, in bytes.
const LONGEST: usize = 16 << 10;

const HELP: &str = "\
  j k ↑ ↓          down, up; space PgUp PgDn: a page; g G: first, last
  n p              the next file, the one before
  Tab, o           fold the file, or show it; generated ones begin folded
  s                side by side (from 120 columns); u: in one column
  N                only what is new since the last submission; all again
  c                comment on the line; an empty one removes it
  a                approve, once each line was on the screen; until then:
                   show the lines that were not
  A                approve, with feedback
  r                reject: the comments and what you type go to the author
  q                leave, and answer nothing

A file that is folded counts as shown: its line names it.
";

impl ReviewScreen {
    /// Takes a key.
    pub(crate) fn key(&mut self, key: KeyEvent, now: Instant) -> Option<ReviewWish> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Some(ReviewWish::Leave),
                KeyCode::Char('z') if self.typing.is_none() => return Some(ReviewWish::Suspend),
                _ => {}
            }
        }
        if self.typing.is_some() {
            return self.type_key(key);
        }
        self.notice.clear();
        let was_warned = std::mem::take(&mut self.is_warned);
        if let Some(overlay) = &mut self.overlay {
            if !overlay.take_key(key.code) {
                self.overlay = None;
            }
            return None;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return self.leave(was_warned),
            KeyCode::Char('?') => {
                self.overlay = Some(Overlay::new("keys".to_owned(), HELP.to_owned()));
            }
            KeyCode::Char('n') => self.go_to_file(true),
            KeyCode::Char('p') => self.go_to_file(false),
            KeyCode::Tab | KeyCode::Char('o') => self.fold(),
            KeyCode::Char('s') if self.columns < WIDE => {
                self.notice = format!("side by side needs {WIDE} columns");
            }
            KeyCode::Char('s') => self.wants_split = true,
            KeyCode::Char('u') => self.wants_split = false,
            KeyCode::Char('N') => self.turn(),
            KeyCode::Char('c') => self.begin_comment(),
            KeyCode::Char('a') => return self.approve(now),
            KeyCode::Char('A') => self.approve_with_feedback(),
            KeyCode::Char('r') => self.reject(),
            code => {
                if let Some(by) = motion(code) {
                    self.go(by);
                }
            }
        }
        None
    }

    /// Takes a turn of the wheel.
    pub(crate) fn mouse(&mut self, event: MouseEvent) {
        let by = match event.kind {
            MouseEventKind::ScrollDown => Motion::Lines(WHEEL),
            MouseEventKind::ScrollUp => Motion::Lines(-WHEEL),
            _ => return,
        };
        match &mut self.overlay {
            Some(overlay) => overlay.pager.go(by),
            None => self.go(by),
        }
    }

    /// Takes text that was pasted: it is typed, and never a key.
    pub(crate) fn paste(&mut self, text: &str) {
        if let Some((_, area)) = &mut self.typing {
            let length = area.lines().iter().map(String::len).sum::<usize>() + text.len();
            if length <= LONGEST {
                paste(area, text);
            }
        }
    }

    fn go(&mut self, by: Motion) {
        let page = self.page;
        let side = self.side();
        let Some(rows) = side.layout.as_ref().map(|it| it.rows.len()) else {
            return;
        };
        let by = by.lines(page.saturating_sub(1).max(1));
        side.cursor = side
            .cursor
            .saturating_add_signed(by)
            .min(rows.saturating_sub(1));
        // A page moves what is in sight as far as the cursor.
        if by.unsigned_abs() > 1 {
            let last = rows.saturating_sub(page);
            side.top = side.top.saturating_add_signed(by).min(last);
        }
    }

    /// Leaves, unless comments would be lost of which the person has not said so.
    fn leave(&mut self, was_warned: bool) -> Option<ReviewWish> {
        if was_warned || self.comments.is_empty() {
            return Some(ReviewWish::Leave);
        }
        self.is_warned = true;
        self.notice = format!(
            "{} would be lost: the same key again leaves, r sends them",
            count(self.comments.len(), "comment")
        );
        None
    }

    fn go_to_file(&mut self, is_next: bool) {
        let side = self.side();
        let Some(layout) = &side.layout else { return };
        let is_file = |row: &&Row| matches!(row, Row::File(_));
        let found = if is_next {
            let below = layout.rows.iter().enumerate().skip(side.cursor + 1);
            below
                .filter(|(_, row)| is_file(row))
                .map(|(at, _)| at)
                .next()
        } else {
            let above = layout.rows.iter().enumerate().take(side.cursor);
            above
                .filter(|(_, row)| is_file(row))
                .map(|(at, _)| at)
                .next_back()
        };
        match found {
            Some(at) => {
                side.cursor = at;
                side.top = at;
            }
            None if is_next => "this is the last file".clone_into(&mut self.notice),
            None => self.go(Motion::Lines(isize::MIN)),
        }
    }

    fn fold(&mut self) {
        let side = self.side();
        let Some(file) = side.file() else {
            "move to a file: n goes to the next one".clone_into(&mut self.notice);
            return;
        };
        side.folded[file] = !side.folded[file];
        if let Some(layout) = &side.layout
            && let Some(at) = layout.rows.iter().position(|row| *row == Row::File(file))
        {
            side.cursor = at;
            side.top = side.top.min(at);
        }
        self.has_changed();
    }

    fn turn(&mut self) {
        if self.since.is_none() {
            "there is no earlier submission to compare with".clone_into(&mut self.notice);
            return;
        }
        self.shows_since = !self.shows_since;
        self.has_changed();
    }

    fn begin_comment(&mut self) {
        let Some(at) = self.side().line() else {
            "move to a line of the diff: a comment is on a line".clone_into(&mut self.notice);
            return;
        };
        let is_since = self.shows_since;
        let before = self
            .comments
            .iter()
            .find(|it| it.at == at && it.is_since == is_since);
        let before = before.map(|it| it.text.clone()).unwrap_or_default();
        self.begin_typing(Typing::Comment(at), &before);
    }

    fn begin_typing(&mut self, typing: Typing, text: &str) {
        let mut area: TextArea<'static> =
            TextArea::new(text.split('\n').map(str::to_owned).collect());
        area.move_cursor(CursorMove::Bottom);
        area.move_cursor(CursorMove::End);
        self.typing = Some((typing, area));
    }

    fn can_answer(&mut self) -> bool {
        if self.reviewed.request.is_none() {
            self.notice.clone_from(&self.ended);
        }
        self.reviewed.request.is_some()
    }

    /// Approves the work, unless it has just come: a key that is held does nothing.
    fn approve(&mut self, now: Instant) -> Option<ReviewWish> {
        if !self.can_answer() {
            return None;
        }
        let shown_at = self.shown_at;
        if shown_at.is_none_or(|it| now.duration_since(it) < SETTLES) {
            "nothing was answered: the work has just come, look at it".clone_into(&mut self.notice);
            return None;
        }
        if !self.was_shown() {
            return None;
        }
        self.answer(true, "")
    }

    fn approve_with_feedback(&mut self) {
        if self.can_answer() && self.was_shown() {
            self.begin_typing(Typing::Feedback { approve: true }, "");
        }
    }

    /// Tells whether all of the work was on the screen; if not, shows what was not.
    fn was_shown(&mut self) -> bool {
        let Some(layout) = self.all.layout.as_ref() else {
            return false;
        };
        let Some((first, unseen)) = self.all.seen.unseen(layout) else {
            return true;
        };
        self.shows_since = false;
        self.all.cursor = first;
        self.all.top = first;
        self.shown_at = None;
        self.notice =
            format!("nothing was answered: {unseen} rows were not on the screen, they begin here");
        false
    }

    fn reject(&mut self) {
        if self.can_answer() {
            self.begin_typing(Typing::Feedback { approve: false }, "");
        }
    }

    fn answer(&mut self, approve: bool, typed: &str) -> Option<ReviewWish> {
        let request_id = self.request_id()?.clone();
        Some(ReviewWish::Answer {
            request_id,
            approve,
            feedback: self.feedback(typed),
        })
    }

    fn type_key(&mut self, key: KeyEvent) -> Option<ReviewWish> {
        let (_, area) = self.typing.as_mut()?;
        match key.code {
            KeyCode::Esc => self.typing = None,
            KeyCode::Enter if !key.modifiers.contains(KeyModifiers::ALT) => {
                let (typing, area) = self.typing.take()?;
                return self.typed(typing, area.into_lines().join("\n").trim());
            }
            _ => {
                let length = area.lines().iter().map(String::len).sum::<usize>();
                if length < LONGEST || key.code == KeyCode::Backspace {
                    edit(area, key);
                }
            }
        }
        None
    }

    fn typed(&mut self, typing: Typing, text: &str) -> Option<ReviewWish> {
        match typing {
            Typing::Comment(at) => {
                self.comment(at, text);
                None
            }
            Typing::Feedback { approve } => {
                if !approve && self.feedback(text).is_empty() {
                    "nothing was answered: a rejection says why".clone_into(&mut self.notice);
                    self.begin_typing(typing, "");
                    return None;
                }
                self.answer(approve, text)
            }
        }
    }
}
