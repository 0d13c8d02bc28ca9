//! Teammates whose mind is an agent of others, a stub of Claude Code: what it was told, by its own
//! account.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::Soak;
use crate::team::{Rng, Team};

/// The text of a message with this mark, in words that the stub understands.
pub(crate) fn order(team: &Team, rng: &mut Rng, to: &str, mark: &str) -> String {
    match rng.below(8) {
        0..3 => format!("$ echo {mark} >> made-{to}"),
        3 => format!(
            "@send_message {{\"to\": \"{}\", \"content\": \"relayed {mark}\"}}",
            team.any(rng)
        ),
        4 => format!(
            "{mark}\n$ sleep 0.{}; echo {mark} >> made-{to}",
            rng.below(9)
        ),
        5 => format!("{mark}\nfail 529"),
        6 => format!("{mark}\ndie"),
        _ => format!("say {mark}"),
    }
}

/// Each message that a teammate has consumed, its agent was told once.
pub(crate) fn were_told_once(soak: &Soak, name: &str, consumed: &[String]) {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for entry in sessions(soak, name).iter().flat_map(entries) {
        if !entry["again"].is_null() {
            soak.ledger.violation(format!(
                "the agent of {name} was told again what its session has: {entry}"
            ));
        }
        let text = entry["message"]["content"][0]["text"]
            .as_str()
            .unwrap_or_default();
        if entry["type"] == "user"
            && !text.contains("\nrelayed ")
            // What comes back repeats what its reader had sent.
            && !text.contains(" had not read this")
            && let Some(mark) = crate::check::mark_in(text)
        {
            *times.entry(mark).or_default() += 1;
        }
    }
    for mark in consumed {
        let times = times.get(mark).copied().unwrap_or_default();
        if times != 1 {
            soak.ledger.violation(format!(
                "{name} has consumed {mark}, and its agent was told {times} times"
            ));
        }
    }
}

fn sessions(soak: &Soak, name: &str) -> Vec<PathBuf> {
    let files = |folder: PathBuf| {
        std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|it| it.path())
    };
    let teams = files(soak.team.root().join("home/.local/state/teamd/agents"));
    teams
        .flat_map(|team| files(team.join(name).join("claude/projects/work")))
        .collect()
}

fn entries(session: &PathBuf) -> Vec<Value> {
    let text = std::fs::read_to_string(session).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}
