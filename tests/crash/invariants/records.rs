//! The journal folds, the roster says what it says, and every request was answered by whoever was asked.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use teamd_shared::journal::{self, MemberEvent, Record, Team as Fold};
use teamd_shared::member::{Ending, Status as Ended};
use teamd_shared::request::{Kind, Status};

use crate::stage::{Checked, Stage, Violation, hold};

/// While the team runs: the roster shows the journal.
pub(super) fn check_running(stage: &mut Stage) -> Checked {
    stage.until("the roster to show the journal", |stage| {
        stage.fold().is_ok_and(|fold| compare(&stage.roster(), &fold, false).is_ok())
    })?;
    let fold = stage.fold()?;
    gates(stage, &fold)
}

/// After the end: everything is answered, everybody has ended, and nobody approved but a person.
pub(super) fn check_ended(stage: &Stage, fold: &Fold) -> Checked {
    whole(stage)?;
    ends(stage)?;
    compare(&stage.roster(), fold, true)?;
    hold(fold.daemon.is_none(), || "the journal says that a daemon runs".to_owned())?;
    for request in fold.requests.values() {
        let id = request.request_id.to_string();
        let given = |list: &[(String, bool)]| list.iter().any(|(known, _)| *known == id);
        hold(request.status != Status::Pending, || format!("request {id} was never answered"))?;
        match (request.kind, request.status) {
            (Kind::PlanApproval, Status::Approved) => {
                hold(given(&stage.ledger.approved), || format!("plan {id} was approved by nobody"))?;
            }
            (Kind::PlanApproval, Status::Rejected) => {
                hold(given(&stage.ledger.rejected), || format!("plan {id} was rejected by nobody"))?;
            }
            _ => {}
        }
    }
    let said = [(&stage.ledger.approved, Status::Approved), (&stage.ledger.rejected, Status::Rejected)];
    for (list, status) in said {
        for (id, _) in list.iter().filter(|(_, told)| *told) {
            let stands = fold.requests.values().find(|request| request.request_id.to_string() == *id);
            let stands = stands.map(|request| request.status);
            hold(stands == Some(status), || {
                format!("plan {id} was said to be {status:?}, and is {stands:?}")
            })?;
        }
    }
    Ok(())
}

/// A gate of a planner is open only by an approval that a person gave.
fn gates(stage: &Stage, fold: &Fold) -> Checked {
    for member in fold.members.values().filter(|member| member.record.plan) {
        let open = serde_json::to_value(member.record.gate).is_ok_and(|gate| gate == "open");
        let name = &member.record.name;
        hold(!open || !stage.ledger.approved.is_empty(), || {
            format!("the gate of {name} is open, and nobody approved")
        })?;
    }
    Ok(())
}

/// How each life ended is what the journal before says (rule 11): by a signal that was announced, as agreed, or by itself.
fn ends(stage: &Stage) -> Checked {
    let bytes = std::fs::read(stage.team.path("journal.jsonl")).unwrap_or_default();
    let (mut ending, mut agreed) = (HashMap::new(), HashSet::new());
    for (_, line) in journal::read_lines(&bytes).flatten() {
        match &line.record {
            Record::Request(record) if record.request.kind == Kind::Shutdown => {
                let request = &record.request;
                if request.status == Status::Approved {
                    agreed.insert((request.member().to_owned(), request.incarnation));
                }
            }
            Record::Member(record) if record.because.is_none() => {
                let (name, member) = (record.member.name.to_string(), &record.member);
                if record.event == MemberEvent::Ending {
                    ending.insert(name.clone(), member.ending);
                }
                if record.event == MemberEvent::Exited {
                    let life = (name.clone(), record.ended_incarnation.unwrap_or(member.incarnation));
                    let by_journal = match ending.remove(&name).flatten() {
                        Some(Ending::Hung) => Ended::Crashed,
                        Some(_) => Ended::Killed,
                        None if agreed.contains(&life) => Ended::Shutdown,
                        None => Ended::Crashed,
                    };
                    hold(member.phase.ended_as() == by_journal, || {
                        format!("{life:?} ended as {:?}: by the journal it is {by_journal:?}", member.phase)
                    })?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Every line of the journal is whole, and ends with a newline.
fn whole(stage: &Stage) -> Checked {
    let bytes = std::fs::read(stage.team.path("journal.jsonl")).unwrap_or_default();
    hold(bytes.last() == Some(&b'\n'), || "the journal ends in the middle of a line".to_owned())?;
    let last = stage.team.journal().pop().unwrap_or_default();
    hold(last["event"] == "stopped", || format!("the last line of the journal is {last}"))
}

fn compare(roster: &Value, fold: &Fold, ended: bool) -> Checked {
    let members = roster["members"].as_array().ok_or_else(|| Violation(format!("config.json: {roster}")))?;
    let names: Vec<&str> = members.iter().filter_map(|member| member["name"].as_str()).collect();
    let known: Vec<&str> = fold.members.keys().map(|name| name.as_str()).collect();
    hold(names == known, || format!("config.json has {names:?}, the journal {known:?}"))?;
    if ended {
        hold(roster["seq"] == fold.seq, || {
            format!("config.json shows seq {}, the journal {}", roster["seq"], fold.seq)
        })?;
        hold(roster["daemon"].is_null(), || "config.json says that a daemon runs".to_owned())?;
    }
    for (member, state) in members.iter().zip(fold.members.values()) {
        let record = &state.record;
        let name = &record.name;
        let pid = record.process.as_ref().filter(|_| !record.phase.is_ended()).map(|process| process.pid);
        let status = member["status"].as_str().unwrap_or_default();
        let is_ended = ["shutdown", "killed", "crashed"].contains(&status);
        hold(is_ended == record.phase.is_ended(), || {
            format!("{name} is {status}, the journal says {:?}", record.phase)
        })?;
        hold(!ended || is_ended, || format!("{name} is {status} after the end"))?;
        hold(member["pid"] == serde_json::json!(pid), || {
            format!("{name} has pid {}, the journal says {pid:?}", member["pid"])
        })?;
        let pairs = [
            ("incarnation", serde_json::json!(record.incarnation)),
            ("gate", serde_json::to_value(record.gate).unwrap_or_default()),
        ];
        for (field, value) in pairs {
            hold(member[field] == value, || {
                format!("{name}: {field} is {}, the journal says {value}", member[field])
            })?;
        }
    }
    Ok(())
}
