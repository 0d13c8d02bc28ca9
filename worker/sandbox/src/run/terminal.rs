//! What a terminal would show of an output: what a model is given. A line that was written over by
//! a carriage return, a backspace or a cursor that went up is there once, as it was last; colours,
//! titles and other control sequences say nothing to a model.
//!
//! Bytes in, bytes out, in bounded memory: the last [`ROWS`] lines can still be written over. What
//! holds no control character passes as it is.

use std::collections::VecDeque;

use vte::{Params, Parser, Perform};

/// How many lines up a cursor can go.
const ROWS: usize = 100;

/// How long a line may be that can still be written over, in characters; the beginning of a longer
/// one stays as it is.
const LONGEST: usize = 16 << 10;

/// How far to the right a cursor is moved over nothing, in columns.
const WIDTH: usize = 200;

/// Ends whatever control sequence has begun. No line is swallowed because one was never ended.
const CANCEL: u8 = 0x18;

/// The end of an output on a terminal.
#[derive(Default)]
pub(super) struct Terminal {
    parser: Parser,
    rows: Rows,
    /// Whether a part of this line went through the parser, which may be within a control sequence.
    is_parsing: bool,
}

impl Terminal {
    /// Takes the next piece; returns what can no longer be overwritten.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            match piece.strip_suffix(b"\n") {
                Some(line) => {
                    let line = match line.strip_suffix(b"\r") {
                        Some(without) if !self.is_parsing => without,
                        _ => line,
                    };
                    self.line(line);
                    self.end_line();
                }
                None => self.line(piece),
            }
        }
        std::mem::take(&mut self.rows.done)
    }

    /// Returns the rest.
    pub(super) fn finish(mut self) -> Vec<u8> {
        while self.rows.rows.len() > 1 {
            self.rows.settle_first();
        }
        let last = self.rows.rows.pop_front().unwrap_or_default();
        last.write(&mut self.rows.done);
        self.rows.done
    }

    fn line(&mut self, part: &[u8]) {
        let is_plain = part
            .iter()
            .all(|&byte| byte == b'\t' || byte >= b' ' && byte != 0x7f);
        if is_plain && !self.is_parsing && self.rows.append(part) {
            return;
        }
        if !self.is_parsing {
            self.is_parsing = true;
            // It may end within a character.
            let before = self.rows.take_plain();
            self.parser.advance(&mut self.rows, &before);
        }
        self.parser.advance(&mut self.rows, part);
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.is_parsing) {
            self.parser.advance(&mut self.rows, &[CANCEL]);
        }
        self.rows.next_row();
    }
}

/// Shows no text of a user in a debug print.
impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Terminal({} rows)", self.rows.rows.len())
    }
}

/// One line.
#[derive(Debug, Default)]
struct TerminalRow {
    /// All of it, as long as it holds no control character.
    plain: Vec<u8>,
    /// Else its characters.
    cells: Vec<char>,
    /// Whether something has taken the place of another.
    is_changed: bool,
}

impl TerminalRow {
    fn write(self, into: &mut Vec<u8>) {
        into.extend(self.plain);
        let text: String = self.cells.into_iter().collect();
        // What a shorter text is padded with to hide the one before.
        let shown = if self.is_changed {
            text.trim_end_matches(' ')
        } else {
            &text
        };
        into.extend(shown.as_bytes());
    }

    /// Makes characters of it.
    fn part(&mut self) -> &mut Self {
        if !self.plain.is_empty() {
            self.cells = String::from_utf8_lossy(&self.plain).chars().collect();
            self.plain = Vec::new();
        }
        self
    }
}

/// The lines that can be written over, and the cursor.
struct Rows {
    /// Never empty.
    rows: VecDeque<TerminalRow>,
    /// The line of the cursor, among them.
    at: usize,
    column: usize,
    /// Whether the cursor is behind all that its line holds, and no line is below: nothing has
    /// moved it.
    is_behind: bool,
    /// How many lines are done.
    settled: usize,
    done: Vec<u8>,
    /// Where the cursor was saved: the line, counted from the first of all, and the column.
    saved: Option<(usize, usize)>,
}

impl Default for Rows {
    fn default() -> Self {
        let rows = VecDeque::from([TerminalRow::default()]);
        Self {
            rows,
            at: 0,
            column: 0,
            is_behind: true,
            settled: 0,
            done: Vec::new(),
            saved: None,
        }
    }
}

impl Rows {
    /// Appends bytes without a control character, if the cursor is behind everything.
    fn append(&mut self, part: &[u8]) -> bool {
        if !self.is_behind {
            return false;
        }
        let Some(row) = self.rows.back_mut() else {
            return false;
        };
        row.plain.extend_from_slice(part);
        if row.plain.len() > LONGEST {
            let long = std::mem::take(&mut row.plain);
            self.settle_above();
            self.done.extend(long);
        }
        true
    }

    /// Takes the bytes of the line of the cursor out that went through no parser.
    fn take_plain(&mut self) -> Vec<u8> {
        let row = if self.is_behind {
            self.rows.back_mut()
        } else {
            None
        };
        row.map(|row| std::mem::take(&mut row.plain))
            .unwrap_or_default()
    }

    fn next_row(&mut self) {
        self.column = 0;
        self.at += 1;
        self.is_behind = self.at == self.rows.len();
        if self.is_behind {
            self.rows.push_back(TerminalRow::default());
        }
        if self.rows.len() > ROWS {
            self.settle_first();
        }
    }

    fn settle_first(&mut self) {
        if let Some(row) = self.rows.pop_front() {
            row.write(&mut self.done);
            self.done.push(b'\n');
            self.settled += 1;
            self.at = self.at.saturating_sub(1);
        }
    }

    /// Settles all lines above that of the cursor.
    fn settle_above(&mut self) {
        while self.at > 0 {
            self.settle_first();
        }
    }

    /// Returns the line of the cursor.
    fn row(&mut self) -> &mut TerminalRow {
        self.is_behind = false;
        self.rows[self.at].part()
    }

    fn up(&mut self, lines: usize) {
        self.at = self.at.saturating_sub(lines);
    }

    fn down(&mut self, lines: usize) {
        self.at = self.at.saturating_add(lines).min(self.rows.len() - 1);
    }

    /// Erases in the line of the cursor: behind it, before it, or all.
    fn erase(&mut self, which: usize) {
        let column = self.column;
        let row = self.row();
        row.is_changed = true;
        match which {
            0 => row.cells.truncate(column),
            1 => {
                for cell in row.cells.iter_mut().take(column + 1) {
                    *cell = ' ';
                }
            }
            2 => row.cells.clear(),
            _ => {}
        }
    }

    fn save(&mut self) {
        self.saved = Some((self.settled + self.at, self.column));
    }

    fn restore(&mut self) {
        if let Some((row, column)) = self.saved {
            self.at = row.saturating_sub(self.settled).min(self.rows.len() - 1);
            self.column = column;
        }
    }
}

impl Perform for Rows {
    fn print(&mut self, shown: char) {
        let column = self.column;
        let row = self.row();
        if let Some(cell) = row.cells.get_mut(column) {
            *cell = shown;
            row.is_changed = true;
        } else {
            row.cells.resize(column, ' ');
            row.cells.push(shown);
        }
        self.column += 1;
        if self.column > LONGEST {
            self.settle_above();
            std::mem::take(&mut self.rows[0]).write(&mut self.done);
            self.column = 0;
        }
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\r' => self.column = 0,
            b'\x08' => self.column = self.column.saturating_sub(1),
            b'\t' => self.print('\t'),
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], _ignore: bool, action: char) {
        if !intermediates.is_empty() {
            return;
        }
        let first = params
            .iter()
            .next()
            .and_then(|param| param.first().copied())
            .unwrap_or(0);
        let first = usize::from(first);
        let count = first.max(1);
        match action {
            'A' => self.up(count),
            'B' => self.down(count),
            'C' => self.column = (self.column + count).min(self.column.max(WIDTH)),
            'D' => self.column = self.column.saturating_sub(count),
            'E' => {
                self.down(count);
                self.column = 0;
            }
            'F' => {
                self.up(count);
                self.column = 0;
            }
            'G' => self.column = (count - 1).min(WIDTH),
            'J' if first == 0 => {
                self.erase(0);
                self.rows.truncate(self.at + 1);
            }
            'K' => self.erase(first),
            's' => self.save(),
            'u' => self.restore(),
            _ => {}
        }
    }

    fn esc_dispatch(&mut self, intermediates: &[u8], _ignore: bool, byte: u8) {
        match (intermediates, byte) {
            ([], b'7') => self.save(),
            ([], b'8') => self.restore(),
            ([], b'M') => self.up(1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown_in(pieces: &[&[u8]]) -> Vec<u8> {
        let mut terminal = Terminal::default();
        let mut shown = Vec::new();
        for piece in pieces {
            shown.extend(terminal.push(piece));
        }
        shown.extend(terminal.finish());
        shown
    }

    fn shown(output: &str) -> String {
        String::from_utf8(shown_in(&[output.as_bytes()])).unwrap()
    }

    #[test]
    fn of_a_progress_bar_the_last_state_is_shown() {
        let bar: String = (0..400)
            .map(|step| format!("\rReceiving: {step:3}%\x1b[K"))
            .collect();
        assert_eq!(
            shown(&format!("{bar}, done.\nnext\n")),
            "Receiving: 399%, done.\nnext\n"
        );
        assert_eq!(
            shown("long text\rdone     \nx"),
            "done\nx",
            "padded to hide what was there"
        );
        assert_eq!(shown("abc\rX\n"), "Xbc\n");
        assert_eq!(
            shown("10%\x08\x08\x0820%\x08\x08\x08\x08\x08done\n"),
            "done\n"
        );
        assert_eq!(
            shown("working |\x08/\x08-\x08\\\x08 \x08ok\n"),
            "working ok\n"
        );
        assert_eq!(shown("one\x1b[2K\rtwo\n"), "two\n");
        assert_eq!(shown("one\x1b[1Gtwo\n"), "two\n");
    }

    #[test]
    fn lines_that_are_drawn_again_are_shown_once() {
        let mut output = "pulling\na: 0\nb: 0\n".to_owned();
        for step in 1..50 {
            output.push_str(&format!(
                "\x1b[2A\r\x1b[2Ka: {step}\x1b[1B\r\x1b[2Kb: {step}\x1b[1B\r"
            ));
        }
        assert_eq!(shown(&output), "pulling\na: 49\nb: 49\n");
        let redrawn = "x\ny\nz\n\x1b[3A\x1b[J1\n2\n";
        assert_eq!(shown(redrawn), "1\n2\n");
        assert_eq!(shown("a\n\x1b7b\nc\n\x1b8B\n"), "a\nB\nc\n");
    }

    #[test]
    fn control_sequences_are_not_shown() {
        assert_eq!(shown("\x1b[31mred\x1b[0m done \n"), "red done \n");
        assert_eq!(shown("\x1b]0;title\x07text\n"), "text\n");
        assert_eq!(
            shown("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n"),
            "link\n"
        );
        assert_eq!(
            shown("\x1bP1$r0m\x1b\\a\x1b(Bb\x1b[?25lc\x1b[?2004h\n"),
            "abc\n"
        );
        assert_eq!(shown("bell\x07 null\0.\n"), "bell null.\n");
        assert_eq!(
            shown("\x1b]0;never ended\nnext\n"),
            "\nnext\n",
            "one line at most is lost"
        );
        assert_eq!(shown("\x1b[31"), "");
    }

    #[test]
    fn what_holds_no_control_character_stays_as_it_is() {
        for plain in [
            "",
            "\n",
            "a",
            "a\n\n\nb",
            "\ta\t \n  b  \n",
            "ä→😀\n",
            "\n\n",
        ] {
            assert_eq!(shown(plain), plain, "{plain:?}");
        }
        assert_eq!(shown("a\r\nb\r\n"), "a\nb\n");
        assert_eq!(shown_in(&[b"a\xff\xe2\x86b\n"]), b"a\xff\xe2\x86b\n");
        let many: String = (0..10_000).map(|line| format!("{line}\n")).collect();
        assert_eq!(shown(&many), many);
        let long = format!("{}\nend\n", "x".repeat(5 * LONGEST));
        assert_eq!(shown(&long), long);
        let red = format!("a\n\x1b[31m{}\x1b[0m\nend\n", "x".repeat(5 * LONGEST));
        assert_eq!(
            shown(&red),
            format!("a\n{}\nend\n", "x".repeat(5 * LONGEST))
        );
    }

    #[test]
    fn a_flood_needs_little_memory() {
        let mut terminal = Terminal::default();
        let mut largest = 0;
        for piece in [
            "\r\x1b[32m#".repeat(9000),
            "y\n".repeat(30_000),
            "\x1b]0;".repeat(9000),
            "z".repeat(60_000),
        ] {
            for _ in 0..20 {
                terminal.push(piece.as_bytes());
                largest = largest.max(
                    terminal
                        .rows
                        .rows
                        .iter()
                        .map(|row| row.plain.len() + row.cells.len())
                        .sum(),
                );
            }
        }
        assert!(largest <= ROWS * (LONGEST + (64 << 10)), "{largest}");
        assert!(terminal.rows.rows.len() <= ROWS);
    }

    proptest! {
        #[test]
        fn how_an_output_is_cut_into_pieces_makes_no_difference(
            parts in prop::collection::vec(prop_oneof![
                Just("\r"), Just("\n"), Just("\x1b[K"), Just("\x1b[2A"), Just("\x1b[31m"), Just("\x1b]0;t\x07"),
                Just("ä→"), Just("text"), Just("\x08"), Just("\t"), Just("\x1b["), Just("\x1b7"), Just("\x1b8"),
            ], 0..40),
            size in 1_usize..7,
        ) {
            let output = parts.concat();
            let pieces: Vec<&[u8]> = output.as_bytes().chunks(size).collect();
            prop_assert_eq!(String::from_utf8(shown_in(&pieces)), String::from_utf8(shown_in(&[output.as_bytes()])));
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..400), size in 1_usize..50) {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            let shown = shown_in(&pieces);
            prop_assert!(!shown.contains(&0x1b) && !shown.contains(&b'\r'));
        }
    }
}
