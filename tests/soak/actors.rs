//! The actors, each in a loop: each call is one action.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Soak;
use crate::agents;
use crate::kills;
use crate::ledger::Sent;
use crate::team::{Rng, Team};

/// Each runs in a thread of its own.
pub(crate) const ALL: [fn(&Soak, &mut Rng); 7] = [
    sender_one,
    sender_two,
    foreign_writer,
    answerer,
    commander,
    roster_changer,
    kills::act,
];

fn sender_one(soak: &Soak, rng: &mut Rng) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    send(soak, rng, "one", NEXT.fetch_add(1, Ordering::Relaxed));
}

fn sender_two(soak: &Soak, rng: &mut Rng) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    send(soak, rng, "two", NEXT.fetch_add(1, Ordering::Relaxed));
}

/// Sends text, a command that appends a line, a message to a third one, or work that takes a while.
fn send(soak: &Soak, rng: &mut Rng, sender: &'static str, number: u64) {
    let to = soak.team.any(rng);
    let mut sent = Sent {
        to,
        sender,
        number,
        acknowledged: false,
        foreign: false,
    };
    let mark = sent.mark();
    let text = match rng.below(12) {
        _ if Team::is_agent(&sent.to) => agents::order(&soak.team, rng, &sent.to, &mark),
        0..3 => format!("/bash echo {mark} >> made-{}", sent.to),
        3 => format!("/send_message {} relayed {mark}", soak.team.any(rng)),
        4 => format!(
            "{mark}\n/bash sleep 0.{}; echo {mark} >> made-{}",
            rng.below(9),
            sent.to
        ),
        5 => format!("{mark}\n/sleep 0.3"),
        6 => format!("/write_file made-{}.txt {mark}", sent.to),
        _ => format!("just text {mark}"),
    };
    sent.acknowledged = soak
        .team
        .teamctl(soak, &["send", &sent.to, &text])
        .is_done();
    soak.ledger.sent(sent);
}

/// A shell that knows nothing of us: one write, no id. Sometimes what it writes is no message.
fn foreign_writer(soak: &Soak, rng: &mut Rng) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let to = soak.team.any(rng);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut sent = Sent {
        to,
        sender: "echo",
        number,
        acknowledged: false,
        foreign: true,
    };
    let at = soak.team.path(&format!("inbox/{}.jsonl", sent.to));
    let Ok(mut inbox) = std::fs::OpenOptions::new().append(true).open(at) else {
        return;
    };
    let line = match rng.below(10) {
        0 => format!("{{\"broken {}\n", sent.mark()),
        _ => format!(
            "{{\"type\":\"message\",\"from\":\"user\",\"content\":\"{}\"}}\n",
            sent.mark()
        ),
    };
    sent.acknowledged = inbox
        .write(line.as_bytes())
        .is_ok_and(|written| written == line.len());
    soak.ledger.sent(sent);
    rng.pause(Duration::from_millis(200));
}

/// Asks for plans, and answers those that are there.
fn answerer(soak: &Soak, rng: &mut Rng) {
    if rng.once_in(3) {
        let name = soak.team.any(rng);
        if rng.once_in(2) {
            soak.team
                .teamctl(soak, &["request-plan", &name, "what next?"]);
        } else {
            let order = if Team::is_agent(&name) {
                "@plan_approval {\"plan\": \"Drop the cache\"}"
            } else {
                "/plan_approval Drop the cache, then rebuild"
            };
            soak.team.teamctl(soak, &["send", &name, order]);
        }
    }
    rng.pause(Duration::from_millis(700));
    answer_plans(soak, rng, 4);
}

/// Answers some of the pending plans, or (with 0) approves all.
pub(crate) fn answer_plans(soak: &Soak, rng: &mut Rng, leave: usize) {
    let listed = soak.team.teamctl(soak, &["--json", "plans"]);
    let plans: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
    for plan in plans.as_array().into_iter().flatten() {
        let id = plan["request_id"].as_str().unwrap();
        if leave > 0 && rng.once_in(leave) {
            continue;
        }
        let reject = leave > 0 && rng.once_in(3);
        if !reject {
            soak.ledger.approves(id);
        }
        soak.team
            .teamctl(soak, &[if reject { "reject" } else { "approve" }, id]);
    }
}

/// Looks, waits, interrupts, shuts down.
fn commander(soak: &Soak, rng: &mut Rng) {
    let name = soak.team.any(rng);
    let run = |args: &[&str]| drop(soak.team.teamctl(soak, args));
    match rng.below(16) {
        0 => run(&["status"]),
        1 => run(&["--json", "status", &name]),
        2 => run(&["requests"]),
        3 => run(&["events", "--last", "20"]),
        4 => run(&["inbox", &name, "--last", "5"]),
        5 => run(&["interrupt", &name]),
        6 => run(&["wait", &name, "--for", "idle", "--timeout", "2s"]),
        7 => run(&["broadcast", "to all of you"]),
        8 | 9 => run(&[
            "shutdown",
            &name,
            "--timeout",
            "10s",
            "--decide-within",
            "1s",
        ]),
        10 => run(&["shutdown", &name, "--no-wait"]),
        11 => run(&["shutdown", &name, "--force", "--timeout", "0"]),
        12 => run(&["shutdown", &name, "--force", "--timeout", "500ms"]),
        13 => run(&["send", &name, "/reject_shutdown not now\n/sleep 0.5"]),
        14 if rng.once_in(20) => run(&[
            "shutdown",
            "--all",
            "--timeout",
            "20s",
            "--decide-within",
            "1s",
        ]),
        15 if Team::is_volatile(&name) => run(&["forget", &name]),
        _ => run(&["transcript", &name]),
    }
    rng.pause(Duration::from_millis(500));
}

fn roster_changer(soak: &Soak, rng: &mut Rng) {
    rng.pause(Duration::from_secs(1));
    respawn(soak, rng);
}

/// Spawns all teammates that are not there: most go on with their conversation, the volatile ones
/// often begin anew.
pub(crate) fn respawn(soak: &Soak, rng: &mut Rng) {
    let Some(roster) = soak.team.roster(soak) else {
        return;
    };
    for name in soak.team.names() {
        let member = roster
            .members
            .iter()
            .find(|member| member.name.as_str() == name);
        if member.is_some_and(|member| !member.status.is_ended()) {
            continue;
        }
        let fresh = member.is_none() || Team::is_volatile(&name) && rng.once_in(2);
        if fresh && Team::is_volatile(&name) && rng.once_in(2) {
            soak.team.teamctl(
                soak,
                &["spawn", &name, "--prompt", "begin", "--model", "script"],
            );
        } else if fresh && Team::is_agent(&name) {
            soak.team
                .teamctl(soak, &["spawn", &name, "--agent", "claude"]);
        } else if fresh {
            soak.team
                .teamctl(soak, &["spawn", &name, "--model", "script"]);
        } else {
            soak.team.teamctl(soak, &["spawn", &name, "--resume"]);
        }
    }
}
