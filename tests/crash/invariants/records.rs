//! The journal folds, the roster says what it says, and every request was answered by the side that
//! was asked.

use serde_json::Value;
use teamd_shared::journal::{MemberEvent, Record, Team as Fold};
use teamd_shared::request::{Kind, Status};

use crate::stage::{Checked, Stage, Violation, hold};

/// After the end: everything is answered, all members have ended, and only a person approved.
pub(super) fn check_ended(stage: &Stage, fold: &Fold) -> Checked {
    whole(stage)?;
    let unreadable = stage.unreadable();
    hold(unreadable.is_none(), || {
        format!("at some moment it could not be read: {unreadable:?}")
    })?;
    compare(&stage.roster(), fold, true)?;
    hold(fold.daemon.is_none(), || {
        "the journal says that a daemon runs".to_owned()
    })?;
    for request in fold.requests.values() {
        let id = request.request_id.to_string();
        let given = |list: &[(String, bool)]| list.iter().any(|(known, _)| *known == id);
        hold(request.status != Status::Pending, || {
            format!("request {id} was never answered")
        })?;
        match (request.kind, request.status) {
            (Kind::PlanApproval, Status::Approved) => {
                hold(given(&stage.ledger.approved), || {
                    format!("no person approved plan {id}")
                })?;
            }
            (Kind::PlanApproval, Status::Rejected) => {
                hold(given(&stage.ledger.rejected), || {
                    format!("no person rejected plan {id}")
                })?;
            }
            _ => {}
        }
    }
    let said = [
        (&stage.ledger.approved, Status::Approved),
        (&stage.ledger.rejected, Status::Rejected),
    ];
    for (list, status) in said {
        for (id, _) in list.iter().filter(|(_, told)| *told) {
            let stands = fold
                .requests
                .values()
                .find(|request| request.request_id.to_string() == *id);
            let stands = stands.map(|request| request.status);
            hold(stands == Some(status), || {
                format!("plan {id} was said to be {status:?}, and is {stands:?}")
            })?;
        }
    }
    Ok(())
}

/// Every plan was submitted by a live teammate, and every shutdown asked for by the user.
pub(super) fn requests_were_made(stage: &Stage) -> Checked {
    for line in stage.journal() {
        let Record::Request(record) = line.record else {
            continue;
        };
        let name = record.request.member();
        let wanted = stage
            .ledger
            .asked_to_leave
            .iter()
            .any(|asked| asked == name);
        hold(wanted || record.request.kind != Kind::Shutdown, || {
            format!(
                "the user did not want {name} to leave, and it was asked: line {}",
                line.seq
            )
        })?;
    }
    Ok(())
}

/// No member is between two states, and no line of the journal waits for another one.
pub(super) fn all_members_rest(roster: &Value, fold: &Fold) -> Checked {
    for member in roster["members"].as_array().into_iter().flatten() {
        let name = &member["name"];
        let status = member["status"].as_str().unwrap_or_default();
        let rests = [
            "idle",
            "awaiting_approval",
            "shutdown",
            "killed",
            "crashed",
            "lost",
        ]
        .contains(&status);
        hold(rests, || format!("{name} is {status}"))?;
        let plan = fold.requests.values().find(|request| {
            request.kind == Kind::PlanApproval
                && request.status == Status::Pending
                && *name == request.from.as_str()
        });
        hold(plan.is_some() == (status == "awaiting_approval"), || {
            format!("{name} is {status}, and its pending plan is {plan:?}")
        })?;
    }
    let pending_derived = fold.pending_derived();
    hold(pending_derived.is_empty(), || {
        format!("the journal lacks the derived records {pending_derived:?}")
    })
}

/// The files of a forgotten member are in the archive.
pub(super) fn archive(stage: &Stage) -> Checked {
    for line in stage.journal() {
        let Record::Member(record) = line.record else {
            continue;
        };
        if record.event != MemberEvent::Forgotten {
            continue;
        }
        let name = &record.member.name;
        let back = stage.roster()["members"]
            .as_array()
            .is_some_and(|members| members.iter().any(|member| member["name"] == name.as_str()));
        // Each member that is forgotten here has run.
        for folder in ["inbox", "transcript"] {
            let kept = stage
                .team
                .path(&format!("archive/{}.{folder}.{name}.jsonl", line.seq));
            hold(kept.exists(), || {
                format!("{name} was forgotten, and {} is not there", kept.display())
            })?;
            let left = stage.team.path(&format!("{folder}/{name}.jsonl"));
            hold(back || !left.exists(), || {
                format!("{name} was forgotten, and {} is there", left.display())
            })?;
        }
    }
    Ok(())
}

/// Every line of the journal is whole, and ends with a newline.
fn whole(stage: &Stage) -> Checked {
    let bytes = std::fs::read(stage.team.path("journal.jsonl")).unwrap_or_default();
    hold(bytes.last() == Some(&b'\n'), || {
        "the journal ends in the middle of a line".to_owned()
    })?;
    let last = stage.team.journal().pop().unwrap_or_default();
    hold(last["event"] == "stopped", || {
        format!("the last line of the journal is {last}")
    })?;
    let aside = std::fs::read_dir(stage.team.path(""))
        .into_iter()
        .flatten()
        .flatten();
    let aside = aside.map(|file| file.file_name().to_string_lossy().into_owned());
    let aside: Vec<String> = aside.filter(|name| name.contains(".unreadable")).collect();
    hold(aside.is_empty(), || {
        format!("the daemon found its own file unreadable: {aside:?}")
    })
}

/// Compares the roster with what the journal says; `ended`: after the end of the team.
pub(super) fn compare(roster: &Value, fold: &Fold, ended: bool) -> Checked {
    let members = roster["members"]
        .as_array()
        .ok_or_else(|| Violation(format!("config.json: {roster}")))?;
    let names: Vec<&str> = members
        .iter()
        .filter_map(|member| member["name"].as_str())
        .collect();
    let known: Vec<&str> = fold.members.keys().map(|name| name.as_str()).collect();
    hold(names == known, || {
        format!("config.json has {names:?}, the journal {known:?}")
    })?;
    if ended {
        hold(roster["seq"] == fold.seq, || {
            format!(
                "config.json shows seq {}, the journal {}",
                roster["seq"], fold.seq
            )
        })?;
        hold(roster["daemon"].is_null(), || {
            "config.json says that a daemon runs".to_owned()
        })?;
    }
    for (member, state) in members.iter().zip(fold.members.values()) {
        let record = &state.record;
        let name = &record.name;
        let pid = if !record.phase.is_ended() {
            record.process.as_ref().map(|process| process.pid)
        } else {
            None
        };
        let status = member["status"].as_str().unwrap_or_default();
        let is_ended = ["shutdown", "killed", "crashed", "lost"].contains(&status);
        hold(is_ended == record.phase.is_ended(), || {
            format!("{name} is {status}, the journal says {:?}", record.phase)
        })?;
        hold(!ended || is_ended, || {
            format!("{name} is {status} after the end")
        })?;
        let (here, there) = if record.terms.host.is_some() {
            (None, pid)
        } else {
            (pid, None)
        };
        for (field, pid) in [("pid", here), ("host_pid", there)] {
            hold(member[field] == serde_json::json!(pid), || {
                format!(
                    "{name} has {field} {}, the journal says {pid:?}",
                    member[field]
                )
            })?;
        }
        let exit = if is_ended { record.exit.as_ref() } else { None };
        let pairs = exit.map(|exit| {
            let id = exit.request_id.as_ref().map(ToString::to_string);
            [
                ("unread", serde_json::json!(exit.unread)),
                ("request_id", serde_json::json!(id)),
            ]
        });
        for (field, value) in pairs.into_iter().flatten() {
            hold(member["exit"][field] == value, || {
                format!(
                    "{name}: {field} of its end is {}, the journal says {value}",
                    member["exit"][field]
                )
            })?;
        }
        let pairs = [
            ("incarnation", serde_json::json!(record.incarnation)),
            (
                "gate",
                serde_json::to_value(record.gate).unwrap_or_default(),
            ),
        ];
        for (field, value) in pairs {
            hold(member[field] == value, || {
                format!(
                    "{name}: {field} is {}, the journal says {value}",
                    member[field]
                )
            })?;
        }
    }
    Ok(())
}
