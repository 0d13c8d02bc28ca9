//! What happens to a stream on its way, for the tests of those who read one.

use proptest::collection::vec;
use proptest::prelude::*;

/// A stream with changed bytes, or without its end.
pub(super) fn edited(stream: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let edits = vec((0..stream.len(), any::<u8>()), 0..12);
    let end = prop_oneof![Just(usize::MAX), 0..stream.len()];
    (edits, end).prop_map(|(edits, end)| {
        let mut bytes = stream.as_bytes().to_vec();
        for (at, byte) in edits {
            bytes[at] = byte;
        }
        bytes.truncate(end);
        bytes
    })
}

/// A stream in pieces, as from the network.
pub(super) fn in_pieces(stream: &'static str) -> impl Strategy<Value = Vec<&'static [u8]>> {
    vec(0..stream.len(), 0..30).prop_map(|mut cuts| {
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        cuts.windows(2)
            .map(|pair| &stream.as_bytes()[pair[0]..pair[1]])
            .collect()
    })
}
