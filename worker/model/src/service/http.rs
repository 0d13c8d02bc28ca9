//! One exchange with a service: sends a request, and reads the answer as it comes. It decides
//! nothing about another attempt.

use std::ops::Deref;
use std::time::{Duration, SystemTime};

use reqwest::{RequestBuilder, Response};
use tokio::time::{Instant, timeout_at};

use super::draft::{Draft, Piece};
use super::events::{EventReader, ServerEvent};
use super::failure::error_chain;
use super::failure::{Failure, FailureKind};
use super::retry::retry_after;
use super::waits::Waits;
use super::wire::{Wire, json};

/// How long to wait for the end of the stream when the answer is complete. Some servers never end
/// it.
const END: Duration = Duration::from_secs(2);

/// How much may be read for one answer, in bytes: a stream wraps every few letters into an event.
const MAX_STREAM: usize = 256 << 20;

/// How long an answer in one piece may be, in bytes; all of its content may be escaped.
const MAX_WHOLE: usize = 64 << 20;

/// How much of an error is read, in bytes.
const MAX_ERROR: usize = 64 << 10;

/// Sends a request and reads the answer; `observe` gets each piece of text as it arrives.
///
/// # Errors
/// [`Failure`], which may hold secrets.
pub(super) async fn exchange(
    request: RequestBuilder,
    wire: &dyn Wire,
    waits: &Waits,
    observe: &mut dyn FnMut(&str),
) -> Result<Piece, Failure> {
    let response = waits
        .for_service(request.send())
        .await?
        .map_err(unreachable)?;
    match response.status().as_u16() {
        200 => {}
        status @ 201..300 => {
            return wrong_service(&format!(
                "it answered with status {status}, which holds no answer"
            ));
        }
        status @ 300..400 => {
            return wrong_service(&format!(
                "it redirects (status {status}), which is not followed"
            ));
        }
        // A service that lacks only the model answers in JSON.
        404 if !content_type(&response).contains("json") => {
            return wrong_service("there is no such service at this address (status 404)");
        }
        status => return Err(read_error(response, status, waits).await),
    }
    if let Some(what) = unreadable(&response) {
        return wrong_service(&format!("{what} is no answer"));
    }
    let mut draft = Draft::default();
    match read_answer(response, wire, &mut draft, waits, observe).await {
        // After the reason for its end, nothing that follows is needed.
        _ if draft.is_complete() => Ok(draft.end()),
        Ok(()) => Err(Failure::new(
            FailureKind::Incomplete,
            "the stream ended before the answer did",
        )),
        Err(failure) => Err(failure),
    }
}

fn wrong_service(why: &str) -> Result<Piece, Failure> {
    Err(Failure::new(FailureKind::WrongService, why))
}

/// Reads the events of an answer. One that comes in one piece, though a stream was asked for, is
/// one event.
async fn read_answer(
    mut response: Response,
    wire: &dyn Wire,
    draft: &mut Draft,
    waits: &Waits,
    observe: &mut dyn FnMut(&str),
) -> Result<(), Failure> {
    let mut take = |event: &ServerEvent, draft: &mut Draft| {
        wire.read(event, draft)?;
        observe(&std::mem::take(&mut draft.new_text));
        Ok(())
    };
    let is_whole = content_type(&response).contains("json");
    let most = if is_whole { MAX_WHOLE } else { MAX_STREAM };
    let mut events = EventReader::default();
    let mut whole = Vec::new();
    let mut length = 0;
    let mut end = None;
    while !draft.is_done {
        if draft.is_complete() {
            end.get_or_insert_with(|| Instant::now() + END);
        }
        let next = next_chunk(&mut response, waits);
        let next = match end {
            Some(end) => timeout_at(end, next).await.unwrap_or(Ok(None)),
            None => next.await,
        };
        let Some(chunk) = next? else { break };
        length += chunk.len();
        if length > most {
            let detail = format!("it is longer than {} MiB", most >> 20);
            return Err(Failure::new(FailureKind::TooLarge, &detail));
        }
        if is_whole {
            whole.extend_from_slice(&chunk);
            continue;
        }
        for event in events.push(&chunk)? {
            take(&event, draft)?;
        }
    }
    if is_whole {
        let data = String::from_utf8_lossy(&whole).into_owned();
        take(
            &ServerEvent {
                name: String::new(),
                data: data.clone(),
            },
            draft,
        )?;
        // A body without an answer describes an error.
        return if draft.is_complete() {
            Ok(())
        } else {
            Err(Failure::of_event(&json(&data)?))
        };
    }
    // The last event may be torn. Then the answer is not complete either.
    events.finish().map_or(Ok(()), |event| take(&event, draft))
}

/// Reads an answer with another status than 200.
async fn read_error(mut response: Response, status: u16, waits: &Waits) -> Failure {
    let wanted = (
        header(&response, "retry-after-ms"),
        header(&response, "retry-after"),
    );
    let retry_after = retry_after(wanted.0, wanted.1, SystemTime::now());
    let should_retry = header(&response, "x-should-retry").parse().ok();
    let unreadable = unreadable(&response);
    let mut body = Vec::new();
    // The rest is not needed, because the status is known.
    while body.len() <= MAX_ERROR
        && let Ok(Some(chunk)) = next_chunk(&mut response, waits).await
    {
        body.extend_from_slice(&chunk);
    }
    let failure = match unreadable {
        Some(what) => Failure::new(FailureKind::Status(status), &what),
        None => Failure::of_body(status, &String::from_utf8_lossy(&body)),
    };
    Failure {
        retry_after,
        should_retry,
        ..failure
    }
}

async fn next_chunk(
    response: &mut Response,
    waits: &Waits,
) -> Result<Option<impl Deref<Target = [u8]> + use<>>, Failure> {
    waits.for_service(response.chunk()).await?.map_err(|error| {
        let detail = format!(
            "the connection broke within the answer: {}",
            error_chain(error)
        );
        Failure::new(FailureKind::Incomplete, &detail)
    })
}

/// Returns why a service cannot be reached.
pub(super) fn unreachable(error: reqwest::Error) -> Failure {
    let why = error_chain(error);
    if why.contains("certificate") || why.contains("UnknownIssuer") {
        return Failure::new(FailureKind::Certificate, &why);
    }
    if why.contains("corrupt message") || why.contains("InvalidContentType") {
        return Failure::new(FailureKind::WrongService, "it does not speak TLS (https)");
    }
    if why.contains("dns error") || why.contains("lookup address") {
        return Failure::new(FailureKind::Unreachable, "its name is not found");
    }
    // The innermost error names the cause; the others only name the library.
    let innermost = why.rsplit(": ").next().unwrap_or(&why);
    let cause = innermost.split(" (os error").next().unwrap_or(innermost);
    Failure::new(FailureKind::Unreachable, &lower_first(cause))
}

/// Lowers the first letter, for a fragment of a sentence.
fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(letters).collect()
    })
}

/// Returns the value of a header; empty if it is missing.
fn header<'r>(response: &'r Response, name: &str) -> &'r str {
    response
        .headers()
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// Returns the type of a body in small letters, without parameters.
fn content_type(response: &Response) -> String {
    let kind = header(response, "content-type");
    kind.split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// Names a body that holds neither an answer nor a message for a person. No encoding was requested.
fn unreadable(response: &Response) -> Option<String> {
    let encoding = header(response, "content-encoding").to_ascii_lowercase();
    if !matches!(encoding.as_str(), "" | "identity") {
        return Some(format!("an encoded body ({encoding})"));
    }
    let kind = content_type(response);
    kind.contains("html").then(|| format!("a page ({kind})"))
}
