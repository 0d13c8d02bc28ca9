//! What the server does with a request.

use serde_json::{Value, json};

use super::Api;

/// What the model says.
#[derive(Debug, Clone)]
pub(crate) enum Say {
    Text(String),
    /// The input is text, since models write all sorts of it.
    Call {
        id: String,
        name: String,
        input: String,
    },
    /// A block of Anthropic's that only it understands.
    Opaque(Value),
}

/// How the answer comes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum How {
    Streamed,
    /// In one piece, though a stream was asked for.
    Whole,
    /// The stream ends halfway, as if that were all.
    Cut,
    /// The connection breaks halfway.
    Broken,
    /// Nothing more comes after half of it.
    Stalled,
    /// An error of this kind comes after half of it.
    Error(String),
}

/// What the server does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Answer {
        says: Vec<Say>,
        stop: Option<&'static str>,
        how: How,
    },
    Fail {
        status: u16,
        headers: Vec<(String, String)>,
        kind: String,
        message: String,
    },
    /// The connection is closed without a word.
    Reset,
    /// Bytes that are no answer, of a content type.
    Garbage { kind: &'static str, bytes: Vec<u8> },
}

impl Reply {
    /// An empty answer.
    pub(crate) fn empty() -> Self {
        Self::Answer {
            says: Vec::new(),
            stop: None,
            how: How::Streamed,
        }
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::empty().and_text(text)
    }

    pub(crate) fn call(tool: &str, input: Value) -> Self {
        Self::empty().and_call(tool, input)
    }

    pub(crate) fn and_text(self, text: &str) -> Self {
        self.and(Say::Text(text.to_owned()))
    }

    pub(crate) fn and_call(self, tool: &str, input: Value) -> Self {
        self.and_raw_call("", tool, &input.to_string())
    }

    /// A call with an id and an input as they are written here.
    pub(crate) fn and_raw_call(self, id: &str, tool: &str, input: &str) -> Self {
        self.and(Say::Call {
            id: id.to_owned(),
            name: tool.to_owned(),
            input: input.to_owned(),
        })
    }

    pub(crate) fn and_opaque(self, block: Value) -> Self {
        self.and(Say::Opaque(block))
    }

    fn and(mut self, say: Say) -> Self {
        if let Self::Answer { says, .. } = &mut self {
            says.push(say);
        }
        self
    }

    /// Names why the answer ended, in the words of the API.
    pub(crate) fn stopped(mut self, reason: &'static str) -> Self {
        if let Self::Answer { stop, .. } = &mut self {
            *stop = Some(reason);
        }
        self
    }

    fn how(mut self, new: How) -> Self {
        if let Self::Answer { how, .. } = &mut self {
            *how = new;
        }
        self
    }

    pub(crate) fn whole(self) -> Self {
        self.how(How::Whole)
    }

    pub(crate) fn cut(self) -> Self {
        self.how(How::Cut)
    }

    pub(crate) fn broken(self) -> Self {
        self.how(How::Broken)
    }

    pub(crate) fn stalled(self) -> Self {
        self.how(How::Stalled)
    }

    pub(crate) fn then_error(self, kind: &str) -> Self {
        self.how(How::Error(kind.to_owned()))
    }

    /// The refusal of a conversation that does not fit.
    pub(crate) fn too_long() -> Self {
        let message =
            "prompt is too long: 210000 tokens > 200000 maximum (context_length_exceeded)"
                .to_owned();
        Self::Fail {
            status: 400,
            headers: Vec::new(),
            kind: "invalid_request_error".to_owned(),
            message,
        }
    }

    /// An error, in the API's usual words for the status.
    pub(crate) fn fail(status: u16) -> Self {
        let (kind, message) = match status {
            401 => ("authentication_error", "invalid x-api-key"),
            402 => ("billing_error", "no credit"),
            403 => ("permission_error", "not yours"),
            404 => ("not_found_error", "model: fake"),
            413 => ("request_too_large", "Request exceeds the maximum size"),
            429 => ("rate_limit_error", "slow down"),
            529 => ("overloaded_error", "Overloaded"),
            400..500 => ("invalid_request_error", "bad request"),
            _ => ("api_error", "Internal server error"),
        };
        Self::Fail {
            status,
            headers: Vec::new(),
            kind: kind.to_owned(),
            message: message.to_owned(),
        }
    }

    pub(crate) fn saying(mut self, text: &str) -> Self {
        if let Self::Fail { message, .. } = &mut self {
            text.clone_into(message);
        }
        self
    }

    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Self {
        if let Self::Fail { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    pub(crate) fn reset() -> Self {
        Self::Reset
    }

    pub(crate) fn garbage(kind: &'static str, text: &str) -> Self {
        Self::Garbage {
            kind,
            bytes: text.as_bytes().to_vec(),
        }
    }

    /// The content of an answer of Anthropic's that is paused.
    pub(super) fn paused(&self) -> Option<Value> {
        let Self::Answer {
            says,
            stop: Some("pause_turn"),
            ..
        } = self
        else {
            return None;
        };
        Some(
            says.iter()
                .map(|say| match say {
                    Say::Text(text) => json!({"type": "text", "text": text}),
                    Say::Call { id, name, input } => {
                        json!({"type": "tool_use", "id": id, "name": name, "input": input})
                    }
                    Say::Opaque(block) => block.clone(),
                })
                .collect(),
        )
    }

    /// Whether it is billed.
    pub(super) fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::Answer {
                how: How::Streamed | How::Whole,
                ..
            }
        )
    }

    /// How long the answer is.
    pub(super) fn bytes(&self) -> usize {
        let Self::Answer { says, .. } = self else {
            return 0;
        };
        says.iter()
            .map(|say| match say {
                Say::Text(text) => text.len(),
                Say::Call { name, input, .. } => name.len() + input.len(),
                Say::Opaque(block) => block.to_string().len(),
            })
            .sum()
    }

    /// Gives every call without an id the next one.
    pub(super) fn name_calls(&mut self, api: Api, calls: &mut usize) {
        let Self::Answer { says, .. } = self else {
            return;
        };
        for say in says {
            if let Say::Call { id, .. } = say
                && id.is_empty()
            {
                *calls += 1;
                *id = match api {
                    Api::Anthropic => format!("toolu_{calls:08}"),
                    Api::OpenAi | Api::Responses | Api::Google => format!("call_{calls:08}"),
                };
            }
        }
    }

    /// The body of an error.
    pub(super) fn error(api: Api, kind: &str, message: &str) -> Value {
        match api {
            Api::Anthropic => json!({"type": "error", "error": {"type": kind, "message": message},
                "request_id": "req_1"}),
            Api::OpenAi | Api::Responses => {
                json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
            }
            Api::Google => json!({"error": {"code": 400, "message": message, "status": kind}}),
        }
    }
}
