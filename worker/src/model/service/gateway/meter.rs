//! What the calls of a model cost, read from the answers as they pass on to an agent that does not report it (`protocol = "run"`).

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hyper::body::{Bytes, Frame};
use reqwest::Body;
use serde_json::Value;
use teamd_shared::model_spec::Provider;
use teamd_shared::transcript::Usage;

use crate::model::service::events::EventReader;
use crate::model::service::{anthropic, openai};

/// How much of an answer that comes in one piece is read, in bytes.
const MAX_WHOLE: usize = 4 << 20;

/// What an agent has spent since that was last asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter(Arc<Mutex<Usage>>);

impl Meter {
    /// Takes out what was spent.
    pub(crate) fn take(&self) -> Usage {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a body that counts what it says of its cost, once it has passed or is broken off.
    pub(super) fn read(&self, provider: Provider, is_stream: bool, body: Body) -> Body {
        let text = if is_stream { Text::Events(EventReader::default()) } else { Text::Whole(Vec::new()) };
        let count = Count { provider, text, usage: Usage::default(), meter: self.clone() };
        Body::wrap(Metered { body, count })
    }
}

/// A body that is read as it passes.
struct Metered {
    body: Body,
    count: Count,
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
        polled
    }
}

/// How an answer comes.
enum Text {
    Events(EventReader),
    Whole(Vec<u8>),
    /// Longer than any real one.
    TooLong,
}

/// The count of one answer.
struct Count {
    provider: Provider,
    text: Text,
    usage: Usage,
    meter: Meter,
}

impl Count {
    fn push(&mut self, bytes: &[u8]) {
        match &mut self.text {
            Text::Events(reader) => match reader.push(bytes) {
                Ok(events) => events.iter().for_each(|event| self.said(event.data.as_bytes())),
                Err(_) => self.text = Text::TooLong,
            },
            Text::Whole(text) if text.len() + bytes.len() <= MAX_WHOLE => text.extend_from_slice(bytes),
            Text::Whole(_) => self.text = Text::TooLong,
            Text::TooLong => {}
        }
    }

    /// Takes in an answer, or a part of one. Each service says the usage in one of three places, and the last one holds.
    fn said(&mut self, json: &[u8]) {
        let Ok(value) = serde_json::from_slice::<Value>(json) else { return };
        for usage in [&value["usage"], &value["message"]["usage"], &value["response"]["usage"]] {
            match self.provider {
                Provider::Anthropic => anthropic::count(usage, &mut self.usage),
                Provider::OpenAi | Provider::Script => openai::count(usage, &mut self.usage),
            }
        }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.text, Text::TooLong) {
            Text::Events(reader) => {
                reader.finish().into_iter().for_each(|event| self.said(event.data.as_bytes()))
            }
            Text::Whole(text) => self.said(&text),
            Text::TooLong => {
                tracing::warn!("what an answer cost is not known: it is longer than any real one");
            }
        }
        *self.meter.0.lock().unwrap_or_else(PoisonError::into_inner) += self.usage;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(provider: Provider, is_stream: bool, chunks: &[&str]) -> [u64; 3] {
        let meter = Meter::default();
        let text = if is_stream { Text::Events(EventReader::default()) } else { Text::Whole(Vec::new()) };
        let mut count = Count { provider, text, usage: Usage::default(), meter: meter.clone() };
        chunks.iter().for_each(|chunk| count.push(chunk.as_bytes()));
        drop(count);
        let usage = meter.take();
        assert!(meter.take().is_nothing());
        [usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens]
    }

    #[test]
    fn each_kind_of_answer_says_what_it_cost() {
        let stream = [
            "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7,\"cache_read_input_tokens\":5,",
            "\"output_tokens\":1}}}\n\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\n",
        ];
        assert_eq!(counted(Provider::Anthropic, true, &stream), [7, 5, 9]);
        assert_eq!(counted(Provider::Anthropic, true, &stream[..1]), [0, 0, 0], "it was broken off");
        let whole = [r#"{"usage":{"input_tokens":3,"#, r#""output_tokens":4}}"#];
        assert_eq!(counted(Provider::Anthropic, false, &whole), [3, 0, 4]);
        let chat = [
            "data: {\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":6}}}\n\ndata: [DONE]\n\n",
        ];
        assert_eq!(counted(Provider::OpenAi, true, &chat), [2, 6, 2]);
        let responses = [
            "event: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":8,\"output_tokens\":2,\"input_tokens_details\":{\"cached_tokens\":6}}}}\n\n",
        ];
        assert_eq!(counted(Provider::OpenAi, true, &responses), [2, 6, 2]);
        assert_eq!(counted(Provider::OpenAi, false, &["no JSON"]), [0, 0, 0]);
        let long = "x".repeat(MAX_WHOLE + 1);
        assert_eq!(counted(Provider::OpenAi, false, &[&long, &whole.concat()]), [0, 0, 0]);
    }
}
