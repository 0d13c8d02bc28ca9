//! The inbox lines that follow from a line of the journal: the same, id for id, whenever they are made. Pure.

use serde_json::{Map, json};
use teamd_shared::journal::{Line, MemberEvent, MemberRecord, Record, RequestRecord, Tell};
use teamd_shared::message::{Body, LEAD, Message, TEAMD};
use teamd_shared::name::Name;
use teamd_shared::request::{Payload, Status};

/// Makes the messages of a line.
pub(crate) fn messages(line: &Line) -> Vec<(Name, Message)> {
    let message = |tell: &Tell| Some((tell.to.clone(), message(line, tell)?));
    line.record.tell().iter().filter_map(message).collect()
}

fn message(line: &Line, tell: &Tell) -> Option<Message> {
    let to = tell.to.as_str();
    let new = |from: &str, body| Message::new(tell.id, from, to, line.at, body);
    match &line.record {
        Record::Team(record) => {
            let lines: Vec<_> =
                record.rejected.iter().map(|bad| format!("offset {}: {}", bad.offset, bad.reason)).collect();
            let text = format!(
                "{} in inbox/lead.jsonl could not be read and stand in inbox/lead.rejected.jsonl: {}",
                if lines.len() == 1 { "a line".to_owned() } else { format!("{} lines", lines.len()) },
                lines.join("; ")
            );
            Some(new(TEAMD, Body::Message).with_content(text))
        }
        Record::Member(record) => of_member(record).map(|(from, body, content)| {
            let mut message = new(from, body).with_content(content);
            message.extra = extra_of(record);
            message
        }),
        Record::Request(record) => of_request(record).map(|body| new(LEAD, body)),
    }
}

fn of_member(record: &MemberRecord) -> Option<(&'static str, Body, String)> {
    let member = &record.member;
    match record.event {
        MemberEvent::GateClosed => {
            let content = record.content.clone().unwrap_or_default();
            Some((LEAD, Body::PlanRequest, content))
        }
        MemberEvent::Exited => {
            let exit = member.exit.as_ref()?;
            let (name, unread) = (member.name.to_string(), exit.unread);
            let how = match (record.ended_incarnation, member.phase) {
                (Some(_), _) => format!("crashed and is started again as incarnation {}", member.incarnation),
                (None, teamd_shared::member::Phase::Shutdown) => "has shut down".to_owned(),
                (None, teamd_shared::member::Phase::Killed) => "was killed".to_owned(),
                (None, _) => "crashed".to_owned(),
            };
            let body = Body::TeammateTerminated { name: name.clone(), exit: exit_json(exit), unread };
            Some((TEAMD, body, format!("{name} {how}")))
        }
        _ => None,
    }
}

/// The `exit` object as messages and `config.json` show it to other programs.
fn exit_json(exit: &teamd_shared::member::Exit) -> serde_json::Value {
    json!({ "code": exit.code, "signal": exit.signal, "at": exit.at, "request_id": exit.request_id })
}

fn extra_of(record: &MemberRecord) -> Map<String, serde_json::Value> {
    let mut extra = Map::new();
    if record.event == MemberEvent::Exited {
        let ended = record.ended_incarnation.unwrap_or(record.member.incarnation);
        extra.insert("incarnation".to_owned(), json!(ended));
        extra.insert("restarted".to_owned(), json!(record.ended_incarnation.is_some()));
    }
    extra
}

fn of_request(record: &RequestRecord) -> Option<Body> {
    let request = &record.request;
    let request_id = request.request_id.clone();
    match (&request.payload, request.status) {
        (Payload::Shutdown { reason, decide_within, .. }, Status::Pending) => Some(Body::ShutdownRequest {
            request_id,
            incarnation: Some(request.incarnation),
            reason: reason.clone(),
            decide_within: Some(*decide_within),
        }),
        (Payload::Plan { .. }, Status::Approved | Status::Rejected) => Some(Body::PlanApprovalResponse {
            request_id,
            approve: request.status == Status::Approved,
            feedback: request.reason.clone().unwrap_or_default(),
        }),
        _ => None,
    }
}
