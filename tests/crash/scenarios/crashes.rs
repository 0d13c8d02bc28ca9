//! Workers that end again and again, and one that hangs.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::invariants::incarnations::RESTARTS;
use crate::stage::{Checked, Stage, hold};
use crate::support::signal;

/// How long a person looks at a worker that hangs before it sees to that itself: many times the
/// watchdog's time.
const LOOKS_FOR: Duration = Duration::from_secs(15);

/// A worker that crashes too often stays crashed.
pub(super) fn crash_loop(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.ctl_done(&["spawn", "alice", "--prompt", "/bash echo l1 >> effects"])?;
    stage.mark();
    for _ in 0..=RESTARTS {
        stage.until("an incarnation", |stage| {
            stage.is_running("alice") || stage.has_ended("alice")
        })?;
        let incarnation = stage.incarnation("alice");
        let pid = stage.team.pid("alice");
        if !stage.has_ended("alice") {
            signal(pid, Signal::SIGKILL);
        }
        stage.until("her end", |stage| {
            stage.incarnation("alice") > incarnation || stage.has_ended("alice")
        })?;
    }
    let status = stage.status("alice");
    hold(status == "crashed", || {
        format!("she crashed {} times, and is {status}", RESTARTS + 1)
    })
}

/// The lead is told of a worker that does not answer; then it is ended, and goes on in a next
/// incarnation.
pub(super) fn hang(stage: &mut Stage) -> Checked {
    stage.team.write("team.toml", "watchdog = \"2s\"\n");
    stage.start()?;
    stage.want("alice");
    let orders = "/bash echo h1 >> effects; touch held; until [ -e go ]; do sleep 0.01; done\n/bash echo h2 >> effects";
    stage.ctl_done(&["spawn", "alice", "--prompt", orders])?;
    stage.until("her to work", |stage| stage.team.made("held"))?;
    stage.mark();
    let incarnation = stage.incarnation("alice");
    let pid = stage.team.pid("alice");
    let daemon = stage.daemon();
    signal(pid, Signal::SIGSTOP);
    let stopped = Instant::now();
    let ended =
        |stage: &Stage| stage.incarnation("alice") > incarnation || stage.has_ended("alice");
    // A worker without a connection is not ended: not after the death of the daemon, nor where an
    // error has cut it off.
    let lost = |stage: &Stage| {
        stage.daemon() != daemon || stage.is_refused_something() && stopped.elapsed() > LOOKS_FOR
    };
    stage.until("the end of who hangs", |stage| ended(stage) || lost(stage))?;
    if !ended(stage) {
        signal(pid, Signal::SIGCONT);
    }
    stage.team.write("go", "");
    stage.until_read("alice")
}
