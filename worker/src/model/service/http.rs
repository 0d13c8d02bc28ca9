//! One exchange with a service: sends a request, and reads the answer as it comes. It decides nothing about another
//! attempt.

use std::ops::Deref;
use std::time::{Duration, SystemTime};

use reqwest::{Client, Response};
use tokio::time::{Instant, timeout_at};

use super::client::{below, build, error_chain, headers};
use super::events::{EventReader, ServerEvent};
use super::failure::{Failure, FailureKind};
use super::retry::retry_after;
use super::settings::Settings;
use super::waits::Waits;
use super::wire::{AnswerReader, Piece, Wire, json};
use crate::model::ModelError;

/// How long the end of a stream is waited for when the answer is complete: some servers never send it.
const END: Duration = Duration::from_secs(2);

/// How much may be read for one answer, in bytes: a stream wraps every few letters into an event.
const MAX_STREAM: usize = 256 << 20;

/// How long an answer in one piece may be as it is written, in bytes: its content may all be escapes.
const MAX_WHOLE: usize = 64 << 20;

/// How much of an error is read, in bytes.
const MAX_ERROR: usize = 64 << 10;

/// A service, and the client that asks it.
#[derive(Debug)]
pub(super) struct Http {
    /// Where and how it is asked.
    pub(super) settings: Settings,
    /// What the worker waits for.
    pub(super) waits: Waits,
    /// Built at the first request: a worker that only waits does not touch its pages.
    client: Option<Client>,
}

impl Http {
    /// Makes one that has no client yet.
    pub(super) fn new(settings: Settings) -> Self {
        Self { waits: Waits::new(settings.silence), settings, client: None }
    }

    /// Returns the client.
    ///
    /// # Errors
    /// [`ModelError::Unusable`] if it cannot be built.
    pub(super) fn client(&mut self) -> Result<Client, ModelError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => build(&self.settings)?,
        };
        Ok(self.client.insert(client).clone())
    }

    /// Sends a request, and reads the answer; `heard` is told each piece of text as it comes.
    ///
    /// # Errors
    /// [`Failure`] without secrets.
    pub(super) async fn exchange(
        &self,
        client: &Client,
        wire: &dyn Wire,
        body: String,
        heard: &mut dyn FnMut(&str),
    ) -> Result<Piece, Failure> {
        let Settings { base, key, .. } = &self.settings;
        let request = client.post(below(base, wire.path())).headers(headers(wire, key.as_ref())).body(body);
        let exchanged = match self.waits.for_service(request.send()).await {
            Ok(Ok(response)) => read(response, wire.reader(), &self.waits, heard).await,
            Ok(Err(error)) => Err(unreachable(error)),
            Err(silent) => Err(silent),
        };
        exchanged.map_err(|failure| failure.sanitized(|text| self.settings.scrub(text)))
    }
}

/// Reads a response.
async fn read(
    response: Response,
    mut reader: Box<dyn AnswerReader>,
    waits: &Waits,
    heard: &mut dyn FnMut(&str),
) -> Result<Piece, Failure> {
    let wrong = |why: String| Err(Failure::new(FailureKind::WrongService, &why));
    match response.status().as_u16() {
        200 => {}
        status @ 201..300 => {
            return wrong(format!("it answered with status {status}, which holds no answer"));
        }
        status @ 300..400 => return wrong(format!("it redirects (status {status}), which is not followed")),
        status => return Err(read_error(response, status, waits).await),
    }
    if let Some(what) = unreadable(&response) {
        return wrong(format!("{what} is no answer"));
    }
    match read_answer(response, reader.as_mut(), waits, heard).await {
        // Once it was said why the answer ended, nothing that follows is missed.
        _ if reader.draft().is_complete() => Ok(reader.end()),
        Ok(()) => Err(Failure::new(FailureKind::Incomplete, "the stream ended before the answer did")),
        Err(failure) => Err(failure),
    }
}

/// Reads the events of an answer. One that comes in one piece, though a stream was asked for, is one event.
async fn read_answer(
    mut response: Response,
    reader: &mut dyn AnswerReader,
    waits: &Waits,
    heard: &mut dyn FnMut(&str),
) -> Result<(), Failure> {
    let is_whole = content_type(&response).contains("json");
    let most = if is_whole { MAX_WHOLE } else { MAX_STREAM };
    let (mut events, mut whole) = (EventReader::default(), Vec::new());
    let (mut length, mut end) = (0, None);
    while !reader.draft().is_done {
        if reader.draft().is_complete() {
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
            heard(&reader.event(&event)?);
        }
    }
    if is_whole {
        let data = String::from_utf8_lossy(&whole).into_owned();
        heard(&reader.event(&ServerEvent { name: String::new(), data: data.clone() })?);
        // A body that is no answer says what is wrong.
        return if reader.draft().is_complete() { Ok(()) } else { Err(Failure::of_event(&json(&data)?)) };
    }
    // The last event may be torn. Then the answer is not complete either.
    if let Some(event) = events.finish() {
        heard(&reader.event(&event)?);
    }
    Ok(())
}

/// Reads what a service says with another status than 200.
async fn read_error(mut response: Response, status: u16, waits: &Waits) -> Failure {
    let wanted = (header(&response, "retry-after-ms"), header(&response, "retry-after"));
    let retry_after = retry_after(wanted.0, wanted.1, SystemTime::now());
    let should_retry = header(&response, "x-should-retry").parse().ok();
    let unreadable = unreadable(&response);
    let mut body = Vec::new();
    // What cannot be read is not missed: the status is known.
    while body.len() <= MAX_ERROR
        && let Ok(Some(chunk)) = next_chunk(&mut response, waits).await
    {
        body.extend_from_slice(&chunk);
    }
    let failure = match unreadable {
        Some(what) => Failure::new(FailureKind::Status(status), &what),
        None => Failure::of_body(status, &String::from_utf8_lossy(&body)),
    };
    Failure { retry_after, should_retry, ..failure }
}

async fn next_chunk(
    response: &mut Response,
    waits: &Waits,
) -> Result<Option<impl Deref<Target = [u8]> + use<>>, Failure> {
    waits.for_service(response.chunk()).await?.map_err(|error| {
        let detail = format!("the connection broke within the answer: {}", error_chain(error));
        Failure::new(FailureKind::Incomplete, &detail)
    })
}

fn unreachable(error: reqwest::Error) -> Failure {
    let why = error_chain(error);
    let is_certificate = ["certificate", "UnknownIssuer"].into_iter().any(|word| why.contains(word));
    let kind = if is_certificate { FailureKind::Certificate } else { FailureKind::Unreachable };
    Failure::new(kind, &why)
}

/// Returns the value of a header; empty if it is missing.
fn header<'r>(response: &'r Response, name: &str) -> &'r str {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Returns the type of a body in small letters, without parameters.
fn content_type(response: &Response) -> String {
    let kind = header(response, "content-type");
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Names a body that holds neither an answer nor words for a person, if it is such a one. No encoding is ever asked for.
fn unreadable(response: &Response) -> Option<String> {
    let encoding = header(response, "content-encoding").to_ascii_lowercase();
    if !matches!(encoding.as_str(), "" | "identity") {
        return Some(format!("an encoded body ({encoding})"));
    }
    let kind = content_type(response);
    kind.contains("html").then(|| format!("a page ({kind})"))
}
