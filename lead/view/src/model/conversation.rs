//! The conversation of one agent, followed: what its transcript has, and the text that arrives just
//! now.

use serde_json::Value;
use teamd_client::read::tail::Mark;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, TeamDir};
use teamd_shared::transcript::{Block, Event};

use super::entries::{EntryReader, NewEntries};
use super::image::ReadImage;
use super::parts::{ConversationPart, PartReader};

/// How many entries are shown at first, and how many more each time.
const PAGE: usize = 200;

/// A reader of one conversation.
pub(crate) struct FollowedConversation<'d> {
    /// Whose it is.
    pub name: Name,
    reader: EntryReader<'d>,
    read: PartReader,
    /// The parts, oldest first.
    pub parts: Vec<Placed>,
    /// The answer in progress.
    pub live: String,
    /// How many bytes of earlier entries are not shown.
    pub from: u64,
    /// The text of the last answer that is complete.
    complete: String,
}

/// A part and its place: that of its entry, and its number within the entry.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Placed {
    pub at: Mark,
    pub number: usize,
    /// When, in seconds since 1970.
    pub time: f64,
    pub part: ConversationPart,
    /// The call that it is, or whose result it is.
    pub call: Option<PlacedCall>,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlacedCall {
    /// Its id.
    pub id: String,
    /// The tool; empty beside the result.
    pub tool: String,
    /// Its input.
    pub input: Value,
}

/// Where an image is: which one of the result that stands at a place of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImagePlace {
    pub file: u64,
    pub offset: u64,
    pub number: usize,
}

impl<'d> FollowedConversation<'d> {
    /// Begins at the last entries of an agent's conversation.
    pub(super) fn begin(dir: &'d TeamDir, name: &Name) -> Result<Self, DirError> {
        let reader = EntryReader::begin(dir, name, PAGE)?;
        let from = reader.offset();
        let read = PartReader::new(name);
        let mut begun = Self {
            name: name.clone(),
            reader,
            read,
            parts: Vec::new(),
            live: String::new(),
            from,
            complete: String::new(),
        };
        begun.read()?;
        Ok(begun)
    }

    /// Shows more of the past.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn show_earlier(&mut self) -> Result<(), DirError> {
        let (from, earlier) = self.earlier(self.from)?;
        self.from = from;
        self.parts.splice(0..0, earlier);
        Ok(())
    }

    /// Returns the last parts that stand before a place, and the place where they begin.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn earlier(&self, before: u64) -> Result<(u64, Vec<Placed>), DirError> {
        let earlier = self.reader.before(before, PAGE)?;
        let from = earlier.places.first().map_or(0, |at| at.offset());
        Ok((from, placed(&mut PartReader::new(&self.name), &earlier)))
    }

    /// Returns an image of a result, if it is there and is shown.
    pub(crate) fn image(&self, place: ImagePlace) -> Option<ReadImage> {
        let entry = self.reader.entry_at(place.file, place.offset)?;
        let Event::Result { images, .. } = entry.event else {
            return None;
        };
        ReadImage::of(images.get(place.number)?).ok()
    }

    /// Reads what is new.
    pub(super) fn read(&mut self) -> Result<(), DirError> {
        let new = self.reader.read()?;
        for entry in &new.entries {
            if let Event::Answer { content, .. } = &entry.event
                && entry.call.is_none()
            {
                self.complete = content.iter().filter_map(Block::text).collect();
            }
        }
        let shown = self.parts.last().map(|placed| placed.at.file());
        let latest = new.places.last().map(|at| at.file());
        let parts = placed(&mut self.read, &new);
        if shown.is_some() && latest.is_some() && shown != latest {
            // The name has another conversation now.
            self.parts = Vec::new();
            self.from = 0;
        }
        self.parts.extend(
            parts
                .into_iter()
                .filter(|placed| latest == Some(placed.at.file())),
        );
        self.live = if self.read.in_turn() && new.live != self.complete {
            new.live
        } else {
            String::new()
        };
        Ok(())
    }
}

fn placed(read: &mut PartReader, new: &NewEntries) -> Vec<Placed> {
    new.places
        .iter()
        .zip(&new.entries)
        .flat_map(|(at, entry)| {
            let mut calls = calls(&entry.event).into_iter();
            let shown = read
                .of_entry(entry)
                .into_iter()
                .filter(|part| !matches!(part, ConversationPart::Detail(_)));
            shown
                .enumerate()
                .map(|(number, part)| Placed {
                    at: *at,
                    number,
                    time: entry.at,
                    call: if is_of_call(&part) {
                        calls.next()
                    } else {
                        None
                    },
                    part,
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

fn is_of_call(part: &ConversationPart) -> bool {
    matches!(
        part,
        ConversationPart::Call(_) | ConversationPart::Result { .. }
    )
}

/// Returns the calls of an answer, or the one whose result an entry is.
fn calls(event: &Event) -> Vec<PlacedCall> {
    match event {
        Event::Answer { content, .. } => content.iter().filter_map(call).collect(),
        Event::Result { tool_use_id, .. } => vec![PlacedCall {
            id: tool_use_id.clone(),
            tool: String::new(),
            input: Value::Null,
        }],
        _ => Vec::new(),
    }
}

fn call(block: &Block) -> Option<PlacedCall> {
    match block {
        Block::ToolUse {
            id, name, input, ..
        } => Some(PlacedCall {
            id: id.clone(),
            tool: name.clone(),
            input: input.clone(),
        }),
        Block::Text { .. } | Block::Opaque { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use teamd_shared::team_dir::TeamPath;

    fn entry(event: Value) -> String {
        let mut line = json!({"at": 1.0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}});
        line.as_object_mut()
            .unwrap()
            .extend(event.as_object().unwrap().clone());
        format!("{line}\n")
    }

    #[test]
    fn an_answer_in_progress_is_shown_until_it_is_complete() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let alice = Name::new("alice").unwrap();
        let write = |at: &TeamPath, text: &str| {
            teamd_shared::fs::replace(&dir, at, text.as_bytes()).unwrap()
        };
        let mut all = entry(
            json!({"entry": "incarnation", "incarnation": 1, "conversation": 1, "prompt": "go"}),
        );
        write(&TeamPath::transcript(&alice), &all);
        write(&TeamPath::live(&alice), "I lo");
        let mut conversation = FollowedConversation::begin(&dir, &alice).unwrap();
        assert_eq!(conversation.live, "I lo");
        let usage = json!({"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0});
        let content = json!([{"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "ls"}}]);
        all += &entry(json!({"entry": "answer", "usage": usage, "content": content}));
        all += &entry(
            json!({"entry": "result", "tool_use_id": "t", "content": "a\nb\n", "is_error": false}),
        );
        write(&TeamPath::transcript(&alice), &all);
        write(&TeamPath::live(&alice), "I look.");
        // Another file in its place is read from the start and replaces everything.
        conversation.read().unwrap();
        assert_eq!(conversation.live, "");
        let said = ConversationPart::Said {
            from: "prompt".to_owned(),
            text: "go".to_owned(),
        };
        let result = ConversationPart::Result {
            content: "a\nb\n".to_owned(),
            is_error: false,
            is_command: true,
            images: Vec::new(),
        };
        let parts = [
            said,
            ConversationPart::Answer("I look.".to_owned()),
            ConversationPart::Call("bash ls".to_owned()),
            result,
        ];
        let shown: Vec<ConversationPart> = conversation
            .parts
            .iter()
            .map(|it| it.part.clone())
            .collect();
        assert_eq!((&shown[1..], conversation.from), (&parts[..], 0));
        let called: Vec<&str> = conversation
            .parts
            .iter()
            .filter_map(|it| Some(it.call.as_ref()?.id.as_str()))
            .collect();
        assert_eq!(called, ["t", "t"], "a call and its result");
    }

    #[test]
    fn what_was_earlier_comes_page_by_page_and_nothing_is_told_twice() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let alice = Name::new("alice").unwrap();
        let usage = json!({"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0});
        let all: String = (0..2 * PAGE + 50).map(|n| {
            entry(
                json!({"entry": "answer", "usage": usage, "content": [{"type": "text", "text": format!("{n}")}]}),
            )
        }).collect();
        teamd_shared::fs::replace(&dir, &TeamPath::transcript(&alice), all.as_bytes()).unwrap();
        let mut conversation = FollowedConversation::begin(&dir, &alice).unwrap();
        let texts = |conversation: &FollowedConversation<'_>| {
            conversation
                .parts
                .iter()
                .map(|it| it.part.line())
                .collect::<Vec<_>>()
        };
        for first in [PAGE + 50, 50, 0, 0] {
            let expected: Vec<String> = (first..2 * PAGE + 50).map(|n| n.to_string()).collect();
            assert_eq!(
                (texts(&conversation), conversation.from == 0),
                (expected, first == 0)
            );
            conversation.show_earlier().unwrap();
        }
    }
}
