//! What a teammate was asked to do it does, also in a later incarnation. An inbox holds what was
//! sent to it, and nothing else.

use serde_json::Value;
use teamd_shared::message::Message;
use teamd_shared::name::Name;

use super::decided::{archived, ids, with_archive};
use crate::stage::{Checked, Stage, hold};

/// All members that can write to each other.
const NAMES: [&str; 6] = ["alice", "bob", "carol", "dave", "erin", "zoe"];

/// An idle teammate has done what it was asked to do.
pub(super) fn is_done(stage: &Stage) -> Checked {
    let roster = stage.roster();
    for member in roster["members"].as_array().into_iter().flatten() {
        let name = member["name"].as_str().unwrap_or_default();
        let unfinished = unfinished(name, &stage.transcript(name));
        hold(member["status"] != "idle" || unfinished.is_none(), || {
            format!("{name} is idle, and has not ended what it took in: {unfinished:?}")
        })?;
    }
    Ok(())
}

/// What has begun in a transcript and was not ended: from the prompt, or a message that is work, to
/// the next rest.
fn unfinished(name: &str, transcript: &[Value]) -> Option<Value> {
    let reader = Name::new(name).ok()?;
    let mut unfinished = None;
    for entry in transcript {
        match entry["entry"].as_str().unwrap_or_default() {
            "incarnation" if !entry["prompt"].is_null() => {
                unfinished = Some(entry["prompt"].clone())
            }
            "incarnation" if entry["incarnation"] == entry["conversation"] => unfinished = None,
            "messages" => {
                let work = entry["messages"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .find(|message| {
                        Message::from_json((*message).clone())
                            .is_ok_and(|message| message.starts_a_turn(&reader))
                    });
                unfinished = work.cloned().or(unfinished);
            }
            "idle" | "left" => unfinished = None,
            _ => {}
        }
    }
    unfinished
}

/// Checks what each teammate that ever ran has begun and said.
pub(super) fn check(stage: &Stage) -> Checked {
    for name in NAMES {
        let transcript = with_archived_lives(stage, name);
        begins_as_asked(stage, name, &transcript)?;
        has_told(stage, name, &transcript)?;
        for to in NAMES.into_iter().chain(["lead"]) {
            told_by(stage, (name, &transcript), to)?;
        }
    }
    Ok(())
}

/// A conversation begins with the prompt that it was spawned with, whichever of its incarnations is
/// the first to begin.
fn begins_as_asked(stage: &Stage, name: &str, transcript: &[Value]) -> Checked {
    let spawned = stage.team.journal();
    let spawned = spawned.iter().filter(|line| {
        line["event"] == "spawning"
            && line["name"] == name
            && line["incarnation"] == line["conversation"]
    });
    for spawning in spawned {
        let mut incarnations = transcript
            .iter()
            .filter(|entry| entry["entry"] == "incarnation");
        let first = incarnations
            .find(|incarnation| incarnation["conversation"] == spawning["conversation"]);
        hold(
            first.is_none_or(|incarnation| incarnation["prompt"] == spawning["prompt"]),
            || {
                format!(
                    "{name} was spawned with {}, and began with {first:?}",
                    spawning["prompt"]
                )
            },
        )?;
    }
    Ok(())
}

/// A message that the model was told is sent stands in the inbox of its receiver.
fn has_told(stage: &Stage, name: &str, transcript: &[Value]) -> Checked {
    let blocks = transcript
        .iter()
        .flat_map(|entry| entry["content"].as_array().into_iter().flatten());
    for call in blocks.filter(|block| block["name"] == "send_message") {
        let was_sent = transcript
            .iter()
            .find(|entry| entry["entry"] == "result" && entry["tool_use_id"] == call["id"])
            .is_some_and(|result| result["is_error"] == false);
        let to = call["input"]["to"].as_str().unwrap_or_default();
        let id = call["message_id"].as_str();
        hold(
            !was_sent || id.is_some_and(|id| ids(&with_archive(stage, to)).contains_key(id)),
            || {
                format!(
                    "{name} was told that it had written to {to}, whose inbox has no such line: {call}"
                )
            },
        )?;
    }
    Ok(())
}

/// What stands in an inbox as said by a teammate, that one has said: its transcript knows the id.
fn told_by(stage: &Stage, (author, transcript): (&str, &[Value]), to: &str) -> Checked {
    let knows = |id: &str| {
        transcript
            .iter()
            .any(|entry| entry.to_string().contains(id))
    };
    for line in with_archive(stage, to) {
        let is_mail = line["type"] == "message" || line["type"] == "broadcast";
        let id = line["id"].as_str().unwrap_or_default();
        hold(!is_mail || line["from"] != author || knows(id), || {
            format!("{author} does not know what it has written to {to}: {line}")
        })?;
    }
    Ok(())
}

/// All incarnations of a name, also those of forgotten members.
fn with_archived_lives(stage: &Stage, name: &str) -> Vec<Value> {
    let mut entries = archived(stage, &format!(".transcript.{name}.jsonl"));
    entries.extend(stage.transcript(name));
    entries
}
