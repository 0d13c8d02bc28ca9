//! Incarnations of the daemon and of a teammate.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::invariants::processes;
use crate::stage::{Checked, Stage, Victim, Violation, hold};
use crate::support::running::poll_for;
use crate::support::{process, signal};

/// The first start in a directory.
pub(super) fn start(stage: &mut Stage) -> Checked {
    stage.mark();
    if stage.is_victim(Victim::Ctl) {
        stage.start_in_the_background()?
    } else {
        stage.start()?
    }
    stage.start_again()?;
    stage.spawn("bob", &[])
}

/// A teammate with a prompt, which it carries out once.
pub(super) fn spawn(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.want("alice");
    stage.mark();
    stage.spawn(
        "alice",
        &["--prompt", "/bash echo p1.{attempt} >> effects\nhello"],
    )?;
    stage.until_read("alice")
}

/// A second incarnation begins anew: without the mail of the first, with the mail since.
pub(super) fn respawn(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.ctl_done(&[
        "spawn",
        "alice",
        "--restart",
        "never",
        "--prompt",
        "/bash echo old >> effects; touch held; sleep 300",
    ])?;
    stage.until("her to work", |stage| stage.team.made("held"))?;
    stage.send_plain("alice", "of the first incarnation", &[])?;
    signal(stage.team.pid("alice"), Signal::SIGKILL);
    stage.until("her end", |stage| stage.has_ended("alice"))?;
    stage.mark();
    stage.send(
        "alice",
        &|attempt| format!("between.{attempt}"),
        &["--queue"],
    )?;
    stage.want("alice");
    stage.spawn(
        "alice",
        &["--prompt", "/bash echo new.{attempt} >> effects"],
    )?;
    stage.until_read("alice")?;
    let skipped = !stage.team.has_consumed("alice", "of the first incarnation");
    hold(skipped, || {
        "a fresh incarnation has read the mail of the one before".to_owned()
    })
}

/// An incarnation that crashed goes on where it was.
pub(super) fn resume(stage: &mut Stage) -> Checked {
    stage.start()?;
    let orders = "/bash echo a1 >> effects; touch held; until [ -e go ]; do sleep 0.01; done\n/bash echo a2 >> effects";
    stage.ctl_done(&["spawn", "alice", "--restart", "never", "--prompt", orders])?;
    stage.until("her to work", |stage| stage.team.made("held"))?;
    stage.send_plain("alice", "unread at the crash", &[])?;
    signal(stage.team.pid("alice"), Signal::SIGKILL);
    stage.until("her end", |stage| stage.has_ended("alice"))?;
    stage.team.write("go", "");
    stage.want("alice");
    stage.mark();
    stage.spawn("alice", &["--resume"])?;
    stage.until_read("alice")
}

/// A line that a program writes twice, to two incarnations: it has one id, and is consumed once.
const TWICE: &str = r#"{"id":"01939b1e-0000-7000-8000-000000000001","type":"message","from":"user","content":"twice"}"#;

/// A worker dies in a tool call, and the policy starts it again.
pub(super) fn restart(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.spawn("bob", &[])?;
    stage.want("alice");
    // Her shim has something to end, while the daemon sees her gone.
    let orders = "/bash touch begun; until [ -e on ]; do sleep 0.01; done\n/bash echo b1 >> effects; for i in 1 2 3 4 5 6 7 8; do sleep 300 & done; touch held; until [ -e go ]; do sleep 0.01; done\n/send_message bob hi\n/bash echo $CARGO_CRASH_ENV >> environment\n/bash echo b2 >> effects";
    stage.ctl_done(&["spawn", "alice", "--prompt", orders])?;
    stage.until("her to begin", |stage| stage.team.made("begun"))?;
    stage.team.echo("alice", TWICE);
    stage.team.write("on", "");
    stage.until("her to work", |stage| stage.team.made("held"))?;
    hold(stage.team.has_consumed("alice", "twice"), || {
        "she works, and has not read her mail".to_owned()
    })?;
    stage.send_plain("alice", "unread at the crash", &[])?;
    stage.mark();
    signal(stage.team.pid("alice"), Signal::SIGKILL);
    stage.team.write("go", "");
    stage.until("a second incarnation", |stage| {
        stage.incarnation("alice") >= 2 && stage.is_running("alice")
    })?;
    stage.team.echo("alice", TWICE);
    stage.until_read("alice")?;
    stage.until_read("bob")
}

/// A worker and its shim are killed together, and leave much: the daemon alone sees to that.
pub(super) fn orphans(stage: &mut Stage) -> Checked {
    stage.start()?;
    let sleeps = "/bash for i in {1..20}; do setsid sleep 300 & done; touch held; sleep 301";
    stage.ctl_done(&[
        "spawn",
        "alice",
        "--restart",
        "never",
        "--sandbox",
        "off",
        "--prompt",
        sleeps,
    ])?;
    stage.until("her to work", |stage| stage.team.made("held"))?;
    let alice = stage.team.pid("alice");
    let daemon = stage.daemon();
    let shim = process::children(alice)
        .into_iter()
        .find(|&pid| process::command_line(pid).contains(SHIM));
    let Some(shim) = shim else {
        return Err(Violation("no shim supervises her command".to_owned()));
    };
    stage.mark();
    // She must not see its end: she would end herself what it supervised.
    signal(alice, Signal::SIGSTOP);
    signal(shim, Signal::SIGKILL);
    signal(alice, Signal::SIGKILL);
    stage.until("her end", |stage| stage.has_ended("alice"))?;
    let left = processes::of_command(stage, "sleep 30");
    if stage.daemon() != daemon {
        // An orphan is not found while no daemon runs (docs/reliability.md, section 5).
        for (pid, _) in left.iter() {
            signal(*pid, Signal::SIGKILL);
        }
        return Ok(());
    }
    hold(left.is_empty(), || {
        format!("she has ended, and {left:?} of hers still runs")
    })
}

/// What the command line of a shim contains.
const SHIM: &str = " shim ";

/// A daemon takes a team over: one at work, one with a plan, one that has answered, one that died
/// meanwhile, and one that dies at work when it has been taken over: its shim is an orphan.
pub(super) fn adopt(stage: &mut Stage) -> Checked {
    stage.start_plain()?;
    stage.want("alice");
    stage.ctl_done(&[
        "spawn",
        "bob",
        "--plan",
        "--prompt",
        "/plan_approval Something\n/bash echo bob >> effects",
    ])?;
    stage.ctl_done(&[
        "spawn",
        "carol",
        "--prompt",
        "/reject_shutdown no\n/bash touch busy; until [ -e go ]; do sleep 0.01; done",
    ])?;
    stage.ctl_done(&["spawn", "dave", "--restart", "never"])?;
    let sleeps = "/bash for i in {1..100}; do setsid sleep 300 & done; touch erin; sleep 301";
    stage.ctl_done(&[
        "spawn",
        "erin",
        "--restart",
        "never",
        "--sandbox",
        "off",
        "--prompt",
        sleeps,
    ])?;
    let orders = "/bash echo c1 >> effects; touch held; until [ -e go ]; do sleep 0.01; done\n/bash echo $CARGO_CRASH_ENV >> environment\n/bash echo c2 >> effects";
    stage.ctl_done(&["spawn", "alice", "--prompt", orders])?;
    stage.until("all to be ready", |stage| {
        ["held", "busy", "erin"]
            .iter()
            .all(|file| stage.team.made(file))
            && stage.status("bob") == "awaiting_approval"
    })?;
    stage.ctl_done(&["shutdown", "carol", "--no-wait"])?;
    stage.ledger.asked_to_leave.push("carol".to_owned());
    stage.ledger.refuses.push("carol".to_owned());
    stage.kill_daemon();
    signal(stage.team.pid("dave"), Signal::SIGKILL);
    stage.team.write("go", "");
    stage.mark();
    stage.send_plain("alice", "while no daemon ran", &[])?;
    let erin = stage.team.pid("erin");
    stage.start()?;
    signal(erin, Signal::SIGKILL);
    stage.until("the end of erin", |stage| stage.has_ended("erin"))?;
    let left = processes::of_command(stage, "sleep 30");
    hold(left.is_empty(), || {
        format!("erin has ended, and {left:?} of hers still runs")
    })?;
    stage.until("carol to have answered", |stage| {
        stage
            .team
            .requests("shutdown")
            .iter()
            .all(|request| request["status"] != "pending")
    })?;
    bob_is_approved_and_all_is_read(stage)
}

/// What bob has planned is approved, and everything that was sent is read.
fn bob_is_approved_and_all_is_read(stage: &mut Stage) -> Checked {
    let plan = stage.team.last_request("plan_approval");
    stage.ledger.approved.push((plan.clone(), false));
    stage.achieve(
        "approve",
        |stage, _| stage.ctl(&["approve", &plan]),
        |stage| stage.team.request(&plan)["status"] == "approved",
    )?;
    stage.until_read("alice")?;
    stage.until_read("bob")
}

/// Another program becomes the daemon, while one works and one waits with a plan.
pub(super) fn replace(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.want("alice");
    stage.ctl_done(&[
        "spawn",
        "bob",
        "--plan",
        "--prompt",
        "/plan_approval Something\n/bash echo bob >> effects",
    ])?;
    let orders = "/bash echo d1 >> effects; touch held; until [ -e go ]; do sleep 0.01; done\n/send_message bob hi\n/bash echo $CARGO_CRASH_ENV >> environment\n/bash echo d2 >> effects";
    stage.ctl_done(&["spawn", "alice", "--prompt", orders])?;
    stage.until("all to be ready", |stage| {
        stage.team.made("held") && stage.status("bob") == "awaiting_approval"
    })?;
    stage.mark();
    stage.replace()?;
    stage.send_plain("alice", "after it", &[])?;
    stage.team.write("go", "");
    bob_is_approved_and_all_is_read(stage)
}

/// How long a shim that is held can keep the end of an incarnation from being journaled: less than
/// a hand-over waits.
const HELD_FOR: Duration = Duration::from_secs(2);

/// A worker dies right before another program becomes the daemon, and its shim is slow: the program
/// that knows how it ended, and how it is started again, reaps it first.
pub(super) fn handover(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.want("alice");
    let orders = "/bash echo k1 >> effects; touch held; until [ -e go ]; do sleep 0.01; done\n/bash echo k2 >> effects";
    stage.ctl_done(&["spawn", "alice", "--prompt", orders])?;
    stage.until("her to work", |stage| stage.team.made("held"))?;
    let daemon = stage.daemon();
    let alice = stage.team.pid("alice");
    let journal = stage.team.path("journal.jsonl");
    let handed_over = move || {
        let lines = std::fs::read_to_string(&journal).unwrap_or_default();
        lines.matches(STARTED).count() > 1
    };
    stage.hold_her_shim(move || {
        poll_for(HELD_FOR, &mut || handed_over());
    })?;
    stage.mark();
    signal(alice, Signal::SIGKILL);
    stage.team.write("go", "");
    stage.until("the daemon to see her gone", move |stage| {
        stage.daemon() != daemon || process::stat(alice).is_none()
    })?;
    stage.replace()?;
    stage.until_read("alice")?;
    let lines = stage.team.journal();
    let place = |event: &str, nth| {
        let mut found = (0..lines.len()).filter(|&at| lines[at]["event"] == event);
        found.nth(nth)
    };
    let ended = place("exited", 0);
    let next = place("started", 1);
    let how = ended.map(|at| &lines[at]["exit"]);
    // Of a process that is traced, its parent may be refused how it ended: the tracer hears that
    // first.
    let told = stage.is_victim(Victim::Worker) || how.is_some_and(|how| how["signal"] == 9);
    let known = ended.is_some() && ended < next && told;
    // A daemon that dies takes with it what it knew; one that is refused something may know
    // nothing.
    hold(
        known || stage.is_victim(Victim::Daemon) || stage.daemon() != daemon,
        || {
            format!(
                "she was gone before the hand-over, and her end is at {ended:?} ({how:?}), that at {next:?}"
            )
        },
    )
}

/// What the line says with which a program becomes the daemon.
const STARTED: &str = r#""event":"started""#;

/// An ended teammate is forgotten, and the name begins anew.
pub(super) fn forget(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.ctl_done(&["spawn", "bob"])?;
    stage.ctl_done(&[
        "spawn",
        "alice",
        "--prompt",
        "/bash echo g1 >> effects\n/send_message bob hi",
    ])?;
    stage.until_read("alice")?;
    stage.ledger.asked_to_leave.push("alice".to_owned());
    stage.ctl_done(&["shutdown", "alice"])?;
    stage.mark();
    stage.achieve(
        "forget alice",
        |stage, _| stage.main(&["forget", "alice"]),
        |stage| stage.member("alice").is_null(),
    )?;
    stage.want("alice");
    stage.spawn("alice", &["--prompt", "/bash echo g2.{attempt} >> effects"])?;
    stage.until_read("alice")?;
    stage.until_read("bob")
}
