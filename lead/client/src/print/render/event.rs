//! A line of the journal as people read it:
//! `12:03:05  41  alice spawned (pid 4242, incarnation 1)`.

use teamd_shared::journal::{
    Line, MemberEvent, MemberRecord, Record, RequestEvent, RequestRecord, TaskRecord, TeamEvent,
    TeamRecord,
};
use teamd_shared::json;
use teamd_shared::member::{Ending, Member, Phase};
use teamd_shared::message::AnsweredBy;
use teamd_shared::task::TaskEvent;

use super::count;
use super::{DIM, exit, under};
use crate::print::grouping::headline;
use crate::print::style::paint;
use crate::print::{clock, escape};

/// Shows one line of the journal; as it is, if a newer program wrote it.
pub fn event(line: &[u8]) -> String {
    match json::read(line) {
        Ok(line) => of_line(&line),
        Err(_) => escape::text(&String::from_utf8_lossy(line)).into_owned(),
    }
}

/// Shows one line of the journal.
pub fn of_line(line: &Line) -> String {
    let (heading, text) = parts(&line.record);
    let text_follows = if text.is_empty() { "" } else { ": " };
    let front = paint(
        DIM,
        format_args!("{} {:>4}", clock::time_of_day(line.at), line.seq),
    );
    let more = match text.trim().lines().count() {
        0 | 1 => String::new(),
        lines => format!(" (+ {})", count(lines - 1, "line")),
    };
    under(
        &format!("{front}  {}{text_follows}", escape::line(&heading)),
        &format!("{}{more}", headline(&text)),
    )
}

/// Describes what was decided, and about which text; neither is escaped.
pub fn parts(record: &Record) -> (String, String) {
    match record {
        Record::Team(record) => (team(record), String::new()),
        Record::Member(record) => (member(record), String::new()),
        Record::Request(record) => request(record),
        Record::Task(record) => task(record),
        Record::Snapshot(_) => ("snapshot of the whole state".to_owned(), String::new()),
    }
}

fn team(record: &TeamRecord) -> String {
    let pid = record.daemon.as_ref().map_or(String::new(), |daemon| {
        format!(" (pid {})", daemon.process.pid)
    });
    match record.event {
        TeamEvent::Started => format!("the daemon runs{pid}"),
        TeamEvent::Stopping => "the daemon is about to end".to_owned(),
        TeamEvent::Staying => "the daemon stays: a teammate rejected the shutdown".to_owned(),
        TeamEvent::Stopped => "the daemon ended".to_owned(),
        TeamEvent::Read => "the daemon read lines of the lead's inbox".to_owned(),
        TeamEvent::Restored => "the daemon put files of the team back, or their modes".to_owned(),
        TeamEvent::Hosts => hosts(record),
        TeamEvent::Noted => record.content.clone().unwrap_or_default(),
    }
}

fn hosts(record: &TeamRecord) -> String {
    let list = record.hosts.as_ref().map(|hosts| &hosts.list);
    let names: Vec<&str> = list
        .into_iter()
        .flatten()
        .map(|host| host.name.as_str())
        .collect();
    if names.is_empty() {
        return "the team has no hosts".to_owned();
    }
    format!("the hosts of the team: {}", names.join(", "))
}

fn member(record: &MemberRecord) -> String {
    let member = &record.member;
    let name = &member.name;
    let incarnation = member.incarnation;
    let pid = member
        .process
        .as_ref()
        .map_or(String::new(), |process| format!("pid {}, ", process.pid));
    let because = record
        .derived_from
        .map_or(String::new(), |seq| format!(" (by {seq})"));
    match record.event {
        MemberEvent::Spawning if member.conversation < incarnation => {
            let before = member.conversation;
            format!(
                "{name} is spawned (incarnation {incarnation}), to continue the conversation of {before}"
            )
        }
        MemberEvent::Spawning => format!("{name} is spawned (incarnation {incarnation})"),
        MemberEvent::Spawned => format!("{name} runs ({pid}incarnation {incarnation})"),
        MemberEvent::Adopted => format!("{name} is adopted ({pid}incarnation {incarnation})"),
        MemberEvent::Ending => format!("{name} is ended by signals: {}", ending(member)),
        MemberEvent::Exited => exited(record),
        MemberEvent::GateOpened => format!("{name} may change things: gate open{because}"),
        MemberEvent::GateClosed => format!("{name} may change nothing: gate closed{because}"),
        MemberEvent::Forgotten => format!("{name} is forgotten"),
        MemberEvent::Silent => format!("{name} does not respond"),
        MemberEvent::Answering => format!("{name} responds again"),
    }
}

fn ending(member: &Member) -> &'static str {
    match member.ending {
        Some(Ending::Force) => "it was forced",
        Some(Ending::Overdue) => "it was released and is still there",
        Some(Ending::Sigterm) => "a process sent it SIGTERM",
        Some(Ending::Stop) => "the daemon was stopped",
        Some(Ending::Hung) => "it does not answer",
        Some(Ending::Limit) => "it reached a limit",
        None => "the reason is not recorded",
    }
}

fn exited(record: &MemberRecord) -> String {
    let member = &record.member;
    let how = member
        .exit
        .as_ref()
        .map_or(String::new(), |it| format!(" ({})", exit(it)));
    let name = &member.name;
    match member.phase {
        Phase::Shutdown => format!("{name} shut down{how}"),
        Phase::Killed => format!("{name} was killed{how}"),
        Phase::Lost => format!("{name} is lost with its host"),
        Phase::Crashed => format!("{name} crashed{how}"),
        Phase::Spawning | Phase::Running => {
            format!(
                "{name} crashed{how} and is restarted (incarnation {})",
                member.incarnation
            )
        }
    }
}

fn request(record: &RequestRecord) -> (String, String) {
    let request = &record.request;
    let what = format!(
        "{} of {} ({})",
        request.kind.noun(),
        request.member(),
        request.request_id
    );
    let by = match request.answered_by {
        Some(AnsweredBy::Model) => " by its model".to_owned(),
        Some(AnsweredBy::Runtime) => " by its runtime".to_owned(),
        None => match &request.answered_from {
            Some(process) => format!(" from {process}"),
            None => String::new(),
        },
    };
    let reason = request.reason.clone().unwrap_or_default();
    match record.event {
        RequestEvent::Asked => (format!("{what} asked"), request.payload.text()),
        RequestEvent::Joined => (format!("{what} asked again"), request.payload.text()),
        RequestEvent::Approved => (format!("{what} approved{by}"), reason),
        RequestEvent::Rejected => (format!("{what} rejected{by}"), reason),
        RequestEvent::Expired => {
            let because = record
                .derived_from
                .map_or(String::new(), |seq| format!(" (by {seq})"));
            (format!("{what} expired{because}"), reason)
        }
    }
}

fn task(record: &TaskRecord) -> (String, String) {
    let TaskRecord { task, by, .. } = record;
    let number = task
        .submission
        .as_ref()
        .map_or(0, |submission| submission.number);
    let owner = task
        .owner
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let because = record
        .derived_from
        .map_or(String::new(), |seq| format!(" (by {seq})"));
    let what = match record.event {
        TaskEvent::Created => match &task.order {
            Some(of) if !of.follows => format!("created by the order {}", of.name),
            _ => format!("created by {by}"),
        },
        TaskEvent::Claimed => format!("claimed by {owner}"),
        TaskEvent::Submitted => format!("submitted by {by} (submission {number})"),
        TaskEvent::Released => format!("released by {by}{because}"),
        TaskEvent::Assigned => {
            format!(
                "kept for {} by {by}",
                task.reserved_for.as_deref().unwrap_or_default()
            )
        }
        TaskEvent::Cancelled => format!("cancelled by {by}"),
        TaskEvent::Edited => format!("changed by {by}"),
        TaskEvent::Retried => format!("opened again by {by}"),
        TaskEvent::Reminded => format!("is not submitted yet: {owner} is reminded"),
        TaskEvent::Stalled => task.held_up().unwrap_or_default(),
        TaskEvent::Checked => "passed its check, and waits for its review".to_owned(),
        TaskEvent::Synced => "is work of yours, and submitted".to_owned(),
        TaskEvent::Queued => "waits to be integrated".to_owned(),
        TaskEvent::Integrating => "is being integrated".to_owned(),
        TaskEvent::Completed => "completed".to_owned(),
        TaskEvent::Returned => format!("is sent back (submission {number})"),
        TaskEvent::Failed => format!("failed after {}", count(task.attempts as usize, "attempt")),
    };
    let why = record.content.clone().unwrap_or_default();
    // What holds it up is why, as a rule.
    let why = if what.ends_with(&why) {
        String::new()
    } else {
        why
    };
    (format!("{} {what}", task.title()), why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::asked;

    fn shown(line: &str) -> String {
        let shown = anstream::adapter::strip_str(&event(line.as_bytes())).to_string();
        // The time of day depends on where the test runs.
        shown
            .split_once("  ")
            .map_or(shown.clone(), |(_, rest)| rest.trim_start().to_owned())
    }

    #[test]
    fn an_event_says_who_and_what() {
        assert_eq!(
            shown(asked(41, "a1b2c3d4", "shutdown").trim_end()),
            "41  shutdown of alice (a1b2c3d4) asked: done"
        );
        let plan = asked(42, "a1b2c3d4", "plan_approval");
        assert_eq!(
            shown(plan.trim_end()),
            "42  plan of alice (a1b2c3d4) asked: Drop the cache. (+ 1 line)"
        );
        let started = r#"{"seq":1,"at":1.0,"version":1,"done":0,"record":"team","event":"started","team_name":"t","daemon":{"pid":7,"start_ticks":1,"boot_id":"b","started_at":1.0}}"#;
        assert_eq!(shown(started), "1  the daemon runs (pid 7)");
    }

    #[test]
    fn a_line_of_a_newer_program_is_shown_as_it_is() {
        assert_eq!(
            event(b"{\"seq\":1,\"record\":\"moon\x1b\"}"),
            "{\"seq\":1,\"record\":\"moon\\u{1b}\"}"
        );
    }
}
