//! The lines of stdin.

use std::io::{self, BufRead, Read};

use agent_client_protocol_schema::v1::RequestId;
use tokio::sync::mpsc;

use super::frames;

/// The longest line of a client, in bytes: a prompt can embed files.
pub(super) const LONGEST: u64 = 16 << 20;
/// How many lines may wait.
const ROOM: usize = 16;

/// A line of stdin.
pub(super) enum InputLine {
    Whole(Vec<u8>),
    /// More than [`LONGEST`] bytes; `id`: of the request that it is, if its beginning tells.
    TooLong {
        id: RequestId,
    },
}

/// Reads stdin in a thread of its own, since that blocks. The channel closes at the end.
pub(super) fn lines_of_stdin() -> mpsc::Receiver<io::Result<InputLine>> {
    let (send, receive) = mpsc::channel(ROOM);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        loop {
            let line = next_line(&mut stdin).transpose();
            let Some(line) = line else {
                return;
            };
            let is_last = line.is_err();
            if send.blocking_send(line).is_err() || is_last {
                return;
            }
        }
    });
    receive
}

fn next_line(input: &mut impl BufRead) -> io::Result<Option<InputLine>> {
    let mut bytes = Vec::new();
    input.take(LONGEST + 1).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.len() as u64 <= LONGEST {
        return Ok(Some(InputLine::Whole(bytes)));
    }
    input.skip_until(b'\n')?;
    let id = frames::id_at_beginning(&bytes);
    Ok(Some(InputLine::TooLong { id }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_ends_at_its_end() {
        let long = "x".repeat(usize::try_from(LONGEST).unwrap() + 7);
        let text = format!("one\n{{\"id\": 7, \"params\": \"{long}\ntwo");
        let mut input = text.as_bytes();
        let mut next = || match next_line(&mut input).unwrap() {
            Some(InputLine::Whole(bytes)) => String::from_utf8(bytes).unwrap(),
            Some(InputLine::TooLong { id }) => format!("{id} is too long"),
            None => "the end".to_owned(),
        };
        assert_eq!(next(), "one\n");
        assert_eq!(next(), "7 is too long");
        assert_eq!(next(), "two");
        assert_eq!(next(), "the end");
    }
}
