//! What a person asks of the lead agent by the options of a chat.

use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_shared::model_spec::ModelSpec;

/// What the command line asks of the lead agent.
#[derive(Debug, Clone, Default)]
pub struct LeadOptions {
    /// The model, as `PROVIDER[:MODEL]`.
    pub model: Option<String>,
    /// The agent, by its name.
    pub agent: Option<String>,
    /// The workspace, an absolute path.
    pub workspace: Option<String>,
    /// Whether a new conversation begins; else the last one continues.
    pub fresh: bool,
}

impl LeadOptions {
    /// Reads the model that is named.
    ///
    /// # Errors
    /// [`ExitCode::Usage`] if there can be none of this name.
    pub(in crate::chat) fn model(&self) -> Result<Option<ModelSpec>, CommandError> {
        let model = self
            .model
            .as_deref()
            .map(str::parse::<ModelSpec>)
            .transpose();
        model.map_err(|error| {
            CommandError::new(ExitCode::Usage, error.to_string()).hint(error.hint())
        })
    }
}
