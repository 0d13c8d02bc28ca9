//! The keys, for people.

use ratatui::text::Line;

use super::app::{App, Pane, Purpose, Question};
use super::text::row;
use crate::chat::commands;
use teamd_client::print::output::paint;
use teamd_client::print::render::{BOLD, DIM};
use teamd_client::print::table::width;

/// The keys of the panes.
const PANES: &str = "\
Everywhere
  1 2 3 4 5, Tab   Team, Requests, Tasks, Feed, Conversation
  j k ↑ ↓ g G      down, up, first, last; PgUp PgDn: a page
  /                show only what has a text in it; Esc shows all again
  q, Ctrl-C        leave: the team goes on without you
  ?, Ctrl-G        this list

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
only read until its plan is approved. A click selects, the wheel scrolls.
";

/// The keys of what is typed, and those of a chat.
const TYPING: &str = "\
Text that you type (also in `teamctl chat` and `attach`)
  Enter            send it; Alt-Enter, Ctrl-J: another line
  Esc              leave it; in the chat: interrupt the turn, keep it
  Ctrl-A E B F     start and end of a line, a character back and on
  Alt-B, Alt-F     a word back and on; also Ctrl-← and Ctrl-→
  Ctrl-W U K       delete a word, what is before, what is behind
  Ctrl-Y, Ctrl-/   insert what was deleted, undo

`teamctl chat` and `attach`
  Esc, Ctrl-C      interrupt the turn, or put a question off
  Ctrl-C twice     leave, if nothing is typed and no turn is running;
                   also Ctrl-D
  Up, Down         earlier lines, also Ctrl-P and Ctrl-N; Ctrl-R finds one
  Tab              complete commands, names, ids, paths
  PgUp, PgDn       scroll, above the first line to what was said earlier;
                   Ctrl-Home, Ctrl-End: first and last line
  Ctrl-O           show the results of tools whole
  Ctrl-L           clear the screen
  Ctrl-G           this list; Ctrl-Z stops the program
A plan is approved once each line of it was on the screen, as above:
until then, y shows the lines that were not. v shows the plan alone.
";

/// What the help is opened from: that comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HelpOf {
    Panes,
    Chat,
}

/// Returns all keys, and the commands of the chat.
pub(crate) fn help_text(of: HelpOf) -> String {
    let typing = format!("{TYPING}\n{}", commands::help(usize::MAX));
    match of {
        HelpOf::Panes => format!("{PANES}\n{typing}"),
        HelpOf::Chat => format!("{typing}\n{PANES}"),
    }
}

/// A key, and what it does.
pub(crate) type Hint = (&'static str, &'static str);

/// What the key does that lists all keys.
pub(crate) const HELP_HINT: &str = "help";

/// Lists keys in one row of so many columns. What has no room there, the help has.
pub(crate) fn keys_row(mut hints: Vec<Hint>, columns: usize) -> Line<'static> {
    let wide = |(key, what): &Hint| width(key) + width(what) + 3;
    while hints.iter().map(wide).sum::<usize>() > columns + 1
        && let Some(at) = hints.iter().rposition(|(_, what)| *what != HELP_HINT)
    {
        hints.remove(at);
    }
    let shown = hints
        .into_iter()
        .map(|(key, what)| format!(" {} {} ", paint(BOLD, key), paint(DIM, what)));
    row(&shown.collect::<String>())
}

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
        const READING: &[Hint] = &[PLAN[0], PLAN[1], ("j k", "scroll"), ("Esc", "list")];
        const MEMBER: &[Hint] = &[
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
