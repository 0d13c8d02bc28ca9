//! Styled texts.

use std::fmt::Display;

use anstyle::Style;

/// Puts a text into a style. Where colours are not wanted, the stream takes them out again.
pub fn paint(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}
