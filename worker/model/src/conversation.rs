//! The conversation as a model sees it, pure: the fold of the transcript.
//!
//! The turns are valid for every service ([`super::prompt`]), whatever the transcript holds: sides
//! alternate, each call has exactly one result in the next turn, results come before text, no text
//! is blank, and the last turn is the user's. So no crash, cut stream, refused call or compaction
//! makes a conversation that a service refuses.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;
use teamd_shared::image::Image;
use teamd_shared::message::{Body, IdleReason, Message};
use teamd_shared::name::Name;
use teamd_shared::todo::{TODO_WRITE, TodoList};
use teamd_shared::transcript::{Block, Event};

use super::prompt::{PromptTurn, Role, TurnPart};
use teamd_shared::message_text::{self, excerpt};

/// The result of a call that has no result in the transcript.
const NO_RESULT: &str = "no result was recorded; the call may have run";

/// What a model reads after its work was interrupted.
const INTERRUPTED: &str = "<interrupted>\nYour work was ended here by the lead. What was asked of you before is withdrawn, \
    unless it is asked again.\n</interrupted>";

/// How many images a prompt has at most, and their bytes in base64: a service refuses more than 32
/// MB.
const MOST_IMAGES: usize = 20;
const MOST_IMAGE_BYTES: usize = 20 << 20;

/// What a model reads in the place of images for which there is no room.
const NOT_SHOWN: &str =
    "\n[not shown: the conversation has too many images until its next summary]";

/// The first turn if there is nothing to answer yet.
const NOTHING: &str = "(nothing)";

/// A conversation.
#[derive(Debug, Clone)]
pub(crate) struct ModelConversation {
    /// Whose conversation it is.
    owner: Name,
    turns: Vec<PromptTurn>,
    /// The ids of the calls in them.
    ids: HashSet<String>,
    /// The calls of the last answer that have no result, in order.
    open: Vec<OpenCall>,
    /// What was delivered while a call of `read_inbox` ran: its result lists that, if it has one.
    delivered: Vec<String>,
    /// What is kept unchanged when the conversation is cut.
    pub(super) essentials: Essentials,
    /// The number of tokens up to the last answer, as counted by the service; 0 without such a
    /// count.
    counted: u64,
    /// The number of bytes since then.
    uncounted: usize,
}

/// A call without a result.
#[derive(Debug, Clone)]
struct OpenCall {
    id: String,
    name: String,
    /// The request that it names, if it names one.
    request_id: Option<String>,
    /// The steps that it writes down, if it does.
    todo: Option<TodoList>,
}

/// What must not be lost in a summary.
#[derive(Debug, Clone, Default)]
pub(super) struct Essentials {
    /// What the present piece of work began with, and the messages since then.
    pub(super) work: Vec<String>,
    /// Whether that work has ended. The next message then begins another piece.
    rests: bool,
    /// The plans that wait for the lead agent: their ids, and the text that the lead agent got.
    pub(super) waiting: Vec<(String, String)>,
    /// The latest plan that was submitted, and what became of it.
    pub(super) plan: Option<(String, String)>,
    /// The steps that the model has written down.
    pub(super) todo: TodoList,
    /// The shutdown that the model has been asked about and has not answered.
    pub(super) asked: Option<(String, String)>,
}

/// How many bytes count as a token where no service has counted: fewer than most texts have.
pub(super) const BYTES_PER_TOKEN: u64 = 3;

impl ModelConversation {
    /// Makes the empty conversation of a member.
    pub(crate) fn new(owner: Name) -> Self {
        Self {
            owner,
            turns: Vec::new(),
            ids: HashSet::new(),
            open: Vec::new(),
            delivered: Vec::new(),
            essentials: Essentials::default(),
            counted: 0,
            uncounted: 0,
        }
    }

    /// Applies the next entry.
    pub(crate) fn observe(&mut self, event: &Event) {
        match event {
            Event::Incarnation {
                incarnation,
                conversation,
                prompt,
                tools: _,
            } => {
                if incarnation == conversation {
                    *self = Self::new(self.owner.clone());
                    let prompt = excerpt(prompt.as_deref().unwrap_or_default(), message_text::MOST);
                    self.essentials.observe_text(&prompt);
                    self.push_text(prompt);
                } else {
                    // A shutdown request belongs to one incarnation.
                    self.essentials.asked = None;
                }
            }
            Event::Messages { messages } => self.messages(messages),
            Event::Asked { request_id, reason } => {
                self.essentials.asked = Some((request_id.to_string(), reason.clone()));
                self.push_text(message_text::ask(request_id.as_str(), reason));
            }
            Event::Answer {
                content,
                usage,
                length,
                ..
            } => {
                let counted = usage.input().saturating_add(usage.output_tokens);
                self.answer(content, length.unwrap_or(counted));
            }
            Event::Result {
                tool_use_id,
                content,
                is_error,
                images,
                ..
            } => self.result(tool_use_id, content, *is_error, images),
            Event::Compacted { summary, kept, .. } => self.cut(summary, *kept),
            // The incarnation has given up its work.
            Event::Left { .. } => {
                self.answer_open_calls();
                self.essentials.rests = true;
            }
            Event::Idle { idle_reason, .. } => {
                self.essentials.asked = None;
                self.essentials.rests = true;
                // Without this, the model would take the old work up again with the next message.
                if *idle_reason == IdleReason::Interrupted {
                    self.push_text(INTERRUPTED.to_owned());
                }
            }
            Event::Rejected { .. }
            | Event::Restarted { .. }
            | Event::Fallback { .. }
            | Event::Held { .. }
            | Event::Admitted { .. }
            | Event::Charged { .. } => {}
        }
    }

    /// Tells whether the model has said anything that it still sees.
    pub(super) fn has_answers(&self) -> bool {
        let mut turns = self.turns.iter();
        turns.any(|turn| turn.role == Role::Assistant)
    }

    /// Returns the turns so far as they can be sent: with an answer to every call, and a last turn
    /// of the user.
    pub(crate) fn turns(&self) -> Cow<'_, [PromptTurn]> {
        if self.open.is_empty()
            && self
                .turns
                .last()
                .is_some_and(|turn| turn.role == Role::User)
        {
            return Cow::Borrowed(&self.turns);
        }
        let mut complete = self.clone();
        complete.complete_turn();
        Cow::Owned(complete.turns)
    }

    fn complete_turn(&mut self) {
        self.answer_open_calls();
        if self
            .turns
            .last()
            .is_none_or(|turn| turn.role == Role::Assistant)
        {
            self.push_text(NOTHING.to_owned());
        }
    }

    /// Estimates how many tokens a prompt of it has; `fixed`: the bytes before the conversation.
    pub(super) fn tokens(&self, fixed: usize) -> u64 {
        // What a service has counted holds that already.
        let fixed = if self.counted == 0 { fixed } else { 0 };
        self.counted
            .saturating_add((self.uncounted + fixed) as u64 / BYTES_PER_TOKEN)
    }

    fn messages(&mut self, messages: &[Value]) {
        let mut shown = Vec::new();
        for value in messages {
            let Ok(message) = Message::from_json(value.clone()) else {
                continue;
            };
            let Some(text) = message_text::show(&message, &self.owner) else {
                continue;
            };
            if let Body::PlanApprovalRequest { request_id, .. }
            | Body::ReviewRequest { request_id, .. }
            | Body::PermissionRequest { request_id, .. } = &message.body
            {
                self.essentials
                    .waiting
                    .push((request_id.to_string(), text.clone()));
            }
            self.essentials.observe_text(&text);
            shown.push(text);
        }
        // While calls are open, only the next one of them takes messages in.
        if self
            .open
            .first()
            .is_some_and(|next| next.name == "read_inbox")
        {
            self.delivered.extend(shown);
        } else {
            for text in shown {
                self.push_text(text);
            }
        }
    }

    /// Adds a text of the user.
    fn push_text(&mut self, text: String) {
        if !text.trim().is_empty() {
            self.uncounted += text.len();
            self.push(TurnPart::Text(text));
        }
    }

    /// The model answers; `counted`: how many tokens its service says that there are now, or none.
    fn answer(&mut self, content: &[Block], counted: u64) {
        // What only a service understands is of a model that says nothing while a call of it is
        // open.
        let is_beside = !self.open.is_empty()
            && !content
                .iter()
                .any(|block| matches!(block, Block::Opaque { .. }));
        if !is_beside {
            self.answer_open_calls();
        }
        let mut parts = Vec::new();
        let mut open = Vec::new();
        for block in content {
            match block {
                Block::Text { text } if text.trim().is_empty() => continue,
                // An id that was there before cannot be answered a second time.
                Block::ToolUse { id, .. } if !self.ids.insert(id.clone()) => continue,
                Block::ToolUse {
                    id, name, input, ..
                } => {
                    self.essentials.called(name, input);
                    let request_id = input
                        .get("request_id")
                        .and_then(Value::as_str)
                        .map(str::to_owned);
                    open.push(OpenCall {
                        id: id.clone(),
                        name: name.clone(),
                        request_id,
                        todo: if name == TODO_WRITE {
                            TodoList::of_call(input)
                        } else {
                            None
                        },
                    });
                }
                Block::Text { .. } | Block::Opaque { .. } => {}
            }
            parts.push(TurnPart::from(block));
        }
        match counted {
            0 => self.uncounted += parts.iter().map(TurnPart::bytes).sum::<usize>(),
            counted => {
                self.counted = counted;
                self.uncounted = 0;
            }
        }
        // An answer without text and calls makes no turn. The turns of the user around it become
        // one.
        if parts.iter().all(|part| matches!(part, TurnPart::Opaque(_))) {
            return;
        }
        if is_beside {
            return self.join(parts, open);
        }
        self.complete_turn();
        self.turns.push(PromptTurn {
            role: Role::Assistant,
            parts,
        });
        self.open = open;
    }

    /// What an agent says while its calls are open belongs to the turn of those calls; all their
    /// results are in the next turn.
    fn join(&mut self, parts: Vec<TurnPart>, open: Vec<OpenCall>) {
        let answer = self
            .turns
            .iter_mut()
            .rfind(|turn| turn.role == Role::Assistant);
        let Some(PromptTurn { parts: answer, .. }) = answer else {
            return;
        };
        for part in parts {
            // A text comes before the calls of its turn.
            let first_call = answer.iter().position(TurnPart::is_call);
            match first_call {
                Some(at) if !part.is_call() => answer.insert(at, part),
                _ => answer.push(part),
            }
        }
        self.open.extend(open);
    }

    fn result(&mut self, id: &str, content: &str, is_error: bool, images: &[Image]) {
        let Some(at) = self.open.iter().position(|open| open.id == id) else {
            return;
        };
        let open = self.open.remove(at);
        let shown = self.within_limits(images);
        let left_out = images.len() - shown.len();
        let images = shown;
        let mut content = content.to_owned();
        if left_out > 0 {
            content.push_str(NOT_SHOWN);
        }
        let part = TurnPart::Result {
            id: open.id.clone(),
            content: content.clone(),
            is_error,
            images,
        };
        self.uncounted += part.bytes();
        self.push(part);
        let delivered = std::mem::take(&mut self.delivered);
        // If the list was lost, or is too long for a result, the messages follow as text.
        if is_error || message_text::list(&delivered).is_none() {
            for text in delivered {
                self.push_text(text);
            }
        }
        self.essentials.call_ended(&open, &content, is_error);
    }

    /// Returns the images that there is room for. What was sent once is sent again, so that the
    /// cache of the service stays: the room is that of the first ones, until a summary replaces
    /// them.
    fn within_limits(&self, images: &[Image]) -> Vec<Image> {
        let mut shown = Vec::new();
        let parts = self.turns.iter().flat_map(|turn| &turn.parts);
        let before = parts.flat_map(TurnPart::images);
        let (mut count, mut bytes) = (0, 0);
        for image in before {
            count += 1;
            bytes += image.data.len();
        }
        for image in images {
            count += 1;
            bytes += image.data.len();
            if count > MOST_IMAGES || bytes > MOST_IMAGE_BYTES {
                break;
            }
            shown.push(image.clone());
        }
        shown
    }

    fn answer_open_calls(&mut self) {
        while let Some(open) = self.open.first() {
            let id = open.id.clone();
            self.result(&id, NO_RESULT, true, &[]);
        }
    }

    /// A summary replaces what came before the last answers.
    fn cut(&mut self, summary: &str, kept: usize) {
        self.complete_turn();
        let tail = self.turns.split_off(self.kept_from(kept));
        self.turns = vec![PromptTurn {
            role: Role::User,
            parts: vec![TurnPart::Text(summary.to_owned())],
        }];
        self.turns.extend(tail);
        self.ids = self
            .turns
            .iter()
            .flat_map(call_ids)
            .map(str::to_owned)
            .collect();
        self.counted = 0;
        self.uncounted = self.turns.iter().map(PromptTurn::bytes).sum();
    }

    /// Returns where the last answers begin; the end, if none is kept.
    fn kept_from(&self, kept: usize) -> usize {
        (0..self.turns.len())
            .rev()
            .filter(|at| self.turns[*at].role == Role::Assistant)
            .take(kept)
            .last()
            .unwrap_or(self.turns.len())
    }

    /// Returns how many of the last answers, each with what followed it, have at most so many
    /// bytes.
    pub(super) fn answers_within(&self, bytes: usize) -> usize {
        let mut sum = 0;
        let fitting = self.turns.iter().rev().take_while(|turn| {
            sum += turn.bytes();
            sum <= bytes
        });
        fitting.filter(|turn| turn.role == Role::Assistant).count()
    }

    /// Adds a part to the turn of the user. Results come before text, in the order of their calls,
    /// whenever they arrive.
    fn push(&mut self, part: TurnPart) {
        let answer = self.turns.iter().rfind(|turn| turn.role == Role::Assistant);
        let calls: Vec<String> = answer
            .into_iter()
            .flat_map(call_ids)
            .map(str::to_owned)
            .collect();
        let place = |part: &TurnPart| match part {
            TurnPart::Result { id, .. } => calls
                .iter()
                .position(|call| call == id)
                .unwrap_or(calls.len()),
            _ => usize::MAX,
        };
        match self.turns.last_mut() {
            Some(turn) if turn.role == Role::User => {
                let behind = turn
                    .parts
                    .iter()
                    .position(|other| place(other) > place(&part));
                turn.parts.insert(behind.unwrap_or(turn.parts.len()), part);
            }
            _ => self.turns.push(PromptTurn {
                role: Role::User,
                parts: vec![part],
            }),
        }
    }
}

impl Essentials {
    /// Applies a message to the member.
    fn observe_text(&mut self, text: &str) {
        if std::mem::take(&mut self.rests) {
            self.work.clear();
        }
        if !text.trim().is_empty() {
            self.work.push(text.to_owned());
        }
    }

    /// Applies a call of a tool.
    fn called(&mut self, name: &str, input: &Value) {
        if name == "plan_approval"
            && let Some(plan) = input.get("plan").and_then(Value::as_str)
        {
            self.plan = Some((plan.to_owned(), "submitted".to_owned()));
        }
    }

    /// Applies the result of a call.
    fn call_ended(&mut self, call: &OpenCall, content: &str, is_error: bool) {
        match (call.name.as_str(), &call.request_id) {
            // The lead agent has answered a plan.
            ("plan_approval", Some(answered)) if !is_error => {
                self.waiting.retain(|(id, _)| id != answered)
            }
            ("plan_approval", None) => {
                if let Some((_, became)) = &mut self.plan {
                    *became = content.chars().take(2000).collect();
                }
            }
            ("shutdown_response", _) if !is_error => self.asked = None,
            (TODO_WRITE, _) if !is_error => self.todo = call.todo.clone().unwrap_or_default(),
            _ => {}
        }
    }
}

fn call_ids(turn: &PromptTurn) -> impl Iterator<Item = &str> {
    turn.parts.iter().filter_map(|part| match part {
        TurnPart::Call { id, .. } => Some(id.as_str()),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
