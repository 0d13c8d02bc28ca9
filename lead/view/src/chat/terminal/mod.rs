//! The keyboard of a chat: keys become a line.

mod history;
mod keyboard;
mod line;

pub(super) use history::LineHistory;
pub(super) use keyboard::{Input, Keyboard};
pub(super) use line::{Line, Pressed};
