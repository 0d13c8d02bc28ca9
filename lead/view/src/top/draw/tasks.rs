//! The tasks as a board: a column for each status.

use anstyle::Style;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use teamd_client::print::render::{BOLD, DIM};
use teamd_client::print::style::paint;
use teamd_client::print::table::width;
use teamd_client::print::task::{blockers, style};
use teamd_shared::task::Task;

use super::{HIGH, LARGE, TopScene, WIDE, mark, say, sides, with_detail};
use crate::model::{COLUMNS, standing};
use crate::terminal::{cell, headed, inset, page, row, rule};
use crate::top::app::{App, ClickTarget};

/// The lines that a task has, where there is room for them.
const LINES: u16 = 2;
/// Below so many columns there is room for one column of the board.
const NARROW: u16 = 48;

impl App {
    pub(super) fn tasks(&mut self, frame: &mut Frame<'_>, scene: &TopScene<'_>, area: Rect) {
        if self.lists.tasks.keys().is_empty() {
            let text = if self.filter.is_empty() {
                "There are no tasks: a adds one."
            } else {
                "No task has that in its subject or owner: Esc shows all."
            };
            return say(frame, area, text);
        }
        let mut area = area;
        if area.height >= HIGH {
            let most = self.lists.columns.iter().map(Vec::len).max().unwrap_or(0);
            let lines = most * usize::from(LINES) + 2;
            let height = u16::try_from(lines).unwrap_or(u16::MAX);
            let [board, below] = Layout::vertical([
                Constraint::Length(height.min(area.height / 2)),
                Constraint::Min(0),
            ])
            .areas(area);
            area = board;
            self.selected_task(frame, scene, below);
        } else if let Some([board, beside]) = with_detail(area) {
            area = board;
            self.selected_task(frame, scene, beside);
        }
        let columns = self.lists.columns.clone();
        let selected = self.lists.tasks.selected().copied();
        let is_narrow = area.width < NARROW;
        // Where there is room for one column, it is that of the selected task. An empty one needs
        // room for its title, or is left out.
        let widths = columns
            .each_ref()
            .map(|ids| match (is_narrow, ids.is_empty()) {
                (true, _) => u16::from(selected.is_some_and(|id| ids.contains(&id))),
                (false, true) => u16::from(area.width >= WIDE),
                (false, false) => 3,
            });
        let widths = widths.map(Constraint::Fill);
        let areas: [Rect; 4] = Layout::horizontal(widths)
            .spacing(u16::from(!is_narrow))
            .areas(area);
        for ((title, ids), area) in COLUMNS.into_iter().zip(&columns).zip(areas) {
            let [heading, cards] = headed(area);
            let title = format!(" {title} {}", ids.len());
            let dashes = "─".repeat(usize::from(heading.width).saturating_sub(width(&title) + 1));
            frame.render_widget(
                row(&format!("{} {}", paint(BOLD, title), paint(DIM, dashes))),
                heading,
            );
            let lines = LINES.min(cards.height).max(1);
            let room = usize::from(cards.height / lines);
            let at = ids
                .iter()
                .position(|id| Some(id) == self.lists.tasks.selected());
            // Only the column of the selected task scrolls.
            let top = at.map_or(0, |at| self.lists.tasks.scroll(at, ids.len(), room));
            let shown = ids
                .iter()
                .skip(top)
                .take(room)
                .filter_map(|id| scene.seen.past.tasks.get(id))
                .map(|past| &past.task);
            for (y, task) in (cards.y..).step_by(lines.into()).zip(shown) {
                let place = Rect {
                    y,
                    height: lines,
                    ..cards
                };
                let is_selected = self.lists.tasks.selected() == Some(&task.id);
                for (y, line) in
                    (y..y + lines).zip(card(task, scene, is_selected, cards.width.into()))
                {
                    frame.render_widget(
                        row(&line),
                        Rect {
                            y,
                            height: 1,
                            ..cards
                        },
                    );
                }
                self.frame.targets.push((place, ClickTarget::Task(task.id)));
            }
        }
    }
}

impl App {
    /// Draws the selected task whole, and beside it, where there is room, what its owner does.
    fn selected_task(&mut self, frame: &mut Frame<'_>, scene: &TopScene<'_>, area: Rect) {
        let Some(id) = self.lists.tasks.selected().copied() else {
            return;
        };
        let task = scene.seen.team.tasks.get(&id);
        let owner = task.and_then(|task| task.owner.as_ref());
        let conversation = scene.seen.conversation;
        let conversation = conversation.filter(|it| owner == Some(&it.name));
        let mut area = area;
        if area.width >= LARGE
            && let Some(conversation) = conversation
        {
            let [task, beside] = sides(area);
            area = task;
            let [heading, rest] = headed(beside);
            rule(frame, heading, conversation.name.as_str(), "");
            self.end_of_conversation(frame, conversation, rest);
        }
        let text = (scene.write_task)(id);
        let of = format!("task {id}");
        self.detail.set(&of, &text, inset(area).width.into());
        page(frame, headed(area), &of, &mut self.detail);
    }
}

/// Writes a task in two lines: what is to be done, and its status.
fn card(task: &Task, scene: &TopScene<'_>, is_selected: bool, columns: usize) -> [String; 2] {
    let blocked_by = blockers(scene.seen.team, task);
    let is_blocked = !blocked_by.is_empty();
    let mark = mark(is_selected);
    let number = paint(if is_blocked { DIM } else { style(task.status) }, task.id);
    let subject = match (is_selected, is_blocked) {
        (true, _) => BOLD,
        (_, true) => DIM,
        _ => Style::new(),
    };
    let room = columns.saturating_sub(width(&number) + 3);
    let first = format!("{mark} {number} {}", cell(subject, &task.subject, room));
    let (how, group) = standing(task, &blocked_by, scene.seen.roster.sender_of(task));
    [
        first,
        format!(
            "{mark}   {}",
            cell(group.style(), how, columns.saturating_sub(4))
        ),
    ]
}
