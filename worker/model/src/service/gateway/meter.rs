//! The cost of the model calls that an agent makes through the gateway, read from the passing
//! answers, and the decision whether it may make another one. The tools of the agent also make
//! calls; both are counted and limited by the budget.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use hyper::body::{Bytes, Frame};
use reqwest::Body;
use serde_json::Value;
use teamd_shared::message::IdleReason;
use teamd_shared::model_spec::Provider;
use teamd_shared::transcript::Usage;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::ModelError;
use crate::service::events::EventReader;
use crate::service::{anthropic, google, openai};
use teamd_worker_core::state::Budget;

/// How much of an answer that comes in one piece is read, in bytes.
const MAX_WHOLE: usize = 4 << 20;

/// How many calls of one agent run at once. Their cost is known only at their end, so more of them
/// could exceed the budget.
const AT_ONCE: usize = 8;

/// The refusal of a call outside of a turn.
const NO_TURN: &str =
    "no turn of this agent is running, and models can be called only during a turn";

/// What an agent has spent since the last look, and what it may spend.
#[derive(Debug, Clone)]
pub struct Meter {
    account: Arc<Mutex<MeterAccount>>,
    /// Which limit a call was refused for in this turn.
    refused: watch::Sender<Option<IdleReason>>,
    room: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct MeterAccount {
    usage: Usage,
    /// Calls that were answered, or given up by the agent.
    calls: u32,
    /// Calls whose answer has not begun.
    open: u32,
    /// What may be spent; none: no turn runs.
    allowed: Option<Budget>,
    trouble: Option<Trouble>,
}

/// Why the last call brought no answer.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// In a few words of our own.
    pub(crate) brief: String,
    /// With what to do next.
    pub error: ModelError,
    /// How many calls in turn have failed.
    pub attempts: u32,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            account: Arc::default(),
            refused: watch::Sender::new(None),
            room: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

impl Meter {
    /// Takes out what was spent, and in how many calls.
    pub fn take(&self) -> (Usage, u32) {
        let mut account = self.account();
        (
            std::mem::take(&mut account.usage),
            std::mem::take(&mut account.calls),
        )
    }

    /// Sets what may be spent, beyond what was taken out; none: no turn runs.
    pub fn allow(&self, budget: Option<Budget>) {
        self.account().allowed = budget;
        if budget.is_none() {
            self.refused.send_replace(None);
        }
    }

    /// Returns which limit a call of this turn was refused for, if one was.
    pub fn refused(&self) -> Option<IdleReason> {
        *self.refused.borrow()
    }

    /// Waits until a call of this turn was refused since the budget is spent.
    pub(crate) async fn until_refused(&self) {
        // The other end is held here.
        drop(self.refused.subscribe().wait_for(Option::is_some).await);
    }

    /// Returns why the last call brought no answer, if it did not.
    pub fn trouble(&self) -> Option<Trouble> {
        self.account().trouble.clone()
    }

    /// Returns how many calls in turn have failed.
    pub(super) fn attempts(&self) -> u32 {
        self.account()
            .trouble
            .as_ref()
            .map_or(0, |trouble| trouble.attempts)
    }

    /// Records why a call has failed, or that none has.
    pub(super) fn set_trouble(&self, trouble: Option<Trouble>) {
        self.account().trouble = trouble;
    }

    /// Tells whether a turn runs.
    ///
    /// # Errors
    /// That none does.
    pub(super) fn admit_free(&self) -> Result<(), String> {
        self.account()
            .allowed
            .map(|_| ())
            .ok_or_else(|| NO_TURN.to_owned())
    }

    /// Admits a call that asks so many bytes, when there is room.
    ///
    /// # Errors
    /// Why it may not be made.
    pub(super) async fn admit(&self, asked: u64) -> Result<Admission, String> {
        // It is never closed.
        let permit = Arc::clone(&self.room).acquire_owned().await.ok();
        let begun = self.account().begin();
        begun.map_err(|reason| self.refuse(reason))?;
        Ok(Admission {
            meter: self.clone(),
            asked,
            is_open: true,
            _permit: permit,
        })
    }

    /// Says why a call may not be made; none: no turn runs.
    fn refuse(&self, limit: Option<IdleReason>) -> String {
        let Some(limit) = limit else {
            return NO_TURN.to_owned();
        };
        self.refused.send_replace(Some(limit));
        let name = match limit {
            IdleReason::MaxTokens => "max_tokens",
            IdleReason::MaxCost => "max_cost",
            _ => "max_turns",
        };
        format!("the budget of this piece of work is spent ({name})")
    }

    fn account(&self) -> MutexGuard<'_, MeterAccount> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MeterAccount {
    /// Begins a call.
    ///
    /// # Errors
    /// Which limit it would pass; none: no turn runs.
    fn begin(&mut self) -> Result<(), Option<IdleReason>> {
        let left = self.allowed.ok_or(None)?;
        let is_last = self.calls.saturating_add(self.open) >= left.turns;
        let reached = is_last
            .then_some(IdleReason::MaxTurns)
            .or_else(|| left.reached(&self.usage));
        match reached {
            Some(limit) => Err(Some(limit)),
            None => {
                self.open += 1;
                Ok(())
            }
        }
    }
}

/// A call that runs. It counts even if the agent gives it up, unless the service refuses it.
#[derive(Debug)]
pub(super) struct Admission {
    meter: Meter,
    /// How much was sent, in bytes.
    asked: u64,
    is_open: bool,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Admission {
    /// The service did not take it: it costs nothing.
    pub(super) fn refused(mut self) {
        self.is_open = false;
        self.meter.account().open -= 1;
    }

    /// Returns a body that counts the reported usage while it passes.
    pub(super) fn read(mut self, provider: Provider, is_stream: bool, body: Body) -> Body {
        self.begun();
        let text = if is_stream {
            Text::Events(EventReader::default())
        } else {
            Text::Whole(Vec::new())
        };
        let count = AnswerCount {
            provider,
            text,
            usage: Usage::default(),
            written: 0,
            admission: self,
        };
        Body::wrap(Metered { body, count })
    }

    fn begun(&mut self) {
        self.is_open = false;
        let mut account = self.meter.account();
        account.open -= 1;
        account.calls += 1;
    }

    /// Counts about what it cost where its service has not said so: four bytes are about one token.
    fn estimate(&self, written: u64) {
        let input_tokens = self.asked.div_ceil(4);
        let output_tokens = written.div_ceil(4);
        self.meter.account().usage += Usage {
            input_tokens,
            output_tokens,
            ..Usage::default()
        };
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        // The agent has gone before the answer: its service may have begun it.
        if self.is_open {
            self.begun();
            self.estimate(0);
        }
    }
}

/// A body that is read as it passes.
struct Metered {
    body: Body,
    count: AnswerCount,
}

impl hyper::body::Body for Metered {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(bytes) = frame.data_ref()
        {
            self.count.push(bytes);
        }
        // Before the agent knows that it has all of it.
        if self.body.is_end_stream() {
            self.count.end();
        }
        polled
    }
}

/// How an answer comes.
enum Text {
    Events(EventReader),
    Whole(Vec<u8>),
    /// Longer than any real one, or read to its end.
    TooLong,
}

/// The count of one answer.
struct AnswerCount {
    provider: Provider,
    text: Text,
    usage: Usage,
    /// How much its model has written, in bytes.
    written: u64,
    admission: Admission,
}

impl AnswerCount {
    fn push(&mut self, bytes: &[u8]) {
        match &mut self.text {
            Text::Events(reader) => match reader.push(bytes) {
                Ok(events) => {
                    for event in events.iter() {
                        self.said(event.data.as_bytes());
                    }
                }
                Err(_) => self.text = Text::TooLong,
            },
            Text::Whole(text) if text.len() + bytes.len() <= MAX_WHOLE => {
                text.extend_from_slice(bytes)
            }
            Text::Whole(_) => self.text = Text::TooLong,
            Text::TooLong => {}
        }
    }

    /// Reads an answer, or a part of one, before the agent does. Each service says the usage in one
    /// of four places, and the last one holds.
    fn said(&mut self, json: &[u8]) {
        let Ok(value) = serde_json::from_slice::<Value>(json) else {
            return;
        };
        // So Google answers a stream that is not asked for as events.
        if let Value::Array(parts) = &value {
            for part in parts {
                self.part(part);
            }
        } else {
            self.part(&value);
        }
    }

    fn part(&mut self, value: &Value) {
        let written =
            ["delta", "choices", "content", "candidates"].map(|field| letters(&value[field]));
        self.written += written.iter().sum::<u64>();
        let before = self.usage;
        for usage in [
            &value["usage"],
            &value["message"]["usage"],
            &value["response"]["usage"],
            &value["usageMetadata"],
        ] {
            match self.provider {
                Provider::Anthropic => anthropic::count(usage, &mut self.usage),
                Provider::OpenAi | Provider::Script => openai::count(usage, &mut self.usage),
                Provider::Google => google::count(usage, &mut self.usage),
            }
        }
        self.admission.meter.account().usage += self.usage.beyond(&before);
    }
}

/// Returns the length of the texts in a value, in bytes.
fn letters(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(all) => all.iter().map(letters).sum(),
        Value::Object(fields) => fields.values().map(letters).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

impl AnswerCount {
    /// Reads the rest.
    fn end(&mut self) {
        match std::mem::replace(&mut self.text, Text::TooLong) {
            Text::Events(reader) => {
                if let Some(event) = reader.finish() {
                    self.said(event.data.as_bytes());
                }
            }
            Text::Whole(text) => self.said(&text),
            Text::TooLong => {}
        }
    }
}

impl Drop for AnswerCount {
    fn drop(&mut self) {
        self.end();
        if self.usage.is_nothing() {
            self.admission.estimate(self.written);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(turns: u32, tokens: Option<u64>) -> Budget {
        Budget {
            turns,
            asks_itself: true,
            tokens,
            cost: None,
            total: Default::default(),
        }
    }

    async fn admitted(meter: &Meter) -> Admission {
        meter.allow(Some(budget(9, None)));
        meter.admit(40).await.unwrap()
    }

    async fn counted(provider: Provider, is_stream: bool, chunks: &[&str]) -> [u64; 3] {
        let meter = Meter::default();
        let mut admission = admitted(&meter).await;
        admission.begun();
        let text = if is_stream {
            Text::Events(EventReader::default())
        } else {
            Text::Whole(Vec::new())
        };
        let mut count = AnswerCount {
            provider,
            text,
            usage: Usage::default(),
            written: 0,
            admission,
        };
        for chunk in chunks.iter() {
            count.push(chunk.as_bytes());
        }
        drop(count);
        let (usage, calls) = meter.take();
        assert!(calls == 1 && meter.take() == (Usage::default(), 0));
        [
            usage.input_tokens,
            usage.cache_read_input_tokens,
            usage.output_tokens,
        ]
    }

    #[tokio::test]
    async fn each_kind_of_answer_says_what_it_cost() {
        let stream = [
            "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7,\"cache_read_input_tokens\":5,",
            "\"output_tokens\":1}}}\n\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\n",
        ];
        assert_eq!(counted(Provider::Anthropic, true, &stream).await, [7, 5, 9]);
        assert_eq!(
            counted(Provider::Anthropic, true, &stream[..1]).await,
            [10, 0, 0],
            "it was broken off: what was sent is known"
        );
        let whole = [r#"{"usage":{"input_tokens":3,"#, r#""output_tokens":4}}"#];
        assert_eq!(counted(Provider::Anthropic, false, &whole).await, [3, 0, 4]);
        let chat = [
            "data: {\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":6}}}\n\ndata: [DONE]\n\n",
        ];
        assert_eq!(counted(Provider::OpenAi, true, &chat).await, [2, 6, 2]);
        let responses = [
            "event: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":8,\"output_tokens\":2,\"input_tokens_details\":{\"cached_tokens\":6}}}}\n\n",
        ];
        assert_eq!(counted(Provider::OpenAi, true, &responses).await, [2, 6, 2]);
        assert_eq!(
            counted(Provider::OpenAi, false, &["no JSON"]).await,
            [10, 0, 0]
        );
        let google = [
            "data: {\"candidates\":[],\"usageMetadata\":{\"promptTokenCount\":8,\"cachedContentTokenCount\":6,\"candidatesTokenCount\":1}}\n\n",
            "data: {\"usageMetadata\":{\"promptTokenCount\":8,\"toolUsePromptTokenCount\":4,\"cachedContentTokenCount\":6,\"candidatesTokenCount\":2,\"thoughtsTokenCount\":3}}\n\n",
        ];
        assert_eq!(counted(Provider::Google, true, &google).await, [6, 6, 5]);
        let list = [
            r#"[{"usageMetadata":{"promptTokenCount":8}},{"usageMetadata":{"promptTokenCount":8,"candidatesTokenCount":2}}]"#,
        ];
        assert_eq!(counted(Provider::Google, false, &list).await, [8, 0, 2]);
        let silent = [r#"{"candidates":[{"content":{"parts":[{"text":"eight by"}]}}]}"#];
        assert_eq!(counted(Provider::Google, false, &silent).await, [10, 0, 2]);
        let long = "x".repeat(MAX_WHOLE + 1);
        assert_eq!(
            counted(Provider::OpenAi, false, &[&long, &whole.concat()]).await,
            [10, 0, 0]
        );
        let silent = [
            "data: {\"choices\":[{\"delta\":{\"content\":\"eight by\"}}]}\n\n",
            "data: [DONE]\n\n",
        ];
        assert_eq!(
            counted(Provider::OpenAi, true, &silent).await,
            [10, 0, 2],
            "its service says nothing"
        );
    }

    #[tokio::test]
    async fn a_call_needs_a_turn_and_a_budget_and_one_that_is_refused_costs_nothing() {
        let meter = Meter::default();
        assert!(
            meter.admit(1).await.is_err()
                && meter.admit_free().is_err()
                && meter.refused().is_none()
        );
        meter.allow(Some(budget(2, Some(25))));
        meter.admit(1).await.unwrap().refused();
        let first = meter.admit(40).await.unwrap();
        let second = meter.admit(40).await.unwrap();
        assert!(meter.admit(1).await.unwrap_err().contains("max_turns"));
        assert_eq!(meter.refused(), Some(IdleReason::MaxTurns));
        // The agent gives both up: they count.
        drop((first, second));
        assert!(meter.admit(1).await.is_err() && meter.admit_free().is_ok());
        meter.allow(Some(budget(9, Some(20))));
        assert!(meter.admit(1).await.unwrap_err().contains("max_tokens"));
        assert_eq!(
            (meter.take().1, meter.refused()),
            (2, Some(IdleReason::MaxTokens))
        );
        assert!(
            meter.admit(1).await.is_ok(),
            "what was taken out does not count again"
        );
        meter.allow(None);
        assert!(meter.refused().is_none() && meter.admit_free().is_err());
    }

    #[tokio::test]
    async fn so_many_calls_run_at_once_and_no_more() {
        let meter = Meter::default();
        meter.allow(Some(budget(99, None)));
        let mut running = Vec::new();
        for _ in 0..AT_ONCE {
            running.push(meter.admit(1).await.unwrap());
        }
        let mut next = std::pin::pin!(meter.admit(1));
        assert!(futures_now(next.as_mut()).is_none());
        running.pop();
        assert!(next.await.is_ok());
    }

    fn futures_now<O>(future: Pin<&mut impl Future<Output = O>>) -> Option<O> {
        match future.poll(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }
}
