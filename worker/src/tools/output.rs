//! What is kept of a command's output: its head and its tail, in bounded memory, whatever its length.
//!
//! Bytes in, text out. Nothing here waits or reads.

/// How many characters of an output are kept.
pub(crate) const KEPT: usize = 50_000;

/// How many of them are the tail.
const HALF: usize = KEPT / 2;

/// How long the buffer of the tail may grow before its front is cut off, in bytes.
const TAIL_BYTES: usize = 8 * HALF;

/// Takes in an output piece by piece, however the pieces cut its characters.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// The bytes of a character whose end has not come yet: at most three.
    unfinished: Vec<u8>,
    head: String,
    head_chars: usize,
    /// The latest text behind the head: at least the last [`HALF`] characters of it.
    tail: String,
    /// Characters behind the head, the ones that are gone included.
    tail_chars: u64,
}

impl Output {
    /// Takes in the next piece.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let joined;
        let bytes = if self.unfinished.is_empty() {
            bytes
        } else {
            joined = [std::mem::take(&mut self.unfinished).as_slice(), bytes].concat();
            &joined
        };
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.push_text(chunk.valid());
            let invalid = chunk.invalid();
            if chunks.peek().is_none() && is_unfinished(invalid) {
                self.unfinished = invalid.to_vec();
            } else if !invalid.is_empty() {
                self.push_text("\u{fffd}");
            }
        }
    }

    fn push_text(&mut self, text: &str) {
        let room = HALF - self.head_chars;
        let (head, rest) = split_at_char(text, room);
        if !head.is_empty() {
            self.head.push_str(head);
            self.head_chars += head.chars().count();
        }
        if !rest.is_empty() {
            self.tail_chars += rest.chars().count() as u64;
            self.tail.push_str(rest);
            if self.tail.len() > TAIL_BYTES {
                self.tail.drain(..start_of_last(&self.tail, HALF));
            }
        }
    }

    /// Returns the text: all of it, or head and tail with a line between them that tells how much is cut.
    pub(crate) fn into_text(mut self) -> String {
        if !self.unfinished.is_empty() {
            self.unfinished.clear();
            self.push_text("\u{fffd}");
        }
        let cut = self.tail_chars.saturating_sub(HALF as u64);
        if cut == 0 {
            return self.head + &self.tail;
        }
        let tail = &self.tail[start_of_last(&self.tail, HALF)..];
        format!("{}\n[{cut} characters cut]\n{tail}", self.head.trim_end_matches('\n'))
    }
}

/// Tells whether invalid bytes at the very end could be the beginning of a character.
fn is_unfinished(bytes: &[u8]) -> bool {
    // `from_utf8` knows no error length exactly if more bytes could make it valid.
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// Splits a text behind its first `count` characters.
fn split_at_char(text: &str, count: usize) -> (&str, &str) {
    if text.len() <= count {
        return (text, "");
    }
    text.split_at(text.char_indices().nth(count).map_or(text.len(), |(at, _)| at))
}

/// Returns where the last `count` characters of a text begin.
fn start_of_last(text: &str, count: usize) -> usize {
    text.char_indices().rev().nth(count - 1).map_or(0, |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text_of(pieces: &[&[u8]]) -> String {
        let mut output = Output::default();
        pieces.iter().for_each(|piece| output.push(piece));
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
        assert_eq!(text, format!("{}\n[1 characters cut]\n{}", "a".repeat(HALF), "z".repeat(HALF)));
    }

    #[test]
    fn a_flood_needs_little_memory() {
        let mut output = Output::default();
        let piece = "0123456789\n".repeat(6000);
        for _ in 0..1000 {
            output.push(piece.as_bytes());
        }
        assert!(output.tail.capacity() < 4 * TAIL_BYTES && output.head.capacity() < 4 * HALF);
        let text = output.into_text();
        assert!(text.contains(&format!("[{} characters cut]", 66_000_000 - KEPT)));
        assert_eq!(text.chars().count(), KEPT + "\n[65950000 characters cut]\n".len());
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
