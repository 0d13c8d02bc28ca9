//! A review in the place of the panes, as the view opens, answers and draws it.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use teamd_client::print::render::DIM;
use teamd_client::print::style::paint;
use teamd_shared::id::RequestId;

use super::app::{App, Pane, Wish};
use super::draw::{LARGE, TopScene, header};
use super::open_review::{OpenReview, PendingReview};
use crate::review::{ReviewScreen, ReviewWish, Reviewed};
use crate::terminal::{headed, inset, row, rule};

impl App {
    /// Opens a review in the place of the panes; its work is to be read.
    pub(super) fn open_review(&mut self, request_id: RequestId) -> Wish {
        self.review = Some(OpenReview::new(request_id.clone()));
        Wish::Review(request_id)
    }

    /// Returns the review of what is selected: of the request itself, of a task, or of what a
    /// teammate has submitted, unless another request of it is on the screen.
    pub(super) fn review_at_hand(&self) -> Option<RequestId> {
        let is_answered = |it: &&PendingReview| {
            let answered = self.reading.answered.as_ref();
            answered == Some(&it.request_id)
        };
        let mut reviews = self.reviews.iter().filter(|it| !is_answered(it));
        let found = match self.pane {
            Pane::Team => match &self.reading.drawing {
                Some(drawn) => reviews.find(|it| it.request_id == drawn.request_id),
                None => {
                    let name = self.lists.members.selected()?;
                    reviews.find(|it| it.author == name.as_str())
                }
            },
            Pane::Requests => {
                let selected = self.lists.requests.selected()?;
                reviews.find(|it| it.request_id == *selected)
            }
            Pane::Tasks => {
                let selected = self.lists.tasks.selected()?;
                reviews.find(|it| it.task == *selected)
            }
            Pane::Feed | Pane::Conversation => None,
        };
        found.map(|it| it.request_id.clone())
    }

    /// Takes a key for the review that is open.
    pub(super) fn review_key(&mut self, key: KeyEvent, now: Instant) -> Option<Wish> {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(Wish::Quit);
        }
        let review = self.review.as_mut()?;
        match review.key(key, now)? {
            ReviewWish::Leave => self.review = None,
            ReviewWish::Suspend => return Some(Wish::Suspend),
            ReviewWish::Answer {
                request_id,
                approve,
                feedback,
            } => {
                return Some(Wish::AnswerReview {
                    request_id,
                    approve,
                    feedback,
                });
            }
        }
        None
    }

    /// Returns the review on the screen.
    pub(super) fn review_screen(&mut self) -> Option<&mut ReviewScreen> {
        self.review.as_mut()?.screen.as_deref_mut()
    }

    /// Takes the work of a review, or why it cannot be read.
    pub(super) fn reviewed(&mut self, id: &RequestId, reviewed: Result<Reviewed, String>) {
        let Some(review) = self.review.as_mut().filter(|it| it.request_id == *id) else {
            // The person has left.
            return;
        };
        match reviewed {
            Ok(reviewed) => review.screen = Some(Box::new(ReviewScreen::new(reviewed))),
            Err(why) => {
                self.review = None;
                self.notice = why;
            }
        }
    }

    /// Shows the source of a review in colours.
    pub(super) fn colour_review(&mut self, id: &RequestId) {
        let review = self.review.as_mut().filter(|it| it.request_id == *id);
        if let Some(screen) = review.and_then(|it| it.screen.as_mut()) {
            screen.colour();
        }
    }

    /// Takes what became of an answer. One that failed leaves the comments where they are.
    pub(super) fn review_answered(&mut self, id: &RequestId, is_done: bool, said: String) {
        let review = self.review.as_mut().filter(|it| it.request_id == *id);
        match review {
            Some(review) if !is_done => {
                review.is_answering = false;
                if let Some(screen) = &mut review.screen {
                    screen.notice = said;
                }
            }
            Some(_) => {
                self.review = None;
                self.reading.answered = Some(id.clone());
                self.notice = said;
            }
            None => self.notice = said,
        }
    }

    /// Draws the review below the state of the team; on a large screen beside the list.
    pub(super) fn draw_review(&mut self, frame: &mut Frame<'_>, scene: &TopScene<'_>) {
        let Some(mut review) = self.review.take() else {
            return;
        };
        let [top, body] = headed(frame.area());
        frame.render_widget(header(scene, top.width.into()), top);
        let is_split = review.screen.as_ref().is_some_and(|it| it.is_split());
        let mut area = body;
        if body.width >= LARGE && !is_split {
            let [list, gap, rest] = Layout::horizontal([
                Constraint::Percentage(25),
                Constraint::Length(1),
                Constraint::Min(0),
            ])
            .areas(body);
            let _: Rect = gap;
            area = rest;
            self.requests_beside(frame, scene, list, &review.request_id);
        }
        match &mut review.screen {
            Some(screen) => screen.draw(frame, area),
            None => {
                let [heading, rest] = headed(area);
                rule(frame, heading, &format!("review {}", review.request_id), "");
                let text = paint(DIM, "the work is being read; Esc leaves");
                frame.render_widget(row(&text), inset(rest));
            }
        }
        self.review = Some(review);
    }
}
