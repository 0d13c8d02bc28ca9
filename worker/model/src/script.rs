//! The built-in model: it obeys its prompt and the messages from `lead` and `user`.
//!
//! Pure: its answers depend on the entries that it got, and on nothing else. It must never import a
//! runtime, a clock, a file system or a random source. The lines that it understands are read in
//! `line`.
//!
//! One answer holds one call, so that messages can reach it between two calls. Messages of other
//! members are not obeyed.

mod line;

use std::collections::VecDeque;

use serde_json::{Value, json};
use teamd_shared::id::RequestId;
use teamd_shared::message::{Body, IdleReason, LEAD, Message, TEAMD, USER};
use teamd_shared::transcript::{Block, Event, Usage};

use super::ModelError;
use line::{FAIL, ScriptLine, ScriptedCall, lines};

/// The tool with which a shutdown request is answered.
const SHUTDOWN_RESPONSE: &str = "shutdown_response";

/// The state of the model: a fold of the transcript.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Script {
    /// The calls that are still to be made.
    queue: VecDeque<ScriptedCall>,
    /// The text of the final answer.
    texts: Vec<String>,
    /// The result of the last call in this piece of work.
    last_result: Option<String>,
    /// The shutdown request that waits for an answer: at most one is pending.
    asked: Option<RequestId>,
    /// The latest answer to a shutdown request. Its result is not a result of the work.
    own_response: Option<String>,
    /// Why the next shutdown request will be rejected, if it will.
    reject: Option<String>,
    /// The incarnation in which the conversation began: each conversation counts its calls from 1.
    conversation: u32,
    /// The number of calls in the conversation; the next call gets the next number.
    calls: u64,
    /// The call that it is the subagent of, if it is one.
    of: Option<String>,
    /// Its own subagent, while a call of `delegate` runs.
    subagent: Option<Box<Self>>,
}

impl Script {
    /// Applies the next entry.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::Incarnation {
                incarnation,
                conversation,
                prompt,
                tools: _,
            } => {
                // A shutdown request belongs to one incarnation.
                self.asked = None;
                if incarnation == conversation {
                    *self = Self {
                        conversation: *conversation,
                        ..Self::default()
                    };
                    self.queue_lines(prompt.as_deref().unwrap_or_default());
                }
            }
            Event::Messages { messages } => {
                for message in messages {
                    if let Some(order) = order_of(message) {
                        self.queue_lines(&order);
                    }
                    self.queue_task(message);
                }
            }
            Event::Asked { request_id, .. } => self.asked = Some(request_id.clone()),
            Event::Answer { content, .. } => self.answered(content),
            Event::Result {
                tool_use_id,
                content,
                ..
            } => {
                if self.own_response.as_ref() != Some(tool_use_id) {
                    self.last_result = Some(content.clone());
                }
            }
            Event::Idle { idle_reason, .. } => self.end_work(*idle_reason == IdleReason::Available),
            Event::Left { .. } => self.end_work(false),
            Event::Rejected { .. }
            | Event::Restarted { .. }
            | Event::Compacted { .. }
            | Event::Fallback { .. }
            | Event::Held { .. }
            | Event::Admitted { .. }
            | Event::Charged { .. } => {}
        }
    }

    /// Answers: a shutdown request first, then the next call, then the text.
    ///
    /// # Errors
    /// [`ModelError::Failed`] if the next line orders it. The end of the work clears that line.
    pub fn answer(&self) -> Result<Event, ModelError> {
        let content = if let Some(request_id) = &self.asked {
            let reason = self.reject.as_deref().unwrap_or("done");
            let approve = self.reject.is_none();
            let input = json!({ "request_id": request_id, "approve": approve, "reason": reason });
            self.tool_use(SHUTDOWN_RESPONSE, input)
        } else if let Some(call) = self.queue.front() {
            if call.name == FAIL {
                return Err(ModelError::Failed(
                    call.input["reason"].as_str().unwrap_or_default().to_owned(),
                ));
            }
            self.tool_use(&call.name, call.input.clone())
        } else {
            Block::Text {
                text: self.final_text(),
            }
        };
        Ok(Event::Answer {
            content: vec![content],
            usage: Usage::default(),
            cut: None,
            length: None,
            model_calls: 1,
        })
    }

    /// Begins a subagent that obeys a prompt.
    pub(super) fn begin_subagent(&mut self, call: &str, prompt: &str) {
        let mut subagent = Self {
            of: Some(call.to_owned()),
            ..Self::default()
        };
        subagent.queue_lines(prompt);
        self.subagent = Some(Box::new(subagent));
    }

    /// Applies the next entry of the subagent.
    pub(super) fn observe_subagent(&mut self, event: &Event) {
        if let Some(subagent) = &mut self.subagent {
            subagent.observe(event);
        }
    }

    /// Answers as the subagent; none without one.
    pub(super) fn answer_subagent(&self) -> Option<Result<Event, ModelError>> {
        self.subagent.as_ref().map(|subagent| subagent.answer())
    }

    /// Ends the subagent.
    pub(super) fn end_subagent(&mut self) {
        self.subagent = None;
    }

    fn tool_use(&self, name: &str, input: Value) -> Block {
        let number = self.calls + 1;
        let id = match &self.of {
            Some(call) => format!("{call}-{number}"),
            None => format!("call-{}-{number}", self.conversation),
        };
        Block::ToolUse {
            id,
            name: name.to_owned(),
            input,
            message_id: None,
            request_id: None,
        }
    }

    fn final_text(&self) -> String {
        if !self.texts.is_empty() {
            return self.texts.join("\n");
        }
        self.last_result
            .clone()
            .filter(|text| !text.trim().is_empty())
            .unwrap_or_else(|| "done".to_owned())
    }

    /// Queues the lines of a task that begin with `/`, and its submission.
    fn queue_task(&mut self, message: &Value) {
        let Ok(message) = Message::from_json(message.clone()) else {
            return;
        };
        let Body::TaskAssignment {
            task_id: Some(id), ..
        } = message.body
        else {
            return;
        };
        if message.from == TEAMD {
            let calls: Vec<&str> = message
                .content
                .lines()
                .filter(|line| line.starts_with('/'))
                .collect();
            self.queue_lines(&calls.join("\n"));
            self.queue.push_back(ScriptedCall {
                name: "task_update".to_owned(),
                input: json!({ "task_id": id, "status": "completed", "summary": "done" }),
            });
        }
    }

    fn queue_lines(&mut self, text: &str) {
        for line in lines(text) {
            match line {
                ScriptLine::Call(call) => self.queue.push_back(call),
                ScriptLine::Text(text) => self.texts.push(text),
                ScriptLine::RejectShutdown(reason) => self.reject = Some(reason),
            }
        }
    }

    /// Applies a recorded answer, so that its calls and texts are not repeated.
    fn answered(&mut self, content: &[Block]) {
        let mut called = false;
        for block in content {
            let Block::ToolUse {
                id, name, input, ..
            } = block
            else {
                continue;
            };
            called = true;
            self.calls += 1;
            let answered = input.get("request_id").and_then(Value::as_str);
            let asked = self.asked.as_ref().map(RequestId::as_str);
            if name == SHUTDOWN_RESPONSE && asked.is_some() && asked == answered {
                self.asked = None;
                self.reject = None;
                self.own_response = Some(id.clone());
            } else {
                self.queue.pop_front();
            }
        }
        if !called {
            self.texts.clear();
            self.last_result = None;
        }
    }

    /// Ends a piece of work. Lines that arrived after its last answer belong to the next one. If
    /// the work was broken off, everything is dropped.
    fn end_work(&mut self, finished: bool) {
        self.asked = None;
        self.last_result = None;
        if !finished {
            self.queue.clear();
            self.texts.clear();
        }
    }
}

/// Returns what a message orders, if it comes from the lead or the user.
fn order_of(message: &Value) -> Option<String> {
    let message = Message::from_json(message.clone()).ok()?;
    let orders = matches!(
        message.body,
        Body::Message | Body::Broadcast | Body::PlanRequest { .. }
    );
    (orders && [LEAD, USER].contains(&message.from.as_str())).then_some(message.content)
}

#[cfg(test)]
mod tests;
