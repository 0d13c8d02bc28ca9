//! What the transcript holds for the agent, each message once.

use uuid::{Builder, Uuid};

/// How much of the end of earlier work is kept for an agent whose session is gone, in bytes.
const MAX_HISTORY: usize = 8 << 10;

/// A message to the agent.
#[derive(Debug, Clone)]
pub struct AgentMessage {
    /// Follows from the transcript.
    pub id: Uuid,
    /// The text.
    pub text: String,
    /// Whether it means nothing any longer when the work has ended.
    pub(in super::super) is_of_work: bool,
}

/// The messages of a conversation.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// The incarnation in which the conversation began: it names the session.
    conversation: u32,
    /// The messages of this piece of work, behind those of earlier work that the agent may not have
    /// got; how many those are.
    list: Vec<AgentMessage>,
    earlier: usize,
    /// How many messages there were, so that each has an id of its own.
    count: u64,
    /// The end of what was sent, and answered, in earlier pieces of work.
    history: String,
    /// Whether anything was answered at all.
    pub(super) has_answered: bool,
}

impl Messages {
    /// Begins a conversation.
    pub(super) fn begin(&mut self, conversation: u32, prompt: Option<&str>) {
        *self = Self {
            conversation,
            ..Self::default()
        };
        if let Some(prompt) = prompt {
            self.push(prompt.to_owned());
        }
    }

    /// Adds a message.
    pub(super) fn push(&mut self, text: String) {
        self.add(text, false);
    }

    /// Adds a message that means nothing any longer when the work has ended.
    pub(super) fn push_of_work(&mut self, text: String) {
        self.add(text, true);
    }

    fn add(&mut self, text: String, is_of_work: bool) {
        self.count += 1;
        let id = self.id("line", self.count);
        self.list.push(AgentMessage {
            id,
            text,
            is_of_work,
        });
    }

    /// Ends a piece of work; `answer`: its answer, if it has ended by itself. Only then the session
    /// is known to hold all messages.
    pub(super) fn end_work(&mut self, answer: Option<&str>) {
        if let Some(answer) = answer {
            self.remember(answer);
            self.list.clear();
        }
        self.list.retain(|message| !message.is_of_work);
        self.earlier = self.list.len();
    }

    /// Adds the messages and their answer to the history.
    fn remember(&mut self, answer: &str) {
        for message in &self.list {
            self.history
                .push_str(&format!("\n\n[told] {}", message.text));
        }
        self.history.push_str(&format!("\n\n[answered] {answer}"));
        let mut start = self.history.len().saturating_sub(MAX_HISTORY);
        while !self.history.is_char_boundary(start) {
            start += 1;
        }
        self.history.drain(..start);
    }

    pub(super) fn all(&self) -> &[AgentMessage] {
        &self.list
    }

    pub(super) fn of_this_work(&self) -> &[AgentMessage] {
        &self.list[self.earlier..]
    }

    pub(super) fn history(&self) -> &str {
        &self.history
    }

    /// Returns the id of the session.
    pub(super) fn session_id(&self) -> Uuid {
        self.id("session", 0)
    }

    /// Returns an id that is always the same for the same thing of the same conversation.
    fn id(&self, what: &str, number: u64) -> Uuid {
        let of = format!("{what} {number} of {}", self.conversation);
        // Two hashes of 64 bits: within one state directory that is enough.
        let high = fnv_1a(0xcbf2_9ce4_8422_2325, &of);
        let low = fnv_1a(0x6c62_272e_07bb_0142, &of);
        Builder::from_random_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
            .into_uuid()
    }
}

/// Returns the FNV-1a hash of a text.
fn fnv_1a(seed: u64, text: &str) -> u64 {
    text.bytes().fold(seed, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
