//! What answers: the one place that knows which models there are.
//!
//! A model is a function of the transcript: it is told every entry of the conversation in order, live and again
//! after a restart, and is then asked for the next answer. It must never run a tool, read an inbox or write a
//! file, and asking it changes nothing: only what was recorded counts.

mod script;

use teamd_shared::transcript::{Block, Event, Usage};

pub(crate) use script::Script;

/// One answer: text and calls, in order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    /// Text and calls.
    pub(crate) content: Vec<Block>,
    /// What it cost, in tokens.
    pub(crate) usage: Usage,
}

/// Why there is no answer. Fits behind "error: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ModelError {
    /// The specification of the model names none that this version has.
    #[error("cannot use the model {0:?}: there is no such model here")]
    Unknown(String),
    /// The model was asked, and could not answer.
    #[error("the model failed: {0}")]
    Failed(String),
}

impl ModelError {
    /// Returns what to do next. Fits behind "hint: ".
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Unknown(_) => {
                "this version has only the model `script`, which does what its prompt and messages say"
            }
            Self::Failed(_) => "send the message again, later",
        }
    }
}

/// A model.
#[derive(Debug, Clone)]
pub(crate) enum Model {
    /// Offline and deterministic.
    Script(Script),
}

impl Model {
    /// Makes the model that a specification (`PROVIDER[:MODEL]`) names.
    ///
    /// # Errors
    /// [`ModelError::Unknown`] if there is none.
    pub(crate) fn from_spec(spec: &str) -> Result<Self, ModelError> {
        match spec {
            "script" => Ok(Self::Script(Script::default())),
            other => Err(ModelError::Unknown(other.to_owned())),
        }
    }

    /// Takes in the next entry of the conversation. Every entry is told exactly once, in order.
    pub(crate) fn observe(&mut self, event: &Event) {
        match self {
            Self::Script(script) => script.observe(event),
        }
    }

    /// Answers the conversation so far.
    ///
    /// It does not change what the model knows: the answer counts once it is recorded and observed. So a call
    /// that is dropped halfway leaves nothing behind.
    ///
    /// # Errors
    /// [`ModelError`] if there is no answer to be had.
    pub(crate) async fn answer(&mut self) -> Result<Answer, ModelError> {
        match self {
            Self::Script(script) => match script.failure() {
                Some(why) => Err(ModelError::Failed(why)),
                None => Ok(script.answer()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_this_version_lacks_is_named_with_a_way_on() {
        for spec in ["anthropic:claude", "openai:x", "", "Script", "script:fast"] {
            let error = Model::from_spec(spec).unwrap_err();
            assert!(error.to_string().contains(&format!("{spec:?}")), "{error}");
            assert!(error.hint().contains("`script`"));
        }
        assert!(matches!(Model::from_spec("script"), Ok(Model::Script(_))));
    }
}
