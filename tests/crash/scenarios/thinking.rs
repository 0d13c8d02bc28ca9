//! Commands in the background, subagents, and what a team remembers.

use serde_json::json;

use crate::stage::{Checked, Stage, hold};

/// Two commands in the background: how each has ended is told once, by the worker that started it
/// or by the next one.
pub(super) fn background(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.want("alice");
    stage.spawn("alice", &[])?;
    stage.mark();
    let orders = |attempt| {
        let first = in_background(&format!("true; echo b1.{attempt} >> effects"));
        let second = in_background(&format!("sleep 0.02; echo b2.{attempt} >> effects; false"));
        format!("{first}\n{second}\nboth are started")
    };
    stage.send("alice", &orders, &[])?;
    stage.until_read("alice")?;
    stage.until("the end of each command to be read", |stage| {
        let began = began_in_background(stage, "alice");
        let told = ends_in_background(stage, "alice");
        began.iter().all(|number| told.contains(number))
    })
}

fn in_background(command: &str) -> String {
    let call = json!({"command": command, "run_in_background": true});
    format!("/bash {call}")
}

/// Returns the numbers of the commands in the background of which a model was told that they run.
pub(crate) fn began_in_background(stage: &Stage, name: &str) -> Vec<String> {
    let results = stage.transcript(name).into_iter();
    let texts = results.filter(|entry| entry["entry"] == "result" && entry["is_error"] != true);
    texts
        .filter_map(|entry| {
            number_behind("started in the background as ", entry["content"].as_str()?)
        })
        .collect()
}

/// Returns the numbers of the commands in the background of whose end a model was told.
pub(crate) fn ends_in_background(stage: &Stage, name: &str) -> Vec<String> {
    let entries = stage.transcript(name).into_iter();
    let messages =
        entries.flat_map(|entry| entry["messages"].as_array().cloned().unwrap_or_default());
    messages
        .filter(|message| message["from"] == "runtime")
        .filter_map(|message| {
            number_behind("Your background command ", message["content"].as_str()?)
        })
        .collect()
}

fn number_behind(words: &str, text: &str) -> Option<String> {
    let (_, rest) = text.split_once(words)?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit());
    Some(rest[..end.unwrap_or(rest.len())].to_owned())
}

/// A subagent that does something, and one that only looks: each call has one result, and what
/// follows it is done.
pub(super) fn delegate(stage: &mut Stage) -> Checked {
    stage
        .team
        .write("team.toml", "[tools]\ngroups = ['delegate']\n");
    stage.team.trust();
    stage.start()?;
    stage.want("alice");
    stage.spawn("alice", &[])?;
    stage.mark();
    let orders = |attempt| {
        format!(
            "/delegate /bash echo d1.{attempt} >> effects\\n/bash echo d2.{attempt} >> effects\\nlooked\n\
             /delegate /read_file team.toml\\nread\n/bash echo d3.{attempt} >> effects\nall is done"
        )
    };
    stage.send("alice", &orders, &[])?;
    stage.until_read("alice")
}

/// What a teammate proposes to remember is remembered once a person has accepted it, and once.
pub(super) fn remember(stage: &mut Stage) -> Checked {
    stage
        .team
        .write("team.toml", "[tools]\ngroups = ['memory']\n");
    stage.team.trust();
    stage.start()?;
    stage.want("alice");
    stage.spawn("alice", &[])?;
    stage.mark();
    let proposals = |attempt| format!("/remember {{\"text\": \"build with make {attempt}\"}}");
    stage.send("alice", &proposals, &[])?;
    stage.until_read("alice")?;
    let proposed = stage.team.requests("memory");
    for request in proposed {
        let id = request["request_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        stage.achieve(
            "accept it",
            |stage, _| stage.main(&["approve", &id]),
            |stage| stage.team.request(&id)["status"] == "approved",
        )?;
    }
    stage.until("the memory to hold what was accepted", |stage| {
        let text = stage.team.text(".team/memory.md");
        remembered(stage)
            .iter()
            .all(|id| text.matches(id).count() == 1)
    })?;
    let entries = stage.transcript("alice").into_iter();
    let told = entries
        .filter(|entry| entry["entry"] == "result" && entry["is_error"] != true)
        .count();
    let proposed = stage.team.requests("memory").len();
    hold(told <= proposed, || {
        format!("alice was told of {told} proposals, and there are {proposed}")
    })
}

/// Returns the ids of what was accepted.
fn remembered(stage: &Stage) -> Vec<String> {
    let requests = stage.team.requests("memory").into_iter();
    let accepted = requests.filter(|request| request["status"] == "approved");
    accepted
        .filter_map(|request| Some(request["request_id"].as_str()?.to_owned()))
        .collect()
}
