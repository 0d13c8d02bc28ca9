//! The conversation of one agent, followed: what its transcript has, and the text that arrives just now.

use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, TeamDir};
use teamd_shared::transcript::{Block, Event};

use super::entries::EntryReader;
use super::parts::{Part, Parts};

/// How many entries are shown at first.
const FIRST: usize = 200;

/// A reader of one conversation.
pub(in crate::ctl) struct Conversation<'d> {
    dir: &'d TeamDir,
    /// Whose it is.
    pub(in crate::ctl) name: Name,
    reader: EntryReader<'d>,
    read: Parts,
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
}

impl<'d> Conversation<'d> {
    /// Begins at the last entries of an agent's conversation.
    pub(super) fn begin(dir: &'d TeamDir, name: &Name) -> Result<Self, DirError> {
        Self::begin_at(dir, name, FIRST)
    }

    /// Shows more of the past.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(in crate::ctl) fn show_earlier(&mut self) -> Result<(), DirError> {
        *self = Self::begin_at(self.dir, &self.name, self.shown * 4)?;
        Ok(())
    }

    fn begin_at(dir: &'d TeamDir, name: &Name, shown: usize) -> Result<Self, DirError> {
        let reader = EntryReader::begin(dir, name, shown)?;
        let mut begun = Self {
            dir,
            name: name.clone(),
            has_earlier: !reader.is_at_start(),
            reader,
            read: Parts::new(name),
            shown,
            parts: Vec::new(),
            live: String::new(),
            complete: String::new(),
        };
        begun.read()?;
        Ok(begun)
    }

    /// Reads what is new.
    pub(super) fn read(&mut self) -> Result<(), DirError> {
        let new = self.reader.read()?;
        for entry in new.entries {
            if let Event::Answer { content, .. } = &entry.event {
                self.complete = content.iter().filter_map(Block::text).collect();
            }
            let parts = self.read.of(&entry.event).into_iter();
            self.parts.extend(parts.filter(|part| !matches!(part, Part::Detail(_))));
        }
        self.live = if self.read.in_turn() && new.live != self.complete { new.live } else { String::new() };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use teamd_shared::team_dir::TeamPath;

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
        let result = Part::Result { content: "a\nb\n".to_owned(), is_error: false, is_command: true };
        let parts = [said, Part::Answer("I look.".to_owned()), Part::Call("bash ls".to_owned()), result];
        assert_eq!(conversation.parts[1..], parts);
        assert!(!conversation.has_earlier);
    }
}
