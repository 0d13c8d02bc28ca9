//! Aligned columns for people. Pure: cells in, text out.

use anstyle::Style;

use super::escape;
use super::style::paint;

/// Between two columns.
const GAP: usize = 2;
/// The narrowest that a column is cut to, in columns of the terminal.
const NARROWEST: usize = 8;

/// The most lines that a cell is wrapped to.
const MOST_LINES: usize = 3;

/// One cell.
#[derive(Debug, Clone)]
pub struct Cell {
    text: String,
    style: Style,
    wraps: bool,
}

impl Cell {
    /// Makes a plain cell of one line, without blanks around it; what a terminal would act on is
    /// escaped.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self::styled(text, Style::new())
    }

    /// Makes a cell with a style.
    pub fn styled(text: impl AsRef<str>, style: Style) -> Self {
        Self {
            text: escape::line(text.as_ref().trim()).into_owned(),
            style,
            wraps: false,
        }
    }

    /// Lets the cell continue below, where it is the last of its row and too long for the line.
    pub fn wrapping(self) -> Self {
        Self {
            wraps: true,
            ..self
        }
    }
}

/// A table whose last column takes what is left of the line, and is cut or wrapped to it.
#[derive(Debug)]
pub struct Table {
    /// A row of one cell is a heading: it takes the whole line.
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Makes a table with these column titles.
    pub fn new(titles: &[&str]) -> Self {
        let dim = Style::new().dimmed();
        Self {
            rows: vec![
                titles
                    .iter()
                    .map(|title| Cell::styled(title, dim))
                    .collect(),
            ],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Returns the columns that each column takes on a terminal.
    pub fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        (0..columns)
            .map(|column| {
                self.rows
                    .iter()
                    .filter(|row| row.len() == columns)
                    .map(|row| width(&row[column].text))
                    .max()
                    .unwrap_or(0)
            })
            .collect()
    }

    /// Keeps the columns with these indices, and the headings.
    pub fn only(&self, columns: &[usize]) -> Self {
        Self {
            rows: self
                .rows
                .iter()
                .map(|row| match row.as_slice() {
                    [heading] => vec![heading.clone()],
                    cells => columns
                        .iter()
                        .filter_map(|&column| cells.get(column))
                        .cloned()
                        .collect(),
                })
                .collect(),
        }
    }

    /// Lays the table out, for a terminal of so many columns; without a terminal nothing is cut.
    pub fn render(&self, terminal: Option<usize>) -> String {
        self.lines(terminal)
            .into_iter()
            .map(|line| line + "\n")
            .collect()
    }

    /// Lays the table out, each row on one line; also returns which rows are headings.
    pub fn cut_lines(mut self, terminal: usize) -> Vec<(String, bool)> {
        for cell in self.rows.iter_mut().flatten() {
            cell.wraps = false;
        }
        let is_heading: Vec<bool> = self.rows.iter().map(|row| row.len() == 1).collect();
        self.lines(Some(terminal))
            .into_iter()
            .zip(is_heading)
            .collect()
    }

    fn lines(&self, terminal: Option<usize>) -> Vec<String> {
        let widths = self.widths();
        let room = terminal.map(|terminal| room(&widths, terminal).max(NARROWEST));
        self.rows
            .iter()
            .map(|row| lay_out(row, &widths, (terminal, room)))
            .collect()
    }
}

/// Returns what is left of a line for the last column.
pub fn room(widths: &[usize], terminal: usize) -> usize {
    let before: usize = widths.iter().rev().skip(1).map(|width| width + GAP).sum();
    terminal.saturating_sub(before)
}

fn lay_out(
    row: &[Cell],
    widths: &[usize],
    (terminal, room): (Option<usize>, Option<usize>),
) -> String {
    let mut line = String::new();
    let mut spaces = 0;
    for (column, cell) in row.iter().enumerate() {
        let last = column + 1 == row.len();
        let room = if row.len() < widths.len() {
            terminal
        } else {
            room
        };
        let shown = match room {
            Some(room) if last && cell.wraps => wrap(&cell.text, room, widths.iter().rev().skip(1)),
            _ if last => cut(&cell.text, room),
            _ => cell.text.clone(),
        };
        if !shown.is_empty() {
            line.extend(std::iter::repeat_n(' ', spaces));
            spaces = 0;
            line.push_str(&paint(cell.style, &shown));
        }
        spaces += widths[column].saturating_sub(width(&shown)) + GAP;
    }
    line
}

/// Wraps the last cell of a row, below the columns before it.
fn wrap<'w>(text: &str, room: usize, before: impl Iterator<Item = &'w usize>) -> String {
    let indent = before.map(|width| width + GAP).sum();
    let mut lines: Vec<_> = textwrap::wrap(&cut(text, Some(room * (MOST_LINES + 1))), room)
        .into_iter()
        .map(std::borrow::Cow::into_owned)
        .collect();
    if lines.len() > MOST_LINES {
        lines.truncate(MOST_LINES);
        let last = lines.pop().unwrap_or_default();
        lines.push(cut(&last, Some(room - 1)).trim_end_matches('…').to_owned() + "…");
    }
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

/// Cuts a text to so many columns, the last of which is then an ellipsis.
pub fn cut(text: &str, room: Option<usize>) -> String {
    let Some(room) = room.filter(|&room| width(text) > room) else {
        return text.to_owned();
    };
    let mut shown = String::new();
    let mut taken = 1;
    for c in text.chars() {
        taken += width(c.encode_utf8(&mut [0; 4]));
        if taken > room {
            break;
        }
        shown.push(c);
    }
    shown + "…"
}

/// Counts the columns that a text takes on a terminal.
pub fn width(text: &str) -> usize {
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
        table.row(
            ["alice", "4242", "cargo test --workspace"]
                .map(Cell::new)
                .to_vec(),
        );
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
