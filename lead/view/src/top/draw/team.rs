//! The members, those first that need a person; beside them what the selected one asks or does.

use anstyle::Style;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use teamd_client::print::grouping::Group;
use teamd_client::print::render::{BOLD, DIM};
use teamd_client::print::style::paint;
use teamd_client::print::table::{cut, width};
use teamd_client::print::tokens;
use teamd_shared::amount::format_size;
use teamd_shared::member::Gate;
use teamd_shared::price::Dollars;

use super::{TopScene, WIDE, beside, glyph, mark, say};
use crate::model::{MemberRow, SLOTS, Side};
use crate::terminal::{cell, headed, row, rule, title};
use crate::top::app::{App, ClickTarget};

/// The heights of the bars of a sparkline.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The most columns that a name has in a narrow and in a wide list.
const NAME: (usize, usize) = (14, 20);
/// How many ports that a member serves have room before what it does.
const PORTS: usize = 3;

/// A line of the list.
enum ListLine {
    Heading(Group, usize),
    /// The row with this number.
    Row(usize),
    /// The members that have ended, in one line.
    Folded(String),
}

impl App {
    pub(super) fn team(&mut self, frame: &mut Frame<'_>, scene: &mut TopScene<'_>, area: Rect) {
        let lines = self.lines(&scene.rows);
        if lines.is_empty() {
            let text = if self.filter.is_empty() {
                "There is no teammate yet: n spawns one."
            } else {
                "No teammate has that in its name, role or work: Esc shows all."
            };
            return say(frame, area, text);
        }
        let [mut list, text] = beside(area, lines.len());
        if area.width >= WIDE {
            // The list takes what it needs, the feed the rest of its column.
            let height = u16::try_from(lines.len())
                .unwrap_or(u16::MAX)
                .min(list.height * 2 / 3);
            let [above, heading, below] = Layout::vertical([
                Constraint::Length(height),
                Constraint::Length(1),
                Constraint::Min(0),
            ])
            .areas(list);
            list = above;
            rule(frame, heading, "feed", "");
            let targets = self.frame.targets.len();
            self.feed(frame, scene, below);
            self.frame.targets.truncate(targets);
        }
        self.list(frame, scene, &lines, list);
        let selected = self.lists.members.selected();
        let Some(row) = scene
            .rows
            .iter()
            .find(|row| Some(&row.member.name) == selected)
        else {
            return;
        };
        if let Some(request) = row.request {
            return self.request_text(frame, text, request);
        }
        let [heading, rest] = headed(text);
        rule(frame, heading, &title(row), "");
        if let Some(conversation) = scene
            .seen
            .conversation
            .filter(|it| it.name == row.member.name)
        {
            self.end_of_conversation(frame, conversation, rest);
        }
    }

    fn lines(&self, rows: &[MemberRow<'_>]) -> Vec<ListLine> {
        let wanted: Vec<usize> = (0..rows.len())
            .filter(|at| self.wants(&rows[*at]))
            .collect();
        let mut lines = Vec::new();
        for members in wanted.chunk_by(|a, b| rows[*a].standing.group == rows[*b].standing.group) {
            let group = rows[members[0]].standing.group;
            let count = members.len();
            if group == Group::Ended && !self.shows_ended {
                let names = members
                    .iter()
                    .take(9)
                    .map(|at| rows[*at].member.name.as_str());
                let names = names.collect::<Vec<_>>().join(", ");
                lines.push(ListLine::Folded(format!(
                    "· {} {count}: {names}",
                    group.title()
                )));
            } else {
                lines.push(ListLine::Heading(group, count));
                lines.extend(members.iter().map(|at| ListLine::Row(*at)));
            }
        }
        lines
    }

    /// Draws the members beside something else.
    pub(super) fn members(&mut self, frame: &mut Frame<'_>, scene: &mut TopScene<'_>, area: Rect) {
        let lines = self.lines(&scene.rows);
        self.list(frame, scene, &lines, area);
    }

    fn list(
        &mut self,
        frame: &mut Frame<'_>,
        scene: &mut TopScene<'_>,
        lines: &[ListLine],
        area: Rect,
    ) {
        let wide = area.width > 100;
        let room = usize::from(area.height);
        let is_selected =
            |at: usize| Some(&scene.rows[at].member.name) == self.lists.members.selected();
        let at = lines
            .iter()
            .position(|line| matches!(line, ListLine::Row(at) if is_selected(*at)))
            .unwrap_or(0);
        let top = self.lists.members.scroll(at, lines.len(), room);
        let widest = scene
            .rows
            .iter()
            .map(|row| width(row.member.name.as_str()))
            .max()
            .unwrap_or(0);
        let name = widest.min(if wide { NAME.1 } else { NAME.0 });
        let has_usage = scene
            .seen
            .roster
            .members
            .iter()
            .any(|member| !member.usage.is_nothing());
        for (y, line) in (area.y..area.bottom()).zip(&lines[top..]) {
            let place = Rect {
                y,
                height: 1,
                ..area
            };
            let columns = usize::from(area.width);
            let text = match line {
                ListLine::Heading(group, count) => {
                    let titles = if wide && y == area.y {
                        titles(has_usage)
                    } else {
                        String::new()
                    };
                    heading(*group, *count, columns, &titles)
                }
                ListLine::Folded(names) => paint(
                    DIM,
                    cut(&format!(" {names}  (e shows them)"), Some(columns)),
                ),
                ListLine::Row(at) => {
                    let row = &scene.rows[*at];
                    self.frame
                        .targets
                        .push((place, ClickTarget::Member(row.member.name.clone())));
                    let age = self.age(row.standing.since, scene.now);
                    let (side, memory) = (scene.look)(row.member, wide);
                    let selected = self.lists.members.selected() == Some(&row.member.name);
                    let front = front(row, &age, (selected, name));
                    let right = if wide {
                        facts(row, &side, memory, has_usage.then_some(scene.now))
                    } else {
                        unread_alone(&side)
                    };
                    let room = columns.saturating_sub(width(&front) + width(&right));
                    let what = serves(&side) + &what(row);
                    format!(
                        "{front}{}{right}",
                        cell(what_style(row, selected), what, room)
                    )
                }
            };
            frame.render_widget(row(&text), place);
        }
    }
}

fn heading(group: Group, count: usize, columns: usize, titles: &str) -> String {
    let title = format!(" {} {} {count} ", glyph(group), group.title());
    let dashes = "─".repeat(columns.saturating_sub(width(&title) + width(titles)));
    format!(
        "{}{}",
        paint(group.style().bold(), title),
        paint(DIM, dashes + titles)
    )
}

/// Writes the titles of the columns at the right end, as [`facts`] fills them.
fn titles(has_usage: bool) -> String {
    let usage = format!(" {:>6} {:>6} {:<SLOTS$}", "tokens", "cost", "last 8 min");
    format!(
        " {:<10} {:<5}   {:>6}{}",
        "role",
        "mail",
        "memory",
        if has_usage { &usage } else { "" }
    )
}

fn front(row: &MemberRow<'_>, age: &str, (selected, name): (bool, usize)) -> String {
    let group = row.standing.group;
    let style = if selected { BOLD } else { Style::new() };
    let name = cell(style, &row.member.name, name);
    let word = cell(group.style(), row.standing.word, 8);
    format!(
        "{} {name} {word} {}  ",
        mark(selected),
        paint(DIM, format_args!("{age:>4}"))
    )
}

fn what(row: &MemberRow<'_>) -> String {
    match row.member.restarts {
        restarts if restarts > 0 && row.standing.group == Group::Working => {
            format!("restarted {restarts}×; {}", row.what())
        }
        _ => row.what().to_owned(),
    }
}

/// Writes what a member serves on a localhost of its own, before what it does.
fn serves(side: &Side) -> String {
    let ports = side.serves.iter().take(PORTS);
    let mut all: Vec<_> = ports.map(|port| format!(":{port}")).collect();
    if side.serves.len() > PORTS {
        all.push("…".to_owned());
    }
    if all.is_empty() {
        return String::new();
    }
    all.join(" ") + "  "
}

fn what_style(row: &MemberRow<'_>, selected: bool) -> Style {
    match row.standing.group {
        Group::Idle | Group::Ended => DIM,
        _ if selected => BOLD,
        _ => Style::new(),
    }
}

fn unread(side: &Side) -> String {
    match side.unread {
        Some(0) => String::new(),
        Some(unread) => format!("✉{}", tokens::count(unread)),
        None => "✉?".to_owned(),
    }
}

/// Writes what is unread where nothing else stands at the right end: nothing takes no room.
fn unread_alone(side: &Side) -> String {
    let unread = unread(side);
    if unread.is_empty() {
        return unread;
    }
    format!(" {}", paint(BOLD, unread))
}

/// Writes what stands at the right end where there is room; where tokens were used, how many and
/// when.
fn facts(row: &MemberRow<'_>, side: &Side, memory: Option<u64>, now: Option<f64>) -> String {
    let member = row.member;
    let spent = match member.usage.is_nothing() {
        true => String::new(),
        false => tokens::all(&member.usage),
    };
    let cost = row
        .cost
        .filter(|cost| *cost > Dollars::default())
        .map(|cost| cost.to_string());
    let cost = cost.unwrap_or_default();
    let memory = memory.map(format_size).unwrap_or_default();
    let usage = now.map(|now| {
        let bars = cell(Group::Working.style(), sparkline(side.spent(now)), SLOTS);
        format!(
            " {} {} {bars}",
            cell(DIM, format_args!("{spent:>6}"), 6),
            cell(DIM, format_args!("{cost:>6}"), 6)
        )
    });
    format!(
        " {} {} {} {}{}",
        cell(DIM, &member.role, 10),
        cell(BOLD, unread(side), 5),
        if member.gate == Gate::Closed {
            paint(Group::NeedsYou.style(), "⊘")
        } else {
            " ".to_owned()
        },
        cell(DIM, format_args!("{memory:>6}"), 6),
        usage.unwrap_or_default()
    )
}

/// Shows tokens as bars, by their order of magnitude: a long prompt must not hide an answer.
fn sparkline(slots: [u64; SLOTS]) -> String {
    slots
        .map(|tokens| match tokens {
            0 => ' ',
            tokens => {
                BARS[usize::try_from(tokens.ilog2() / 2)
                    .unwrap_or(0)
                    .min(BARS.len() - 1)]
            }
        })
        .into_iter()
        .collect()
}
