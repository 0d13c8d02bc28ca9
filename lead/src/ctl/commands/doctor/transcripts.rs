//! The transcripts: every entry can be read, and every call has one result, or is owed one. Judged entry by entry, pure.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};

use rustix::fs::OFlags;
use teamd_shared::inbox::owner_of;
use teamd_shared::json;
use teamd_shared::name::Name;
use teamd_shared::team_dir::{Kind, TeamPath};
use teamd_shared::transcript::{Block, Entry, Event};

use super::finding::Finding;
use super::seen::Seen;

const CHECK: &str = "transcripts";

/// What one transcript says, entry by entry.
#[derive(Debug, Default)]
struct Read {
    entries: usize,
    /// Lines that are no entries, and why the first is none.
    unreadable: Vec<usize>,
    why: Option<String>,
    /// Calls of the last answer that have no result yet.
    owed: HashSet<String>,
    /// Calls of the present conversation that have one.
    answered: HashSet<String>,
    /// Results of no call, or second ones: the line of the first.
    strange: Option<usize>,
    /// Answers that came while a call had no result: the line of the first.
    skipped: Option<usize>,
    torn: Option<(u64, usize)>,
}

/// Judges them.
pub(super) fn judge(seen: &Seen) -> Vec<Finding> {
    let (mut findings, mut entries, mut count) = (Vec::new(), 0, 0);
    for found in seen.in_folder(Some("transcript")).filter(|found| found.kind == Kind::File) {
        let Some(name) = owner_of(found.at.file_name()) else { continue };
        count += 1;
        match read(seen, &name) {
            Ok(read) => {
                entries += read.entries;
                findings.extend(read.findings(&name, lives(seen, &name)));
            }
            Err(why) => findings.push(
                Finding::problem(CHECK, why)
                    .about(format!("read {name}"))
                    .means(format!("{name} cannot be resumed")),
            ),
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            CHECK,
            format!("{count} transcripts, {entries} entries, every call answered or owed"),
        ));
    }
    findings
}

/// Whether a life of that name has not ended; `true` where nobody can tell.
fn lives(seen: &Seen, name: &Name) -> bool {
    let member = seen.team().map(|team| team.members.get(name));
    member.is_none_or(|member| member.is_some_and(|state| !state.record.phase.is_ended()))
}

fn read(seen: &Seen, name: &Name) -> Result<Read, String> {
    let at = TeamPath::transcript(name);
    let file = seen.dir.open_file(&at, OFlags::RDONLY).map_err(|error| error.to_string())?;
    let (mut read, mut offset, mut line) = (Read::default(), 0, Vec::new());
    let mut reader = BufReader::new(file);
    for number in 1.. {
        line.clear();
        let cannot = |error| format!("cannot read {}: {error}", seen.path(&at).display());
        let length = reader.read_until(b'\n', &mut line).map_err(cannot)?;
        match line.strip_suffix(b"\n") {
            None if length > 0 => read.torn = Some((offset, length)),
            None => break,
            Some(text) => read.take(number, text),
        }
        offset += length as u64;
    }
    Ok(read)
}

impl Read {
    fn take(&mut self, number: usize, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        match json::read::<Entry>(line) {
            Ok(entry) => {
                self.entries += 1;
                self.observe(number, entry.event);
            }
            Err(error) => {
                self.unreadable.push(number);
                self.why.get_or_insert_with(|| error.to_string());
            }
        }
    }

    fn observe(&mut self, number: usize, event: Event) {
        match event {
            // A conversation that begins leaves the one before behind, and what that was owed.
            Event::Life { incarnation, conversation, .. } if incarnation == conversation => {
                self.owed.clear();
                self.answered.clear();
            }
            Event::Answer { content, .. } => {
                if !self.owed.is_empty() {
                    self.skipped.get_or_insert(number);
                }
                self.owed = content.into_iter().filter_map(call).collect();
            }
            Event::Result { tool_use_id, .. } => {
                let owed = self.owed.remove(&tool_use_id);
                if !self.answered.insert(tool_use_id) || !owed {
                    self.strange.get_or_insert(number);
                }
            }
            // The life gave its work up: its calls are not answered any more.
            Event::Left { .. } => self.owed.clear(),
            _ => {}
        }
    }

    fn findings(&self, name: &Name, lives: bool) -> Vec<Finding> {
        let at = format!("transcript/{name}.jsonl");
        let mut findings = Vec::new();
        if let (Some(first), Some(why)) = (self.unreadable.first(), &self.why) {
            let count = self.unreadable.len();
            findings.push(
                Finding::problem(
                    CHECK,
                    format!(
                        "{} of {at} cannot be read as an entry; the first, line {first}: {why}",
                        super::finding::count(count, "line")
                    ),
                )
                .about(format!("unreadable {name} {first} {count}"))
                .means("another hand was in the file; the conversation goes on without them")
                .next(format!("`teamctl lint {at}` shows each; mend them while {name} does not run")),
            );
        }
        if let Some(line) = self.strange {
            findings.push(
                Finding::problem(
                    CHECK,
                    format!("line {line} of {at} is the result of no call, or a second one"),
                )
                .means("it is passed over when the conversation goes on"),
            );
        }
        if let Some(line) = self.skipped {
            findings.push(
                Finding::note(
                    CHECK,
                    format!("line {line} of {at} is an answer while calls before it have no result"),
                )
                .means("the model is told of those calls that they may have run"),
            );
        }
        if !lives && !self.owed.is_empty() {
            let count = self.owed.len();
            findings.push(
                Finding::note(
                    CHECK,
                    format!("without a result at the end of {at}: {}", super::finding::count(count, "call")),
                )
                .about(format!("owed {name}"))
                .means(
                    "they were running when the life ended; a resume tells the model that they may have run",
                ),
            );
        }
        if let Some((offset, length)) = self.torn {
            findings.push(
                Finding::note(CHECK, format!("{at} ends with {length} bytes without a newline"))
                    .about(format!("torn {name} {offset} {length}"))
                    .means("a worker was killed while it wrote; the next life sets them aside")
                    .next(format!("nothing; `teamctl spawn {name} --resume` goes on before them")),
            );
        }
        findings
    }
}

fn call(block: Block) -> Option<String> {
    match block {
        Block::ToolUse { id, .. } => Some(id),
        Block::Text { .. } | Block::Opaque { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(entries: &[Value]) -> Read {
        let mut read = Read::default();
        for (entry, number) in entries.iter().zip(1..) {
            let mut line = json!({"at": 1.0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}});
            line.as_object_mut().unwrap().extend(entry.as_object().unwrap().clone());
            read.take(number, line.to_string().as_bytes());
        }
        assert!(read.unreadable.is_empty(), "{read:?}");
        read
    }

    fn answer(ids: &[&str]) -> Value {
        let calls: Vec<_> =
            ids.iter().map(|id| json!({"type": "tool_use", "id": id, "name": "bash", "input": {}})).collect();
        json!({"entry": "answer", "content": calls, "usage": {"input_tokens": 0, "output_tokens": 0}})
    }

    fn result(id: &str) -> Value {
        json!({"entry": "result", "tool_use_id": id, "content": "", "is_error": false})
    }

    #[test]
    fn each_call_has_one_result_or_is_owed() {
        let alice = Name::new("alice").unwrap();
        let told = |entries: &[Value], lives| {
            let findings = read(entries).findings(&alice, lives);
            findings.into_iter().map(|finding| finding.what).collect::<Vec<_>>().join("; ")
        };
        let both = [answer(&["a", "b"]), result("a"), result("b"), answer(&[])];
        assert_eq!(told(&both, false), "");
        assert_eq!(told(&both[..2], true), "");
        assert_eq!(told(&both[..2], false), "without a result at the end of transcript/alice.jsonl: 1 call");
        let twice = [answer(&["a"]), result("a"), result("a")];
        assert_eq!(
            told(&twice, true),
            "line 3 of transcript/alice.jsonl is the result of no call, or a second one"
        );
        let skipped = [answer(&["a"]), answer(&[])];
        assert!(told(&skipped, true).starts_with("line 2 of transcript/alice.jsonl is an answer while"));
        let life = json!({"entry": "life", "incarnation": 2, "conversation": 2, "prompt": null});
        assert_eq!(told(&[answer(&["a"]), life, answer(&["a"]), result("a")], false), "");
    }
}
