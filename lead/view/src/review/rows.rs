//! Changes as rows of a screen: which line is in which row, which files are folded, and what was on
//! the screen. Pure.

use teamd_client::print::table::width;

use super::changes::{Changes, Hunk, LineKind};

/// A line of a hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinePlace {
    pub(super) file: usize,
    pub(super) hunk: usize,
    pub(super) line: usize,
}

/// What a row shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Row {
    /// A row of the heading.
    Head(usize),
    File(usize),
    Hunk(usize, usize),
    /// A part of a line: a long one has several rows.
    Line(LinePlace, usize),
    /// Parts of two lines, side by side.
    Pair(Option<LinePlace>, Option<LinePlace>, usize),
    /// A comment.
    Comment(usize),
}

/// The numbers of what must be on the screen before it is approved.
#[derive(Debug, Default)]
pub(super) struct SeenRows {
    /// The first number of each file, and of each of its hunks.
    files: Vec<(usize, Vec<usize>)>,
    heads: usize,
    seen: Vec<bool>,
}

impl SeenRows {
    pub(super) fn new(changes: &Changes, heads: usize) -> Self {
        let mut next = heads;
        let mut files = Vec::with_capacity(changes.files.len());
        for file in &changes.files {
            let first = next;
            next += 1;
            let mut hunks = Vec::with_capacity(file.hunks.len());
            for hunk in &file.hunks {
                hunks.push(next);
                next += 1 + hunk.lines.len();
            }
            files.push((first, hunks));
        }
        Self {
            files,
            heads,
            seen: vec![false; next],
        }
    }

    fn number(&self, at: LinePlace) -> usize {
        self.files[at.file].1[at.hunk] + 1 + at.line
    }

    /// Returns the numbers of a row; none: it is no last part of anything.
    fn numbers(&self, row: Row, layout: &Layout) -> [Option<usize>; 2] {
        match row {
            Row::Head(at) => [Some(at), None],
            Row::File(file) => [Some(self.files[file].0), None],
            Row::Hunk(file, hunk) => [Some(self.files[file].1[hunk]), None],
            Row::Line(at, part) => [layout.is_last(at, part).then(|| self.number(at)), None],
            Row::Pair(left, right, part) => [left, right].map(|at| {
                at.filter(|at| layout.is_last(*at, part))
                    .map(|at| self.number(at))
            }),
            Row::Comment(_) => [None, None],
        }
    }

    /// Notes that a row is on the screen.
    pub(super) fn mark(&mut self, row: Row, layout: &Layout) {
        for number in self.numbers(row, layout).into_iter().flatten() {
            if let Some(seen) = self.seen.get_mut(number) {
                *seen = true;
            }
        }
    }

    /// Returns the first of these rows that was not on the screen, and how many were not.
    pub(super) fn unseen(&self, layout: &Layout) -> Option<(usize, usize)> {
        let is_unseen = |row: &Row| {
            let numbers = self.numbers(*row, layout);
            numbers
                .into_iter()
                .flatten()
                .any(|number| !self.seen[number])
        };
        let mut unseen = layout
            .rows
            .iter()
            .enumerate()
            .filter(|(_, row)| is_unseen(row));
        let (first, _) = unseen.next()?;
        Some((first, unseen.count() + 1))
    }

    /// Forgets what was seen of the heading: it has other rows.
    pub(super) fn set_heads(&mut self, changes: &Changes, heads: usize) {
        if heads == self.heads {
            return;
        }
        let mut other = Self::new(changes, heads);
        for (new, old) in other.seen[heads..].iter_mut().zip(&self.seen[self.heads..]) {
            *new = *old;
        }
        *self = other;
    }
}

/// How rows are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowShape {
    /// The columns of the text of a line.
    pub(super) room: usize,
    pub(super) is_split: bool,
    /// How many rows the heading has.
    pub(super) heads: usize,
}

/// The rows.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) rows: Vec<Row>,
    pub(super) shape: RowShape,
    /// The last part of the lines that have several, by place.
    long: std::collections::HashMap<(usize, usize, usize), usize>,
}

impl Layout {
    pub(super) fn new(
        changes: &Changes,
        folded: &[bool],
        comments: &[LinePlace],
        shape: RowShape,
    ) -> Self {
        let mut layout = Self {
            rows: (0..shape.heads).map(Row::Head).collect(),
            shape,
            long: std::collections::HashMap::new(),
        };
        for (number, file) in changes.files.iter().enumerate() {
            layout.rows.push(Row::File(number));
            if folded.get(number).copied().unwrap_or(false) {
                continue;
            }
            for (at, hunk) in file.hunks.iter().enumerate() {
                layout.rows.push(Row::Hunk(number, at));
                if shape.is_split {
                    layout.split(number, at, hunk, comments);
                } else {
                    layout.unified(number, at, hunk, comments);
                }
            }
        }
        layout
    }

    fn is_last(&self, at: LinePlace, part: usize) -> bool {
        let last = self.long.get(&(at.file, at.hunk, at.line)).copied();
        last.unwrap_or(0) == part
    }

    /// Returns how many rows a line has.
    fn parts(&mut self, hunk: &Hunk, at: LinePlace) -> usize {
        let parts = pieces(&hunk.lines[at.line].shown(), self.shape.room).len();
        if parts > 1 {
            self.long.insert((at.file, at.hunk, at.line), parts - 1);
        }
        parts
    }

    fn unified(&mut self, file: usize, at: usize, hunk: &Hunk, comments: &[LinePlace]) {
        for line in 0..hunk.lines.len() {
            let place = LinePlace {
                file,
                hunk: at,
                line,
            };
            let parts = self.parts(hunk, place);
            self.rows
                .extend((0..parts).map(|part| Row::Line(place, part)));
            self.comments(&[place], comments);
        }
    }

    fn split(&mut self, file: usize, at: usize, hunk: &Hunk, comments: &[LinePlace]) {
        let mut line = 0;
        while line < hunk.lines.len() {
            if hunk.lines[line].kind == LineKind::Context {
                let place = LinePlace {
                    file,
                    hunk: at,
                    line,
                };
                self.pair(hunk, [Some(place), Some(place)], comments);
                line += 1;
                continue;
            }
            let changed = hunk.lines[line..].iter();
            let end = line
                + changed
                    .take_while(|it| it.kind != LineKind::Context)
                    .count();
            let of = |kind| {
                let lines = line..end;
                let lines = lines.filter(|it: &usize| hunk.lines[*it].kind == kind);
                lines
                    .map(|line| LinePlace {
                        file,
                        hunk: at,
                        line,
                    })
                    .collect::<Vec<_>>()
            };
            let removed = of(LineKind::Removed);
            let added = of(LineKind::Added);
            for row in 0..removed.len().max(added.len()) {
                let both = [removed.get(row).copied(), added.get(row).copied()];
                self.pair(hunk, both, comments);
            }
            line = end;
        }
    }

    fn pair(&mut self, hunk: &Hunk, both: [Option<LinePlace>; 2], comments: &[LinePlace]) {
        let parts = both.map(|at| at.map_or(0, |at| self.parts(hunk, at)));
        let [left, right] = both;
        let rows = 0..parts[0].max(parts[1]);
        self.rows
            .extend(rows.map(|part| Row::Pair(left, right, part)));
        let mut places: Vec<LinePlace> = both.into_iter().flatten().collect();
        places.dedup();
        self.comments(&places, comments);
    }

    fn comments(&mut self, places: &[LinePlace], comments: &[LinePlace]) {
        for (number, at) in comments.iter().enumerate() {
            if places.contains(at) {
                self.rows.push(Row::Comment(number));
            }
        }
    }
}

/// Parts a text into pieces of so many columns; each is returned as where it ends, in bytes.
pub(super) fn pieces(text: &str, room: usize) -> Vec<usize> {
    let room = room.max(2);
    if text.len() <= room && text.is_ascii() {
        return vec![text.len()];
    }
    let mut ends = Vec::new();
    let mut from = 0;
    let mut taken = 0;
    for (at, character) in text.char_indices() {
        // What joins the character before it, such as a mark for an emoji, may make it wider.
        let columns =
            width(character.encode_utf8(&mut [0; 4])).max(usize::from(!character.is_ascii()));
        if taken + columns > room && at > from {
            ends.push(at);
            from = at;
            taken = 0;
        }
        taken += columns;
    }
    ends.push(text.len());
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Changes {
        let diff = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n one\n-two\n+zwei which is long\n three\n\
                    diff --git a/x.lock b/x.lock\n--- a/x.lock\n+++ b/x.lock\n@@ -1 +1 @@\n-a\n+b\n";
        Changes::parse(diff, "")
    }

    fn shape(is_split: bool) -> RowShape {
        RowShape {
            room: 10,
            is_split,
            heads: 2,
        }
    }

    fn laid_out(is_split: bool, folded: [bool; 2]) -> Layout {
        Layout::new(&changes(), &folded, &[], shape(is_split))
    }

    #[test]
    fn a_line_has_the_rows_that_it_needs_and_a_folded_file_has_one() {
        // Two rows of heading; file, hunk and four lines, one of them in two rows; the other file.
        assert_eq!(laid_out(false, [false, true]).rows.len(), 2 + 2 + 5 + 1);
        assert_eq!(
            laid_out(false, [false, false]).rows.len(),
            2 + 2 + 5 + 1 + 3
        );
        assert_eq!(laid_out(true, [false, true]).rows.len(), 2 + 2 + 4 + 1);
        assert_eq!(pieces("小明小明小", 4), [6, 12, 15]);
        assert_eq!(pieces("", 4), [0]);
    }

    #[test]
    fn what_was_not_on_the_screen_is_found_in_any_layout() {
        let changes = changes();
        let layout = laid_out(false, [false, true]);
        let mut seen = SeenRows::new(&changes, 2);
        assert_eq!(seen.unseen(&layout), Some((0, 9)));
        for row in &layout.rows[..6] {
            seen.mark(*row, &layout);
        }
        // The long line: its first row alone is not enough.
        seen.mark(layout.rows[6], &layout);
        assert_eq!(seen.unseen(&layout), Some((7, 3)));
        for row in &layout.rows[7..] {
            seen.mark(*row, &layout);
        }
        assert_eq!(seen.unseen(&layout), None);
        assert_eq!(seen.unseen(&laid_out(true, [false, true])), None);
        let unfolded = laid_out(true, [false, false]);
        assert_eq!(seen.unseen(&unfolded), Some((9, 2)));
        seen.set_heads(&changes, 3);
        assert_eq!(seen.unseen(&layout), Some((0, 2)));
    }
}
