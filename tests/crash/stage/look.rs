//! What a run's files say.

use std::path::PathBuf;

use serde_json::Value;
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
        journal::read_lines(&bytes)
            .flatten()
            .map(|(_, line)| line)
            .collect()
    }

    /// `config.json`, which can be read at every moment once it is there.
    pub(crate) fn roster(&self) -> Value {
        let unreadable = |why: String| {
            self.unreadable
                .borrow_mut()
                .get_or_insert_with(|| format!("config.json: {why}"));
            Value::Null
        };
        let bytes = match std::fs::read(self.team.path("config.json")) {
            Ok(bytes) => bytes,
            Err(error) if self.has_roster.get() => return unreadable(error.to_string()),
            Err(_) => return Value::Null,
        };
        self.has_roster.set(true);
        let roster = serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            unreadable(format!("{error}: {:?}", String::from_utf8_lossy(&bytes)))
        });
        self.hear(&roster);
        roster
    }

    /// Keeps which workers have told the daemon what they do: those that are connected, and have
    /// said how they are restarted. A status of idle or working proves nothing: the daemon before
    /// may have written that down.
    fn hear(&self, roster: &Value) {
        let Some(daemon) = roster["daemon"]["started_at"].as_f64() else {
            return;
        };
        let mut heard = self.heard.borrow_mut();
        for member in roster["members"].as_array().into_iter().flatten() {
            let says = member["activity"]
                .as_str()
                .is_some_and(|activity| !activity.is_empty());
            if let Some(name) = member["name"].as_str()
                && let Some(incarnation) = member["incarnation"].as_u64()
                && says
            {
                heard.insert((name.to_owned(), incarnation, daemon.to_bits()));
            }
        }
    }

    /// Whether a daemon (by when it began) was seen to know from a worker what that incarnation
    /// does.
    pub(crate) fn has_heard(&self, daemon: f64, name: &str, incarnation: u32) -> bool {
        self.heard
            .borrow()
            .contains(&(name.to_owned(), incarnation.into(), daemon.to_bits()))
    }

    pub(crate) fn member(&self, name: &str) -> Value {
        let members = self.roster()["members"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        members
            .into_iter()
            .find(|member| member["name"] == name)
            .unwrap_or_default()
    }

    pub(crate) fn status(&self, name: &str) -> String {
        self.member(name)["status"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    pub(crate) fn incarnation(&self, name: &str) -> i64 {
        self.member(name)["incarnation"]
            .as_i64()
            .unwrap_or_default()
    }

    pub(crate) fn is_running(&self, name: &str) -> bool {
        ["idle", "working", "awaiting_approval"].contains(&self.status(name).as_str())
    }

    pub(crate) fn has_ended(&self, name: &str) -> bool {
        ["shutdown", "killed", "crashed", "lost"].contains(&self.status(name).as_str())
    }

    /// The state that the journal tells.
    pub(crate) fn fold(&self) -> Checked<Fold> {
        let bytes = std::fs::read(self.team.path("journal.jsonl")).unwrap_or_default();
        let mut fold = Fold::default();
        for line in journal::read_lines(&bytes) {
            let (number, line) = line
                .map_err(|bad| Violation(format!("{bad}: {}", String::from_utf8_lossy(&bytes))))?;
            fold.apply(&line)
                .map_err(|error| Violation(format!("journal line {number}: {error}")))?;
        }
        Ok(fold)
    }

    /// What the daemons, and the worker that can be the victim, logged last.
    pub(crate) fn ends_of_logs(&self) -> String {
        let logs = [
            self.victim_log(),
            self.team.file("log/teamd.log"),
            self.text_where_it_lives("alice", "log/alice.log"),
            self.end_of_host_log(),
        ];
        logs.iter()
            .map(|log| {
                let lines: Vec<&str> = log.lines().rev().take(12).collect();
                lines
                    .iter()
                    .rev()
                    .map(|line| format!("    {line}\n"))
                    .collect::<String>()
            })
            .collect::<Vec<_>>()
            .join("    --\n")
    }

    /// Where the daemon keeps what is `git`'s of the team, once it does.
    pub(crate) fn git_home(&self) -> Option<PathBuf> {
        let all = self.team.home().join(".local/state/teamd/repositories");
        let mut homes = all.read_dir().ok()?;
        Some(homes.next()?.ok()?.path())
    }

    pub(crate) fn victim_log(&self) -> String {
        std::fs::read_to_string(self.scratch.join("victim.err")).unwrap_or_default()
    }
}
