//! What a key or a click means. Pure: keys in, wishes out.

use std::time::Instant;

use clap::Parser;
use crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use teamd_client::args::{Cli, Shutdown, TeamctlCommand, Teammate};
use teamd_shared::control::TaskOrder;

use super::app::{App, ClickTarget, Confirmation, Pane, TypingPurpose, Verdict, Wish};
use crate::terminal::{HelpOf, Motion, Pager, WHEEL, help_text, motion};

impl App {
    /// Takes a key.
    pub(super) fn key(&mut self, key: KeyEvent, now: Instant) -> Option<Wish> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if self.review.is_some() {
            return self.review_key(key, now);
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && (self.typing.is_none() || key.code == KeyCode::Char('c')) {
            match key.code {
                KeyCode::Char('c') => return Some(Wish::Quit),
                KeyCode::Char('z') => return Some(Wish::Suspend),
                KeyCode::Char('g') => self.open("keys".to_owned(), help_text(HelpOf::Panes)),
                _ => {}
            }
            return None;
        }
        if self.typing.is_some() {
            return self.type_key(key);
        }
        if let Some(question) = self.question.take() {
            return (key.code == KeyCode::Char('y'))
                .then(|| self.confirmed(question))
                .flatten();
        }
        self.notice.clear();
        if let Some(overlay) = &mut self.overlay {
            if !overlay.take_key(key.code) {
                self.overlay = None;
            }
            return None;
        }
        match key.code {
            KeyCode::Char('q') => return Some(Wish::Quit),
            KeyCode::Char('?') => self.open("keys".to_owned(), help_text(HelpOf::Panes)),
            KeyCode::Char('/') => self.type_for(TypingPurpose::Filter),
            KeyCode::Char(number @ '1'..='5') => {
                self.pane = Pane::ALL[number as usize - '1' as usize]
            }
            KeyCode::Tab => self.turn(1),
            KeyCode::BackTab => self.turn(Pane::ALL.len() - 1),
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc if self.reading.is_alone => self.reading.is_alone = false,
            KeyCode::Esc => self.pane = Pane::Team,
            KeyCode::Char('J') => self.text().go(Motion::Lines(1)),
            KeyCode::Char('K') => self.text().go(Motion::Lines(-1)),
            KeyCode::Char(' ') => self.text().go(Motion::Pages(1)),
            _ => return self.pane_key(key.code, now),
        }
        None
    }

    /// Takes a click or a turn of the wheel: they select and scroll, and do nothing else.
    pub(super) fn mouse(&mut self, event: MouseEvent) {
        if self.review.is_some() {
            if let Some(screen) = self.review_screen() {
                screen.mouse(event);
            }
            return;
        }
        let by = match event.kind {
            MouseEventKind::ScrollDown => Motion::Lines(WHEEL),
            MouseEventKind::ScrollUp => Motion::Lines(-WHEEL),
            MouseEventKind::Down(MouseButton::Left) => return self.click(event.column, event.row),
            _ => return,
        };
        let target = self.target(event.column, event.row);
        match (&mut self.overlay, self.pane, target) {
            (Some(overlay), ..) => overlay.pager.go(by),
            (None, Pane::Team | Pane::Requests, None) | (None, Pane::Conversation, _) => {
                self.text().go(by)
            }
            _ => self.go(by),
        }
    }

    fn click(&mut self, column: u16, row: u16) {
        if self.typing.is_some() || self.question.is_some() || self.overlay.is_some() {
            return;
        }
        match self.target(column, row) {
            Some(ClickTarget::Pane(pane)) => self.pane = pane,
            Some(ClickTarget::Member(name)) => self.lists.members.select(&name),
            Some(ClickTarget::Request(id)) => self.lists.requests.select(&id),
            Some(ClickTarget::Task(id)) => self.lists.tasks.select(&id),
            Some(ClickTarget::Item(key)) => {
                self.lists.is_reading_back = true;
                self.lists.items.select(&key);
            }
            None => {}
        }
    }

    fn turn(&mut self, by: usize) {
        let at = Pane::ALL
            .iter()
            .position(|pane| *pane == self.pane)
            .unwrap_or(0);
        self.pane = Pane::ALL[(at + by) % Pane::ALL.len()];
    }

    /// Returns the text that is scrolled beside a list.
    fn text(&mut self) -> &mut Pager {
        match (self.pane, &mut self.conversation) {
            (Pane::Conversation, Some((_, pager))) => pager,
            (Pane::Tasks | Pane::Feed, _) => &mut self.detail,
            _ => &mut self.reading.pager,
        }
    }

    /// Selects an entry above or below.
    fn go(&mut self, by: Motion) {
        match self.pane {
            Pane::Team => self.lists.members.go(by),
            Pane::Requests if self.reading.is_alone => self.reading.pager.go(by),
            Pane::Requests => self.lists.requests.go(by),
            Pane::Tasks => self.lists.tasks.go(by),
            Pane::Feed => {
                self.lists.items.go(by);
                self.lists.is_reading_back =
                    self.lists.items.selected() != self.lists.items.keys().last();
            }
            Pane::Conversation => {}
        }
    }

    fn pane_key(&mut self, code: KeyCode, now: Instant) -> Option<Wish> {
        if self.pane == Pane::Conversation {
            return self.conversation_key(code);
        }
        if let Some(by) = motion(code) {
            self.go(by);
            return None;
        }
        match (self.pane, code) {
            (Pane::Team | Pane::Requests, KeyCode::Char('a')) => return self.approve(false, now),
            (Pane::Team | Pane::Requests, KeyCode::Char('A')) => return self.approve(true, now),
            (Pane::Team | Pane::Requests, KeyCode::Char('r')) => self.reject(now),
            (Pane::Team, KeyCode::Enter) => {
                if let Some(review) = self.review_at_hand() {
                    return Some(self.open_review(review));
                }
                self.pane = Pane::Conversation;
            }
            (Pane::Team, KeyCode::Right | KeyCode::Char('l')) => self.pane = Pane::Conversation,
            (Pane::Requests, KeyCode::Enter) => {
                if let Some(review) = self.review_at_hand() {
                    return Some(self.open_review(review));
                }
                self.reading.is_alone = !self.reading.is_alone;
            }
            (Pane::Team, KeyCode::Char('n')) => self.type_for(TypingPurpose::Spawn),
            (Pane::Team, KeyCode::Char('e')) => self.shows_ended = !self.shows_ended,
            (Pane::Team, code) => return self.member_key(code),
            (Pane::Tasks, code) => return self.task_key(code),
            (Pane::Feed, KeyCode::Enter) => return Some(Wish::ShowItem),
            _ => {}
        }
        None
    }

    fn conversation_key(&mut self, code: KeyCode) -> Option<Wish> {
        match code {
            KeyCode::Char('o') => self.unfolded = !self.unfolded,
            KeyCode::Enter => return self.member_key(KeyCode::Char('s')),
            KeyCode::Left | KeyCode::Char('h') => self.pane = Pane::Team,
            KeyCode::Char('[') => self.lists.members.go(Motion::Lines(-1)),
            KeyCode::Char(']') => self.lists.members.go(Motion::Lines(1)),
            code => {
                let Some(by) = motion(code) else {
                    return self.member_key(code);
                };
                let (_, pager) = self.conversation.as_mut()?;
                let was_at_start = pager.is_at_start();
                pager.go(by);
                return (was_at_start && by.lines(1) < 0).then_some(Wish::ShowEarlier);
            }
        }
        None
    }

    /// Does something with the selected agent.
    fn member_key(&mut self, code: KeyCode) -> Option<Wish> {
        let name = self.lists.members.selected()?.clone();
        match code {
            KeyCode::Char('s') => self.type_for(TypingPurpose::Send(name)),
            KeyCode::Char('i') => {
                return Some(Wish::Call(Box::new(TeamctlCommand::Interrupt(Teammate {
                    name,
                }))));
            }
            KeyCode::Char('x') => {
                self.question = Some(Confirmation::Shutdown { name, force: false })
            }
            KeyCode::Char('X') => {
                self.question = Some(Confirmation::Shutdown { name, force: true })
            }
            KeyCode::Char('d') => {
                let status = ["teamctl", "status", name.as_str()];
                return Cli::try_parse_from(status)
                    .ok()
                    .map(|cli| Wish::Call(Box::new(cli.command)));
            }
            _ => {}
        }
        None
    }

    fn task_key(&mut self, code: KeyCode) -> Option<Wish> {
        if code == KeyCode::Char('a') {
            self.type_for(TypingPurpose::AddTask);
            return None;
        }
        let id = *self.lists.tasks.selected()?;
        match code {
            KeyCode::Left | KeyCode::Char('h') => self.go_column(false),
            KeyCode::Right | KeyCode::Char('l') => self.go_column(true),
            KeyCode::Char('c') => self.question = Some(Confirmation::Cancel(id)),
            KeyCode::Char('t') => return Some(Wish::Task(TaskOrder::Retry(id, Box::default()))),
            KeyCode::Enter => {
                return Some(match self.review_at_hand() {
                    Some(review) => self.open_review(review),
                    None => Wish::ShowTask(id),
                });
            }
            _ => {}
        }
        None
    }

    /// Selects the task beside the selected one, in the next column that has any.
    fn go_column(&mut self, right: bool) {
        let selected = self.lists.tasks.selected();
        let place = self
            .lists
            .columns
            .iter()
            .enumerate()
            .find_map(|(at, column)| {
                Some((at, column.iter().position(|id| Some(id) == selected)?))
            });
        let Some((at, row)) = place else { return };
        let next = if right {
            self.lists.columns[at + 1..]
                .iter()
                .find(|column| !column.is_empty())
        } else {
            self.lists.columns[..at]
                .iter()
                .rev()
                .find(|column| !column.is_empty())
        };
        if let Some(id) = next.and_then(|column| column.get(row).or(column.last())) {
            self.lists.tasks.select(id);
        }
    }

    /// Approves the request that is on the screen, or shows more of it.
    fn approve(&mut self, with_feedback: bool, now: Instant) -> Option<Wish> {
        // Work is approved where it is shown.
        if let Some(review) = self.review_at_hand() {
            return Some(self.open_review(review));
        }
        let verdict = self.verdict(true, now)?;
        if !self.reading.pager.is_seen() {
            self.reading.pager.go_to_unseen();
            "nothing was answered: the text continues here".clone_into(&mut self.notice);
        } else if with_feedback {
            self.type_for(TypingPurpose::Feedback(verdict));
        } else {
            return Some(self.answer(verdict));
        }
        None
    }

    fn reject(&mut self, now: Instant) {
        if let Some(verdict) = self.verdict(false, now) {
            self.type_for(TypingPurpose::Feedback(verdict));
        }
    }

    fn verdict(&mut self, approve: bool, now: Instant) -> Option<Verdict> {
        match self.reading.settled(now) {
            Ok(shown) => Some(Verdict {
                request_id: shown.request_id,
                what: shown.what,
                approve,
                feedback: String::new(),
            }),
            Err(why) => {
                why.clone_into(&mut self.notice);
                None
            }
        }
    }

    pub(super) fn answer(&mut self, verdict: Verdict) -> Wish {
        self.reading.answered = Some(verdict.request_id.clone());
        Wish::Answer(verdict)
    }

    fn confirmed(&mut self, question: Confirmation) -> Option<Wish> {
        match question {
            Confirmation::Shutdown { name, force } => {
                Some(Wish::Call(Box::new(TeamctlCommand::Shutdown(Shutdown {
                    names: vec![name],
                    all: false,
                    reason: String::new(),
                    timeout: None,
                    decide_within: None,
                    force,
                    no_wait: false,
                }))))
            }
            Confirmation::Cancel(id) => Some(Wish::Task(TaskOrder::Cancel(id))),
        }
    }
}

/// Tells whether an event only moves the selection or a text: many of them make one frame.
pub(super) fn only_moves(event: &Event) -> bool {
    match event {
        Event::Key(key) => key.code != KeyCode::Char(' ') && motion(key.code).is_some(),
        Event::Mouse(mouse) => !matches!(mouse.kind, MouseEventKind::Down(_)),
        Event::Resize(..) => true,
        _ => false,
    }
}
