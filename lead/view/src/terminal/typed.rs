//! A text that is typed, as rows of the screen with the cursor in them.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::text::Text;
use ratatui_textarea::TextArea;
use teamd_shared::visible::is_hidden;

use super::text::row;
use teamd_client::print::table::width;

/// How wide a tab is shown.
const TAB: &str = "    ";

/// A typed text on a screen of some width.
#[derive(Debug)]
pub(crate) struct TypedRows {
    rows: Vec<String>,
    /// The columns that the last row has taken.
    taken: usize,
    /// The columns that a row may take.
    room: usize,
    cursor: (usize, usize),
}

impl TypedRows {
    /// Lays a text out behind a prompt. What a person cannot see of the text is escaped.
    pub(crate) fn of(prompt: &str, area: &TextArea<'_>, columns: usize) -> Self {
        let mut laid_out = Self {
            rows: vec![prompt.to_owned()],
            taken: width(prompt),
            // The last column stays free for the cursor.
            room: columns.saturating_sub(1),
            cursor: (0, 0),
        };
        let cursor = (area.cursor().0, area.cursor().1);
        for (number, line) in area.lines().iter().enumerate() {
            if number > 0 {
                laid_out.begin_row();
            }
            for (at, character) in line.chars().enumerate() {
                if cursor == (number, at) {
                    laid_out.mark_cursor();
                }
                laid_out.push(character);
            }
            if cursor == (number, line.chars().count()) {
                laid_out.mark_cursor();
            }
        }
        laid_out
    }

    /// Returns how many rows there are.
    pub(crate) fn count(&self) -> usize {
        self.rows.len()
    }

    /// Draws the rows around the cursor.
    pub(crate) fn draw(&self, frame: &mut Frame<'_>, area: Rect) {
        if area.is_empty() {
            return;
        }
        let height = usize::from(area.height);
        let first = (self.cursor.0 + 1).saturating_sub(height);
        let shown = self.rows.iter().skip(first).take(height);
        frame.render_widget(Text::from_iter(shown.map(|text| row(text))), area);
        let [line, column] =
            [self.cursor.0 - first, self.cursor.1].map(|at| u16::try_from(at).unwrap_or(u16::MAX));
        let at = Position::new(area.x.saturating_add(column), area.y.saturating_add(line));
        if area.contains(at) {
            frame.set_cursor_position(at);
        }
    }

    fn push(&mut self, character: char) {
        if character == '\t' {
            self.push_str(TAB);
        } else if is_hidden(character) {
            self.push_str(&character.escape_default().to_string());
        } else {
            self.push_str(character.encode_utf8(&mut [0; 4]));
        }
    }

    fn push_str(&mut self, text: &str) {
        let columns = width(text);
        if self.taken + columns > self.room {
            self.begin_row();
        }
        if let Some(last) = self.rows.last_mut() {
            last.push_str(text);
        }
        self.taken += columns;
    }

    fn begin_row(&mut self) {
        self.rows.push(String::new());
        self.taken = 0;
    }

    fn mark_cursor(&mut self) {
        self.cursor = (self.rows.len() - 1, self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui_textarea::CursorMove;

    fn laid_out(typed: &str, columns: usize) -> TypedRows {
        let mut area: TextArea<'_> = typed.lines().map(str::to_owned).collect();
        area.move_cursor(CursorMove::Bottom);
        area.move_cursor(CursorMove::End);
        TypedRows::of("> ", &area, columns)
    }

    #[test]
    fn a_long_line_goes_on_in_the_next_row_and_the_cursor_with_it() {
        let typed = laid_out("abcdefghij", 10);
        assert_eq!(typed.rows, ["> abcdefg", "hij"]);
        assert_eq!(typed.cursor, (1, 3));
        assert_eq!(laid_out("a\nb", 10).rows, ["> a", "b"]);
        // A wide character is never parted.
        assert_eq!(laid_out("abcdef小", 10).rows, ["> abcdef", "小"]);
        assert_eq!(laid_out("", 10).cursor, (0, 2));
    }

    #[test]
    fn what_is_pasted_moves_no_cursor() {
        let typed = laid_out("a\x1b[2J\tb\u{202e}", 80);
        assert_eq!(typed.rows, ["> a\\u{1b}[2J    b\\u{202e}"]);
    }
}
