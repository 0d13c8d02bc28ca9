//! What a key does to a text that a person types: the same in every text field. Pure.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui_textarea::{CursorMove, TextArea};

/// Changes a text, or moves the cursor in it. A key that means something else changes nothing.
pub(crate) fn edit(area: &mut TextArea<'_>, key: KeyEvent) {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return edit_with_control(area, key.code);
    }
    if key.modifiers.contains(KeyModifiers::ALT) {
        return edit_with_alt(area, key.code);
    }
    match key.code {
        KeyCode::Left => area.move_cursor(CursorMove::Back),
        KeyCode::Right => area.move_cursor(CursorMove::Forward),
        KeyCode::Up => area.move_cursor(CursorMove::Up),
        KeyCode::Down => area.move_cursor(CursorMove::Down),
        KeyCode::Home => area.move_cursor(CursorMove::Head),
        KeyCode::End => area.move_cursor(CursorMove::End),
        KeyCode::Char(_) | KeyCode::Backspace | KeyCode::Delete => {
            area.input_without_shortcuts(key);
        }
        _ => {}
    }
}

fn edit_with_control(area: &mut TextArea<'_>, code: KeyCode) {
    match code {
        KeyCode::Char('a') => area.move_cursor(CursorMove::Head),
        KeyCode::Char('e') => area.move_cursor(CursorMove::End),
        KeyCode::Char('b') => area.move_cursor(CursorMove::Back),
        KeyCode::Char('f') => area.move_cursor(CursorMove::Forward),
        KeyCode::Left => area.move_cursor(CursorMove::WordBack),
        KeyCode::Right => area.move_cursor(CursorMove::WordForward),
        KeyCode::Char('j') => area.insert_newline(),
        KeyCode::Char('d') => _ = area.delete_next_char(),
        KeyCode::Char('h') => _ = area.delete_char(),
        KeyCode::Char('k') => _ = area.delete_line_by_end(),
        KeyCode::Char('u') => _ = area.delete_line_by_head(),
        KeyCode::Char('w') => _ = area.delete_word(),
        KeyCode::Char('y') => _ = area.paste(),
        // Terminals send the same for Ctrl-/, Ctrl-_ and Ctrl-7.
        KeyCode::Char('7' | '_' | '/') => _ = area.undo(),
        _ => {}
    }
}

fn edit_with_alt(area: &mut TextArea<'_>, code: KeyCode) {
    match code {
        KeyCode::Char('b') => area.move_cursor(CursorMove::WordBack),
        KeyCode::Char('f') => area.move_cursor(CursorMove::WordForward),
        KeyCode::Char('d') => _ = area.delete_next_word(),
        KeyCode::Backspace => _ = area.delete_word(),
        KeyCode::Enter => area.insert_newline(),
        _ => {}
    }
}

/// Inserts a text that was pasted. Its lines may end as a terminal sends them.
pub(crate) fn paste(area: &mut TextArea<'_>, text: &str) {
    area.insert_str(text.replace("\r\n", "\n").replace('\r', "\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(text: &str, keys: &[(KeyModifiers, KeyCode)]) -> String {
        let mut area = TextArea::new(vec![text.to_owned()]);
        area.move_cursor(CursorMove::End);
        for (modifiers, code) in keys {
            edit(&mut area, KeyEvent::new(*code, *modifiers));
        }
        area.lines().join("\n")
    }

    #[test]
    fn keys_edit_the_text_at_the_cursor() {
        let control = |c| (KeyModifiers::CONTROL, KeyCode::Char(c));
        let alt = |c| (KeyModifiers::ALT, KeyCode::Char(c));
        let plain = |code| (KeyModifiers::NONE, code);
        let text = "one two three";
        for (keys, expected) in [
            (vec![control('w')], "one two "),
            (
                vec![control('w'), control('a'), control('y')],
                "threeone two ",
            ),
            (vec![control('a'), plain(KeyCode::Delete)], "ne two three"),
            (vec![plain(KeyCode::Left), control('k')], "one two thre"),
            (vec![plain(KeyCode::Left), control('u')], "e"),
            (vec![control('u'), control('7')], text),
            (vec![alt('b'), alt('d')], "one two "),
            (vec![alt('b'), alt('x'), control('x')], text),
            (
                vec![control('j'), plain(KeyCode::Char('é'))],
                "one two three\né",
            ),
        ] {
            assert_eq!(pressed(text, &keys), expected, "{keys:?}");
        }
    }

    #[test]
    fn a_paste_is_taken_whole_and_its_lines_end_alike() {
        let mut area = TextArea::default();
        paste(&mut area, &format!("a\r\nb\rc\n{}", "x".repeat(100_000)));
        assert_eq!(area.lines()[..3], ["a", "b", "c"]);
        assert_eq!(area.lines()[3].len(), 100_000);
    }
}
