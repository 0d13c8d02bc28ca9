//! The state of a review on the screen: where the person is, what is folded, which comments there
//! are. Pure: `keys` and `draw` change it.

use std::time::Instant;

use ratatui::text::Line;
use ratatui_textarea::TextArea;
use teamd_shared::id::RequestId;

use super::changes::Changes;
use super::colours::{Colours, Sample, samples};
use super::comments::{LineComment, feedback};
use super::read::Reviewed;
use super::rows::{Layout, LinePlace, Row, RowShape, SeenRows};
use crate::terminal::Overlay;

/// From so many columns on, two sides have room.
pub(super) const WIDE: u16 = 120;

/// What the person wants.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ReviewWish {
    Leave,
    Suspend,
    Answer {
        request_id: RequestId,
        approve: bool,
        feedback: String,
    },
}

/// What is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Typing {
    Comment(LinePlace),
    Feedback { approve: bool },
}

/// A comment on a line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Comment {
    pub(super) at: LinePlace,
    /// Whether it is on what is new since the last submission.
    pub(super) is_since: bool,
    /// The file and the number of the line.
    pub(super) place: String,
    pub(super) quoted: String,
    pub(super) text: String,
}

/// Changes, and where the person is in them.
#[derive(Debug)]
pub(super) struct ShownChanges {
    pub(super) changes: Changes,
    pub(super) colours: Colours,
    pub(super) folded: Vec<bool>,
    pub(super) layout: Option<Layout>,
    pub(super) seen: SeenRows,
    pub(super) cursor: usize,
    pub(super) top: usize,
}

impl ShownChanges {
    fn new(changes: Changes) -> Self {
        let folded = changes.files.iter().map(|file| file.generated).collect();
        Self {
            seen: SeenRows::new(&changes, 0),
            colours: Colours::default(),
            folded,
            layout: None,
            cursor: 0,
            top: 0,
            changes,
        }
    }

    /// Lays the rows out, unless they are as they were. The cursor stays on its line.
    pub(super) fn lay_out(&mut self, shape: RowShape, comments: &[LinePlace]) {
        if self.layout.as_ref().is_some_and(|it| it.shape == shape) {
            return;
        }
        let at = self.row();
        let above = self.cursor.saturating_sub(self.top);
        let layout = Layout::new(&self.changes, &self.folded, comments, shape);
        self.seen.set_heads(&self.changes, shape.heads);
        if let Some(at) = at {
            let found = layout.rows.iter().position(|row| is_same_place(*row, at));
            self.cursor = found.unwrap_or(self.cursor);
            self.top = self.cursor.saturating_sub(above);
        }
        self.cursor = self.cursor.min(layout.rows.len().saturating_sub(1));
        self.layout = Some(layout);
    }

    /// Returns the row in which the cursor is.
    pub(super) fn row(&self) -> Option<Row> {
        self.layout.as_ref()?.rows.get(self.cursor).copied()
    }

    /// Returns the file in which the cursor is.
    pub(super) fn file(&self) -> Option<usize> {
        let rows = &self.layout.as_ref()?.rows;
        let above = rows[..=self.cursor.min(rows.len().checked_sub(1)?)]
            .iter()
            .rev();
        above
            .filter_map(|row| match row {
                Row::File(file) => Some(*file),
                _ => None,
            })
            .next()
    }

    /// Returns the line in which the cursor is: of two, the new one.
    pub(super) fn line(&self) -> Option<LinePlace> {
        match self.row()? {
            Row::Line(at, _) => Some(at),
            Row::Pair(left, right, _) => right.or(left),
            _ => None,
        }
    }
}

fn is_same_place(row: Row, other: Row) -> bool {
    let line = |row| match row {
        Row::Line(at, _) => Some(at),
        Row::Pair(left, right, _) => right.or(left),
        _ => None,
    };
    match (line(row), line(other)) {
        (Some(one), Some(two)) => {
            one == two || matches!(row, Row::Pair(Some(left), ..) if left == two)
        }
        (None, None) => row == other,
        _ => false,
    }
}

/// What stands above the changes, and what it was written for.
#[derive(Debug)]
pub(super) struct Heading {
    pub(super) columns: usize,
    pub(super) is_since: bool,
    pub(super) code: Option<String>,
    pub(super) lines: Vec<Line<'static>>,
}

/// A review on the screen.
#[derive(Debug)]
pub(crate) struct ReviewScreen {
    pub(super) reviewed: Reviewed,
    pub(super) all: ShownChanges,
    pub(super) since: Option<ShownChanges>,
    pub(super) shows_since: bool,
    pub(super) wants_split: bool,
    pub(super) comments: Vec<Comment>,
    pub(super) typing: Option<(Typing, TextArea<'static>)>,
    pub(super) overlay: Option<Overlay>,
    /// What is said in the place above the keys.
    pub(crate) notice: String,
    /// How many rows of the changes the last frame had.
    pub(super) page: usize,
    pub(super) columns: u16,
    /// What stood above the changes in the last frame.
    pub(super) heading: Option<Heading>,
    /// The code of the review, if answers need one.
    pub(crate) code: Option<String>,
    /// Why the review waits for no answer.
    pub(super) ended: String,
    /// Whether the person was told that its comments would be lost.
    pub(super) is_warned: bool,
    /// Since when the person can have looked at what an approval is about; none: not yet.
    pub(super) shown_at: Option<Instant>,
}

impl ReviewScreen {
    /// Begins at the top.
    pub(crate) fn new(reviewed: Reviewed) -> Self {
        Self {
            all: ShownChanges::new(reviewed.changes.clone()),
            since: reviewed.since.clone().map(ShownChanges::new),
            reviewed,
            shows_since: false,
            wants_split: false,
            comments: Vec::new(),
            typing: None,
            overlay: None,
            notice: String::new(),
            page: 0,
            columns: 0,
            heading: None,
            code: None,
            ended: "no review of it waits for an answer".to_owned(),
            is_warned: false,
            shown_at: None,
        }
    }

    /// Notes that the frame is on the screen.
    pub(crate) fn drawn(&mut self, now: Instant) {
        self.shown_at.get_or_insert(now);
    }

    /// Returns the review that an answer is for.
    pub(crate) fn request_id(&self) -> Option<&RequestId> {
        Some(&self.reviewed.request.as_ref()?.request_id)
    }

    /// Takes no answer from now on: the review has ended.
    pub(crate) fn end(&mut self, why: String) {
        self.reviewed.request = None;
        if matches!(self.typing, Some((Typing::Feedback { .. }, _))) {
            self.typing = None;
        }
        self.notice.clone_from(&why);
        self.ended = why;
    }

    /// Tells whether a text is typed.
    pub(crate) fn is_typing(&self) -> bool {
        self.typing.is_some()
    }

    /// Tells whether the person wants two sides, which need the whole screen.
    pub(crate) fn is_split(&self) -> bool {
        self.wants_split
    }

    /// Tells whether another frame has more to show, without any event.
    pub(crate) fn is_behind(&mut self) -> bool {
        self.side().colours.is_behind()
    }

    /// Returns lines for which the grammars are to be readied before [`ReviewScreen::colour`].
    pub(crate) fn samples(&self) -> Vec<Sample> {
        samples(&self.all.changes)
    }

    /// Shows the source in colours from now on.
    pub(crate) fn colour(&mut self) {
        self.all.colours.turn_on();
        if let Some(since) = &mut self.since {
            since.colours.turn_on();
        }
    }

    /// Returns what is on the screen.
    pub(super) fn side(&mut self) -> &mut ShownChanges {
        match (&mut self.since, self.shows_since) {
            (Some(since), true) => since,
            _ => &mut self.all,
        }
    }

    /// Has the rows laid out anew.
    pub(super) fn has_changed(&mut self) {
        let rest = self.side();
        if let Some(layout) = &mut rest.layout {
            // No shape is this one.
            layout.shape.room = 0;
        }
    }

    /// Adds a comment on a line.
    pub(super) fn comment(&mut self, at: LinePlace, text: &str) {
        let is_since = self.shows_since;
        self.comments
            .retain(|it| it.at != at || it.is_since != is_since);
        if !text.is_empty() {
            let file = &self.side().changes.files[at.file];
            let line = &file.hunks[at.hunk].lines[at.line];
            let LineComment {
                place,
                quoted,
                text,
            } = LineComment::on(file, line, text);
            self.comments.push(Comment {
                at,
                is_since,
                place,
                quoted,
                text,
            });
        }
        self.comments
            .sort_by_key(|it| (it.is_since, it.at.file, it.at.hunk, it.at.line));
        self.has_changed();
    }

    /// Returns what the author is told: the comments with their places, and what was typed.
    pub(super) fn feedback(&self, typed: &str) -> String {
        let comments = self.comments.iter().map(|it| LineComment {
            place: it.place.clone(),
            quoted: it.quoted.clone(),
            text: it.text.clone(),
        });
        feedback(typed, comments)
    }
}
