//! Server-sent events, cut wherever the network cuts them. Pure.
//!
//! The format is that of the HTML standard: fields `event` and `data`, a blank line ends an event, lines end with
//! CR, LF or both. Memory is bounded: an event that never ends is refused.

/// How long an event may be, in bytes. The longest real ones hold a call's whole input.
const MAX_EVENT: usize = 4 << 20;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Event {
    /// Its type; empty if it names none.
    pub(super) name: String,
    /// Its data lines, joined.
    pub(super) data: String,
}

/// An event is longer than any real one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Endless;

/// Puts the pieces of a stream together.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    after_cr: bool,
    began: bool,
}

impl Splitter {
    /// Takes in the next piece; returns the events that it completes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, Endless> {
        let mut events = Vec::new();
        for &byte in bytes {
            let second_half = std::mem::replace(&mut self.after_cr, byte == b'\r') && byte == b'\n';
            match byte {
                b'\n' if second_half => {}
                b'\n' | b'\r' => events.extend(self.end_line()),
                byte => {
                    if self.line.len() + self.event.data.len() >= MAX_EVENT {
                        return Err(Endless);
                    }
                    self.line.push(byte);
                }
            }
        }
        Ok(events)
    }

    /// Ends the stream: some servers leave the last blank line out. The event may be torn.
    pub(super) fn finish(mut self) -> Option<Event> {
        let last = self.end_line();
        last.or_else(|| self.end_event())
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = match std::mem::replace(&mut self.began, true) {
            false => line.strip_prefix('\u{feff}').unwrap_or(&line),
            true => &line,
        };
        if line.is_empty() {
            return self.end_event();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            // A comment (as a sign of life), or a field that means nothing here.
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<Event> {
        let event = std::mem::take(&mut self.event);
        std::mem::take(&mut self.has_data).then_some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: &str = "\u{feff}: hello\r\nevent: a\r\ndata: {\"x\":\r\ndata:1}\r\n\r\nid: 7\rdata\r\r\n\
                          event: lonely\n\ndata: grüße 🦀\n\ndata: last";

    fn all(chunks: &[&[u8]]) -> Vec<Event> {
        let mut splitter = Splitter::default();
        let mut events: Vec<_> = chunks.iter().flat_map(|chunk| splitter.push(chunk).unwrap()).collect();
        events.extend(splitter.finish());
        events
    }

    #[test]
    fn events_are_read_as_the_standard_says() {
        let event = |name: &str, data: &str| Event { name: name.to_owned(), data: data.to_owned() };
        let expected = [event("a", "{\"x\":\n1}"), event("", ""), event("", "grüße 🦀"), event("", "last")];
        assert_eq!(all(&[STREAM.as_bytes()]), expected);
    }

    #[test]
    fn an_event_without_an_end_is_refused() {
        let mut splitter = Splitter::default();
        let chunk = vec![b'x'; 1 << 20];
        assert_eq!((0..5).find_map(|_| splitter.push(&chunk).err()), Some(Endless));
        let mut splitter = Splitter::default();
        let line = format!("data: {}\n", "y".repeat(1 << 20));
        assert_eq!((0..5).find_map(|_| splitter.push(line.as_bytes()).err()), Some(Endless));
    }

    proptest! {
        #[test]
        fn where_the_network_cuts_does_not_matter(mut cuts in proptest::collection::vec(0..STREAM.len(), 0..20)) {
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in cuts {
                chunks.push(&STREAM.as_bytes()[from..cut]);
                from = cut;
            }
            chunks.push(&STREAM.as_bytes()[from..]);
            prop_assert_eq!(all(&chunks), all(&[STREAM.as_bytes()]));
        }
    }
}
