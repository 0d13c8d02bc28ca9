//! The roster: it parses, says what the journal says, and the processes that it names are there.

use std::collections::BTreeSet;

use teamd_shared::config::{ConfigError, Roster, RosterMember, VERSION};
use teamd_shared::journal::{MemberState, Team};
use teamd_shared::member::{Doing, Phase, Status};
use teamd_shared::name::Name;
use teamd_shared::request::Kind;
use teamd_shared::team_dir::TeamPath;

use super::finding::{Finding, Fix};
use super::seen::Seen;

const CHECK: &str = "roster";

/// Judges the file.
pub(super) fn judge(seen: &Seen) -> Vec<Finding> {
    let roster = match &seen.roster {
        Ok(Some(roster)) => roster,
        Ok(None) => return vec![missing(seen)],
        Err(error) => return vec![unreadable(seen, error)],
    };
    if roster.version > VERSION {
        return vec![
            Finding::problem(
                CHECK,
                format!("config.json has version {}, this program knows {VERSION}", roster.version),
            )
            .means("a newer teamd wrote it; it is never written over")
            .next("use the newer teamd that wrote it"),
        ];
    }
    let Some(team) = seen.team() else { return Vec::new() };
    let mut findings = Vec::new();
    if roster.seq > team.seq && seen.journal.exists {
        let finding = Finding::problem(
            CHECK,
            format!("config.json shows line {} of the journal, which ends with {}", roster.seq, team.seq),
        )
        .about(format!("ahead {}", roster.seq))
        .means("lines of the journal are lost, or another journal was put there");
        findings.push(if seen.locked {
            finding.next("run this again in a moment; `teamctl log teamd` says what the daemon found")
        } else {
            finding.next("if there is a copy of the journal, put it back; else the journal counts: `--fix` writes config.json from it").fix(Fix::Roster)
        });
    } else if roster.seq < team.seq {
        let what =
            format!("config.json shows line {} of the journal, which ends with {}", roster.seq, team.seq);
        let finding = Finding::note(CHECK, what).about(format!("behind {}", roster.seq));
        findings.push(if seen.locked {
            finding
                .means("the daemon has not written it yet")
                .next("`teamctl log teamd` says whether it cannot")
        } else {
            finding
                .means("the daemon was killed before it wrote it")
                .next("`teamd start` writes it anew")
                .fix(Fix::Roster)
        });
    }
    if let Some(then) = &seen.journal.at_roster {
        findings
            .extend(differences(roster, then).into_iter().map(|(about, what)| disagrees(seen, about, &what)));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            CHECK,
            format!("config.json agrees with the journal ({} members)", roster.members.len()),
        ));
    }
    findings
}

fn disagrees(seen: &Seen, about: String, what: &str) -> Finding {
    let finding =
        Finding::problem(CHECK, format!("config.json says otherwise than the journal: {what}")).about(about);
    let finding = finding
        .means("somebody has changed it; the journal is the truth, and no daemon reads what it says there");
    match seen.locked {
        true => finding
            .next("the daemon writes it anew with its next change; `teamctl send` something, or restart it"),
        false => finding.next("`teamctl doctor --fix`, or `teamd start`, writes it anew").fix(Fix::Roster),
    }
}

fn missing(seen: &Seen) -> Finding {
    let finding = Finding::problem(CHECK, "there is no config.json, and the journal has members");
    match seen.team() {
        Some(_) if seen.locked => finding.next("the daemon writes it anew within 10 seconds: run this again"),
        Some(team) if team.seq > 0 => finding
            .next("`teamctl doctor --fix`, or `teamd start`, writes it from the journal")
            .fix(Fix::Roster),
        _ => Finding::ok(CHECK, "none yet"),
    }
}

fn unreadable(seen: &Seen, error: &ConfigError) -> Finding {
    let finding = Finding::problem(CHECK, error.to_string());
    match error {
        ConfigError::Dir(_) => finding.next("look at its permissions, and who put it there"),
        ConfigError::Malformed(_) if seen.locked => {
            finding.next("the daemon writes it anew within 10 seconds: run this again")
        }
        ConfigError::Malformed(_) => finding
            .means("nothing is lost with it: it is made from the journal")
            .next("`teamctl doctor --fix`, or `teamd start`, writes it anew and keeps this one aside")
            .fix(Fix::Roster),
    }
}

/// Says what a roster says otherwise than the fold of the journal up to its line: what it is about, and in words.
fn differences(roster: &Roster, team: &Team) -> Vec<(String, String)> {
    let shown: BTreeSet<&Name> = roster.members.iter().map(|member| &member.name).collect();
    let mut found = Vec::new();
    for name in team.members.keys().filter(|name| !shown.contains(name)) {
        found.push((format!("missing {name}"), format!("{name} is not there")));
    }
    for member in &roster.members {
        match team.members.get(&member.name) {
            None => found.push((format!("unknown {}", member.name), format!("it knows no {}", member.name))),
            Some(state) => {
                let what = difference(member, state, team);
                found.extend(what.map(|(field, what)| (format!("{field} {}", member.name), what)));
            }
        }
    }
    found
}

fn difference(shown: &RosterMember, state: &MemberState, team: &Team) -> Option<(&'static str, String)> {
    let (name, member) = (&shown.name, &state.record);
    if shown.incarnation != member.incarnation {
        return Some((
            "incarnation",
            format!("{name} has life {}, not {}", member.incarnation, shown.incarnation),
        ));
    }
    let status = status(shown, state, team);
    if shown.status != status {
        return Some(("status", format!("{name} is {}, not {}", status.as_str(), shown.status.as_str())));
    }
    if shown.gate != member.gate {
        return Some((
            "gate",
            format!("the gate of {name} is {}, not {}", member.gate.as_str(), shown.gate.as_str()),
        ));
    }
    let process = member.process.as_ref();
    let (pid, ticks) = (process.map(|it| it.pid), process.map(|it| it.start_ticks));
    if (shown.pid, shown.start_ticks) != (pid, ticks) {
        let told = |pid: Option<u32>| pid.map_or_else(|| "none".to_owned(), |pid| pid.to_string());
        return Some(("pid", format!("the process of {name} is {}, not {}", told(pid), told(shown.pid))));
    }
    None
}

/// The status that the journal allows: what a worker does while nothing else is the case, only the worker says.
fn status(shown: &RosterMember, state: &MemberState, team: &Team) -> Status {
    let name = &shown.name;
    let leaving = team.release(name).is_some()
        || state.record.ending.is_some()
        || team.pending(name, Kind::Shutdown).is_some();
    let doing = match shown.status {
        Status::Idle => Doing::Idle,
        Status::Working => Doing::Working,
        _ => Doing::Starting,
    };
    Status::of(state.record.phase, leaving, team.pending(name, Kind::PlanApproval).is_some(), doing)
}

/// Judges the processes: each life of the journal that has not ended has one, the same as then.
pub(super) fn judge_lives(seen: &Seen) -> Vec<Finding> {
    const CHECK: &str = "lives";
    let Some(team) = seen.team() else { return Vec::new() };
    let (mut alive, mut findings) = (0, Vec::new());
    for (name, state) in &team.members {
        let member = &state.record;
        let life = format!("{name} {}", member.incarnation);
        match &member.process {
            _ if member.phase.is_ended() => {}
            Some(process) if seen.is_alive(process) => alive += 1,
            None if seen.locked => alive += 1,
            None => findings.push(
                Finding::note(CHECK, format!("the start of {name} was not finished: its daemon was killed"))
                    .about(life)
                    .next("`teamd start` records it, and starts it again where it may"),
            ),
            Some(process) => {
                let held = seen
                    .at(&TeamPath::transcript(name))
                    .is_some_and(|found| seen.holders(found.identity).next().is_some());
                findings.push(gone(seen, name, process.pid, held, member.phase).about(life));
            }
        }
    }
    if findings.is_empty() {
        findings
            .push(Finding::ok(CHECK, format!("{alive} processes are alive, each the one of the journal")));
    }
    findings
}

fn gone(seen: &Seen, name: &Name, pid: u32, held: bool, phase: Phase) -> Finding {
    const CHECK: &str = "lives";
    let what = format!(
        "the process of {name} ({pid}) is gone, and the journal says that it is {}",
        match phase {
            Phase::Spawning => "starting",
            _ => "running",
        }
    );
    match (seen.locked, held) {
        (true, true) => Finding::note(CHECK, what)
            .means("what it had started is being ended; until then its life is not over")
            .next("see under `locks` who is left"),
        (true, false) => Finding::problem(CHECK, what)
            .means("the daemon should have recorded that")
            .next("`teamctl log teamd` says why it has not"),
        (false, _) => Finding::note(CHECK, what)
            .means("it ended while no daemon ran")
            .next("`teamd start` records that, and starts it again where it may"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn team() -> Team {
        let member = json!({"seq": 1, "at": 1.0, "version": 1, "done": 0, "record": "member", "event": "spawned",
            "name": "alice", "role": "", "model": "script", "workspace": "/w", "plan": false, "approve_by": "person",
            "restart": "never", "incarnation": 2, "conversation": 1, "begins_at": {"offset": 0, "tail": "cbf29ce484222325"},
            "phase": "running", "pid": 7, "start_ticks": 9, "boot_id": "b", "gate": "open", "ending": null,
            "exit": null, "spawned_at": 1.0, "updated_at": 1.0});
        let mut team = Team::default();
        team.apply(&serde_json::from_value(member).unwrap()).unwrap();
        team
    }

    fn told(change: impl Fn(&mut Value)) -> Vec<String> {
        let mut roster = json!({"version": 1, "seq": 1, "team_name": "t", "daemon": null, "members": [
            {"name": "alice", "status": "idle", "pid": 7, "start_ticks": 9, "incarnation": 2, "gate": "open"}]});
        change(&mut roster["members"]);
        let roster = serde_json::from_value(roster).unwrap();
        differences(&roster, &team()).into_iter().map(|(_, what)| what).collect()
    }

    #[test]
    fn what_only_the_worker_says_is_no_difference_and_all_else_is() {
        assert!(told(|_| {}).is_empty());
        assert!(told(|members| members[0]["status"] = json!("working")).is_empty());
        let one = |field: &str, value: Value| told(|members| members[0][field] = value.clone()).join("; ");
        assert_eq!(one("status", json!("shutdown")), "alice is starting, not shutdown");
        assert_eq!(one("gate", json!("closed")), "the gate of alice is open, not closed");
        assert_eq!(one("pid", json!(8)), "the process of alice is 7, not 8");
        assert_eq!(one("incarnation", json!(1)), "alice has life 2, not 1");
        assert_eq!(one("name", json!("bob")), "alice is not there; it knows no bob");
    }
}
