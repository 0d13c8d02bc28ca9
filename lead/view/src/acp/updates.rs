//! What a conversation is in the protocol: each entry of the transcript, and the text that arrives
//! just now, as session updates. What agents wrote is escaped, since a client may show it at a
//! terminal.

use std::path::{Path, PathBuf};

use agent_client_protocol_schema::v1::{
    Content, ContentBlock, ContentChunk, Diff, SessionUpdate, TextContent, ToolCall,
    ToolCallContent, ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
    ToolKind,
};
use serde_json::Value;
use teamd_client::print::escape;
use teamd_shared::message::USER;
use teamd_shared::name::Name;
use teamd_shared::transcript::{Block, Event};

use crate::model::{ConversationPart, NewEntries, PartReader, call, line_and_more, parts};

/// The tools of agents by what they do: their names in lower case, without `_`.
const KINDS: [(&str, ToolKind); 21] = [
    ("bash", ToolKind::Execute),
    ("shell", ToolKind::Execute),
    ("execcommand", ToolKind::Execute),
    ("execute", ToolKind::Execute),
    ("readfile", ToolKind::Read),
    ("read", ToolKind::Read),
    ("readinbox", ToolKind::Read),
    ("writefile", ToolKind::Edit),
    ("write", ToolKind::Edit),
    ("editfile", ToolKind::Edit),
    ("edit", ToolKind::Edit),
    ("multiedit", ToolKind::Edit),
    ("notebookedit", ToolKind::Edit),
    ("applypatch", ToolKind::Edit),
    ("filechange", ToolKind::Edit),
    ("grep", ToolKind::Search),
    ("glob", ToolKind::Search),
    ("search", ToolKind::Search),
    ("webfetch", ToolKind::Fetch),
    ("websearch", ToolKind::Fetch),
    ("planapproval", ToolKind::SwitchMode),
];

/// The names of a file in the input of a tool.
const PATHS: [&str; 2] = ["path", "file_path"];
/// The names of the text that goes.
const OLD: [&str; 2] = ["old_text", "old_string"];
/// The names of the text that comes.
const NEW: [&str; 3] = ["new_text", "new_string", "content"];

/// A reader of one conversation.
#[derive(Debug)]
pub(super) struct UpdateReader {
    parts: PartReader,
    workspace: PathBuf,
    /// As much of the answer in progress as was told.
    told: String,
    /// The text of the last answer that is complete: it may still be the one in progress.
    complete: String,
    /// Whether the last update was text of the agent: the next text is another paragraph.
    is_after_text: bool,
    /// Whether the text in progress was looked at before.
    has_looked: bool,
}

impl UpdateReader {
    /// Begins with nothing of a conversation. Files that tools name are in this directory.
    pub(super) fn new(name: &Name, workspace: &Path) -> Self {
        Self {
            parts: PartReader::new(name),
            workspace: workspace.to_owned(),
            told: String::new(),
            complete: String::new(),
            is_after_text: false,
            has_looked: false,
        }
    }

    /// Returns the updates of the next entry, without the messages: who gets those depends on who
    /// has sent them.
    pub(super) fn entry(&mut self, event: &Event) -> Vec<SessionUpdate> {
        let parts = self.parts.of(event);
        match event {
            Event::Messages { .. } | Event::Idle { .. } => Vec::new(),
            Event::Incarnation { .. } => {
                self.told.clear();
                self.is_after_text = false;
                asides(parts)
            }
            Event::Answer { content, .. } => {
                let mut updates: Vec<SessionUpdate> = self.answer(content).into_iter().collect();
                updates.extend(asides(parts));
                for block in content {
                    if let Block::ToolUse {
                        id, name, input, ..
                    } = block
                    {
                        self.is_after_text = false;
                        updates.push(SessionUpdate::ToolCall(self.call(id, name, input)));
                    }
                }
                updates
            }
            Event::Result {
                tool_use_id,
                content,
                is_error,
                ..
            } => {
                let status = if *is_error {
                    ToolCallStatus::Failed
                } else {
                    ToolCallStatus::Completed
                };
                let fields = ToolCallUpdateFields::new()
                    .status(status)
                    .content(vec![text_content(&fenced(&escape::text(content)))]);
                let update = ToolCallUpdate::new(escape::line(tool_use_id).into_owned(), fields);
                vec![SessionUpdate::ToolCallUpdate(update)]
            }
            _ => asides(parts),
        }
    }

    /// Returns the update of the text that arrives just now, if there is more of it. `new` are the
    /// entries that were read after it.
    pub(super) fn live(&mut self, new: &NewEntries) -> Option<SessionUpdate> {
        let live = &new.live;
        if !std::mem::replace(&mut self.has_looked, true) {
            // It may be of an answer that was complete before. If not, its entry tells it.
            self.complete.clone_from(live);
        }
        let mut answers = new.entries.iter().filter_map(|entry| match &entry.event {
            Event::Answer { content, .. } if entry.call.is_none() => Some(text_of(content)),
            _ => None,
        });
        // It stays in its file until the next answer begins.
        let is_complete =
            self.complete == *live || answers.any(|answer| answer.starts_with(live.as_str()));
        if live.is_empty() || is_complete || !self.parts.in_turn() {
            return None;
        }
        self.more(live)
    }

    /// Returns the updates of what the agent was sent: the messages of an entry, and the prompt that
    /// a conversation begins with.
    pub(super) fn said(&mut self, event: &Event) -> Vec<SessionUpdate> {
        let is_mail = matches!(event, Event::Messages { .. });
        if !is_mail && !matches!(event, Event::Incarnation { .. }) {
            return Vec::new();
        }
        self.is_after_text = false;
        let said = parts(event, false)
            .into_iter()
            .filter_map(|part| match part {
                ConversationPart::Said { from, text } => {
                    let is_person = from == USER || !is_mail;
                    let text = if is_person {
                        text
                    } else {
                        format!("{from}: {text}")
                    };
                    Some(SessionUpdate::UserMessageChunk(chunk(&text)))
                }
                other if is_mail => aside(other),
                _ => None,
            });
        said.collect()
    }

    /// Tells whether a turn is running, according to the entries.
    pub(super) const fn in_turn(&self) -> bool {
        self.parts.in_turn()
    }

    /// The person has sent a prompt: what the agent says next is a text of its own.
    pub(super) fn prompted(&mut self) {
        self.is_after_text = false;
    }

    fn answer(&mut self, content: &[Block]) -> Option<SessionUpdate> {
        let text = text_of(content);
        let update = self.more(&text);
        self.told.clear();
        self.complete = text;
        update
    }

    /// Returns what of a text was not told.
    fn more(&mut self, text: &str) -> Option<SessionUpdate> {
        let more = match text.strip_prefix(self.told.as_str()) {
            Some("") => return None,
            Some(more) => more.to_owned(),
            // The model has begun again: what was told cannot be taken back.
            None => {
                self.is_after_text = true;
                self.told.clear();
                text.to_owned()
            }
        };
        let is_next = self.told.is_empty() && self.is_after_text;
        let between = if is_next { "\n\n" } else { "" };
        self.told = text.to_owned();
        self.is_after_text = true;
        let update = chunk(&format!("{between}{more}"));
        Some(SessionUpdate::AgentMessageChunk(update))
    }

    fn call(&self, id: &str, name: &str, input: &Value) -> ToolCall {
        let path = first(input, &PATHS).map(|path| self.workspace.join(&*escape::line(path)));
        let kind = kind_of(name);
        let mut content = Vec::new();
        if kind == ToolKind::Edit
            && let Some(path) = &path
            && let Some(new) = first(input, &NEW)
        {
            let old = first(input, &OLD).map(|old| escape::text(old).into_owned());
            let diff = Diff::new(path.clone(), escape::text(new)).old_text(old);
            content.push(ToolCallContent::from(diff));
        }
        let title = line_and_more(&call(name, input));
        ToolCall::new(escape::line(id).into_owned(), escape::line(&title))
            .kind(kind)
            .status(ToolCallStatus::InProgress)
            .locations(path.into_iter().map(ToolCallLocation::new).collect())
            .content(content)
            .raw_input(escaped(input))
    }
}

/// Returns what stands beside a conversation, as thoughts: clients show them, and fold them.
fn asides(parts: Vec<ConversationPart>) -> Vec<SessionUpdate> {
    parts.into_iter().filter_map(aside).collect()
}

fn aside(part: ConversationPart) -> Option<SessionUpdate> {
    match part {
        ConversationPart::Aside(_) | ConversationPart::Failure(_) => {
            Some(thought(&format!("{}\n", part.line())))
        }
        _ => None,
    }
}

/// Makes a thought of the agent.
pub(super) fn thought(text: &str) -> SessionUpdate {
    SessionUpdate::AgentThoughtChunk(chunk(text))
}

fn chunk(text: &str) -> ContentChunk {
    ContentChunk::new(text_block(&escape::text(text)))
}

fn text_block(text: &str) -> ContentBlock {
    ContentBlock::Text(TextContent::new(text))
}

/// Makes a text that belongs to a call.
pub(super) fn text_content(text: &str) -> ToolCallContent {
    ToolCallContent::Content(Content::new(text_block(text)))
}

/// Returns a text between fences that it does not contain: clients show Markdown, and a result is
/// none.
fn fenced(text: &str) -> String {
    let longest = text
        .split(|letter| letter != '`')
        .map(str::len)
        .max()
        .unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

/// Returns the text of an answer as it arrived: without anything between its parts.
fn text_of(content: &[Block]) -> String {
    content.iter().filter_map(Block::text).collect()
}

fn kind_of(name: &str) -> ToolKind {
    let name = name.replace('_', "").to_lowercase();
    let known = KINDS.iter().find(|(known, _)| *known == name);
    known.map_or(ToolKind::Other, |(_, kind)| *kind)
}

fn first<'v>(input: &'v Value, names: &[&str]) -> Option<&'v str> {
    names.iter().find_map(|name| input.get(name)?.as_str())
}

fn escaped(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(escape::text(text).into_owned()),
        Value::Array(values) => values.iter().map(escaped).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields =
                fields.map(|(name, value)| (escape::line(name).into_owned(), escaped(value)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
