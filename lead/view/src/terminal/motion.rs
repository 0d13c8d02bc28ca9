//! How far the keys move a list or a text. Pure.

use crossterm::event::KeyCode;

/// How far a key moves: down, or up if that is negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Motion {
    Lines(isize),
    Pages(isize),
}

impl Motion {
    /// Returns how many lines that is where a page has so many.
    pub(crate) fn lines(self, page: usize) -> isize {
        match self {
            Self::Lines(by) => by,
            Self::Pages(by) => {
                by.saturating_mul(isize::try_from(page.max(1)).unwrap_or(isize::MAX))
            }
        }
    }
}

/// Returns how far a key moves a list or a text; none if it is for something else.
pub(crate) fn motion(code: KeyCode) -> Option<Motion> {
    Some(match code {
        KeyCode::Down | KeyCode::Char('j' | 'J') => Motion::Lines(1),
        KeyCode::Up | KeyCode::Char('k' | 'K') => Motion::Lines(-1),
        KeyCode::Home | KeyCode::Char('g') => Motion::Lines(isize::MIN),
        KeyCode::End | KeyCode::Char('G') => Motion::Lines(isize::MAX),
        KeyCode::PageDown | KeyCode::Char(' ') => Motion::Pages(1),
        KeyCode::PageUp => Motion::Pages(-1),
        _ => return None,
    })
}
