//! The state of the view: what is selected, open and typed. Pure: it is changed by keys (see
//! `keys`) and by what is drawn.
//!
//! A key acts on what was on the screen when it was pressed: an answer is for the request whose
//! text was shown, and for no other one. A request is approved only when each line of it was on the
//! screen, and submitted work only where all of it is shown: in the review. For a moment after the screen shows another request no answer is taken: the person may
//! have meant the one before.

use ratatui::layout::{Position, Rect};
use ratatui_textarea::TextArea;
use teamd_client::args::TeamctlCommand;
use teamd_client::print::grouping::Group;
use teamd_shared::control::TaskOrder;
use teamd_shared::id::RequestId;
use teamd_shared::journal::Team;
use teamd_shared::name::Name;
use teamd_shared::request::Request;
use teamd_shared::task::TaskId;

use super::list::List;
use super::open_review::{OpenReview, PendingReview};
use super::request_text::RequestText;
use crate::codes::ShownCodes;
use crate::model::{Item, MemberRow, Past, by_status, matches, pending};
use crate::terminal::{Overlay, Pager};

/// A part of the view that has the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Pane {
    #[default]
    Team,
    Requests,
    Tasks,
    Feed,
    Conversation,
}

impl Pane {
    /// The panes in the order of their numbers.
    pub(super) const ALL: [Self; 5] = [
        Self::Team,
        Self::Requests,
        Self::Tasks,
        Self::Feed,
        Self::Conversation,
    ];
}

/// What the person wants done.
#[derive(Debug)]
pub(super) enum Wish {
    Quit,
    /// Stop, as Ctrl-Z does elsewhere.
    Suspend,
    Answer(Verdict),
    Send(Name, String),
    /// A command of `teamctl`.
    Call(Box<TeamctlCommand>),
    Task(TaskOrder),
    /// Show a task and the output of its check.
    ShowTask(TaskId),
    /// Read the work of a review.
    Review(RequestId),
    /// Answer a review that is open.
    AnswerReview {
        request_id: RequestId,
        approve: bool,
        feedback: String,
    },
    /// Show all steps of the selected item of the feed.
    ShowItem,
    /// Show more of the past of the conversation.
    ShowEarlier,
}

/// An answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Verdict {
    pub(super) request_id: RequestId,
    /// What is answered, for people: `plan 7b468522 of ana`.
    pub(super) what: String,
    pub(super) approve: bool,
    pub(super) feedback: String,
}

/// What a text that is typed is for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TypingPurpose {
    Filter,
    Send(Name),
    Feedback(Verdict),
    Spawn,
    AddTask,
}

/// What the person is asked before it is done.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Confirmation {
    Shutdown { name: Name, force: bool },
    Cancel(TaskId),
}

/// What a click can be for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ClickTarget {
    Pane(Pane),
    Member(Name),
    Request(RequestId),
    Task(TaskId),
    Item(u64),
}

/// What is listed in the panes, and what is selected there.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) members: List<Name>,
    pub(super) requests: List<RequestId>,
    pub(super) tasks: List<TaskId>,
    /// The tasks by their status.
    pub(super) columns: [Vec<TaskId>; 4],
    pub(super) items: List<u64>,
    /// Whether the feed stays where it is when something happens.
    pub(super) is_reading_back: bool,
}

/// The state.
#[derive(Debug, Default)]
pub(super) struct App {
    pub(super) pane: Pane,
    pub(super) lists: Lists,
    pub(super) reading: RequestText,
    /// The reviews that wait for an answer.
    pub(super) reviews: Vec<PendingReview>,
    /// The one that has the screen.
    pub(super) review: Option<OpenReview>,
    /// The codes that answers need.
    pub(super) codes: ShownCodes,
    pub(super) conversation: Option<(Name, Pager)>,
    /// What is selected in the tasks or the feed, where a large screen shows it beside the list.
    pub(super) detail: Pager,
    /// Whether the results of tools are shown whole.
    pub(super) unfolded: bool,
    /// Whether members that have ended are listed.
    pub(super) shows_ended: bool,
    pub(super) overlay: Option<Overlay>,
    pub(super) filter: String,
    pub(super) typing: Option<(TypingPurpose, TextArea<'static>)>,
    pub(super) question: Option<Confirmation>,
    /// What became of what was done last.
    pub(super) notice: String,
    pub(super) frame: DrawnFrame,
}

/// What the last frame shows.
#[derive(Debug, Default)]
pub(super) struct DrawnFrame {
    /// Where a click goes.
    pub(super) targets: Vec<(Rect, ClickTarget)>,
    /// The latest time of which the age is on the screen, in seconds since 1970.
    pub(super) youngest: Option<f64>,
}

impl App {
    /// Updates each list from the team, and applies the filter.
    pub(super) fn set(&mut self, rows: &[MemberRow<'_>], team: &Team, past: &Past, items: &[Item]) {
        let wanted = rows
            .iter()
            .filter(|row| {
                let is_listed = self.shows_ended || row.standing.group != Group::Ended;
                is_listed && (self.pane != Pane::Team || self.wants(row))
            })
            .map(|row| row.member.name.clone())
            .collect();
        self.reviews = PendingReview::all(team);
        if let Some(review) = &mut self.review {
            review.follow(team, &self.codes);
        }
        let requests = pending(team, &self.filter);
        self.leave_answered(rows, &requests);
        self.reading.is_alone &= !requests.is_empty();
        self.lists.members.set(wanted);
        self.lists.requests.set(
            requests
                .iter()
                .map(|request| request.request_id.clone())
                .collect(),
        );
        self.lists.columns = by_status(team, past, &self.filter);
        self.lists.tasks.set(self.lists.columns.concat());
        let items: Vec<u64> = items
            .iter()
            .filter(|item| fits(item, &self.filter))
            .map(|item| item.key)
            .collect();
        let last = items.last().copied();
        self.lists.items.set(items);
        if let Some(last) = last
            && !self.lists.is_reading_back
        {
            self.lists.items.select(&last);
        }
    }

    /// Tells whether a row has the filter in what a person sees of it.
    pub(super) fn wants(&self, row: &MemberRow<'_>) -> bool {
        let member = row.member;
        let standing = &row.standing;
        matches(
            &self.filter,
            &[
                member.name.as_str(),
                &member.role,
                standing.word,
                &standing.what,
            ],
        )
    }

    /// Once a request is answered, the next one that waits is selected.
    fn leave_answered(&mut self, rows: &[MemberRow<'_>], requests: &[&Request]) {
        if self
            .reading
            .answered
            .take_if(|id| !requests.iter().any(|request| request.request_id == *id))
            .is_some()
            && let Some(next) = rows.iter().find(|row| row.request.is_some())
        {
            self.lists.members.select(&next.member.name);
        }
    }

    /// Returns the place of the selected entry in its list, and how many there are.
    pub(super) fn place(&self) -> Option<(usize, usize)> {
        match self.pane {
            Pane::Team => self.lists.members.place(),
            Pane::Requests => self.lists.requests.place(),
            Pane::Tasks => self.lists.tasks.place(),
            Pane::Feed => self.lists.items.place(),
            Pane::Conversation => None,
        }
    }

    /// Returns the agent whose conversation is shown, or would be in that pane.
    pub(super) fn agent(&self) -> Option<&Name> {
        self.lists.members.selected()
    }

    /// Returns the agent whose conversation a large screen shows beside what is selected: the author
    /// of the request, or the owner of the task.
    pub(super) fn agent_of_selected(&self, team: &Team) -> Option<Name> {
        match self.pane {
            Pane::Team | Pane::Conversation => self.agent().cloned(),
            Pane::Requests => {
                let request = team.requests.get(self.lists.requests.selected()?)?;
                Name::new(request.member()).ok()
            }
            Pane::Tasks => {
                let task = team.tasks.get(self.lists.tasks.selected()?)?;
                task.owner.clone()
            }
            Pane::Feed => None,
        }
    }

    /// Opens a line, or several, to type into.
    pub(super) fn type_for(&mut self, purpose: TypingPurpose) {
        let before = if purpose == TypingPurpose::Filter {
            self.filter.as_str()
        } else {
            ""
        };
        let mut area = TextArea::new(vec![before.to_owned()]);
        area.move_cursor(ratatui_textarea::CursorMove::End);
        self.typing = Some((purpose, area));
    }

    /// Shows a text over the body.
    pub(super) fn open(&mut self, title: String, text: String) {
        self.overlay = Some(Overlay::new(title, text));
    }

    /// Finds what was clicked.
    pub(super) fn target(&self, column: u16, row: u16) -> Option<ClickTarget> {
        let at = Position::new(column, row);
        self.frame
            .targets
            .iter()
            .rev()
            .find(|(area, _)| area.contains(at))
            .map(|(_, target)| target.clone())
    }
}

/// Tells whether an item is wanted.
fn fits(item: &Item, filter: &str) -> bool {
    filter.is_empty()
        || item
            .steps
            .iter()
            .any(|step| matches(filter, &[&step.from, &step.to, &step.what, &step.text]))
}
