//! What is open, what waits for an answer, and who is told what. Pure: events in, lines out.

use std::collections::{BTreeMap, HashMap};
use std::mem::take;

use agent_client_protocol_schema::v1::{
    Error, ErrorCode, PromptResponse, RequestId, SessionId, SessionNotification, SessionUpdate,
    StopReason, ToolCallId, Usage as ReportedUsage,
};
use serde_json::Value;
use teamd_shared::message::{IdleReason, Message};
use teamd_shared::name::Name;
use teamd_shared::transcript::{Beginning, Cut, Entry, Event, Usage};
use uuid::Uuid;

use super::frames;
use super::updates::{UpdateReader, thought};
use crate::model::{Activity, NewEntries};

/// The sessions of one client, and their prompts.
#[derive(Debug)]
pub(super) struct Sessions {
    name: Name,
    reader: UpdateReader,
    /// The conversation that all sessions show.
    conversation: u32,
    open: BTreeMap<String, Session>,
    prompts: Vec<Prompt>,
    /// The calls in progress, with the sessions that know them.
    calls: HashMap<ToolCallId, Vec<SessionId>>,
    /// Why the last answer ended.
    stop: StopReason,
    lines: Vec<String>,
}

/// A session.
#[derive(Debug)]
struct Session {
    /// What it is told with its first prompt.
    note: Option<String>,
}

/// A prompt that is not answered yet.
#[derive(Debug)]
struct Prompt {
    id: RequestId,
    session: SessionId,
    /// The message that it is in the inbox.
    message: Uuid,
    stage: Stage,
    is_cancelled: bool,
    /// Whether the daemon was asked to interrupt its work.
    is_interrupted: bool,
    /// What its piece of work has cost since it was read.
    usage: Usage,
}

/// How far a prompt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is in the inbox.
    Sent,
    /// The agent has consumed it.
    Read,
    /// The model has answered since.
    Seen,
}

impl Prompt {
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
            calls: HashMap::new(),
            stop: StopReason::EndTurn,
            lines: Vec::new(),
        }
    }

    /// Opens a session; `note` is told with its first prompt.
    pub(super) fn open(&mut self, id: &SessionId, note: Option<String>) {
        self.open.insert(id.to_string(), Session { note });
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

    /// Returns the session of the oldest prompt that is not answered yet.
    pub(super) fn prompting(&self) -> Option<&SessionId> {
        self.prompts.first().map(|prompt| &prompt.session)
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
        self.prompts.push(Prompt {
            id,
            session,
            message,
            stage: Stage::Sent,
            is_cancelled: false,
            is_interrupted: false,
            usage: Usage::default(),
        });
    }

    /// The client cancels what a session has asked for.
    pub(super) fn cancel(&mut self, session: &SessionId) {
        let own = self.prompts.iter_mut().filter(|it| it.is_of(session));
        own.for_each(|prompt| prompt.is_cancelled = true);
    }

    /// Tells whether the work that goes on now is to be interrupted, which is asked for once.
    pub(super) fn interrupt_is_due(&mut self) -> bool {
        let mut is_due = false;
        for prompt in &mut self.prompts {
            if prompt.is_cancelled && prompt.stage != Stage::Sent && !prompt.is_interrupted {
                prompt.is_interrupted = true;
                is_due = true;
            }
        }
        is_due
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
        for entry in of_conversation(entries, self.conversation) {
            for update in reader.entry(&entry.event) {
                self.tell(session, &update);
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
            let read = self.prompts.iter_mut().filter(|it| it.stage != Stage::Sent);
            read.for_each(|prompt| prompt.usage += usage);
        }
        if let Event::Messages { messages } = event {
            self.messages(messages);
        }
        if let Event::Answer { cut, .. } = event {
            self.stop = match cut {
                None => StopReason::EndTurn,
                Some(Cut::Length) => StopReason::MaxTokens,
                Some(Cut::Refusal) => StopReason::Refusal,
            };
            let read = self.prompts.iter_mut();
            let read = read.filter(|prompt| prompt.stage == Stage::Read);
            read.for_each(|prompt| prompt.stage = Stage::Seen);
        }
        for update in self.reader.entry(event) {
            self.stream(&update);
        }
        if let Event::Idle {
            idle_reason,
            content,
            goes_on,
            ..
        } = event
        {
            self.idle(*idle_reason, content, *goes_on);
        }
    }

    /// The agent has consumed messages: those of prompts, and others.
    fn messages(&mut self, messages: &[Value]) {
        let mut others = Vec::new();
        for value in messages {
            let id = Message::from_json(value.clone()).ok().and_then(|it| it.id);
            let own = self
                .prompts
                .iter_mut()
                .find(|prompt| prompt.stage == Stage::Sent && Some(prompt.message) == id);
            match own {
                Some(prompt) => {
                    prompt.stage = Stage::Read;
                    self.reader.prompted();
                }
                None => others.push(value.clone()),
            }
        }
        let others = Event::Messages { messages: others };
        for update in self.reader.said(&others) {
            self.stream(&update);
        }
    }

    /// A piece of work ended.
    fn idle(&mut self, reason: IdleReason, content: &str, goes_on: bool) {
        for mut prompt in take(&mut self.prompts) {
            let is_over = match prompt.stage {
                Stage::Sent => false,
                // The next piece of work is about it, if there is one.
                Stage::Read => !goes_on,
                Stage::Seen => true,
            };
            if !is_over {
                prompt.is_interrupted = false;
                self.prompts.push(prompt);
                continue;
            }
            let stop = if prompt.is_cancelled {
                Ok(StopReason::Cancelled)
            } else {
                self.stop_for(reason, content)
            };
            let line = match stop {
                Ok(stop) => {
                    let answer = PromptResponse::new(stop).usage(reported(prompt.usage));
                    frames::response(&prompt.id, &answer)
                }
                Err(why) => frames::refusal(&prompt.id, &failed(&why)),
            };
            self.push(line);
        }
        self.stop = StopReason::EndTurn;
    }

    /// Returns how a piece of work ended, in the words of the protocol.
    ///
    /// # Errors
    /// Why it failed.
    fn stop_for(&self, reason: IdleReason, content: &str) -> Result<StopReason, String> {
        match reason {
            IdleReason::Available => Ok(self.stop),
            IdleReason::Interrupted => Ok(StopReason::Cancelled),
            IdleReason::MaxTurns => Ok(StopReason::MaxTurnRequests),
            IdleReason::MaxTokens => Ok(StopReason::MaxTokens),
            IdleReason::MaxCost => Err("the work was ended: it cost too much".to_owned()),
            IdleReason::Failed => Err(format!("{} has failed: {content}", self.name)),
        }
    }

    /// Tells every session whose prompt the agent works on.
    fn stream(&mut self, update: &SessionUpdate) {
        let mut sessions = Vec::<SessionId>::new();
        for prompt in &self.prompts {
            if prompt.stage != Stage::Sent && !sessions.contains(&prompt.session) {
                sessions.push(prompt.session.clone());
            }
        }
        match update {
            SessionUpdate::ToolCall(call) => {
                let id = call.tool_call_id.clone();
                self.calls.insert(id, sessions.clone());
            }
            SessionUpdate::ToolCallUpdate(call) => {
                let known = self.calls.remove(&call.tool_call_id).unwrap_or_default();
                sessions.retain(|session| known.contains(session));
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
        let Event::Incarnation {
            incarnation,
            conversation,
            ..
        } = entry.event
        else {
            return false;
        };
        let beginning = Beginning {
            incarnation,
            conversation,
        };
        beginning.conversation == number && beginning.is_fresh()
    };
    let start = entries.iter().rposition(begins).unwrap_or_default();
    &entries[start..]
}

/// Makes the error of a prompt that could not be answered.
pub(super) fn failed(why: &str) -> Error {
    Error::new(ErrorCode::InternalError.into(), why)
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
mod tests {
    use std::path::Path;

    use serde_json::json;
    use teamd_shared::id::{Ids, RandomIds};
    use teamd_shared::position::Position;

    use super::*;

    fn sessions() -> Sessions {
        let name = Name::new("alice").unwrap();
        let reader = UpdateReader::new(&name, Path::new("/w"));
        let mut sessions = Sessions::new(&name, reader, 1);
        sessions.open(&SessionId::new("s"), None);
        sessions
    }

    fn send(sessions: &mut Sessions, id: i64) -> Uuid {
        let message = RandomIds.message();
        sessions.sent(RequestId::Number(id), SessionId::new("s"), message);
        message
    }

    fn read(sessions: &mut Sessions, event: Value) {
        let mut entry = json!({"at": 1.0, "inbox": Position::START});
        let fields = entry.as_object_mut().unwrap();
        fields.extend(event.as_object().unwrap().clone());
        let entry = serde_json::from_value(entry).unwrap();
        sessions.read(&NewEntries {
            live: String::new(),
            entries: vec![entry],
            places: Vec::new(),
            lines: Vec::new(),
        });
    }

    fn consume(sessions: &mut Sessions, message: Uuid) {
        let mail = json!({"type": "message", "from": "user", "id": message, "content": "x"});
        read(sessions, json!({"entry": "messages", "messages": [mail]}));
    }

    fn answer(sessions: &mut Sessions) {
        let usage = json!({"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 2,
            "cache_creation_input_tokens": 0});
        read(
            sessions,
            json!({"entry": "answer", "usage": usage, "content": []}),
        );
    }

    fn idle(sessions: &mut Sessions, reason: &str, goes_on: bool) {
        let id = RandomIds.message();
        read(
            sessions,
            json!({"entry": "idle", "idle_reason": reason, "content": "why", "message_id": id,
                "goes_on": goes_on}),
        );
    }

    /// The answers that are to be written: the id, and how it ended.
    fn answers(sessions: &mut Sessions) -> Vec<String> {
        let lines = sessions.take_lines();
        let frames = lines.iter().map(|line| {
            let frame: Value = serde_json::from_str(line).unwrap();
            let how = match &frame["error"]["message"] {
                Value::String(why) => why.clone(),
                _ => frame["result"]["stopReason"].to_string(),
            };
            format!("{} {how}", frame["id"])
        });
        frames.collect()
    }

    #[test]
    fn a_prompt_ends_with_the_work_that_has_consumed_it() {
        let mut sessions = sessions();
        let first = send(&mut sessions, 1);
        // The end of what went on before.
        idle(&mut sessions, "available", false);
        assert!(answers(&mut sessions).is_empty());
        consume(&mut sessions, first);
        answer(&mut sessions);
        let second = send(&mut sessions, 2);
        idle(&mut sessions, "available", false);
        assert_eq!(answers(&mut sessions), ["1 \"end_turn\""]);
        consume(&mut sessions, second);
        idle(&mut sessions, "failed", false);
        assert_eq!(answers(&mut sessions), ["2 alice has failed: why"]);
        assert!(!sessions.has_prompts());
    }

    #[test]
    fn what_no_model_has_seen_goes_on_with_the_next_work() {
        let mut sessions = sessions();
        let first = send(&mut sessions, 1);
        consume(&mut sessions, first);
        answer(&mut sessions);
        let second = send(&mut sessions, 2);
        consume(&mut sessions, second);
        sessions.cancel(&SessionId::new("s"));
        assert!(sessions.interrupt_is_due());
        assert!(!sessions.interrupt_is_due(), "it is asked for once");
        idle(&mut sessions, "interrupted", true);
        assert_eq!(answers(&mut sessions), ["1 \"cancelled\""]);
        assert!(sessions.interrupt_is_due(), "the next work begins with it");
        answer(&mut sessions);
        idle(&mut sessions, "available", false);
        assert_eq!(answers(&mut sessions), ["2 \"cancelled\""]);
    }

    #[test]
    fn a_cancelled_prompt_that_is_not_read_interrupts_nothing() {
        let mut sessions = sessions();
        let first = send(&mut sessions, 1);
        sessions.cancel(&SessionId::new("s"));
        assert!(!sessions.interrupt_is_due());
        consume(&mut sessions, first);
        assert!(sessions.interrupt_is_due());
    }

    #[test]
    fn an_end_says_what_its_work_has_cost_since_the_prompt_was_read() {
        let mut sessions = sessions();
        answer(&mut sessions);
        let first = send(&mut sessions, 1);
        answer(&mut sessions);
        consume(&mut sessions, first);
        answer(&mut sessions);
        answer(&mut sessions);
        idle(&mut sessions, "max_turns", false);
        let line = sessions.take_lines().pop().unwrap();
        let frame: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(frame["result"]["stopReason"], "max_turn_requests");
        let usage = &frame["result"]["usage"];
        assert_eq!(
            (&usage["inputTokens"], &usage["outputTokens"]),
            (&json!(6), &json!(10))
        );
        assert_eq!(usage["totalTokens"], 20);
    }
}
