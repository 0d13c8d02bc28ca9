//! The models: the one place that knows which there are.
//!
//! A model is a function of the transcript: it gets every entry of the conversation in order, live
//! and again after a restart, and is then asked for the next answer. It must never run a tool, read
//! an inbox or write a file. Asking it changes nothing; only recorded entries count. The one
//! exception is the cost of a call without an answer, which the model keeps until the cost is
//! recorded.

mod agent;
mod compaction;
mod conversation;
mod one_shot;
pub mod prompt;
mod remote;
mod script;
mod service;

use std::fmt::Debug;
use std::pin::Pin;

use teamd_shared::member::{Gate, Waiting};
use teamd_shared::model_spec::{ModelSpec, Provider, UnknownModel};
use teamd_shared::transcript::{Block, Cut, Event, Usage};
use tokio::sync::watch;

pub use agent::{
    AgentDriver, AgentEnds, AgentInput, AgentMessage, AgentMind, AgentOutput, AgentProcess,
    AgentSession, CallProgress, Known, Launch, TeamCall, TeamServer, open_kept,
};
pub use one_shot::OneShot;
pub use remote::{Persona, Remote};
pub use script::Script;
use service::ModelService;
pub use service::{Access, Meter, Progress, http_client, patience, upstreams};
use teamd_worker_core::state::Budget;

/// One answer: text and calls, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelAnswer {
    /// Text and calls.
    pub content: Vec<Block>,
    /// What it cost, in tokens.
    pub usage: Usage,
    /// Why it was cut, if it was.
    pub cut: Option<Cut>,
    /// The length of the conversation including it, in tokens, if that differs from its cost.
    pub length: Option<u64>,
}

/// Why there is no answer. Fits behind "error: ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The conversation no longer fits into the window of the model.
    #[error("the conversation is too long for the model: {0}")]
    TooLong(String),
    /// The budget was spent before the answer had ended.
    #[error("a limit of the budget was reached before the answer had ended")]
    Spent,
    /// The service refuses the request, and would refuse the same request later.
    #[error("{0}")]
    Refused(String),
    /// The model cannot be used now or does not answer.
    #[error("{message}")]
    Unusable {
        /// Why.
        message: String,
        /// What to do next.
        hint: String,
    },
    /// The service stayed overloaded through all attempts: another model of it may answer.
    #[error("{message}")]
    Overloaded {
        /// What it said.
        message: String,
        /// What to do next.
        hint: String,
    },
    /// The agent has ended in the middle of its work, and can continue.
    #[error("the agent has ended: {0}")]
    Gone(String),
    /// The model was asked, and could not answer.
    #[error("the model failed: {0}")]
    Failed(String),
}

impl ModelError {
    /// Returns what to do next. Fits behind "hint: ".
    pub fn hint(&self) -> &str {
        match self {
            Self::TooLong(_) => "give the work to a new teammate",
            Self::Spent => "raise the limit (`--max-tokens`, `--max-cost`)",
            Self::Refused(_) => {
                "the log of the teammate has more; another model may take it (`--model`)"
            }
            Self::Unusable { hint, .. } | Self::Overloaded { hint, .. } => hint,
            Self::Gone(_) | Self::Failed(_) => "send the message again, later",
        }
    }
}

/// A model of a simulation.
pub trait SimulatedModel: Debug {
    /// Applies the next entry of the conversation.
    fn observe(&mut self, event: &Event);
    /// Answers the conversation so far.
    fn answer(&mut self) -> Pin<Box<dyn Future<Output = Result<Event, ModelError>> + '_>>;
    /// Begins the conversation of the subagent of a call.
    fn begin_subagent(&mut self, call: &str);
    /// Answers that conversation so far: the entries behind the last beginning.
    fn answer_subagent(&mut self) -> Pin<Box<dyn Future<Output = Result<Event, ModelError>> + '_>>;
}

/// A model.
#[derive(Debug)]
pub enum Model {
    /// Offline and deterministic.
    Script(Script),
    /// Another program, one process for each piece of work.
    OneShot(OneShot),
    /// Another program, one process for many turns.
    Agent(Box<AgentMind>),
    /// Reached over HTTP.
    Remote(Box<Remote>),
    /// Its settings do not allow its use: each piece of work fails with this error. If the worker
    /// ended instead, the next one would start with the same settings.
    Unusable(ModelError),
    /// Of a simulation.
    Simulated(Box<dyn SimulatedModel>),
}

impl Model {
    /// Makes the model of a member from a specification (`PROVIDER[:MODEL]`); `fallback`: of the model
    /// of the same service that answers while it is overloaded. `persona` gets the maximum length of the workspace's guide, in bytes; it is not called for a model that needs
    /// no persona.
    ///
    /// # Errors
    /// [`ModelError`] if there is no such model.
    pub fn from_spec(
        spec: &str,
        fallback: Option<&str>,
        persona: impl FnOnce(usize) -> Persona,
        access: Access<'_>,
    ) -> Result<Self, ModelError> {
        let spec: ModelSpec =
            spec.parse()
                .map_err(|unknown: UnknownModel| ModelError::Unusable {
                    message: unknown.to_string(),
                    hint: unknown.hint().to_owned(),
                })?;
        if spec.provider == Provider::Script {
            return Ok(Self::Script(Script::default()));
        }
        let fallback = fallback.and_then(|fallback| fallback.parse::<ModelSpec>().ok());
        let fallback = fallback.filter(|fallback| fallback.provider == spec.provider);
        Ok(match ModelService::new(&spec, access) {
            Ok(service) => {
                let fallback = fallback.map(|it| service.fallback(&it, access)).transpose();
                match fallback {
                    Ok(fallback) => Self::Remote(Box::new(Remote::new(service, fallback, persona))),
                    Err(error) => Self::Unusable(error),
                }
            }
            Err(error) => Self::Unusable(error),
        })
    }

    /// Applies the next entry of the conversation. The caller passes every entry exactly once, in
    /// order.
    pub fn observe(&mut self, event: &Event) {
        match self {
            Self::Script(script) => script.observe(event),
            Self::OneShot(agent) => agent.observe(event),
            Self::Agent(agent) => agent.observe(event),
            Self::Remote(remote) => remote.observe(event),
            Self::Unusable(_) => {}
            Self::Simulated(model) => model.observe(event),
        }
    }

    /// Begins the conversation of a subagent, for the call of this id; false if the model has none.
    pub fn begin_subagent(&mut self, call: &str, prompt: &str) -> bool {
        match self {
            Self::Script(script) => {
                script.begin_subagent(call, prompt);
                true
            }
            Self::Remote(remote) => remote.begin_subagent(prompt),
            Self::Simulated(model) => {
                model.begin_subagent(call);
                true
            }
            Self::OneShot(_) | Self::Agent(_) | Self::Unusable(_) => false,
        }
    }

    /// Applies the next entry of the subagent.
    pub fn observe_subagent(&mut self, event: &Event) {
        match self {
            Self::Script(script) => script.observe_subagent(event),
            Self::Remote(remote) => remote.observe_subagent(event),
            Self::OneShot(_) | Self::Agent(_) | Self::Unusable(_) | Self::Simulated(_) => {}
        }
    }

    /// Answers the conversation of the subagent so far, as [`Model::answer`] does that of the
    /// member.
    ///
    /// # Errors
    /// [`ModelError`] if there is no answer.
    pub async fn answer_subagent(&mut self, budget: Budget) -> Result<Event, ModelError> {
        let answer = match self {
            Self::Script(script) => script.answer_subagent(),
            Self::Remote(remote) => remote.answer_subagent(budget).await,
            Self::Simulated(model) => Some(model.answer_subagent().await),
            Self::OneShot(_) | Self::Agent(_) | Self::Unusable(_) => None,
        };
        answer.unwrap_or_else(|| Err(ModelError::Failed("it has no subagent".to_owned())))
    }

    /// Ends the conversation of the subagent.
    pub fn end_subagent(&mut self) {
        match self {
            Self::Script(script) => script.end_subagent(),
            Self::Remote(remote) => remote.end_subagent(),
            Self::OneShot(_) | Self::Agent(_) | Self::Unusable(_) | Self::Simulated(_) => {}
        }
    }

    /// Puts the conversation into a summary that a person asks for. Returns the entry, as
    /// [`Model::answer`] does.
    ///
    /// # Errors
    /// [`ModelError`] if there is no summary.
    pub async fn compact(&mut self, budget: Budget, at_rest: bool) -> Result<Event, ModelError> {
        match self {
            Self::Remote(remote) => remote.compact(budget, at_rest).await,
            Self::Unusable(error) => Err(error.clone()),
            _ => Err(ModelError::Failed("it has no summary".to_owned())),
        }
    }

    /// Tells whether a summary would leave anything out.
    pub fn can_compact(&self) -> bool {
        match self {
            Self::Unusable(_) => true,
            _ => self.remote().is_some_and(Remote::can_compact),
        }
    }

    /// Returns the model that answers in the place of its own until the piece of work ends.
    pub fn fallback_in_use(&self) -> Option<&str> {
        self.remote().and_then(Remote::fallback_in_use)
    }

    fn remote(&self) -> Option<&Remote> {
        if let Self::Remote(remote) = self {
            Some(remote)
        } else {
            None
        }
    }

    /// Returns the channel that publishes what the model waits for; none if it has no service.
    pub fn pauses(&self) -> Option<watch::Receiver<Option<Waiting>>> {
        match self {
            Self::Agent(agent) => Some(agent.pauses()),
            _ => self.remote().map(|remote| remote.service.pauses()),
        }
    }

    /// Returns the mind, if the model is an agent that runs for many turns.
    pub fn agent(&mut self) -> Option<&mut AgentMind> {
        if let Self::Agent(agent) = self {
            Some(agent)
        } else {
            None
        }
    }

    /// Returns whether its answers come piece by piece.
    pub fn streams(&self) -> bool {
        matches!(self, Self::Remote(_) | Self::Agent(_))
    }

    /// Takes the cost since the last call that is in no answer, in tokens, and the number of
    /// answers that have begun with it.
    pub fn take_unrecorded(&mut self) -> (Usage, u32) {
        match self {
            Self::Remote(remote) => (remote.take_unrecorded(), 0),
            Self::Agent(agent) => agent.take_unrecorded(),
            _ => (Usage::default(), 0),
        }
    }

    /// Answers the conversation so far; `observe` gets each piece of text as it comes. `budget`:
    /// what may be spent. Once it is spent, an answer that its service has paused is given up.
    ///
    /// Returns the entry of the transcript: an answer, or a summary that replaces the beginning of
    /// a conversation that is too long, or that another model answers from here on. The state of the model does not change until the entry is
    /// recorded and observed. So a call that fails or is dropped leaves nothing behind but its cost
    /// ([`Model::take_unrecorded`]).
    ///
    /// # Errors
    /// [`ModelError`] if there is no answer.
    pub async fn answer(
        &mut self,
        (budget, gate): (Budget, Gate),
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Event, ModelError> {
        match self {
            Self::Script(script) => script.answer(),
            Self::OneShot(agent) => agent.answer(gate),
            Self::Agent(agent) => agent.answer(budget, observe).await,
            Self::Remote(remote) => remote.answer(budget, observe).await,
            Self::Unusable(error) => Err(error.clone()),
            Self::Simulated(model) => model.answer().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::LazyCell;
    use std::sync::Arc;

    use super::*;
    use teamd_shared::environment::Environment;
    use teamd_shared::team_dir::TeamDir;

    fn persona(_room: usize) -> Persona {
        let name = teamd_shared::name::Name::new("alice").unwrap();
        Persona {
            name,
            system: String::new(),
            tools: LazyCell::new(Box::new(Vec::new)),
            subagent: None,
        }
    }

    #[test]
    fn a_model_that_this_version_lacks_is_named_with_a_way_on() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
        let access = Access {
            dir: &dir,
            environment: &Environment::default(),
        };
        for spec in ["", "Script", "script:fast", "gpt"] {
            let error = Model::from_spec(spec, None, persona, access).unwrap_err();
            assert!(error.to_string().contains(&format!("{spec:?}")), "{error}");
            assert!(error.hint().contains("`script`"));
        }
        let script = Model::from_spec("script", None, persona, access);
        assert!(matches!(script, Ok(Model::Script(_))));
    }
}
