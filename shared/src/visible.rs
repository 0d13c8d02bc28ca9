//! Which characters a person cannot see, or a terminal acts on. Foreign text is shown with these
//! escaped.

/// Tells whether a character is not shown as itself: controls (C0, DEL, C1), the marks that embed,
/// override or isolate a direction, separators of lines, and those without a width, which hide text
/// from a person that a model reads (most of Unicode's category `Cf`, fillers, tags). Joiners are
/// among them, so some scripts and emoji are harder to read. Variation selectors (U+FE00 to U+FE0F)
/// are not.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{600}'..='\u{605}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{17b4}'
                | '\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{110bd}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_does_not_see_is_hidden_and_scripts_and_emoji_are_not() {
        for c in
            "\u{61c}\u{200b}\u{200d}\u{2060}\u{feff}\u{ad}\u{115f}\u{3164}\u{34f}\u{e0041}\u{2028}\u{7f}\x1b"
                .chars()
        {
            assert!(is_hidden(c), "{c:?}");
        }
        assert!(
            !"Grüße, 你好 🎉 ❤\u{fe0f} مرحبا שלום नमस्ते"
                .chars()
                .any(is_hidden)
        );
    }
}
