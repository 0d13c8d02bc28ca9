//! Server-sent events, read from chunks that end anywhere. Pure.
//!
//! The format is that of the HTML standard: fields `event` and `data`, a blank line ends an event,
//! lines end with CR, LF or both. Memory is bounded: an event that never ends is refused.
//! (`eventsource-stream` has no such bound, and reads an unfinished line again with every chunk.)

use super::failure::{Failure, FailureKind};

/// How long an event may be, in bytes. The longest real ones hold a call's whole input.
const MAX_EVENT: usize = 4 << 20;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ServerEvent {
    /// Its type; empty if it names none.
    pub(super) name: String,
    /// Its data lines, joined.
    pub(super) data: String,
}

/// Puts the chunks of a stream together.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    line: Vec<u8>,
    name: String,
    /// The data lines so far, each with its line break.
    data: String,
    after_cr: bool,
    has_begun: bool,
}

impl EventReader {
    /// Reads the next chunk. Returns the events that it completes.
    ///
    /// # Errors
    /// [`FailureKind::TooLarge`] for an event that is longer than any real one.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<ServerEvent>, Failure> {
        let mut events = Vec::new();
        for &byte in bytes {
            let is_second_half =
                std::mem::replace(&mut self.after_cr, byte == b'\r') && byte == b'\n';
            match byte {
                b'\n' if is_second_half => {}
                b'\n' | b'\r' => events.extend(self.end_line()),
                byte => self.line.push(byte),
            }
            if self.line.len() + self.data.len() > MAX_EVENT {
                let detail = "an event of its stream is longer than 4 MiB";
                return Err(Failure::new(FailureKind::TooLarge, detail));
            }
        }
        Ok(events)
    }

    /// Ends the stream: some servers leave the last blank line out. The event may be torn.
    pub(super) fn finish(mut self) -> Option<ServerEvent> {
        self.end_line().or_else(|| self.end_event())
    }

    fn end_line(&mut self) -> Option<ServerEvent> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let line = match line.strip_prefix('\u{feff}') {
            Some(line) if is_first => line,
            _ => line.as_ref(),
        };
        if line.is_empty() {
            return self.end_event();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => self.data.extend([value, "\n"]),
            // A comment (which some services send as a heartbeat), or a field that means nothing
            // here.
            _ => {}
        }
        None
    }

    /// A block without a data line is not an event.
    fn end_event(&mut self) -> Option<ServerEvent> {
        let name = std::mem::take(&mut self.name);
        let mut data = std::mem::take(&mut self.data);
        data.pop().map(|_line_break| ServerEvent { name, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: &str = "\u{feff}: hello\r\nevent: a\r\ndata: {\"x\":\r\ndata:1}\r\n\r\nid: 7\rdata\r\r\n\
                          event: lonely\n\ndata: grüße 🦀\n\ndata: last";

    fn all(chunks: &[&[u8]]) -> Vec<ServerEvent> {
        let mut reader = EventReader::default();
        let mut events: Vec<_> = chunks
            .iter()
            .flat_map(|chunk| reader.push(chunk).unwrap())
            .collect();
        events.extend(reader.finish());
        events
    }

    #[test]
    fn events_are_read_as_the_standard_says() {
        let event = |name: &str, data: &str| ServerEvent {
            name: name.to_owned(),
            data: data.to_owned(),
        };
        let expected = [
            event("a", "{\"x\":\n1}"),
            event("", ""),
            event("", "grüße 🦀"),
            event("", "last"),
        ];
        assert_eq!(all(&[STREAM.as_bytes()]), expected);
    }

    #[test]
    fn an_event_without_an_end_is_refused() {
        let mut reader = EventReader::default();
        let chunk = vec![b'x'; 1 << 20];
        assert_eq!(
            (0..5)
                .find_map(|_| reader.push(&chunk).err())
                .map(|failure| failure.kind),
            Some(FailureKind::TooLarge)
        );
        let mut reader = EventReader::default();
        let line = format!("data: {}\n", "y".repeat(1 << 20));
        assert_eq!(
            (0..5)
                .find_map(|_| reader.push(line.as_bytes()).err())
                .map(|failure| failure.kind),
            Some(FailureKind::TooLarge)
        );
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
