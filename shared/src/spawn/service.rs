//! Checks the variables by which a model's service is reached before anything is started. Pure.
//!
//! A worker checks them again, and reports a mistake with its first piece of work.

use crate::amount::{parse_period, parse_window};
use crate::model_spec::{ModelSpec, Provider};
use crate::variable::{Lookup, SettingError, variable};

/// Where the services are.
const BASES: [(Provider, &str); 3] = [
    (Provider::Anthropic, "ANTHROPIC_BASE_URL"),
    (Provider::OpenAi, "OPENAI_BASE_URL"),
    (Provider::Google, "GOOGLE_GEMINI_BASE_URL"),
];

const URL: &str = "the address of a service: http:// or https://, and a host";

const NO_PASSWORD: &str = "an address without a user or password in it, which every tool could read there: keys belong \
                           into ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN, OPENAI_API_KEY or GEMINI_API_KEY";

/// Checks the variables of a model's service.
///
/// # Errors
/// [`SettingError`] for the first value that can never work; it does not show a password.
pub(super) fn check(model: Option<&ModelSpec>, lookup: Lookup<'_>) -> Result<(), SettingError> {
    for (provider, variable) in BASES {
        let Some(url) = lookup(variable).filter(|url| !url.is_empty()) else {
            continue;
        };
        let (user, rest) = parted(url.trim());
        // Tools inherit it, whatever the model is.
        if user {
            let value = format!("…@{rest}");
            return Err(SettingError {
                variable,
                value,
                expected: NO_PASSWORD,
            });
        }
        if model.is_some_and(|model| model.provider == provider) && !is_address(url.trim()) {
            return Err(SettingError {
                variable,
                value: url,
                expected: URL,
            });
        }
    }
    if model.is_some_and(|model| model.provider != Provider::Script) {
        variable(lookup, "TEAM_CONTEXT_WINDOW", parse_window)?;
        variable(lookup, "TEAM_MODEL_TIMEOUT", parse_period)?;
    }
    Ok(())
}

/// Tells whether a URL names a user, and returns what is behind it.
fn parted(url: &str) -> (bool, &str) {
    let behind = url.split_once("://").map_or(url, |(_, behind)| behind);
    let authority = behind
        .split(['/', '?', '#', '\\'])
        .next()
        .unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((user, _)) => (true, &behind[user.len() + 1..]),
        None => (false, behind),
    }
}

/// Tells whether a text has the form of such an address.
fn is_address(url: &str) -> bool {
    let Some((scheme, behind)) = url.split_once("://") else {
        return false;
    };
    let authority = behind
        .split(['/', '?', '#', '\\'])
        .next()
        .unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (authority, ""),
    };
    let is_http = ["http", "https"]
        .iter()
        .any(|known_scheme| scheme.eq_ignore_ascii_case(known_scheme));
    is_http
        && !host.is_empty()
        && host.chars().all(|c| !c.is_whitespace() && !c.is_control())
        && (port.is_empty() || port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(model: &str, variable: &str, text: &str) -> Result<(), SettingError> {
        let lookup = |wanted: &str| (wanted == variable).then(|| text.to_owned());
        check(Some(&model.parse().unwrap()), &lookup)
    }

    #[test]
    fn a_value_that_can_never_work_is_refused_where_it_counts() {
        for (variable, text) in [
            ("ANTHROPIC_BASE_URL", "localhost:8080"),
            ("ANTHROPIC_BASE_URL", "not a url"),
            ("ANTHROPIC_BASE_URL", "ftp://x"),
            ("ANTHROPIC_BASE_URL", "http://"),
            ("ANTHROPIC_BASE_URL", "http://h:port/v1"),
            ("TEAM_CONTEXT_WINDOW", "abc"),
            ("TEAM_CONTEXT_WINDOW", "3999"),
            ("TEAM_MODEL_TIMEOUT", "abc"),
            ("TEAM_MODEL_TIMEOUT", "0"),
        ] {
            let error = checked("anthropic:x", variable, text).unwrap_err();
            assert_eq!((error.variable, error.value.as_str()), (variable, text));
            assert_eq!(checked("script", variable, text), Ok(()), "{variable}");
        }
        for (variable, text) in [
            ("ANTHROPIC_BASE_URL", "HTTPS://gateway/x/v1/"),
            ("ANTHROPIC_BASE_URL", " http://[::1]:8080 "),
            ("ANTHROPIC_BASE_URL", "http://h/p@th"),
            ("OPENAI_BASE_URL", "of no matter"),
            ("TEAM_CONTEXT_WINDOW", "8k"),
            ("TEAM_MODEL_TIMEOUT", "1m"),
        ] {
            assert_eq!(
                checked("anthropic:x", variable, text),
                Ok(()),
                "{variable}={text}"
            );
        }
    }

    #[test]
    fn a_password_in_an_address_is_refused_and_not_repeated() {
        for model in ["script", "anthropic", "openai"] {
            for url in [
                "http://user:PW@host:1/v1",
                "https://PW@host",
                "user:PW@host/v1",
            ] {
                let error = checked(model, "ANTHROPIC_BASE_URL", url)
                    .unwrap_err()
                    .to_string();
                assert!(
                    error.contains("ANTHROPIC_API_KEY") && error.contains("host"),
                    "{error}"
                );
                assert!(!error.contains("PW"), "{error}");
            }
        }
    }
}
