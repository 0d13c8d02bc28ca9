//! The help: all keys, and the commands of the chat.

use super::slash::list_commands;

/// The keys of the panes.
const PANES: &str = "\
Everywhere
  1 2 3 4 5, Tab   Team, Requests, Tasks, Feed, Conversation
  j k ↑ ↓ g G      down, up, first, last; PgUp PgDn: a page
  /                show only what has a text in it; Esc shows all again
  q, Ctrl-C        leave: the team continues without you
  ?, Ctrl-G        this list

A request that waits for you (Team and Requests)
  a                approve it, once each line of it was on the screen;
                   until then: show the lines that were not
  A                approve it, with feedback
  r                reject it, and say why
  J K, space       scroll its text
  Enter            in Requests: its text alone, and again: the list

Submitted work (also on its task and its author)
  Enter, a         the review: the whole diff; its ? lists its keys. Work
                   is approved only there

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
  [ ]              the teammate before, and the next one

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
  Ctrl-A E B F     start and end of a line, a character back and forward
  Alt-B, Alt-F     a word back and forward; also Ctrl-← and Ctrl-→
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
    let typing = format!("{TYPING}\n{}", list_commands(usize::MAX));
    match of {
        HelpOf::Panes => format!("{PANES}\n{typing}"),
        HelpOf::Chat => format!("{typing}\n{PANES}"),
    }
}
