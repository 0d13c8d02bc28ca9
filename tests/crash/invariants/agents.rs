//! An agent was told each message once: its own log of what it was told says so, and not the
//! worker's transcript.

use std::collections::HashSet;

use serde_json::Value;

use crate::stage::{Checked, Stage, hold};

pub(super) fn check(stage: &Stage) -> Checked {
    let sessions = stage.of_agents("projects/work");
    let told: Vec<Value> = sessions.iter().flat_map(|session| lines(session)).collect();
    let again = told.iter().find(|entry| !entry["again"].is_null());
    hold(again.is_none(), || {
        format!("an agent was told again what its session has: {again:?}")
    })?;
    let told: Vec<&Value> = told
        .iter()
        .filter(|entry| entry["type"] == "user")
        .collect();
    let mut seen = HashSet::new();
    for message in &told {
        let id = message["uuid"].as_str().unwrap_or_default();
        hold(seen.insert(id), || {
            format!("an agent was told the message {id} twice: {message}")
        })?;
    }
    if sessions.is_empty() || stage.is_refused_something() {
        // Work that an error ends is told to the lead, who asks again: its messages need not have
        // reached the agent.
        return Ok(());
    }
    let taken = stage.taken_since_the_beginning("alice");
    for sent in stage.ledger.sent.iter().filter(|sent| sent.to == "alice") {
        if taken
            .iter()
            .any(|message| message["content"] == sent.text.as_str())
        {
            let times = told
                .iter()
                .filter(|message| text(message).contains(&sent.text))
                .count();
            hold(times == 1, || {
                format!(
                    "alice has consumed {:?}, and her agent was told {times} times",
                    sent.text
                )
            })?;
        }
    }
    Ok(())
}

fn text(message: &Value) -> &str {
    message["message"]["content"][0]["text"]
        .as_str()
        .unwrap_or_default()
}

fn lines(log: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}
