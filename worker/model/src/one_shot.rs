//! The mind of a teammate whose agent is one process for each piece of work (`protocol = "run"`).
//! Pure.
//!
//! The agent reads the messages on standard input and prints the answer. Running it is a call like
//! any other: the call is in the transcript before the agent starts, and a call that was
//! interrupted by a crash is not run again. Behind a closed gate the agent can change nothing, so
//! it prints a plan. When the plan is approved, the agent is run again and reads the verdict.

use serde_json::json;
use teamd_shared::member::Gate;
use teamd_shared::message::{Body, LEAD, Message, USER};
use teamd_shared::name::Name;
use teamd_shared::transcript::{Block, Event, Usage};

use super::ModelError;
use teamd_shared::message_text::show;

/// The text that follows a request for a plan.
const PLAN_WANTED: &str = "Your gate is closed: you can change nothing until a plan of yours is approved. What you print is your plan.";

/// The tool that runs the agent.
const RUN: &str = "run";

/// The mind: a fold of the transcript.
#[derive(Debug, Clone, PartialEq)]
pub struct OneShot {
    name: Name,
    /// What the next process reads.
    input: String,
    /// Whether the next process is needed.
    is_work: bool,
    /// The call that runs.
    running: Option<String>,
    /// The output of earlier processes of this piece of work.
    before: String,
    /// The outcome of the last process: its text, and whether that is an error.
    result: Option<(String, bool)>,
    /// The incarnation in which the conversation began: each conversation counts its calls from 1.
    conversation: u32,
    calls: u64,
}

impl OneShot {
    /// Begins without a conversation.
    pub fn new(name: Name) -> Self {
        let input = String::new();
        let before = String::new();
        let is_work = false;
        Self {
            name,
            input,
            is_work,
            running: None,
            before,
            result: None,
            conversation: 0,
            calls: 0,
        }
    }

    /// Applies the next entry.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::Incarnation {
                incarnation,
                conversation,
                prompt,
                tools: _,
            } if incarnation == conversation => {
                *self = Self {
                    conversation: *conversation,
                    ..Self::new(self.name.clone())
                };
                if let Some(prompt) = prompt {
                    self.read(prompt, true);
                }
            }
            Event::Messages { messages } => {
                let read = messages
                    .iter()
                    .filter_map(|message| Message::from_json(message.clone()).ok());
                for message in read {
                    self.take_in(&message);
                }
            }
            Event::Answer { content, .. } => self.answered(content),
            Event::Result {
                tool_use_id,
                content,
                is_error,
                ..
            } => {
                if self
                    .running
                    .take_if(|running| running == tool_use_id)
                    .is_some()
                {
                    self.result = Some((content.clone(), *is_error));
                } else {
                    self.read(content, true);
                }
            }
            // Messages that were not read by then belong to the next piece of work, unless this one
            // was given up.
            Event::Idle { .. } => {
                self.result = None;
                self.before = String::new();
            }
            Event::Left { .. } => {
                *self = Self {
                    conversation: self.conversation,
                    calls: self.calls,
                    ..Self::new(self.name.clone())
                }
            }
            _ => {}
        }
    }

    /// Answers with the output of the agent, or with the call that runs it.
    ///
    /// # Errors
    /// [`ModelError::Failed`] if it has failed.
    pub fn answer(&self, gate: Gate) -> Result<Event, ModelError> {
        let content = match &self.result {
            // Further messages have arrived; the agent reads them before the work ends.
            Some((text, _)) if self.is_work => vec![said(text), self.run()],
            Some((why, true)) => return Err(ModelError::Failed(format!("{}{why}", self.before))),
            Some((plan, false)) if gate == Gate::Closed && self.name != Name::lead() => {
                vec![self.call("plan_approval", json!({ "plan": plan }))]
            }
            Some((text, false)) => vec![said(&format!("{}{text}", self.before))],
            None => vec![self.run()],
        };
        Ok(Event::Answer {
            content,
            usage: Usage::default(),
            cut: None,
            length: None,
            model_calls: 1,
        })
    }

    fn run(&self) -> Block {
        self.call(RUN, json!({ "input": self.input }))
    }

    fn call(&self, name: &str, input: serde_json::Value) -> Block {
        let id = format!("call-{}-{}", self.conversation, self.calls + 1);
        Block::ToolUse {
            id,
            name: name.to_owned(),
            input,
            message_id: None,
            request_id: None,
        }
    }

    fn answered(&mut self, content: &[Block]) {
        let result = self.result.take();
        if self.is_work
            && let Some((text, _)) = result
        {
            self.before.push_str(&format!("{text}\n\n"));
        }
        for block in content {
            let Block::ToolUse { id, name, .. } = block else {
                continue;
            };
            self.calls += 1;
            if name == RUN {
                self.running = Some(id.clone());
                self.input = String::new();
                self.is_work = false;
            }
        }
    }

    /// Applies a message: an order as it is, any other message between tags that name its sender.
    fn take_in(&mut self, message: &Message) {
        let is_order =
            matches!(message.body, Body::Message) && [LEAD, USER].contains(&message.from.as_str());
        let text = match message.body {
            Body::PlanRequest { .. } => Some(format!("{}\n{PLAN_WANTED}", message.content)),
            _ if is_order => Some(message.content.clone()),
            _ => show(message, &self.name),
        };
        if let Some(text) = text {
            self.read(&text, message.starts_a_turn(&self.name));
        }
    }

    fn read(&mut self, text: &str, is_work: bool) {
        self.input.push_str(text.trim_end_matches('\n'));
        self.input.push('\n');
        self.is_work |= is_work;
    }
}

fn said(text: &str) -> Block {
    Block::Text {
        text: text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn mind() -> OneShot {
        let mut mind = OneShot::new(Name::new("alice").unwrap());
        mind.observe(&Event::Incarnation {
            incarnation: 1,
            conversation: 1,
            prompt: Some("build it".to_owned()),
            tools: teamd_shared::tool_set::ToolSet::default(),
        });
        mind
    }

    fn message(from: &str, content: &str) -> Event {
        let message = json!({"type": "message", "from": from, "content": content});
        Event::Messages {
            messages: vec![message],
        }
    }

    fn result(of: &Event, content: &str, is_error: bool) -> Event {
        let Event::Answer {
            content: blocks, ..
        } = of
        else {
            panic!()
        };
        let id = blocks.iter().find_map(|block| match block {
            Block::ToolUse { id, .. } => Some(id.clone()),
            _ => None,
        });
        Event::Result {
            tool_use_id: id.unwrap(),
            content: content.to_owned(),
            is_error,
            images: Vec::new(),
            killed_for_memory: None,
        }
    }

    /// Answers and applies the answer; returns the answer and its content.
    fn answers(mind: &mut OneShot, gate: Gate) -> (Event, Vec<Value>) {
        let answer = mind.answer(gate).unwrap();
        mind.observe(&answer);
        let Event::Answer { content, .. } = &answer else {
            panic!()
        };
        let blocks = content.iter().map(|block| match block {
            Block::ToolUse { name, input, .. } => json!([name, input]),
            Block::Text { text } => json!(text),
            Block::Opaque { .. } => panic!(),
        });
        let blocks = blocks.collect();
        (answer, blocks)
    }

    #[test]
    fn an_agent_is_run_once_for_a_piece_of_work_and_what_it_prints_is_the_answer() {
        let mut mind = mind();
        let (run, blocks) = answers(&mut mind, Gate::Open);
        assert_eq!(blocks, [json!(["run", {"input": "build it\n"}])]);
        mind.observe(&result(&run, "built", false));
        assert_eq!(answers(&mut mind, Gate::Open).1, [json!("built")]);
        mind.observe(&message("bob", "hurry"));
        let (_, blocks) = answers(&mut mind, Gate::Open);
        assert_eq!(
            blocks,
            [json!(["run", {"input": "<message from=\"bob\">\nhurry\n</message>\n"}])]
        );
    }

    #[test]
    fn what_comes_while_it_runs_is_read_by_the_next_process_of_the_same_work() {
        let mut mind = mind();
        let (run, _) = answers(&mut mind, Gate::Open);
        mind.observe(&result(&run, "built", false));
        mind.observe(&message("lead", "and test it"));
        let (run, blocks) = answers(&mut mind, Gate::Open);
        assert_eq!(
            blocks,
            [json!("built"), json!(["run", {"input": "and test it\n"}])]
        );
        mind.observe(&result(&run, "tested", false));
        assert_eq!(answers(&mut mind, Gate::Open).1, [json!("built\n\ntested")]);
    }

    #[test]
    fn what_it_prints_behind_a_closed_gate_is_its_plan_and_the_verdict_is_read() {
        let mut mind = mind();
        let (run, _) = answers(&mut mind, Gate::Closed);
        mind.observe(&result(&run, "I would build", false));
        let (plan, blocks) = answers(&mut mind, Gate::Closed);
        assert_eq!(
            blocks,
            [json!(["plan_approval", {"plan": "I would build"}])]
        );
        mind.observe(&result(&plan, "approved", false));
        assert_eq!(
            answers(&mut mind, Gate::Open).1,
            [json!(["run", {"input": "approved\n"}])]
        );
    }

    #[test]
    fn a_failure_is_the_end_of_the_work_and_is_not_run_again() {
        let mut mind = mind();
        let (run, _) = answers(&mut mind, Gate::Open);
        mind.observe(&result(&run, "exit code 3", true));
        assert_eq!(
            mind.answer(Gate::Open),
            Err(ModelError::Failed("exit code 3".to_owned()))
        );
    }
}
