//! The line that a person types: what each key does to it. Pure but for the history, which is a
//! file of the user.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use rustyline::history::{History as _, SearchDirection};
use rustyline::line_buffer::{ChangeListener, DeleteListener, Direction, LineBuffer};
use rustyline::{At, Movement, Word};

use super::history::LineHistory;

/// What a key means beside a change of the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::chat) enum Pressed {
    /// It changed the line, or nothing.
    Edited,
    /// The line is to be read: Enter.
    Line(String),
    /// Tab.
    Complete,
    /// Ctrl-C.
    Interrupt,
    /// Esc.
    Escape,
    /// Ctrl-D on an empty line.
    End,
    /// Ctrl-Z.
    Suspend,
    /// Ctrl-L.
    Clear,
}

/// The line.
pub(in crate::chat) struct Line {
    buffer: LineBuffer,
    pub(in crate::chat) history: LineHistory,
    /// The line of the history that is shown, and what was typed before.
    past: Option<(usize, String)>,
    /// What is searched in the history: Ctrl-R.
    search: Option<String>,
    killed: Killed,
}

/// What was deleted last by more than a character.
#[derive(Default)]
struct Killed {
    text: String,
    collects: bool,
}

impl DeleteListener for Killed {
    fn start_killing(&mut self) {
        self.collects = true;
        self.text = String::new();
    }
    fn delete(&mut self, _: usize, text: &str, direction: Direction) {
        match direction {
            Direction::Forward if self.collects => self.text.push_str(text),
            Direction::Backward if self.collects => self.text.insert_str(0, text),
            _ => {}
        }
    }
    fn stop_killing(&mut self) {
        self.collects = false;
    }
}

impl ChangeListener for Killed {
    fn insert_char(&mut self, _: usize, _: char) {}
    fn insert_str(&mut self, _: usize, _: &str) {}
    fn replace(&mut self, _: usize, _: &str, _: &str) {}
}

impl Line {
    /// Begins an empty line.
    pub(in crate::chat) fn new(history: LineHistory) -> Self {
        Self {
            buffer: LineBuffer::with_capacity(1),
            history,
            past: None,
            search: None,
            killed: Killed::default(),
        }
    }

    /// Returns what is typed.
    pub(in crate::chat) fn text(&self) -> &str {
        self.buffer.as_str()
    }

    /// Returns where the cursor is, in bytes.
    pub(in crate::chat) fn cursor(&self) -> usize {
        self.buffer.pos()
    }

    /// Returns what is searched in the history.
    pub(in crate::chat) fn search(&self) -> Option<&str> {
        self.search.as_deref()
    }

    /// Replaces what is typed; the cursor is at its end.
    pub(in crate::chat) fn set(&mut self, text: &str) {
        self.put(text, text.len());
    }

    /// Inserts a text at the cursor.
    pub(in crate::chat) fn insert(&mut self, text: &str) {
        self.complete(self.cursor(), text);
    }

    /// Replaces what is typed between `start` and the cursor.
    pub(in crate::chat) fn complete(&mut self, start: usize, text: &str) {
        let before = &self.text()[..start];
        let behind = &self.text()[self.cursor()..];
        let all = format!("{before}{text}{behind}");
        self.put(&all, start + text.len());
    }

    fn put(&mut self, text: &str, cursor: usize) {
        // A buffer never grows beyond its room.
        self.buffer = LineBuffer::with_capacity(text.len() + 1);
        self.buffer.update(text, cursor, &mut self.killed);
    }

    /// Tells whether a key with Alt is Esc and the key: a terminal sends the same for both. With
    /// Alt alone a key does something to a line that is there.
    pub(in crate::chat) fn is_escape_and_key(&self, key: &KeyEvent) -> bool {
        let edits = matches!(
            key.code,
            KeyCode::Enter | KeyCode::Backspace | KeyCode::Char('b' | 'd' | 'f')
        );
        key.modifiers.contains(KeyModifiers::ALT) && (self.text().is_empty() || !edits)
    }

    /// Takes a key.
    pub(in crate::chat) fn press(&mut self, key: KeyEvent) -> Pressed {
        let [control, alt] =
            [KeyModifiers::CONTROL, KeyModifiers::ALT].map(|it| key.modifiers.contains(it));
        if self.search.is_some() && self.press_in_search(key, control) {
            return Pressed::Edited;
        }
        match key.code {
            KeyCode::Char(c) if control => return self.press_control(c),
            KeyCode::Char('b') if alt => self.word_back(),
            KeyCode::Char('f') if alt => self.word_on(),
            KeyCode::Char('d') if alt => {
                self.kill(&Movement::ForwardWord(1, At::AfterEnd, Word::Emacs))
            }
            KeyCode::Enter if alt => self.insert("\n"),
            KeyCode::Enter => return self.enter(),
            KeyCode::Tab => return Pressed::Complete,
            KeyCode::Esc => return Pressed::Escape,
            KeyCode::Backspace if alt => self.kill(&Movement::BackwardWord(1, Word::Emacs)),
            KeyCode::Backspace => drop(self.buffer.backspace(1, &mut self.killed)),
            KeyCode::Delete => drop(self.buffer.delete(1, &mut self.killed)),
            KeyCode::Left if control => self.word_back(),
            KeyCode::Right if control => self.word_on(),
            KeyCode::Left => drop(self.buffer.move_backward(1)),
            KeyCode::Right => drop(self.buffer.move_forward(1)),
            KeyCode::Home => drop(self.buffer.move_home()),
            KeyCode::End => drop(self.buffer.move_end()),
            KeyCode::Up => self.walk(false),
            KeyCode::Down => self.walk(true),
            KeyCode::Char(c) => self.insert(c.encode_utf8(&mut [0; 4])),
            _ => {}
        }
        Pressed::Edited
    }

    fn press_control(&mut self, c: char) -> Pressed {
        match c {
            'c' => return Pressed::Interrupt,
            'd' if self.text().is_empty() => return Pressed::End,
            'z' => return Pressed::Suspend,
            'l' => return Pressed::Clear,
            'i' => return Pressed::Complete,
            'm' => return self.enter(),
            'j' => self.insert("\n"),
            'a' => drop(self.buffer.move_home()),
            'e' => drop(self.buffer.move_end()),
            'b' => drop(self.buffer.move_backward(1)),
            'f' => drop(self.buffer.move_forward(1)),
            'd' => drop(self.buffer.delete(1, &mut self.killed)),
            'h' => drop(self.buffer.backspace(1, &mut self.killed)),
            'k' => self.kill(&Movement::EndOfLine),
            'u' => self.kill(&Movement::BeginningOfLine),
            'w' => self.kill(&Movement::BackwardWord(1, Word::Big)),
            't' => drop(self.buffer.transpose_chars(&mut self.killed)),
            'y' => self.insert(&self.killed.text.clone()),
            'p' => self.walk(false),
            'n' => self.walk(true),
            'r' => self.search = Some(String::new()),
            _ => {}
        }
        Pressed::Edited
    }

    /// Takes a key while the history is searched. Returns whether it is done with.
    fn press_in_search(&mut self, key: KeyEvent, control: bool) -> bool {
        let wanted = self.search.take().unwrap_or_default();
        let mut before = self.history.lines.len();
        let wanted = match key.code {
            KeyCode::Char('r') if control => {
                before = self.past.as_ref().map_or(before, |(at, _)| *at);
                wanted
            }
            KeyCode::Char(c) if !control => format!("{wanted}{c}"),
            KeyCode::Backspace => wanted
                .chars()
                .take(wanted.chars().count().saturating_sub(1))
                .collect(),
            KeyCode::Esc => return true,
            // The line that was found is edited, or sent.
            _ => return false,
        };
        let found = before.checked_sub(1).and_then(|from| {
            self.history
                .lines
                .search(&wanted, from, SearchDirection::Reverse)
                .ok()
                .flatten()
        });
        if let Some(found) = found {
            let at = found.idx;
            let entry = found.entry.into_owned();
            self.show_past(at, &entry);
        }
        self.search = Some(wanted);
        true
    }

    /// Ends the line, or continues it in the next one: behind a backslash that is not escaped.
    fn enter(&mut self) -> Pressed {
        let text = self.text().to_owned();
        if text.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1 {
            self.set(&format!("{}\n", &text[..text.len() - 1]));
            return Pressed::Edited;
        }
        self.past = None;
        self.set("");
        Pressed::Line(text)
    }

    /// Shows the line before or behind in the history; behind the last one what was typed before.
    fn walk(&mut self, on: bool) {
        let length = self.history.lines.len();
        let at = self.past.as_ref().map_or(length, |(at, _)| *at);
        let next = if on { at + 1 } else { at.wrapping_sub(1) };
        if next == length
            && let Some((_, typed)) = self.past.take()
        {
            return self.set(&typed);
        }
        let entry = self
            .history
            .lines
            .get(next, SearchDirection::Forward)
            .ok()
            .flatten();
        if next < length
            && let Some(entry) = entry.map(|found| found.entry.into_owned())
        {
            self.show_past(next, &entry);
        }
    }

    fn show_past(&mut self, at: usize, entry: &str) {
        let typed = self
            .past
            .take()
            .map_or_else(|| self.text().to_owned(), |(_, typed)| typed);
        self.past = Some((at, typed));
        self.set(entry);
    }

    fn kill(&mut self, movement: &Movement) {
        self.buffer.kill(movement, &mut self.killed);
    }

    fn word_back(&mut self) {
        self.buffer.move_to_prev_word(Word::Emacs, 1);
    }

    fn word_on(&mut self) {
        self.buffer.move_to_next_word(At::AfterEnd, Word::Emacs, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(entries: &[&str]) -> Line {
        let mut history = LineHistory::default();
        for entry in entries.iter() {
            history.add(entry).unwrap();
        }
        Line::new(history)
    }

    fn key(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    fn control(c: char) -> KeyEvent {
        KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)
    }

    fn typed(line: &mut Line, text: &str) {
        for c in text.chars() {
            drop(line.press(key(KeyCode::Char(c))));
        }
    }

    #[test]
    fn keys_edit_the_line_at_the_cursor() {
        let mut line = line(&[]);
        typed(&mut line, "one two three");
        line.press(control('w'));
        assert_eq!(line.text(), "one two ");
        line.press(control('a'));
        line.press(control('y'));
        assert_eq!((line.text(), line.cursor()), ("threeone two ", 5));
        line.press(control('k'));
        line.press(key(KeyCode::Backspace));
        line.press(key(KeyCode::Left));
        line.insert("é");
        assert_eq!((line.text(), line.cursor()), ("thrée", 5));
        assert_eq!(line.press(control('d')), Pressed::Edited);
        assert_eq!(
            line.press(key(KeyCode::Enter)),
            Pressed::Line("thré".to_owned())
        );
        assert_eq!(line.press(control('d')), Pressed::End);
        line.insert(&"x".repeat(100_000));
        assert_eq!(line.text().len(), 100_000, "a paste is taken whole");
    }

    #[test]
    fn alt_edits_a_line_and_is_esc_where_there_is_nothing_to_edit() {
        let mut line = line(&[]);
        let alt = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::ALT);
        assert!(
            line.is_escape_and_key(&alt('b')) && !line.is_escape_and_key(&key(KeyCode::Char('b')))
        );
        typed(&mut line, "one two");
        assert!(line.is_escape_and_key(&alt('x')) && !line.is_escape_and_key(&alt('b')));
        line.press(alt('b'));
        line.press(alt('d'));
        assert_eq!(line.text(), "one ");
    }

    #[test]
    fn a_backslash_at_the_end_continues_the_line() {
        for (text, sent) in [
            ("one\\\\", true),
            ("", true),
            ("one \\", false),
            ("\\\\\\", false),
        ] {
            let mut line = line(&[]);
            typed(&mut line, text);
            assert_eq!(
                matches!(line.press(key(KeyCode::Enter)), Pressed::Line(_)),
                sent,
                "{text}"
            );
        }
        let mut line = line(&[]);
        typed(&mut line, "one\\");
        line.press(key(KeyCode::Enter));
        typed(&mut line, "two");
        assert_eq!(
            line.press(key(KeyCode::Enter)),
            Pressed::Line("one\ntwo".to_owned())
        );
    }

    #[test]
    fn the_history_is_walked_and_searched_and_the_draft_comes_back() {
        let mut line = line(&["make test", "make", "ls"]);
        typed(&mut line, "dra");
        line.press(key(KeyCode::Up));
        line.press(key(KeyCode::Up));
        line.press(key(KeyCode::Up));
        line.press(key(KeyCode::Up));
        assert_eq!(line.text(), "make test");
        for _ in 0..4 {
            line.press(key(KeyCode::Down));
        }
        assert_eq!(line.text(), "dra");
        line.press(control('r'));
        typed(&mut line, "make");
        assert_eq!((line.text(), line.search()), ("make", Some("make")));
        line.press(control('r'));
        assert_eq!(line.text(), "make test");
        assert_eq!(
            line.press(key(KeyCode::Enter)),
            Pressed::Line("make test".to_owned())
        );
        assert_eq!(line.search(), None);
    }
}
