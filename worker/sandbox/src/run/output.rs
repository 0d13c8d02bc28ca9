//! What is kept of a command's output: its head and its tail, in bounded memory, whatever its
//! length.
//!
//! Bytes in, text out. Nothing here waits or reads.

/// How many characters of an output are kept.
pub const KEPT: usize = 50_000;

/// How many of them are the tail.
const HALF: usize = KEPT / 2;

/// In how many bytes so many characters fit, whatever they are.
const HALF_BYTES: usize = 4 * HALF;

/// Takes in an output piece by piece.
#[derive(Debug, Default)]
pub(super) struct KeptOutput {
    /// The first [`HALF_BYTES`].
    head: Vec<u8>,
    /// What follows: all of it, or at least the last [`HALF_BYTES`].
    tail: Vec<u8>,
    /// Whether the front of the tail is gone.
    is_cut: bool,
    /// All characters, those that are gone included.
    chars: usize,
}

impl KeptOutput {
    /// Takes in the next piece.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        // Each byte but those that continue a character begins one.
        self.chars += bytes.iter().filter(|&byte| byte & 0xc0 != 0x80).count();
        let (head, tail) = bytes.split_at(bytes.len().min(HALF_BYTES - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend_from_slice(tail);
        if self.tail.len() > 2 * HALF_BYTES {
            self.tail.drain(..self.tail.len() - HALF_BYTES);
            self.is_cut = true;
        }
    }

    /// Returns the text: all of it, or head and tail with a line between them that tells how much
    /// is cut.
    pub(super) fn into_text(self) -> String {
        if self.is_cut {
            let head = String::from_utf8_lossy(&self.head);
            let tail = String::from_utf8_lossy(&self.tail);
            return head_and_tail(&head, &tail, self.chars);
        }
        let whole = String::from_utf8_lossy(&[self.head, self.tail].concat()).into_owned();
        let chars = whole.chars().count();
        if chars <= KEPT {
            whole
        } else {
            head_and_tail(&whole, &whole, chars)
        }
    }
}

/// Returns the first characters of one text and the last of another, of which there are so many
/// together.
fn head_and_tail(head: &str, tail: &str, chars: usize) -> String {
    let end = head
        .char_indices()
        .nth(HALF)
        .map_or(head.len(), |(at, _)| at);
    let start = tail
        .char_indices()
        .rev()
        .nth(HALF - 1)
        .map_or(0, |(at, _)| at);
    let head = head[..end].trim_end_matches('\n');
    let cut = chars.saturating_sub(KEPT);
    let tail = &tail[start..];
    format!("{head}\n[{cut} characters cut]\n{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text_of(pieces: &[&[u8]]) -> String {
        let mut output = KeptOutput::default();
        for piece in pieces.iter() {
            output.push(piece);
        }
        output.into_text()
    }

    #[test]
    fn a_short_output_is_kept_as_it_is() {
        assert_eq!(text_of(&[]), "");
        assert_eq!(text_of(&[b"one\n", b"two"]), "one\ntwo");
        let whole = "ä".repeat(KEPT);
        assert_eq!(text_of(&[whole.as_bytes()]), whole);
    }

    #[test]
    fn of_a_long_output_head_and_tail_are_kept_and_the_cut_is_told() {
        let text = text_of(&[&vec![b'a'; HALF], b"x", &vec![b'z'; HALF]]);
        assert_eq!(
            text,
            format!(
                "{}\n[1 characters cut]\n{}",
                "a".repeat(HALF),
                "z".repeat(HALF)
            )
        );
    }

    #[test]
    fn a_flood_needs_little_memory() {
        let mut output = KeptOutput::default();
        let piece = "0123456789\n".repeat(6000);
        for _ in 0..1000 {
            output.push(piece.as_bytes());
        }
        assert!(output.tail.capacity() < 8 * HALF_BYTES && output.head.capacity() < 2 * HALF_BYTES);
        let text = output.into_text();
        assert!(text.contains(&format!("[{} characters cut]", 66_000_000 - KEPT)));
        assert_eq!(
            text.chars().count(),
            KEPT + "\n[65950000 characters cut]\n".len()
        );
    }

    #[test]
    fn characters_that_are_cut_between_two_pieces_are_whole() {
        let bytes = "a→😀b".as_bytes();
        for at in 0..=bytes.len() {
            assert_eq!(text_of(&[&bytes[..at], &bytes[at..]]), "a→😀b", "{at}");
        }
        assert_eq!(text_of(&bytes.chunks(1).collect::<Vec<_>>()), "a→😀b");
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_as_such() {
        assert_eq!(text_of(&[b"a\xffb"]), "a\u{fffd}b");
        assert_eq!(text_of(&[b"a\xe2\x86"]), "a\u{fffd}");
        assert_eq!(text_of(&[b"a\xe2", b"b"]), "a\u{fffd}b");
    }

    proptest! {
        #[test]
        fn how_an_output_is_cut_into_pieces_makes_no_difference(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\xe2'), Just(b'\x86')], 0..60),
            size in 1_usize..7,
        ) {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            prop_assert_eq!(text_of(&pieces), String::from_utf8_lossy(&bytes).into_owned());
        }

        #[test]
        fn what_is_kept_and_what_is_cut_make_up_the_whole(length in 0_usize..120_000, size in 1_usize..9000) {
            let whole: String = "aé→😀\n".chars().cycle().take(length).collect();
            let pieces: Vec<&[u8]> = whole.as_bytes().chunks(size).collect();
            let text = text_of(&pieces);
            if length <= KEPT {
                prop_assert_eq!(text, whole);
            } else {
                let tail: String = whole.chars().skip(length - HALF).collect();
                let head: String = whole.chars().take(HALF).collect();
                let marker = format!("\n[{} characters cut]\n", length - KEPT);
                prop_assert_eq!(text, head.trim_end_matches('\n').to_owned() + &marker + &tail);
            }
        }
    }
}
