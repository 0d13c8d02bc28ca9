//! The variables of a service, and what is said of one that is missing or wrong. Pure.

use teamd_shared::model_spec::Provider;

use super::cause::RESTART;
use crate::ModelError;

/// Returns the error of a provider whose key is missing.
pub(super) fn missing_key(provider: Provider) -> ModelError {
    let name = provider.as_str();
    let variable = key_variable(provider);
    ModelError::Unusable {
        message: format!("{name} needs a key, and {variable} is not set"),
        hint: format!(
            "set {variable} in the shell; then {RESTART}: the worker gets the keys of that shell"
        ),
    }
}

/// Returns the error of a variable whose value cannot be used. `why` does not show a value that may
/// be secret.
pub(super) fn bad_setting(variable: &str, why: &str) -> ModelError {
    ModelError::Unusable {
        message: format!("{variable} cannot be used: {why}"),
        hint: format!("correct {variable} in the shell; then {RESTART}"),
    }
}

/// Returns the variable that holds the address of a provider's service.
pub(super) fn base_variable(provider: Provider) -> &'static str {
    match provider {
        Provider::Anthropic => "ANTHROPIC_BASE_URL",
        Provider::OpenAi | Provider::Script => "OPENAI_BASE_URL",
        Provider::Google => "GOOGLE_GEMINI_BASE_URL",
    }
}

/// Returns the variable in which the key of a provider is expected.
pub(super) fn key_variable(provider: Provider) -> &'static str {
    match provider {
        Provider::Anthropic => "ANTHROPIC_API_KEY",
        Provider::OpenAi | Provider::Script => "OPENAI_API_KEY",
        Provider::Google => "GEMINI_API_KEY",
    }
}
