//! A member's conversation with a model that is reached over HTTP: its persona, its turns, and its
//! service.

use std::cell::LazyCell;

use teamd_shared::name::Name;
use teamd_shared::tool_set::ToolSet;
use teamd_shared::transcript::{Event, Usage, text_of};
use tokio::time::Instant;

use super::compaction::{self, Occasion, Room};
use super::conversation::ModelConversation;
use super::prompt::{Prompt, PromptTurn};
use super::service::ModelService;
use super::{ModelAnswer, ModelError, Progress};
use teamd_worker_core::state::Budget;
use teamd_worker_core::tools::ToolText;

/// The most tokens that a summary may have, with what a model thinks before it.
const MAX_SUMMARY: u64 = 8192;

/// What a model knows of itself.
#[derive(Debug)]
pub struct Persona {
    /// Whose model it is.
    pub name: Name,
    /// The system's instructions.
    pub system: String,
    /// The tools that it may call. They are described at the first model call, because a worker
    /// that only waits needs no schemas.
    pub tools: LazyCell<Vec<ToolText>, Box<dyn FnOnce() -> Vec<ToolText>>>,
    /// What its subagent knows, if it is offered one.
    pub subagent: Option<Box<Self>>,
}

impl Persona {
    fn prompt<'a>(&'a self, turns: &'a [PromptTurn], max_output: Option<u64>) -> Prompt<'a> {
        Prompt {
            system: &self.system,
            tools: &self.tools,
            turns,
            max_output,
        }
    }

    /// Returns its length in bytes; each prompt contains it.
    fn bytes(&self) -> usize {
        self.system.len()
            + self
                .tools
                .iter()
                .map(|tool| tool.name.len() + tool.description.len() + tool.input.to_string().len())
                .sum::<usize>()
    }
}

/// The model of a member.
#[derive(Debug)]
pub struct Remote {
    /// What answers.
    pub(super) service: ModelService,
    /// What answers while that is overloaded.
    fallback: Option<Fallback>,
    own: Dialogue,
    /// That of its subagent, if it is offered one.
    subagent: Option<Dialogue>,
}

/// Another model of the same service.
#[derive(Debug)]
struct Fallback {
    service: ModelService,
    /// The model, in full.
    name: String,
    /// Whether it answers: from its entry to the end of the piece of work.
    answers: bool,
}

/// One conversation with the service.
#[derive(Debug)]
struct Dialogue {
    persona: Persona,
    conversation: ModelConversation,
    room: Room,
}

impl Remote {
    /// Begins a conversation. `persona` gets how long the guide of a workspace may be, in bytes.
    pub(crate) fn new(
        service: ModelService,
        fallback: Option<ModelService>,
        persona: impl FnOnce(usize) -> Persona,
    ) -> Self {
        let room = Room::new(service.window());
        let mut persona = persona(room.for_guide());
        let subagent = persona.subagent.take();
        Self {
            service,
            fallback: fallback.map(|service| Fallback {
                name: service.name(),
                service,
                answers: false,
            }),
            own: Dialogue::new(persona, room),
            subagent: subagent.map(|persona| Dialogue::new(*persona, room)),
        }
    }

    /// Applies the next entry.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::Fallback { answers, .. } => self.switch(Some(answers)),
            Event::Idle { .. } | Event::Left { .. } => self.switch(None),
            _ => {}
        }
        self.own.observe(event);
    }

    /// Lets the fallback answer, if it is this one; none: the recorded model does.
    fn switch(&mut self, model: Option<&str>) {
        let Some(fallback) = &mut self.fallback else {
            return;
        };
        fallback.answers = model == Some(&fallback.name);
        let window = if fallback.answers {
            fallback.service.window()
        } else {
            self.service.window()
        };
        self.own.room.resize(window);
        if let Some(subagent) = &mut self.subagent {
            subagent.room.resize(window);
        }
    }

    /// Returns the fallback, if it answers.
    pub(super) fn fallback_in_use(&self) -> Option<&str> {
        let fallback = self.fallback.as_ref().filter(|it| it.answers)?;
        Some(&fallback.name)
    }

    /// Takes the cost of answers that came to nothing, since the last call.
    pub(super) fn take_unrecorded(&mut self) -> Usage {
        active(&mut self.service, &mut self.fallback).take_unrecorded()
    }

    /// Asks the service, or cuts the conversation first if necessary.
    pub async fn answer(
        &mut self,
        budget: Budget,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Event, ModelError> {
        let service = active(&mut self.service, &mut self.fallback);
        let answered = self.own.answer(service, budget, observe).await;
        self.or_fallback(answered)
    }

    /// Puts the whole conversation into a summary, because a person asks for it.
    pub(super) async fn compact(
        &mut self,
        budget: Budget,
        at_rest: bool,
    ) -> Result<Event, ModelError> {
        let service = active(&mut self.service, &mut self.fallback);
        let occasion = Occasion::Asked { at_rest };
        let compacted = self.own.compact(service, budget, 0, occasion).await;
        self.or_fallback(compacted)
    }

    /// Tells whether the model has said anything since the last summary.
    pub(super) fn can_compact(&self) -> bool {
        self.own.conversation.has_answers()
    }

    /// Returns that the fallback answers from here on, in the place of an overloaded service.
    fn or_fallback(&self, answered: Result<Event, ModelError>) -> Result<Event, ModelError> {
        match (answered, &self.fallback) {
            (Err(ModelError::Overloaded { message, .. }), Some(fallback)) if !fallback.answers => {
                let answers = fallback.name.clone();
                tracing::warn!("{message}; {answers} answers until this piece of work ends");
                Ok(Event::Fallback {
                    answers,
                    reason: message,
                })
            }
            (answered, _) => answered,
        }
    }

    /// Begins the conversation of the subagent; false if there is none.
    pub(super) fn begin_subagent(&mut self, prompt: &str) -> bool {
        let window = active(&mut self.service, &mut self.fallback).window();
        let Some(subagent) = &mut self.subagent else {
            return false;
        };
        subagent.room = Room::new(window);
        subagent.observe(&Event::Incarnation {
            incarnation: 1,
            conversation: 1,
            prompt: Some(prompt.to_owned()),
            tools: ToolSet::default(),
        });
        true
    }

    /// Applies the next entry of the subagent.
    pub(super) fn observe_subagent(&mut self, event: &Event) {
        if let Some(subagent) = &mut self.subagent {
            subagent.observe(event);
        }
    }

    /// Answers as the subagent; none without one.
    pub(super) async fn answer_subagent(
        &mut self,
        budget: Budget,
    ) -> Option<Result<Event, ModelError>> {
        let subagent = self.subagent.as_mut()?;
        let mut unseen = |_: Progress<'_>| {};
        let service = active(&mut self.service, &mut self.fallback);
        let answered = subagent.answer(service, budget, &mut unseen).await;
        Some(self.or_fallback(answered))
    }

    /// Forgets the conversation of the subagent.
    pub(super) fn end_subagent(&mut self) {
        if let Some(subagent) = &mut self.subagent {
            subagent.conversation = ModelConversation::new(subagent.persona.name.clone());
        }
    }
}

/// Returns what answers now.
fn active<'s>(
    service: &'s mut ModelService,
    fallback: &'s mut Option<Fallback>,
) -> &'s mut ModelService {
    match fallback {
        Some(fallback) if fallback.answers => &mut fallback.service,
        _ => service,
    }
}

impl Dialogue {
    fn new(persona: Persona, room: Room) -> Self {
        Self {
            conversation: ModelConversation::new(persona.name.clone()),
            persona,
            room,
        }
    }

    fn observe(&mut self, event: &Event) {
        self.conversation.observe(event);
        self.room.observe(event);
    }

    /// Returns whether the conversation must be cut before the model is asked again.
    fn is_full(&self) -> bool {
        self.room
            .is_full(self.conversation.tokens(self.persona.bytes()))
    }

    async fn answer(
        &mut self,
        service: &mut ModelService,
        budget: Budget,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Event, ModelError> {
        if self.is_full() {
            let kept = self.room.kept(&self.conversation);
            return self.compact(service, budget, kept, Occasion::Long).await;
        }
        let turns = self.conversation.turns();
        let prompt = self.persona.prompt(&turns, None);
        match service.ask(Instant::now(), &prompt, budget, observe).await {
            Ok(ModelAnswer {
                content,
                usage,
                cut,
                length,
            }) => Ok(Event::Answer {
                content,
                usage,
                cut,
                length,
                model_calls: 1,
            }),
            Err(ModelError::TooLong(why)) => {
                self.room.refused = true;
                if self.is_full() {
                    let kept = self.room.kept(&self.conversation);
                    self.compact(service, budget, kept, Occasion::Long).await
                } else {
                    Err(ModelError::TooLong(why))
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Replaces the beginning of the conversation by a summary, written by the model if it can,
    /// else made without it; `kept`: how many of the last answers stay.
    ///
    /// # Errors
    /// [`ModelError`] if the service cannot be asked now, for reasons other than the conversation.
    /// Then nothing is cut, since the service may be back for the next piece of work.
    async fn compact(
        &mut self,
        service: &mut ModelService,
        budget: Budget,
        kept: usize,
        occasion: Occasion,
    ) -> Result<Event, ModelError> {
        let turns = self.conversation.turns().into_owned();
        let mut answer = if self.room.refused {
            Err(ModelError::TooLong(String::new()))
        } else {
            let question = compaction::question(turns.clone(), occasion);
            self.summarise(service, &question, budget).await
        };
        if let Err(ModelError::TooLong(_)) = answer {
            let question =
                compaction::short_question(turns, occasion, self.room.for_short_question());
            answer = self.summarise(service, &question, budget).await;
        }
        let (written, mut usage) = match answer {
            Ok(answer) => (text_of(&answer.content), answer.usage),
            Err(error @ (ModelError::TooLong(_) | ModelError::Refused(_))) => {
                tracing::warn!("the model could not write a summary: {error}");
                (String::new(), Usage::default())
            }
            Err(error) => return Err(error),
        };
        // A first attempt without an answer has a cost, too.
        usage += service.take_unrecorded();
        let summary = compaction::compose(
            &self.conversation,
            occasion,
            &written,
            kept,
            self.room.for_summary(),
        );
        Ok(Event::Compacted {
            summary,
            kept,
            usage,
            at_rest: occasion.is_at_rest(),
        })
    }

    /// Asks with the same instructions and tools as always, because the service has them in its
    /// cache.
    async fn summarise(
        &mut self,
        service: &mut ModelService,
        turns: &[PromptTurn],
        budget: Budget,
    ) -> Result<ModelAnswer, ModelError> {
        let prompt = self
            .persona
            .prompt(turns, Some(MAX_SUMMARY.min(service.window() / 8)));
        service
            .ask(Instant::now(), &prompt, budget, &mut |_| {})
            .await
    }
}
