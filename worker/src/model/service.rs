//! A model that is reached over HTTP.

use teamd_shared::environment::Environment;
use teamd_shared::model_spec::ModelSpec;

use super::prompt::Prompt;
use super::{Answer, ModelError};

/// The service of one model. It keeps no conversation: every prompt holds all of it.
#[derive(Debug)]
pub(crate) struct Service {
    spec: ModelSpec,
}

impl Service {
    /// Makes the service that a specification names. Nothing is sent, and no client is built, before the first prompt.
    ///
    /// # Errors
    /// [`ModelError`] if a setting is missing or makes no sense, in words for the user.
    pub(crate) fn new(spec: ModelSpec, environment: &Environment) -> Result<Self, ModelError> {
        drop(environment.variables());
        Ok(Self { spec })
    }

    /// Returns how many tokens a prompt and its answer may have together.
    pub(crate) fn window(&self) -> u64 {
        128_000
    }

    /// Asks; `heard` is told each piece of text as it comes.
    ///
    /// A call that is dropped halfway leaves nothing behind.
    ///
    /// # Errors
    /// [`ModelError`] if there is no answer to be had, also not by waiting and trying again.
    pub(crate) async fn ask(
        &mut self,
        prompt: &Prompt<'_>,
        heard: &mut dyn FnMut(&str),
    ) -> Result<Answer, ModelError> {
        heard("");
        Err(ModelError::Failed(format!("{} has no service ({} turns)", self.spec, prompt.turns.len())))
    }
}
