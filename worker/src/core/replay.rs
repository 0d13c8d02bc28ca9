//! Where a conversation stands, pure: the fold of its transcript when an incarnation begins.
//!
//! The answer of the model is in the transcript before its first call runs, and each result before the next call
//! begins. So of the calls without a result only the first can have begun when the earlier incarnation ended. It is not
//! run again: what it did is not known. But what sends a message is repeated under the ids that the answer holds (and
//! what the daemon takes for the same a second time, too), and then the calls behind it, which never began, simply follow.

use std::collections::VecDeque;

use serde_json::Value;
use teamd_shared::id::RequestId;
use teamd_shared::message::{IdleReason, Message};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::transcript::{Block, Cut, Entry, Event, Usage, text_of};
use uuid::Uuid;

use crate::core::state::At;
use crate::tools::{AfterCrash, Caller};

/// A call that the model asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolUse {
    /// Its id, unique in the transcript.
    pub(crate) id: String,
    /// The tool.
    pub(crate) name: String,
    /// Its input.
    pub(crate) input: Value,
    /// The id of the message that it sends, if it sends one.
    pub(crate) message_id: Option<Uuid>,
    /// The id of the request that it asks, if it asks one.
    pub(crate) request_id: Option<RequestId>,
    /// Whether an earlier incarnation may have begun it.
    pub(crate) repeated: bool,
}

/// Where a conversation stands.
#[derive(Debug, PartialEq)]
pub(crate) struct ReplayedState {
    /// Whose conversation it is.
    owner: Name,
    /// Where the work stands.
    pub(crate) at: At,
    /// Model calls of that work.
    pub(crate) turns: u32,
    /// What that work has cost, as a budget counts it.
    pub(crate) spent: u64,
    /// What the conversation has cost.
    pub(crate) usage: Usage,
    /// The calls without a result, in order.
    pub(crate) calls: VecDeque<ToolUse>,
    /// The text of the last answer.
    pub(crate) text: String,
    /// How far the inbox is taken in.
    pub(crate) cursor: Position,
    /// The messages that were taken in.
    pub(crate) seen: Vec<Uuid>,
    /// The notice to the lead that follows from the last entry, and may be missing.
    pub(crate) pending_notices: Vec<PendingNotice>,
}

/// A notice to the lead.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PendingNotice {
    /// A piece of work ended.
    Idle {
        /// How.
        idle_reason: IdleReason,
        /// All of the final answer.
        content: String,
        /// The id of the notice.
        message_id: Uuid,
    },
    /// A line of the inbox is no message.
    Rejected {
        /// Where the line begins.
        offset: u64,
        /// Why it is no message.
        reason: String,
        /// The id of the notice.
        message_id: Uuid,
    },
}

impl PendingNotice {
    /// Returns the id of the notice.
    pub(crate) fn id(&self) -> Uuid {
        let (Self::Idle { message_id, .. } | Self::Rejected { message_id, .. }) = self;
        *message_id
    }
}

/// A result that a call gets because its incarnation ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Interrupted {
    /// The call.
    pub(crate) tool_use_id: String,
    /// What the model is told.
    pub(crate) content: &'static str,
}

impl ReplayedState {
    /// Folds the entries of a conversation.
    pub(crate) fn of(owner: &Name, entries: &[Entry]) -> Self {
        let mut replayed = Self {
            owner: owner.clone(),
            at: At::Idle,
            turns: 0,
            spent: 0,
            usage: Usage::default(),
            calls: VecDeque::new(),
            text: String::new(),
            cursor: entries.last().map_or(Position::START, |entry| entry.inbox),
            seen: Vec::new(),
            pending_notices: Vec::new(),
        };
        entries.iter().for_each(|entry| replayed.follow(&entry.event, &entry.pending_notices));
        replayed
    }

    /// Follows one more entry, with the notices that were pending when it was written.
    pub(crate) fn follow(&mut self, event: &Event, still_pending: &[Uuid]) {
        // An incarnation begins with the pending notices of the one before.
        if !matches!(event, Event::Incarnation { .. }) {
            self.pending_notices.retain(|notice| still_pending.contains(&notice.id()));
        }
        match event {
            Event::Incarnation { prompt, .. } if prompt.is_some() => self.work(),
            Event::Messages { messages } => self.messages(messages),
            Event::Answer { content, usage, cut, .. } => {
                self.record_usage(*usage);
                self.answer(content, *cut);
            }
            Event::Compacted { usage, .. } | Event::Charged { usage } => self.record_usage(*usage),
            Event::Result { tool_use_id, .. } => {
                self.calls.retain(|call| call.id != *tool_use_id);
                self.at = if self.calls.is_empty() { At::Turn { results: true } } else { At::Call };
            }
            Event::Idle { idle_reason, content, message_id } => {
                let (idle_reason, content, message_id) = (*idle_reason, content.clone(), *message_id);
                self.pending_notices.push(PendingNotice::Idle { idle_reason, content, message_id });
                self.at = At::Idle;
            }
            Event::Rejected { offset, reason, message_id } => {
                let (offset, reason, message_id) = (*offset, reason.clone(), *message_id);
                self.pending_notices.push(PendingNotice::Rejected { offset, reason, message_id });
            }
            // An incarnation that left by its own doing gave its work up; only a crash is gone on from.
            Event::Left { .. } => {
                self.calls.clear();
                self.at = At::Idle;
            }
            Event::Incarnation { .. } | Event::Restarted { .. } | Event::Asked { .. } => {}
        }
    }

    fn work(&mut self) {
        if self.at == At::Idle {
            self.at = At::Turn { results: false };
            (self.turns, self.spent) = (0, 0);
        }
    }

    fn messages(&mut self, messages: &[Value]) {
        for value in messages {
            let Ok(message) = Message::from_json(value.clone()) else { continue };
            self.seen.extend(message.id);
            if message.starts_a_turn(&self.owner) {
                self.work();
            }
        }
    }

    fn record_usage(&mut self, usage: Usage) {
        self.usage += usage;
        self.spent = self.spent.saturating_add(usage.billed());
    }

    fn answer(&mut self, content: &[Block], cut: Option<Cut>) {
        self.turns += 1;
        self.text = closing(content, cut);
        self.calls = calls_of(content);
        self.at = if self.calls.is_empty() { At::Done(IdleReason::Available) } else { At::Call };
    }

    /// Takes out the calls that are not run in this incarnation, and returns their results; marks the one that is made again.
    pub(crate) fn interrupted(&mut self) -> Vec<Interrupted> {
        let caller = Caller::of(&self.owner);
        let runs_again = |call: &ToolUse| caller.after_crash(&call.name) != AfterCrash::Interrupted;
        match self.calls.front_mut() {
            None => return Vec::new(),
            Some(first) if runs_again(first) => {
                first.repeated = true;
                return Vec::new();
            }
            Some(_) => {}
        }
        let mut results = Vec::new();
        let mut content = caller.may_have_run();
        for call in std::mem::take(&mut self.calls) {
            if runs_again(&call) {
                self.calls.push_back(call);
                continue;
            }
            results.push(Interrupted { tool_use_id: call.id, content });
            content = "not run: the worker was restarted before it";
        }
        if self.calls.is_empty() {
            self.at = At::Turn { results: true };
        }
        results
    }
}

/// What the lead is told of an answer that ends the work.
pub(crate) fn closing(content: &[Block], cut: Option<Cut>) -> String {
    let text = text_of(content);
    let why = match cut {
        Some(Cut::Length) => "[the answer ends here: it reached the limit of one answer]",
        Some(Cut::Refusal) => "[the model refused to go on]",
        None if text.trim().is_empty() => "[the model gave an empty answer]",
        None => return text,
    };
    if text.trim().is_empty() { why.to_owned() } else { format!("{text}\n{why}") }
}

/// Returns the calls of an answer, in order.
pub(crate) fn calls_of(content: &[Block]) -> VecDeque<ToolUse> {
    let call = |block: &Block| match block.clone() {
        Block::ToolUse { id, name, input, message_id, request_id } => {
            Some(ToolUse { id, name, input, message_id, request_id, repeated: false })
        }
        Block::Text { .. } | Block::Opaque { .. } => None,
    };
    content.iter().filter_map(call).collect()
}

#[cfg(test)]
mod tests;
