//! The memory of a team: the requests of the kind `memory` that a person has accepted.
//!
//! `memory.md` is their projection. **Who writes**: the daemon alone, by rename, after the journal
//! has the line. **Who reads**: people; a teammate gets the same text from the daemon. **When the
//! daemon dies** before the file is written, the next one writes it at its start; the journal is
//! the truth.

use super::Team;
use crate::request::{Kind, Request, Status};

/// How long the text of the memory may be, in bytes: each fresh conversation begins with it.
pub const MAX_MEMORY: usize = 4096;

impl Team {
    /// Returns what is remembered, in the order in which it was accepted.
    pub fn memories(&self) -> Vec<&Request> {
        let requests = self.requests.values();
        let accepted = requests.filter(|it| it.kind == Kind::Memory);
        let mut accepted: Vec<&Request> = accepted
            .filter(|it| it.status == Status::Approved)
            .collect();
        let at = |request: &Request| request.resolved_at.unwrap_or_default();
        accepted.sort_by(|a, b| {
            let by_time = at(a).total_cmp(&at(b));
            by_time.then_with(|| a.request_id.cmp(&b.request_id))
        });
        accepted
    }

    /// Returns the text of the memory: each part quoted, with who proposed it. Empty if nothing is
    /// remembered.
    pub fn memory_text(&self) -> String {
        self.memories().into_iter().map(quoted).collect()
    }

    /// Returns how long the text would be with another part, in bytes.
    pub fn memory_with(&self, request: &Request) -> usize {
        self.memory_text().len() + quoted(request).len()
    }
}

fn quoted(request: &Request) -> String {
    let lines = quote(&request.payload.text());
    format!("{} ({}):\n{lines}\n", request.from, request.request_id)
}

/// Returns a text with each line marked as a quotation.
pub fn quote(text: &str) -> String {
    text.lines().map(|line| format!("> {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::journal::{Line, Record};

    fn apply(team: &mut Team, id: &str, status: &str, resolved_at: Option<f64>) {
        let line = json!({"seq": team.seq + 1, "at": 5.0, "done": 0, "record": "request", "event": "asked",
            "request_id": id, "kind": "memory", "from": "alice", "to": "lead", "status": status,
            "payload": {"remember": format!("text of {id}\nin two lines")}, "incarnation": 1,
            "message_id": "0190d5c0-0000-7000-8000-000000000001", "created_at": 1.0,
            "resolved_at": resolved_at, "reason": null});
        let line: Line = serde_json::from_value(line).unwrap();
        team.apply(&line).unwrap();
    }

    #[test]
    fn what_was_accepted_is_quoted_in_its_order_and_outlives_many_snapshots() {
        let mut team = Team::default();
        apply(&mut team, "aaaa0001", "approved", Some(9.0));
        apply(&mut team, "aaaa0002", "approved", Some(8.0));
        apply(&mut team, "aaaa0003", "pending", None);
        apply(&mut team, "aaaa0004", "rejected", Some(7.0));
        let text = "alice (aaaa0002):\n> text of aaaa0002\n> in two lines\n\n\
                    alice (aaaa0001):\n> text of aaaa0001\n> in two lines\n\n";
        assert_eq!(team.memory_text(), text);
        for number in 0..200 {
            let id = format!("bbbb{number:04}");
            apply(&mut team, &id, "rejected", Some(10.0 + f64::from(number)));
        }
        let Some(Record::Snapshot(snapshot)) = team.snapshot() else {
            panic!("no snapshot");
        };
        assert_eq!(snapshot.memory_text(), text);
        assert!(snapshot.requests.len() < 100);
    }
}
