//! What a failure means: one row for each cause. Pure.

use super::failure::{Failure, FailureKind};

/// What a user does to have settings take effect.
pub(super) const RESTART: &str = "end the teammate and run `teamctl spawn NAME --resume` in that shell (for the lead \
    agent: leave the chat and run `teamctl chat`)";

/// Why a service gave no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// The account has no money left: waiting does not help.
    Credit,
    /// The conversation does not fit into the model.
    TooLong,
    /// The key is refused.
    Key,
    /// The key may not use this.
    Forbidden,
    /// The service has no such model.
    Model,
    /// Too many requests in a time.
    RateLimit,
    /// The service has more work than it can do.
    Overloaded,
    /// The service is down.
    Unavailable,
    /// The service made a mistake.
    Server,
    /// The request is refused.
    Request,
    /// No connection was established.
    Unreachable,
    /// The certificate of the server is not trusted.
    Certificate,
    /// Nothing came for too long.
    Silent,
    /// The answer broke off, or came damaged.
    Incomplete,
    /// The answer is longer than any that makes sense.
    TooLarge,
    /// The server that answered is not such a service.
    WrongService,
}

/// What follows from a cause: one row of the table. [`fill`] replaces the names in braces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Explanation {
    /// Whether the same request may be answered later.
    pub(super) may_pass: bool,
    /// What is shown while the worker waits for the next attempt: nothing that the service sent.
    pub(super) brief: &'static str,
    /// The message after the last attempt.
    pub(super) message: &'static str,
    /// What the user can do then.
    pub(super) hint: &'static str,
}

impl Explanation {
    const fn passing(brief: &'static str, message: &'static str, hint: &'static str) -> Self {
        Self {
            may_pass: true,
            brief,
            message,
            hint,
        }
    }

    const fn lasting(brief: &'static str, message: &'static str, hint: &'static str) -> Self {
        Self {
            may_pass: false,
            brief,
            message,
            hint,
        }
    }
}

/// The message when a service failed in several attempts.
pub(super) const NO_ANSWER: &str =
    "{provider} did not answer, {attempts} failed; the last: {detail}";

/// What the user can do about that.
pub(super) const LATER: &str = "send the message again, later";

impl NoAnswer {
    /// Finds the cause of a failure.
    pub(super) fn of(failure: &Failure) -> Self {
        match failure.kind {
            // Before all others: the conversation can be made shorter.
            FailureKind::Status(_) if failure.is_too_long() => Self::TooLong,
            FailureKind::Status(_) if failure.is_out_of_credit() => Self::Credit,
            FailureKind::Status(401) => Self::Key,
            FailureKind::Status(403) => Self::Forbidden,
            FailureKind::Status(404) => Self::Model,
            FailureKind::Status(429) => Self::RateLimit,
            FailureKind::Status(503) => Self::Unavailable,
            FailureKind::Status(529) => Self::Overloaded,
            FailureKind::Status(408 | 409 | 500..=599) => Self::Server,
            FailureKind::Status(_) => Self::Request,
            FailureKind::Unreachable => Self::Unreachable,
            FailureKind::Certificate => Self::Certificate,
            FailureKind::Silent => Self::Silent,
            FailureKind::Incomplete => Self::Incomplete,
            FailureKind::WrongService => Self::WrongService,
            FailureKind::TooLarge => Self::TooLarge,
        }
    }

    /// Returns what follows from the cause.
    pub(super) fn explanation(self) -> Explanation {
        match self {
            Self::Credit => Explanation::lasting(
                "no credit left",
                "the account at {provider} has no credit left: {detail}",
                "add credit to the account, then send the message again",
            ),
            Self::TooLong => Explanation::lasting("the conversation is too long", "{detail}", ""),
            Self::Key => Explanation::lasting(
                "its key is refused (401)",
                "{provider} refuses the key: {detail}",
                "correct {key} in the shell; then {restart}",
            ),
            Self::Forbidden => Explanation::lasting(
                "its key may not do this (403)",
                "{provider} does not allow this: {detail}",
                "use a key that may use this model, or name another model",
            ),
            Self::Model => Explanation::lasting(
                "its model is not known there (404)",
                "{provider} at {host} has no {model}: {detail}",
                "name one that it has (`--model {provider}:MODEL`, or MODEL_ID), and check {base}",
            ),
            Self::RateLimit => Explanation::passing("asked too often (429)", NO_ANSWER, LATER),
            Self::Overloaded => Explanation::passing("overloaded (529)", NO_ANSWER, LATER),
            Self::Unavailable => Explanation::passing("not available (503)", NO_ANSWER, LATER),
            Self::Server => Explanation::passing("the service failed ({status})", NO_ANSWER, LATER),
            Self::Request => Explanation::lasting(
                "the service failed ({status})",
                "{provider} refuses the request: {detail}",
                "",
            ),
            Self::Unreachable => Explanation::passing(
                "{host} cannot be reached: {detail}",
                "{host} cannot be reached: {detail}",
                "check the network, the base URL and the proxy variables; the next message continues the work",
            ),
            Self::Certificate => Explanation::lasting(
                "the certificate of {host} is not trusted",
                "{host} cannot be reached: {detail}",
                "if a proxy of your organisation answers there, set TEAM_CA=platform or TEAM_CA=FILE (its root, PEM) in the \
                 shell; then {restart}",
            ),
            Self::Silent => Explanation::passing(
                "the service was silent",
                "{host} was silent in {attempts}: {detail}",
                "send the message again; with a larger TEAM_MODEL_TIMEOUT the worker waits longer",
            ),
            Self::Incomplete => Explanation::passing(
                "the answer broke off",
                "the answer of {provider} broke off in {attempts}; the last: {detail}",
                "send the message again, later; if that does not help, check {base}, proxies and gateways",
            ),
            Self::TooLarge => Explanation::lasting(
                "the answer broke off",
                "teamd stopped reading the answer of {provider}: {detail}",
                "ask for less at a time; if the model repeats itself, try another one (`--model`)",
            ),
            Self::WrongService => Explanation::lasting(
                "{host} does not answer as such a service does",
                "{host} does not answer as {provider} does: {detail}",
                "correct {base} and the proxy variables in the shell; then {restart}",
            ),
        }
    }
}

/// Replaces each `{NAME}` in a text of the table by its value. Braces in values have no meaning.
pub(super) fn fill(text: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, after) = behind.split_once('}').unwrap_or((behind, ""));
        let value = values.iter().find(|(key, _)| *key == name);
        filled.push_str(before);
        filled.push_str(value.map_or(name, |(_, value)| value));
        rest = after;
    }
    filled + rest
}

impl Failure {
    /// Returns whether the same request may be answered later. What a service says about that
    /// counts more than its status.
    pub(super) fn is_temporary(&self) -> bool {
        let cause = NoAnswer::of(self);
        match (self.should_retry, self.kind) {
            _ if matches!(cause, NoAnswer::Credit | NoAnswer::TooLong) => false,
            (Some(should_retry), FailureKind::Status(_)) => should_retry,
            _ => cause.explanation().may_pass,
        }
    }

    /// Describes the failure in a few words of our own, given the host. They hold nothing that its
    /// service has sent.
    pub(super) fn brief(&self, host: &str) -> String {
        let status = match self.kind {
            FailureKind::Status(status) => status.to_string(),
            _ => String::new(),
        };
        let values = [
            ("host", host),
            ("status", &status),
            ("detail", &self.detail),
        ];
        fill(NoAnswer::of(self).explanation().brief, &values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_replaced_once() {
        let values = [("host", "h {detail}"), ("detail", "no {host}")];
        assert_eq!(fill("{host}: {detail}.", &values), "h {detail}: no {host}.");
        assert_eq!(fill("plain", &values), "plain");
    }

    #[test]
    fn a_conversation_that_is_too_long_is_that_whatever_else_the_service_says() {
        let says = "exceeds the context window of your billing plan";
        let cause = NoAnswer::of(&Failure::new(FailureKind::Status(400), says));
        assert!(matches!(cause, NoAnswer::TooLong), "{cause:?}");
        let cause = NoAnswer::of(&Failure::new(FailureKind::Status(400), "see billing"));
        assert!(matches!(cause, NoAnswer::Credit), "{cause:?}");
    }

    #[test]
    fn the_texts_of_the_table_use_only_names_that_have_a_value() {
        let all_names = [
            "provider", "host", "base", "model", "key", "attempts", "detail", "restart",
        ];
        let statuses = [400, 401, 402, 403, 404, 413, 429, 500, 503, 529].map(FailureKind::Status);
        let others = [
            FailureKind::Unreachable,
            FailureKind::Certificate,
            FailureKind::Silent,
            FailureKind::Incomplete,
            FailureKind::TooLarge,
            FailureKind::WrongService,
        ];
        for kind in statuses.into_iter().chain(others) {
            let row = NoAnswer::of(&Failure::new(kind, "")).explanation();
            let texts = [
                (row.brief, &["host", "status", "detail"][..]),
                (row.message, &all_names),
                (row.hint, &all_names),
            ];
            for (text, names) in texts {
                for behind in text.split('{').skip(1) {
                    let name = behind.split('}').next().unwrap();
                    assert!(names.contains(&name), "{name} in {text}");
                }
            }
        }
    }
}
