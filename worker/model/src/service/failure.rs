//! Why one request to a service brought no answer, and whether another attempt may help. Pure.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use serde_json::Value;
use teamd_shared::amount::format_duration;
use teamd_shared::visible::is_hidden;

use super::GIVE_UP;

/// How much of a service's message is shown, in characters.
const MAX_DETAIL: usize = 300;

/// Why one request brought no answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Failure {
    /// What went wrong.
    pub(super) kind: FailureKind,
    /// What the service or the network said: one line without control characters. It may be long
    /// and hold the key until [`Failure::sanitized`].
    pub(super) detail: String,
    /// The service's own type and code of the error, such as `overloaded_error`.
    pub(super) code: String,
    /// How long the service asks to wait.
    pub(super) retry_after: Option<Duration>,
    /// Whether the service says itself that another attempt makes sense.
    pub(super) should_retry: Option<bool>,
}

/// What went wrong with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The service answered with this HTTP status, or with an error event that stands for it.
    Status(u16),
    /// No connection was established.
    Unreachable,
    /// The certificate of the server is not trusted.
    Certificate,
    /// Nothing came for too long.
    Silent,
    /// The answer broke off, or came damaged.
    Incomplete,
    /// The server that answered is not such a service.
    WrongService,
    /// The answer is longer than any that makes sense.
    TooLarge,
}

impl Failure {
    /// Makes a failure; `detail` may be any text.
    pub(super) fn new(kind: FailureKind, detail: &str) -> Self {
        Self {
            kind,
            detail: one_line(detail),
            code: String::new(),
            retry_after: None,
            should_retry: None,
        }
    }

    /// Reads the body that came with a status.
    pub(super) fn of_body(status: u16, body: &str) -> Self {
        match serde_json::from_str::<Value>(body) {
            Ok(value) => Self {
                kind: FailureKind::Status(status),
                ..Self::of_event(&value)
            },
            Err(_) => Self::new(FailureKind::Status(status), body),
        }
    }

    /// Reads an error that came within a stream, or with status 200.
    ///
    /// Both services wrap an error in `error`. Other servers write a text there, or `message` or
    /// `detail` at the top.
    pub(super) fn of_event(value: &Value) -> Self {
        let error = value
            .get("error")
            .filter(|error| !error.is_null())
            .unwrap_or(value);
        let field = |path: &&str| match error.pointer(path)? {
            Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let message = ["", "/message", "/detail"].iter().find_map(field);
        let codes: Vec<_> = ["/type", "/code", "/details/error_code"]
            .iter()
            .filter_map(field)
            .collect();
        let mut failure = Self::new(
            FailureKind::Status(500),
            &message.unwrap_or_else(|| error.to_string()),
        );
        failure.code = codes.join(" ");
        failure.kind = FailureKind::Status(failure.status_of_code());
        failure
    }

    /// Returns the status that the code means. An unknown code counts as a mistake of the service.
    fn status_of_code(&self) -> u16 {
        let mut numbers = self.code.split(' ').filter_map(|word| word.parse().ok());
        if let Some(status) = numbers.find(|status| (400..600).contains(status)) {
            return status;
        }
        let statuses = [
            (
                400,
                &[
                    "invalid_request",
                    "context_length_exceeded",
                    "badrequest",
                    "invalid_prompt",
                ][..],
            ),
            (401, &["authentication_error", "invalid_api_key"]),
            (402, &["billing_error"]),
            (403, &["permission_error"]),
            (404, &["not_found_error", "model_not_found"]),
            (413, &["request_too_large"]),
            (
                429,
                &["rate_limit", "insufficient_quota", "tokens_exceeded"],
            ),
            (529, &["overloaded"]),
            (504, &["timeout"]),
        ];
        statuses
            .into_iter()
            .find(|(_, words)| self.mentions(words))
            .map_or(500, |(status, _)| status)
    }

    /// Returns the failure without secrets and with a short detail. `scrub` comes first: a cut may
    /// split a secret.
    pub(super) fn sanitized(self, scrub: impl Fn(&str) -> String) -> Self {
        Self {
            detail: cut(&scrub(&self.detail)),
            code: cut(&scrub(&self.code)),
            ..self
        }
    }

    /// Returns whether the service answered with one of these statuses.
    pub(super) fn has_status(&self, statuses: &[u16]) -> bool {
        matches!(self.kind, FailureKind::Status(status) if statuses.contains(&status))
    }

    /// Returns whether code or detail holds one of these words, which are in small letters.
    pub(super) fn mentions(&self, words: &[&str]) -> bool {
        let all = format!("{} {}", self.code, self.detail).to_lowercase();
        words.iter().any(|word| all.contains(word))
    }

    /// Returns whether the account lacks money: waiting does not help.
    pub(super) fn is_out_of_credit(&self) -> bool {
        let words = [
            "insufficient_quota",
            "credit balance",
            "billing",
            "spend_limit",
            "exceeded your current quota",
        ];
        self.has_status(&[402]) || self.has_status(&[400, 403, 429]) && self.mentions(&words)
    }

    /// Returns whether the conversation no longer fits the model, in the words of each service.
    pub(super) fn is_too_long(&self) -> bool {
        let words = [
            "context_length_exceeded",
            "prompt is too long",
            "maximum context length",
            "exceed context limit",
            "exceeds the available context size",
            "exceed_context_size",
            "context window",
        ];
        self.has_status(&[413]) || self.has_status(&[400, 422, 500]) && self.mentions(&words)
    }

    /// Returns whether the whole team should leave the service alone.
    pub(super) fn is_overload(&self) -> bool {
        self.has_status(&[429, 503, 529]) || self.retry_after.is_some()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FailureKind::Status(status) if self.detail.is_empty() => write!(f, "status {status}")?,
            FailureKind::Status(status) => write!(f, "{} ({status})", self.detail)?,
            _ => f.write_str(&self.detail)?,
        }
        // Such a time is the reason why the service is not asked again.
        match self.retry_after.filter(|wanted| *wanted > GIVE_UP) {
            Some(wanted) => write!(
                f,
                "; it asks to be left alone for {}",
                format_duration(wanted)
            ),
            None => Ok(()),
        }
    }
}

/// Makes a text from outside safe for a log line and a message: one line, without characters that
/// control a terminal.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .flat_map(|c| {
            if is_hidden(c) {
                c.escape_unicode().collect()
            } else {
                vec![c]
            }
        })
        .collect()
}

/// Writes an error with its sources, without the address.
pub(super) fn error_chain(error: reqwest::Error) -> String {
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
    one_line(&all.join(": "))
}

/// Shortens a text.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_DETAIL) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errors_of_all_services_are_read() {
        let anthropic = r#"{"type":"error","error":{"type":"not_found_error","message":"model: x"},"request_id":"r"}"#;
        let read = Failure::of_body(404, anthropic);
        assert_eq!(
            (read.code.as_str(), read.detail.as_str()),
            ("not_found_error", "model: x")
        );
        let openai = r#"{"error":{"message":"no quota","type":"insufficient_quota","param":null,"code":"quota_7"}}"#;
        assert_eq!(
            Failure::of_body(429, openai).code,
            "insufficient_quota quota_7"
        );
        for (body, detail) in [
            (r#"{"error":"model 'x' not found"}"#, "model 'x' not found"),
            (
                r#"{"object":"error","message":"too long","code":400}"#,
                "too long",
            ),
            (r#"{"detail":"Not Found"}"#, "Not Found"),
            (
                "<html>\n <b>bad\u{1b}[31m gateway",
                "<html> <b>bad\\u{1b}[31m gateway",
            ),
            ("", ""),
        ] {
            let read = Failure::of_body(400, body);
            assert_eq!(
                (read.kind, read.detail.as_str()),
                (FailureKind::Status(400), detail),
                "{body}"
            );
        }
    }

    #[test]
    fn a_sanitized_failure_holds_no_secret_not_even_a_part_of_one() {
        let secret = "sk-0123456789";
        let sanitized =
            |failure: Failure| failure.sanitized(|text| text.replace(secret, "[hidden]"));
        for before in 0..310 {
            let detail = format!("{}{secret}{}", "x".repeat(before), "y".repeat(300));
            for kind in [
                FailureKind::Status(400),
                FailureKind::Unreachable,
                FailureKind::Incomplete,
            ] {
                let shown = sanitized(Failure::new(kind, &detail)).to_string();
                assert!(!shown.contains("sk-") && shown.contains('…'), "{shown}");
                assert!(shown.chars().count() <= MAX_DETAIL + " (400)…".len());
            }
        }
        let mut failure = Failure::new(FailureKind::Status(400), "");
        failure.code = secret.to_owned();
        assert!(!format!("{:?}", sanitized(failure)).contains(secret));
    }

    #[test]
    fn an_error_in_a_stream_stands_for_a_status() {
        for (event, status) in [
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                529,
            ),
            (
                r#"{"type":"error","error":{"type":"api_error","message":"oops"}}"#,
                500,
            ),
            (
                r#"{"error":{"type":"rate_limit_error","message":"slow down"}}"#,
                429,
            ),
            (
                r#"{"error":{"code":503,"message":"loading model","type":"unavailable_error"}}"#,
                503,
            ),
            (
                r#"{"error":{"type":"invalid_request_error","message":"no"}}"#,
                400,
            ),
            (r#"{"error":"anything"}"#, 500),
        ] {
            let failure = Failure::of_event(&serde_json::from_str(event).unwrap());
            assert_eq!(failure.kind, FailureKind::Status(status), "{event}");
        }
    }
}
