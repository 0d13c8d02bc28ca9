//! What the agent is told: what the transcript has taken in, each message once.

use teamd_shared::message::{IdleReason, Message};
use teamd_shared::transcript::{Block, Event};
use uuid::{Builder, Uuid};

use super::super::HandedTool;
use super::super::known::stands_for;
use super::{AgentMind, Line, PLAN_WAITS};
use crate::message_text::{ask, show};

/// What an agent is told that was ended in the middle of its work.
const GO_ON: &str = "Your process ended in the middle of your work, and goes on now. A tool call without a result may have run. Go on.";

/// What an agent is told whose session is gone, and how much of the end of that, in bytes.
const LOST: &str = "Your earlier session is gone, and this one is new. A tool call of the work below may have run. What was said before:";
const MAX_BEFORE: usize = 8 << 10;

impl AgentMind {
    /// Takes in the next entry of the transcript.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::Incarnation {
                incarnation,
                conversation,
                prompt,
            } if incarnation == conversation => {
                self.conversation = *conversation;
                self.count = 0;
                self.lines = Vec::new();
                self.earlier = 0;
                self.before = String::new();
                self.has_answered = false;
                if let Some(prompt) = prompt {
                    self.push(prompt.clone(), false);
                }
            }
            Event::Messages { messages } => {
                for message in messages
                    .iter()
                    .filter_map(|it| Message::from_json(it.clone()).ok())
                {
                    if let Some(text) = show(&message, &self.name) {
                        self.push(text, false);
                    }
                }
            }
            Event::Asked { request_id, reason } => {
                self.push(ask(request_id.as_str(), reason), true)
            }
            Event::Answer { content, .. } => {
                self.has_answered = true;
                // Nothing follows from what it says behind a plan.
                if self.told_later.is_empty() {
                    self.unfollowed = 0;
                }
                for block in content {
                    let Block::ToolUse { id, name, .. } = block else {
                        continue;
                    };
                    if self.runs(id, name) {
                        self.running.push(id.clone());
                    }
                    match self.tools.iter().find(|tool| tool.text.name == name) {
                        Some(HandedTool {
                            at_once: Some(_), ..
                        }) => self.told_later.insert(id.clone()),
                        // It may have been answered when it was heard.
                        Some(_) if !self.refused.contains_key(id) => self.handed.insert(id.clone()),
                        _ => continue,
                    };
                }
            }
            Event::Result {
                tool_use_id,
                content,
                is_error,
            } => {
                self.running.retain(|id| id != tool_use_id);
                let is_told_later = self.told_later.remove(tool_use_id);
                if is_told_later && content != PLAN_WAITS {
                    self.push(content.clone(), false);
                }
                let is_handed = self.handed.remove(tool_use_id) || is_told_later;
                if is_handed && let Some(process) = self.process.as_ref() {
                    process.answer(tool_use_id, content, *is_error);
                }
            }
            Event::Idle { .. } | Event::Left { .. } => {
                self.running.clear();
                // Of work that has not ended by itself, the session holds what was told.
                if let Event::Idle {
                    idle_reason: IdleReason::Available,
                    content,
                    ..
                } = event
                {
                    self.remember(content);
                    self.lines.clear();
                }
                self.lines.retain(|line| !line.is_of_work);
                self.earlier = self.lines.len();
                if self.in_turn {
                    self.abandon();
                }
                self.forget_turn();
                self.in_turn = false;
                self.restarts = 0;
            }
            _ => {}
        }
    }

    /// Takes the messages of work that has ended to what was said before, with its answer.
    fn remember(&mut self, answer: &str) {
        for told in &self.lines {
            self.before.push_str(&format!("\n\n[told] {}", told.text));
        }
        self.before.push_str(&format!("\n\n[answered] {answer}"));
        let end = self.before.len();
        let from =
            (end.saturating_sub(MAX_BEFORE)..end).find(|at| self.before.is_char_boundary(*at));
        self.before.drain(..from.unwrap_or(end));
    }

    fn push(&mut self, text: String, is_of_work: bool) {
        self.count += 1;
        self.lines.push(Line {
            id: self.id("line", self.count),
            text,
            is_of_work,
        });
    }

    /// Returns an id that is always the same for the same thing of the same conversation.
    pub(super) fn id(&self, what: &str, number: u64) -> Uuid {
        let of = format!("{what} {number} of {}", self.conversation);
        // FNV-1a, 64 bits, from two beginnings: within one state directory that is enough.
        let hash = |seed: u64| {
            of.bytes().fold(seed, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            })
        };
        let high = hash(0xcbf2_9ce4_8422_2325);
        let low = hash(0x6c62_272e_07bb_0142);
        Builder::from_random_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
            .into_uuid()
    }

    /// Returns what the agent was not told yet; where a turn was broken off and nothing more has
    /// come, that it goes on.
    pub fn news(&mut self) -> Vec<Line> {
        let mut news: Vec<_> = self
            .lines
            .iter()
            .filter(|line| !self.written.contains(&line.id))
            .cloned()
            .collect();
        let is_stuck = self.is_work && !self.in_turn && news.is_empty();
        let without_id = self.without_id.take();
        let goes_on = std::mem::take(&mut self.is_broken) || is_stuck || without_id.is_some();
        let mut first = if goes_on {
            GO_ON.to_owned()
        } else {
            String::new()
        };
        if (goes_on || !news.is_empty()) && std::mem::take(&mut self.is_lost) {
            first = format!("{LOST}{}\n\n{first}", self.before);
        }
        // In one message with what is new: a turn may begin with the first one alone.
        match if without_id.is_none() {
            news.first_mut()
        } else {
            None
        } {
            _ if first.is_empty() => {}
            Some(new) => new.text = format!("{}\n\n{}", first.trim_end(), new.text),
            None => {
                let id = without_id.map_or_else(Uuid::new_v4, stands_for);
                news.insert(
                    0,
                    Line {
                        id,
                        text: first,
                        is_of_work: true,
                    },
                );
            }
        }
        news
    }

    /// Tells the agent news.
    pub fn tell(&mut self, news: Vec<Line>) {
        let Some(process) = &self.process else { return };
        for Line { id, text, .. } in news {
            process.say(id, &text, self.permissions);
            self.written.insert(id);
            self.untaken.insert(id);
            self.in_turn = true;
        }
    }

    /// Answers a question of the agent: it may, or why not.
    pub fn permit(&self, question: &str, refusal: Option<&str>) {
        if let Some(process) = &self.process {
            process.permit(question, refusal);
        }
    }
}
