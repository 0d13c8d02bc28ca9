//! Draws a review: what is in sight of it.

use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout as Areas, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use teamd_client::print::escape;
use teamd_client::print::render::{DIM, count};
use teamd_client::print::style::paint;
use teamd_client::print::table::width;

use super::changes::{DiffLine, LineKind, shown};
use super::colours::Coloured;
use super::print::{file_line, head};
use super::rows::{LinePlace, Row, RowShape, pieces};
use super::screen::{Heading, ReviewScreen, ShownChanges, Typing, WIDE};
use crate::terminal::{HELP_HINT, Hint, TypedRows, headed, inset, keys_row, row, rule, wrapped};

/// The columns of the number of a line.
const NUMBER: usize = 5;
/// How many rows of what is typed are shown.
const TYPED: usize = 6;
/// How many rows a notice has.
const NOTICE: usize = 2;
/// How long a frame may wait for colours.
const PARSING: Duration = Duration::from_millis(8);

impl ReviewScreen {
    /// Draws everything in an area. Two sides have room if they have it on the whole screen.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let columns = usize::from(area.width);
        self.columns = frame.area().width;
        let notice = escape::text(&self.notice).into_owned();
        let mut notice = wrapped(&notice, columns);
        notice.truncate(NOTICE);
        let typing = self.typing.as_ref().map(|(typing, text)| {
            let title = match typing {
                Typing::Comment(_) => "comment on the line (Enter keeps it, Esc leaves it)",
                Typing::Feedback { approve: true } => "what the author should mind",
                Typing::Feedback { approve: false } => "reject: what is to change",
            };
            (title, TypedRows::of(" ", text, columns))
        });
        let typed = typing
            .as_ref()
            .map_or(0, |(_, rows)| rows.count().min(TYPED) + 1);
        let length = |rows: usize| Constraint::Length(u16::try_from(rows).unwrap_or(u16::MAX));
        let parts = [
            Constraint::Min(1),
            length(notice.len()),
            length(typed),
            length(1),
        ];
        let [body, below, typed, keys] = Areas::vertical(parts).areas(area);
        self.body(frame, body);
        if let Some(overlay) = &mut self.overlay {
            overlay.draw(frame, body);
        }
        frame.render_widget(Text::from(notice), below);
        if let Some((title, rows)) = typing {
            let [heading, rest] = headed(typed);
            rule(frame, heading, title, "");
            rows.draw(frame, rest);
        }
        frame.render_widget(keys_row(self.hints(), keys.width.into()), keys);
    }

    fn hints(&self) -> Vec<Hint> {
        if self.typing.is_some() {
            return vec![
                ("Enter", "done"),
                ("Alt-Enter", "another line"),
                ("Esc", "leave"),
            ];
        }
        let mut hints = vec![("n p", "file"), ("o", "fold"), ("c", "comment")];
        if self.reviewed.request.is_some() {
            hints.splice(0..0, [("a", "approve"), ("r", "reject")]);
        }
        if self.since.is_some() {
            hints.push((
                "N",
                if self.shows_since {
                    "all"
                } else {
                    "what is new"
                },
            ));
        }
        if self.columns >= WIDE {
            hints.push(if self.wants_split {
                ("u", "one column")
            } else {
                ("s", "side by side")
            });
        }
        hints.extend([("q", "leave"), ("?", HELP_HINT)]);
        hints
    }

    fn body(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let [heading, rest] = headed(area);
        let is_split = self.wants_split && area.width >= WIDE;
        let columns = usize::from(inset(rest).width);
        let heading_rows = self.take_heading(columns);
        let head = &heading_rows.lines;
        let room = if is_split {
            (columns.saturating_sub(1)) / 2 - (NUMBER + 3)
        } else {
            columns.saturating_sub(2 * NUMBER + 4)
        };
        let shape = RowShape {
            room,
            is_split,
            heads: head.len(),
        };
        let page = usize::from(rest.height);
        self.page = page;
        let is_since = self.shows_since;
        let of_side = self.comments.iter().filter(|it| it.is_since == is_since);
        let comments: Vec<(LinePlace, String)> = of_side
            .map(|it| (it.at, format!("» {}", it.text.replace('\n', " "))))
            .collect();
        let places: Vec<LinePlace> = comments.iter().map(|(at, _)| *at).collect();
        let covered = self.overlay.is_some();
        let title = match is_since {
            true => format!("{} (since the last submission)", self.reviewed.title()),
            false => self.reviewed.title(),
        };
        let side = self.side();
        side.lay_out(shape, &places);
        side.colours.begin(Instant::now() + PARSING);
        let Some(layout) = side.layout.take() else {
            return;
        };
        let last = layout.rows.len().saturating_sub(page);
        side.top = side
            .top
            .min(side.cursor)
            .max((side.cursor + 1).saturating_sub(page))
            .min(last);
        let mut lines = Vec::with_capacity(page);
        for (at, row) in layout.rows.iter().enumerate().skip(side.top).take(page) {
            if !covered {
                side.seen.mark(*row, &layout);
            }
            let mut line = match row {
                Row::Head(at) => head.get(*at).cloned().unwrap_or_default(),
                Row::Comment(number) => {
                    let text = comments.get(*number).map(|(_, text)| text.as_str());
                    let text = escape::line(text.unwrap_or_default()).into_owned();
                    let bold = Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD);
                    Line::from(Span::styled(
                        format!("{}{text}", " ".repeat(2 * NUMBER + 2)),
                        bold,
                    ))
                }
                other => side.line_of(*other, shape, columns),
            };
            let mark = if at == side.cursor { "▌" } else { " " };
            line.spans.insert(0, Span::raw(mark));
            lines.push(line);
        }
        let at = side.cursor + 1;
        let of = layout.rows.len();
        side.layout = Some(layout);
        self.heading = Some(heading_rows);
        let comments = match self.comments.len() {
            0 => String::new(),
            some => format!("{}  ", count(some, "comment")),
        };
        rule(frame, heading, &title, &format!("{comments}{at} of {of}"));
        frame.render_widget(Text::from(lines), rest);
    }
}

impl ReviewScreen {
    /// Returns what stands above the changes: with many files, it is long.
    fn take_heading(&mut self, columns: usize) -> Heading {
        let is_since = self.shows_since;
        let before = self.heading.take();
        let is_same =
            |it: &Heading| it.columns == columns && it.is_since == is_since && it.code == self.code;
        if let Some(same) = before.filter(is_same) {
            return same;
        }
        let lines = head(&self.reviewed, self.code.as_deref(), is_since);
        let lines = lines.iter().flat_map(|line| match line.is_empty() {
            true => vec![Line::default()],
            false => wrapped(line, columns),
        });
        Heading {
            columns,
            is_since,
            code: self.code.clone(),
            lines: lines.collect(),
        }
    }
}

impl ShownChanges {
    fn line_of(&mut self, row: Row, shape: RowShape, columns: usize) -> Line<'static> {
        match row {
            Row::File(file) => {
                let changed = &self.changes.files[file];
                let folded = if self.folded[file] {
                    "  ▸ folded, o shows it"
                } else {
                    ""
                };
                let text = format!("{}{}", file_line(changed, true), paint(DIM, folded));
                let mut line = row_of(&text);
                let gap = columns.saturating_sub(line.width() + 1);
                line.spans.push(Span::styled(
                    format!(" {}", "─".repeat(gap.saturating_sub(1))),
                    Style::new().add_modifier(Modifier::DIM),
                ));
                line
            }
            Row::Hunk(file, hunk) => {
                let heading = &self.changes.files[file].hunks[hunk].heading;
                row_of(&paint(DIM, shown(heading)))
            }
            Row::Line(at, part) => Line::from(self.cell(at, part, shape, None)),
            Row::Pair(left, right, part) => {
                let blank = || vec![Span::raw(" ".repeat(shape.room + NUMBER + 3))];
                let mut cell = |at: Option<LinePlace>, is_new: bool| {
                    at.map_or_else(blank, |at| self.cell(at, part, shape, Some(is_new)))
                };
                let mut spans = cell(left, false);
                spans.push(Span::styled("│", Style::new().add_modifier(Modifier::DIM)));
                spans.extend(cell(right, true));
                Line::from(spans)
            }
            Row::Head(_) | Row::Comment(_) => Line::default(),
        }
    }

    /// Writes a part of a line: its numbers, its sign, and its text in exactly `room` columns.
    fn cell(
        &mut self,
        at: LinePlace,
        part: usize,
        shape: RowShape,
        side: Option<bool>,
    ) -> Vec<Span<'static>> {
        let file = &self.changes.files[at.file];
        let line = &file.hunks[at.hunk].lines[at.line];
        let sign = match line.kind {
            LineKind::Context => Style::new().add_modifier(Modifier::DIM),
            LineKind::Added => Style::new().fg(Color::Green),
            LineKind::Removed => Style::new().fg(Color::Red),
        };
        let number = |number: Option<u32>| match number {
            Some(number) if part == 0 => format!("{number:>NUMBER$}"),
            _ => " ".repeat(NUMBER),
        };
        let numbers = match side {
            None => format!("{}{}", number(line.old), number(line.new)),
            Some(false) => number(line.old),
            Some(true) => number(line.new),
        };
        let mark = if part == 0 { line.kind.sign() } else { '↳' };
        let mut spans = vec![Span::styled(format!("{numbers} {mark} "), sign)];
        let coloured = self.colours.of((at.file, at.hunk), file, at.line);
        let (text, taken) = text_of(line, coloured, part, shape.room);
        spans.extend(text);
        if side.is_some() {
            spans.push(Span::raw(" ".repeat(shape.room.saturating_sub(taken))));
        }
        spans
    }
}

fn row_of(text: &str) -> Line<'static> {
    row(text)
}

/// Returns a part of the text of a line with its colours, and how many columns it takes.
fn text_of(
    line: &DiffLine,
    coloured: &[Coloured],
    part: usize,
    room: usize,
) -> (Vec<Span<'static>>, usize) {
    let shown_line = line.shown();
    let ends = pieces(&shown_line, room);
    let Some(to) = ends.get(part).copied() else {
        return (Vec::new(), 0);
    };
    let from = part.checked_sub(1).map_or(0, |before| ends[before]);
    let mut spans = Vec::new();
    let mut place = 0;
    let mut raw = 0;
    let whole = [Coloured {
        end: line.text.len(),
        style: Style::new(),
    }];
    let coloured = if coloured.is_empty() {
        &whole
    } else {
        coloured
    };
    for piece in coloured {
        let Some(text) = line.text.get(raw..piece.end) else {
            continue;
        };
        raw = piece.end;
        // A part is shown as the whole line is: what is escaped does not depend on what is beside.
        let text = shown(text);
        let begin = from.clamp(place, place + text.len()) - place;
        let end = to.clamp(place, place + text.len()) - place;
        place += text.len();
        if let Some(text) = text.get(begin..end).filter(|text| !text.is_empty()) {
            spans.push(Span::styled(text.to_owned(), piece.style));
        }
    }
    let taken = spans.iter().map(|span| width(&span.content)).sum();
    if line.is_unended && to == shown_line.len() {
        spans.push(Span::styled(" ⏎̸", Style::new().add_modifier(Modifier::DIM)));
    }
    (spans, taken)
}
