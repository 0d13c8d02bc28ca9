//! The line that a person types: what each key does to it. Pure but for the history, which is a
//! file of the user.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui_textarea::{CursorMove, TextArea};

use super::history::LineHistory;
use crate::terminal::{Motion, edit, paste};

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
    /// Ctrl-G.
    Help,
    /// Ctrl-O: show the results of tools in full, or no longer.
    Unfold,
    /// Show what was before, or what is behind.
    Scroll(Motion),
}

/// The line.
#[derive(Debug)]
pub(in crate::chat) struct PromptLine {
    area: TextArea<'static>,
    pub(in crate::chat) history: LineHistory,
    /// The line of the history that is shown, and what was typed before.
    past: Option<(usize, String)>,
    /// What is searched in the history: Ctrl-R.
    search: Option<String>,
}

impl PromptLine {
    /// Begins an empty line.
    pub(in crate::chat) fn new(history: LineHistory) -> Self {
        Self {
            area: TextArea::default(),
            history,
            past: None,
            search: None,
        }
    }

    /// Returns what is typed, with the cursor in it.
    pub(in crate::chat) fn area(&self) -> &TextArea<'static> {
        &self.area
    }

    /// Returns what is typed.
    pub(in crate::chat) fn text(&self) -> String {
        self.area.lines().join("\n")
    }

    /// Tells whether nothing is typed.
    pub(in crate::chat) fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    /// Returns what is typed before the cursor.
    pub(in crate::chat) fn text_before_cursor(&self) -> String {
        let cursor = self.area.cursor();
        let mut before = self.area.lines()[..cursor.0].join("\n");
        if cursor.0 > 0 {
            before.push('\n');
        }
        before.extend(self.area.lines()[cursor.0].chars().take(cursor.1));
        before
    }

    /// Returns what is searched in the history.
    pub(in crate::chat) fn search(&self) -> Option<&str> {
        self.search.as_deref()
    }

    /// Replaces what is typed; the cursor is at its end.
    pub(in crate::chat) fn set(&mut self, text: &str) {
        self.area.select_all();
        self.area.delete_char();
        self.area.insert_str(text);
    }

    /// Inserts a text at the cursor.
    pub(in crate::chat) fn insert(&mut self, text: &str) {
        paste(&mut self.area, text);
    }

    /// Tells whether a key with Alt is Esc and the key: a terminal sends the same for both. With
    /// Alt alone a key does something to a line that is there.
    pub(in crate::chat) fn is_escape_and_key(&self, key: &KeyEvent) -> bool {
        let edits = matches!(
            key.code,
            KeyCode::Enter | KeyCode::Backspace | KeyCode::Char('b' | 'd' | 'f')
        );
        key.modifiers.contains(KeyModifiers::ALT) && (self.is_empty() || !edits)
    }

    /// Takes a key.
    pub(in crate::chat) fn press(&mut self, key: KeyEvent) -> Pressed {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        if self.search.is_some() && self.press_in_search(key, control) {
            return Pressed::Edited;
        }
        match key.code {
            KeyCode::Char(character) if control => return self.press_control(character, key),
            KeyCode::Home if control => return Pressed::Scroll(Motion::Lines(isize::MIN)),
            KeyCode::End if control => return Pressed::Scroll(Motion::Lines(isize::MAX)),
            KeyCode::PageUp => return Pressed::Scroll(Motion::Pages(-1)),
            KeyCode::PageDown => return Pressed::Scroll(Motion::Pages(1)),
            KeyCode::Enter if !alt => return self.enter(),
            KeyCode::Tab => return Pressed::Complete,
            KeyCode::Esc => return Pressed::Escape,
            KeyCode::Up if self.area.cursor().0 == 0 => self.show_older(),
            KeyCode::Down if self.is_in_last_row() => self.show_newer(),
            _ => edit(&mut self.area, key),
        }
        Pressed::Edited
    }

    fn press_control(&mut self, character: char, key: KeyEvent) -> Pressed {
        match character {
            'c' => return Pressed::Interrupt,
            'd' if self.is_empty() => return Pressed::End,
            'g' => return Pressed::Help,
            'z' => return Pressed::Suspend,
            'l' => return Pressed::Clear,
            'o' => return Pressed::Unfold,
            'i' => return Pressed::Complete,
            'm' => return self.enter(),
            'p' => self.show_older(),
            'n' => self.show_newer(),
            'r' => self.search = Some(String::new()),
            _ => edit(&mut self.area, key),
        }
        Pressed::Edited
    }

    /// Takes a key while the history is searched. Returns whether the search has used the key.
    fn press_in_search(&mut self, key: KeyEvent, control: bool) -> bool {
        let mut wanted = self.search.take().unwrap_or_default();
        let mut before = self.history.count();
        match key.code {
            KeyCode::Char('r') if control => {
                before = self.past.as_ref().map_or(before, |(at, _)| *at);
            }
            KeyCode::Char(character) if !control => wanted.push(character),
            KeyCode::Backspace => _ = wanted.pop(),
            KeyCode::Esc => return true,
            // The line that was found is edited, or sent.
            _ => return false,
        }
        if let Some(at) = self.history.search(&wanted, before) {
            self.show_past(at);
        }
        self.search = Some(wanted);
        true
    }

    /// Ends the line, or continues it in the next one: behind a backslash that is not escaped.
    fn enter(&mut self) -> Pressed {
        let text = self.text();
        let backslashes = text.bytes().rev().take_while(|&byte| byte == b'\\').count();
        if backslashes % 2 == 1 {
            self.area.move_cursor(CursorMove::Bottom);
            self.area.move_cursor(CursorMove::End);
            self.area.delete_char();
            self.area.insert_newline();
            return Pressed::Edited;
        }
        self.past = None;
        self.set("");
        Pressed::Line(text)
    }

    fn is_in_last_row(&self) -> bool {
        self.area.cursor().0 + 1 == self.area.lines().len()
    }

    /// Shows the line before in the history.
    fn show_older(&mut self) {
        let at = self
            .past
            .as_ref()
            .map_or(self.history.count(), |past| past.0);
        if let Some(older) = at.checked_sub(1) {
            self.show_past(older);
        }
    }

    /// Shows the line behind in the history; behind the last one what was typed before.
    fn show_newer(&mut self) {
        let Some((at, typed)) = self.past.take() else {
            return;
        };
        if at + 1 < self.history.count() {
            self.past = Some((at, typed));
            self.show_past(at + 1);
        } else {
            self.set(&typed);
        }
    }

    fn show_past(&mut self, at: usize) {
        let typed = match self.past.take() {
            Some((_, typed)) => typed,
            None => self.text(),
        };
        self.past = Some((at, typed));
        let line = self.history.line(at).unwrap_or_default().to_owned();
        self.set(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(entries: &[&str]) -> PromptLine {
        let mut history = LineHistory::default();
        for entry in entries.iter() {
            history.add(entry).unwrap();
        }
        PromptLine::new(history)
    }

    fn key(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    fn control(c: char) -> KeyEvent {
        KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)
    }

    fn typed(line: &mut PromptLine, text: &str) {
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
        assert_eq!(line.text(), "threeone two ");
        assert_eq!(line.text_before_cursor(), "three");
        line.press(control('k'));
        line.press(key(KeyCode::Backspace));
        line.press(key(KeyCode::Left));
        line.insert("é");
        assert_eq!(line.text(), "thrée");
        assert_eq!(line.text_before_cursor(), "thré");
        assert_eq!(line.press(control('d')), Pressed::Edited);
        assert_eq!(
            line.press(key(KeyCode::Enter)),
            Pressed::Line("thré".to_owned())
        );
        assert_eq!(line.press(control('d')), Pressed::End);
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
        line.press(control('j'));
        line.press(key(KeyCode::Up));
        line.press(key(KeyCode::Up));
        assert_eq!(line.text(), "ls", "the first of two rows is passed first");
        line.press(key(KeyCode::Down));
        assert_eq!(line.text(), "dra\n");
        line.press(control('r'));
        typed(&mut line, "make");
        assert_eq!(
            (line.text().as_str(), line.search()),
            ("make", Some("make"))
        );
        line.press(control('r'));
        assert_eq!(line.text(), "make test");
        assert_eq!(
            line.press(key(KeyCode::Enter)),
            Pressed::Line("make test".to_owned())
        );
        assert_eq!(line.search(), None);
    }
}
