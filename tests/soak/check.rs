//! What must hold whenever everything rests.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use teamd_shared::inbox::count_lines;
use teamd_shared::journal::{Team as Fold, read_lines};
use teamd_shared::member::MemberStatus;
use teamd_shared::position::Position;
use teamd_shared::request::{self, Kind};
use teamd_shared::transcript;

use crate::Soak;
use crate::actors::{answer_plans, respawn};
use crate::agents;
use crate::ledger::Sent;
use crate::support::process::{command_line, descendants};
use crate::support::signal;
use crate::team::{Rng, Team};

/// Longer than anything takes that is to come to an end by itself.
const PATIENCE: Duration = Duration::from_secs(150);

/// Lets everything come to an end, and checks what must hold then.
pub(crate) fn at_rest(soak: &Soak) {
    if !settle(soak) {
        return;
    }
    requests_end(soak);
    each_approval_has_an_approver(soak);
    roster_agrees(soak);
    no_process_is_left_over(soak);
    messages_are_there_once(soak);
    logs_hold_no_panic(soak);
}

/// Waits until all teammates are there and have nothing to do.
fn settle(soak: &Soak) -> bool {
    for &pid in soak.team.processes().iter() {
        signal(pid, Signal::SIGCONT);
    }
    soak.team.start_daemon(soak);
    let began = Instant::now();
    let mut rng = Rng::new(7);
    let mut is_last = false;
    loop {
        let busy = busy(soak);
        if busy.is_empty() && is_last {
            return true;
        }
        if busy.is_empty() {
            // What work that was broken off could not tell an agent, its next work does.
            is_last = soak
                .team
                .names()
                .filter(|name| Team::is_agent(name))
                .all(|name| {
                    soak.team
                        .teamctl(soak, &["send", &name, "say that all rest"])
                        .is_done()
                });
            continue;
        }
        if began.elapsed() > PATIENCE {
            soak.ledger
                .violation(format!("no rest within {PATIENCE:?}: {}", busy.join("; ")));
            return false;
        }
        respawn(soak, &mut rng);
        answer_plans(soak, &mut rng, 0);
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

/// Says which teammates are not idle, or have mail.
fn busy(soak: &Soak) -> Vec<String> {
    let Some(roster) = soak.team.roster(soak) else {
        return vec!["no roster".to_owned()];
    };
    let Some(dir) = soak.team.dir() else {
        return vec!["no roster".to_owned()];
    };
    let mut busy = Vec::new();
    for name in soak.team.names() {
        let Some(member) = roster
            .members
            .iter()
            .find(|member| member.name.as_str() == name)
        else {
            busy.push(format!("{name} is not there"));
            continue;
        };
        if member.status != MemberStatus::Idle {
            busy.push(format!("{name} is {}", member.status.as_str()));
            continue;
        }
        let position = transcript::position(&dir, &member.name)
            .ok()
            .flatten()
            .unwrap_or(Position::START);
        match count_lines(&dir, &member.name, position) {
            Ok(count) if count.mail == 0 => {
                // The roster may be behind: of a worker that writes just now, or has not come back
                // to a new daemon yet.
                let last = transcript::last_entry(&dir, &member.name).ok().flatten();
                if last.is_some_and(|entry| !entry.event.is_rest(&member.name)) {
                    busy.push(format!("{name} works still"));
                }
            }
            Ok(count) => busy.push(format!("{name} has {} unread", count.mail)),
            Err(error) => busy.push(format!("{name}: {error}")),
        }
    }
    busy
}

/// Folds the journal, which must be possible.
pub(crate) fn fold(soak: &Soak) -> Fold {
    let bytes = std::fs::read(soak.team.path("journal.jsonl")).unwrap_or_default();
    let mut fold = Fold::default();
    for line in read_lines(&bytes) {
        let problem = match line {
            Ok((number, line)) => fold
                .apply(&line)
                .err()
                .map(|error| format!("line {number}: {error}")),
            Err(bad) => Some(bad.to_string()),
        };
        if let Some(problem) = problem {
            soak.ledger
                .violation(format!("the journal does not fold: {problem}"));
            break;
        }
    }
    fold
}

/// Tries something until it holds, since the last word of a process may take a moment.
fn soon<T>(mut look: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let began = Instant::now();
    loop {
        match look() {
            Err(_) if began.elapsed() < Duration::from_secs(15) => {
                std::thread::park_timeout(Duration::from_millis(50));
            }
            other => return other,
        }
    }
}

fn report(soak: &Soak, looked: Result<(), String>) {
    if let Err(violation) = looked {
        soak.ledger.violation(violation);
    }
}

fn requests_end(soak: &Soak) {
    report(
        soak,
        soon(|| {
            let fold = fold(soak);
            let pending = fold
                .requests
                .values()
                .filter(|request| request.is_pending());
            let pending: Vec<String> = pending
                .map(|it| {
                    format!(
                        "{} ({} of {})",
                        it.request_id,
                        it.kind.as_str(),
                        it.member()
                    )
                })
                .collect();
            if pending.is_empty() {
                Ok(())
            } else {
                Err(format!("requests without an end: {}", pending.join(", ")))
            }
        }),
    );
}

fn each_approval_has_an_approver(soak: &Soak) {
    let fold = fold(soak);
    let plans = fold
        .requests
        .values()
        .filter(|request| request.kind == Kind::PlanApproval);
    for plan in plans.filter(|plan| plan.status == request::Status::Approved) {
        let id = plan.request_id.to_string();
        if !soak.ledger.has_approved(&id) {
            soak.ledger.violation(format!(
                "the plan {id} of {} is approved, and no actor approved it",
                plan.member()
            ));
        }
    }
}

fn roster_agrees(soak: &Soak) {
    report(
        soak,
        soon(|| {
            let fold = fold(soak);
            let Some(roster) = soak.team.roster(soak) else {
                return Ok(());
            };
            if roster.seq != fold.seq {
                return Err(format!(
                    "config.json shows line {} of {}",
                    roster.seq, fold.seq
                ));
            }
            let shown: BTreeMap<_, _> = roster
                .members
                .iter()
                .map(|it| (it.name.clone(), it))
                .collect();
            if shown.len() != fold.members.len() {
                return Err("config.json has not the members of the journal".to_owned());
            }
            for (name, state) in &fold.members {
                let Some(shown) = shown.get(name) else {
                    return Err(format!("{name} is missing in config.json"));
                };
                let record = &state.record;
                let pid = record.process.as_ref().map(|process| process.pid);
                if (
                    shown.incarnation,
                    shown.pid,
                    shown.status.is_ended(),
                    shown.gate,
                ) != (
                    record.incarnation,
                    pid,
                    record.phase.is_ended(),
                    record.gate,
                ) {
                    return Err(format!(
                        "config.json says {shown:?}, the journal {record:?}"
                    ));
                }
            }
            Ok(())
        }),
    );
}

/// The daemon and one process for each member, and nothing else.
fn no_process_is_left_over(soak: &Soak) {
    report(
        soak,
        soon(|| {
            let Some(roster) = soak.team.roster(soak) else {
                return Ok(());
            };
            let pids = roster
                .members
                .iter()
                .filter_map(|member| i32::try_from(member.pid?).ok());
            let mut known: BTreeSet<i32> = pids.collect();
            let agents = roster
                .members
                .iter()
                .filter(|member| member.agent.is_some());
            let agents: Vec<i32> = agents
                .filter_map(|it| i32::try_from(it.pid?).ok())
                .flat_map(descendants)
                .collect();
            let workers: BTreeSet<i32> = soak.team.workers().into_keys().collect();
            if workers != known {
                return Err(format!(
                    "the roster knows the processes {known:?}, there are {workers:?}"
                ));
            }
            known.extend(agents.into_iter().chain(soak.team.daemon_pid()));
            let left: Vec<String> = soak
                .team
                .processes()
                .into_iter()
                .filter(|pid| !known.contains(pid))
                .map(|pid| format!("{pid} {}", command_line(pid)))
                .collect();
            if left.is_empty() {
                Ok(())
            } else {
                Err(format!("left over: {}", left.join(", ")))
            }
        }),
    );
}

fn messages_are_there_once(soak: &Soak) {
    let mut by_receiver: BTreeMap<String, Vec<Sent>> = BTreeMap::new();
    for sent in soak.ledger.all_sent() {
        by_receiver.entry(sent.to.clone()).or_default().push(sent);
    }
    for name in soak.team.names() {
        let taken = consumed(soak, &name);
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        for mark in taken.iter() {
            *times.entry(mark).or_default() += 1;
        }
        for (mark, times) in times.iter().filter(|(_, times)| **times > 1) {
            soak.ledger
                .violation(format!("{name} has taken {mark} in {times} times"));
        }
        for sender in ["one-", "two-", "echo-"] {
            let order: Vec<&String> = taken
                .iter()
                .filter(|mark| mark.starts_with(sender))
                .collect();
            if let Some(pair) = order.windows(2).find(|pair| pair[0] > pair[1]) {
                soak.ledger.violation(format!(
                    "{name} has taken {} in before {}",
                    pair[0], pair[1]
                ));
            }
        }
        done_once(soak, &name);
        if Team::is_agent(&name) {
            agents::were_told_once(soak, &name, &taken);
        }
        // A fresh conversation does not read what was sent before.
        if Team::is_volatile(&name) {
            continue;
        }
        let rejected =
            std::fs::read_to_string(soak.team.path(&format!("inbox/{name}.rejected.jsonl")));
        let rejected = rejected.unwrap_or_default();
        for sent in by_receiver
            .get(&name)
            .into_iter()
            .flatten()
            .filter(|sent| sent.acknowledged)
        {
            let mark = sent.mark();
            if !(times.contains_key(&*mark) || sent.foreign && rejected.contains(&mark)) {
                soak.ledger
                    .violation(format!("{name} has lost {mark}, which was acknowledged"));
            }
        }
    }
}

/// The marks of the messages that a member has consumed, in order.
fn consumed(soak: &Soak, name: &str) -> Vec<String> {
    let transcript =
        std::fs::read(soak.team.path(&format!("transcript/{name}.jsonl"))).unwrap_or_default();
    let mut marks = Vec::new();
    for line in transcript
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let entry: Value = serde_json::from_slice(line).unwrap_or_else(|error| {
            soak.ledger.violation(format!(
                "a line of the transcript of {name} is no JSON: {error}"
            ));
            Value::Null
        });
        if entry["entry"] != "messages" {
            continue;
        }
        for message in entry["messages"].as_array().into_iter().flatten() {
            // What comes back repeats what its reader had sent.
            if message["type"] == "returned" {
                continue;
            }
            let content = message["content"].as_str().unwrap_or_default();
            // That one is told apart by its text: it was sent once for each time that the command
            // ran.
            if !content.starts_with("relayed ") {
                marks.extend(mark_in(content));
            }
        }
    }
    marks
}

pub(crate) fn mark_in(text: &str) -> Option<String> {
    let at = ["one-", "two-", "echo-"]
        .iter()
        .find_map(|sender| text.find(sender))?;
    let end = text[at..].find('.')?;
    Some(text[at..=at + end].to_owned())
}

/// A command that was interrupted by a death is not run again.
fn done_once(soak: &Soak, name: &str) {
    let made = std::fs::read_to_string(soak.team.root().join(format!("work/made-{name}")))
        .unwrap_or_default();
    let mut seen = BTreeSet::new();
    for line in made.lines() {
        if !seen.insert(line) {
            soak.ledger
                .violation(format!("{name} has run the command of {line} twice"));
        }
    }
}

fn logs_hold_no_panic(soak: &Soak) {
    let names = soak.team.names().chain(["teamd".to_owned()]);
    for name in names {
        let log =
            std::fs::read_to_string(soak.team.path(&format!("log/{name}.log"))).unwrap_or_default();
        if let Some(line) = log.lines().find(|line| line.contains("panicked")) {
            soak.ledger.violation(format!("log/{name}.log: {line}"));
        }
    }
}
