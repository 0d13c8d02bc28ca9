//! What the entries of a transcript say, for every medium: the chat, the live views,
//! `teamctl transcript`. Pure; what shows a part escapes it.

use std::collections::HashSet;

use serde_json::Value;
use teamd_client::print::render::count;
use teamd_shared::message::{Body, IdleReason, Message};
use teamd_shared::name::Name;
use teamd_shared::todo::{TODO_WRITE, TodoList};
use teamd_shared::transcript::{Block, Cut, Entry, Event, Usage, text_of};

use super::image::{ImageFacts, described};

/// The longest line, in characters.
const LONGEST: usize = 160;
/// The longest failure, in characters: it ends with what to do.
const LONGEST_FAILURE: usize = 1000;

/// What stands before a line of a subagent.
const SUBAGENT: &str = "    ";

/// A part of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum ConversationPart {
    /// What the agent was sent: the sender, and the text.
    Said {
        /// The sender.
        from: String,
        /// The words.
        text: String,
    },
    /// The agent's answer, in Markdown.
    Answer(String),
    /// A call of a tool.
    Call(String),
    /// Its result.
    Result {
        /// What the tool returned.
        content: String,
        /// Whether the call failed.
        is_error: bool,
        /// Whether the tool ran a command.
        is_command: bool,
        /// What is said of its images.
        images: Vec<ImageFacts>,
    },
    /// Something beside the conversation.
    Aside(String),
    /// Something that went wrong.
    Failure(String),
    /// What only `teamctl transcript` shows.
    Detail(String),
}

impl ConversationPart {
    /// Says it in one line.
    pub fn line(&self) -> String {
        match self {
            Self::Said { from, text } => line(&format!("{from}: {}", line_and_more(text))),
            Self::Result {
                content,
                is_error,
                is_command,
                images,
            } => match images.first() {
                None => result(content, *is_error, *is_command),
                Some(first) => with_image(content, first),
            },
            Self::Failure(text) => text.trim().chars().take(LONGEST_FAILURE).collect(),
            Self::Call(text) => line_and_more(&format!("▸ {text}")),
            Self::Answer(text) | Self::Aside(text) | Self::Detail(text) => line_and_more(text),
        }
    }
}

/// A reader of the entries of one conversation, in their order.
#[derive(Debug)]
pub(crate) struct PartReader {
    name: Name,
    in_turn: bool,
    /// The calls of `bash` without a result yet.
    commands: HashSet<String>,
}

impl PartReader {
    /// Begins with nothing of an agent's conversation.
    pub(crate) fn new(name: &Name) -> Self {
        Self {
            name: name.clone(),
            in_turn: false,
            commands: HashSet::new(),
        }
    }

    /// Tells whether a turn is running, according to the entries.
    pub(crate) const fn in_turn(&self) -> bool {
        self.in_turn
    }

    /// Returns what the next entry says. What a subagent did stands further in, one line each.
    pub(crate) fn of_entry(&mut self, entry: &Entry) -> Vec<ConversationPart> {
        if entry.call.is_none() {
            return self.of(&entry.event);
        }
        let is_command = self.is_command(&entry.event);
        let parts = parts(&entry.event, is_command);
        let shown = parts
            .iter()
            .filter(|part| !matches!(part, ConversationPart::Detail(_)));
        shown
            .map(|part| ConversationPart::Aside(format!("{SUBAGENT}{}", part.line())))
            .collect()
    }

    /// Returns what the next entry of the agent itself says.
    pub(crate) fn of(&mut self, event: &Event) -> Vec<ConversationPart> {
        self.in_turn = match event {
            Event::Messages { .. } => self.in_turn || !event.is_rest(&self.name),
            Event::Rejected { .. } | Event::Restarted { .. } | Event::Compacted { .. } => {
                self.in_turn
            }
            _ => !event.is_rest(&self.name),
        };
        let is_command = self.is_command(event);
        parts(event, is_command)
    }

    /// Tells whether an entry is the result of a command.
    fn is_command(&mut self, event: &Event) -> bool {
        match event {
            Event::Answer { content, .. } => {
                self.commands.extend(content.iter().filter_map(command));
                false
            }
            Event::Result { tool_use_id, .. } => self.commands.remove(tool_use_id),
            _ => false,
        }
    }
}

/// Returns the id of a call that runs a command.
fn command(block: &Block) -> Option<String> {
    match block {
        Block::ToolUse { id, name, .. } if name == "bash" => Some(id.clone()),
        _ => None,
    }
}

/// Returns what an entry says: each of its messages is one part. `is_command` tells whether it is
/// the result of a command.
pub fn parts(event: &Event, is_command: bool) -> Vec<ConversationPart> {
    match event {
        Event::Incarnation {
            incarnation,
            conversation,
            prompt,
            tools: _,
        } => {
            let is_fresh = incarnation == conversation;
            let how = if is_fresh {
                "begins"
            } else {
                "continues the conversation"
            };
            let prompt = if is_fresh { prompt.clone() } else { None };
            let begins = ConversationPart::Aside(format!("── incarnation {incarnation} {how} ──"));
            let prompt = prompt.map(|text| ConversationPart::Said {
                from: "prompt".to_owned(),
                text,
            });
            [begins].into_iter().chain(prompt).collect()
        }
        Event::Messages { messages } if messages.is_empty() => vec![ConversationPart::Detail(
            "messages that are not for it, or were written twice, are passed over".to_owned(),
        )],
        Event::Messages { messages } => messages.iter().map(message).collect(),
        Event::Answer {
            content,
            usage,
            cut,
            ..
        } => answer(content, usage, *cut),
        Event::Charged { usage, .. } if usage.is_nothing() => Vec::new(),
        Event::Charged { usage, .. } => {
            vec![ConversationPart::Detail(format!("cost {}", tokens(usage)))]
        }
        Event::Result {
            content,
            is_error,
            images,
            ..
        } => {
            let (content, images) = described(content, images);
            vec![ConversationPart::Result {
                content,
                is_error: *is_error,
                is_command,
                images,
            }]
        }
        Event::Held { .. } => vec![ConversationPart::Aside("waits for memory".to_owned())],
        Event::Admitted { waited, .. } => {
            let begins = format!("begins after {waited:.0} s");
            vec![ConversationPart::Aside(begins)]
        }
        Event::Compacted { summary, .. } => vec![
            ConversationPart::Aside(
                "the conversation was long: the earlier part is now a summary".to_owned(),
            ),
            ConversationPart::Detail(summary.clone()),
        ],
        Event::Fallback { answers, reason } => {
            let what = format!("{answers} answers until this piece of work ends");
            vec![ConversationPart::Aside(with(&what, reason))]
        }
        Event::Asked { reason, .. } => {
            vec![ConversationPart::Aside(with("asked to shut down", reason))]
        }
        Event::Left { reason, .. } => vec![ConversationPart::Aside(with("left", reason))],
        Event::Idle {
            idle_reason,
            content,
            ..
        } => vec![ended(*idle_reason, content)],
        Event::Rejected { offset, reason, .. } => {
            vec![ConversationPart::Failure(format!(
                "the inbox line at offset {offset} is not a message: {reason}"
            ))]
        }
        Event::Restarted { reason } => {
            vec![ConversationPart::Failure(with(
                "the inbox is read again from its start",
                reason,
            ))]
        }
    }
}

fn answer(content: &[Block], usage: &Usage, cut: Option<Cut>) -> Vec<ConversationPart> {
    let text = text_of(content);
    // Its cost may be known later, and is reported then.
    let cost = if usage.is_nothing() {
        String::new()
    } else {
        format!(" {}", tokens(usage))
    };
    let mut parts = vec![ConversationPart::Detail(format!("answer{cost}"))];
    parts.extend((!text.trim().is_empty()).then_some(ConversationPart::Answer(text)));
    parts.extend(cut.map(|cut| {
        let why = match cut {
            Cut::Length => "it was too long",
            Cut::Refusal => "the model refused to continue",
        };
        ConversationPart::Failure(format!("the answer was cut: {why}"))
    }));
    parts.extend(content.iter().filter_map(|block| match block {
        Block::ToolUse { name, input, .. } => Some(ConversationPart::Call(call(name, input))),
        Block::Text { .. } | Block::Opaque { .. } => None,
    }));
    parts
}

fn with(what: &str, reason: &str) -> String {
    if reason.trim().is_empty() {
        what.to_owned()
    } else {
        format!("{what}: {reason}")
    }
}

fn tokens(usage: &Usage) -> String {
    format!("({} + {} tokens)", usage.input(), usage.output_tokens)
}

/// Returns the first line of a text that is not blank, cut where it is too long.
pub(crate) fn line(text: &str) -> String {
    let first = text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default()
        .trim_end();
    let mut shown: String = first.chars().take(LONGEST).collect();
    if shown.len() < first.len() {
        shown.push('…');
    }
    shown
}

/// Returns that line, and the number of lines that follow it.
pub(crate) fn line_and_more(text: &str) -> String {
    match text.lines().filter(|line| !line.trim().is_empty()).count() {
        0 | 1 => line(text),
        2 => format!("{} (+ 1 line)", line(text)),
        lines => format!("{} (+ {})", line(text), count(lines - 1, "line")),
    }
}

/// Describes a tool call. A single field needs no name.
pub(crate) fn call(name: &str, input: &Value) -> String {
    if name == TODO_WRITE
        && let Some(list) = TodoList::of_call(input)
    {
        let text = format!("todo {}\n{list}", list.summary());
        return text.trim_end().to_owned();
    }
    let fields: Vec<String> = match input.as_object() {
        Some(fields) if fields.len() == 1 => fields.values().map(value).collect(),
        Some(fields) => fields
            .iter()
            .map(|(name, field)| format!("{name}={}", value(field)))
            .collect(),
        None => vec![value(input)],
    };
    format!("{name} {}", fields.join(" ")).trim_end().to_owned()
}

fn value(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// Describes the result of a call in one line; of a command its exit code and the last line of its
/// output.
fn result(content: &str, is_error: bool, is_command: bool) -> String {
    let content = content.trim();
    if content.is_empty() || is_command && !is_error && content == "(no output)" {
        return "  ✓".to_owned();
    }
    if !is_command {
        return format!("  ↳ {}", line_and_more(content));
    }
    // How a command failed is in brackets below its output.
    let lines: Vec<&str> = content
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let notes = lines
        .iter()
        .rev()
        .take_while(|line| is_error && (line.starts_with('[') && line.ends_with(']')))
        .count();
    let (output, notes) = lines.split_at(lines.len() - notes);
    let how = notes
        .iter()
        .rev()
        .find(|note| note.starts_with("[exit code "))
        .or(notes.first());
    let how = how.map(|how| {
        how.trim_matches(['[', ']'])
            .replacen("exit code", "exit", 1)
    });
    let last = output.last().map(|last| match output.len() {
        1 => line(last),
        lines => format!("{} ({lines} lines)", line(last)),
    });
    format!(
        "  ↳ {}",
        how.into_iter().chain(last).collect::<Vec<_>>().join(" · ")
    )
}

/// Describes the result of a call that has an image in one line: it is named where the text begins
/// with something else.
fn with_image(content: &str, first: &ImageFacts) -> String {
    let text = line_and_more(content.trim());
    if text.is_empty() || text.contains(&first.text) {
        let more = text.split_once(']').map_or("", |(_, more)| more);
        return format!("  ↳ {}{more}", first.text);
    }
    format!("  ↳ {text} · {}", first.text)
}

/// Explains how a piece of work ended.
fn ended(reason: IdleReason, content: &str) -> ConversationPart {
    ConversationPart::Failure(match reason {
        IdleReason::Available => return ConversationPart::Detail("idle".to_owned()),
        IdleReason::Failed => format!("failed: {content}"),
        IdleReason::MaxTurns => "the work was ended: it took too many turns".to_owned(),
        IdleReason::MaxTokens => "the work was ended: it took too many tokens".to_owned(),
        IdleReason::MaxCost => "the work was ended: it cost too much".to_owned(),
        IdleReason::Interrupted => "interrupted".to_owned(),
    })
}

/// Describes a message that the agent has read; the text of one that tells it something is a part
/// of its own.
fn message(value: &Value) -> ConversationPart {
    let Ok(Message {
        from,
        content,
        body,
        ..
    }) = Message::from_json(value.clone())
    else {
        return ConversationPart::Aside(value.to_string());
    };
    let what = match &body {
        Body::Message | Body::Broadcast | Body::TaskAssignment { .. } => {
            return ConversationPart::Said {
                from,
                text: content,
            };
        }
        Body::Unknown { .. } => String::new(),
        Body::TeammateTerminated { name, .. } => {
            return ConversationPart::Aside(format!("{name} has ended"));
        }
        Body::Returned { .. } => return ConversationPart::Aside(content),
        // The plan itself is shown where it waits for its answer.
        Body::PlanApprovalRequest { request_id, .. } => {
            return ConversationPart::Aside(format!("{from} submits a plan ({request_id})"));
        }
        Body::PermissionRequest { request_id, .. } => format!(" asks for permission {request_id}"),
        Body::ReviewRequest { request_id, .. } => format!(" asks for review {request_id}"),
        Body::IdleNotification {
            idle_reason: IdleReason::Available,
            ..
        } => " is idle".to_owned(),
        Body::IdleNotification { idle_reason, .. } => {
            format!(" is idle ({})", idle_reason.as_str())
        }
        Body::PlanRequest { .. } => " asks for a plan".to_owned(),
        Body::PlanApprovalResponse {
            request_id,
            approve,
            ..
        } => {
            format!(
                " {} the plan {request_id}",
                if *approve { "approves" } else { "rejects" }
            )
        }
        Body::ShutdownRequest { .. } => " asks for a shutdown".to_owned(),
        Body::ShutdownResponse { approve, .. } => {
            format!(
                " {} the shutdown",
                if *approve { "approves" } else { "rejects" }
            )
        }
    };
    ConversationPart::Aside(with(&format!("{from}{what}"), content.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_subagent_did_stands_further_in_and_ends_no_turn() {
        let mut reader = PartReader::new(&Name::new("alice").unwrap());
        let mut read = |event: Value| {
            let mut line = json!({"at": 1.0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}, "call": "t1"});
            line.as_object_mut()
                .unwrap()
                .extend(event.as_object().unwrap().clone());
            let entry = serde_json::from_value(line).unwrap();
            let lines = reader
                .of_entry(&entry)
                .iter()
                .map(ConversationPart::line)
                .collect::<Vec<_>>();
            (lines, reader.in_turn())
        };
        let usage = json!({"input_tokens": 1, "output_tokens": 1, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0});
        let call =
            json!({"type": "tool_use", "id": "s1", "name": "bash", "input": {"command": "ls"}});
        let calls = read(json!({"entry": "answer", "usage": usage, "content": [call]}));
        assert_eq!(calls, (vec!["    ▸ bash ls".to_owned()], false));
        let result =
            json!({"entry": "result", "tool_use_id": "s1", "content": "a", "is_error": false});
        assert_eq!(read(result).0, ["      ↳ a"]);
    }

    #[test]
    fn a_call_and_its_result_are_one_line_each() {
        let called = |name, input: Value| ConversationPart::Call(call(name, &input)).line();
        assert_eq!(
            called("bash", json!({"command": "cargo test\nls"})),
            "▸ bash cargo test (+ 1 line)"
        );
        assert_eq!(
            called("edit_file", json!({"path": "a", "n": 1})),
            "▸ edit_file path=a n=1"
        );
        assert_eq!(called("list_teammates", json!({})), "▸ list_teammates");
        assert_eq!(called("odd", json!([1])), "▸ odd [1]");
        let steps = json!({"todos": [{"content": "Read", "status": "completed"}, {"content": "Write", "status": "in_progress"}]});
        assert_eq!(
            called("todo_write", steps.clone()),
            "▸ todo 1/2, now: Write (+ 2 lines)"
        );
        assert_eq!(
            call("todo_write", &steps),
            "todo 1/2, now: Write\n[x] Read\n[>] Write"
        );
        assert_eq!(
            result("\nok\n\nthen\nend\n", false, false),
            "  ↳ ok (+ 2 lines)"
        );
        assert_eq!(result(" \n", false, false), "  ✓");
        let long = result(&"x".repeat(500), false, false);
        assert_eq!(
            (long.chars().count(), long.ends_with('…')),
            (LONGEST + 5, true)
        );
    }

    #[test]
    fn the_result_of_a_command_is_its_exit_code_and_its_last_line() {
        let said = |content: &str, is_error| result(content, is_error, true);
        assert_eq!(said("(no output)", false), "  ✓");
        assert_eq!(said("line 1\n\nline 2\n", false), "  ↳ line 2 (2 lines)");
        assert_eq!(
            said("line 1\nline 2\n[exit code 1]", true),
            "  ↳ exit 1 · line 2 (2 lines)"
        );
        assert_eq!(
            said("[exit code 0]\n[exit code 7]\n[a note]", true),
            "  ↳ exit 7"
        );
        assert_eq!(
            said("[timed out after 2 s]", true),
            "  ↳ timed out after 2 s"
        );
        assert_eq!(said("the gate is closed", true), "  ↳ the gate is closed");
        assert_eq!(
            said("[exit code 1]", false),
            "  ↳ [exit code 1]",
            "a command that prints so has not failed"
        );
    }

    #[test]
    fn the_result_with_an_image_names_it_in_its_line() {
        let first = ImageFacts {
            text: "image: PNG, 1×1, 70B".to_owned(),
            size: None,
        };
        for (content, line) in [
            ("[image: PNG, 1×1, 70B]", "  ↳ image: PNG, 1×1, 70B"),
            (
                "[image: PNG, 1×1, 70B]\nfound\nit",
                "  ↳ image: PNG, 1×1, 70B (+ 2 lines)",
            ),
            (
                "seen\n[image: PNG, 1×1, 70B]",
                "  ↳ seen (+ 1 line) · image: PNG, 1×1, 70B",
            ),
            ("", "  ↳ image: PNG, 1×1, 70B"),
        ] {
            let part = ConversationPart::Result {
                content: content.to_owned(),
                is_error: false,
                is_command: false,
                images: vec![first.clone()],
            };
            assert_eq!(part.line(), line);
        }
    }

    #[test]
    fn a_message_names_its_sender_and_its_purpose() {
        let said = |value: Value| message(&value).line();
        let idle = json!({"type": "idle_notification", "from": "alice", "idle_reason": "available", "content": "done"});
        assert_eq!(said(idle), "alice is idle: done");
        assert_eq!(
            said(json!({"type": "message", "from": "bob", "content": "a\nb"})),
            "bob: a (+ 1 line)"
        );
        let ended = json!({"type": "teammate_terminated", "from": "teamd", "name": "bob", "exit": null, "content": ""});
        assert_eq!(said(ended), "bob has ended");
        assert_eq!(said(json!(7)), "7");
    }

    #[test]
    fn only_work_that_is_not_done_is_a_failure() {
        assert_eq!(
            ended(IdleReason::Available, "x"),
            ConversationPart::Detail("idle".to_owned())
        );
        assert_eq!(ended(IdleReason::Failed, "no key").line(), "failed: no key");
    }
}
