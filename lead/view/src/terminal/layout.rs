//! Headings, and the areas below them.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use teamd_client::print::escape;
use teamd_client::print::render::{BOLD, DIM, count};
use teamd_client::print::style::paint;
use teamd_client::print::table::{cut, width};

use super::pager::Pager;
use super::text::row;

/// Draws a text below its heading, which counts the lines below the screen.
pub(crate) fn page(
    frame: &mut Frame<'_>,
    [heading, rest]: [Rect; 2],
    title: &str,
    pager: &mut Pager,
) {
    pager.draw(frame, inset(rest));
    let more = match pager.lines_below() {
        0 => String::new(),
        below => count(below, "more line"),
    };
    rule(frame, heading, title, &more);
}

/// Draws a line with a title, and a text at its right end.
pub(crate) fn rule(frame: &mut Frame<'_>, area: Rect, title: &str, right: &str) {
    let columns = usize::from(area.width);
    let title = cut(&escape::line(title), Some(columns.saturating_sub(2)));
    let right = if right.is_empty() || width(&title) + width(right) + 6 > columns {
        ""
    } else {
        right
    };
    let right = if right.is_empty() {
        String::new()
    } else {
        format!(" {right} ")
    };
    let dashes = "─".repeat(columns.saturating_sub(width(&title) + width(&right) + 2));
    let text = format!(
        " {} {}{}",
        paint(BOLD, title),
        paint(DIM, dashes),
        paint(DIM, right)
    );
    frame.render_widget(row(&text), area);
}

/// Divides an area into a heading and what is below it.
pub(crate) fn headed(area: Rect) -> [Rect; 2] {
    Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area)
}

/// Leaves room before a text: it begins where its heading does.
pub(crate) fn inset(area: Rect) -> Rect {
    Rect {
        x: area.x + 1.min(area.width),
        width: area.width.saturating_sub(1),
        ..area
    }
}
