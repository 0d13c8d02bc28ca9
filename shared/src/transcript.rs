//! The entries of `transcript/NAME.jsonl`: the conversation with the model, and how far the inbox
//! is consumed.
//!
//! **Who writes**: the worker alone, under a `flock` on the file that it holds for its whole
//! incarnation and that its shims inherit: the lock *is* the incarnation. **Who reads**: the worker
//! when it continues after a crash, the daemon when an incarnation has ended (the position),
//! people. **When the worker dies** in the middle of an entry, the torn tail is cut off (and kept)
//! by the next incarnation; what the entry would have recorded did not happen, or is answered
//! "interrupted, may have run". Every entry carries the position behind the last message that was
//! consumed: the position is that of the last entry, and moves with the effect.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::fs::end_of_last_line;
use crate::id::RequestId;
use crate::image::Image;
use crate::json;
use crate::machine::memory::MemoryKill;
use crate::message::{IdleReason, Message};
use crate::name::Name;
use crate::position::Position;
use crate::team_dir::{DirError, TeamDir, TeamPath};
use crate::tool_set::ToolSet;
pub use crate::usage::Usage;

/// One entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// Seconds since 1970.
    pub at: f64,
    /// How far the inbox has been consumed.
    pub inbox: Position,
    /// The notices to the lead that follow from earlier entries, and could not be written by then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_notices: Vec<Uuid>,
    /// The call of `delegate` for whose subagent it happened: it belongs to the conversation of
    /// that subagent, and to the member's own only by its cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The model that it cost, if that is not the recorded one: a fallback that answers in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

json::record!(Entry, EntryPosition);

/// What happened in a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Event {
    /// An incarnation began. It is a fresh conversation if `conversation` equals `incarnation`.
    Incarnation {
        /// Which incarnation.
        incarnation: u32,
        /// The incarnation in which the conversation began.
        conversation: u32,
        /// What the conversation begins with, in its first incarnation.
        prompt: Option<String>,
        /// What the built-in agent is offered beyond the tools that are always there, in the first
        /// incarnation.
        #[serde(default, skip_serializing_if = "ToolSet::is_nothing")]
        tools: ToolSet,
    },
    /// Messages were consumed, as they were read: under the names of this project, whatever their
    /// writers called them.
    Messages {
        /// The messages.
        messages: Vec<Value>,
    },
    /// A line of the inbox was no message. It is in quarantine already; the notice to the lead
    /// follows, under this id.
    Rejected {
        /// Where the line begins.
        offset: u64,
        /// Why it is no message.
        reason: String,
        /// The id of the notice.
        message_id: Uuid,
    },
    /// A foreign program truncated or replaced the inbox; reading starts at its new beginning.
    Restarted {
        /// What was noticed.
        reason: String,
    },
    /// A shutdown request was shown to the model.
    Asked {
        /// The request.
        request_id: RequestId,
        /// Why.
        reason: String,
    },
    /// The model answered.
    Answer {
        /// Text and calls, in order.
        content: Vec<Block>,
        /// What it cost.
        usage: Usage,
        /// Why it ended, if not of its own accord.
        #[serde(skip_serializing_if = "Option::is_none")]
        cut: Option<Cut>,
        /// How many tokens the conversation has with it, if that is not the sum of what it cost:
        /// its service read the conversation several times for it.
        #[serde(skip_serializing_if = "Option::is_none")]
        length: Option<u64>,
        /// How many answers of the model begin with it, if not one: an answer of an agent can take
        /// several entries.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        model_calls: u32,
    },
    /// The cost of a model call without an answer (it failed, or was broken off), or one that an
    /// agent has reported outside its answers.
    Charged {
        /// What it cost.
        usage: Usage,
        /// How many answers of the model began with it.
        #[serde(default, skip_serializing_if = "crate::json::is_zero")]
        model_calls: u32,
    },
    /// The conversation was near the end of the model's window, or a person asked for it: what came
    /// before was put into a summary. What the model sees from here on begins with the summary and the last exchanges
    /// that were kept.
    Compacted {
        /// The summary of what the model no longer sees.
        summary: String,
        /// How many of the last answers, each with its results, the model still sees.
        kept: usize,
        /// What the summary cost.
        usage: Usage,
        /// Whether a person asked for it while there was no work.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        at_rest: bool,
    },
    /// The service of the model stayed overloaded: another model of it answers until the piece of
    /// work ends.
    Fallback {
        /// That model.
        answers: String,
        /// What the service said.
        reason: String,
    },
    /// A call waits until there is memory for it. It has not begun.
    Held {
        /// The call.
        tool_use_id: String,
    },
    /// A call that waited begins.
    Admitted {
        /// The call.
        tool_use_id: String,
        /// How long it waited, in seconds.
        waited: f64,
    },
    /// A call has its result.
    Result {
        /// The call.
        tool_use_id: String,
        /// What came out.
        content: String,
        /// Whether that is an error.
        is_error: bool,
        /// The images that belong to it: `content` has a text in the place of each.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<Image>,
        /// Whether the kernel has killed something of it for memory. Entries of before this was
        /// recorded say nothing of it: there it is a text in `content` alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        killed_for_memory: Option<MemoryKill>,
    },
    /// A piece of work ended; the notification to the lead follows, under this id.
    Idle {
        /// How it ended.
        idle_reason: IdleReason,
        /// All of the final answer.
        content: String,
        /// The id of the notification.
        message_id: Uuid,
        /// Whether the next piece of work begins at once: a message came during a call, and the
        /// model was not asked again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        goes_on: bool,
    },
    /// The worker ends by itself: the daemon has journaled the approval, or SIGTERM came.
    Left {
        /// Why.
        reason: String,
        /// Which incarnation.
        incarnation: u32,
        /// Whether SIGTERM ends it: the daemon that should learn this may be gone.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_signal: bool,
        /// Whether the next incarnation has work, as behind [`Event::Idle`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        goes_on: bool,
    },
}

/// A part of a model's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A call of a tool.
    ToolUse {
        /// Its id, unique in the transcript.
        id: String,
        /// The tool.
        name: String,
        /// Its input.
        input: Value,
        /// The id of the message that the call sends, chosen before it runs: a repeated call
        /// repeats the id.
        #[serde(skip_serializing_if = "Option::is_none")]
        message_id: Option<Uuid>,
        /// The id of the request that the call asks, likewise.
        #[serde(skip_serializing_if = "Option::is_none")]
        request_id: Option<RequestId>,
    },
    /// A part that only the model's service understands (such as its thinking), and wants back
    /// unchanged.
    Opaque {
        /// As the service sent it.
        value: Value,
    },
}

impl Block {
    /// Returns its text, if it is text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::ToolUse { .. } | Self::Opaque { .. } => None,
        }
    }
}

/// Returns all text of an answer, in order.
pub fn text_of(content: &[Block]) -> String {
    content
        .iter()
        .filter_map(Block::text)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Why an answer ended before the model was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// The limit of tokens of one answer was reached.
    Length,
    /// The model, or a filter of its service, refused to continue.
    Refusal,
}

fn one() -> u32 {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_one(count: &u32) -> bool {
    *count == 1
}

impl Event {
    /// Tells whether it is an entry that says what a model has cost.
    pub fn has_cost(&self) -> bool {
        matches!(
            self,
            Self::Answer { .. } | Self::Charged { .. } | Self::Compacted { .. }
        )
    }

    /// Tells whether a worker of this member waits after this entry, if it is the last one and
    /// there is no mail.
    pub fn is_rest(&self, of: &Name) -> bool {
        match self {
            Self::Idle { goes_on, .. } => !goes_on,
            Self::Compacted { at_rest, .. } => *at_rest,
            Self::Left { .. } | Self::Rejected { .. } | Self::Restarted { .. } => true,
            Self::Incarnation { prompt, .. } => prompt.is_none(),
            Self::Messages { messages } => !messages
                .iter()
                .filter_map(|value| Message::from_json(value.clone()).ok())
                .any(|message| message.starts_a_turn(of)),
            Self::Asked { .. }
            | Self::Answer { .. }
            | Self::Charged { .. }
            | Self::Held { .. }
            | Self::Admitted { .. }
            | Self::Result { .. }
            | Self::Fallback { .. } => false,
        }
    }
}

/// Returns how far a member has consumed its inbox: the position in the last whole entry of its
/// transcript.
///
/// None if it never wrote an entry, or none can be read.
///
/// # Errors
/// [`DirError`] if the system refuses.
pub fn position(dir: &TeamDir, name: &Name) -> Result<Option<Position>, DirError> {
    Ok(last::<EntryPosition>(dir, name)?.map(|entry| entry.inbox))
}

/// Tells which of these messages a member has consumed: its sender may have written a line twice.
///
/// # Errors
/// [`DirError`] if the system refuses.
pub fn consumed_of(
    dir: &TeamDir,
    name: &Name,
    ids: &BTreeSet<Uuid>,
) -> Result<BTreeSet<Uuid>, DirError> {
    let texts: Vec<String> = ids.iter().map(Uuid::to_string).collect();
    let consumed = RefCell::new(BTreeSet::new());
    let collect = |line: &[u8]| -> Option<()> {
        let line = std::str::from_utf8(line).ok()?;
        // Most entries name none of them, and need not be read as JSON.
        if !texts.iter().any(|id| line.contains(id.as_str())) {
            return None;
        }
        let Ok(Entry {
            event: Event::Messages { messages },
            ..
        }) = json::read(line.as_bytes())
        else {
            return None;
        };
        let read = messages
            .into_iter()
            .filter_map(|message| Message::from_json(message).ok());
        let known = read
            .filter_map(|message| message.id)
            .filter(|id| ids.contains(id));
        consumed.borrow_mut().extend(known);
        None
    };
    last_that(dir, name, collect)?;
    Ok(consumed.into_inner())
}

/// The fields of every entry.
#[derive(Serialize, Deserialize, JsonSchema)]
struct EntryPosition {
    inbox: Position,
}

/// The mark of the first entry of an incarnation.
const INCARNATION: &[u8] = b"\"incarnation\"";

/// Tells whether an incarnation has written anything: one that was not welcomed has not, and has
/// read nothing either.
///
/// # Errors
/// [`DirError`] if the system refuses.
pub fn has_begun(dir: &TeamDir, name: &Name, incarnation: u32) -> Result<bool, DirError> {
    // Entries of an earlier incarnation do not count: if they did, the mail of this one would be
    // lost.
    let last = last_beginning(dir, name)?;
    Ok(last.is_some_and(|last| last.incarnation >= incarnation))
}

/// How the last incarnation of a member began that has written anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BegunIncarnation {
    /// Which incarnation.
    pub incarnation: u32,
    /// The incarnation in which its conversation began: this numbers the conversation.
    pub conversation: u32,
}

/// Returns how the last incarnation of a member began that has written anything; none if there is
/// none.
///
/// # Errors
/// [`DirError`] if the system refuses.
pub fn last_beginning(dir: &TeamDir, name: &Name) -> Result<Option<BegunIncarnation>, DirError> {
    last_that(dir, name, |line| {
        // This is cheaper than parsing every entry.
        line.windows(INCARNATION.len())
            .find(|window| *window == INCARNATION)?;
        match json::read::<Entry>(line).ok()?.event {
            Event::Incarnation {
                incarnation,
                conversation,
                ..
            } => Some(BegunIncarnation {
                incarnation,
                conversation,
            }),
            _ => None,
        }
    })
}

/// Returns the last whole entry of a transcript; none if there is none, or none can be read.
///
/// # Errors
/// [`DirError`] if the system refuses.
pub fn last_entry(dir: &TeamDir, name: &Name) -> Result<Option<Entry>, DirError> {
    last(dir, name)
}

/// Reads the last whole line that is such a record. Foreign text behind it, such as a blank line,
/// is skipped, as the continuing worker skips it.
fn last<T: json::JsonRecord>(dir: &TeamDir, name: &Name) -> Result<Option<T>, DirError> {
    last_that(dir, name, |line| json::read(line).ok())
}

/// Finds the last whole line that can be read; only one line is in memory at a time.
fn last_that<T>(
    dir: &TeamDir,
    name: &Name,
    read: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, DirError> {
    let at = TeamPath::transcript(name);
    let file = match dir.open_file(&at, rustix::fs::OFlags::RDONLY) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let look = || -> std::io::Result<Option<T>> {
        let mut end = end_of_last_line(&file, file.metadata()?.len())?;
        while end > 0 {
            let start = end_of_last_line(&file, end - 1)?;
            let mut line = vec![0; usize::try_from(end - 1 - start).unwrap_or(usize::MAX)];
            file.read_exact_at(&mut line, start)?;
            if let Some(found) = read(&line) {
                return Ok(Some(found));
            }
            end = start;
        }
        Ok(None)
    };
    look().map_err(dir.cannot("read", &at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_starts_a_turn_is_no_rest() {
        let messages = |kind: &str| Event::Messages {
            messages: vec![json!({"type": kind, "from": "lead", "content": "x", "name": "bob"})],
        };
        let alice = Name::new("alice").unwrap();
        assert!(!messages("message").is_rest(&alice));
        assert!(messages("teammate_terminated").is_rest(&alice));
        let begins = |prompt: Option<&str>| Event::Incarnation {
            incarnation: 1,
            conversation: 1,
            prompt: prompt.map(str::to_owned),
            tools: ToolSet::default(),
        };
        assert!(begins(None).is_rest(&alice) && !begins(Some("/bash true")).is_rest(&alice));
    }

    #[test]
    fn an_answer_has_a_length_of_its_own_only_where_it_differs() {
        for length in [None, Some(7)] {
            let answer = Event::Answer {
                content: Vec::new(),
                usage: Usage::default(),
                cut: None,
                length,
                model_calls: 1,
            };
            let written = serde_json::to_value(&answer).unwrap();
            assert_eq!(written.get("length").is_some(), length.is_some());
            assert_eq!(serde_json::from_value::<Event>(written).unwrap(), answer);
        }
    }

    #[test]
    fn what_was_killed_for_memory_is_recorded_and_an_earlier_result_says_nothing_of_it() {
        let of = |killed_for_memory| Event::Result {
            tool_use_id: "c1".to_owned(),
            content: "[exit code 137; killed for memory: the kernel]".to_owned(),
            is_error: true,
            images: Vec::new(),
            killed_for_memory,
        };
        for (kill, word) in [
            (MemoryKill::Certain, "certain"),
            (MemoryKill::Probable, "probable"),
        ] {
            let written = serde_json::to_value(of(Some(kill))).unwrap();
            assert_eq!(written["killed_for_memory"], word);
            assert_eq!(
                serde_json::from_value::<Event>(written).unwrap(),
                of(Some(kill))
            );
        }
        let earlier = serde_json::to_value(of(None)).unwrap();
        assert!(earlier.get("killed_for_memory").is_none(), "{earlier}");
        assert_eq!(serde_json::from_value::<Event>(earlier).unwrap(), of(None));
    }

    #[test]
    fn an_incarnation_has_begun_when_its_first_entry_is_there() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let name = Name::new("alice").unwrap();
        assert!(!has_begun(&dir, &name, 1).unwrap());
        let entry = |event| {
            serde_json::to_string(&Entry {
                at: 1.0,
                inbox: Position::START,
                pending_notices: Vec::new(),
                call: None,
                model: None,
                event,
            })
            .unwrap()
        };
        let begins = entry(Event::Incarnation {
            incarnation: 1,
            conversation: 1,
            prompt: None,
            tools: ToolSet::default(),
        });
        let left = entry(Event::Left {
            reason: "x".to_owned(),
            incarnation: 1,
            by_signal: false,
            goes_on: false,
        });
        let has = |text: &str, incarnation| {
            crate::fs::replace(&dir, &TeamPath::transcript(&name), text.as_bytes()).unwrap();
            has_begun(&dir, &name, incarnation).unwrap()
        };
        let both = format!("{begins}\n{left}\n");
        assert!(has(&both, 1) && !has(&both, 2));
        // A torn beginning is none: nothing follows from it.
        assert!(!has(&format!("{both}{}", &begins[..20]), 2));
        let long = format!("{begins}\n{}", format!("{left}\n").repeat(20_000));
        assert!(has(&long, 1));
        // What an earlier incarnation has written is not this one's, however much it is.
        assert!(!has(&long, 2));
        assert!(has(
            &format!(
                "{long}{}\n",
                begins.replace(r#""incarnation":1"#, r#""incarnation":2"#)
            ),
            2
        ));
    }

    #[test]
    fn the_cursor_is_that_of_the_last_whole_entry() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let name = Name::new("alice").unwrap();
        assert_eq!(position(&dir, &name).unwrap(), None);
        let at = |offset| Entry {
            at: 1.0,
            inbox: Position { offset, tail: 7 },
            pending_notices: Vec::new(),
            call: None,
            model: None,
            event: Event::Left {
                reason: "x".to_owned(),
                incarnation: 1,
                by_signal: false,
                goes_on: false,
            },
        };
        let lines: Vec<_> = [3, 9]
            .map(|offset| serde_json::to_string(&at(offset)).unwrap())
            .into();
        let says = |text: &str| {
            crate::fs::replace(&dir, &TeamPath::transcript(&name), text.as_bytes()).unwrap();
            (
                position(&dir, &name).unwrap(),
                last_entry(&dir, &name).unwrap(),
            )
        };
        // A torn entry, and what a foreign hand has written behind the last one.
        for behind in ["{\"at\"", "\n", "\n \nx\n", &"y".repeat(20_000)] {
            let text = format!("{}\n{}\n{behind}", lines[0], lines[1]);
            assert_eq!(
                says(&text),
                (Some(Position { offset: 9, tail: 7 }), Some(at(9))),
                "{behind}"
            );
        }
        assert_eq!(says(&format!("\n{}", "z\n".repeat(5000))), (None, None));
        let long = Entry {
            event: Event::Left {
                reason: "x".repeat(20_000),
                incarnation: 1,
                by_signal: false,
                goes_on: false,
            },
            ..at(5)
        };
        let text = format!("{}\n{}\n", lines[0], serde_json::to_string(&long).unwrap());
        assert_eq!(
            says(&text),
            (Some(Position { offset: 5, tail: 7 }), Some(long))
        );
    }
}
