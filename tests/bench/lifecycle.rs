//! `teamctl spawn` and `teamctl shutdown` of one teammate, each as a whole process, from its start
//! until it is reaped.
//!
//! Every teammate is a new one: it is forgotten after its end. The limits are taken in turns with
//! the figures.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::Effort;
use crate::figure::{Figure, Sample, time};
use crate::limit::{Bare, Log, silent};
use crate::support::Team;
use crate::support::process::let_pass;

/// Before each measurement: so long that everything sleeps again.
const PAUSE: Duration = Duration::from_millis(60);

/// What the shutdown may take on this machine.
const SHUTDOWN: Duration = Duration::from_millis(10);

/// Measures both.
pub(crate) fn measure(effort: Effort) -> Vec<Figure> {
    let team = Team::started();
    let teamctl = Bare::like(Path::new(env!("CARGO_BIN_EXE_teamctl")), team.root());
    let worker = Bare::like(Path::new(env!("CARGO_BIN_EXE_team-worker")), team.root());
    let mut log = Log::open(team.root());
    let [mut spawn, mut spawn_limit, mut shutdown, mut shutdown_limit] =
        [(); 4].map(|()| Sample::default());
    for _ in 0..effort.of(150) {
        spawn_limit.add(after_a_pause(|| {
            teamctl.run();
            worker.run();
            (0..2).for_each(|_| log.append());
        }));
        spawn.add(after_a_pause(|| {
            run(&team, &["spawn", "alice", "--model", "script"])
        }));
        team.wait_for("alice", "idle");
        shutdown_limit.add(after_a_pause(|| {
            teamctl.run();
            (0..4).for_each(|_| log.append());
        }));
        shutdown.add(after_a_pause(|| run(&team, &["shutdown", "alice"])));
        team.teamctl(["forget", "alice"]).ok();
    }
    team.teamd(["stop"]).ok();
    let spawn_ratio = spawn.ratio(&spawn_limit);
    let shutdown_ratio = shutdown.ratio(&shutdown_limit);
    vec![
        Figure {
            name: "`teamctl shutdown` of an idle teammate, whole process, p50".to_owned(),
            measured: shutdown.to_string(),
            limit: format!("spawn + exit + reap, 4 synced appends: {shutdown_limit}"),
            ratio: Some(shutdown_ratio),
            aim: "≤ 2 ×, and ≤ 10 ms here",
            met: shutdown_ratio <= 2.0 && shutdown.p50() <= SHUTDOWN,
        },
        Figure {
            name: "`teamctl spawn` until ready, whole process, p50".to_owned(),
            measured: spawn.to_string(),
            limit: format!("2 × (spawn + exit + reap), 2 synced appends: {spawn_limit}"),
            ratio: Some(spawn_ratio),
            aim: "≤ 2 ×",
            met: spawn_ratio <= 2.0,
        },
    ]
}

/// Runs `teamctl` as a process without pipes: no other program's time is measured.
pub(crate) fn run(team: &Team, args: &[&str]) {
    let mut command = team.command(env!("CARGO_BIN_EXE_teamctl"), args);
    let status = silent(&mut command).status().unwrap();
    assert!(status.success(), "teamctl {args:?}: {status}");
}

pub(crate) fn after_a_pause(what: impl FnOnce()) -> Duration {
    let_pass(PAUSE);
    let began = Instant::now();
    what();
    began.elapsed()
}

/// Tells how long something took, for a row that has no limit beside it.
pub(crate) fn once(what: impl FnOnce()) -> (Duration, String) {
    let took = after_a_pause(what);
    (took, time(took))
}
