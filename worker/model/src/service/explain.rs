//! Why a model gives no answer, in words that a user can act on. Pure.

use super::cause::{LATER, NO_ANSWER, NoAnswer, RESTART, fill};
use super::failure::Failure;
use super::setting_errors::{base_variable, missing_key};
use super::settings::ServiceSettings;
use crate::ModelError;

/// Returns the error of an overloaded service that gave no answer in several attempts.
pub(super) fn no_answer(settings: &ServiceSettings, attempts: u32, last: &str) -> ModelError {
    let values = [
        ("provider", settings.provider.as_str()),
        ("attempts", &counted(attempts)),
        ("detail", last),
    ];
    ModelError::Overloaded {
        message: fill(NO_ANSWER, &values),
        hint: LATER.to_owned(),
    }
}

/// Explains the last failure after so many attempts.
pub(super) fn explain(failure: &Failure, settings: &ServiceSettings, attempts: u32) -> ModelError {
    let cause = NoAnswer::of(failure);
    let key = match &settings.key {
        Some(key) => key.variable(),
        None if cause == NoAnswer::Key => return missing_key(settings.provider),
        None => "",
    };
    let model = if settings.model.is_empty() {
        "such model".to_owned()
    } else {
        format!("model {:?}", settings.model)
    };
    let values = [
        ("provider", settings.provider.as_str()),
        ("host", &settings.host()),
        ("base", base_variable(settings.provider)),
        ("model", &model),
        ("key", key),
        ("attempts", &counted(attempts)),
        ("detail", &failure.to_string()),
        ("restart", RESTART),
    ];
    let row = cause.explanation();
    let message = fill(row.message, &values);
    match cause {
        NoAnswer::TooLong => ModelError::TooLong(message),
        NoAnswer::Request => ModelError::Refused(message),
        _ if failure.is_temporary() && failure.is_overload() => ModelError::Overloaded {
            message,
            hint: fill(row.hint, &values),
        },
        _ => ModelError::Unusable {
            message,
            hint: fill(row.hint, &values),
        },
    }
}

fn counted(attempts: u32) -> String {
    if attempts == 1 {
        "1 attempt".to_owned()
    } else {
        format!("{attempts} attempts")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use teamd_shared::environment::Environment;

    use super::super::failure::FailureKind;
    use super::*;

    fn settings(spec: &str) -> ServiceSettings {
        let secrets = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"]
            .map(|name| (name.as_bytes().to_vec(), b"sk-secret".to_vec()));
        let environment = Environment {
            secrets: secrets.to_vec(),
            ..Environment::default()
        };
        ServiceSettings::read(&spec.parse().unwrap(), &environment).unwrap()
    }

    fn of(status: u16, code: &str, detail: &str) -> ModelError {
        let failure = Failure {
            code: code.to_owned(),
            ..Failure::new(FailureKind::Status(status), detail)
        };
        explain(&failure, &settings("anthropic:claude-x"), 6)
    }

    #[test]
    fn each_failure_is_explained_with_what_to_do() {
        for (error, said, hint) in [
            (
                of(401, "authentication_error", "invalid x-api-key"),
                "refuses the key",
                "ANTHROPIC_API_KEY",
            ),
            (
                of(403, "permission_error", "no"),
                "does not allow",
                "another model",
            ),
            (
                of(404, "not_found_error", "model: claude-x"),
                "no model \"claude-x\"",
                "anthropic:MODEL",
            ),
            (
                of(
                    400,
                    "invalid_request_error",
                    "Your credit balance is too low",
                ),
                "no credit",
                "add credit",
            ),
            (
                of(400, "invalid_request_error", "tools.0: bad"),
                "refuses the request: tools.0: bad",
                "log",
            ),
            (
                of(529, "overloaded_error", "Overloaded"),
                "6 attempts failed; the last: Overloaded (529)",
                "later",
            ),
        ] {
            assert!(error.to_string().contains(said), "{error}");
            assert!(error.hint().contains(hint), "{error}: {}", error.hint());
        }
    }

    /// What is shown while it is tried again, what its explanation says, and the next step.
    #[test]
    fn each_failure_names_its_cause_and_the_next_step() {
        let new = |kind, detail: &str| Failure::new(kind, detail);
        let status = |status, detail: &str| new(FailureKind::Status(status), detail);
        for (failure, brief, said, hint) in [
            (
                new(FailureKind::Unreachable, "connection refused"),
                "api.anthropic.com cannot be reached: connection refused",
                "cannot be reached: connection refused",
                "base URL",
            ),
            (
                new(FailureKind::Unreachable, "its name is not found"),
                "api.anthropic.com cannot be reached: its name is not found",
                "its name is not found",
                "network",
            ),
            (
                new(FailureKind::Certificate, "UnknownIssuer"),
                "is not trusted",
                "UnknownIssuer",
                "TEAM_CA",
            ),
            (
                new(FailureKind::WrongService, "it does not speak TLS (https)"),
                "does not answer as such a service does",
                "TLS",
                "ANTHROPIC_BASE_URL",
            ),
            (
                new(FailureKind::WrongService, "a page (text/html) is no answer"),
                "does not answer as such a service does",
                "a page",
                "ANTHROPIC_BASE_URL",
            ),
            (
                status(401, "invalid x-api-key"),
                "its key is refused (401)",
                "refuses the key",
                "ANTHROPIC_API_KEY",
            ),
            (
                status(402, "billing"),
                "no credit left",
                "has no credit left",
                "add credit",
            ),
            (
                status(404, "model: x"),
                "its model is not known there (404)",
                "has no model",
                "--model",
            ),
            (
                status(529, "Overloaded"),
                "overloaded (529)",
                "Overloaded (529)",
                "later",
            ),
        ] {
            let settings = settings("anthropic:claude-x");
            assert!(
                failure.brief(&settings.host()).contains(brief),
                "{}",
                failure.brief(&settings.host())
            );
            let error = explain(&failure, &settings, 6);
            assert!(
                error.to_string().contains(said) && error.hint().contains(hint),
                "{error}: {}",
                error.hint()
            );
        }
    }

    #[test]
    fn an_answer_that_breaks_off_or_a_service_that_asks_for_too_long_is_named() {
        let explained = |failure: &Failure, attempts| {
            explain(failure, &settings("openai:m"), attempts).to_string()
        };
        let broken = explained(&Failure::new(FailureKind::Incomplete, "reset"), 6);
        assert_eq!(
            broken,
            "the answer of openai broke off in 6 attempts; the last: reset"
        );
        let long = explained(
            &Failure::new(FailureKind::TooLarge, "it is longer than 16 MiB"),
            1,
        );
        assert_eq!(
            long,
            "teamd stopped reading the answer of openai: it is longer than 16 MiB"
        );
        let retry_after = Some(Duration::from_secs(90_000));
        let later = Failure {
            retry_after,
            ..Failure::new(FailureKind::Status(429), "")
        };
        assert_eq!(
            explained(&later, 1),
            "openai did not answer, 1 attempt failed; the last: status 429; it asks to be left alone for 1d1h"
        );
    }

    #[test]
    fn a_conversation_that_is_too_long_is_told_apart() {
        for error in [
            of(
                400,
                "invalid_request_error",
                "prompt is too long: 210000 tokens > 200000 maximum",
            ),
            of(
                400,
                "invalid_request_error",
                "This model's maximum context length is 8192 tokens",
            ),
            of(413, "request_too_large", "Request exceeds the maximum size"),
            of(
                400,
                "exceed_context_size_error",
                "the request exceeds the available context size",
            ),
        ] {
            assert!(matches!(error, ModelError::TooLong(_)), "{error}");
        }
    }
}
