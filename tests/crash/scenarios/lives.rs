//! Lives: of the daemon, and of a teammate.

use nix::sys::signal::Signal;

use crate::invariants::processes;
use crate::stage::{Checked, Stage, hold};
use crate::support::signal;

/// The first start in a directory.
pub(super) fn start(stage: &mut Stage) -> Checked {
    stage.mark();
    stage.start()?;
    stage.start_again()?;
    stage.spawn("bob", &[])
}

/// A teammate with a prompt, which it carries out once.
pub(super) fn spawn(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.want("alice");
    stage.mark();
    stage.spawn("alice", &["--prompt", "/bash echo p1 >> effects\nhello"])?;
    stage.until_read("alice")
}

/// A second life begins anew: without the mail of the first, with the mail since.
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
    stage.send_plain("alice", "of the first life", &[])?;
    signal(stage.team.pid("alice"), Signal::SIGKILL);
    stage.until("her end", |stage| stage.has_ended("alice"))?;
    stage.mark();
    stage.send("alice", &|attempt| format!("between.{attempt}"), &["--queue"])?;
    stage.want("alice");
    stage.spawn("alice", &["--prompt", "/bash echo new >> effects"])?;
    stage.until_read("alice")?;
    let skipped = !stage.team.has_taken_in("alice", "of the first life");
    hold(skipped, || "a fresh life has read the mail of the one before".to_owned())
}

/// A life that crashed goes on where it was.
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

/// A worker dies in a tool call, and the policy starts it again.
pub(super) fn restart(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.spawn("bob", &[])?;
    stage.want("alice");
    // Her keeper has something to end, while the daemon sees her gone.
    let orders = "/bash echo b1 >> effects; for i in 1 2 3 4 5 6 7 8; do sleep 300 & done; touch held; until [ -e go ]; do sleep 0.01; done\n/send_message bob hi\n/bash echo $CRASH_ENV >> environment\n/bash echo b2 >> effects";
    stage.ctl_done(&["spawn", "alice", "--prompt", orders])?;
    stage.until("her to work", |stage| stage.team.made("held"))?;
    stage.send_plain("alice", "unread at the crash", &[])?;
    stage.mark();
    signal(stage.team.pid("alice"), Signal::SIGKILL);
    stage.team.write("go", "");
    stage.until("a second life", |stage| stage.incarnation("alice") >= 2 && stage.is_running("alice"))?;
    stage.until_read("alice")?;
    stage.until_read("bob")
}

/// A daemon takes a team over: one at work, one with a plan, one that has answered, one that died meanwhile, and one that dies
/// at work when it has been taken over: its keeper is nobody's child any more.
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
    stage.ctl_done(&["spawn", "erin", "--restart", "never", "--sandbox", "off", "--prompt", sleeps])?;
    let orders = "/bash echo c1 >> effects; touch held; until [ -e go ]; do sleep 0.01; done\n/bash echo $CRASH_ENV >> environment\n/bash echo c2 >> effects";
    stage.ctl_done(&["spawn", "alice", "--prompt", orders])?;
    let ready = |stage: &Stage| {
        ["held", "busy", "erin"].iter().all(|file| stage.team.made(file))
            && stage.status("bob") == "awaiting_approval"
    };
    stage.until("everybody to be ready", ready)?;
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
    let left = processes::that_say(stage, "sleep 30");
    hold(left.is_empty(), || format!("erin has ended, and {left:?} of hers lives"))?;
    let answered =
        |stage: &Stage| stage.team.requests("shutdown").iter().all(|request| request["status"] != "pending");
    stage.until("carol to have answered", answered)?;
    bob_is_approved_and_all_is_read(stage)
}

/// What bob has planned is approved, and everything that was sent is read.
fn bob_is_approved_and_all_is_read(stage: &mut Stage) -> Checked {
    let plan = stage.team.last_request("plan_approval");
    stage.ledger.approved.push((plan.clone(), false));
    let approved = |stage: &Stage| stage.team.request(&plan)["status"] == "approved";
    stage.achieve("approve", |stage, _| stage.ctl(&["approve", &plan]), approved)?;
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
    let orders = "/bash echo d1 >> effects; touch held; until [ -e go ]; do sleep 0.01; done\n/send_message bob hi\n/bash echo $CRASH_ENV >> environment\n/bash echo d2 >> effects";
    stage.ctl_done(&["spawn", "alice", "--prompt", orders])?;
    let ready = |stage: &Stage| stage.team.made("held") && stage.status("bob") == "awaiting_approval";
    stage.until("everybody to be ready", ready)?;
    stage.mark();
    stage.replace()?;
    stage.send_plain("alice", "after it", &[])?;
    stage.team.write("go", "");
    bob_is_approved_and_all_is_read(stage)
}

/// Whoever has ended is forgotten, and the name begins anew.
pub(super) fn forget(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.ctl_done(&["spawn", "bob"])?;
    stage.ctl_done(&["spawn", "alice", "--prompt", "/bash echo g1 >> effects\n/send_message bob hi"])?;
    stage.until_read("alice")?;
    stage.ledger.asked_to_leave.push("alice".to_owned());
    stage.ctl_done(&["shutdown", "alice"])?;
    stage.mark();
    let forgotten = |stage: &Stage| stage.member("alice").is_null();
    stage.achieve("forget alice", |stage, _| stage.main(&["forget", "alice"]), forgotten)?;
    stage.want("alice");
    stage.spawn("alice", &["--prompt", "/bash echo g2 >> effects"])?;
    stage.until_read("alice")?;
    stage.until_read("bob")
}
