//! Ends: by handshake, refused, by force, of the whole team.

use std::time::Duration;

use crate::invariants::processes;
use crate::stage::{Checked, Stage, hold};

/// What is sent to her right before she is asked to leave.
const LAST_WORDS: &str = "/bash echo s1 >> effects";

/// Runs `teamctl shutdown` until it is answered; returns the code of the last answer.
fn ask(stage: &mut Stage, args: &[&str], enough: fn(&Stage) -> bool) -> Checked<i32> {
    stage.unwant("alice");
    stage.ledger.asked_to_leave.push("alice".to_owned());
    if args.contains(&"--force") {
        stage.ledger.forced.push("alice".to_owned());
    }
    let all = [&["shutdown", "alice"][..], args].concat();
    let mut code = 0;
    stage.achieve(
        "shut alice down",
        |stage, _| {
            let mut said = stage.main(&all)?;
            code = said.code.unwrap_or(-1);
            if code == 3 {
                // An answer, too.
                said.code = Some(0);
            }
            Ok(said)
        },
        enough,
    )?;
    Ok(code)
}

fn gone(stage: &mut Stage, code: i32) -> Checked {
    hold(code != 3, || {
        "she did not reject, and it was said that she did".to_owned()
    })?;
    // The answer is true when the journal has it; a roster that cannot be written is tried again.
    if stage.is_refused_something() {
        stage.until("config.json to say so", |stage| stage.has_ended("alice"))?;
    }
    hold(stage.has_ended("alice"), || {
        format!(
            "shutdown ended with {code}, and config.json says {}",
            stage.status("alice")
        )
    })?;
    // Others may be on their way, whose command was killed: but nothing that she started is.
    let left = processes::orphans(stage, &stage.roster());
    hold(left.is_empty(), || {
        format!("shutdown ended with {code}, and {left:?} still runs")
    })
}

/// Idle, she leaves: when she has read what was sent to her before.
pub(super) fn shutdown(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.achieve(
        "spawn",
        |stage, _| stage.ctl(&["spawn", "bob"]),
        |stage| stage.is_running("bob"),
    )?;
    stage.want("alice");
    stage.achieve(
        "spawn",
        |stage, _| stage.ctl(&["spawn", "alice"]),
        |stage| stage.is_running("alice"),
    )?;
    stage.stop_her_until("decide_within", Duration::ZERO);
    stage.send_plain("alice", LAST_WORDS, &[])?;
    let sent = stage.ledger.sent.last().is_some_and(|sent| sent.told);
    stage.mark();
    let code = ask(stage, &[], |stage| stage.has_ended("alice"))?;
    gone(stage, code)?;
    // A worker that is not the victim leaves only when the journal has its answer, whatever else
    // dies.
    let status = stage.status("alice");
    hold(
        !sent || status != "shutdown" || stage.team.has_consumed("alice", LAST_WORDS),
        || "she has left, and not read what was sent to her before she was asked".to_owned(),
    )?;
    hold(status == "shutdown" || stage.kills_the_worker(), || {
        format!("she was asked to leave, and is {status}")
    })
}

/// At work, she does not want to; then she goes on.
pub(super) fn reject(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.want("alice");
    stage.ledger.refuses.push("alice".to_owned());
    // She works until she has been asked, and then long enough to hear of it; out of a sandbox,
    // where her inbox is seen.
    let asked = "until grep -q shutdown_request .team/inbox/alice.jsonl; do sleep 0.05; done";
    let orders = format!(
        "/reject_shutdown not now\n/bash echo r1 >> effects; {asked}\n/sleep 0.1\n/bash echo r2 >> effects"
    );
    let all = ["spawn", "alice", "--sandbox", "off", "--prompt", &orders];
    stage.achieve(
        "spawn",
        |stage, _| stage.ctl(&all),
        |stage| stage.is_running("alice"),
    )?;
    stage.until("her to work", |stage| {
        stage.team.text("effects").contains("r1")
    })?;
    stage.mark();
    // Whether the request reaches her model, or the daemon's death lets her end first, is open:
    // then she leaves.
    let code = ask(stage, &[], |stage| {
        stage.has_ended("alice")
            || stage
                .team
                .requests("shutdown")
                .iter()
                .any(|request| request["status"] == "rejected")
    })?;
    if code == 0 {
        return gone(stage, code);
    }
    if !stage.has_ended("alice") {
        stage.want("alice");
        stage.until_read("alice")?;
    }
    Ok(())
}

/// A worker that does not answer is ended with all that it started.
pub(super) fn force(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.want("alice");
    // Without a sandbox no namespace ends with the command: her shim alone sees to it.
    let orders = "/bash echo f1 >> effects; setsid sleep 300 & sleep 301";
    let all = ["spawn", "alice", "--sandbox", "off", "--prompt", orders];
    stage.achieve(
        "spawn",
        |stage, _| stage.ctl(&all),
        |stage| stage.is_running("alice"),
    )?;
    stage.until("her to work", |stage| {
        stage.team.text("effects").contains("f1")
    })?;
    stage.mark();
    let code = ask(stage, &["--force", "--timeout", "100ms"], |stage| {
        stage.has_ended("alice")
    })?;
    gone(stage, code)
}

/// All are asked, and the daemon ends. They are so many that one decision grows more inboxes than
/// the daemon syncs itself: another thread does.
pub(super) fn stop(stage: &mut Stage) -> Checked {
    stage.start()?;
    for name in ["bob", "carol", "dave", "erin"] {
        stage.achieve(
            "spawn",
            |stage, _| stage.ctl(&["spawn", name]),
            |stage| stage.is_running(name),
        )?;
    }
    let all = [
        "spawn",
        "alice",
        "--plan",
        "--prompt",
        "/plan_approval Something",
    ];
    stage.achieve(
        "spawn",
        |stage, _| stage.ctl(&all),
        |stage| stage.is_running("alice"),
    )?;
    stage.until("a plan", |stage| {
        stage.status("alice") == "awaiting_approval"
    })?;
    stage.mark();
    stage.stop(true)?;
    stage.start_plain()
}

/// All are asked to leave at once: one idle, one at work, one with a plan.
pub(super) fn all(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.ctl_done(&["spawn", "bob"])?;
    stage.ctl_done(&[
        "spawn",
        "carol",
        "--plan",
        "--prompt",
        "/plan_approval Something",
    ])?;
    stage.ctl_done(&[
        "spawn",
        "alice",
        "--prompt",
        "/bash echo e1 >> effects; setsid sleep 300 & sleep 0.2",
    ])?;
    stage.until("all to be ready", |stage| {
        stage.team.text("effects").contains("e1") && stage.status("carol") == "awaiting_approval"
    })?;
    stage.mark();
    let names = ["alice", "bob", "carol"];
    stage.ledger.asked_to_leave.extend(names.map(str::to_owned));
    let args = ["shutdown", "--all", "--decide-within", "1s"];
    let over = |stage: &Stage| names.iter().all(|name| stage.has_ended(name));
    stage.achieve("shut all down", |stage, _| stage.main(&args), over)?;
    if stage.is_refused_something() {
        stage.until("config.json to say so", over)?;
    }
    hold(over(stage), || {
        format!(
            "all were shut down, and config.json says {}",
            stage.roster()
        )
    })?;
    let left = processes::orphans(stage, &stage.roster());
    hold(left.is_empty(), || {
        format!("all were shut down, and {left:?} still runs")
    })
}
