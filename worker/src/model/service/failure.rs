//! Why an attempt brought no answer, and how a service says so. Pure.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use super::GIVE_UP;
use super::span;

/// How much of what a service says is kept, in characters.
const SAID: usize = 300;

/// Why an attempt brought no answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Failure {
    /// The service said so.
    Service(Complaint),
    /// No connection came about, or it broke.
    Unreachable {
        /// The whole chain of errors.
        why: String,
        /// Whether the certificate is what was wrong.
        certificate: bool,
    },
    /// Nothing came for this long.
    Silent(Duration),
    /// The stream ended before the answer did.
    Cut,
    /// The connection broke within the answer.
    Broken {
        /// The whole chain of errors.
        why: String,
    },
    /// What came is no answer of such a service. `passing`: in the middle of one that was.
    Stranger {
        /// What came.
        why: String,
        /// Whether it may be otherwise the next time.
        passing: bool,
    },
    /// The answer is longer than any that makes sense: in what way.
    TooMuch(&'static str),
    /// The service is left alone for this long yet: longer than anybody waits.
    Left(Duration),
    /// A setting makes no sense, or is missing.
    Setting(super::trouble::Trouble),
}

impl Failure {
    /// Returns it fit to be told: without secrets, and not long. What is cut first may end in the middle of a secret.
    pub(super) fn told(self, scrub: impl Fn(&str) -> String) -> Self {
        let tell = |text: &str| cut(&scrub(text));
        match self {
            Self::Service(complaint) => Self::Service(Complaint {
                kind: tell(&complaint.kind),
                code: tell(&complaint.code),
                message: tell(&complaint.message),
                ..complaint
            }),
            Self::Unreachable { why, certificate } => Self::Unreachable { why: tell(&why), certificate },
            Self::Stranger { why, passing } => Self::Stranger { why: tell(&why), passing },
            Self::Broken { why } => Self::Broken { why: tell(&why) },
            other @ (Self::Silent(_) | Self::Cut | Self::TooMuch(_) | Self::Left(_) | Self::Setting(_)) => {
                other
            }
        }
    }

    /// Says it in a few words of our own: nothing that came from outside is among them.
    pub(super) fn brief(&self) -> String {
        match self {
            Self::Service(Complaint { status, .. }) => match status {
                429 => "asked too often (429)".to_owned(),
                529 => "overloaded (529)".to_owned(),
                503 => "not available (503)".to_owned(),
                status => format!("the service failed ({status})"),
            },
            Self::Unreachable { .. } => "the service cannot be reached".to_owned(),
            Self::Silent(patience) => format!("nothing came for {}", span(*patience)),
            Self::Cut | Self::Broken { .. } => "the answer broke off".to_owned(),
            Self::Stranger { .. } | Self::TooMuch(_) => "what came was no answer".to_owned(),
            Self::Left(_) => "the service asks to be left alone".to_owned(),
            Self::Setting(_) => "a setting is wrong".to_owned(),
        }
    }

    /// Returns what the service said, if it said something.
    pub(super) fn complaint(&self) -> Option<&Complaint> {
        match self {
            Self::Service(complaint) => Some(complaint),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(complaint) => complaint.fmt(f),
            Self::Unreachable { why, .. } | Self::Stranger { why, .. } => f.write_str(why),
            Self::Silent(patience) => write!(f, "nothing came for {}", span(*patience)),
            Self::Cut => f.write_str("the stream ended before the answer did"),
            Self::Broken { why } => write!(f, "the connection broke within the answer: {why}"),
            Self::TooMuch(what) => f.write_str(what),
            Self::Left(left) => write!(f, "it asks to be left alone for {}", span(*left)),
            Self::Setting(trouble) => trouble.fmt(f),
        }
    }
}

/// What a service says when it does not answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Complaint {
    /// The HTTP status; in a stream, the one that the kind stands for.
    pub(super) status: u16,
    /// Its kind (`overloaded_error`), if it names one.
    pub(super) kind: String,
    /// Its code (`insufficient_quota`), if it names one.
    pub(super) code: String,
    /// In words, on one line, without control characters. It may be long, and hold what is secret, until
    /// [`Failure::told`].
    pub(super) message: String,
    /// How long it asks to wait.
    pub(super) retry_after: Option<Duration>,
    /// Whether it says itself that another attempt makes sense.
    pub(super) should_retry: Option<bool>,
}

impl Complaint {
    /// Reads the body that came with a status.
    pub(super) fn of_body(status: u16, body: &str) -> Self {
        match serde_json::from_str::<Value>(body) {
            Ok(value) => Self { status, ..Self::of_value(&value) },
            Err(_) => Self { status, message: line(body), ..Self::default() },
        }
    }

    /// Reads an error that came within a stream, or with a status that means success.
    pub(super) fn of_event(value: &Value) -> Self {
        let complaint = Self::of_value(value);
        Self { status: status_of(&complaint), ..complaint }
    }

    /// Both services wrap an error in `error`; other servers write a text there, or `message` or `detail` at the top.
    fn of_value(value: &Value) -> Self {
        let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => String::new(),
        };
        let field = |name: &str| error.get(name).map(text).unwrap_or_default();
        let message = match error {
            Value::String(text) => text.clone(),
            error => ["message", "detail"]
                .into_iter()
                .map(field)
                .find(|text| !text.is_empty())
                .unwrap_or_else(|| error.to_string()),
        };
        let detail = error.pointer("/details/error_code").map(text).unwrap_or_default();
        let code = [field("code"), detail].into_iter().find(|code| !code.is_empty()).unwrap_or_default();
        let kind = if error.is_string() { String::new() } else { field("type") };
        Self { kind, code, message: line(&message), ..Self::default() }
    }

    /// Tells whether money is what is missing: no time to wait helps.
    pub(super) fn is_out_of_credit(&self) -> bool {
        let words =
            ["insufficient_quota", "credit balance", "billing", "spend_limit", "exceeded your current quota"];
        self.status == 402 || matches!(self.status, 400 | 403 | 429) && self.mentions(&words)
    }

    /// Tells whether the conversation does not fit the model any more, as each service says it.
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
        self.status == 413 || matches!(self.status, 400 | 422 | 500) && self.mentions(&words)
    }

    /// Tells whether kind, code or message hold one of these words, in small letters.
    pub(super) fn mentions(&self, words: &[&str]) -> bool {
        let all = format!("{} {} {}", self.kind, self.code, self.message).to_lowercase();
        words.iter().any(|word| all.contains(word))
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.is_empty() {
            true => write!(f, "status {}", self.status)?,
            false => write!(f, "{} ({})", self.message, self.status)?,
        }
        // A time that nobody waits is why it is not asked again.
        match self.retry_after.filter(|wanted| *wanted > GIVE_UP) {
            Some(wanted) => write!(f, "; it asks to be left alone for {}", span(wanted)),
            None => Ok(()),
        }
    }
}

/// The status that a kind or code of error stands for. An unknown one is the service's own fault.
fn status_of(complaint: &Complaint) -> u16 {
    if let Some(status) = complaint.code.parse().ok().filter(|status| (400..600).contains(status)) {
        return status;
    }
    let kinds = [
        (400, &["invalid_request", "context_length_exceeded", "badrequest", "invalid_prompt"][..]),
        (401, &["authentication_error", "invalid_api_key"]),
        (402, &["billing_error"]),
        (403, &["permission_error"]),
        (404, &["not_found_error", "model_not_found"]),
        (413, &["request_too_large"]),
        (429, &["rate_limit", "insufficient_quota", "tokens_exceeded"]),
        (529, &["overloaded"]),
        (504, &["timeout"]),
    ];
    kinds.into_iter().find(|(_, words)| complaint.mentions(words)).map_or(500, |(status, _)| status)
}

/// Makes a text from outside fit for a log line and a message: one line, no control characters. It may be long.
pub(super) fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().flat_map(visible).collect()
}

/// Makes a text short.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(SAID) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Spells out what a terminal would act on, or that turns the direction of what follows.
fn visible(c: char) -> Vec<char> {
    let acts = c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if acts { c.escape_unicode().collect() } else { vec![c] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errors_of_all_services_are_read() {
        let anthropic =
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: x"},"request_id":"r"}"#;
        let read = Complaint::of_body(404, anthropic);
        assert_eq!((read.kind.as_str(), read.message.as_str()), ("not_found_error", "model: x"));
        let openai = r#"{"error":{"message":"no quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#;
        assert_eq!(Complaint::of_body(429, openai).code, "insufficient_quota");
        for (body, message) in [
            (r#"{"error":"model 'x' not found"}"#, "model 'x' not found"),
            (r#"{"object":"error","message":"too long","code":400}"#, "too long"),
            (r#"{"detail":"Not Found"}"#, "Not Found"),
            ("<html>\n <b>bad\u{1b}[31m gateway", "<html> <b>bad\\u{1b}[31m gateway"),
            ("", ""),
        ] {
            assert_eq!(Complaint::of_body(400, body).message, message, "{body}");
        }
    }

    #[test]
    fn what_is_told_of_a_failure_holds_no_secret_not_even_a_part_of_one() {
        let secret = "sk-0123456789";
        let told = |failure: Failure| failure.told(|text| text.replace(secret, "[the key]")).to_string();
        for before in 0..310 {
            let why = format!("{}{secret}{}", "x".repeat(before), "y".repeat(300));
            for failure in [
                Failure::Service(Complaint { status: 400, message: why.clone(), ..Complaint::default() }),
                Failure::Unreachable { why: why.clone(), certificate: false },
                Failure::Stranger { why: why.clone(), passing: true },
            ] {
                let told = told(failure);
                assert!(!told.contains("sk-") && told.contains('…'), "{told}");
                assert!(told.chars().count() <= SAID + " (400)…".len());
            }
        }
        let complaint =
            Complaint { kind: secret.to_owned(), code: secret.to_owned(), ..Complaint::default() };
        let told = Failure::Service(complaint).told(|text| text.replace(secret, "[the key]"));
        assert!(!format!("{told:?}").contains(secret));
    }

    #[test]
    fn an_error_in_a_stream_stands_for_a_status() {
        for (event, status) in [
            (r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, 529),
            (r#"{"type":"error","error":{"type":"api_error","message":"oops"}}"#, 500),
            (r#"{"error":{"type":"rate_limit_error","message":"slow down"}}"#, 429),
            (r#"{"error":{"code":503,"message":"loading model","type":"unavailable_error"}}"#, 503),
            (r#"{"error":{"type":"invalid_request_error","message":"no"}}"#, 400),
            (r#"{"error":"anything"}"#, 500),
        ] {
            assert_eq!(Complaint::of_event(&serde_json::from_str(event).unwrap()).status, status, "{event}");
        }
    }
}
