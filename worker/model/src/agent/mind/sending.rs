//! What the agent gets: the messages that the transcript holds, each once, and the outcomes of its
//! calls.

use teamd_shared::image::Image;
use teamd_shared::message::{IdleReason, Message};
use teamd_shared::transcript::{Block, Event};
use uuid::Uuid;

use super::super::known::{Known, stands_for};
use super::calls::Receiver;
use super::{AgentMessage, AgentMind, PLAN_WAITS, Resumption};
use teamd_shared::message_text::{ask, show};
use teamd_worker_core::tools::Outcome;

/// The message to an agent that ended in the middle of its work.
const GO_ON: &str = "Your process ended in the middle of your work and was restarted. A tool call without a result may have run. Continue.";

/// What follows that, if the agent may not have kept its last messages; they follow.
const REPEATED: &str = "If you do not know the following lines, they are your last messages:";

/// What precedes a message that the agent may have got in the turn that was cut off; it follows.
const DOUBTFUL: &str = "If you do not know the following lines, they are a message to you:";

/// The message to an agent whose session is lost; the end of the old session follows it.
const LOST: &str = "Your earlier session is lost; this is a new one. A tool call of the work below may have run. The end of the earlier session:";

impl AgentMind {
    /// Applies the next entry of the transcript.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::Incarnation {
                incarnation,
                conversation,
                prompt,
                tools: _,
            } if incarnation == conversation => {
                self.messages.begin(*conversation, prompt.as_deref());
            }
            Event::Messages { messages } => {
                for json in messages {
                    let Ok(message) = Message::from_json(json.clone()) else {
                        continue;
                    };
                    if let Some(text) = show(&message, &self.setup.name) {
                        self.messages.push(text);
                    }
                }
            }
            Event::Asked { request_id, reason } => {
                self.messages.push_of_work(ask(request_id.as_str(), reason));
            }
            Event::Answer { content, .. } => {
                self.messages.has_answered = true;
                // Nothing follows from answers behind a plan.
                if !self.calls.has_replied() {
                    self.cost.begun_in_vain = 0;
                }
                for block in content {
                    if let Block::ToolUse { id, name, .. } = block {
                        self.calls.record(id, self.setup.team_tool(name));
                    }
                }
            }
            Event::Result {
                tool_use_id,
                content,
                is_error,
                images,
                ..
            } => self.result_recorded(tool_use_id, content, *is_error, images),
            Event::Idle {
                idle_reason,
                content,
                ..
            } => {
                let has_ended_itself = *idle_reason == IdleReason::Available;
                self.end_work(has_ended_itself.then_some(content));
            }
            Event::Left { .. } => self.end_work(None),
            _ => {}
        }
    }

    fn result_recorded(&mut self, id: &str, content: &str, is_error: bool, images: &[Image]) {
        match self.calls.end(id) {
            Receiver::Nobody => return,
            Receiver::Caller => {}
            Receiver::Inbox if content == PLAN_WAITS => {}
            Receiver::Inbox => self.messages.push(content.to_owned()),
        }
        // Its driver has to know the outcome in any case.
        if let Some(running) = self.state.running() {
            let outcome = Outcome {
                content: content.to_owned(),
                is_error,
                images: images.to_vec(),
                killed_for_memory: None,
            };
            running.process.send_outcome(id, outcome);
        }
    }

    /// Ends the work, and the turn with it; `answer`: if it has ended by itself.
    fn end_work(&mut self, answer: Option<&String>) {
        self.messages.end_work(answer.map(String::as_str));
        if self.is_in_turn() {
            self.abandon();
        }
        self.state.end_turn();
        self.backlog.clear();
        self.calls.end_work();
        self.restarts = 0;
    }

    /// Returns what the agent did not get yet, and before that what it has to learn of the process
    /// before. Without either, open work gets a message that tells it to continue.
    pub fn news(&mut self) -> Vec<AgentMessage> {
        let Some(running) = self.state.running_mut() else {
            return Vec::new();
        };
        let mut news = self.messages.all().to_vec();
        news.retain(|message| !running.has_sent(message.id));
        for message in &mut news {
            if running.process.known.unsure.contains(&message.id) {
                message.text = format!("{DOUBTFUL}{}", quoted(&message.text));
            }
        }
        let is_stuck = self.is_work && !running.is_in_turn() && news.is_empty();
        let history = self.messages.history().trim_end();
        let first = match running.resumption {
            Resumption::BrokenOff { .. } => {
                go_on(self.messages.of_this_work(), &running.process.known)
            }
            Resumption::Nothing if is_stuck => GO_ON.to_owned(),
            Resumption::Lost if is_stuck => format!("{LOST}{history}\n\n{GO_ON}"),
            Resumption::Lost if !news.is_empty() => format!("{LOST}{history}"),
            Resumption::Nothing | Resumption::Lost => return news,
        };
        let without_id = running.resumption.take_without_id();
        // In one message with what is new: a turn may begin with the first one alone.
        match news.first_mut() {
            Some(message) if without_id.is_none() => {
                message.text = format!("{first}\n\n{}", message.text);
            }
            _ => {
                let message = AgentMessage {
                    id: without_id.map_or_else(Uuid::new_v4, stands_for),
                    text: first,
                    is_of_work: true,
                };
                news.insert(0, message);
            }
        }
        news
    }

    /// Sends news to the agent.
    pub fn send(&mut self, news: Vec<AgentMessage>) {
        if let Some(running) = self.state.running_mut() {
            for message in news {
                running.send(message, self.permissions);
            }
        }
    }

    /// Answers a question of the agent: it may, or why not.
    pub fn permit(&self, question: &str, refusal: Option<&str>) {
        if let Some(running) = self.state.running() {
            running.process.permit(question, refusal);
        }
    }
}

/// Tells an agent to continue its work. One that may lack its last messages gets them again, as
/// what they are.
fn go_on(of_this_work: &[AgentMessage], known: &Known) -> String {
    let mut text = GO_ON.to_owned();
    if !known.may_lack {
        return text;
    }
    let sent = of_this_work
        .iter()
        .filter(|message| known.messages.contains(&message.id));
    text.push_str(&format!("\n{REPEATED}"));
    text.extend(sent.map(|message| quoted(&message.text)));
    text
}

/// Returns the lines of a text as a quotation, each behind a line break.
fn quoted(text: &str) -> String {
    text.lines().map(|line| format!("\n> {line}")).collect()
}
