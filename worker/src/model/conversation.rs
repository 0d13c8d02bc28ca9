//! The conversation as a model sees it, pure: the fold of the transcript.
//!
//! Whatever the transcript holds, the turns are valid for every service ([`super::prompt`]): sides alternate, each call
//! has exactly one result in the next turn, results stand before text, nothing is blank, and the last turn is the
//! user's. So a crash, a cut stream, a refused call or a compaction cannot make a conversation that a service refuses.

use std::collections::HashSet;

use serde_json::Value;
use teamd_shared::message::Message;
use teamd_shared::name::Name;
use teamd_shared::transcript::{Block, Event, Usage};

use super::delivery;
use super::prompt::{Part, Role, Turn, excerpt};

/// What a call is answered with that the transcript holds no result for.
const NO_RESULT: &str = "no result was recorded; the call may have run";

/// How much of each text is kept beside a summary that nothing else is kept with, in characters.
const MOST_KEPT: usize = 20_000;

/// What a model is told that has nothing to answer yet.
const NOTHING: &str = "(nothing)";

/// A conversation.
#[derive(Debug, Clone)]
pub(crate) struct Conversation {
    /// Whose.
    owner: Name,
    turns: Vec<Turn>,
    /// The calls of the last answer that have no result, in order.
    open: Vec<Open>,
    /// What is said when they all have.
    later: Vec<String>,
    /// What was delivered while the next call ran: as its result, if it has one.
    delivered: Vec<String>,
    /// What is kept word for word when the conversation is cut.
    pub(super) gist: Gist,
    /// What the service counted last, and what came since then.
    measure: Measure,
}

#[derive(Debug, Clone)]
struct Open {
    id: String,
    name: String,
}

/// What must not be lost in a summary.
#[derive(Debug, Clone, Default)]
pub(super) struct Gist {
    /// What the conversation began with.
    pub(super) task: Option<String>,
    /// The latest plan that was submitted, and what became of it.
    pub(super) plan: Option<(String, String)>,
    /// The shutdown that the model has been asked about and has not answered.
    pub(super) asked: Option<(String, String)>,
}

/// How long the conversation is.
#[derive(Debug, Clone, Copy, Default)]
struct Measure {
    /// Tokens up to the last answer.
    counted: u64,
    /// Bytes since then.
    since: u64,
}

/// Bytes for which a token is reckoned where no service has counted: fewer than most texts have.
pub(super) const BYTES_PER_TOKEN: u64 = 3;

impl Conversation {
    /// Begins the conversation of a member.
    pub(crate) fn new(owner: Name) -> Self {
        Self {
            owner,
            turns: Vec::new(),
            open: Vec::new(),
            later: Vec::new(),
            delivered: Vec::new(),
            gist: Gist::default(),
            measure: Measure::default(),
        }
    }

    /// Takes in the next entry.
    pub(crate) fn observe(&mut self, event: &Event) {
        match event {
            Event::Life { incarnation, conversation, prompt } => {
                if incarnation == conversation {
                    *self = Self::new(self.owner.clone());
                    self.gist.task.clone_from(prompt);
                    self.say(excerpt(prompt.as_deref().unwrap_or_default(), delivery::MOST));
                } else {
                    // A shutdown request belongs to one life.
                    self.gist.asked = None;
                }
            }
            Event::Messages { messages } => self.messages(messages),
            Event::Asked { request_id, reason } => {
                self.gist.asked = Some((request_id.to_string(), reason.clone()));
                self.say(delivery::ask(request_id.as_str(), reason));
            }
            Event::Answer { content, usage, .. } => self.answer(content, *usage),
            Event::Result { tool_use_id, content, is_error } => self.result(tool_use_id, content, *is_error),
            Event::Compacted { summary, kept, .. } => self.cut(summary, *kept),
            // The life gave its work up.
            Event::Left { .. } => self.answer_open_calls(),
            Event::Idle { .. } => self.gist.asked = None,
            Event::Rejected { .. } | Event::Restarted { .. } => {}
        }
    }

    /// Returns the turns so far; the last one is the user's.
    pub(crate) fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Makes the conversation one that can be sent: with an answer to every call, and a last turn of the user.
    pub(crate) fn settle(&mut self) {
        self.answer_open_calls();
        if self.turns.last().is_none_or(|turn| turn.role == Role::Assistant) {
            self.say(NOTHING.to_owned());
        }
    }

    /// Returns about how many tokens a prompt of it has; `fixed`: the bytes of what stands before the conversation.
    pub(super) fn tokens(&self, fixed: u64) -> u64 {
        let Measure { counted, since } = self.measure;
        // What a service has counted holds that already.
        let uncounted = if counted == 0 { since.saturating_add(fixed) } else { since };
        counted.saturating_add(uncounted / BYTES_PER_TOKEN)
    }

    fn messages(&mut self, messages: &[Value]) {
        let owner = self.owner.clone();
        let shown = messages.iter().filter_map(|value| {
            let message = Message::parse(value.to_string().as_bytes()).ok()?;
            delivery::show(&message, &owner)
        });
        let shown: Vec<String> = shown.collect();
        // What arrives while calls are open was taken in by the call that is next.
        if self.open.first().is_some_and(|next| next.name == "read_inbox") {
            self.delivered.extend(shown);
        } else {
            shown.into_iter().for_each(|text| self.say(text));
        }
    }

    /// The user says something, behind the results that are still to come.
    fn say(&mut self, text: String) {
        if text.trim().is_empty() {
            return;
        }
        self.measure.since += text.len() as u64;
        if self.open.is_empty() {
            self.push(Role::User, Part::Text(text));
        } else {
            self.later.push(text);
        }
    }

    fn answer(&mut self, content: &[Block], usage: Usage) {
        self.answer_open_calls();
        let known: HashSet<&str> = self.turns.iter().flat_map(call_ids).collect();
        let mut fresh = HashSet::new();
        let mut parts = Vec::new();
        let mut open = Vec::new();
        for block in content {
            match block {
                Block::Text { text } if text.trim().is_empty() => {}
                Block::Text { text } => parts.push(Part::Text(text.clone())),
                Block::Opaque { value } => parts.push(Part::Opaque(value.clone())),
                // An id that was there before cannot be answered a second time.
                Block::ToolUse { id, .. } if known.contains(id.as_str()) || !fresh.insert(id.as_str()) => {}
                Block::ToolUse { id, name, input, .. } => {
                    let (id, name) = (id.clone(), name.clone());
                    open.push(Open { id: id.clone(), name: name.clone() });
                    parts.push(Part::Call { id, name, input: input.clone() });
                }
            }
        }
        self.note_calls(content);
        let total = usage.input().saturating_add(usage.output_tokens);
        self.measure = if total > 0 {
            Measure { counted: total, since: 0 }
        } else {
            let bytes = parts.iter().map(size_of).sum::<u64>();
            Measure { since: self.measure.since + bytes, ..self.measure }
        };
        // What says nothing and calls nothing is no turn: two of the user's become one.
        if parts.iter().all(|part| matches!(part, Part::Opaque(_))) {
            return;
        }
        self.settle();
        self.turns.push(Turn { role: Role::Assistant, parts });
        self.open = open;
    }

    /// Takes note of a plan, and of an answer to a shutdown.
    fn note_calls(&mut self, content: &[Block]) {
        for block in content {
            let Block::ToolUse { name, input, .. } = block else { continue };
            let field = |name: &str| input.get(name).and_then(Value::as_str);
            match (name.as_str(), field("plan")) {
                ("plan_approval", Some(plan)) => {
                    self.gist.plan = Some((plan.to_owned(), "submitted".to_owned()));
                }
                ("shutdown_response", _)
                    if field("request_id") == self.gist.asked.as_ref().map(|a| a.0.as_str()) =>
                {
                    self.gist.asked = None;
                }
                _ => {}
            }
        }
    }

    fn result(&mut self, id: &str, content: &str, is_error: bool) {
        let Some(at) = self.open.iter().position(|open| open.id == id) else { return };
        let open = self.open.remove(at);
        self.measure.since += content.len() as u64;
        self.push(Role::User, Part::Result { id: open.id, content: content.to_owned(), is_error });
        let delivered = std::mem::take(&mut self.delivered);
        // The list of what was delivered is its result; if that was lost, it is said again.
        if open.name != "read_inbox" || is_error {
            self.later.extend(delivered);
        }
        if open.name == "plan_approval"
            && let Some((_, became)) = &mut self.gist.plan
        {
            *became = content.chars().take(2000).collect();
        }
        if self.open.is_empty() {
            let later = std::mem::take(&mut self.later);
            later.into_iter().for_each(|text| self.push(Role::User, Part::Text(text)));
        }
    }

    fn answer_open_calls(&mut self) {
        while let Some(open) = self.open.first() {
            let id = open.id.clone();
            self.result(&id, NO_RESULT, true);
        }
    }

    /// What came before the last answers is gone, and a summary stands for it.
    fn cut(&mut self, summary: &str, kept: usize) {
        self.answer_open_calls();
        let tail = self.turns.split_off(self.kept_from(kept));
        let mut head = vec![Part::Text(summary.to_owned())];
        let mut tail = tail.into_iter().peekable();
        // Results whose call is gone are in the summary; what was said beside them is not.
        while let Some(turn) = tail.next_if(|turn| turn.role == Role::User) {
            head.extend(turn.parts.into_iter().filter_map(|part| match part {
                Part::Text(text) => Some(Part::Text(excerpt(&text, MOST_KEPT))),
                Part::Call { .. } | Part::Result { .. } | Part::Opaque(_) => None,
            }));
        }
        self.turns = vec![Turn { role: Role::User, parts: head }];
        self.turns.extend(tail);
        self.measure = Measure { counted: 0, since: self.turns.iter().map(weight).sum() };
    }

    /// Returns where the last answers begin; beyond the first one, where the last turn of the user begins.
    fn kept_from(&self, kept: usize) -> usize {
        let answers = self.turns.iter().enumerate().filter(|(_, turn)| turn.role == Role::Assistant);
        let starts: Vec<usize> = answers.map(|(at, _)| at).collect();
        let last = self.turns.len().saturating_sub(usize::from(!self.turns.is_empty()));
        match kept {
            0 => last,
            kept => starts.get(starts.len().saturating_sub(kept)).copied().unwrap_or(last),
        }
    }

    /// Returns how many of the last answers, each with what followed it, have at most so many bytes.
    pub(super) fn answers_within(&self, bytes: u64) -> usize {
        let mut sum = 0;
        let mut answers = 0;
        for turn in self.turns.iter().rev() {
            sum += weight(turn);
            if sum > bytes {
                break;
            }
            answers += usize::from(turn.role == Role::Assistant);
        }
        answers
    }

    fn push(&mut self, role: Role, part: Part) {
        match self.turns.last_mut() {
            Some(turn) if turn.role == role => turn.parts.push(part),
            _ => self.turns.push(Turn { role, parts: vec![part] }),
        }
    }
}

fn call_ids(turn: &Turn) -> impl Iterator<Item = &str> {
    turn.parts.iter().filter_map(|part| match part {
        Part::Call { id, .. } => Some(id.as_str()),
        _ => None,
    })
}

/// Returns how many bytes a turn has, about.
pub(super) fn weight(turn: &Turn) -> u64 {
    turn.parts.iter().map(size_of).sum()
}

fn size_of(part: &Part) -> u64 {
    let bytes = match part {
        Part::Text(text) => text.len(),
        Part::Call { name, input, .. } => name.len() + input.to_string().len(),
        Part::Result { content, .. } => content.len(),
        Part::Opaque(value) => value.to_string().len(),
    };
    bytes as u64
}

#[cfg(test)]
mod tests;
