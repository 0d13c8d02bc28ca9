//! What a member had not read when it ended for good comes back to its senders, once.

use std::collections::HashSet;

use serde_json::Value;
use teamd_shared::journal::{MemberEvent, MemberRecord, Record};

use super::decided::with_archive;
use crate::stage::{Checked, Stage, hold};

/// Checks each end of the journal.
pub(super) fn check(stage: &Stage) -> Checked {
    let mut returned: HashSet<(String, String)> = HashSet::new();
    for line in stage.journal() {
        let Record::Member(record) = &line.record else {
            continue;
        };
        let name = record.member.name.as_str();
        for mail in &record.returned {
            let is_first = returned.insert((name.to_owned(), mail.message_id.to_string()));
            hold(is_first, || {
                format!("line {} returns {mail:?} a second time", line.seq)
            })?;
        }
        if record.event == MemberEvent::Exited && record.derived_from.is_none() {
            check_end(stage, record)?;
        }
    }
    Ok(())
}

fn check_end(stage: &Stage, record: &MemberRecord) -> Checked {
    let name = record.member.name.as_str();
    hold(
        record.ended_incarnation.is_none() || record.returned.is_empty(),
        || format!("{name} is started again, and its mail comes back"),
    )?;
    let read = read_up_to(stage, name, record.member.incarnation);
    for mail in &record.returned {
        hold(!read.contains(&mail.message_id.to_string()), || {
            format!("{name} had read what comes back: {mail:?}")
        })?;
    }
    // The transcript of a forgotten member is in the archive, and so is its inbox.
    let Some(exit) = &record.member.exit else {
        return Ok(());
    };
    let is_final = record.ended_incarnation.is_none() && exit.returned_up_to == Some(exit.inbox);
    if !is_final || name == "lead" {
        return Ok(());
    }
    let path = stage.team.path(&format!("inbox/{name}.jsonl"));
    let inbox = std::fs::read(path).unwrap_or_default();
    let mut offset = 0;
    for line in inbox.split(|&byte| byte == b'\n') {
        let begins = offset;
        offset += line.len() as u64 + 1;
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            continue;
        };
        let id = message["id"].as_str().unwrap_or_default();
        let is_mail = message["type"] == "message" && !id.is_empty();
        let from = message["from"].as_str().unwrap_or_default();
        let expected = is_mail && ["user", "lead"].contains(&from) && begins < exit.inbox.offset;
        if !expected || read.contains(id) {
            continue;
        }
        hold(comes_back(stage, name, id), || {
            format!("{name} has ended without reading {message}, which did not come back")
        })?;
    }
    Ok(())
}

/// Tells whether a message is in the lead's inbox as returned.
fn comes_back(stage: &Stage, name: &str, id: &str) -> bool {
    let lines = with_archive(stage, "lead");
    lines
        .iter()
        .any(|line| line["type"] == "returned" && line["name"] == name && line["message_id"] == id)
}

/// The ids of what the incarnations of a member have read, up to this one.
fn read_up_to(stage: &Stage, name: &str, last: u32) -> HashSet<String> {
    let mut read = HashSet::new();
    for entry in stage.transcript(name) {
        if entry["entry"] == "incarnation" {
            let number = entry["incarnation"].as_u64().unwrap_or_default();
            if number > u64::from(last) {
                break;
            }
        }
        let messages = entry["messages"].as_array();
        let ids = messages
            .into_iter()
            .flatten()
            .filter_map(|message| message["id"].as_str());
        read.extend(ids.map(str::to_owned));
    }
    read
}
