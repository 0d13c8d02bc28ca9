//! The keys, for people.

use super::app::{App, Pane, Purpose, Question};

/// All keys.
pub(super) const HELP: &str = "\
Everywhere
  1 2 3 4 5, Tab   Team, Requests, Tasks, Feed, Conversation
  j k ↑ ↓ g G      down, up, first, last; PgUp PgDn: a page
  /                show only what has a text in it; Esc shows all again
  q, Ctrl-C        leave: the team goes on without you

A request that waits for you (Team and Requests)
  a                approve it, once each line of it was on the screen;
                   until then: show the lines that were not
  A                approve it, with feedback
  r                reject it, and say why
  J K, space       scroll its text
  Enter            in Requests: its text alone, and again: the list

A teammate (Team and Conversation)
  Enter            its conversation
  s                send it a message
  i                interrupt what it does
  x                ask it to shut down; its answer is shown
  X                shut it down by force: signals end it
  d                all details
  n                spawn one: the first line as behind `teamctl spawn`,
                   below it the prompt (Alt-Enter begins a line)
  e                list those that have ended

Conversation
  o                show the results of tools whole
  k at the top     show what was earlier

Tasks
  Enter            details, and the output of the last check
  h l ← →          the next column
  a                add one: the first line is what is to be done
  t                try a failed or cancelled one again
  c                cancel it

Feed
  Enter            the whole text, with all steps of a request

▌ is where you are, ✉ counts unread messages, ⊘ is a closed gate: it may
only read until its plan is approved.
Text that you type ends with Enter; Alt-Enter begins another line, Esc
leaves it. A click selects, the wheel scrolls.
";

impl App {
    /// Returns the keys that are of use now, and what each does; what is not listed, the help
    /// tells.
    pub(super) fn all_hints(
        &self,
        fits: impl Fn(&[(&'static str, &'static str)]) -> bool,
    ) -> Vec<(&'static str, &'static str)> {
        let mut hints = self.hints().to_vec();
        if self.typing.is_none() && self.question.is_none() && self.overlay.is_none() {
            hints.extend([("⇥", "next pane"), ("?", "help"), ("q", "quit")]);
        }
        while !fits(&hints)
            && let Some(at) = hints.iter().rposition(|(key, _)| *key != "?")
        {
            hints.remove(at);
        }
        hints
    }

    /// Returns the keys that are of use now and not always, and what each does.
    fn hints(&self) -> &'static [(&'static str, &'static str)] {
        const PLAN: &[(&str, &str)] = &[
            ("a", "approve"),
            ("r", "reject"),
            ("J K", "scroll"),
            ("s", "send"),
            ("⏎", "open"),
        ];
        const REQUEST: &[(&str, &str)] = &[PLAN[0], PLAN[1], PLAN[2], ("⏎", "read")];
        const READING: &[(&str, &str)] = &[PLAN[0], PLAN[1], ("j k", "scroll"), ("Esc", "list")];
        const MEMBER: &[(&str, &str)] = &[
            ("⏎", "open"),
            ("s", "send"),
            ("i", "interrupt"),
            ("x", "shut down"),
            ("n", "spawn"),
        ];
        match (&self.typing, &self.question, &self.overlay, self.pane) {
            (Some((Purpose::Filter, _)), ..) => &[("⏎", "keep"), ("Esc", "show all")],
            (Some(_), ..) => &[
                ("⏎", "send"),
                ("Alt-⏎", "another line"),
                ("Esc", "leave it"),
            ],
            (_, Some(_), ..) => &[("y", "yes"), ("any other key", "no")],
            (_, _, Some(_), _) => &[("j k space", "scroll"), ("Esc", "back")],
            (.., Pane::Team) if self.showing.is_some() => PLAN,
            (.., Pane::Team) if self.members.selected().is_none() => &MEMBER[4..],
            (.., Pane::Team) => MEMBER,
            (.., Pane::Requests) if self.reads_request => READING,
            (.., Pane::Requests) if self.showing.is_some() => REQUEST,
            (.., Pane::Requests) => &[("⏎", "read"), ("J K", "scroll")],
            (.., Pane::Tasks) => &[
                ("⏎", "open"),
                ("a", "add"),
                ("t", "try again"),
                ("c", "cancel"),
                ("h l", "column"),
            ],
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

impl Question {
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

impl Purpose {
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
