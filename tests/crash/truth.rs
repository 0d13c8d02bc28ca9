//! What was true already when a command was refused something: it must not tell otherwise.

use std::path::Path;

use serde_json::Value;
use teamd_shared::journal::{Line, MemberEvent, Record, read_lines};
use teamd_shared::request::Kind;

/// The state of a team at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Truth {
    journal: Vec<Line>,
    roster: Value,
}

impl Truth {
    /// Reads it from a team directory.
    pub(crate) fn look(team: &Path) -> Self {
        let read = |file: &str| std::fs::read(team.join(file)).unwrap_or_default();
        let journal = read_lines(&read("journal.jsonl"))
            .flatten()
            .map(|(_, line)| line)
            .collect();
        Self {
            journal,
            roster: serde_json::from_slice(&read("config.json")).unwrap_or_default(),
        }
    }

    /// Whether the incarnation that was asked last to leave had ended.
    pub(crate) fn has_left(&self, name: &str) -> bool {
        let asked = self
            .journal
            .iter()
            .rev()
            .find_map(|line| match &line.record {
                Record::Request(record) if record.request.kind == Kind::Shutdown => {
                    Some(&record.request).filter(|request| request.member() == name)
                }
                _ => None,
            });
        self.journal.iter().any(|line| match &line.record {
            Record::Member(record) if record.event == MemberEvent::Exited => {
                let incarnation = record
                    .ended_incarnation
                    .unwrap_or(record.member.incarnation);
                record.member.name.as_str() == name
                    && asked.is_some_and(|request| request.incarnation == incarnation)
            }
            _ => false,
        })
    }

    /// Whether an incarnation of a teammate after that one was up.
    pub(crate) fn is_up(&self, name: &str, after: i64) -> bool {
        let members = self.roster["members"].as_array().into_iter().flatten();
        let mut found = members.filter(|member| member["name"] == name);
        found.any(|member| {
            let status = member["status"].as_str().unwrap_or_default();
            member["incarnation"].as_i64() > Some(after)
                && ["idle", "working", "awaiting_approval"].contains(&status)
        })
    }
}
