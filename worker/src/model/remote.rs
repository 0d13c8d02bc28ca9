//! A member's conversation with a model that is reached over HTTP: what it is told of itself, and what has happened.

use teamd_shared::transcript::Event;

use super::conversation::Conversation;
use super::prompt::{Prompt, Tool};
use super::service::Service;
use super::{Answer, Heard, ModelError};

/// What a model is told of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Persona {
    /// The system's instructions.
    pub(crate) system: String,
    /// What it may call.
    pub(crate) tools: Vec<Tool>,
}

/// The model of a member.
#[derive(Debug)]
pub(crate) struct Remote {
    service: Service,
    persona: Persona,
    conversation: Conversation,
}

impl Remote {
    /// Begins a conversation.
    pub(crate) fn new(service: Service, persona: &Persona) -> Self {
        Self { service, persona: persona.clone(), conversation: Conversation::default() }
    }

    /// Takes in the next entry.
    pub(crate) fn observe(&mut self, event: &Event) {
        self.conversation.observe(event);
    }

    /// Asks the service.
    pub(crate) async fn answer(&mut self, heard: &mut dyn FnMut(Heard<'_>)) -> Result<Answer, ModelError> {
        let prompt = Prompt {
            system: &self.persona.system,
            tools: &self.persona.tools,
            turns: self.conversation.turns(),
            max_output: None,
        };
        tracing::debug!("asking, of a window of {} tokens", self.service.window());
        self.service.ask(&prompt, heard).await
    }
}
