//! The HTTP client: built at the first prompt, one for the life of a worker.
//!
//! It sends one request and reads one answer. It decides nothing about another attempt, and shows no key and no
//! address that may hold a password.

use std::error::Error as _;
use std::time::Duration;

use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, NoProxy, Proxy, Response, Url, redirect};
use teamd_shared::clock::wall;
use tokio::time::Instant;

use super::events::Splitter;
use super::failure::{Complaint, Failure, cut, line};
use super::pause::{Patience, Pauses};
use super::retry::retry_after;
use super::settings::{Key, Roots, Settings, Through};
use super::trouble::Trouble;
use super::wire::{Piece, Reading, Wire};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(15);

/// How long an answer's content may be, in bytes: text, and the arguments of calls.
const MAX_ANSWER: usize = 16 << 20;

/// How long the end of a stream is waited for when the answer is complete: some servers never send it.
const END: Duration = Duration::from_secs(2);

/// How much may be read for one answer, in bytes: a stream wraps every few letters into an event.
const MAX_STREAM: usize = 256 << 20;

/// How long an answer in one piece may be as it is written, in bytes: its content may all be escapes.
const MAX_WHOLE: usize = 64 << 20;

/// How much of an error is read, in bytes.
const MAX_ERROR: usize = 64 << 10;

/// A client and where it asks.
#[derive(Debug)]
pub(super) struct Http {
    settings: Settings,
    client: Option<Client>,
    pauses: Pauses,
}

impl Http {
    /// Makes one that has no client yet.
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, client: None, pauses: Pauses::new() }
    }

    /// Returns where pauses are told.
    pub(super) fn pauses(&self) -> &Pauses {
        &self.pauses
    }

    /// Returns the host of the service, for messages.
    pub(super) fn host(&self) -> String {
        self.settings.host()
    }

    /// Returns the variable that the key came from, if there is a key.
    pub(super) fn has_key(&self) -> Option<&'static str> {
        Some(self.settings.key.as_ref().ok()?.as_ref()?.variable)
    }

    /// Sends a request, and reads the answer as it comes.
    ///
    /// # Errors
    /// [`Failure`] if there is none.
    pub(super) async fn exchange(
        &mut self,
        wire: &dyn Wire,
        body: String,
        heard: &mut dyn FnMut(&str),
    ) -> Result<Piece, Failure> {
        let key = self.settings.key.clone().map_err(Failure::Setting)?;
        let scrub = |text: &str| key.as_ref().map_or_else(|| text.to_owned(), |key| key.scrub(text));
        self.send(wire, key.as_ref(), body, heard).await.map_err(|failure| failure.told(scrub))
    }

    /// As [`Http::exchange`]; what the failure says may be long, and hold the key.
    async fn send(
        &mut self,
        wire: &dyn Wire,
        key: Option<&Key>,
        body: String,
        heard: &mut dyn FnMut(&str),
    ) -> Result<Piece, Failure> {
        let headers = headers(wire, key)?;
        let url = below(&self.settings.base, wire.path());
        let request = self.client()?.post(url).headers(headers).body(body);
        let patience = Patience { limit: self.settings.patience, pauses: &self.pauses };
        let response = in_time(patience, patience.limit, request.send()).await?;
        let status = response.status().as_u16();
        if (201..=299).contains(&status) {
            let why = match status {
                204 => "it answered with nothing (status 204)".to_owned(),
                _ => format!("it answered with status {status}, which holds no answer"),
            };
            return Err(Failure::Stranger { why, passing: false });
        }
        if status != 200 {
            return Err(Failure::Service(complaint(response, status, patience).await));
        }
        if let Some(encoding) = encoding(&response) {
            let why = format!("its answer is encoded ({encoding}), and that was not asked for");
            return Err(Failure::Stranger { why, passing: false });
        }
        let kind = content_type(&response);
        match kind.as_str() {
            kind if kind.contains("html") => {
                let why = format!("a page ({}) is no answer", line(kind));
                Err(Failure::Stranger { why, passing: false })
            }
            kind if kind.contains("json") => whole(response, wire.read(), patience, heard).await,
            _ => stream(response, wire.read(), patience, heard).await,
        }
    }

    fn client(&mut self) -> Result<&Client, Failure> {
        let client = match self.client.take() {
            Some(client) => client,
            None => build(&self.settings).map_err(Failure::Setting)?,
        };
        Ok(self.client.insert(client))
    }
}

/// Builds the client. Only what is set for the member counts: not the variables of this process, and no redirect,
/// since it would carry the key along.
fn build(settings: &Settings) -> Result<Client, Trouble> {
    // It fails only if one is there already.
    drop(rustls::crypto::ring::default_provider().install_default());
    let mut builder = Client::builder()
        .user_agent(concat!("teamd/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT)
        .redirect(redirect::Policy::none())
        .no_proxy();
    let no_proxy = settings.no_proxy.as_deref().and_then(NoProxy::from_string);
    for through in &settings.proxies {
        builder = builder.proxy(proxy(through)?.no_proxy(no_proxy.clone()));
    }
    if let Some(roots) = roots(&settings.roots)? {
        builder = builder.tls_certs_only(roots);
    }
    builder.build().map_err(|error| Trouble::Setting { variable: "TEAM_CA", why: cut(&chain(error)) })
}

fn proxy(through: &Through) -> Result<Proxy, Trouble> {
    let url = through.url.as_str();
    let proxy = match through.scheme {
        "http" => Proxy::http(url),
        "https" => Proxy::https(url),
        _ => Proxy::all(url),
    };
    proxy.map_err(|error| Trouble::Setting { variable: through.variable, why: cut(&chain(error)) })
}

/// Returns the roots to trust; none: as the system does.
fn roots(roots: &Roots) -> Result<Option<Vec<Certificate>>, Trouble> {
    let setting = |why: String| Trouble::Setting { variable: "TEAM_CA", why };
    let file = match roots {
        Roots::Platform => return Ok(None),
        Roots::Embedded => None,
        Roots::File(path) => Some(path),
    };
    let mut all = Vec::new();
    for der in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        all.push(Certificate::from_der(der).map_err(|error| setting(chain(error)))?);
    }
    if let Some(path) = file {
        let shown = path.display();
        let pem = std::fs::read(path).map_err(|error| setting(format!("{shown}: {error}")))?;
        let own = Certificate::from_pem_bundle(&pem)
            .map_err(|error| setting(format!("{shown}: {}", chain(error))))?;
        if own.is_empty() {
            return Err(setting(format!("{shown} holds no certificate in PEM")));
        }
        all.extend(own);
    }
    Ok(Some(all))
}

/// Puts a path below a base URL, whatever of it the base has already: both `…/` and `…/v1` are common.
fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    let there = base.path().trim_end_matches('/');
    let joined = match path.split_once('/') {
        _ if there.ends_with(&format!("/{path}")) => there.to_owned(),
        Some((first, rest)) if there.ends_with(&format!("/{first}")) => format!("{there}/{rest}"),
        _ => format!("{there}/{path}"),
    };
    url.set_path(&joined);
    url
}

fn headers(wire: &dyn Wire, key: Option<&Key>) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in wire.headers(key) {
        // The characters of a key were looked at when it was read.
        let mut value = HeaderValue::from_str(&value).map_err(|_| Failure::Stranger {
            why: format!("the header {name} cannot be sent"),
            passing: false,
        })?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(headers)
}

fn content_type(response: &Response) -> String {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_ascii_lowercase()
}

/// Returns how a body is encoded, if it is. No encoding is ever asked for.
fn encoding(response: &Response) -> Option<String> {
    let value = response.headers().get(CONTENT_ENCODING)?;
    let name = line(&String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase());
    (!matches!(name.as_str(), "" | "identity")).then_some(name)
}

/// Says what a body is that holds no words for a person, if it is such a one.
fn unreadable(response: &Response) -> Option<String> {
    if let Some(encoding) = encoding(response) {
        return Some(format!("an encoded body ({encoding})"));
    }
    let kind = content_type(response);
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.contains("html").then(|| format!("a page ({})", line(kind)))
}

/// Reads what a service says with another status than 200.
async fn complaint(mut response: Response, status: u16, patience: Patience<'_>) -> Complaint {
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    let retry_after = retry_after(header("retry-after-ms"), header("retry-after"), wall());
    let should_retry = match header("x-should-retry") {
        Some("true") => Some(true),
        Some("false") => Some(false),
        _ => None,
    };
    let unreadable = unreadable(&response);
    let mut body = Vec::new();
    // What cannot be read is not missed: the status is known.
    while let Ok(Some(chunk)) = in_time(patience, patience.limit, response.chunk()).await {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ERROR {
            break;
        }
    }
    let complaint = match unreadable {
        Some(message) => Complaint { status, message, ..Complaint::default() },
        None => Complaint::of_body(status, &String::from_utf8_lossy(&body)),
    };
    Complaint { retry_after, should_retry, ..complaint }
}

async fn stream(
    mut response: Response,
    mut reading: Box<dyn Reading>,
    patience: Patience<'_>,
    heard: &mut dyn FnMut(&str),
) -> Result<Piece, Failure> {
    let endless = |_| Failure::TooMuch("an event of its stream is longer than 4 MiB");
    let mut splitter = Splitter::default();
    let mut length = 0;
    let mut ends = None;
    while !reading.is_done() {
        if reading.is_complete() {
            ends.get_or_insert_with(|| Instant::now() + END);
        }
        let left = ends.map_or(patience.limit, |ends| {
            ends.saturating_duration_since(Instant::now()).min(patience.limit)
        });
        let chunk = match in_time(patience, left, response.chunk()).await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            // All that counts was read.
            Err(_) if reading.is_complete() => return reading.end(),
            Err(failure) => return Err(broke_off(failure)),
        };
        length += chunk.len();
        if length > MAX_STREAM {
            return Err(Failure::TooMuch("its stream is longer than 256 MiB"));
        }
        for event in splitter.push(&chunk).map_err(endless)? {
            match reading.event(&event) {
                Ok(text) => text.iter().for_each(|text| heard(text)),
                Err(_) if reading.is_complete() => return reading.end(),
                Err(failure) => return Err(failure),
            }
            within_bounds(reading.as_ref())?;
        }
    }
    if length == 0 {
        return Err(empty());
    }
    if !reading.is_done()
        && let Some(event) = splitter.finish()
    {
        // It may be torn: then it is not missed, since the answer is not complete either way.
        if let Ok(Some(text)) = reading.event(&event) {
            heard(&text);
        }
    }
    reading.end()
}

/// Refuses an answer that is longer than any that makes sense.
fn within_bounds(reading: &dyn Reading) -> Result<(), Failure> {
    if reading.length() > MAX_ANSWER { Err(Failure::TooMuch("it is longer than 16 MiB")) } else { Ok(()) }
}

fn empty() -> Failure {
    Failure::Stranger { why: "its answer is empty".to_owned(), passing: true }
}

/// Tells a connection that breaks in the middle of an answer from one that never came about.
fn broke_off(failure: Failure) -> Failure {
    match failure {
        Failure::Unreachable { why, certificate: false } => Failure::Broken { why },
        other => other,
    }
}

/// Reads an answer that came in one piece.
async fn whole(
    mut response: Response,
    mut reading: Box<dyn Reading>,
    patience: Patience<'_>,
    heard: &mut dyn FnMut(&str),
) -> Result<Piece, Failure> {
    let mut body = Vec::new();
    while let Some(chunk) = in_time(patience, patience.limit, response.chunk()).await.map_err(broke_off)? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_WHOLE {
            return Err(Failure::TooMuch("it is longer than 64 MiB"));
        }
    }
    if body.is_empty() {
        return Err(empty());
    }
    let value = serde_json::from_slice(&body).map_err(|_| Failure::Stranger {
        why: format!("its answer is no JSON: {:?}", line(&String::from_utf8_lossy(&body))),
        passing: true,
    })?;
    let text = reading.whole(&value)?;
    within_bounds(reading.as_ref())?;
    if let Some(text) = text {
        heard(&text);
    }
    reading.end()
}

/// Waits for the next thing of a connection, for a time.
async fn in_time<T>(
    patience: Patience<'_>,
    limit: Duration,
    next: impl Future<Output = reqwest::Result<T>>,
) -> Result<T, Failure> {
    patience.wait(limit, next).await?.map_err(broken)
}

fn broken(error: reqwest::Error) -> Failure {
    let why = chain(error);
    let certificate = ["certificate", "UnknownIssuer"].into_iter().any(|word| why.contains(word));
    Failure::Unreachable { why, certificate }
}

/// Writes an error with all that is behind it, without the address.
fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut all = vec![error.to_string()];
    let mut source = error.source();
    while let Some(error) = source {
        let text = error.to_string();
        if all.last().is_none_or(|last| !last.contains(&text)) {
            all.push(text);
        }
        source = error.source();
    }
    line(&all.join(": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_put_below_every_common_base() {
        for (base, path, url) in [
            ("https://api.anthropic.com", "v1/messages", "https://api.anthropic.com/v1/messages"),
            ("https://gateway/x/v1/", "v1/messages", "https://gateway/x/v1/messages"),
            ("http://localhost:1234/v1", "chat/completions", "http://localhost:1234/v1/chat/completions"),
            ("http://h/v1/chat/completions", "chat/completions", "http://h/v1/chat/completions"),
            ("https://h/v1?api-version=1", "chat/completions", "https://h/v1/chat/completions?api-version=1"),
        ] {
            assert_eq!(below(&base.parse().unwrap(), path).as_str(), url);
        }
    }
}
