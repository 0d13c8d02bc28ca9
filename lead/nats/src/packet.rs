//! The messages of a stream. Each has a kind, a number, and what the kind says:
//!
//! | bytes | meaning |
//! |---|---|
//! | 0 | the kind |
//! | 1–8 | the number, big-endian: one more than that of the message before it in this direction |
//! | 9– | the body |

use bytes::{BufMut, Bytes, BytesMut};

/// How long what stands before a body is, in bytes.
const HEAD: usize = 9;
/// How long a packet of data is at the most, in bytes. A server takes 1 MiB if it is not told
/// otherwise (`max_payload`).
pub(crate) const MAX_DATA: usize = 32 << 10;
/// How long a message is at the most.
pub(crate) const MAX_MESSAGE: usize = HEAD + MAX_DATA;

/// How much of a text in a message is taken, in bytes.
pub(crate) const MAX_TEXT: usize = 4096;

/// What a message of a stream says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Packet {
    /// The host wants a stream for this: its first message.
    Open(String),
    /// Home has one, and listens for the rest of it under this token: its first message.
    Opened(String),
    /// Bytes.
    Data(Bytes),
    /// So many packets of data were taken: as many more may be sent.
    Taken(u32),
    /// No more bytes follow.
    Eof,
    /// The stream has ended well.
    Done,
    /// It has not, and why.
    Failed(String),
    /// This side lives.
    Beat,
}

impl Packet {
    fn kind(&self) -> u8 {
        match self {
            Self::Open(_) => b'O',
            Self::Opened(_) => b'o',
            Self::Data(_) => b'D',
            Self::Taken(_) => b'T',
            Self::Eof => b'E',
            Self::Done => b'N',
            Self::Failed(_) => b'F',
            Self::Beat => b'B',
        }
    }

    /// Returns the message with this number.
    pub(crate) fn encode(&self, number: u64) -> Bytes {
        let mut message = BytesMut::with_capacity(HEAD);
        message.put_u8(self.kind());
        message.put_u64(number);
        match self {
            Self::Data(bytes) => message.put_slice(bytes),
            Self::Open(text) | Self::Opened(text) | Self::Failed(text) => {
                message.put_slice(beginning(text).as_bytes());
            }
            Self::Taken(packets) => message.put_u32(*packets),
            Self::Eof | Self::Done | Self::Beat => {}
        }
        message.freeze()
    }

    /// Reads a message; none if it is of no stream.
    pub(crate) fn decode(message: &Bytes) -> Option<(u64, Self)> {
        if message.len() > MAX_MESSAGE {
            return None;
        }
        let number = message.get(1..HEAD)?.try_into().ok()?;
        let body = message.slice(HEAD..);
        let text = || {
            let text = str::from_utf8(&body).ok()?;
            (text.len() <= MAX_TEXT).then(|| text.to_owned())
        };
        let packet = match message[0] {
            b'O' => Self::Open(text()?),
            b'o' => Self::Opened(text()?),
            b'D' => Self::Data(body),
            b'T' => Self::Taken(u32::from_be_bytes(body.as_ref().try_into().ok()?)),
            b'E' => Self::Eof,
            b'N' => Self::Done,
            b'F' => Self::Failed(text()?),
            b'B' => Self::Beat,
            _ => return None,
        };
        Some((u64::from_be_bytes(number), packet))
    }
}

/// Returns as much of a text as is taken.
fn beginning(text: &str) -> &str {
    let most = text.len().min(MAX_TEXT);
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// Counts what comes: a message that is missing, or comes twice, ends a stream.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    next: u64,
}

impl Numbers {
    /// Returns the number of the next message.
    pub(crate) fn take(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Takes a message with this number.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn expect(&mut self, number: u64) -> Result<(), String> {
        let expected = self.take();
        if number == expected {
            return Ok(());
        }
        if number < expected {
            return Err(format!("message {number} came twice"));
        }
        Err(format!("{} messages were lost", number - expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let packets = [
            Packet::Open("teamd-link".to_owned()),
            Packet::Opened("0f3a".to_owned()),
            Packet::Data(Bytes::from_static(b"{}\n")),
            Packet::Data(Bytes::new()),
            Packet::Taken(7),
            Packet::Eof,
            Packet::Done,
            Packet::Failed("no daemon runs".to_owned()),
            Packet::Beat,
        ];
        for packet in packets {
            let message = packet.encode(1 << 40);
            assert_eq!(Packet::decode(&message), Some((1 << 40, packet)));
        }
    }

    #[test]
    fn what_is_no_message_of_a_stream_is_none() {
        for bytes in [
            &b""[..],
            b"D1234567",
            b"X12345678",
            b"T12345678abc",
            b"O12345678\xff",
        ] {
            assert_eq!(Packet::decode(&Bytes::copy_from_slice(bytes)), None);
        }
        let long = Packet::Data(Bytes::from(vec![0; MAX_DATA + 1])).encode(0);
        assert_eq!(Packet::decode(&long), None);
        let long = "é".repeat(MAX_TEXT);
        let message = Packet::Failed(long).encode(0);
        assert!(Packet::decode(&message).is_some(), "it was cut to fit");
    }

    #[test]
    fn a_message_that_is_missing_or_comes_twice_is_noticed() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.expect(0), Ok(()));
        assert_eq!(numbers.expect(1), Ok(()));
        assert_eq!(numbers.expect(1), Err("message 1 came twice".to_owned()));
        let mut numbers = Numbers::default();
        assert_eq!(numbers.expect(3), Err("3 messages were lost".to_owned()));
    }
}
