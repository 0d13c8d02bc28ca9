//! The service of a model behind the gateway. Requests and answers pass unchanged, except for the
//! key. Nothing is retried or kept.

use std::sync::OnceLock;

use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use reqwest::{Body, Client, Url};
use serde_json::json;
use teamd_shared::environment::Environment;
use teamd_shared::model_spec::{ModelSpec, Provider};
use teamd_worker_sandbox::refusal;

use super::meter::{Admission, Meter, Trouble};
use super::scrub;
use crate::service::client;
use crate::service::explain::explain;
use crate::service::failure::{Failure, FailureKind};
use crate::service::http::unreachable;
use crate::service::settings::ServiceSettings;

/// The requests that an agent may make: the method, and the path below the base URL. A `*` in a path
/// stands for a name of one level.
const ANTHROPIC: &[(Method, &str)] = &[
    (Method::POST, "v1/messages"),
    (Method::POST, "v1/messages/count_tokens"),
    (Method::GET, "v1/models"),
    (Method::GET, "v1/models/*"),
];
const OPENAI: &[(Method, &str)] = &[
    (Method::POST, "responses"),
    (Method::POST, "responses/compact"),
    (Method::POST, "chat/completions"),
    (Method::POST, "embeddings"),
    (Method::GET, "models"),
    (Method::GET, "models/*"),
];
const GOOGLE: &[(Method, &str)] = &[
    (Method::POST, "v1beta/models/*:generateContent"),
    (Method::POST, "v1beta/models/*:streamGenerateContent"),
    (Method::POST, "v1beta/models/*:countTokens"),
    (Method::GET, "v1beta/models"),
    (Method::GET, "v1beta/models/*"),
];

/// The ends of the requests that count tokens, which cost nothing.
const COUNTS: [&str; 2] = ["/count_tokens", ":countTokens"];

/// The headers in which an agent shows its key.
const SHOWN: [&str; 3] = ["x-api-key", "authorization", "x-goog-api-key"];

/// Headers of one connection, and headers that name the client. Those of the agent are not passed
/// on.
const OWN: [&str; 16] = [
    // An answer that is an error is read here, so it comes as plain text.
    "accept-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "content-length",
    "upgrade",
    "expect",
    "host",
    "cookie",
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
];

/// URL parameters in which some services accept a key.
const KEYS: [&str; 4] = ["key", "api_key", "api-key", "access_token"];

/// How much of an error is read, in bytes: it may repeat the key.
const MAX_ERROR: usize = 256 << 10;

/// One service.
#[derive(Debug)]
pub(super) struct Upstream {
    settings: ServiceSettings,
    /// Built at the first request.
    client: OnceLock<Client>,
}

impl Upstream {
    /// Makes that of a provider; none if its key is not in the environment.
    pub(super) fn new(provider: Provider, environment: &Environment) -> Option<Self> {
        let settings = ServiceSettings::read(
            &ModelSpec {
                provider,
                model: None,
            },
            environment,
        );
        let mut settings = settings
            .inspect_err(|error| tracing::info!("agents cannot use this service: {error}"))
            .ok()?;
        // The agent names it.
        settings.model.clear();
        Some(Self {
            settings,
            client: OnceLock::new(),
        })
    }

    fn name(&self) -> &'static str {
        self.settings.provider.as_str()
    }

    /// Returns the path below the base of the service.
    fn below<'p>(&self, path: &'p str) -> Option<&'p str> {
        path.strip_prefix('/')?
            .strip_prefix(self.name())?
            .strip_prefix('/')
    }

    /// Tells whether a path leads to it.
    pub(super) fn serves(&self, path: &str) -> bool {
        self.below(path).is_some()
    }

    /// Returns the variables by which programs find it through a gateway, and the key that they
    /// show to that.
    pub(super) fn variables(&self, gateway: &str, token: &str) -> [(&'static str, String); 2] {
        let base = format!("{gateway}/{}", self.name());
        let (at, key) = match self.settings.provider {
            Provider::Anthropic => ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
            Provider::OpenAi | Provider::Script => ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
            Provider::Google => ("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"),
        };
        [(at, base), (key, token.to_owned())]
    }

    /// Sends a request on that shows the token, and returns the answer, whose body comes as the
    /// service sends it.
    pub(super) async fn forward(
        &self,
        request: Request<Incoming>,
        token: &str,
        meter: &Meter,
    ) -> Response<Body> {
        if !shows(&request, token) {
            return refusal(
                StatusCode::UNAUTHORIZED,
                "the gateway accepts only the key that this agent was given",
            );
        }
        let Some(url) = self.url(request.method(), request.uri()) else {
            let method = request.method();
            let path = request.uri().path();
            return refusal(
                StatusCode::NOT_FOUND,
                &format!("the gateway does not pass on {method} {path}"),
            );
        };
        let client = match self.client() {
            Ok(client) => client,
            Err(why) => return refusal(StatusCode::BAD_GATEWAY, &why),
        };
        let admission = match self.admit(&request, meter).await {
            Ok(admission) => admission,
            Err(why) => return self.too_many(&why),
        };
        let (parts, body) = request.into_parts();
        let sent = client
            .request(parts.method, url)
            .headers(self.headers(parts.headers))
            .body(Body::wrap(body))
            .send();
        match sent.await {
            Ok(answer) => self.answer(answer, admission, meter).await,
            Err(error) => {
                if let Some(admission) = admission {
                    admission.refused();
                }
                let failure = self.failed(unreachable(error), meter);
                // An agent tries a 502 again, and nothing that is the fault of its request.
                let status = if failure.is_temporary() {
                    StatusCode::BAD_GATEWAY
                } else {
                    StatusCode::NOT_FOUND
                };
                refusal(status, &failure.brief(&self.settings.host()))
            }
        }
    }

    /// Tells the worker why a call has failed: the agent says less of it.
    fn failed(&self, failure: Failure, meter: &Meter) -> Failure {
        let failure = failure.sanitized(|text| self.settings.scrub(text));
        let brief = failure.brief(&self.settings.host());
        let attempts = meter.attempts() + 1;
        tracing::warn!("a model call of the agent has failed: {brief} ({failure})");
        let error = explain(&failure, &self.settings, attempts);
        meter.set_trouble(Some(Trouble {
            brief,
            error,
            attempts,
        }));
        failure
    }

    /// Admits a request; none if its service takes nothing for it.
    async fn admit(
        &self,
        request: &Request<Incoming>,
        meter: &Meter,
    ) -> Result<Option<Admission>, String> {
        let path = request.uri().path();
        let counts = COUNTS.iter().any(|end| path.ends_with(end));
        if request.method() == Method::GET || counts {
            return meter.admit_free().map(|()| None);
        }
        // One that does not say how much it sends is not estimated.
        let asked = request.body().size_hint().exact().unwrap_or_default();
        meter.admit(asked).await.map(Some)
    }

    /// Refuses a call as the service does one that comes too often.
    fn too_many(&self, why: &str) -> Response<Body> {
        tracing::info!("a model call of the agent is refused: {why}");
        let message = format!("teamd: {why}");
        let error = match self.settings.provider {
            Provider::Anthropic => {
                json!({"type": "error", "error": {"type": "rate_limit_error", "message": message}})
            }
            Provider::OpenAi | Provider::Script => {
                json!({"error": {"message": message, "type": "requests", "param": null, "code": "rate_limit_exceeded"}})
            }
            Provider::Google => {
                json!({"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED"}})
            }
        };
        let mut response = refusal(StatusCode::TOO_MANY_REQUESTS, why);
        *response.body_mut() = Body::from(error.to_string());
        response
    }

    fn client(&self) -> Result<Client, String> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let built =
            client::build(&self.settings).map_err(|error| format!("{error} ({})", error.hint()))?;
        Ok(self.client.get_or_init(|| built).clone())
    }

    /// Returns the address at the service; none if that request is not passed on.
    fn url(&self, method: &Method, asked: &hyper::Uri) -> Option<Url> {
        let path = self.below(asked.path())?;
        let table = match self.settings.provider {
            Provider::Anthropic => ANTHROPIC,
            Provider::OpenAi | Provider::Script => OPENAI,
            Provider::Google => GOOGLE,
        };
        let is_plain = path
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte));
        let is_known = table
            .iter()
            .any(|(allowed, pattern)| allowed == method && matches_pattern(path, pattern));
        if !is_known || !is_plain || path.contains("..") {
            return None;
        }
        let mut url = client::below(&self.settings.base, path);
        let query = Url::parse(&format!("http://x/?{}", asked.query().unwrap_or_default())).ok()?;
        let pairs = query
            .query_pairs()
            .filter(|(name, _)| !KEYS.contains(&name.to_ascii_lowercase().as_str()));
        let pairs: Vec<_> = pairs.collect();
        if !pairs.is_empty() {
            url.query_pairs_mut().extend_pairs(pairs);
        }
        Some(url)
    }

    /// Puts the key in the place of what the agent has shown.
    fn headers(&self, mut headers: HeaderMap) -> HeaderMap {
        for name in OWN.iter() {
            drop(headers.remove(*name));
        }
        let Some(key) = &self.settings.key else {
            return headers;
        };
        let (name, value) = match (self.settings.provider, key.variable()) {
            (Provider::Anthropic, "ANTHROPIC_API_KEY") => ("x-api-key", key.expose().to_owned()),
            (Provider::Google, _) => ("x-goog-api-key", key.expose().to_owned()),
            _ => ("authorization", format!("Bearer {}", key.expose())),
        };
        // Settings refuse a key with any but graphic ASCII characters.
        if let Ok(mut value) = HeaderValue::from_str(&value) {
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        headers
    }

    /// Returns the answer of the service, as the agent may see it.
    async fn answer(
        &self,
        mut answer: reqwest::Response,
        admission: Option<Admission>,
        meter: &Meter,
    ) -> Response<Body> {
        let error = read_error(&mut answer).await;
        if let Some(failure) = self.judge(&answer, error.as_deref(), meter) {
            if let Some(admission) = admission {
                admission.refused();
            }
            return self.error(&answer, &failure, error.unwrap_or_default());
        }
        if admission.is_some() {
            meter.set_trouble(None);
        }
        let mut response: Response<Body> = answer.into();
        // What cannot be read could contain the key, and does contain the cost.
        if let Some(encoding) = encoding_of(response.headers()) {
            return refusal(StatusCode::BAD_GATEWAY, &not_asked_for(&encoding));
        }
        let of_connection = OWN.iter().filter(|name| **name != "content-length");
        for name in of_connection {
            drop(response.headers_mut().remove(*name));
        }
        if let Some(key) = &self.settings.key {
            scrub::headers(key, response.headers_mut());
            response = response.map(|body| scrub::body(key, body));
        }
        let Some(admission) = admission else {
            return response;
        };
        let kind = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let is_stream = kind.is_some_and(|kind| kind.starts_with("text/event-stream"));
        response.map(|body| admission.read(self.settings.provider, is_stream, body))
    }

    /// Tells the worker why a call brings no answer, if it brings none.
    fn judge(
        &self,
        answer: &reqwest::Response,
        error: Option<&str>,
        meter: &Meter,
    ) -> Option<Failure> {
        let status = answer.status();
        let kind = answer
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        let failure = match (wrong_service(status, kind), error) {
            (Some(why), _) => Failure::new(FailureKind::WrongService, &why),
            (None, Some(error)) => Failure::of_body(status.as_u16(), error),
            (None, None) => return None,
        };
        Some(self.failed(failure, meter))
    }

    /// Returns an error as the agent may see it.
    fn error(
        &self,
        answer: &reqwest::Response,
        failure: &Failure,
        error: String,
    ) -> Response<Body> {
        if failure.kind == FailureKind::WrongService {
            let why = format!("{}: {failure}", failure.brief(&self.settings.host()));
            return refusal(StatusCode::NOT_FOUND, &why);
        }
        if let Some(encoding) = encoding_of(answer.headers()) {
            return refusal(answer.status(), &not_asked_for(&encoding));
        }
        let mut response = Response::new(Body::from(self.settings.scrub(&error)));
        *response.status_mut() = answer.status();
        *response.headers_mut() = answer.headers().clone();
        for name in OWN.iter() {
            drop(response.headers_mut().remove(*name));
        }
        if let Some(key) = &self.settings.key {
            scrub::headers(key, response.headers_mut());
        }
        response
    }
}

/// Reads an error, which may repeat the key. Returns none for an answer.
async fn read_error(answer: &mut reqwest::Response) -> Option<String> {
    if answer.status().as_u16() < 400 {
        return None;
    }
    let mut error = Vec::new();
    while error.len() < MAX_ERROR
        && let Ok(Some(piece)) = answer.chunk().await
    {
        error.extend_from_slice(&piece);
    }
    Some(String::from_utf8_lossy(&error).into_owned())
}

/// Returns the encoding of an answer; none if it can be read.
fn encoding_of(headers: &HeaderMap) -> Option<HeaderValue> {
    headers
        .get(CONTENT_ENCODING)
        .filter(|encoding| *encoding != "identity")
        .cloned()
}

fn not_asked_for(encoding: &HeaderValue) -> String {
    // The value comes from the service and may be anything; only its kind matters.
    let name = ["gzip", "br", "zstd", "deflate"]
        .into_iter()
        .find(|name| encoding.as_bytes() == name.as_bytes());
    format!(
        "the service answered in an encoding that it was not asked for ({})",
        name.unwrap_or("unknown")
    )
}

/// Returns why an answer does not come from such a service, if so: a page, a redirection, an
/// unknown path.
fn wrong_service(status: StatusCode, kind: &str) -> Option<String> {
    if status.is_redirection() {
        return Some(format!(
            "it redirects (status {}), which is not followed",
            status.as_u16()
        ));
    }
    if status.is_success() && kind.contains("html")
        || status == StatusCode::NOT_FOUND && !kind.contains("json")
    {
        let what = if kind.contains("html") {
            "a page"
        } else {
            "nothing"
        };
        return Some(format!(
            "there is {what} at this address (status {})",
            status.as_u16()
        ));
    }
    None
}

/// Tells whether a request shows the token: in a header, or as Google takes it in the address.
fn shows(request: &Request<Incoming>, token: &str) -> bool {
    let headers = request.headers();
    let mut shown = SHOWN
        .iter()
        .filter_map(|name| headers.get(*name)?.to_str().ok())
        .map(|shown| shown.strip_prefix("Bearer ").unwrap_or(shown));
    let in_address = format!("key={token}");
    let query = request.uri().query().unwrap_or_default();
    shown.any(|shown| shown == token) || query.split('&').any(|pair| pair == in_address)
}

/// Returns whether a path is the one of the table.
fn matches_pattern(path: &str, pattern: &str) -> bool {
    let Some((before, behind)) = pattern.split_once('*') else {
        return path == pattern;
    };
    let name = path
        .strip_prefix(before)
        .and_then(|rest| rest.strip_suffix(behind));
    name.is_some_and(|name| !name.is_empty() && !name.contains(['/', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(variables: &[(&str, &str)]) -> Option<Upstream> {
        let environment = Environment {
            variables: variables
                .iter()
                .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
                .collect(),
            ..Environment::default()
        };
        let has = |prefix: &str| variables.iter().any(|(name, _)| name.starts_with(prefix));
        let provider = if has("OPENAI") {
            Provider::OpenAi
        } else if has("GEMINI") {
            Provider::Google
        } else {
            Provider::Anthropic
        };
        Upstream::new(provider, &environment)
    }

    #[test]
    fn only_what_the_table_lists_is_passed_on_and_no_key_in_an_address() {
        let anthropic = upstream(&[("ANTHROPIC_API_KEY", "sk-1")]).unwrap();
        let openai = upstream(&[
            ("OPENAI_API_KEY", "sk-2"),
            ("OPENAI_BASE_URL", "https://gate/x/v1?v=2"),
        ])
        .unwrap();
        let url = |upstream: &Upstream, method: Method, asked: &str| {
            upstream
                .url(&method, &asked.parse().unwrap())
                .map(|url| url.to_string())
        };
        assert_eq!(
            url(
                &anthropic,
                Method::POST,
                "/anthropic/v1/messages?beta=true&key=x&API_KEY=y"
            )
            .as_deref(),
            Some("https://api.anthropic.com/v1/messages?beta=true")
        );
        assert_eq!(
            url(&openai, Method::POST, "/openai/responses").as_deref(),
            Some("https://gate/x/v1/responses?v=2")
        );
        assert!(url(&anthropic, Method::GET, "/anthropic/v1/models/claude-x").is_some());
        for (method, asked) in [
            (Method::GET, "/anthropic/v1/messages"),
            (Method::POST, "/anthropic/v1/files"),
            (Method::POST, "/anthropic/v1/organizations/me"),
            (Method::GET, "/anthropic/v1/models/../files"),
            (Method::GET, "/anthropic/v1/models/%2e%2e"),
            (Method::GET, "/anthropic/v1/models/a/b"),
            (Method::POST, "/openai/v1/messages"),
            (Method::POST, "/v1/messages"),
        ] {
            assert_eq!(url(&anthropic, method, asked), None, "{asked}");
        }
        let google = upstream(&[("GEMINI_API_KEY", "sk-3")]).unwrap();
        assert_eq!(
            url(
                &google,
                Method::POST,
                "/google/v1beta/models/gemini-x:streamGenerateContent?alt=sse&key=x"
            )
            .as_deref(),
            Some(
                "https://generativelanguage.googleapis.com/v1beta/models/gemini-x:streamGenerateContent?alt=sse"
            )
        );
        for (method, asked, is_known) in [
            (Method::POST, "models/x:generateContent", true),
            (Method::POST, "models/x:countTokens", true),
            (Method::GET, "models/x", true),
            (Method::POST, "models/x:batchGenerateContent", false),
            (Method::POST, "models/a:b:generateContent", false),
            (Method::POST, "models/:generateContent", false),
            (Method::POST, "tunedModels/x:generateContent", false),
            (Method::POST, "cachedContents", false),
            (Method::GET, "files", false),
            (Method::GET, "models/x:countTokens", false),
            (Method::GET, "models/../files", false),
        ] {
            let asked = format!("/google/v1beta/{asked}");
            let found = url(&google, method, &asked).is_some();
            assert_eq!(found, is_known, "{asked}");
        }
    }

    #[test]
    fn the_key_takes_the_place_of_all_that_the_agent_shows() {
        let mut headers = HeaderMap::new();
        for name in [
            "x-api-key",
            "authorization",
            "x-goog-api-key",
            "cookie",
            "anthropic-version",
            "host",
        ] {
            headers.insert(name, HeaderValue::from_static("of-the-agent"));
        }
        let names = |headers: &HeaderMap| {
            let mut all: Vec<String> = headers
                .iter()
                .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
                .collect();
            all.sort();
            all.join(" ")
        };
        let sent = upstream(&[("ANTHROPIC_API_KEY", "sk-1")])
            .unwrap()
            .headers(headers.clone());
        assert_eq!(
            names(&sent),
            "anthropic-version=of-the-agent x-api-key=sk-1"
        );
        let sent = upstream(&[("GEMINI_API_KEY", "sk-3")])
            .unwrap()
            .headers(headers.clone());
        assert_eq!(
            names(&sent),
            "anthropic-version=of-the-agent x-goog-api-key=sk-3"
        );
        let sent = upstream(&[("ANTHROPIC_AUTH_TOKEN", "t")])
            .unwrap()
            .headers(headers);
        assert_eq!(
            names(&sent),
            "anthropic-version=of-the-agent authorization=Bearer t"
        );
        assert!(upstream(&[]).is_none());
    }
}
