//! What the chat and `top` have in common at a terminal: the screen, texts that scroll, lines that
//! are typed, and the keys with their help. It knows neither of the two.

mod edit;
mod hang_up;
mod help;
mod keys_row;
mod layout;
mod motion;
mod overlay;
mod pager;
mod parts;
mod screen;
mod scroll;
mod slash;
mod source;
mod text;
mod typed;

use std::time::Duration;

use teamd_client::context::Context;

pub(crate) use edit::{edit, paste};
pub(crate) use help::{HelpOf, help_text};
pub(crate) use keys_row::{HELP_HINT, Hint, keys_row};
pub(crate) use layout::{headed, inset, page, rule};
pub(crate) use motion::{Motion, motion};
pub(crate) use overlay::Overlay;
pub(crate) use pager::Pager;
pub(crate) use parts::{title, write};
pub(crate) use screen::Screen;
pub(crate) use scroll::Scroll;
pub(crate) use slash::{COMMANDS, Slash, list_commands};
pub(crate) use source::source;
pub(crate) use text::{cell, row, wrapped};
pub(crate) use typed::TypedRows;

/// The time between two frames, at least: many events make one frame.
pub(crate) const FRAME: Duration = Duration::from_millis(33);
/// How long a request must have been on the screen before an answer to it is taken.
pub(crate) const SETTLES: Duration = Duration::from_millis(300);
/// How many lines a turn of the wheel scrolls.
pub(crate) const WHEEL: isize = 3;

/// Tells whether there is a terminal to draw on and to read keys from.
pub fn is_possible(context: &Context) -> bool {
    screen::is_terminal() && !context.out.is_json()
}
