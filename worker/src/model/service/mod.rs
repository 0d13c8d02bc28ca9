//! A model that is reached over HTTP: asks its service, waits and asks again when that may help, and says in plain
//! words when it does not.
//!
//! It keeps no conversation: every prompt holds all of it. What is sent and how an answer is read is up to a
//! [`Wire`], one file a provider; those are pure. Keys go into headers and nowhere else.

mod anthropic;
mod catalog;
mod events;
mod failure;
mod http;
mod ids;
mod openai;
mod overload;
mod pause;
mod pieces;
mod retry;
mod settings;
mod trouble;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use teamd_shared::environment::Environment;
use teamd_shared::member::Waiting;
use teamd_shared::model_spec::{ModelSpec, Provider};
use teamd_shared::team_dir::TeamDir;
use teamd_shared::transcript::{Block, Usage};
use tokio::sync::watch;
use tokio::time::Instant;

use super::prompt::Prompt;
use super::{Answer, ModelError};
use failure::Failure;
use http::Http;
use overload::Overload;
use pieces::Pieces;
use retry::{Attempts, Next};
use settings::Settings;
pub(crate) use trouble::Trouble;
use wire::{Piece, Wire};

/// How long all attempts and pauses for one prompt may take together, whatever number of pieces its answer comes in:
/// who has waited longer is not asked again after a failure. An answer that comes has no limit.
const GIVE_UP: Duration = Duration::from_secs(600);

/// What a service needs of the world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access<'a> {
    /// The team, whose workers leave an overloaded service alone together.
    pub(crate) dir: &'a Arc<TeamDir>,
    /// Keys, addresses and proxies: those of the command that asked for the member.
    pub(crate) environment: &'a Environment,
}

/// What is heard of an answer while it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard<'a> {
    /// The next piece of its text.
    Text(&'a str),
    /// It broke off, and begins anew: what was heard of it so far does not count.
    Again,
}

/// The service of one model.
#[derive(Debug)]
pub(crate) struct Service {
    provider: Provider,
    model: String,
    wire: Box<dyn Wire>,
    http: Http,
    overload: Overload,
    window: u64,
    /// What was paid for an answer that has not ended: also if it never will.
    unrecorded: Usage,
}

impl Service {
    /// Makes the service that a specification names. Nothing is sent, and no client is built, before the first
    /// prompt; a missing key, or a setting that makes no sense, is told then.
    pub(crate) fn new(spec: &ModelSpec, access: Access<'_>) -> Self {
        let settings = Settings::read(spec, access.environment);
        let (provider, model) = (spec.provider, settings.model.clone());
        let window = settings.window.unwrap_or_else(|| catalog::window(provider, &model));
        let wire: Box<dyn Wire> = match provider {
            Provider::Anthropic => Box::new(anthropic::Anthropic::new(&model, window)),
            Provider::OpenAi | Provider::Script => {
                Box::new(openai::OpenAi::new(&model, settings.is_default_base))
            }
        };
        let overload = Overload::new(Arc::clone(access.dir), &settings.service(provider));
        Self {
            provider,
            model,
            wire,
            http: Http::new(settings),
            overload,
            window,
            unrecorded: Usage::default(),
        }
    }

    /// Returns how many tokens a prompt and its answer may have together.
    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// Returns where the pause of the moment stands, while a prompt is asked.
    pub(crate) fn pauses(&self) -> watch::Receiver<Option<Waiting>> {
        self.http.pauses().listen()
    }

    /// Takes out what was paid for answers that came to nothing, since it was taken out last.
    pub(crate) fn take_unrecorded(&mut self) -> Usage {
        std::mem::take(&mut self.unrecorded)
    }

    /// Asks; `heard` is told each piece of text as it comes. `budget`: how many tokens may be spent, with what
    /// [`Service::take_unrecorded`] has not taken out, before an answer that is not whole is given up.
    ///
    /// A call that fails or is dropped halfway leaves nothing behind but what it cost.
    ///
    /// # Errors
    /// [`ModelError`] if there is no answer to be had, also not by waiting and trying again.
    pub(crate) async fn ask(
        &mut self,
        prompt: &Prompt<'_>,
        budget: Option<u64>,
        heard: &mut dyn FnMut(Heard<'_>),
    ) -> Result<Answer, ModelError> {
        self.ask_since(Instant::now(), prompt, budget, heard).await
    }

    /// As [`Service::ask`], begun at that time.
    async fn ask_since(
        &mut self,
        began: Instant,
        prompt: &Prompt<'_>,
        budget: Option<u64>,
        heard: &mut dyn FnMut(Heard<'_>),
    ) -> Result<Answer, ModelError> {
        let owed = self.unrecorded;
        let mut pieces = Pieces::default();
        loop {
            if budget.is_some_and(|budget| self.unrecorded.billed() >= budget) {
                return Err(ModelError::Spent);
            }
            let turns = pieces.turns(prompt.turns);
            let prompt = Prompt { turns: &turns, ..prompt.clone() };
            let before = pieces.text();
            let mut hear = |said: Heard<'_>| {
                heard(said);
                // Only the last piece of it begins anew.
                if said == Heard::Again && !before.is_empty() {
                    heard(Heard::Text(&before));
                }
            };
            let piece = self.next_piece(&prompt, began, &mut hear).await?;
            self.unrecorded += piece.answer.usage;
            if let Some(answer) = pieces.add(piece)? {
                // The answer says what it cost.
                self.unrecorded = owed;
                return Ok(answer);
            }
            tracing::info!("{}: paused its answer ({}); it goes on", self.name(), pieces.times());
        }
    }

    /// Asks for the next piece of an answer; `began`: when its first was asked for.
    async fn next_piece(
        &mut self,
        prompt: &Prompt<'_>,
        began: Instant,
        heard: &mut dyn FnMut(Heard<'_>),
    ) -> Result<Piece, ModelError> {
        let mut attempts = Attempts::begin();
        loop {
            self.wait_for_the_others(&mut attempts, began).await?;
            let mut said = false;
            let mut hear = |text: &str| {
                said = true;
                heard(Heard::Text(text));
            };
            let failure = match self.attempt(prompt, &mut hear).await {
                Ok(piece) => return Ok(piece),
                Err(failure) => failure,
            };
            if said {
                heard(Heard::Again);
            }
            if failure.complaint().is_some_and(|complaint| self.wire.adapt(complaint)) {
                tracing::info!("{}: asking in another way, since {failure}", self.name());
                continue;
            }
            let Next::Again { wait, leave_alone } = attempts.next(&failure, began.elapsed(), random()) else {
                return Err(self.explain(failure, &attempts));
            };
            if let Some(span) = leave_alone {
                self.overload.leave_alone_for(span);
            }
            tracing::warn!(
                "{}: attempt {} failed: {failure}; again in {:.1} s",
                self.name(),
                attempts.made(),
                wait.as_secs_f64()
            );
            let _told = self.http.pauses().tell(wait, &failure.brief());
            tokio::time::sleep(wait).await;
        }
    }

    /// Waits as long as a teammate was told to, or was itself.
    async fn wait_for_the_others(&self, attempts: &mut Attempts, began: Instant) -> Result<(), ModelError> {
        while let Some(left) = self.overload.left() {
            let Some(wait) = attempts.wait_out(left, began.elapsed(), random()) else {
                return Err(self.explain(Failure::Left(left), attempts));
            };
            tracing::info!("{} is overloaded: waiting {:.1} s", self.name(), wait.as_secs_f64());
            let _told = self.http.pauses().tell(wait, "overloaded; the team leaves it alone");
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    async fn attempt(&mut self, prompt: &Prompt<'_>, heard: &mut dyn FnMut(&str)) -> Result<Piece, Failure> {
        let body = self.wire.body(prompt).to_string();
        let asked = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let Piece { mut answer, paused } = self.http.exchange(self.wire.as_ref(), body, heard).await?;
        ids::make_unique(&mut answer.content, prompt.turns, &mut ids::random);
        if answer.usage == Usage::default() {
            answer.usage = estimate(asked, &answer.content);
        }
        Ok(Piece { answer, paused })
    }

    fn explain(&self, failure: Failure, attempts: &Attempts) -> ModelError {
        let about = trouble::About {
            provider: self.provider,
            model: &self.model,
            host: self.http.host(),
            has_key: self.http.has_key(),
            attempts: attempts.made(),
        };
        trouble::explain(failure, &about)
    }

    fn name(&self) -> String {
        format!("{}:{}", self.provider.as_str(), self.model)
    }
}

/// What an answer cost whose service does not say (some local ones): a budget must hold there, too. Four bytes are
/// about one token.
fn estimate(asked: u64, content: &[Block]) -> Usage {
    let length = |block: &Block| match block {
        Block::Text { text } => text.len(),
        Block::ToolUse { name, input, .. } => name.len() + input.to_string().len(),
        Block::Opaque { value } => value.to_string().len(),
    };
    let answered: usize = content.iter().map(length).sum();
    let output_tokens = u64::try_from(answered).unwrap_or(u64::MAX).div_ceil(4);
    Usage { input_tokens: asked.div_ceil(4), output_tokens, ..Usage::default() }
}

/// Returns a number in 0..1, so that workers who wait for the same do not come back at the same time.
fn random() -> f64 {
    let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
    // The version is in the lower half of these bits, and 32 of the upper are enough.
    let bits = u32::try_from(high >> 32).unwrap_or_default();
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}

/// Writes a span as people read it.
fn span(duration: Duration) -> String {
    match duration.as_secs() {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        seconds @ 10..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} hours", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod streams;
#[cfg(test)]
mod tests;
