//! A chat at a terminal: the rows between the heading and the list of keys.

use std::ops::{Deref, DerefMut};

use crate::support::Team;
use crate::support::terminal::Terminal;

/// A chat, which has the whole screen.
pub(super) struct Chat(Terminal);

/// What was on the screen at some time.
pub(super) struct Mark(String);

impl Deref for Chat {
    type Target = Terminal;

    fn deref(&self) -> &Terminal {
        &self.0
    }
}

impl DerefMut for Chat {
    fn deref_mut(&mut self) -> &mut Terminal {
        &mut self.0
    }
}

impl Chat {
    /// Starts a command that opens a chat, at a terminal of a usual size.
    pub(super) fn start(team: &Team, args: &[&str]) -> Self {
        Self(Terminal::teamctl(team, args))
    }

    /// Starts it at a terminal of so many columns and rows.
    pub(super) fn start_at(team: &Team, args: &[&str], size: (u16, u16)) -> Self {
        Self(Terminal::teamctl_at(team, args, size))
    }

    /// The conversation and the line that is typed.
    pub(super) fn screen(&self) -> String {
        let screen = self.0.screen();
        let rows: Vec<&str> = screen.lines().collect();
        let between = rows.get(1..rows.len().max(2) - 1).unwrap_or_default();
        between.join("\n").trim().to_owned()
    }

    /// Waits until it is as it should be.
    pub(super) fn until_screen(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        self.0.until_screen(what, |_| is_so(&self.screen()));
    }

    /// Waits until the row where a person types is this one.
    pub(super) fn until_row(&self, text: &str) {
        self.until_screen(text, |screen| {
            screen.lines().last() == Some(text.trim_end())
        });
    }

    /// Waits until a text is on the screen, whatever its lines.
    pub(super) fn until(&self, text: &str) {
        self.until_screen(text, |screen| flat(screen).contains(&flat(text)));
    }

    /// Waits until bytes were written, wherever on the terminal.
    pub(super) fn shown_raw(&self, bytes: &str) {
        self.0.until(bytes);
    }

    /// Remembers what is on the screen.
    pub(super) fn mark(&self) -> Mark {
        Mark(flat(&self.screen()))
    }

    /// Waits until a text is there once more than it was.
    pub(super) fn until_after(&self, before: &Mark, text: &str) {
        let text = flat(text);
        let times = before.0.matches(&text).count();
        self.until_screen(&text, |screen| flat(screen).matches(&text).count() > times);
    }

    /// Leaves, and returns what was printed then: what was said.
    pub(super) fn leave(mut self) -> String {
        self.press("\x15\x04");
        self.0.until("\x1b[?1049l");
        self.0
            .until_screen("the last line", |screen| screen.contains(" without you"));
        let said = self.0.scrolled();
        assert_eq!(self.0.finish(), Some(0));
        said
    }

    /// Waits for the end after the person has left.
    pub(super) fn finish(self) -> Option<i32> {
        self.0.finish()
    }
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
