//! How a model is named: `PROVIDER` or `PROVIDER:MODEL`. Pure.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::suggest;

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum Provider {
    /// The built-in model: offline, deterministic.
    Script,
    /// Anthropic's Messages API.
    Anthropic,
    /// Any service with the chat completions of OpenAI.
    OpenAi,
    /// Google's Gemini API. Agents of others work with it, the built-in one does not.
    Google,
}

impl Provider {
    /// Returns the provider as it is written.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the model that is meant if none is named; none for the script and for
    /// Google.
    pub const fn default_model(self) -> Option<&'static str> {
        match self {
            // Its agents choose one themselves.
            Self::Script | Self::Google => None,
            Self::Anthropic => Some("claude-sonnet-5-5"),
            Self::OpenAi => Some("gpt-5.1"),
        }
    }

    /// All of them, in the order in which they are offered.
    pub const ALL: [Self; 4] = [Self::Script, Self::Anthropic, Self::OpenAi, Self::Google];
}

/// A model and who serves it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModelSpec {
    /// Who serves it.
    pub provider: Provider,
    /// The provider's name for it; none: the default model there.
    pub model: Option<String>,
}

/// A text names no model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no such model: {0:?}")]
pub struct UnknownModel(String);

impl UnknownModel {
    /// Returns what to do next. Fits behind "hint: ".
    pub fn hint(&self) -> &'static str {
        "models are `script`, `anthropic:MODEL`, `openai:MODEL` and `google:MODEL`; Claude Code takes `anthropic:opus`, Codex `openai:MODEL`, Gemini CLI `google:MODEL`"
    }
}

impl ModelSpec {
    /// Returns the built-in model.
    pub const fn script() -> Self {
        Self {
            provider: Provider::Script,
            model: None,
        }
    }
}

impl FromStr for ModelSpec {
    type Err = UnknownModel;

    fn from_str(text: &str) -> Result<Self, UnknownModel> {
        let unknown = || UnknownModel(text.chars().take(80).collect());
        let (provider, model) = match text.split_once(':') {
            Some((provider, model)) => (provider, Some(model)),
            None => (text, None),
        };
        let provider = provider.parse::<Provider>().map_err(|_| unknown())?;
        if model.is_some_and(|model| !is_model_name(model) || provider == Provider::Script) {
            return Err(unknown());
        }
        Ok(Self {
            provider,
            model: model.map(str::to_owned),
        })
    }
}

impl TryFrom<String> for ModelSpec {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map_err(|error: UnknownModel| {
            let provider = error.0.split(':').next().unwrap_or_default();
            let near = suggest::nearest(provider, Provider::ALL.into_iter().map(Provider::as_str));
            let meant = near
                .filter(|near| *near != provider)
                .map(|near| format!("did you mean {near}? "));
            format!("{error}: {}{}", meant.unwrap_or_default(), error.hint())
        })
    }
}

impl From<ModelSpec> for String {
    fn from(spec: ModelSpec) -> Self {
        spec.to_string()
    }
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.model {
            Some(model) => write!(f, "{}:{model}", self.provider.as_str()),
            None => f.write_str(self.provider.as_str()),
        }
    }
}

/// Completes the name of a model: a provider alone means its default model.
pub fn full_name(model: &str) -> String {
    match model.parse::<ModelSpec>() {
        Ok(ModelSpec {
            provider,
            model: None,
        }) => match provider.default_model() {
            Some(default) => format!("{}:{default}", provider.as_str()),
            None => model.to_owned(),
        },
        _ => model.to_owned(),
    }
}

fn is_model_name(model: &str) -> bool {
    !model.is_empty() && model.len() <= 200 && !model.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_read_as_it_is_written() {
        for text in [
            "script",
            "anthropic",
            "anthropic:claude-x",
            "openai:qwen3:8b",
            "openai:org/model",
            "google:gemini-x",
        ] {
            assert_eq!(text.parse::<ModelSpec>().unwrap().to_string(), text);
        }
        assert_eq!("script".parse(), Ok(ModelSpec::script()));
    }

    #[test]
    fn what_names_no_model_is_refused_with_the_names_that_do() {
        for text in [
            "",
            "Script",
            "script:fast",
            "anthropic:",
            "gpt-5",
            "openai:a\nb",
            ":x",
        ] {
            let error = text.parse::<ModelSpec>().unwrap_err();
            assert!(
                error.to_string().contains("no such model") && error.hint().contains("`script`"),
                "{text}"
            );
        }
    }
}
