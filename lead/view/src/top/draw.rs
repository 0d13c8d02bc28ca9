//! The state and the team as cells of a screen. It reads no file: what it needs is in the
//! [`TopScene`].

mod conversation;
mod feed;
mod requests;
mod tasks;
mod team;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span, Text};
use teamd_client::print::grouping::Group;
use teamd_client::print::render::{BAD, BOLD, DIM};
use teamd_client::print::style::paint;
use teamd_client::print::table::{cut, width};
use teamd_client::print::{clock, escape, tokens};
use teamd_shared::config::RosterMember;
use teamd_shared::price::Dollars;
use teamd_shared::task::TaskId;
use teamd_shared::transcript::Usage;

use super::app::{App, ClickTarget, Pane};
use crate::model::{MemberRow, SeenTeam, Side, pending};
use crate::terminal::{TypedRows, headed, inset, keys_row, row, rule, wrapped};

/// From so many columns on, lists and texts stand side by side.
const WIDE: u16 = 120;
/// From so many columns on, a list has room beside the text of what is selected in it.
pub(super) const LARGE: u16 = 140;
/// From so many lines on, there is room for one more pane below.
const HIGH: u16 = 40;
/// Below so many lines there is no room for a text below a list, nor for the heading of a text.
const LOW: u16 = 4;
/// The most lines that are shown of what was done last.
const NOTICE: usize = 4;
/// The most lines that a text which is typed has on the screen.
const TYPED: usize = 8;

/// What a frame shows.
pub(super) struct TopScene<'s> {
    pub(super) rows: Vec<MemberRow<'s>>,
    pub(super) seen: SeenTeam<'s, 's>,
    pub(super) has_daemon: bool,
    /// Seconds since 1970.
    pub(super) now: f64,
    /// Looks at a member that is on the screen: its files, and, closely, how many bytes of memory
    /// its processes use.
    pub(super) look: &'s mut Look<'s>,
    /// Writes a task and the output of its last check.
    pub(super) write_task: &'s dyn Fn(TaskId) -> String,
}

type Look<'l> = dyn FnMut(&RosterMember, bool) -> (Side, Option<u64>) + 'l;

impl App {
    /// Draws everything.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, scene: &mut TopScene<'_>) {
        self.frame.targets.clear();
        self.reading.drawing = None;
        self.frame.youngest = None;
        if self.review.is_some() {
            return self.draw_review(frame, scene);
        }
        let area = frame.area();
        let notice = self.notice_lines(scene, area.width.into());
        let columns = usize::from(area.width);
        let typing = self
            .typing
            .as_ref()
            .map(|(purpose, text)| (purpose.title(), TypedRows::of(" ", text, columns)));
        let typed = typing
            .as_ref()
            .map_or(0, |(_, rows)| rows.count().min(TYPED) + 1);
        let heights = [1, 1, 0, notice.len(), typed, 1];
        let heights =
            heights.map(|height| Constraint::Length(u16::try_from(height).unwrap_or(u16::MAX)));
        let heights = [
            heights[0],
            heights[1],
            Constraint::Min(1),
            heights[3],
            heights[4],
            heights[5],
        ];
        let [top, tabs, body, below, typed, keys] = Layout::vertical(heights).areas(area);
        frame.render_widget(header(scene, top.width.into()), top);
        self.tabs(frame, scene, tabs);
        match self.pane {
            Pane::Team => self.team(frame, scene, body),
            Pane::Requests => self.requests(frame, scene, body),
            Pane::Tasks => self.tasks(frame, scene, body),
            Pane::Feed => self.feed(frame, scene, body),
            Pane::Conversation => self.conversation(frame, scene, body),
        }
        if let Some(overlay) = &mut self.overlay {
            overlay.draw(frame, body);
            // What is covered cannot be answered.
            self.reading.drawing = None;
        }
        frame.render_widget(Text::from(notice), below);
        if let Some((title, rows)) = typing {
            let [heading, rest] = headed(typed);
            rule(frame, heading, &title, "");
            rows.draw(frame, rest);
        }
        frame.render_widget(keys_row(self.all_hints(), keys.width.into()), keys);
    }

    fn tabs(&mut self, frame: &mut Frame<'_>, scene: &TopScene<'_>, area: Rect) {
        let open = scene
            .seen
            .team
            .tasks
            .values()
            .filter(|task| !task.status.is_finished())
            .count();
        let agent = self
            .agent()
            .map_or_else(|| "Conversation".to_owned(), ToString::to_string);
        let titles = [
            "Team".to_owned(),
            with_count("Requests", pending(scene.seen.team, "").len()),
            with_count("Tasks", open),
            "Feed".to_owned(),
            agent,
        ];
        let all: usize = titles.iter().map(|title| width(title) + 5).sum();
        let fits = all <= usize::from(area.width) + 1;
        let mut left = area.x;
        for ((pane, title), number) in Pane::ALL.into_iter().zip(titles).zip(1..) {
            // Where there is no room for all titles, only that of the pane on the screen is shown.
            let title = if fits || pane == self.pane {
                format!(" {title}")
            } else {
                String::new()
            };
            let text = format!(" {number}{title} ");
            let columns = u16::try_from(width(&text)).unwrap_or(u16::MAX);
            let at = Rect {
                x: left,
                width: columns,
                ..area
            }
            .intersection(area);
            let style = if pane == self.pane {
                Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED)
            } else {
                Style::new().add_modifier(Modifier::DIM)
            };
            frame.render_widget(Span::styled(text, style), at);
            self.frame.targets.push((at, ClickTarget::Pane(pane)));
            left = left.saturating_add(columns + 1).min(area.right());
        }
        let filter = if self.filter.is_empty() || self.typing.is_some() {
            String::new()
        } else {
            format!("/{}  ", escape::line(&self.filter))
        };
        let place = self
            .place()
            .map(|(at, of)| format!("{} of {of} ", at + 1))
            .unwrap_or_default();
        let right = cut(
            &format!("{filter}{place}"),
            Some(usize::from(area.right().saturating_sub(left))),
        );
        let text = format!("{}{}", paint(BOLD, &filter), paint(DIM, &place));
        if right == format!("{filter}{place}") {
            frame.render_widget(row(&text).right_aligned(), area);
        }
    }

    fn notice_lines(&self, scene: &TopScene<'_>, columns: usize) -> Vec<Line<'static>> {
        let trouble = scene
            .seen
            .trouble
            .map(|error| paint(BAD, format_args!("error: {error}")));
        let question = self
            .question
            .as_ref()
            .map(|question| paint(BOLD, question.text()));
        let notice = question
            .or_else(|| (!self.notice.is_empty()).then(|| escape::text(&self.notice).into_owned()));
        let all = notice.or(trouble).unwrap_or_default();
        let mut lines = wrapped(&all, columns);
        lines.truncate(NOTICE);
        lines
    }

    /// Notes that the age of something is on the screen, and returns it for people.
    fn age(&mut self, since: f64, now: f64) -> String {
        self.frame.youngest = Some(
            self.frame
                .youngest
                .map_or(since, |youngest| youngest.max(since)),
        );
        clock::span(now - since)
    }
}

/// Adds a number to a title, unless it is none.
fn with_count(title: &str, count: usize) -> String {
    if count == 0 {
        title.to_owned()
    } else {
        format!("{title} {count}")
    }
}

/// Says something in the place of a list that is empty.
fn say(frame: &mut Frame<'_>, area: Rect, text: &str) {
    let area = inset(area);
    frame.render_widget(
        Text::from(wrapped(&paint(DIM, text), area.width.into())),
        area,
    );
}

/// Returns the mark before an entry of a list, by which the selected one is recognized.
fn mark(is_selected: bool) -> String {
    if is_selected {
        paint(Group::Working.style().bold(), "▌")
    } else {
        " ".to_owned()
    }
}

/// Writes the state of the team in one line.
pub(super) fn header(scene: &TopScene<'_>, columns: usize) -> Line<'static> {
    let count = |group| {
        scene
            .rows
            .iter()
            .filter(|row| row.standing.group == group)
            .count()
    };
    let (live, style) = if scene.has_daemon {
        ("live", DIM)
    } else {
        ("NO DAEMON", BAD.bold())
    };
    let name = cut(
        &escape::line(&scene.seen.roster.team_name),
        Some((columns / 4).clamp(4, 20)),
    );
    let mut line = paint(BOLD, format_args!(" {name} "));
    let mut taken = width(&name) + width(live) + 3;
    let groups = [
        (Group::NeedsYou, "need you"),
        (Group::Stuck, "stuck"),
        (Group::Working, "working"),
        (Group::Idle, "idle"),
    ];
    let is_narrow = taken + 60 > columns;
    for (group, what) in groups {
        let text = if is_narrow {
            format!("{}{}", glyph(group), count(group))
        } else {
            format!("{} {} {what}", glyph(group), count(group))
        };
        taken += width(&text) + 2;
        if taken > columns {
            break;
        }
        let style = match (count(group), group) {
            (0, _) => DIM,
            (_, Group::NeedsYou) => group.style().invert(),
            _ => group.style(),
        };
        line.push_str(&format!(" {} ", paint(style, text)));
    }
    let mut usage = Usage::default();
    for member in &scene.seen.roster.members {
        usage += member.usage;
    }
    let cost = scene
        .rows
        .iter()
        .filter_map(|row| row.cost)
        .fold(Dollars::default(), |sum, cost| sum + cost);
    let cost = if cost == Dollars::default() {
        String::new()
    } else {
        format!(" {cost}")
    };
    let spent = tokens::all(&usage);
    let spent = if usage.is_nothing() {
        String::new()
    } else {
        format!("{spent} tokens{cost}  ")
    };
    let spent = if taken + width(&spent) > columns {
        String::new()
    } else {
        spent
    };
    let gap = " ".repeat(columns.saturating_sub(taken + width(&spent)));
    row(&format!("{line}{gap}{spent}{} ", paint(style, live)))
}

/// Returns the mark of a group, for terminals without colours.
const fn glyph(group: Group) -> &'static str {
    match group {
        Group::NeedsYou => "●",
        Group::Stuck => "▲",
        Group::Working => "◐",
        Group::Idle => "○",
        Group::Ended => "·",
    }
}

/// Divides a wide area into two sides.
fn sides(area: Rect) -> [Rect; 2] {
    let [left, gap, right] = Layout::horizontal([
        Constraint::Percentage(55),
        Constraint::Length(1),
        Constraint::Min(10),
    ])
    .areas(area);
    let _: Rect = gap;
    [left, right]
}

/// Divides a large area into a list and what is selected in it; none: there is no room for both.
fn with_detail(area: Rect) -> Option<[Rect; 2]> {
    if area.width >= LARGE {
        return Some(sides(area));
    }
    (area.height >= HIGH).then(|| Layout::vertical([Constraint::Fill(1); 2]).areas(area))
}

/// Divides a list that has more room than it needs: its lines, and the pane below. None: it has
/// not.
fn with_below(area: Rect, lines: usize) -> Option<[Rect; 2]> {
    if area.height < HIGH {
        return None;
    }
    let height = u16::try_from(lines)
        .unwrap_or(u16::MAX)
        .min(area.height / 2);
    Some(Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(area))
}

/// Divides an area into a list, which takes what it needs, and the text beside or below it.
fn beside(area: Rect, lines: usize) -> [Rect; 2] {
    if area.width >= WIDE {
        return sides(area);
    }
    if area.height < LOW {
        return [
            area,
            Rect {
                height: 0,
                y: area.bottom(),
                ..area
            },
        ];
    }
    let least = area.height.saturating_sub(7).max(area.height / 2);
    let height = u16::try_from(lines).unwrap_or(u16::MAX).min(least).max(1);
    Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(area)
}
