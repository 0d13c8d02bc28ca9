//! How far the work of a member is, pure: the fold of its transcript. A live worker applies each
//! entry that it writes, and one that begins applies those that it finds, so the same entries lead
//! both to the same state.
//!
//! The answer of the model is in the transcript before its first call runs, and each result before
//! the next call begins. So of the calls without a result only the first can have begun when the
//! earlier incarnation ended. It is not run again: what it did is not known. But what sends a
//! message is repeated under the ids that the answer holds (and what the daemon takes for the same
//! a second time, too), and then the calls behind it, which never began, simply follow.
//!
//! An agent says more while a call of it has no result: calls that run side by side, and what it
//! does while its plan waits. That answer is recorded when it comes, and its calls are queued
//! behind those that wait. They run in the agent, so any of them can have begun.

use std::collections::VecDeque;

use serde_json::Value;
use teamd_shared::message::{Body, IdleReason, Message, summary_of};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::team_dir::TeamPath;
use teamd_shared::todo::{TODO_WRITE, TodoList};
use teamd_shared::transcript::{Block, Cut, Entry, Event, Usage, text_of};
use teamd_shared::usage::UsageByModel;
use uuid::Uuid;

use crate::at::At;
use crate::cut::{CUT_CALL, CutAnswers};
use crate::tool_use::ToolUse;
use crate::tools::{Action, AfterCrash, Call, Caller, Grant, IN_DOUBT, Outcome, TeamAction};

/// The result of a call that had not begun when its worker ended.
const NOT_BEGUN: &str = "not run: the worker was restarted before it";

/// How much of an error the roster shows, in characters.
const SHOWN: usize = 160;

/// What memory has to do with the calls of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallMemory {
    /// Whether the next call waits for memory, and has not begun.
    pub held: bool,
    /// Whether the last one was killed for memory.
    pub killed: bool,
}

/// How far the subagent of a call of `delegate` is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SubagentProgress {
    /// Its calls without a result.
    pub calls: VecDeque<ToolUse>,
    /// Its answers that were cut.
    pub cut: CutAnswers,
    /// All that its last answer says.
    pub text: String,
}

/// How a piece of work has ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LastWork {
    /// Why it came to nothing, in a few words; empty if it did not.
    pub trouble: String,
    /// How it ended.
    pub idle_reason: Option<IdleReason>,
}

/// How far the work of a member is.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkProgress {
    /// Whose work it is.
    owner: Name,
    /// How far it is.
    pub at: At,
    /// Model calls of this piece of work.
    pub turns: u32,
    /// What they cost.
    pub spent: UsageByModel,
    /// What it has given to teammates, of its own budget. It counts as spent.
    pub granted: Grant,
    /// What the conversation has cost so far.
    pub usage: UsageByModel,
    /// The model that answers in the place of the recorded one, until the piece of work ends.
    pub fallback: Option<String>,
    /// The calls that have no result, in order; the first one is next, or runs.
    pub calls: VecDeque<ToolUse>,
    /// What memory has to do with them.
    pub memory: CallMemory,
    /// The subagent of the first of them, if that is such a call.
    pub subagent: SubagentProgress,
    /// The steps that the model has written down.
    pub todo: TodoList,
    /// What the lead gets to read when the work ends: the final answer, or the error.
    pub closing: String,
    /// What was cut at the limit of one answer, and goes on.
    pub cut: CutAnswers,
    /// How the last piece of work ended; nothing if another one has begun.
    pub last: LastWork,
    /// How far the inbox is consumed.
    pub position: Position,
    /// The notices that follow from entries and that the lead does not have yet, oldest first. The
    /// lead agent sends none.
    pub notices: VecDeque<PendingNotice>,
}

/// A notice to the lead.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingNotice {
    /// Its id.
    pub id: Uuid,
    /// What it is.
    pub body: Body,
    /// All that it says.
    pub content: String,
    /// Whether it may have been written already.
    pub repeated: bool,
}

impl WorkProgress {
    /// Begins without any work.
    pub fn new(owner: Name) -> Self {
        Self {
            owner,
            at: At::Idle,
            turns: 0,
            spent: UsageByModel::default(),
            granted: Grant::default(),
            usage: UsageByModel::default(),
            fallback: None,
            calls: VecDeque::new(),
            memory: CallMemory::default(),
            subagent: SubagentProgress::default(),
            todo: TodoList::default(),
            closing: String::new(),
            cut: CutAnswers::default(),
            last: LastWork::default(),
            position: Position::START,
            notices: VecDeque::new(),
        }
    }

    /// Follows an entry of an earlier incarnation. A notice that it does not list any more was
    /// written before it; but an incarnation begins with the pending notices of the one before.
    pub fn replay(&mut self, entry: &Entry) {
        if !matches!(entry.event, Event::Incarnation { .. }) {
            self.notices
                .retain(|notice| entry.pending_notices.contains(&notice.id));
        }
        self.position = entry.inbox;
        // Each incarnation may have had another fallback, or none.
        if entry.event.has_cost() {
            self.fallback.clone_from(&entry.model);
        }
        if entry.call.is_some() {
            self.follow_subagent(&entry.event);
        } else {
            self.follow(&entry.event);
        }
        for notice in &mut self.notices {
            notice.repeated = true;
        }
    }

    /// Follows one more entry of the subagent of the call that runs: its cost is that of the work.
    pub fn follow_subagent(&mut self, event: &Event) {
        match event {
            Event::Answer {
                content,
                usage,
                cut,
                model_calls,
                ..
            } => {
                self.count(*usage);
                self.turns = self.turns.saturating_add(*model_calls);
                self.subagent.calls.extend(calls_of(content, false));
                let has_calls = !self.subagent.calls.is_empty();
                let text = text_of(content);
                self.subagent.text = self.subagent.cut.answered(text, *cut, has_calls);
            }
            Event::Messages { messages } => self.subagent.cut.read(messages),
            Event::Compacted { usage, .. } => self.count(*usage),
            Event::Result { tool_use_id, .. } => {
                self.subagent.calls.retain(|call| call.id != *tool_use_id);
            }
            _ => {}
        }
    }

    /// Follows one more entry.
    pub fn follow(&mut self, event: &Event) {
        match event {
            Event::Incarnation {
                prompt: Some(_), ..
            } => self.begin(),
            Event::Messages { messages } => {
                self.cut.read(messages);
                if messages.iter().any(|message| self.is_work(message)) {
                    self.begin();
                }
            }
            Event::Answer {
                content,
                usage,
                cut,
                model_calls,
                ..
            } => {
                self.count(*usage);
                self.turns = self.turns.saturating_add(*model_calls);
                let is_beside = !self.calls.is_empty();
                self.calls.extend(calls_of(content, is_beside));
                if !is_beside {
                    let has_calls = !self.calls.is_empty();
                    let text = self.cut.answered(text_of(content), *cut, has_calls);
                    self.closing = closing(text, *cut);
                    self.at = if has_calls {
                        At::Call
                    } else if self.cut.goes_on() {
                        At::Turn { results: true }
                    } else {
                        At::Done(IdleReason::Available)
                    };
                }
            }
            Event::Compacted { usage, .. } => self.count(*usage),
            Event::Charged { usage, model_calls } => {
                self.count(*usage);
                self.turns = self.turns.saturating_add(*model_calls);
            }
            Event::Result {
                tool_use_id,
                content,
                is_error,
                killed_for_memory,
                ..
            } => {
                if !is_error || content.contains(IN_DOUBT) {
                    self.grant(tool_use_id);
                }
                if !is_error {
                    self.note_steps(tool_use_id);
                }
                let is_beside = self
                    .calls
                    .front()
                    .is_some_and(|call| call.id != *tool_use_id);
                self.calls.retain(|call| call.id != *tool_use_id);
                self.memory.killed = killed_for_memory.is_some();
                if !is_beside {
                    self.memory.held = false;
                    self.end_subagent();
                    self.at = if self.calls.is_empty() {
                        At::Turn { results: true }
                    } else {
                        At::Call
                    };
                }
            }
            Event::Idle {
                idle_reason,
                content,
                message_id,
                goes_on,
            } => {
                self.calls.clear();
                self.memory = CallMemory::default();
                self.end_subagent();
                self.fallback = None;
                self.at = At::Idle;
                self.last.trouble = trouble(*idle_reason, content);
                self.last.idle_reason = Some(*idle_reason);
                if *goes_on {
                    self.begin();
                }
                let idle_reason = *idle_reason;
                let summary = summary_of(content);
                self.notify(
                    *message_id,
                    Body::IdleNotification {
                        idle_reason,
                        summary,
                    },
                    content.clone(),
                );
            }
            Event::Rejected {
                offset,
                reason,
                message_id,
            } => {
                let inbox = TeamPath::inbox(&self.owner);
                let content =
                    format!("a line of {inbox} (at offset {offset}) is no message: {reason}");
                self.notify(*message_id, Body::Message, content);
            }
            // An incarnation that left by its own doing gave its work up; only a crash is gone on
            // from.
            Event::Left { goes_on, .. } => {
                self.calls.clear();
                self.memory = CallMemory::default();
                self.end_subagent();
                self.fallback = None;
                self.last = LastWork::default();
                self.at = At::Idle;
                if *goes_on {
                    self.begin();
                }
            }
            Event::Held { .. } => self.memory.held = true,
            Event::Admitted { .. } => self.memory.held = false,
            Event::Fallback { answers, .. } => self.fallback = Some(answers.clone()),
            Event::Incarnation { .. } | Event::Restarted { .. } | Event::Asked { .. } => {}
        }
    }

    /// The call of `delegate` is over, and its subagent with it.
    fn end_subagent(&mut self) {
        self.subagent = SubagentProgress::default();
    }

    /// Returns whose work it is.
    pub fn owner(&self) -> &Name {
        &self.owner
    }

    /// Returns the ids of the notices that the lead does not have yet.
    pub fn pending_notices(&self) -> Vec<Uuid> {
        self.notices.iter().map(|notice| notice.id).collect()
    }

    /// A piece of work begins, unless this belongs to the one that is done.
    fn begin(&mut self) {
        if self.at == At::Idle {
            self.at = At::Turn { results: false };
            self.turns = 0;
            self.spent = UsageByModel::default();
            self.granted = Grant::default();
            self.cut = CutAnswers::default();
            self.last = LastWork::default();
        }
    }

    /// Tells whether a message belongs to the piece of work that is done.
    pub fn is_work(&self, message: &Value) -> bool {
        Message::from_json(message.clone()).is_ok_and(|message| message.starts_a_turn(&self.owner))
    }

    fn count(&mut self, usage: Usage) {
        let model = self.fallback.as_deref();
        self.usage.count(model, usage);
        self.spent.count(model, usage);
    }

    /// Counts what a call has given to the teammates that it started, or may have started.
    fn grant(&mut self, tool_use_id: &str) {
        let Some(call) = self.calls.iter().find(|call| call.id == tool_use_id) else {
            return;
        };
        let parsed = Caller::of(&self.owner).parse(&call.name, &call.input);
        if let Ok(Call {
            action: Action::Team(TeamAction::Spawn(spawn)),
            ..
        }) = parsed
        {
            self.granted = self.granted.and(spawn.grant());
        }
    }

    /// Takes the steps over that a call has written down.
    fn note_steps(&mut self, tool_use_id: &str) {
        let call = self.calls.iter().find(|call| call.id == tool_use_id);
        let written = call.filter(|call| call.name == TODO_WRITE);
        if let Some(list) = written.and_then(|call| TodoList::of_call(&call.input)) {
            self.todo = list;
        }
    }

    fn notify(&mut self, id: Uuid, body: Body, content: String) {
        if self.owner != Name::lead() {
            self.notices.push_back(PendingNotice {
                id,
                body,
                content,
                repeated: false,
            });
        }
    }

    /// Returns the results of the calls that are not run in this incarnation; marks the one that is
    /// made again.
    pub fn interrupted(&mut self) -> Vec<Event> {
        if self.cut.has_calls() {
            return self.calls.iter().map(cut_call).collect();
        }
        let caller = Caller::of(&self.owner);
        let first = self.calls.front();
        let continues = first.is_some_and(|call| runs_again(caller, call));
        let mut lost = Vec::new();
        for (number, call) in self.calls.iter_mut().enumerate() {
            call.repeated |= continues && number == 0;
            if runs_again(caller, call) || (continues && !call.is_beside) {
                continue;
            }
            let may_have_begun = number == 0 && !self.memory.held || call.is_beside;
            let content = if may_have_begun {
                caller.may_have_run()
            } else {
                NOT_BEGUN.to_owned()
            };
            let tool_use_id = call.id.clone();
            lost.push(Outcome::error(content).into_result(tool_use_id));
        }
        lost
    }
}

/// Returns why a piece of work came to nothing, in a few words; empty if it did not.
fn trouble(reason: IdleReason, told: &str) -> String {
    let first = told.lines().map(str::trim).find(|line| !line.is_empty());
    // The lead gets to read what to do about it; here is only room for what it is.
    let what = first
        .and_then(|line| line.split(" (hint: ").next())
        .unwrap_or("for an unknown reason");
    let mut first: String = what.chars().take(SHOWN).collect();
    if what.chars().nth(SHOWN).is_some() {
        first.push('…');
    }
    match reason {
        IdleReason::Available => String::new(),
        IdleReason::Failed => format!("failed: {first}"),
        IdleReason::MaxTurns => "stopped: turn limit".to_owned(),
        IdleReason::MaxTokens => "stopped: token limit".to_owned(),
        IdleReason::MaxCost => "stopped: cost limit".to_owned(),
        IdleReason::Interrupted => "interrupted".to_owned(),
    }
}

/// Returns the result of a call of an answer that was cut.
fn cut_call(call: &ToolUse) -> Event {
    Outcome::error(CUT_CALL).into_result(call.id.clone())
}

/// Returns what the lead gets to read of an answer that ends the work.
fn closing(text: String, cut: Option<Cut>) -> String {
    let why = match cut {
        Some(Cut::Length) => "[the answer ends here: it reached the limit of one answer]",
        Some(Cut::Refusal) => "[the model refused to continue]",
        None if text.trim().is_empty() => "[the model gave an empty answer]",
        None => return text,
    };
    if text.trim().is_empty() {
        why.to_owned()
    } else {
        format!("{text}\n{why}")
    }
}

/// Returns the calls of an answer, in order; `is_beside`: whether it was given while an earlier
/// call had no result.
fn calls_of(content: &[Block], is_beside: bool) -> Vec<ToolUse> {
    content
        .iter()
        .filter_map(|block| match block.clone() {
            Block::ToolUse {
                id,
                name,
                input,
                message_id,
                request_id,
            } => Some(ToolUse {
                id,
                name,
                input,
                message_id,
                request_id,
                repeated: false,
                is_beside,
            }),
            Block::Text { .. } | Block::Opaque { .. } => None,
        })
        .collect()
}

/// Tells whether a call that a crash interrupted is made again.
fn runs_again(caller: Caller, call: &ToolUse) -> bool {
    !call.is_beside && caller.after_crash(&call.name) != AfterCrash::Interrupted
}

#[cfg(test)]
mod tests;
