//! What is open, what waits for an answer, and who is told what. Pure: events in, lines out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::take;

use agent_client_protocol_schema::v1::{
    PromptResponse, RequestId, SessionId, SessionNotification, SessionUpdate, StopReason,
    ToolCallId, Usage as ReportedUsage,
};
use serde_json::Value;
use teamd_shared::message::{IdleReason, Message};
use teamd_shared::name::Name;
use teamd_shared::transcript::{Block, Cut, Entry, Event, Usage};
use uuid::Uuid;

use super::errors::failed;
use super::frames;
use super::updates::{UpdateReader, thought};
use crate::model::{Activity, ConversationPart, NewEntries, parts};

/// The sessions of one client, and their prompts.
#[derive(Debug)]
pub(super) struct Sessions {
    name: Name,
    reader: UpdateReader,
    /// The conversation that all sessions show.
    conversation: u32,
    open: BTreeMap<String, OpenSession>,
    prompts: Vec<SentPrompt>,
    /// The messages of prompts that were cancelled before the agent has read them.
    cancelled: Vec<Uuid>,
    interruption: Interruption,
    /// The calls in progress, with the sessions that know them.
    calls: HashMap<ToolCallId, Vec<SessionId>>,
    /// Why the last answer ended.
    stop: StopReason,
    /// Whether the last answer was without a call: no other one follows it.
    is_last_answer: bool,
    lines: Vec<String>,
}

/// A session.
#[derive(Debug)]
struct OpenSession {
    /// What it is told with its first prompt.
    note: Option<String>,
}

/// A prompt that is not answered yet.
#[derive(Debug)]
struct SentPrompt {
    id: RequestId,
    session: SessionId,
    /// The message that it is in the inbox.
    message: Uuid,
    stage: PromptStage,
    /// Whether the piece of work began with it.
    began_work: bool,
    /// Whether it is answered as cancelled when its work has ended.
    is_cancelled: bool,
    /// What its piece of work has cost since it was read.
    usage: Usage,
}

/// How far a prompt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PromptStage {
    /// It is in the inbox.
    Sent,
    /// The agent has consumed it.
    Read,
    /// The model has answered since.
    Seen,
}

/// Whether the piece of work that goes on now is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interruption {
    /// It is not.
    None,
    /// The daemon is to be asked.
    Due,
    /// It was asked.
    Asked,
    /// It could not be asked.
    Failed,
}

impl SentPrompt {
    fn is_of(&self, session: &SessionId) -> bool {
        self.session == *session
    }
}

impl Sessions {
    /// Begins without a session. `reader` is a reader of the conversation with this number.
    pub(super) fn new(name: &Name, reader: UpdateReader, conversation: u32) -> Self {
        Self {
            name: name.clone(),
            reader,
            conversation,
            open: BTreeMap::new(),
            prompts: Vec::new(),
            cancelled: Vec::new(),
            interruption: Interruption::None,
            calls: HashMap::new(),
            stop: StopReason::EndTurn,
            is_last_answer: false,
            lines: Vec::new(),
        }
    }

    /// Opens a session; `note` is told with its first prompt.
    pub(super) fn open(&mut self, id: &SessionId, note: Option<String>) {
        self.open.insert(id.to_string(), OpenSession { note });
    }

    /// Tells whether a session is open.
    pub(super) fn is_open(&self, id: &SessionId) -> bool {
        self.open.contains_key(&*id.0)
    }

    /// Returns the number of the conversation.
    pub(super) fn conversation(&self) -> u32 {
        self.conversation
    }

    /// Tells whether a prompt is not answered yet.
    pub(super) fn has_prompts(&self) -> bool {
        !self.prompts.is_empty()
    }

    /// Returns the sessions that have a prompt which is not answered yet, each once.
    pub(super) fn prompting(&self) -> Vec<SessionId> {
        let mut sessions = Vec::<SessionId>::new();
        for prompt in &self.prompts {
            if !sessions.contains(&prompt.session) {
                sessions.push(prompt.session.clone());
            }
        }
        sessions
    }

    /// Tells whether a session has a prompt that is not answered yet.
    pub(super) fn has_prompt_of(&self, session: &SessionId) -> bool {
        self.prompts.iter().any(|prompt| prompt.is_of(session))
    }

    /// Takes the lines that are to be written.
    pub(super) fn take_lines(&mut self) -> Vec<String> {
        take(&mut self.lines)
    }

    /// Adds a line that is to be written.
    pub(super) fn push(&mut self, line: String) {
        self.lines.push(line);
    }

    /// A prompt is in the inbox.
    pub(super) fn sent(&mut self, id: RequestId, session: SessionId, message: Uuid) {
        let note = self.open.get_mut(&*session.0);
        if let Some(note) = note.and_then(|session| session.note.take()) {
            self.tell(&session, &thought(&note));
        }
        self.prompts.push(SentPrompt {
            id,
            session,
            message,
            stage: PromptStage::Sent,
            began_work: false,
            is_cancelled: false,
            usage: Usage::default(),
        });
    }

    /// The client cancels what a session has asked for. Work that began with it is interrupted, and
    /// no other: of that, only the prompt ends.
    pub(super) fn cancel(&mut self, session: &SessionId) {
        for mut prompt in take(&mut self.prompts) {
            if !prompt.is_of(session) {
                self.prompts.push(prompt);
                continue;
            }
            if prompt.began_work {
                prompt.is_cancelled = true;
                self.prompts.push(prompt);
                self.interrupt();
                continue;
            }
            if prompt.stage == PromptStage::Sent {
                self.cancelled.push(prompt.message);
            }
            self.push(stopped(&prompt, StopReason::Cancelled));
        }
    }

    fn interrupt(&mut self) {
        if self.interruption == Interruption::None {
            self.interruption = Interruption::Due;
        }
    }

    /// Tells whether the work that goes on now is to be interrupted.
    pub(super) fn interrupt_is_due(&self) -> bool {
        self.interruption == Interruption::Due
    }

    /// The daemon is asked to interrupt it, which is done once.
    pub(super) fn interrupt_is_asked(&mut self) {
        self.interruption = Interruption::Asked;
    }

    /// The daemon could not be asked.
    pub(super) fn interrupt_failed(&mut self) {
        if self.interruption == Interruption::Asked {
            self.interruption = Interruption::Failed;
        }
    }

    /// Asks once more for what could not be asked: some time has passed.
    pub(super) fn try_again(&mut self) {
        if self.interruption == Interruption::Failed {
            self.interruption = Interruption::Due;
        }
    }

    /// Reads what is new in the conversation.
    pub(super) fn read(&mut self, new: &NewEntries) {
        for entry in &new.entries {
            self.entry(entry);
        }
        if let Some(update) = self.reader.live(new) {
            self.stream(&update);
        }
    }

    /// Ends what can no longer be answered, given what is to be expected of the agent while its
    /// conversation has nothing new.
    pub(super) fn rest(&mut self, activity: &Activity) {
        let name = &self.name;
        let why = match activity {
            Activity::Working | Activity::MailWaits | Activity::PlansWait(_) => return,
            Activity::Ended => format!(
                "{name} has ended: `teamctl spawn {name} --resume` continues its conversation"
            ),
            Activity::Quiet => format!(
                "{name} has passed the message over: `teamctl transcript {name}` shows its last work"
            ),
        };
        self.fail(&why);
    }

    /// Answers each prompt with an error.
    pub(super) fn fail(&mut self, why: &str) {
        for prompt in take(&mut self.prompts) {
            self.push(frames::refusal(&prompt.id, &failed(why)));
        }
    }

    /// Tells a session something beside the conversation.
    pub(super) fn note(&mut self, session: &SessionId, text: &str) {
        self.tell(session, &thought(text));
    }

    /// Tells a session what the conversation was until now, from its entries of any age.
    pub(super) fn replay(&mut self, session: &SessionId, reader: UpdateReader, entries: &[Entry]) {
        let mut reader = reader;
        let own = of_conversation(entries, self.conversation).iter();
        for entry in own.filter(|entry| entry.call.is_none()) {
            for update in reader.entry(&entry.event) {
                self.tell(session, &update);
                if let SessionUpdate::ToolCallUpdate(ended) = &update
                    && let Some(known) = self.calls.get_mut(&ended.tool_call_id)
                {
                    known.retain(|other| other != session);
                }
                if let SessionUpdate::ToolCall(call) = update {
                    let known = self.calls.entry(call.tool_call_id).or_default();
                    known.push(session.clone());
                }
            }
            for update in reader.said(&entry.event) {
                self.tell(session, &update);
            }
        }
    }

    fn entry(&mut self, entry: &Entry) {
        let event = &entry.event;
        if let Event::Incarnation { conversation, .. } = event
            && *conversation != self.conversation
        {
            self.conversation = *conversation;
            self.fail(&format!(
                "{} has begun another conversation: open a new session",
                self.name
            ));
            self.open.clear();
        }
        if let Some(usage) = usage_of(event) {
            let read = self
                .prompts
                .iter_mut()
                .filter(|it| it.stage != PromptStage::Sent);
            read.for_each(|prompt| prompt.usage += usage);
        }
        // A subagent answers its member alone.
        if entry.call.is_some() {
            return;
        }
        if let Event::Messages { messages } = event {
            self.messages(messages);
        }
        if let Event::Answer { cut, content, .. } = event {
            let mut blocks = content.iter();
            self.is_last_answer = !blocks.any(|block| matches!(block, Block::ToolUse { .. }));
            self.stop = match cut {
                None => StopReason::EndTurn,
                Some(Cut::Length) => StopReason::MaxTokens,
                Some(Cut::Refusal) => StopReason::Refusal,
            };
            let read = self.prompts.iter_mut();
            let read = read.filter(|prompt| prompt.stage == PromptStage::Read);
            read.for_each(|prompt| prompt.stage = PromptStage::Seen);
        }
        for update in self.reader.entry(event) {
            self.stream(&update);
        }
        if let Event::Idle {
            idle_reason,
            goes_on,
            ..
        } = event
        {
            self.idle(event, *idle_reason, *goes_on);
        }
        if let Event::Left { .. } = event {
            self.left();
        }
    }

    /// The agent has consumed messages: those of prompts, and others.
    fn messages(&mut self, messages: &[Value]) {
        let is_begin = !self.reader.in_turn();
        let mut others = Vec::new();
        let mut sessions = BTreeSet::new();
        let mut is_cancelled = false;
        for value in messages {
            let id = Message::from_json(value.clone()).ok().and_then(|it| it.id);
            let own = self
                .prompts
                .iter_mut()
                .find(|prompt| prompt.stage == PromptStage::Sent && Some(prompt.message) == id);
            if let Some(prompt) = own {
                prompt.stage = PromptStage::Read;
                prompt.began_work = is_begin;
                sessions.insert(prompt.session.to_string());
                self.reader.prompted();
                continue;
            }
            others.push(value.clone());
            if let Some(at) = self.cancelled.iter().position(|own| Some(*own) == id) {
                self.cancelled.swap_remove(at);
                is_cancelled = true;
            }
        }
        // Cancelling ends no work that others have asked for as well.
        if is_begin && is_cancelled && messages.len() == 1 {
            self.interrupt();
        }
        if !others.is_empty() || sessions.len() > 1 {
            let read = self.prompts.iter_mut();
            let read = read.filter(|prompt| prompt.stage == PromptStage::Read);
            read.for_each(|prompt| prompt.began_work = false);
        }
        let others = Event::Messages { messages: others };
        for update in self.reader.said(&others) {
            self.stream(&update);
        }
    }

    /// A piece of work ended.
    fn idle(&mut self, event: &Event, reason: IdleReason, goes_on: bool) {
        self.interruption = Interruption::None;
        for prompt in take(&mut self.prompts) {
            let is_over = match prompt.stage {
                PromptStage::Sent => false,
                // The next piece of work is about it, if there is one.
                PromptStage::Read => !goes_on,
                PromptStage::Seen => true,
            };
            if !is_over {
                if prompt.is_cancelled {
                    self.interrupt();
                }
                self.prompts.push(prompt);
                continue;
            }
            let stop = if prompt.is_cancelled {
                Some(StopReason::Cancelled)
            } else {
                self.stop_for(reason)
            };
            let line = match stop {
                Some(stop) => stopped(&prompt, stop),
                None => frames::refusal(&prompt.id, &failed(&self.failure(event))),
            };
            self.push(line);
        }
        self.stop = StopReason::EndTurn;
    }

    /// The incarnation has ended by itself. Its work may have been done.
    fn left(&mut self) {
        self.interruption = Interruption::None;
        if !self.is_last_answer {
            return;
        }
        for prompt in take(&mut self.prompts) {
            if prompt.stage == PromptStage::Seen {
                self.push(stopped(&prompt, self.stop));
            } else {
                self.prompts.push(prompt);
            }
        }
    }

    /// Returns how a piece of work ended, in the words of the protocol; none if it has none for that.
    fn stop_for(&self, reason: IdleReason) -> Option<StopReason> {
        match reason {
            IdleReason::Available => Some(self.stop),
            IdleReason::Interrupted => Some(StopReason::Cancelled),
            IdleReason::MaxTurns => Some(StopReason::MaxTurnRequests),
            IdleReason::MaxTokens => Some(StopReason::MaxTokens),
            IdleReason::MaxCost | IdleReason::Failed => None,
        }
    }

    /// Explains it as other views do.
    fn failure(&self, event: &Event) -> String {
        let parts = parts(event, false);
        let lines: Vec<String> = parts.iter().map(ConversationPart::line).collect();
        format!("{}: {}", self.name, lines.join(" "))
    }

    /// Tells every session whose prompt the agent works on.
    fn stream(&mut self, update: &SessionUpdate) {
        let mut sessions = Vec::<SessionId>::new();
        for prompt in &self.prompts {
            if prompt.stage != PromptStage::Sent && !sessions.contains(&prompt.session) {
                sessions.push(prompt.session.clone());
            }
        }
        match update {
            SessionUpdate::ToolCall(call) => {
                let id = call.tool_call_id.clone();
                self.calls.insert(id, sessions.clone());
            }
            // Each call ends wherever it was shown.
            SessionUpdate::ToolCallUpdate(call) => {
                sessions = self.calls.remove(&call.tool_call_id).unwrap_or_default();
            }
            _ => {}
        }
        for session in &sessions {
            self.tell(session, update);
        }
    }

    fn tell(&mut self, session: &SessionId, update: &SessionUpdate) {
        let told = SessionNotification::new(session.clone(), update.clone());
        self.push(frames::notification("session/update", &told));
    }
}

/// Returns the entries of a conversation, from its beginning.
fn of_conversation(entries: &[Entry], number: u32) -> &[Entry] {
    let begins = |entry: &Entry| {
        matches!(entry.event, Event::Incarnation { incarnation, conversation, .. }
            if conversation == number && incarnation == conversation)
    };
    let start = entries.iter().rposition(begins).unwrap_or_default();
    &entries[start..]
}

/// Returns the answer to a prompt whose work has ended.
fn stopped(prompt: &SentPrompt, stop: StopReason) -> String {
    let answer = PromptResponse::new(stop).usage(reported(prompt.usage));
    frames::response(&prompt.id, &answer)
}

fn usage_of(event: &Event) -> Option<Usage> {
    match event {
        Event::Answer { usage, .. }
        | Event::Charged { usage, .. }
        | Event::Compacted { usage, .. } => Some(*usage),
        _ => None,
    }
}

fn reported(usage: Usage) -> Option<ReportedUsage> {
    if usage.is_nothing() {
        return None;
    }
    let total = usage.input().saturating_add(usage.output_tokens);
    let reported = ReportedUsage::new(total, usage.input_tokens, usage.output_tokens)
        .cached_read_tokens(usage.cache_read_input_tokens)
        .cached_write_tokens(usage.cache_creation_input_tokens);
    Some(reported)
}

#[cfg(test)]
mod tests;
