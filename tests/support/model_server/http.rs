//! As much of HTTP/1.1 as one client needs.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::read_piece;

/// A request.
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// Reads the next request; none when the client has gone.
pub(super) fn read(mut connection: &TcpStream) -> Option<Asked> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        connection.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: Vec<_> = lines
        .filter_map(|line| {
            line.split_once(": ")
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
        })
        .collect();
    let length = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let mut body = vec![0; length.map_or(0, |(_, value)| value.parse().unwrap())];
    connection.read_exact(&mut body).ok()?;
    Some(Asked {
        path,
        headers,
        body,
    })
}

/// Writes a whole answer; false if the client has gone.
pub(super) fn whole(
    connection: &TcpStream,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
) -> bool {
    let mut head = format!(
        "HTTP/1.1 {status} Whatever\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers.iter() {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    write(connection, head.as_bytes()) && write(connection, body)
}

/// Begins an answer that comes in pieces.
pub(super) fn begin(connection: &TcpStream) -> bool {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
    write(connection, head.as_bytes())
}

/// Writes a piece; an empty one ends the answer.
pub(super) fn piece(connection: &TcpStream, bytes: &[u8]) -> bool {
    let head = format!("{:x}\r\n", bytes.len());
    write(connection, &[head.as_bytes(), bytes, b"\r\n"].concat())
}

/// Waits, without a word, until the client has gone.
pub(super) fn stall(mut connection: &TcpStream) {
    let mut byte = [0];
    while read_piece(&mut connection, &mut byte).is_ok_and(|read| read > 0) {}
}

fn write(mut connection: &TcpStream, bytes: &[u8]) -> bool {
    connection.write_all(bytes).is_ok()
}
