//! What the watched list shows, and what a key means. Pure: rows and keys in, lines and wishes out.
//!
//! A verdict is given on the request whose id was on the screen when the key was pressed, and a plan is approved only when all
//! of it was on the screen. For a moment after the screen shows another plan, a verdict is not taken: the person may have meant
//! the one before.

use std::time::{Duration, Instant};

use anstyle::Style;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use teamd_shared::config::Roster;
use teamd_shared::id::RequestId;
use teamd_shared::name::Name;
use teamd_shared::request::Payload;

use super::super::{Row, details, fold, table, total};
use crate::ctl::grouping::Group;
use crate::ctl::output::paint;
use crate::ctl::render::{BAD, BOLD, DIM};
use crate::ctl::table::{cut, width};
use crate::ctl::{escape, roster, tokens};

/// How long a row must have been selected, with the same content, before a verdict on it is taken.
const SETTLES: Duration = Duration::from_millis(300);
/// The longest feedback, in bytes.
const FEEDBACK: usize = 16 << 10;
/// Rows of the screen that the list does not get: the summary, what was said last, the keys.
const FRAME: usize = 3;

/// What the person wants done.
#[derive(Debug, PartialEq)]
pub(super) enum Wish {
    Quit,
    /// Stop, as Ctrl-Z does elsewhere.
    Suspend,
    Answer(Verdict),
}

/// An answer to a plan.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Verdict {
    pub(super) request_id: RequestId,
    pub(super) name: Name,
    pub(super) approve: bool,
    pub(super) feedback: String,
}

/// The selected row, as far as a verdict depends on it.
#[derive(Debug, Clone, PartialEq)]
struct Selected {
    name: Name,
    word: &'static str,
    plan: Option<RequestId>,
}

#[derive(Debug, Default)]
enum Mode {
    #[default]
    List,
    /// The selected member in full, from this line on.
    Details(usize),
    /// The person types why a plan is rejected.
    Feedback(Verdict),
}

/// The state of the view.
#[derive(Debug, Default)]
pub(super) struct View {
    mode: Mode,
    /// What the next frame shows as selected, and what the last one showed, since when.
    selected: Option<Selected>,
    shown: Option<(Selected, Instant)>,
    /// The names in the order of the screen.
    names: Vec<Name>,
    /// The first line of the list that is on the screen.
    top: usize,
    /// The plan that was answered last: the selection leaves its teammate.
    answered: Option<RequestId>,
    /// The plan that was on the screen to its end.
    read: Option<RequestId>,
    /// How many lines the details have on the screen.
    page: usize,
    said: String,
}

impl View {
    /// Composes the lines of a screen of this size, in columns and rows.
    pub(super) fn frame(
        &mut self,
        rows: &[Row<'_>],
        roster: &Roster,
        (columns, height): (usize, usize),
    ) -> Vec<String> {
        let (rows, ended) = rows.split_at(rows.partition_point(|row| row.standing.group != Group::Ended));
        let chosen = self.choose(rows);
        self.names = rows.iter().map(|row| row.member.name.clone()).collect();
        let room = height.saturating_sub(FRAME).max(1);
        let mut lines = vec![summary(rows, ended.len(), roster, columns)];
        match (chosen, &mut self.mode) {
            (Some(chosen), Mode::Details(from)) => {
                let (all, plan_ends) = in_full(&rows[chosen], columns);
                *from = (*from).min(all.len().saturating_sub(room));
                self.page = room;
                if *from + room >= plan_ends {
                    self.read = rows[chosen].plan.map(|plan| plan.request_id.clone());
                }
                lines.extend(all.into_iter().skip(*from).take(room));
            }
            _ => {
                let (all, at) = list(rows, ended, chosen, columns);
                self.top = self.top.min(at).max((at + 1).saturating_sub(room));
                // The headings above the first row belong to it.
                self.top = if at <= 2 { 0 } else { self.top };
                lines.extend(all.into_iter().skip(self.top).take(room));
            }
        }
        lines.resize(room + 1, String::new());
        lines.push(match &self.mode {
            Mode::Feedback(verdict) => prompt(verdict, columns),
            _ => cut(&escape::line(&self.said), Some(columns)),
        });
        lines.push(paint(DIM, cut(&self.keys(), Some(columns))));
        lines
    }

    /// Finds the row of the teammate that is selected, or the row in its place. Once its plan is answered, the next plan is
    /// selected.
    fn choose(&mut self, rows: &[Row<'_>]) -> Option<usize> {
        let plan = |row: &Row<'_>| row.plan.map(|plan| plan.request_id.clone());
        let is = |row: &Row<'_>| self.selected.as_ref().is_some_and(|it| it.name == row.member.name);
        let answered = self.answered.take_if(|id| !rows.iter().any(|row| plan(row).as_ref() == Some(id)));
        let next = answered.and_then(|_| rows.iter().position(|row| row.plan.is_some()));
        let before =
            self.selected.as_ref().and_then(|it| self.names.iter().position(|name| *name == it.name));
        let at =
            next.or_else(|| rows.iter().position(is)).or(before).unwrap_or(0).min(rows.len().checked_sub(1)?);
        let row = &rows[at];
        self.selected =
            Some(Selected { name: row.member.name.clone(), word: row.standing.word, plan: plan(row) });
        Some(at)
    }

    fn keys(&self) -> String {
        let plan = self.selected.as_ref().and_then(|selected| selected.plan.as_ref());
        let keys = match (&self.mode, plan) {
            (Mode::List, Some(_)) => "a show and approve  r reject  ⏎ details  ↑↓ select  q quit",
            (Mode::List, None) => "⏎ details  ↑↓ select  q quit",
            (Mode::Details(_), Some(id)) => {
                return format!("a approve {id}  r reject  ↑↓ scroll  ⏎ back  q quit");
            }
            (Mode::Details(_), None) => "↑↓ scroll  ⏎ back  q quit",
            (Mode::Feedback(_), _) => "⏎ reject with this feedback  Esc cancel",
        };
        keys.to_owned()
    }

    /// Notes that the frame is on the screen.
    pub(super) fn drawn(&mut self, now: Instant) {
        let same = self.shown.as_ref().map(|(shown, _)| shown) == self.selected.as_ref();
        if !same {
            self.shown = self.selected.clone().map(|selected| (selected, now));
        }
    }

    /// Returns whose details are shown.
    pub(super) fn details_of(&self) -> Option<&Name> {
        self.selected.as_ref().filter(|_| matches!(self.mode, Mode::Details(_))).map(|it| &it.name)
    }

    /// Shows what became of an answer.
    pub(super) fn say(&mut self, said: String) {
        self.said = said;
    }

    /// Takes text that was pasted: it is feedback, and never a key.
    pub(super) fn paste(&mut self, text: &str) {
        if let Mode::Feedback(verdict) = &mut self.mode {
            add(&mut verdict.feedback, &text.replace(['\r', '\n'], " "));
        }
    }

    /// Takes a key.
    pub(super) fn key(&mut self, key: KeyEvent, now: Instant) -> Option<Wish> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Some(Wish::Quit),
                KeyCode::Char('z') => Some(Wish::Suspend),
                _ => None,
            };
        }
        if let Mode::Feedback(verdict) = &mut self.mode {
            match key.code {
                KeyCode::Char(c) => add(&mut verdict.feedback, c.encode_utf8(&mut [0; 4])),
                KeyCode::Backspace => drop(verdict.feedback.pop()),
                KeyCode::Esc => self.mode = Mode::List,
                KeyCode::Enter => {
                    let verdict = verdict.clone();
                    return Some(self.answer(verdict));
                }
                _ => {}
            }
            return None;
        }
        self.said.clear();
        match (key.code, &mut self.mode) {
            (KeyCode::Char('q'), _) => return Some(Wish::Quit),
            (KeyCode::Char('a'), _) => return self.approve(now),
            (KeyCode::Char('r'), _) => {
                if let Some(verdict) = self.verdict(false, now) {
                    self.mode = Mode::Feedback(verdict);
                }
            }
            (KeyCode::Enter, Mode::List) => self.open(),
            (KeyCode::Enter | KeyCode::Esc, _) => self.mode = Mode::List,
            (KeyCode::Down | KeyCode::Char('j'), Mode::Details(from)) => *from += 1,
            (KeyCode::Up | KeyCode::Char('k'), Mode::Details(from)) => *from = from.saturating_sub(1),
            (KeyCode::PageDown | KeyCode::Char(' '), Mode::Details(from)) => *from += self.page,
            (KeyCode::PageUp, Mode::Details(from)) => *from = from.saturating_sub(self.page),
            (KeyCode::Down | KeyCode::Char('j'), _) => self.select(1),
            (KeyCode::Up | KeyCode::Char('k'), _) => self.select(-1),
            _ => {}
        }
        None
    }

    /// Shows the details, which must settle before a verdict is taken.
    fn open(&mut self) {
        self.mode = Mode::Details(0);
        (self.shown, self.read) = (None, None);
    }

    /// Approves the plan that is on the screen, or else shows more of it.
    fn approve(&mut self, now: Instant) -> Option<Wish> {
        let verdict = self.verdict(true, now)?;
        let is_read = self.read.as_ref() == Some(&verdict.request_id);
        match &mut self.mode {
            Mode::Details(_) if is_read => return Some(self.answer(verdict)),
            Mode::Details(from) => {
                *from += self.page;
                self.said = "nothing was answered: the plan goes on here".to_owned();
            }
            _ => self.open(),
        }
        None
    }

    fn answer(&mut self, verdict: Verdict) -> Wish {
        self.mode = Mode::List;
        self.answered = Some(verdict.request_id.clone());
        Wish::Answer(verdict)
    }

    fn select(&mut self, by: isize) {
        let Some(selected) = &mut self.selected else { return };
        let at = self.names.iter().position(|name| *name == selected.name).unwrap_or(0);
        let next = at.saturating_add_signed(by).min(self.names.len().saturating_sub(1));
        if let Some(name) = self.names.get(next) {
            selected.name = name.clone();
        }
    }

    /// Returns the verdict on the plan that was on the screen.
    fn verdict(&mut self, approve: bool, now: Instant) -> Option<Verdict> {
        let (shown, since) = self.shown.as_ref()?;
        let Some(request_id) = shown.plan.clone() else {
            self.said = format!("{} has no plan that waits for an answer", shown.name);
            return None;
        };
        if now.duration_since(*since) < SETTLES {
            self.said = "nothing was answered: this row has just changed, look again".to_owned();
            return None;
        }
        Some(Verdict { request_id, name: shown.name.clone(), approve, feedback: String::new() })
    }
}

fn add(feedback: &mut String, text: &str) {
    if feedback.len() + text.len() <= FEEDBACK {
        feedback.push_str(text);
    }
}

/// Shows the end of what is typed: the cursor is there.
fn prompt(verdict: &Verdict, columns: usize) -> String {
    let (id, name) = (&verdict.request_id, &verdict.name);
    let labels = [format!("reject {id} of {name}, because: "), format!("reject {id}: ")];
    let [long, short] = labels;
    let label = if width(&long) > columns / 2 { short } else { long };
    let room = columns.saturating_sub(width(&label) + 1);
    let typed = escape::line(&verdict.feedback).into_owned();
    let from = typed.char_indices().map(|(at, _)| at).find(|&at| width(&typed[at..]) <= room);
    format!("{}{}█", paint(BOLD, label), &typed[from.unwrap_or(typed.len())..])
}

/// Says in one line how the team stands.
fn summary(rows: &[Row<'_>], ended: usize, roster: &Roster, columns: usize) -> String {
    let count = |group| rows.iter().filter(|row| row.standing.group == group).count();
    let (live, style) = match roster::daemon_pid(roster) {
        Some(_) => ("live", DIM),
        None => ("NO DAEMON", BAD),
    };
    let (mut line, mut taken) = (String::new(), width(live) + 2);
    let spent = total(roster);
    let spent = (!spent.is_nothing()).then(|| tokens::count(spent.input() + spent.output_tokens) + " tokens");
    let parts = [
        (count(Group::NeedsYou), "need you", Group::NeedsYou),
        (count(Group::Stuck), "stuck", Group::Stuck),
        (count(Group::Working), "working", Group::Working),
        (count(Group::Idle), "idle", Group::Idle),
        (ended, "ended", Group::Ended),
    ]
    .map(|(count, what, group)| (format!("{count} {what}"), if count == 0 { DIM } else { group.style() }));
    for (part, style) in parts.into_iter().chain(spent.map(|spent| (spent, Style::new()))) {
        taken += width(&part) + 2;
        if taken <= columns {
            line.push_str(&format!("{}  ", paint(style, part)));
        }
    }
    format!("{line}{}", paint(style, live))
}

/// Lays out the list; also returns the line of the selected row.
fn list(rows: &[Row<'_>], ended: &[Row<'_>], chosen: Option<usize>, columns: usize) -> (Vec<String>, usize) {
    let columns = columns.saturating_sub(2);
    let (mut lines, mut at) = (Vec::new(), 0);
    if rows.is_empty() {
        lines.push(paint(DIM, "no teammate to show"));
    } else {
        // One line each: the details have the rest.
        let drawn = table::fitting(rows, columns, false).cut_lines(columns);
        let mut row = 0;
        for (number, (line, is_heading)) in drawn.into_iter().enumerate() {
            let is_row = number > 0 && !is_heading;
            if is_row && chosen == Some(row) {
                at = lines.len();
                lines.push(format!("{}{line}", paint(BOLD, "> ")));
            } else {
                lines.push(format!("  {line}"));
            }
            row += usize::from(is_row);
        }
    }
    lines.extend((!ended.is_empty()).then(|| format!("  {}", fold(ended, columns).trim_end())));
    (lines, at)
}

/// Shows a member, with the whole of its plan above the rest; also returns how many lines the plan takes.
fn in_full(row: &Row<'_>, columns: usize) -> (Vec<String>, usize) {
    let mut lines = Vec::new();
    if let Some((id, Payload::Plan { plan })) = row.plan.map(|plan| (&plan.request_id, &plan.payload)) {
        let count = plan.lines().count();
        let heading = format!("{id}  plan of {}, {count} lines:", row.member.name);
        lines = wrapped(&format!("{}\n{}\n\n", paint(BOLD, heading), escape::text(plan)), columns);
    }
    let plan_ends = lines.len();
    lines.extend(wrapped(&details::details(row), columns));
    (lines, plan_ends)
}

fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let text = text.replace('\t', "    ");
    let wrap = |line: &str| -> Vec<String> {
        let indent = " ".repeat((line.len() - line.trim_start().len()).min(columns / 2));
        let options = textwrap::Options::new(columns.max(8)).subsequent_indent(&indent);
        textwrap::wrap(line, options).into_iter().map(std::borrow::Cow::into_owned).collect()
    };
    text.lines().flat_map(wrap).collect()
}

#[cfg(test)]
mod tests;
