//! The conversation of one agent, followed: what its transcript has, and the text that arrives just now.

use std::collections::HashSet;
use std::io::Read;

use rustix::fs::OFlags;
use serde_json::Value;
use teamd_shared::message::Message;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};
use teamd_shared::transcript::{Block, Entry, Event, text_of};

use crate::ctl::chat::summary;
use crate::ctl::tail::Tail;

/// How many entries are shown at first.
const FIRST: usize = 200;

/// A part of a conversation, not yet escaped.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::ctl) enum Part {
    /// What the agent was told: by whom, and the text.
    Said { from: String, text: String },
    /// The agent's answer, in Markdown.
    Answer(String),
    /// A call of a tool, in one line.
    Call(String),
    /// Its result, in one line and whole.
    Result { line: String, content: String, is_error: bool },
    /// Something beside the conversation.
    Aside(String),
    /// Something that went wrong.
    Failure(String),
}

/// A reader of one conversation.
pub(in crate::ctl) struct Conversation<'d> {
    dir: &'d TeamDir,
    /// Whose it is.
    pub(in crate::ctl) name: Name,
    tail: Tail<'d>,
    /// How many entries of the past are shown.
    shown: usize,
    /// The parts, oldest first.
    pub(in crate::ctl) parts: Vec<Part>,
    /// The answer in progress.
    pub(in crate::ctl) live: String,
    /// Whether there may be earlier entries.
    pub(in crate::ctl) has_earlier: bool,
    /// The text of the last answer that is complete.
    complete: String,
    in_turn: bool,
    commands: HashSet<String>,
}

impl<'d> Conversation<'d> {
    /// Begins at the last entries of an agent's conversation.
    pub(super) fn begin(dir: &'d TeamDir, name: &Name) -> Result<Self, DirError> {
        let mut begun = Self {
            dir,
            name: name.clone(),
            tail: Tail::new(dir, TeamPath::transcript(name)),
            shown: FIRST,
            parts: Vec::new(),
            live: String::new(),
            has_earlier: false,
            complete: String::new(),
            in_turn: false,
            commands: HashSet::new(),
        };
        begun.begin_at_last()?;
        Ok(begun)
    }

    /// Shows more of the past.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(in crate::ctl) fn show_earlier(&mut self) -> Result<(), DirError> {
        self.shown *= 4;
        self.begin_at_last()
    }

    fn begin_at_last(&mut self) -> Result<(), DirError> {
        self.parts.clear();
        self.tail.begin(Some(self.shown), |line| !line.trim_ascii().is_empty())?;
        self.has_earlier = self.tail.mark().is_some_and(|mark| !mark.is_start());
        self.read()
    }

    /// Reads what is new.
    pub(super) fn read(&mut self) -> Result<(), DirError> {
        // In this order the entries have each answer whose text made room for the next one.
        let live = self.read_live()?;
        loop {
            let lines = self.tail.read()?;
            if lines.is_empty() {
                break;
            }
            // An entry of a newer program is not shown.
            let entries = lines.iter().filter_map(|line| serde_json::from_slice::<Entry>(line).ok());
            entries.for_each(|entry| self.entry(entry.event));
        }
        self.live = if self.in_turn && live != self.complete { live } else { String::new() };
        Ok(())
    }

    fn read_live(&self) -> Result<String, DirError> {
        let at = TeamPath::live(&self.name);
        let mut file = match self.dir.open_file(&at, OFlags::RDONLY) {
            Err(error) if error.is_not_found() => return Ok(String::new()),
            file => file?,
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(self.dir.cannot("read", &at))?;
        // The last character may not be complete yet.
        let complete = std::str::from_utf8(&bytes).map_or_else(|error| error.valid_up_to(), str::len);
        Ok(String::from_utf8_lossy(&bytes[..complete]).into_owned())
    }

    fn entry(&mut self, event: Event) {
        self.in_turn = match &event {
            Event::Messages { .. } => self.in_turn || !event.is_rest(&self.name),
            Event::Rejected { .. } | Event::Restarted { .. } | Event::Compacted { .. } => self.in_turn,
            _ => !event.is_rest(&self.name),
        };
        match event {
            Event::Incarnation { incarnation, conversation, prompt } => {
                let goes_on =
                    if incarnation == conversation { "begins" } else { "continues the conversation" };
                self.parts.push(Part::Aside(format!("── incarnation {incarnation} {goes_on} ──")));
                let prompt = prompt.filter(|_| incarnation == conversation);
                self.parts.extend(prompt.map(|text| Part::Said { from: "prompt".to_owned(), text }));
            }
            Event::Messages { messages } => self.parts.extend(messages.iter().map(said)),
            Event::Answer { content, cut, .. } => {
                let text = text_of(&content);
                self.complete = content.iter().filter_map(Block::text).collect();
                self.parts.extend((!text.trim().is_empty()).then_some(Part::Answer(text)));
                self.parts.extend(cut.map(|cut| Part::Failure(summary::cut(cut).to_owned())));
                self.calls(content);
            }
            Event::Result { tool_use_id, content, is_error } => {
                let line = summary::result(&content, is_error, self.commands.remove(&tool_use_id));
                self.parts.push(Part::Result { line, content, is_error });
            }
            event => self.parts.extend(summary::beside(&event).map(|(text, is_failure)| match is_failure {
                true => Part::Failure(text),
                false => Part::Aside(text),
            })),
        }
    }

    fn calls(&mut self, content: Vec<Block>) {
        for block in content {
            if let Block::ToolUse { id, name, input, .. } = block {
                self.parts.push(Part::Call(summary::call(&name, &input)));
                if name == "bash" {
                    self.commands.insert(id);
                }
            }
        }
    }
}

/// Says from whom a message is, and what it does; the text of one is shown whole.
fn said(value: &Value) -> Part {
    match Message::from_json(value.clone()) {
        Ok(message) if matches!(message.body.kind(), "message" | "broadcast" | "task_assignment") => {
            Part::Said { from: message.from, text: message.content }
        }
        _ => Part::Aside(summary::message(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(event: Value) -> String {
        let mut line = json!({"at": 1.0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}});
        line.as_object_mut().unwrap().extend(event.as_object().unwrap().clone());
        format!("{line}\n")
    }

    #[test]
    fn an_answer_in_progress_is_shown_until_it_is_complete() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let alice = Name::new("alice").unwrap();
        let write = |at: &TeamPath, text: &str| teamd_shared::fs::replace(&dir, at, text.as_bytes()).unwrap();
        let mut all = entry(json!({"entry": "life", "incarnation": 1, "conversation": 1, "prompt": "go"}));
        write(&TeamPath::transcript(&alice), &all);
        write(&TeamPath::live(&alice), "I lo");
        let mut conversation = Conversation::begin(&dir, &alice).unwrap();
        assert_eq!(conversation.live, "I lo");
        let usage = json!({"input_tokens": 3, "output_tokens": 5});
        let content = json!([{"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "ls"}}]);
        all += &entry(json!({"entry": "answer", "usage": usage, "content": content}));
        all += &entry(json!({"entry": "result", "tool_use_id": "t", "content": "a\nb\n", "is_error": false}));
        write(&TeamPath::transcript(&alice), &all);
        write(&TeamPath::live(&alice), "I look.");
        // Another file in its place is read from its start.
        conversation.show_earlier().unwrap();
        assert_eq!(conversation.live, "");
        let said = Part::Said { from: "prompt".to_owned(), text: "go".to_owned() };
        let result = Part::Result {
            line: "  ↳ b (2 lines)".to_owned(),
            content: "a\nb\n".to_owned(),
            is_error: false,
        };
        let parts = [said, Part::Answer("I look.".to_owned()), Part::Call("▸ bash ls".to_owned()), result];
        assert_eq!(conversation.parts[1..], parts);
        assert!(!conversation.has_earlier);
    }
}
