//! The tasks as a board: a column for each status.

use anstyle::Style;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use teamd_shared::task::{Task, TaskStatus, Verified};

use super::Scene;
use crate::ctl::commands::task::{blockers, style};
use crate::ctl::grouping::Group;
use crate::ctl::output::paint;
use crate::ctl::render::{BAD, BOLD, DIM};
use crate::ctl::table::width;
use crate::ctl::top::app::{App, Target};
use crate::ctl::top::text::{cell, row};

/// The titles of the columns.
const TITLES: [&str; 4] = ["PENDING", "IN PROGRESS", "IN REVIEW", "DONE"];
/// The lines that a task has.
const LINES: u16 = 2;

impl App {
    pub(super) fn tasks(&mut self, frame: &mut Frame<'_>, scene: &Scene<'_>, area: Rect) {
        if self.tasks.keys().is_empty() {
            let text = match self.filter.is_empty() {
                true => " There are no tasks: a adds one.",
                false => " No task has that in its subject or owner: Esc shows all.",
            };
            frame.render_widget(row(&paint(DIM, text)), area);
            return;
        }
        let columns = self.columns.clone();
        // An empty column needs room for its title alone.
        let widths = columns.each_ref().map(|ids| if ids.is_empty() { 1 } else { 3 }).map(Constraint::Fill);
        let areas: [Rect; 4] = Layout::horizontal(widths).spacing(1).areas(area);
        for ((title, ids), area) in TITLES.into_iter().zip(&columns).zip(areas) {
            let [heading, cards] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
            let title = format!(" {title} {}", ids.len());
            let dashes = "─".repeat(usize::from(heading.width).saturating_sub(width(&title) + 1));
            frame.render_widget(row(&format!("{} {}", paint(BOLD, title), paint(DIM, dashes))), heading);
            let room = usize::from(cards.height / LINES);
            let at = ids.iter().position(|id| Some(id) == self.tasks.selected());
            // Only the column of the selected task scrolls.
            let top = at.map_or(0, |at| self.tasks.scroll(at, ids.len(), room));
            let shown = ids.iter().skip(top).take(room).filter_map(|id| scene.team.tasks.get(id));
            for (y, task) in (cards.y..).step_by(LINES.into()).zip(shown) {
                let place = Rect { y, height: LINES, ..cards };
                let is_selected = self.tasks.selected() == Some(&task.id);
                for (y, line) in (y..).zip(card(task, scene, is_selected, cards.width.into())) {
                    frame.render_widget(row(&line), Rect { y, height: 1, ..cards });
                }
                self.targets.push((place, Target::Task(task.id)));
            }
        }
    }
}

/// Writes a task in two lines: what is to be done, and how that stands.
fn card(task: &Task, scene: &Scene<'_>, is_selected: bool, columns: usize) -> [String; 2] {
    let blocked_by = blockers(scene.team, task);
    let is_blocked = !blocked_by.is_empty();
    let mark = if is_selected { paint(Group::Working.style().bold(), "▌") } else { " ".to_owned() };
    let number = paint(if is_blocked { DIM } else { style(task.status) }, task.id);
    let subject = match (is_selected, is_blocked) {
        (true, _) => BOLD,
        (_, true) => DIM,
        _ => Style::new(),
    };
    let room = columns.saturating_sub(width(&number) + 3);
    let first = format!("{mark} {number} {}", cell(subject, &task.subject, room));
    let (how, style) = standing(task, &blocked_by);
    [first, format!("{mark}   {}", cell(style, how, columns.saturating_sub(4)))]
}

/// Says how a task stands.
fn standing(task: &Task, blocked_by: &str) -> (String, Style) {
    let owner = task.owner.as_ref().map(ToString::to_string).unwrap_or_default();
    let attempts = match task.attempts {
        0 => String::new(),
        attempts => format!(" · attempt {} of {}", attempts + 1, task.max_attempts),
    };
    match task.status {
        TaskStatus::Pending if !blocked_by.is_empty() => (format!("blocked by {blocked_by}"), DIM),
        TaskStatus::Pending if task.stalled.is_some() => (task.held_up().unwrap_or_default(), BAD),
        TaskStatus::Pending => {
            let whom = task.reserved_for.as_ref().map(|whom| format!("for {whom}"));
            (whom.unwrap_or_default() + &attempts, DIM)
        }
        TaskStatus::InProgress => (owner + &attempts, Group::Working.style()),
        TaskStatus::InReview => match task.held_up() {
            Some(why) => (format!("{owner} · {why}"), BAD),
            None if task.review_id().is_some() => {
                (format!("{owner} · waits for its review"), Group::NeedsYou.style())
            }
            None => (format!("{owner} · checking"), Group::Working.style()),
        },
        TaskStatus::Completed => {
            let result = task.result.as_ref();
            let is_checked =
                result.is_some_and(|it| it.verified != Verified::No && it.touched_protected.is_none());
            let verified = result.map_or("no", |result| result.verified());
            (format!("✓ verified: {verified}"), if is_checked { Group::Idle.style() } else { DIM })
        }
        TaskStatus::Failed => (format!("✕ failed after {} attempts", task.attempts), BAD),
        TaskStatus::Cancelled => ("cancelled".to_owned(), DIM),
    }
}
