//! A model that is reached over HTTP: asks its service, retries when that may help, and explains
//! failures in plain words.
//!
//! It keeps no conversation: every prompt holds all of it. A [`Wire`] decides what is sent and how
//! an answer is read; there is one pure file for each provider. Keys go into headers and nowhere
//! else.
//!
//! Two types describe a missing answer. A [`Failure`] is the outcome of one request and decides
//! about the next one. A [`ModelError`] explains the last failure to a user.

mod anthropic;
mod catalog;
mod cause;
mod client;
mod draft;
mod events;
mod explain;
mod failure;
mod gateway;
mod google;
mod http;
mod ids;
mod openai;
mod overload;
mod retry;
mod setting_errors;
mod settings;
mod waits;
mod wire;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use teamd_shared::amount::format_duration;
use teamd_shared::environment::Environment;
use teamd_shared::member::Waiting;
use teamd_shared::model_spec::{ModelSpec, Provider};
use teamd_shared::team_dir::TeamDir;
use teamd_shared::transcript::{Block, Usage};
use tokio::sync::watch;
use tokio::time::Instant;

use super::prompt::{Prompt, PromptTurn, Role, TurnPart};
use super::{ModelAnswer, ModelError};
pub use client::http_client;
use draft::Piece;
use explain::{explain, no_answer};
use failure::Failure;
pub use gateway::{Meter, upstreams};
use overload::Overload;
use settings::ServiceSettings;
pub use settings::patience;
use teamd_worker_core::state::Budget;
use waits::Waits;
use wire::Wire;

/// How long all attempts and pauses for one prompt may take together, over all pieces of its
/// answer. After that, a failure is not followed by another attempt. An answer that arrives has no
/// limit.
const GIVE_UP: Duration = Duration::from_secs(600);

/// How often one answer may be paused. Each piece costs tokens, so an answer that never ends must
/// be given up.
const MAX_PAUSES: u32 = 10;

/// What a service needs from its surroundings.
#[derive(Debug, Clone, Copy)]
pub struct Access<'a> {
    /// The team, whose workers leave an overloaded service alone together.
    pub dir: &'a Arc<TeamDir>,
    /// Keys, addresses and proxies: those of the command that asked for the member.
    pub environment: &'a Environment,
}

/// The progress of an answer while it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress<'a> {
    /// The next piece of its text.
    Text(&'a str),
    /// The answer broke off and begins again. Its text so far does not count.
    Again,
}

/// The service of one model.
#[derive(Debug)]
pub(crate) struct ModelService {
    wire: Box<dyn Wire>,
    settings: ServiceSettings,
    /// Built at the first request: a worker that only waits does not touch its pages.
    client: Option<Client>,
    waits: Waits,
    overload: Overload,
    /// The cost of an answer that has not ended, or never will.
    unrecorded: Usage,
}

impl ModelService {
    /// Makes the service that a specification names. Nothing is sent, and no client is built,
    /// before the first prompt.
    ///
    /// # Errors
    /// [`ModelError::Unusable`] for a missing key, or a setting that makes no sense.
    pub(crate) fn new(spec: &ModelSpec, access: Access<'_>) -> Result<Self, ModelError> {
        let settings = ServiceSettings::read(spec, access.environment)?;
        let wire: Box<dyn Wire> = match settings.provider {
            Provider::Anthropic => {
                Box::new(anthropic::Anthropic::new(&settings.model, settings.window))
            }
            Provider::Google => {
                return Err(ModelError::Unusable {
                    message: "the built-in agent does not speak the API of Google".to_owned(),
                    hint: "name another model, or use `--agent gemini`".to_owned(),
                });
            }
            Provider::OpenAi | Provider::Script => Box::new(openai::OpenAi::new(
                &settings.model,
                settings.is_default_base,
            )),
        };
        Ok(Self {
            wire,
            client: None,
            waits: Waits::new(settings.silence),
            overload: Overload::new(Arc::clone(access.dir), &settings.service()),
            settings,
            unrecorded: Usage::default(),
        })
    }

    /// Makes the service of another model that answers while this one is overloaded. It waits at the
    /// same place, but is not left alone because this one is.
    ///
    /// # Errors
    /// As [`ModelService::new`].
    pub(crate) fn fallback(
        &self,
        spec: &ModelSpec,
        access: Access<'_>,
    ) -> Result<Self, ModelError> {
        let mut other = Self::new(spec, access)?;
        let service = other.settings.service_of_model();
        other.overload = Overload::new(Arc::clone(access.dir), &service);
        other.waits = self.waits.beside();
        Ok(other)
    }

    /// Returns how many tokens a prompt and its answer may have together.
    pub(crate) fn window(&self) -> u64 {
        self.settings.window
    }

    /// Returns the channel that publishes the present pause.
    pub(crate) fn pauses(&self) -> watch::Receiver<Option<Waiting>> {
        self.waits.subscribe()
    }

    /// Takes the cost of answers that came to nothing, since the last call.
    pub(crate) fn take_unrecorded(&mut self) -> Usage {
        std::mem::take(&mut self.unrecorded)
    }

    /// Asks for an answer. `began`: when the wait for this answer began; `observe` gets each piece
    /// of text as it arrives; `budget`: how much may be spent, including the cost that
    /// [`ModelService::take_unrecorded`] has not taken yet, before an incomplete answer is given
    /// up.
    ///
    /// An answer that the service pauses is sent back unchanged as the end of the prompt, and the
    /// model continues it. Elsewhere it is one answer, which counts when it has ended. So no
    /// message, crash or compaction can come between its pieces; a worker that dies meanwhile asks
    /// again. A call that fails or is dropped leaves nothing behind but its cost.
    ///
    /// # Errors
    /// [`ModelError`] if there is no answer, even after retries.
    pub(crate) async fn ask(
        &mut self,
        began: Instant,
        prompt: &Prompt<'_>,
        budget: Budget,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<ModelAnswer, ModelError> {
        let before = self.unrecorded;
        let mut content = Vec::new();
        let mut usage = Usage::default();
        let mut turns = Cow::Borrowed(prompt.turns);
        for pauses in 0..=MAX_PAUSES {
            if budget.reached(&self.unrecorded).is_some() {
                return Err(ModelError::Spent);
            }
            let text: String = content.iter().filter_map(Block::text).collect();
            let going_on = Prompt {
                turns: &turns,
                ..prompt.clone()
            };
            let Piece { answer, paused } =
                self.next_piece(&going_on, began, &text, observe).await?;
            self.unrecorded += answer.usage;
            usage += answer.usage;
            content.extend(answer.content);
            // An answer with a call continues after the result.
            if !paused
                || content
                    .iter()
                    .any(|block| matches!(block, Block::ToolUse { .. }))
            {
                // For each piece the service read the whole conversation again, with the earlier
                // pieces. So only the last count is its length.
                let last = answer
                    .usage
                    .input()
                    .saturating_add(answer.usage.output_tokens);
                let length = (pauses > 0).then_some(last);
                // The answer carries its cost.
                self.unrecorded = before;
                return Ok(ModelAnswer {
                    content,
                    usage,
                    cut: answer.cut,
                    length,
                });
            }
            tracing::info!("{}: paused its answer; asking it to continue", self.name());
            if !content.is_empty() {
                let parts = content.iter().map(TurnPart::from).collect();
                turns = [
                    prompt.turns,
                    &[PromptTurn {
                        role: Role::Assistant,
                        parts,
                    }],
                ]
                .concat()
                .into();
            }
        }
        let why = format!(
            "its service has paused this answer {} times without ending it",
            MAX_PAUSES + 1
        );
        Err(ModelError::Failed(why))
    }

    /// Asks for the next piece of an answer; `began`: when its first piece was requested; `before`:
    /// the text of the earlier pieces.
    async fn next_piece(
        &mut self,
        prompt: &Prompt<'_>,
        began: Instant,
        before: &str,
        observe: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Piece, ModelError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => client::build(&self.settings)?,
        };
        let client = self.client.insert(client).clone();
        let mut failed = 0;
        loop {
            self.wait_out_overload(began, failed).await?;
            let mut has_begun = false;
            let mut relay = |text: &str| {
                has_begun |= !text.is_empty();
                observe(Progress::Text(text));
            };
            let failure = match self.attempt(&client, prompt, &mut relay).await {
                Ok(piece) => return Ok(piece),
                Err(failure) => failure,
            };
            if has_begun {
                observe(Progress::Again);
                observe(Progress::Text(before));
            }
            if self.wire.adapt(&failure) {
                tracing::info!("{}: asking in another way, since {failure}", self.name());
                continue;
            }
            failed += 1;
            let Some(wait) = retry::pause(&failure, failed, began.elapsed(), random()) else {
                return Err(explain(&failure, &self.settings, failed));
            };
            if failure.is_overload() {
                self.overload
                    .leave_alone_for(failure.retry_after.unwrap_or(wait));
            }
            let seconds = wait.as_secs_f64();
            tracing::warn!(
                "{}: attempt {failed} failed: {failure}; again in {seconds:.1} s",
                self.name()
            );
            self.waits
                .sleep(wait, &failure.brief(&self.settings.host()))
                .await;
        }
    }

    /// Waits as long as the service has told any worker of the team to wait.
    async fn wait_out_overload(&self, began: Instant, failed: u32) -> Result<(), ModelError> {
        while let Some(left) = self.overload.left() {
            let Some(wait) = retry::wait_for(left, began.elapsed(), random()) else {
                let last = format!("it asks to be left alone for {}", format_duration(left));
                return Err(no_answer(&self.settings, failed, &last));
            };
            tracing::info!(
                "{} is overloaded: waiting {:.1} s",
                self.name(),
                wait.as_secs_f64()
            );
            self.waits
                .sleep(wait, "overloaded; the team leaves it alone")
                .await;
        }
        Ok(())
    }

    async fn attempt(
        &self,
        client: &Client,
        prompt: &Prompt<'_>,
        observe: &mut dyn FnMut(&str),
    ) -> Result<Piece, Failure> {
        let body = self.wire.body(prompt).to_string();
        let asked = body.len();
        let url = client::below(&self.settings.base, self.wire.path());
        let headers = client::headers(self.wire.as_ref(), self.settings.key.as_ref());
        let request = client.post(url).headers(headers).body(body);
        let exchanged = http::exchange(request, self.wire.as_ref(), &self.waits, observe).await;
        let mut piece =
            exchanged.map_err(|failure| failure.sanitized(|text| self.settings.scrub(text)))?;
        let answer = &mut piece.answer;
        ids::make_unique(&mut answer.content, prompt.turns);
        if answer.usage == Usage::default() {
            answer.usage = estimate(asked, &answer.content);
        }
        Ok(piece)
    }

    /// Returns the name of its model, in full.
    pub(crate) fn name(&self) -> String {
        format!(
            "{}:{}",
            self.settings.provider.as_str(),
            self.settings.model
        )
    }
}

/// Estimates the cost of an answer whose service does not report it, as some local ones, so that a
/// budget holds there, too. Four bytes are about one token.
fn estimate(asked: usize, content: &[Block]) -> Usage {
    let answered: usize = content
        .iter()
        .map(|block| TurnPart::from(block).bytes())
        .sum();
    Usage {
        input_tokens: asked.div_ceil(4) as u64,
        output_tokens: answered.div_ceil(4) as u64,
        ..Usage::default()
    }
}

/// Returns a number in 0..1, so that workers that wait for the same service do not retry at the
/// same moment.
fn random() -> f64 {
    let (bits, ..) = uuid::Uuid::new_v4().as_fields();
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod streams;
#[cfg(test)]
mod tests;
