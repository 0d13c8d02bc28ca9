//! Aligned columns for people. Pure: cells in, text out.

use anstyle::Style;

use super::escape;
use super::output::paint;

/// Between two columns.
const GAP: usize = 2;
/// The narrowest that a column is cut to, in columns of the terminal.
const NARROWEST: usize = 8;

/// One cell.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// Makes a plain cell of one line, without blanks around it; what a terminal would act on is escaped.
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self::styled(text, Style::new())
    }

    /// Makes a cell with a style.
    pub(crate) fn styled(text: impl AsRef<str>, style: Style) -> Self {
        Self { text: escape::line(text.as_ref().trim()).into_owned(), style }
    }
}

/// A table whose last column takes what is left of the line, and is cut to it.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Makes a table with these column titles.
    pub(crate) fn new(titles: &[&str]) -> Self {
        let dim = Style::new().dimmed();
        Self { rows: vec![titles.iter().map(|title| Cell::styled(title, dim)).collect()] }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Lays the table out, for a terminal of so many columns; without a terminal nothing is cut.
    pub(crate) fn render(&self, terminal: Option<usize>) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| width(&cell.text)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(widest).collect();
        let before_last: usize = widths.iter().take(columns.saturating_sub(1)).map(|width| width + GAP).sum();
        let room = terminal.map(|terminal| terminal.saturating_sub(before_last).max(NARROWEST));
        let mut text = String::new();
        for row in &self.rows {
            let mut spaces = 0;
            for (column, cell) in row.iter().enumerate() {
                let last = column + 1 == columns;
                let shown = if last { cut(&cell.text, room) } else { cell.text.clone() };
                if !shown.is_empty() {
                    text.extend(std::iter::repeat_n(' ', spaces));
                    spaces = 0;
                    text.push_str(&paint(cell.style, &shown));
                }
                spaces += widths[column].saturating_sub(width(&shown)) + GAP;
            }
            text.push('\n');
        }
        text
    }
}

/// Cuts a text to so many columns, the last of which is then an ellipsis.
pub(crate) fn cut(text: &str, room: Option<usize>) -> String {
    let Some(room) = room.filter(|&room| width(text) > room) else { return text.to_owned() };
    let mut shown = String::new();
    for c in text.chars() {
        shown.push(c);
        if width(&shown) + 1 > room {
            shown.pop();
            break;
        }
    }
    shown + "…"
}

/// Counts the columns that a text takes on a terminal.
pub(crate) fn width(text: &str) -> usize {
    textwrap::core::display_width(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(table: &Table, terminal: Option<usize>) -> String {
        anstream::adapter::strip_str(&table.render(terminal)).to_string()
    }

    fn table() -> Table {
        let mut table = Table::new(&["NAME", "PID", "DOING"]);
        table.row(["alice", "4242", "cargo test --workspace"].map(Cell::new).to_vec());
        table.row(["bo", "", ""].map(Cell::new).to_vec());
        table.row(["小明", "7", "読む\n全部"].map(Cell::new).to_vec());
        table
    }

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_blanks() {
        insta::assert_snapshot!(plain(&table(), None), @r"
        NAME   PID   DOING
        alice  4242  cargo test --workspace
        bo
        小明   7     読む\n全部
        ");
    }

    #[test]
    fn the_last_column_is_cut_to_the_terminal() {
        insta::assert_snapshot!(plain(&table(), Some(24)), @r"
        NAME   PID   DOING
        alice  4242  cargo test…
        bo
        小明   7     読む\n全部
        ");
        for line in plain(&table(), Some(24)).lines() {
            assert!(width(line) <= 24, "{line}");
        }
    }

    #[test]
    fn a_wide_character_is_never_parted_by_a_cut() {
        assert_eq!(cut("読む", Some(4)), "読む");
        assert_eq!(cut("読む全部", Some(4)), "読…");
        assert_eq!(cut("abc", None), "abc");
    }
}
