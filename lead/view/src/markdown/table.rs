//! A table of Markdown: columns where they fit, else each row as a list of its cells.

use comfy_table::{ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle, Width};
use teamd_client::print::output::wrap;
use teamd_client::print::render::BOLD;
use teamd_client::print::style::paint;
use teamd_client::print::table::width;

/// What a column takes beside its cells.
const PADDING: usize = 2;
/// The longest word that is never parted in a cell.
const WORD: usize = 24;

/// Lays rows out, the first of which are the titles.
pub(super) fn lay_out(rows: Vec<Vec<String>>, columns: usize) -> String {
    let least = widest(&rows, longest_word);
    let whole = widest(&rows, width);
    if least.iter().sum::<usize>() > columns {
        return wrap(&records(&rows), columns);
    }
    let line = LineStyle::none().fill('─').junction('─');
    let style = TableStyle::new().header_separator(line);
    let fits = whole.iter().sum::<usize>() <= columns;
    let mut rows = rows.into_iter();
    let mut table = Table::new();
    table
        // A line separates rows that have several lines.
        .load_style(if fits {
            style
        } else {
            style.row_separator(line)
        })
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(narrow(columns))
        .set_header(rows.next().unwrap_or_default())
        .add_rows(rows)
        .set_constraints(
            least
                .into_iter()
                .map(|width| ColumnConstraint::LowerBoundary(Width::Fixed(narrow(width)))),
        );
    table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

/// Returns the columns that each column of a table takes, by the measure of its cells.
fn widest(rows: &[Vec<String>], measure: fn(&str) -> usize) -> Vec<usize> {
    let mut widths = Vec::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            let needed = measure(cell) + PADDING;
            match widths.get_mut(column) {
                Some(width) => *width = needed.max(*width),
                None => widths.push(needed),
            }
        }
    }
    widths
}

/// Shows each row as a list of its cells.
fn records(rows: &[Vec<String>]) -> String {
    let Some((titles, rows)) = rows.split_first() else {
        return String::new();
    };
    rows.iter()
        .map(|row| {
            titles
                .iter()
                .zip(row)
                .map(|(title, cell)| {
                    if cell.is_empty() {
                        String::new()
                    } else {
                        format!("{}: {cell}\n", paint(BOLD, title))
                    }
                })
                .collect::<String>()
        })
        .collect::<Vec<_>>()
        .join("\n")
}

fn longest_word(cell: &str) -> usize {
    cell.split_whitespace()
        .map(width)
        .max()
        .unwrap_or(0)
        .min(WORD)
}

fn narrow(width: usize) -> u16 {
    u16::try_from(width).unwrap_or(u16::MAX)
}
