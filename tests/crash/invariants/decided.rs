//! What follows from a decision of the journal stands in the inboxes, and says what was decided;
//! and what only a decision leads to follows from one.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};
use teamd_shared::journal::{Line, MemberEvent, Record, RequestEvent};
use teamd_shared::request::Kind;

use crate::stage::{Checked, Stage, hold, lines_of};

/// The lines that only follow from a decision.
const DECIDED: [&str; 5] = [
    "shutdown_request",
    "plan_request",
    "plan_approval_response",
    "teammate_terminated",
    "returned",
];

/// Checks the inboxes, also those that lie in the archive.
pub(super) fn check(stage: &Stage) -> Checked {
    let mut told: HashSet<String> = HashSet::new();
    let mut inboxes: HashMap<String, HashMap<String, Value>> = HashMap::new();
    for line in stage.journal() {
        if let Some(name) = must_hear(&line) {
            let hears = line
                .record
                .tell()
                .iter()
                .any(|tell| tell.to.as_str() == name);
            hold(hears, || {
                format!(
                    "line {} of the journal concerns {name}, who is not told",
                    line.seq
                )
            })?;
        }
        for tell in line.record.tell() {
            told.insert(tell.id.to_string());
            let to = tell.to.as_str().to_owned();
            let inbox = inboxes
                .entry(to.clone())
                .or_insert_with(|| ids(&with_archive(stage, &to)));
            let Some(message) = inbox.get(&tell.id.to_string()) else {
                let seq = line.seq;
                let id = tell.id;
                return hold(false, || {
                    format!(
                        "line {seq} of the journal follows with {id} in the inbox of {to}, which has no such line"
                    )
                });
            };
            says(&line, message)?;
        }
    }
    for (to, lines) in &inboxes {
        for (id, line) in lines {
            let decided = line["type"]
                .as_str()
                .is_some_and(|sort| DECIDED.contains(&sort));
            hold(!decided || told.contains(id), || {
                format!("no decision leads to what stands in the inbox of {to}: {line}")
            })?;
        }
    }
    Ok(())
}

/// The member that must be told of a line of the journal.
fn must_hear(line: &Line) -> Option<&str> {
    match &line.record {
        Record::Member(record) if record.event == MemberEvent::Exited => Some("lead"),
        Record::Member(record)
            if record.event == MemberEvent::GateClosed && record.derived_from.is_none() =>
        {
            Some(record.member.name.as_str())
        }
        Record::Request(record) => match (record.request.kind, record.event) {
            (Kind::Shutdown, RequestEvent::Asked)
            | (Kind::PlanApproval, RequestEvent::Approved | RequestEvent::Rejected) => {
                Some(record.request.member())
            }
            _ => None,
        },
        Record::Member(_) | Record::Team(_) | Record::Task(_) | Record::Snapshot(_) => None,
    }
}

/// What is told is what was decided.
fn says(line: &Line, message: &Value) -> Checked {
    if let Record::Request(record) = &line.record
        && record.request.kind == Kind::Memory
    {
        // It is told in words.
        let id = record.request.request_id.to_string();
        return hold(message.to_string().contains(&id), || {
            format!(
                "line {} of the journal follows with {message}, which does not name {id}",
                line.seq
            )
        });
    }
    let expected = match &line.record {
        Record::Member(record) if message["type"] == "returned" => {
            let id = message["id"].as_str().unwrap_or_default();
            let mail = record
                .returned
                .iter()
                .find(|mail| mail.id.to_string() == id);
            let message_id = mail.map(|mail| mail.message_id.to_string());
            vec![
                ("name", json!(record.member.name.as_str())),
                ("message_id", json!(message_id)),
                ("text", json!(mail.map(|mail| &mail.text))),
            ]
        }
        Record::Request(record) => {
            let request = &record.request;
            let reason = json!(request.reason.clone().unwrap_or_default());
            let of_plan = request.kind == Kind::PlanApproval;
            let verdict = match record.event {
                RequestEvent::Approved if of_plan => Some(("approve", json!(true))),
                RequestEvent::Rejected if of_plan => Some(("approve", json!(false))),
                _ => None,
            };
            let feedback = verdict.is_some().then_some(("feedback", reason));
            let id = ("request_id", json!(request.request_id.to_string()));
            [Some(id), verdict, feedback]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
        }
        Record::Member(record) if record.event == MemberEvent::Exited => {
            let incarnation = record
                .ended_incarnation
                .unwrap_or(record.member.incarnation);
            vec![
                ("name", json!(record.member.name.as_str())),
                ("restarted", json!(record.ended_incarnation.is_some())),
                (
                    "unread",
                    json!(record.member.exit.as_ref().map(|exit| exit.unread)),
                ),
            ]
            .into_iter()
            .chain(
                record
                    .ended_incarnation
                    .is_none()
                    .then_some(("incarnation", json!(incarnation))),
            )
            .collect()
        }
        Record::Member(_) | Record::Team(_) | Record::Task(_) | Record::Snapshot(_) => Vec::new(),
    };
    for (field, value) in expected {
        hold(message[field] == value, || {
            format!(
                "line {} of the journal follows with a {field} of {value}, and {message} says another",
                line.seq
            )
        })?;
    }
    Ok(())
}

/// What a worker has noted that the lead is told is in the lead's inbox; what is no message is in
/// quarantine.
pub(super) fn notices(stage: &Stage, name: &str) -> Checked {
    let by_id = ids(&stage.team.inbox("lead"));
    let quarantine =
        lines_of(&stage.text_where_it_lives(name, &format!("inbox/{name}.rejected.jsonl")));
    let entries = stage.transcript(name);
    // A worker that was killed right behind its last entry tells in its next incarnation, if there
    // is one.
    let is_dead = matches!(stage.status(name).as_str(), "crashed" | "killed");
    let told = entries.len().saturating_sub(usize::from(is_dead));
    for (index, entry) in entries.iter().enumerate() {
        let sort = entry["entry"].as_str().unwrap_or_default();
        if index < told && (sort == "idle" || sort == "rejected") {
            let id = entry["message_id"].as_str().unwrap_or_default();
            hold(by_id.contains_key(id), || {
                format!("{name} has noted {sort}, and the lead was not told: {entry}")
            })?;
        }
        let is_kept = || {
            quarantine
                .iter()
                .any(|line| line["offset"] == entry["offset"])
        };
        hold(sort != "rejected" || is_kept(), || {
            format!("{name} could not read a line, and it is not in quarantine: {entry}")
        })?;
    }
    Ok(())
}

/// The inbox of a name, and those that lie in the archive.
pub(super) fn with_archive(stage: &Stage, name: &str) -> Vec<Value> {
    let mut lines = archived(stage, &format!(".inbox.{name}.jsonl"));
    lines.extend(stage.team.inbox(name));
    lines
}

/// The lines of the files of the archive whose names end so.
pub(super) fn archived(stage: &Stage, end: &str) -> Vec<Value> {
    let archive = std::fs::read_dir(stage.team.path("archive"))
        .into_iter()
        .flatten()
        .flatten();
    let files = archive.map(|file| file.file_name().to_string_lossy().into_owned());
    let files = files.filter(|file| file.ends_with(end));
    files
        .flat_map(|file| stage.team.lines(&format!("archive/{file}")))
        .collect()
}

/// The lines by their ids; of those with the same id the first.
pub(super) fn ids(lines: &[Value]) -> HashMap<String, Value> {
    lines
        .iter()
        .rev()
        .filter_map(|line| Some((line["id"].as_str()?.to_owned(), line.clone())))
        .collect()
}
