//! Why a model gives no answer, in words that a user can act on. Pure.

use teamd_shared::model_spec::Provider;

use super::failure::{Failure, FailureKind};
use super::settings::Settings;
use crate::ModelError;

/// What a user does to have settings take effect.
const RESTART: &str = "end the teammate, and start it again with `teamctl spawn NAME --resume` (the lead agent: leave \
    the chat, `teamctl chat` begins it again)";

/// Returns the error of a provider whose key is missing.
pub(super) fn missing_key(provider: Provider) -> ModelError {
    let name = provider.as_str();
    let variable = key_variable(provider);
    ModelError::Unusable {
        message: format!("{name} needs a key, and {variable} is not set"),
        hint: format!(
            "set {variable} in the shell, {RESTART} there: it takes the keys of that shell"
        ),
    }
}

/// Returns the error of a variable whose value cannot be used. `why` does not show a value that may
/// be secret.
pub(super) fn bad_setting(variable: &str, why: &str) -> ModelError {
    ModelError::Unusable {
        message: format!("{variable} cannot be used: {why}"),
        hint: format!("correct {variable} in the shell, and {RESTART} there"),
    }
}

/// Returns the error of a service that gave no answer in several attempts.
pub(super) fn no_answer(settings: &Settings, attempts: u32, last: &str) -> ModelError {
    let provider = settings.provider.as_str();
    let attempts = counted(attempts);
    ModelError::Unusable {
        message: format!("{provider} did not answer, {attempts} failed; the last: {last}"),
        hint: "send the message again, later".to_owned(),
    }
}

/// Explains the last failure after so many attempts.
pub(super) fn explain(failure: &Failure, settings: &Settings, attempts: u32) -> ModelError {
    let provider = settings.provider.as_str();
    let host = settings.host();
    let said = failure.to_string();
    let base = base_variable(settings.provider);
    let (message, hint) = match failure.kind {
        FailureKind::Status(_) if failure.is_too_long() => return ModelError::TooLong(said),
        FailureKind::Status(_) if failure.is_out_of_credit() => (
            format!("the account at {provider} has no credit left: {said}"),
            "add credit to the account, then send the message again".to_owned(),
        ),
        FailureKind::Status(401) => match &settings.key {
            None => return missing_key(settings.provider),
            Some(key) => (
                format!("{provider} refuses the key: {said}"),
                format!("correct {} in the shell, and {RESTART} there", key.variable),
            ),
        },
        FailureKind::Status(403) => (
            format!("{provider} does not allow this: {said}"),
            "use a key that may use this model, or name another model".to_owned(),
        ),
        FailureKind::Status(404) => (
            if settings.model.is_empty() {
                format!("{provider} at {host} does not know the model: {said}")
            } else {
                format!("{provider} at {host} has no model {:?}: {said}", settings.model)
            },
            format!("name one that it has (`--model {provider}:MODEL`, or MODEL_ID), and look at {base}"),
        ),
        FailureKind::Status(408 | 409 | 429 | 500..=599) => return no_answer(settings, attempts, &said),
        FailureKind::Status(_) => {
            return ModelError::Refused(format!("{provider} refuses the request: {said}"));
        }
        FailureKind::Certificate => (
            format!("{host} cannot be reached: {said}"),
            format!(
                "if a proxy of your organisation answers there, set TEAM_CA=platform or TEAM_CA=FILE (its root, PEM), \
                 and {RESTART}"
            ),
        ),
        FailureKind::Unreachable => (
            format!("{host} cannot be reached: {said}"),
            "look at the network, the base URL and the proxy variables; the next message goes on with the work"
                .to_owned(),
        ),
        FailureKind::Silent => (
            format!("{host} was silent in {}: {said}", counted(attempts)),
            "send the message again; TEAM_MODEL_TIMEOUT (seconds) makes it wait longer".to_owned(),
        ),
        FailureKind::Incomplete => (
            format!("the answer of {provider} broke off in {}; the last: {said}", counted(attempts)),
            format!(
                "send the message again, later; if that does not help, look at {base} and at proxies and gateways"
            ),
        ),
        FailureKind::TooLarge => (
            format!("teamd stopped reading the answer of {provider}: {said}"),
            "ask for less at a time; if it repeats itself, another model may do better (`--model`)"
                .to_owned(),
        ),
        FailureKind::WrongService => (
            format!("{host} does not answer as {provider} does: {said}"),
            format!("look at {base} and the proxy variables, and {RESTART}"),
        ),
    };
    ModelError::Unusable { message, hint }
}

fn counted(attempts: u32) -> String {
    if attempts == 1 {
        "1 attempt".to_owned()
    } else {
        format!("{attempts} attempts")
    }
}

/// Returns the variable that holds the address of a provider's service.
pub(super) fn base_variable(provider: Provider) -> &'static str {
    match provider {
        Provider::Anthropic => "ANTHROPIC_BASE_URL",
        Provider::OpenAi | Provider::Script => "OPENAI_BASE_URL",
    }
}

/// Returns the variable in which the key of a provider is expected.
pub(super) fn key_variable(provider: Provider) -> &'static str {
    match provider {
        Provider::Anthropic => "ANTHROPIC_API_KEY",
        Provider::OpenAi | Provider::Script => "OPENAI_API_KEY",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use teamd_shared::environment::Environment;

    use super::*;

    fn settings(spec: &str) -> Settings {
        let secrets = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"]
            .map(|name| (name.as_bytes().to_vec(), b"sk-secret".to_vec()));
        let environment = Environment {
            secrets: secrets.to_vec(),
            ..Environment::default()
        };
        Settings::read(&spec.parse().unwrap(), &environment).unwrap()
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
