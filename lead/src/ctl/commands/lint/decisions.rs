//! What a second writer of journals gets wrong: lines that are read, and that no daemon decides.

use teamd_shared::journal::{Line, Record, RequestEvent, RequestRecord, Team};
use teamd_shared::request::Status;

/// Says what no daemon writes behind the lines before.
pub(super) fn illegal(before: &Team, line: &Line) -> Vec<String> {
    let mut found = Vec::new();
    if line.seq == 1 && line.version.is_none() {
        found.push("the first line has no version".to_owned());
    }
    if line.done < before.done {
        found.push(format!("done goes back from {} to {}", before.done, line.done));
    }
    if line.done >= line.seq {
        found.push(format!("done is {}: the effects of this line cannot be complete yet", line.done));
    }
    match &line.record {
        Record::Member(record) if record.derived_from.is_none() => {
            let (name, incarnation) = (&record.member.name, record.member.incarnation);
            let last = before.last_incarnation(name);
            if incarnation < last {
                found.push(format!("the incarnation of {name} goes back from {last} to {incarnation}"));
            }
        }
        Record::Request(record) if record.derived_from.is_none() => found.extend(of_request(before, record)),
        Record::Snapshot(snapshot) if !before.is_snapshot(snapshot) && before.seq > 0 => {
            found.push("the snapshot is not the state that the lines before it lead to".to_owned());
        }
        _ => {}
    }
    found
}

fn of_request(before: &Team, record: &RequestRecord) -> Option<String> {
    let (id, status) = (&record.request.request_id, record.request.status);
    let known = before.requests.get(id).map(|request| request.status);
    let after = match record.event {
        RequestEvent::Asked => Status::Pending,
        RequestEvent::Approved => Status::Approved,
        RequestEvent::Rejected => Status::Rejected,
        RequestEvent::Expired => Status::Expired,
        RequestEvent::Joined => known.unwrap_or(status),
    };
    match (record.event, known) {
        _ if status != after => Some(format!("the request {id} is {} after this event", after.as_str())),
        (RequestEvent::Asked, Some(_)) => Some(format!("the id {id} is taken")),
        (RequestEvent::Asked, None) | (_, Some(Status::Pending)) => None,
        (RequestEvent::Joined, Some(Status::Approved)) => None,
        (_, None) => Some(format!("the request {id} was never asked")),
        (_, Some(ended)) => Some(format!("the request {id} is {} already", ended.as_str())),
    }
}
