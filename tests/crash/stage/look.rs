//! What a run's files say.

use teamd_shared::journal::{self, Line, Team as Fold};

use super::{Checked, Stage, Violation};

impl Stage {
    /// What `config.json` was, if it was no roster at some moment.
    pub(crate) fn unreadable(&self) -> Option<String> {
        self.unreadable.borrow().clone()
    }

    /// The whole lines of the journal, as far as they can be read.
    pub(crate) fn journal(&self) -> Vec<Line> {
        let bytes = std::fs::read(self.team.path("journal.jsonl")).unwrap_or_default();
        journal::read_lines(&bytes).flatten().map(|(_, line)| line).collect()
    }

    /// `config.json`, which can be read at every moment once it is there.
    pub(crate) fn roster(&self) -> serde_json::Value {
        let Ok(bytes) = std::fs::read(self.team.path("config.json")) else { return serde_json::Value::Null };
        serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            let text = String::from_utf8_lossy(&bytes);
            self.unreadable.borrow_mut().get_or_insert_with(|| format!("config.json: {error}: {text:?}"));
            serde_json::Value::Null
        })
    }

    pub(crate) fn member(&self, name: &str) -> serde_json::Value {
        let members = self.roster()["members"].as_array().cloned().unwrap_or_default();
        members.into_iter().find(|member| member["name"] == name).unwrap_or_default()
    }

    pub(crate) fn status(&self, name: &str) -> String {
        self.member(name)["status"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn incarnation(&self, name: &str) -> i64 {
        self.member(name)["incarnation"].as_i64().unwrap_or_default()
    }

    pub(crate) fn is_running(&self, name: &str) -> bool {
        ["idle", "working", "awaiting_approval"].contains(&self.status(name).as_str())
    }

    pub(crate) fn has_ended(&self, name: &str) -> bool {
        ["shutdown", "killed", "crashed"].contains(&self.status(name).as_str())
    }

    /// The state that the journal tells.
    pub(crate) fn fold(&self) -> Checked<Fold> {
        let bytes = std::fs::read(self.team.path("journal.jsonl")).unwrap_or_default();
        let mut fold = Fold::default();
        for line in journal::read_lines(&bytes) {
            let (number, line) = line.map_err(|bad| {
                Violation(format!(
                    "journal line {}: {}: {}",
                    bad.number,
                    bad.why,
                    String::from_utf8_lossy(bad.text)
                ))
            })?;
            fold.apply(&line).map_err(|error| Violation(format!("journal line {number}: {error}")))?;
        }
        Ok(fold)
    }

    /// What the daemons, and the worker that can be the victim, logged last.
    pub(crate) fn ends_of_logs(&self) -> String {
        let logs = [self.victim_log(), self.team.file("log/teamd.log"), self.team.file("log/alice.log")];
        let end = |log: &String| {
            let lines: Vec<&str> = log.lines().rev().take(12).collect();
            lines.iter().rev().map(|line| format!("    {line}\n")).collect::<String>()
        };
        logs.iter().map(end).collect::<Vec<_>>().join("    --\n")
    }

    pub(crate) fn victim_log(&self) -> String {
        std::fs::read_to_string(self.scratch.join("victim.err")).unwrap_or_default()
    }
}
