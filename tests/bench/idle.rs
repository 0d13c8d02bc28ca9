//! What a team costs that has nothing to do: memory and processor time.

use std::time::Duration;

use crate::Effort;
use crate::figure::Figure;
use crate::peer::Peer;
use crate::support::Team;
use crate::support::process::let_pass;

const WORKERS: usize = 20;
const TEAM: usize = 50;
/// How long a team must have been idle before it is looked at.
const SETTLE: Duration = Duration::from_secs(2);

/// Measures the memory of idle workers, beside as many processes with an empty event loop.
pub(crate) fn memory(_: Effort) -> Vec<Figure> {
    let team = team_of(WORKERS);
    let peers: Vec<Peer> = (0..WORKERS).map(|_| Peer::start(&["tokio"])).collect();
    let_pass(SETTLE);
    let ours = memory_of((0..WORKERS).map(|number| team.pid(&name(number))));
    let limit = memory_of(peers.iter().map(Peer::pid));
    end(&team);
    let row = |what: &str, (ours, limit): (Option<f64>, Option<f64>), aim, most: f64| Figure {
        name: format!("idle worker, {WORKERS} alive: {what}"),
        measured: megabytes(ours),
        limit: format!("an empty tokio process: {}", megabytes(limit)),
        ratio: ours.zip(limit).map(|(ours, limit)| ours / limit),
        aim,
        met: ours.is_some_and(|ours| ours <= most),
    };
    vec![
        row("RSS", (ours.0, limit.0), "≤ 4 MB", 4.0),
        row("PSS", (ours.1, limit.1), "≤ 0.7 MB", 0.7),
    ]
}

/// Measures the processor time of an idle team, the daemon included.
pub(crate) fn cpu(effort: Effort) -> Vec<Figure> {
    let team = team_of(TEAM);
    let seconds = if effort.quick { 20 } else { 60 };
    let_pass(SETTLE);
    let pids: Vec<i32> = (0..TEAM)
        .map(|number| team.pid(&name(number)))
        .chain([team.daemon_pid()])
        .collect();
    let now = || {
        pids.iter()
            .map(|&pid| scheduled(pid))
            .fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
    };
    let before = now();
    let_pass(Duration::from_secs(seconds));
    let after = now();
    end(&team);
    let milliseconds = (after.0 - before.0) as f64 / 1e6;
    vec![Figure {
        name: format!("idle team of {TEAM}, all processes, CPU over {seconds} s"),
        measured: format!("{milliseconds:.1} ms in {} time slices", after.1 - before.1),
        limit: String::new(),
        ratio: None,
        aim: "< 50 ms over 60 s",
        met: milliseconds * 60.0 / seconds as f64 <= 50.0,
    }]
}

/// A team of idle teammates.
pub(crate) fn team_of(size: usize) -> Team {
    let team = Team::started();
    for number in 0..size {
        drop(team.spawn(&name(number), ""));
    }
    for number in 0..size {
        team.wait_for(&name(number), "idle");
    }
    team
}

/// Ends a team in order.
pub(crate) fn end(team: &Team) {
    team.teamd(["stop", "--force"]).ok();
}

fn name(number: usize) -> String {
    format!("w{number:02}")
}

/// Medians of RSS and PSS, in megabytes of 1,024 kB; none where the kernel does not tell.
pub(crate) fn memory_of(pids: impl Iterator<Item = i32>) -> (Option<f64>, Option<f64>) {
    let files: Vec<String> = pids
        .map(|pid| std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default())
        .collect();
    let median = |field: &str| {
        let mut values: Vec<u32> = files
            .iter()
            .filter_map(|file| {
                file.lines().find_map(|line| {
                    line.strip_prefix(field)?
                        .split_whitespace()
                        .next()?
                        .parse()
                        .ok()
                })
            })
            .collect();
        values.sort_unstable();
        values
            .get(values.len() / 2)
            .map(|&kilobytes| f64::from(kilobytes) / 1024.0)
    };
    (median("Rss:"), median("Pss:"))
}

fn megabytes(value: Option<f64>) -> String {
    // A worker does not let other processes of the user look into it.
    value.map_or_else(
        || "only root can see it".to_owned(),
        |value| format!("{value:.2} MB"),
    )
}

/// Nanoseconds on a processor and time slices of a process, all its threads:
/// `/proc/PID/task/TID/schedstat`.
pub(crate) fn scheduled(pid: i32) -> (u64, u64) {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_thread = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        let mut numbers = text
            .split_whitespace()
            .map(|number| number.parse().unwrap());
        (numbers.next().unwrap_or(0), numbers.nth(1).unwrap_or(0))
    };
    threads
        .map(|thread| of_thread(thread.unwrap().path()))
        .fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
}
