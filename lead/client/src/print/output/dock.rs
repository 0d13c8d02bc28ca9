//! What stays below all output while a person types: the answer in progress, what the agent does,
//! and the line that is typed. Pure: lines and a size in, rows out.

use teamd_shared::visible::is_hidden;

use super::screen::Layout;
use super::wrap;
use crate::print::table::width;

/// How wide a tab is shown.
const TAB: &str = "    ";

/// What stays below the output.
pub struct Dock {
    /// What is above the prompt. The first lines are left out where the terminal is too low.
    pub above: Layout,
    /// What stands before that.
    pub prompt: String,
    /// What is typed, as it is.
    pub typed: String,
    /// Where the cursor is in what is typed, in bytes.
    pub cursor: usize,
}

/// The rows of a dock on a terminal of one size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DockRows {
    pub(super) rows: Vec<String>,
    /// The row and the column of the cursor.
    pub(super) cursor: (usize, usize),
}

impl Default for Dock {
    fn default() -> Self {
        Self {
            above: Box::new(|_| String::new()),
            prompt: String::new(),
            typed: String::new(),
            cursor: 0,
        }
    }
}

impl Dock {
    /// Lays the dock out.
    pub(super) fn rows(&self, (columns, lines): (usize, usize)) -> DockRows {
        // The last column stays free: some terminals begin a new row behind it at once, and others
        // later.
        let room = columns.max(8) - 1;
        let (typed, cursor) = self.typed_rows(room);
        let most = lines.max(2) - 1;
        let first = (cursor.0 + 1).saturating_sub(most);
        let typed: Vec<String> = typed.into_iter().skip(first).take(most).collect();
        let left = most - typed.len();
        let above = wrap(&(self.above)(room), room);
        let above: Vec<&str> = above.lines().collect();
        let above = above.iter().skip(above.len().saturating_sub(left));
        let mut rows: Vec<String> = above.map(|&line| line.to_owned()).collect();
        let cursor = (rows.len() + cursor.0 - first, cursor.1);
        rows.extend(typed);
        DockRows { rows, cursor }
    }

    fn typed_rows(&self, room: usize) -> (Vec<String>, (usize, usize)) {
        let mut rows = vec![self.prompt.clone()];
        let mut column = width(&self.prompt);
        let mut cursor = None;
        let mut put = |piece: &str, rows: &mut Vec<String>| {
            let wide = width(piece);
            if column + wide > room || piece == "\n" {
                rows.push(String::new());
                column = 0;
            }
            if piece != "\n" {
                if let Some(row) = rows.last_mut() {
                    row.push_str(piece);
                }
                column += wide;
            }
            column
        };
        for (at, c) in self.typed.char_indices() {
            if at == self.cursor {
                cursor = Some((rows.len() - 1, put("", &mut rows)));
            }
            match c {
                '\n' => put("\n", &mut rows),
                '\t' => put(TAB, &mut rows),
                c if is_hidden(c) => put(&c.escape_default().to_string(), &mut rows),
                c => put(c.encode_utf8(&mut [0; 4]), &mut rows),
            };
        }
        let end = put("", &mut rows);
        let cursor = cursor.unwrap_or((rows.len() - 1, end));
        (rows, cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dock(above: &[&str], typed: &str, cursor: usize) -> Dock {
        let above = above.join("\n");
        Dock {
            above: Box::new(move |_| above.clone()),
            prompt: "> ".to_owned(),
            typed: typed.to_owned(),
            cursor,
        }
    }

    #[test]
    fn a_long_line_goes_on_in_the_next_row_and_the_cursor_with_it() {
        let laid = dock(&["thinking"], "abcdefghij", 10).rows((10, 24));
        assert_eq!(laid.rows, ["thinking", "> abcdefg", "hij"]);
        assert_eq!(laid.cursor, (2, 3));
        assert_eq!(dock(&[], "abcdefghij", 1).rows((10, 24)).cursor, (0, 3));
        assert_eq!(dock(&[], "a\nb", 3).rows((10, 24)).rows, ["> a", "b"]);
        // A wide character is never parted.
        assert_eq!(
            dock(&[], "abcdef小", 9).rows((10, 24)).rows,
            ["> abcdef", "小"]
        );
    }

    #[test]
    fn what_is_pasted_moves_no_cursor() {
        let laid = dock(&[], "a\x1b[2J\tb\u{202e}", 0).rows((80, 24));
        assert_eq!(laid.rows, ["> a\\u{1b}[2J    b\\u{202e}"]);
    }

    #[test]
    fn a_low_terminal_shows_the_row_of_the_cursor_and_the_last_lines_above() {
        let laid = dock(&["one", "two"], "abc", 3).rows((20, 3));
        assert_eq!(
            (laid.rows, laid.cursor),
            (vec!["two".to_owned(), "> abc".to_owned()], (1, 5))
        );
        let laid = dock(&["one"], "1\n2\n3\n4", 7).rows((20, 3));
        assert_eq!(
            (laid.rows, laid.cursor),
            (vec!["3".to_owned(), "4".to_owned()], (1, 1))
        );
    }
}
