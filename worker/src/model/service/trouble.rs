//! What keeps a model from answering, in words that a user can act on. Pure.

use teamd_shared::model_spec::Provider;

use super::failure::{Complaint, Failure};
use super::span;
use crate::model::ModelError;

/// What keeps a model from answering. Fits behind "error: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trouble {
    /// There is no key.
    #[error("{provider} needs a key, and {variable} is not set")]
    NoKey {
        /// Who wants it.
        provider: &'static str,
        /// Where it belongs.
        variable: &'static str,
    },
    /// The service does not know the key.
    #[error("{provider} refuses the key: {said}")]
    WrongKey {
        /// Who refuses it.
        provider: &'static str,
        /// Where it stands.
        variable: &'static str,
        /// What the service said.
        said: String,
    },
    /// The key may not do this.
    #[error("{provider} does not allow this: {said}")]
    Forbidden {
        /// Who forbids it.
        provider: &'static str,
        /// What the service said.
        said: String,
    },
    /// The service has no such model, or is not at this address.
    #[error("{provider} at {host} has no model {model:?}: {said}")]
    NoModel {
        /// Whose service.
        provider: &'static str,
        /// Where it was looked for.
        host: String,
        /// The model.
        model: String,
        /// What the service said.
        said: String,
    },
    /// The account has no money left.
    #[error("the account at {provider} has no credit left: {said}")]
    NoCredit {
        /// Whose account.
        provider: &'static str,
        /// What the service said.
        said: String,
    },
    /// The service does not take the request.
    #[error("{provider} refuses the request: {said}")]
    Refused {
        /// Who refuses it.
        provider: &'static str,
        /// What the service said.
        said: String,
    },
    /// All attempts failed, for reasons that pass.
    #[error("{provider} did not answer, {} failed; the last: {said}", counted(*attempts, "attempt"))]
    Failing {
        /// Who did not answer.
        provider: &'static str,
        /// How often it was tried.
        attempts: u32,
        /// What came of the last attempt.
        said: String,
    },
    /// No connection came about.
    #[error("{host} cannot be reached: {why}")]
    Unreachable {
        /// The host, and the port if it is not the usual one.
        host: String,
        /// The chain of errors.
        why: String,
        /// Whether the certificate is what was wrong.
        certificate: bool,
    },
    /// Nothing came for too long.
    #[error("{host} was silent for {patience}, {}", counted(*attempts, "time"))]
    Silent {
        /// Who was.
        host: String,
        /// For how long.
        patience: String,
        /// How often.
        attempts: u32,
    },
    /// It began to answer, and never came to the end.
    #[error("the answer of {provider} broke off {}; the last: {said}", counted(*attempts, "time"))]
    BrokeOff {
        /// Whose answer.
        provider: &'static str,
        /// How often it was tried.
        attempts: u32,
        /// What came of the last attempt.
        said: String,
    },
    /// The answer is longer than any that makes sense.
    #[error("teamd stopped reading the answer of {provider}: {what}")]
    TooMuch {
        /// Whose answer.
        provider: &'static str,
        /// In what way it is too long.
        what: &'static str,
    },
    /// What is there is no such service.
    #[error("{host} does not answer as {provider} does: {why}")]
    Stranger {
        /// Who answered.
        host: String,
        /// Who should have.
        provider: &'static str,
        /// What came.
        why: String,
    },
    /// A variable has a value that means nothing.
    #[error("{variable} cannot be used: {why}")]
    Setting {
        /// The variable.
        variable: &'static str,
        /// What is wrong with it, without its value where that may be secret.
        why: String,
    },
}

impl Trouble {
    /// Returns what to do next. Fits behind "hint: ".
    pub(crate) fn hint(&self) -> String {
        const ANEW: &str = "end the teammate, and start it again with `teamctl spawn NAME --resume` (the lead agent: \
            leave the chat, `teamctl chat` begins it again)";
        match self {
            Self::NoKey { variable, .. } => {
                format!("set {variable} in the shell, {ANEW} there: it takes the keys of that shell")
            }
            Self::WrongKey { variable, .. } => format!("correct {variable} in the shell, and {ANEW} there"),
            Self::Forbidden { .. } => "use a key that may use this model, or name another model".to_owned(),
            Self::NoModel { provider, .. } => format!(
                "name one that it has (`--model {provider}:MODEL`, or MODEL_ID), and look at {}",
                base_variable(provider)
            ),
            Self::NoCredit { .. } => "add credit to the account, then send the message again".to_owned(),
            Self::Refused { .. } => {
                "the log of the teammate has more; another model may take it (`--model`)".to_owned()
            }
            Self::BrokeOff { .. } => "send the message again, later; if that does not help, look at what stands between (a proxy, a gateway)"
                .to_owned(),
            Self::TooMuch { .. } => {
                "ask for less at a time; if it repeats itself, another model may do better (`--model`)".to_owned()
            }
            Self::Failing { .. } => "send the message again, later".to_owned(),
            Self::Unreachable { certificate: true, .. } => format!(
                "if a proxy of your organisation answers there, set TEAM_CA=platform or TEAM_CA=FILE (its root, PEM), and {ANEW}"
            ),
            Self::Unreachable { .. } => {
                "look at the network, the base URL and the proxy variables, then send the message again"
                    .to_owned()
            }
            Self::Silent { .. } => {
                "send the message again; TEAM_MODEL_TIMEOUT (seconds) makes it wait longer".to_owned()
            }
            Self::Stranger { provider, .. } => {
                format!("look at {} and the proxy variables, and {ANEW}", base_variable(provider))
            }
            Self::Setting { variable, .. } => format!("correct {variable} in the shell, and {ANEW} there"),
        }
    }
}

/// Writes a number of things.
fn counted(number: u32, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

fn base_variable(provider: &str) -> &'static str {
    if provider == Provider::Anthropic.as_str() { "ANTHROPIC_BASE_URL" } else { "OPENAI_BASE_URL" }
}

/// What a failure is about.
#[derive(Debug)]
pub(super) struct About<'a> {
    /// Whose service.
    pub(super) provider: Provider,
    /// Which model.
    pub(super) model: &'a str,
    /// Where it was looked for.
    pub(super) host: String,
    /// The variable with the key, if one was sent.
    pub(super) has_key: Option<&'static str>,
    /// How often it was tried.
    pub(super) attempts: u32,
}

/// Says in words what the last attempt came to.
pub(super) fn explain(failure: Failure, about: &About<'_>) -> ModelError {
    let (provider, host, attempts) = (about.provider.as_str(), about.host.clone(), about.attempts);
    let trouble = match failure {
        Failure::Service(complaint) => return complained(&complaint, about),
        Failure::Unreachable { why, certificate } => Trouble::Unreachable { host, why, certificate },
        Failure::Silent(patience) => Trouble::Silent { host, patience: span(patience), attempts },
        Failure::Stranger { why, .. } => Trouble::Stranger { host, provider, why },
        Failure::TooMuch(what) => Trouble::TooMuch { provider, what },
        Failure::Cut | Failure::Broken { .. } => {
            Trouble::BrokeOff { provider, attempts, said: failure.to_string() }
        }
        Failure::Left(_) => Trouble::Failing { provider, attempts, said: failure.to_string() },
        Failure::Setting(trouble) => trouble,
    };
    ModelError::Trouble(trouble)
}

fn complained(complaint: &Complaint, about: &About<'_>) -> ModelError {
    let (provider, said) = (about.provider.as_str(), complaint.to_string());
    let variable = about.has_key.unwrap_or_else(|| key_variable(about.provider));
    ModelError::Trouble(match complaint.status {
        _ if complaint.is_too_long() => return ModelError::TooLong(said),
        _ if complaint.is_out_of_credit() => Trouble::NoCredit { provider, said },
        401 if about.has_key.is_none() => Trouble::NoKey { provider, variable },
        401 => Trouble::WrongKey { provider, variable, said },
        403 => Trouble::Forbidden { provider, said },
        404 => {
            let (host, model) = (about.host.clone(), about.model.to_owned());
            Trouble::NoModel { provider, host, model, said }
        }
        408 | 409 | 429 | 500..=599 => Trouble::Failing { provider, attempts: about.attempts, said },
        300..=399 => {
            let why = format!("it sends us elsewhere (status {})", complaint.status);
            Trouble::Stranger { host: about.host.clone(), provider, why }
        }
        _ => Trouble::Refused { provider, said },
    })
}

/// The variable in which the key of a provider is expected.
pub(super) fn key_variable(provider: Provider) -> &'static str {
    match provider {
        Provider::Anthropic => "ANTHROPIC_API_KEY",
        Provider::OpenAi | Provider::Script => "OPENAI_API_KEY",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, kind: &str, message: &str) -> ModelError {
        let (kind, message) = (kind.to_owned(), message.to_owned());
        let about = About {
            provider: Provider::Anthropic,
            model: "claude-x",
            host: "api.anthropic.com".to_owned(),
            has_key: Some("ANTHROPIC_API_KEY"),
            attempts: 6,
        };
        explain(Failure::Service(Complaint { status, kind, message, ..Complaint::default() }), &about)
    }

    #[test]
    fn each_trouble_is_told_with_what_to_do() {
        for (error, told, hint) in [
            (of(401, "authentication_error", "invalid x-api-key"), "refuses the key", "ANTHROPIC_API_KEY"),
            (of(403, "permission_error", "no"), "does not allow", "another model"),
            (of(404, "not_found_error", "model: claude-x"), "no model \"claude-x\"", "anthropic:MODEL"),
            (of(400, "invalid_request_error", "Your credit balance is too low"), "no credit", "add credit"),
            (of(400, "invalid_request_error", "tools.0: bad"), "refuses the request: tools.0: bad", "log"),
            (
                of(529, "overloaded_error", "Overloaded"),
                "6 attempts failed; the last: Overloaded (529)",
                "later",
            ),
            (of(302, "", ""), "sends us elsewhere", "ANTHROPIC_BASE_URL"),
        ] {
            assert!(error.to_string().contains(told), "{error}");
            assert!(error.hint().contains(hint), "{error}: {}", error.hint());
        }
    }

    #[test]
    fn what_breaks_off_and_what_asks_for_too_long_say_so() {
        let about = |attempts| About {
            provider: Provider::OpenAi,
            model: "m",
            host: "h".to_owned(),
            has_key: None,
            attempts,
        };
        let broken = explain(Failure::Broken { why: "reset".to_owned() }, &about(6)).to_string();
        assert!(broken.contains("broke off 6 times; the last: the connection broke within"), "{broken}");
        assert!(explain(Failure::Cut, &about(6)).to_string().contains("broke off 6 times"));
        let long = explain(Failure::TooMuch("it is longer than 16 MiB"), &about(1));
        assert_eq!(long.to_string(), "teamd stopped reading the answer of openai: it is longer than 16 MiB");
        let retry_after = Some(std::time::Duration::from_secs(90_000));
        let later = Complaint { status: 429, retry_after, ..Complaint::default() };
        assert_eq!(
            explain(Failure::Service(later), &about(1)).to_string(),
            "openai did not answer, 1 attempt failed; the last: status 429; it asks to be left alone for 25 hours"
        );
    }

    #[test]
    fn a_conversation_that_is_too_long_is_told_apart() {
        for error in [
            of(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
            of(400, "invalid_request_error", "This model's maximum context length is 8192 tokens"),
            of(413, "request_too_large", "Request exceeds the maximum size"),
            of(400, "exceed_context_size_error", "the request exceeds the available context size"),
        ] {
            assert!(matches!(error, ModelError::TooLong(_)), "{error}");
        }
    }
}
