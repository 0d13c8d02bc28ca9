//! What follows from a line of the journal outside of it: the inbox lines (the same, id for id,
//! whenever they are made), and the names of archived files. Pure.

use serde_json::{Map, json};
use teamd_shared::amount::count;
use teamd_shared::inbox::MAX_RETURNED;
use teamd_shared::journal::{
    Line, MemberEvent, MemberRecord, Notice, Record, RejectedLine, RequestRecord, ReturnedMail,
    TaskRecord, quote,
};
use teamd_shared::member::{Ending, MemberStatus};
use teamd_shared::message::{ASKED_BY, Body, LEAD, Message, TEAMD};
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Payload, Request, Status};
use teamd_shared::task::{TaskEvent, TaskResult};
use teamd_shared::team_dir::TeamPath;

/// Makes the messages of a line.
pub(crate) fn messages(line: &Line) -> Vec<(Name, Message)> {
    line.record
        .tell()
        .iter()
        .filter_map(|tell| Some((tell.to.clone(), message(line, tell)?)))
        .collect()
}

/// Makes the message about a line that a member gets; none if it gets none.
pub(crate) fn message(line: &Line, tell: &Notice) -> Option<Message> {
    let to = tell.to.as_str();
    let new = |from: &str, body| Message::new(tell.id, from, to, line.at, body);
    match &line.record {
        Record::Team(record) => {
            let text = record
                .content
                .clone()
                .unwrap_or_else(|| quarantined(&record.rejected));
            Some(new(TEAMD, Body::Message).with_content(text))
        }
        Record::Member(record) => {
            if let Some(mail) = record.returned.iter().find(|mail| mail.id == tell.id) {
                return Some(returned(record, mail, line.at));
            }
            let (from, body, content) = of_member(record, line.seq)?;
            let mut message = new(from, body).with_content(content);
            message.extra = extra_of(record);
            Some(message)
        }
        Record::Request(record) => of_request(record).map(|body| match record.request.kind {
            Kind::Review => new(TEAMD, body).with_content(record.request.payload.text()),
            Kind::Memory => new(TEAMD, body).with_content(proposal(&record.request)),
            Kind::Shutdown | Kind::PlanApproval | Kind::Permission => new(LEAD, body),
        }),
        Record::Task(record) => {
            let (body, text) = of_task(record, to, line.seq)?;
            Some(new(TEAMD, body).with_content(text))
        }
        Record::Snapshot(_) => None,
    }
}

/// Says what happened to a task: to its owner, to the teammate that it is for, or to the lead in
/// one line.
fn of_task(record: &TaskRecord, to: &str, seq: u64) -> Option<(Body, String)> {
    let task = &record.task;
    let title = record.task.title();
    let by = &record.by;
    let more = record
        .content
        .as_ref()
        .map(|text| format!(": {text}"))
        .unwrap_or_default();
    if to == LEAD {
        let result = task.result.as_ref().map_or("no", TaskResult::verified);
        let who = task
            .submission
            .as_ref()
            .map(|it| format!(" by {}", it.by))
            .unwrap_or_default();
        let text = match record.event {
            TaskEvent::Completed => format!("{title} is completed{who}; verified: {result}"),
            TaskEvent::Failed => {
                format!(
                    "{title} has failed, after {}",
                    count(task.attempts as usize, "attempt")
                )
            }
            TaskEvent::Released => format!("{title} is released{more}"),
            TaskEvent::Returned => {
                format!(
                    "{title} was sent back {}: look at it",
                    count(task.returns as usize, "time")
                )
            }
            TaskEvent::Stalled => format!("the check of {title} could not run{more}"),
            _ => return None,
        };
        return Some((Body::Message, text));
    }
    let text = match record.event {
        TaskEvent::Claimed => {
            let text = [title, task.assignment()]
                .join("\n\n")
                .trim_end()
                .to_owned();
            return Some((
                Body::TaskAssignment {
                    task_id: Some(task.id),
                    subject: task.subject.clone(),
                    gate_closed: if task.plan { Some(seq) } else { None },
                },
                text,
            ));
        }
        TaskEvent::Created | TaskEvent::Assigned if task.reserved_for.as_deref() == Some(to) => {
            format!("{title} is for you: claim it with claim_task when you are ready")
        }
        TaskEvent::Reminded => {
            format!(
                "{title} is yours and not submitted: submit it with task_update (status completed), or release it (status pending)"
            )
        }
        TaskEvent::Returned => record.content.clone().unwrap_or_default(),
        TaskEvent::Failed => format!("{title} has failed; stop working on it{more}"),
        TaskEvent::Cancelled => format!("{by} has cancelled {title}; stop working on it"),
        TaskEvent::Edited => format!("{by} has changed {title}: look at it with task_get"),
        TaskEvent::Assigned | TaskEvent::Released => format!("{title} is not yours any more{more}"),
        _ => return None,
    };
    Some((Body::Message, text))
}

/// How many unreadable lines a notice to the lead lists.
const TOLD: usize = 3;

fn quarantined(rejected: &[RejectedLine]) -> String {
    let first = rejected
        .iter()
        .take(TOLD)
        .map(|bad| format!("offset {}: {}", bad.offset, bad.reason));
    let more = if rejected.len() > TOLD { "; …" } else { "" };
    let what = match rejected.len() {
        1 => "a line in inbox/lead.jsonl could not be read and stands".to_owned(),
        many => format!("{many} lines in inbox/lead.jsonl could not be read and stand"),
    };
    let first: Vec<_> = first.collect();
    format!(
        "{what} in inbox/lead.rejected.jsonl: {}{more}",
        first.join("; ")
    )
}

fn of_member(record: &MemberRecord, seq: u64) -> Option<(&'static str, Body, String)> {
    let member = &record.member;
    match record.event {
        MemberEvent::GateClosed => {
            let content = record.content.clone().unwrap_or_default();
            Some((
                LEAD,
                Body::PlanRequest {
                    gate_closed: Some(seq),
                },
                content,
            ))
        }
        MemberEvent::Spawning => Some((LEAD, Body::Message, record.content.clone()?)),
        MemberEvent::Silent | MemberEvent::Answering => Some((
            TEAMD,
            Body::Message,
            record.content.clone().unwrap_or_default(),
        )),
        MemberEvent::Exited => {
            let exit = member.exit.as_ref()?;
            let released: Vec<String> = record.released.iter().map(ToString::to_string).collect();
            let name = member.name.to_string();
            let unread = exit.unread;
            let how = match (record.ended_incarnation, member.phase) {
                (Some(_), _) => format!(
                    "crashed and is started again as incarnation {}",
                    member.incarnation
                ),
                (None, teamd_shared::member::Phase::Shutdown) => "has shut down".to_owned(),
                (None, teamd_shared::member::Phase::Killed) => "was killed".to_owned(),
                (None, teamd_shared::member::Phase::Lost) => "is lost with its host".to_owned(),
                (None, _) => "crashed".to_owned(),
            };
            // The note explains an end by the daemon itself, and one of which nothing was seen: it
            // never ran, for example.
            let unseen = exit.code.is_none() && exit.signal.is_none();
            let why = if unseen || matches!(exit.ending, Some(Ending::Hung | Ending::Limit)) {
                exit.note.as_ref()
            } else {
                None
            };
            let how = why.map_or(how.clone(), |why| format!("{how}: {why}"));
            let how = if released.is_empty() {
                how
            } else {
                format!("{how}; released: task {}", released.join(", "))
            };
            let how = match record.not_returned {
                0 => how,
                more => format!(
                    "{how}; only the first {MAX_RETURNED} unread messages come back, and {more} more stay in its inbox"
                ),
            };
            let body = Body::TeammateTerminated {
                name: name.clone(),
                exit: exit_json(exit),
                unread,
            };
            Some((TEAMD, body, format!("{name} {how}")))
        }
        _ => None,
    }
}

/// Makes the message by which a message comes back to its sender.
fn returned(record: &MemberRecord, mail: &ReturnedMail, at: f64) -> Message {
    let name = record.member.name.to_string();
    let is_forgotten = record.event == MemberEvent::Forgotten;
    let status = record.member.phase.ended_as();
    let why = if is_forgotten {
        "forgotten"
    } else {
        status.as_str()
    };
    let how = match status {
        _ if is_forgotten => "was forgotten",
        MemberStatus::Shutdown => "has shut down",
        MemberStatus::Killed => "was killed",
        MemberStatus::Lost => "is lost with its host",
        _ => "crashed",
    };
    // Nothing reads it by itself any more. A person can let it be read after all.
    let resume = if is_forgotten || status == MemberStatus::Lost {
        String::new()
    } else {
        format!(" (only `teamctl spawn {name} --resume` still lets {name} read it)")
    };
    let text = &mail.text;
    let content = format!("{name} {how} and had not read this{resume}: {text}");
    let body = Body::Returned {
        message_id: Some(mail.message_id),
        name,
        why: why.to_owned(),
        text: text.clone(),
    };
    Message::new(mail.id, TEAMD, &mail.from, at, body).with_content(content)
}

/// Returns the `exit` object as messages and `config.json` show it to other programs.
fn exit_json(exit: &teamd_shared::member::Exit) -> serde_json::Value {
    json!({ "code": exit.code, "signal": exit.signal, "at": exit.at, "request_id": exit.request_id })
}

fn extra_of(record: &MemberRecord) -> Map<String, serde_json::Value> {
    let mut extra = Map::new();
    if record.event == MemberEvent::Exited {
        let ended = record
            .ended_incarnation
            .unwrap_or(record.member.incarnation);
        extra.insert("incarnation".to_owned(), json!(ended));
        extra.insert(
            "restarted".to_owned(),
            json!(record.ended_incarnation.is_some()),
        );
        if record.agent {
            extra.insert(ASKED_BY.to_owned(), json!(LEAD));
        }
    }
    extra
}

fn of_request(record: &RequestRecord) -> Option<Body> {
    let request = &record.request;
    let request_id = request.request_id.clone();
    match (&request.payload, request.status) {
        (
            Payload::Shutdown {
                reason,
                decide_within,
                ..
            },
            Status::Pending,
        ) => Some(Body::ShutdownRequest {
            request_id,
            incarnation: Some(request.incarnation),
            reason: reason.clone(),
            decide_within: Some(*decide_within),
        }),
        (Payload::Plan { .. }, Status::Approved | Status::Rejected) => {
            Some(Body::PlanApprovalResponse {
                request_id,
                approve: request.status == Status::Approved,
                feedback: request.reason.clone().unwrap_or_default(),
            })
        }
        (Payload::Memory { .. }, Status::Pending) => Some(Body::Message),
        (Payload::Review(review), Status::Pending) => Some(Body::ReviewRequest {
            request_id,
            task_id: Some(review.task),
        }),
        _ => None,
    }
}

fn proposal(request: &Request) -> String {
    let id = &request.request_id;
    format!(
        "{} proposes to remember this (a person answers: `teamctl approve {id}`, or `reject`):\n\n{}",
        request.from,
        quote(&request.payload.text())
    )
}

/// Returns where a file goes that is archived with this `seq`.
pub(crate) fn archived(file: &TeamPath, seq: u64) -> TeamPath {
    let folder = file
        .relative()
        .parent()
        .map(|folder| folder.display().to_string())
        .unwrap_or_default();
    TeamPath::archive(&format!("{seq}.{folder}.{}", file.file_name()))
}

/// Returns the names that the files of a member have in the archive, if it is forgotten with this
/// `seq`.
pub(crate) fn archive_names(name: &Name, seq: u64) -> Vec<String> {
    TeamPath::of_member(name)
        .iter()
        .map(|file| archived(file, seq).to_string())
        .collect()
}
