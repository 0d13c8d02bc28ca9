//! Workers that end again and again, and one that hangs.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::invariants::lives::RESTARTS;
use crate::stage::{Checked, Stage, hold};
use crate::support::signal;

/// How long a person looks at a worker that hangs before it sees to that itself: many times the watchdog's time.
const LOOKS_FOR: Duration = Duration::from_secs(15);

/// Whoever crashes too often stays so.
pub(super) fn crash_loop(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.ctl_done(&["spawn", "alice", "--prompt", "/bash echo l1 >> effects"])?;
    stage.mark();
    for _ in 0..=RESTARTS {
        stage.until("a life", |stage| stage.is_running("alice") || stage.has_ended("alice"))?;
        let (life, pid) = (stage.incarnation("alice"), stage.team.pid("alice"));
        if !stage.has_ended("alice") {
            signal(pid, Signal::SIGKILL);
        }
        stage.until("her end", |stage| stage.incarnation("alice") > life || stage.has_ended("alice"))?;
    }
    let status = stage.status("alice");
    hold(status == "crashed", || format!("she crashed {} times, and is {status}", RESTARTS + 1))
}

/// Whoever does not answer is told of, then ended, and goes on in a next life.
pub(super) fn hang(stage: &mut Stage) -> Checked {
    stage.team.write("team.toml", "watchdog = \"2s\"\n");
    stage.start()?;
    stage.want("alice");
    let orders = "/bash echo h1 >> effects; touch held; until [ -e go ]; do sleep 0.01; done\n/bash echo h2 >> effects";
    stage.ctl_done(&["spawn", "alice", "--prompt", orders])?;
    stage.until("her to work", |stage| stage.team.made("held"))?;
    stage.mark();
    let (life, pid, daemon) = (stage.incarnation("alice"), stage.team.pid("alice"), stage.daemon());
    signal(pid, Signal::SIGSTOP);
    let stopped = Instant::now();
    let ended = |stage: &Stage| stage.incarnation("alice") > life || stage.has_ended("alice");
    // Nobody is ended who has no connection: not after the death of the daemon, nor where an error has cut that off.
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
