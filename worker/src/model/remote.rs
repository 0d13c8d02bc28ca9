//! A member's conversation with a model that is reached over HTTP: what it is told of itself, and what has happened.

use teamd_shared::name::Name;
use teamd_shared::transcript::{Block, Event, Usage};

use super::compaction;
use super::conversation::Conversation;
use super::prompt::{Prompt, Tool};
use super::service::Service;
use super::{Answer, Heard, ModelError};

/// The most tokens that a summary may have, with what a model thinks before it.
const MAX_SUMMARY: u64 = 8192;

/// What a model is told of itself.
#[derive(Debug, Clone)]
pub(crate) struct Persona {
    /// Whose model it is.
    pub(crate) name: Name,
    /// The system's instructions.
    pub(crate) system: String,
    /// What it may call.
    pub(crate) tools: Vec<Tool>,
}

/// What takes the place of the beginning of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Compaction {
    /// What the model is told of what it no longer sees.
    pub(crate) summary: String,
    /// How many of the last answers it still sees.
    pub(crate) kept: usize,
    /// What the summary cost.
    pub(crate) usage: Usage,
}

/// The model of a member.
#[derive(Debug)]
pub(crate) struct Remote {
    service: Service,
    persona: Persona,
    conversation: Conversation,
    /// Whether the service has refused the conversation for its length since it was last cut.
    refused: bool,
    /// Whether nothing was answered since it was last cut: to cut it again would change nothing.
    just_cut: bool,
}

impl Remote {
    /// Begins a conversation.
    pub(crate) fn new(service: Service, persona: &Persona) -> Self {
        let conversation = Conversation::new(persona.name.clone());
        Self { service, persona: persona.clone(), conversation, refused: false, just_cut: false }
    }

    /// Takes in the next entry.
    pub(crate) fn observe(&mut self, event: &Event) {
        self.conversation.observe(event);
        match event {
            Event::Compacted { .. } => (self.refused, self.just_cut) = (false, true),
            Event::Answer { .. } => self.just_cut = false,
            _ => {}
        }
    }

    /// Tells whether the conversation has to be cut before the model is asked again.
    pub(crate) fn is_full(&self) -> bool {
        let tokens = self.conversation.tokens(self.fixed());
        !self.just_cut && (self.refused || compaction::is_due(tokens, self.service.window()))
    }

    /// Asks the service.
    pub(crate) async fn answer(&mut self, heard: &mut dyn FnMut(Heard<'_>)) -> Result<Answer, ModelError> {
        self.conversation.settle();
        let prompt = Prompt {
            system: &self.persona.system,
            tools: &self.persona.tools,
            turns: self.conversation.turns(),
            max_output: None,
        };
        let answer = self.service.ask(&prompt, heard).await;
        self.refused |= matches!(answer, Err(ModelError::TooLong(_)));
        answer
    }

    /// Makes a summary, by the model if it can, else without it. What is recorded of it counts, and nothing else.
    pub(crate) async fn compact(&mut self) -> Compaction {
        self.conversation.settle();
        let window = self.service.window();
        let kept = if self.refused { 0 } else { compaction::kept(&self.conversation, window) };
        let mut question = compaction::question(self.conversation.turns());
        if self.refused {
            question = compaction::short_question(self.conversation.turns(), window);
        }
        let mut answer = self.summarise(&question).await;
        if matches!(answer, Err(ModelError::TooLong(_))) && !self.refused {
            question = compaction::short_question(self.conversation.turns(), window);
            answer = self.summarise(&question).await;
        }
        let (written, usage) = match &answer {
            Ok(answer) => (text_of(answer), answer.usage),
            Err(error) => {
                tracing::warn!("no summary could be had: {error}");
                (None, Usage::default())
            }
        };
        Compaction { summary: compaction::compose(&self.conversation, written.as_deref()), kept, usage }
    }

    /// With the same instructions and tools as ever: what stands before is in the service's cache.
    async fn summarise(&mut self, turns: &[super::prompt::Turn]) -> Result<Answer, ModelError> {
        let Persona { system, tools, .. } = &self.persona;
        let prompt = Prompt { system, tools, turns, max_output: Some(MAX_SUMMARY) };
        self.service.ask(&prompt, &mut |_| {}).await
    }

    /// Returns the bytes that stand before the conversation in each prompt.
    fn fixed(&self) -> u64 {
        let tool = |tool: &Tool| tool.name.len() + tool.description.len() + tool.input.to_string().len();
        let bytes = self.persona.system.len() + self.persona.tools.iter().map(tool).sum::<usize>();
        bytes as u64
    }
}

fn text_of(answer: &Answer) -> Option<String> {
    let texts = answer.content.iter().filter_map(|block| match block {
        Block::Text { text } => Some(text.as_str()),
        Block::ToolUse { .. } | Block::Opaque { .. } => None,
    });
    let text = texts.collect::<Vec<_>>().join("\n");
    (!text.trim().is_empty()).then_some(text)
}
