//! A review in the place of the panes: its work is read, shown, and answered. Pure.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent};
use teamd_shared::id::RequestId;
use teamd_shared::journal::Team;
use teamd_shared::request::{Payload, Request, Status};
use teamd_shared::task::TaskId;

use crate::codes::ShownCodes;
use crate::review::{ReviewScreen, ReviewWish};

/// A review that waits for an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PendingReview {
    pub(super) request_id: RequestId,
    pub(super) task: TaskId,
    pub(super) author: String,
}

impl PendingReview {
    /// Returns those of a team.
    pub(super) fn all(team: &Team) -> Vec<Self> {
        let pending = team.requests.values().filter(|it| it.is_pending());
        pending.filter_map(Self::of).collect()
    }

    fn of(request: &Request) -> Option<Self> {
        let Payload::Review(review) = &request.payload else {
            return None;
        };
        Some(Self {
            request_id: request.request_id.clone(),
            task: review.task,
            author: request.member().to_owned(),
        })
    }
}

/// The review that has the screen.
#[derive(Debug)]
pub(super) struct OpenReview {
    pub(super) request_id: RequestId,
    /// None: its work is being read.
    pub(super) screen: Option<Box<ReviewScreen>>,
    /// Whether an answer is on its way.
    pub(super) is_answering: bool,
}

impl OpenReview {
    pub(super) fn new(request_id: RequestId) -> Self {
        Self {
            request_id,
            screen: None,
            is_answering: false,
        }
    }

    /// Takes the code of the request, and notes if the request has ended.
    pub(super) fn follow(&mut self, team: &Team, codes: &ShownCodes) {
        let Some(screen) = &mut self.screen else {
            return;
        };
        screen.code = codes.of(&self.request_id).map(str::to_owned);
        let request = team.requests.get(&self.request_id);
        let has_ended = request.is_none_or(|request| !request.is_pending());
        // What becomes of the person's own answer is said by its end.
        if has_ended && !self.is_answering && screen.request_id().is_some() {
            let how = match request.map(|it| it.status) {
                Some(Status::Approved) => "was approved meanwhile",
                Some(Status::Rejected) => "was rejected meanwhile",
                _ => "was withdrawn",
            };
            screen.end(format!(
                "the review {} {how}: nothing can be answered",
                self.request_id
            ));
        }
    }

    /// Notes that the frame is on the screen.
    pub(super) fn drawn(&mut self, now: Instant) {
        if let Some(screen) = &mut self.screen {
            screen.drawn(now);
        }
    }

    /// Tells whether another frame has more to show, without any event.
    pub(super) fn is_behind(&mut self) -> bool {
        self.screen.as_mut().is_some_and(|it| it.is_behind())
    }

    pub(super) fn key(&mut self, key: KeyEvent, now: Instant) -> Option<ReviewWish> {
        let Some(screen) = &mut self.screen else {
            let leaves = matches!(key.code, KeyCode::Esc | KeyCode::Char('q'));
            return leaves.then_some(ReviewWish::Leave);
        };
        let answers = matches!(key.code, KeyCode::Char('a' | 'A' | 'r'));
        if answers && !screen.is_typing() && self.is_answering {
            "the answer is on its way".clone_into(&mut screen.notice);
            return None;
        }
        let wish = screen.key(key, now);
        self.is_answering |= matches!(wish, Some(ReviewWish::Answer { .. }));
        wish
    }
}
