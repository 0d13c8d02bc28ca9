//! Removes the key from the answers of a service, anywhere in them and however they are cut into
//! pieces, because some services repeat what they were sent. The replacement has the same length,
//! so that the length in the header stays right.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Bytes, Frame};
use hyper::header::{HeaderMap, HeaderValue};
use reqwest::Body;
use teamd_worker_core::secret::Secret;

/// The replacement of each character of the key.
const MASK: u8 = b'*';

/// Removes the key from the headers of an answer.
pub(super) fn headers(key: &Secret, headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        let mut scrubber = Scrubber::new(key);
        let mut clean = scrubber.push(value.as_bytes());
        clean.extend(scrubber.end());
        // It is as long as before, and of letters that a header may have.
        if clean != value.as_bytes()
            && let Ok(clean) = HeaderValue::from_bytes(&clean)
        {
            *value = clean;
        }
    }
}

/// Returns a body that removes the key while it passes.
pub(super) fn body(key: &Secret, body: Body) -> Body {
    Body::wrap(Scrubbed {
        body,
        scrubber: Scrubber::new(key),
        is_over: false,
    })
}

/// Removes the key from bytes that come in pieces.
#[derive(Debug)]
struct Scrubber {
    /// The key, in each form that a text may have it in.
    keys: Vec<Vec<u8>>,
    /// The end of what has come, if the key may begin there.
    held: Vec<u8>,
}

impl Scrubber {
    fn new(key: &Secret) -> Self {
        let forms = key.forms().iter();
        Self {
            keys: forms.map(|form| form.as_bytes().to_vec()).collect(),
            held: Vec::new(),
        }
    }

    /// Reads a piece; returns what may pass.
    fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(piece);
        for key in &self.keys {
            let mut from = 0;
            while let Some(at) = find(&text[from..], key) {
                text[from + at..from + at + key.len()].fill(MASK);
                from += at + key.len();
            }
        }
        let longest = self.keys.iter().map(Vec::len).max().unwrap_or_default();
        let end = (text.len().saturating_sub(longest)..text.len())
            .find(|at| self.keys.iter().any(|key| key.starts_with(&text[*at..])))
            .unwrap_or(text.len());
        self.held = text.split_off(end);
        text
    }

    fn end(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

fn find(text: &[u8], key: &[u8]) -> Option<usize> {
    text.windows(key.len()).position(|window| window == key)
}

struct Scrubbed {
    body: Body,
    scrubber: Scrubber,
    is_over: bool,
}

impl hyper::body::Body for Scrubbed {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        loop {
            if self.is_over {
                return Poll::Ready(None);
            }
            let frame = match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(None) => {
                    self.is_over = true;
                    let rest = self.scrubber.end();
                    return Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest.into()))));
                }
            };
            // What follows a body in a frame of its own is passed to no agent.
            let Ok(bytes) = frame.into_data() else {
                continue;
            };
            let mut clean = self.scrubber.push(&bytes);
            if self.body.is_end_stream() {
                self.is_over = true;
                clean.extend(self.scrubber.end());
            }
            if !clean.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(clean.into()))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(value: &str) -> Secret {
        Secret::new("ANTHROPIC_API_KEY", value.to_owned())
    }

    #[test]
    fn the_key_is_taken_out_wherever_a_text_is_cut() {
        let key = key_of("sk-s\"k-secret");
        let text = "data: sk-sk-s\"k-secret, sk-s\\\"k-secretsk-s\"k-secret and sk-s";
        let clean = "data: sk-*************, **********************************".len();
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let mut scrubber = Scrubber::new(&key);
                let mut out = scrubber.push(&text.as_bytes()[..first]);
                out.extend(scrubber.push(&text.as_bytes()[first..second]));
                out.extend(scrubber.push(&text.as_bytes()[second..]));
                out.extend(scrubber.end());
                let out = String::from_utf8(out).unwrap();
                assert!(!out.contains("secret") && out.len() == text.len(), "{out}");
                assert!(
                    out.starts_with("data: sk-***") && out.ends_with(" and sk-s") && clean > 0,
                    "{out}"
                );
            }
        }
        let short = key_of("local");
        assert_eq!(
            Scrubber::new(&short).push(b"a local one"),
            b"a local one",
            "it is no secret"
        );
    }

    #[test]
    fn an_event_is_not_held_back() {
        let mut scrubber = Scrubber::new(&key_of("sk-secret-1"));
        assert_eq!(scrubber.push(b"data: 1\n\n"), b"data: 1\n\n");
        assert_eq!(scrubber.push(b"data: s"), b"data: ");
        assert_eq!(scrubber.push(b"o\n\n"), b"so\n\n");
    }
}
