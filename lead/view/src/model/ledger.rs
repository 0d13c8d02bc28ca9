//! What the conversations of all members say of their times: when each worked, and what its model
//! used. A transcript is read once, and then what is new of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use serde_json::Value;
use teamd_client::read::tail::{Mark, Tail};
use teamd_shared::json;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, TeamDir, TeamPath};
use teamd_shared::transcript::{Block, Entry, Event, Usage};

use super::past::TimeSpan;

/// What one conversation has used, and when its agent worked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConversationLedger {
    /// What its model used, oldest first.
    pub spent: Vec<SpentUsage>,
    /// From when to when it worked, and whether it finished that work itself.
    worked: Vec<(f64, f64, bool)>,
    /// Since when it works.
    since: Option<f64>,
    /// The time of the last entry.
    last: f64,
    /// What it has used of each MCP server.
    pub servers: BTreeMap<String, ServerUse>,
    /// The calls of such servers without a result, by their ids.
    calls: HashMap<String, ServerCall>,
}

/// What was used of an MCP server.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ServerUse {
    /// How many calls have a result.
    pub calls: u32,
    /// How many of those failed.
    pub failed: u32,
    /// How long they took, in seconds.
    pub seconds: f64,
}

impl std::ops::AddAssign for ServerUse {
    fn add_assign(&mut self, other: Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.failed = self.failed.saturating_add(other.failed);
        self.seconds += other.seconds;
    }
}

/// A call of a tool of an MCP server.
#[derive(Debug, Clone, PartialEq)]
struct ServerCall {
    server: String,
    /// Seconds since 1970.
    at: f64,
}

/// What one entry cost.
#[derive(Debug, Clone, PartialEq)]
pub struct SpentUsage {
    /// Seconds since 1970.
    pub at: f64,
    pub usage: Usage,
    /// The model, if that is not the recorded one.
    pub model: Option<String>,
    /// How many answers of the model began with it.
    pub turns: u32,
}

impl ConversationLedger {
    /// Takes in the next entry.
    pub fn entry(&mut self, name: &Name, entry: &Entry) {
        let at = entry.at;
        let event = &entry.event;
        let model = &entry.model;
        let ends = match event {
            Event::Idle { .. } | Event::Left { .. } => Some(true),
            // It did not finish the work before.
            Event::Incarnation { .. } => Some(false),
            _ => None,
        };
        if let Some((by_itself, from)) = ends.zip(self.since.take_if(|_| ends.is_some())) {
            self.worked.push((from, at, by_itself));
        }
        if self.since.is_none() && !event.is_rest(name) {
            self.since = Some(at);
        }
        self.last = at;
        self.server_call(at, event);
        self.spent.extend(match event {
            Event::Answer {
                usage, model_calls, ..
            }
            | Event::Charged { usage, model_calls } => Some(SpentUsage {
                at,
                usage: *usage,
                model: model.clone(),
                turns: *model_calls,
            }),
            Event::Compacted { usage, .. } => Some(SpentUsage {
                at,
                usage: *usage,
                model: model.clone(),
                turns: 0,
            }),
            _ => None,
        });
    }

    /// Takes in calls of MCP servers, and their results.
    fn server_call(&mut self, at: f64, event: &Event) {
        match event {
            Event::Answer { content, .. } => {
                for block in content {
                    if let Block::ToolUse {
                        id, name, input, ..
                    } = block
                        && let Some(server) = server_of(name, input)
                    {
                        self.calls.insert(id.clone(), ServerCall { server, at });
                    }
                }
            }
            Event::Result {
                tool_use_id,
                is_error,
                ..
            } => {
                if let Some(call) = self.calls.remove(tool_use_id) {
                    let used = ServerUse {
                        calls: 1,
                        failed: u32::from(*is_error),
                        seconds: (at - call.at).max(0.0),
                    };
                    *self.servers.entry(call.server).or_default() += used;
                }
            }
            _ => {}
        }
    }

    /// Returns when it worked: from what starts a turn to the end of that work, or of the process.
    pub(crate) fn worked(&self, exits: &[f64], runs: bool) -> Vec<TimeSpan> {
        let ended = self.worked.iter().map(|&(from, to, by_itself)| {
            if by_itself {
                (from, Some(to))
            } else {
                (
                    from,
                    Some(exit_after(exits, from).map_or(to, |exit| exit.min(to))),
                )
            }
        });
        let open = self.since.map(|from| {
            (
                from,
                if runs {
                    None
                } else {
                    exit_after(exits, from).or(Some(self.last))
                },
            )
        });
        ended.chain(open).collect()
    }
}

/// Returns the MCP server that a call of a tool is for, if it is one.
fn server_of(tool: &str, input: &Value) -> Option<String> {
    if tool != "mcp_call" {
        return None;
    }
    let name = input.get("name")?.as_str()?;
    let (server, _) = name.strip_prefix("mcp__")?.split_once("__")?;
    Some(server.to_owned())
}

/// Returns when a process ended that ran at a time.
fn exit_after(exits: &[f64], from: f64) -> Option<f64> {
    exits.iter().copied().find(|&exit| exit >= from)
}

/// The ledgers of all members.
#[derive(Debug, Default)]
pub(crate) struct Ledgers {
    read: BTreeMap<Name, (ConversationLedger, Option<Mark>)>,
    unread: BTreeSet<Name>,
    /// Whether anything that is shown needs them.
    is_wanted: bool,
}

impl Ledgers {
    /// Returns what is known of a member.
    pub(crate) fn of(&self, name: &Name) -> Option<&ConversationLedger> {
        self.read.get(name).map(|(ledger, _)| ledger)
    }

    /// Says that they are needed from now on; those of these members are read at first.
    pub(super) fn want(&mut self, members: impl Iterator<Item = Name>) {
        if !std::mem::replace(&mut self.is_wanted, true) {
            self.unread.extend(members);
        }
    }

    /// Notes that transcripts have changed.
    pub(super) fn changed(&mut self, members: impl Iterator<Item = Name>) {
        if self.is_wanted {
            self.unread.extend(members);
        }
    }

    /// Returns how many are still to be read.
    pub(crate) fn unread(&self) -> usize {
        self.unread.len()
    }

    /// Reads some of them, until a time.
    pub(super) fn read(&mut self, dir: &TeamDir, until: Instant) {
        while Instant::now() < until {
            let Some(name) = self.unread.pop_first() else {
                break;
            };
            let (ledger, mark) = self.read.remove(&name).unwrap_or_default();
            // One odd transcript must not hide the others.
            self.read.extend(
                go_on(dir, &name, ledger, mark)
                    .ok()
                    .map(|read| (name, read)),
            );
        }
    }
}

/// Reads a whole conversation.
pub fn ledger(dir: &TeamDir, name: &Name) -> Result<ConversationLedger, DirError> {
    go_on(dir, name, ConversationLedger::default(), None).map(|(ledger, _)| ledger)
}

/// Reads what is new; another transcript in its place is read from its start. An entry of a newer
/// program is left out.
fn go_on(
    dir: &TeamDir,
    name: &Name,
    mut ledger: ConversationLedger,
    mark: Option<Mark>,
) -> Result<(ConversationLedger, Option<Mark>), DirError> {
    let mut tail = Tail::new(dir, TeamPath::transcript(name));
    tail.resume(mark)?;
    if tail.mark() != mark {
        ledger = ConversationLedger::default();
    }
    loop {
        let lines = tail.read()?;
        if lines.is_empty() {
            return Ok((ledger, tail.mark()));
        }
        let entries = lines
            .iter()
            .filter_map(|line| json::read::<Entry>(line).ok());
        for entry in entries {
            ledger.entry(name, &entry);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    fn entry(at: f64, event: Value) -> Entry {
        let mut line = json!({"at": at, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}});
        line.as_object_mut()
            .unwrap()
            .extend(event.as_object().unwrap().clone());
        serde_json::from_value(line).unwrap()
    }

    fn conversation() -> Vec<Entry> {
        let begins = |n: u32| json!({"entry": "incarnation", "incarnation": n, "conversation": 1, "prompt": (n == 1).then_some("go")});
        let answer = json!({"entry": "answer", "content": [], "usage": {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}});
        let idle = json!({"entry": "idle", "idle_reason": "available", "content": "",
            "message_id": "018f0000-0000-7000-8000-000000000000"});
        let says = json!({"entry": "messages", "messages": [{"type": "message", "from": "lead", "content": "x"}]});
        vec![
            entry(0.0, begins(1)),
            entry(2.0, answer.clone()),
            entry(10.0, idle.clone()),
            entry(20.0, says.clone()),
            entry(21.0, answer),
            // Killed at 25, started again at 30.
            entry(30.0, begins(2)),
            entry(31.0, idle),
            entry(40.0, says),
        ]
    }

    /// What that conversation says.
    pub(in crate::model) fn of_alice() -> (Name, ConversationLedger) {
        let alice = Name::new("alice").unwrap();
        let mut ledger = ConversationLedger::default();
        for entry in conversation().iter() {
            ledger.entry(&alice, entry);
        }
        (alice, ledger)
    }

    #[test]
    fn calls_of_servers_are_counted_when_they_have_a_result() {
        let call = |id: &str, name: &str| {
            json!({"type": "tool_use", "id": id, "name": "mcp_call",
            "input": {"name": name, "arguments": {}}})
        };
        let usage = json!({"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0});
        let content = [
            call("a", "mcp__files__read"),
            call("b", "mcp__files__write"),
            call("c", "mcp__web__get"),
            call("d", "nothing"),
            json!({"type": "tool_use", "id": "e", "name": "bash", "input": {"name": "mcp__x__y"}}),
        ];
        let result = |id: &str, is_error: bool| {
            json!({"entry": "result", "tool_use_id": id,
            "content": "", "is_error": is_error})
        };
        let alice = Name::new("alice").unwrap();
        let mut ledger = ConversationLedger::default();
        for (at, event) in [
            (
                1.0,
                json!({"entry": "answer", "usage": usage, "content": content}),
            ),
            (1.5, result("a", false)),
            (3.0, result("b", true)),
            (3.0, result("d", false)),
            (3.0, result("e", false)),
        ] {
            ledger.entry(&alice, &entry(at, event));
        }
        let used = ServerUse {
            calls: 2,
            failed: 1,
            seconds: 2.5,
        };
        assert_eq!(ledger.servers, [("files".to_owned(), used)].into());
    }

    #[test]
    fn work_lasts_from_a_message_to_the_answer_or_to_the_end_of_the_process() {
        let (_, ledger) = of_alice();
        assert_eq!(
            ledger.worked(&[25.0], true),
            [(0.0, Some(10.0)), (20.0, Some(25.0)), (40.0, None)]
        );
        assert_eq!(ledger.worked(&[25.0, 45.0], false)[2], (40.0, Some(45.0)));
        assert_eq!(ledger.worked(&[25.0], false)[2], (40.0, Some(40.0)));
    }

    #[test]
    fn what_is_new_is_read_and_another_transcript_from_its_start() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let (alice, whole) = of_alice();
        let lines = conversation();
        let lines = lines
            .iter()
            .map(|entry| serde_json::to_string(entry).unwrap() + "\n");
        let at = TeamPath::transcript(&alice);
        let text: String = lines.collect();
        let (first, rest) = text.split_at(text.match_indices('\n').nth(2).unwrap().0 + 1);
        teamd_shared::fs::replace(&dir, &at, first.as_bytes()).unwrap();
        let mut ledgers = Ledgers::default();
        let soon = Instant::now() + std::time::Duration::from_secs(60);
        ledgers.changed([alice.clone()].into_iter());
        assert_eq!(ledgers.unread(), 0, "no view needs them");
        ledgers.want([alice.clone()].into_iter());
        ledgers.read(&dir, soon);
        assert_eq!(ledgers.of(&alice).unwrap().spent.len(), 1);
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(dir.path(&at))
            .unwrap();
        std::io::Write::write_all(&mut file, rest.as_bytes()).unwrap();
        for text in [None, Some(&text)] {
            if let Some(it) = text {
                teamd_shared::fs::replace(&dir, &at, it.as_bytes()).unwrap();
            }
            ledgers.changed([alice.clone()].into_iter());
            ledgers.read(&dir, soon);
            assert_eq!(ledgers.of(&alice), Some(&whole));
        }
    }
}
