//! The keys that are of use now, and the questions, for people.

use super::app::{App, Confirmation, Pane, TypingPurpose};
use crate::terminal::{HELP_HINT, Hint};

impl App {
    /// Returns the keys that are of use now, and what each does.
    pub(super) fn all_hints(&self) -> Vec<Hint> {
        let mut hints = self.hints().to_vec();
        if self.typing.is_none() && self.question.is_none() && self.overlay.is_none() {
            hints.extend([("⇥", "next pane"), ("?", HELP_HINT), ("q", "quit")]);
        }
        hints
    }

    /// Returns the keys that are of use now and not always, and what each does.
    fn hints(&self) -> &'static [Hint] {
        const PLAN: &[Hint] = &[
            ("a", "approve"),
            ("r", "reject"),
            ("J K", "scroll"),
            ("s", "send"),
            ("⏎", "open"),
        ];
        const REQUEST: &[Hint] = &[PLAN[0], PLAN[1], PLAN[2], ("⏎", "read")];
        const REVIEW: &[Hint] = &[("⏎", "review"), PLAN[1], PLAN[2]];
        const AUTHOR: &[Hint] = &[REVIEW[0], ("l", "conversation"), ("s", "send")];
        const READING: &[Hint] = &[PLAN[0], PLAN[1], ("j k", "scroll"), ("Esc", "list")];
        const TASK: &[Hint] = &[
            ("⏎", "open"),
            ("a", "add"),
            ("t", "try again"),
            ("c", "cancel"),
            ("h l", "column"),
        ];
        const SUBMITTED: &[Hint] = &[REVIEW[0], TASK[1], TASK[3], TASK[4]];
        const MEMBER: &[Hint] = &[
            ("⏎", "open"),
            ("s", "send"),
            ("i", "interrupt"),
            ("x", "shut down"),
            ("n", "spawn"),
        ];
        match (&self.typing, &self.question, &self.overlay, self.pane) {
            (Some((TypingPurpose::Filter, _)), ..) => &[("⏎", "keep"), ("Esc", "show all")],
            (Some(_), ..) => &[
                ("⏎", "send"),
                ("Alt-⏎", "another line"),
                ("Esc", "leave it"),
            ],
            (_, Some(_), ..) => &[("y", "yes"), ("any other key", "no")],
            (_, _, Some(_), _) => &[("j k space", "scroll"), ("Esc", "back")],
            (.., Pane::Team) if self.review_at_hand().is_some() => AUTHOR,
            (.., Pane::Requests) if self.review_at_hand().is_some() => REVIEW,
            (.., Pane::Team) if self.reading.drawing.is_some() => PLAN,
            (.., Pane::Team) if self.lists.members.selected().is_none() => &MEMBER[4..],
            (.., Pane::Team) => MEMBER,
            (.., Pane::Requests) if self.reading.is_alone => READING,
            (.., Pane::Requests) if self.reading.drawing.is_some() => REQUEST,
            (.., Pane::Requests) => &[("⏎", "read"), ("J K", "scroll")],
            (.., Pane::Tasks) if self.review_at_hand().is_some() => SUBMITTED,
            (.., Pane::Tasks) => TASK,
            (.., Pane::Feed) => &[("⏎", "open"), ("/", "filter"), ("G", "follow")],
            (.., Pane::Conversation) => &[
                ("⏎", "send"),
                ("i", "interrupt"),
                ("o", "unfold"),
                ("x", "shut down"),
                ("Esc", "team"),
            ],
        }
    }
}

impl Confirmation {
    /// Puts it to the person.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Shutdown { name, force: false } => format!("Ask {name} to shut down?"),
            Self::Shutdown { name, force: true } => {
                format!(
                    "Shut {name} down by force, whatever it says? Signals end it after 10 seconds."
                )
            }
            Self::Cancel(id) => format!("Cancel task {id}?"),
        }
    }
}

impl TypingPurpose {
    /// Says what is typed.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Filter => "show only".to_owned(),
            Self::Send(name) => format!("message to {name}"),
            Self::Feedback(verdict) if verdict.approve => {
                format!("approve {}, with feedback", verdict.what)
            }
            Self::Feedback(verdict) => format!("reject {}, because", verdict.what),
            Self::Spawn => "spawn: NAME and options, below them the prompt".to_owned(),
            Self::AddTask => "add a task: what is to be done, below it the description".to_owned(),
        }
    }
}
