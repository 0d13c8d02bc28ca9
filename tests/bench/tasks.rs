//! What tasks cost: claims of a crowd, and a long list.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Effort;
use crate::figure::{Figure, Sample, time};
use crate::lifecycle::run;
use crate::limit::{Bare, Log, silent};
use crate::support::Team;

/// Measures both.
pub(crate) fn measure(effort: Effort) -> Vec<Figure> {
    let mut figures = claims(effort);
    figures.extend(long_list(effort));
    figures
}

/// Teammates that take tasks by themselves, and say at once that they are done.
fn claims(effort: Effort) -> Vec<Figure> {
    let teammates = effort.of(100);
    let tasks = effort.of(1000);
    let team = Team::started();
    for number in 1..=teammates {
        run(&team, &["spawn", &format!("w{number}"), "--auto"]);
    }
    import(&team, tasks);
    run(&team, &["wait", "--tasks"]);
    let mut limit = Sample::default();
    let mut log = Log::open(team.root());
    for _ in 0..effort.of(500) {
        let began = Instant::now();
        log.append();
        limit.add(began.elapsed());
    }
    let lines: Vec<Value> = team
        .journal()
        .into_iter()
        .filter(|line| line["record"] == "task")
        .collect();
    let at = |line: &Value| line["at"].as_f64().unwrap();
    let of = |event: &str| {
        lines
            .iter()
            .filter(|line| line["event"] == event)
            .collect::<Vec<_>>()
    };
    let claimed = of("claimed");
    let completed = of("completed");
    let took = at(completed.last().unwrap()) - at(claimed[0]);
    // A completed task has no owner any more: its submission tells who did it.
    let mut free = HashMap::new();
    let mut next = Sample::default();
    for line in &lines {
        if line["event"] == "completed" {
            free.insert(
                line["submission"]["by"].as_str().unwrap().to_owned(),
                at(line),
            );
        } else if line["event"] == "claimed"
            && let Some(since) = free.remove(line["owner"].as_str().unwrap())
        {
            next.add(Duration::from_secs_f64((at(line) - since).max(0.0)));
        }
    }
    let once = (claimed.len(), completed.len()) == (tasks, tasks);
    let whole = Duration::from_secs_f64(took / tasks as f64);
    team.teamd(["stop", "--force"]).ok();
    vec![
        Figure {
            name: format!("{teammates} teammates claim, submit and complete {tasks} tasks"),
            measured: format!("{:.0} tasks/s ({} each)", tasks as f64 / took, time(whole)),
            limit: format!("a synced append: {limit}"),
            ratio: Some(whole.as_secs_f64() / limit.p50().as_secs_f64()),
            aim: "each claimed and completed once",
            met: once,
        },
        Figure {
            name: "task completed → the same teammate's next claim".to_owned(),
            measured: format!("{next}, p99 {}", time(next.p99())),
            limit: format!("a synced append: {limit}"),
            ratio: Some(next.ratio(&limit)),
            aim: "–",
            met: once,
        },
    ]
}

/// The commands with many tasks, and with one.
fn long_list(effort: Effort) -> Vec<Figure> {
    let tasks = effort.of(10_000);
    let short = Team::started();
    let long = Team::started();
    import(&short, 1);
    import(&long, tasks);
    let bare = Bare::like(Path::new(env!("CARGO_BIN_EXE_teamctl")), short.root());
    let [mut list, mut list_limit, mut start, mut start_limit] =
        [(); 4].map(|()| Sample::default());
    for _ in 0..effort.of(20).max(5) {
        list_limit.add(took(|| bare.run()));
        list.add(took(|| run(&long, &["task", "list"])));
        for (team, sample) in [(&short, &mut start_limit), (&long, &mut start)] {
            team.teamd(["stop"]).ok();
            sample.add(took(|| {
                let mut command = team.command(env!("CARGO_BIN_EXE_teamd"), ["start"]);
                assert!(silent(&mut command).status().unwrap().success());
            }));
        }
    }
    let row = |name: &str, sample: &Sample, limit: String, of: &Sample| Figure {
        name: format!("{name}, {tasks} tasks"),
        measured: sample.to_string(),
        limit,
        ratio: Some(sample.ratio(of)),
        aim: "–",
        met: true,
    };
    vec![
        row(
            "`teamctl task list`",
            &list,
            format!("a program that does nothing: {list_limit}"),
            &list_limit,
        ),
        row(
            "`teamd start`",
            &start,
            format!("one task: {start_limit}"),
            &start_limit,
        ),
    ]
}

fn import(team: &Team, tasks: usize) {
    let all: Vec<usize> = (1..=tasks).collect();
    for some in all.chunks(1000) {
        let list: String = some
            .iter()
            .map(|number| format!("- [ ] task {number}\n"))
            .collect();
        team.teamctl_with(["task", "import", "-"], &list).ok();
    }
}

fn took(what: impl FnOnce()) -> Duration {
    let began = Instant::now();
    what();
    began.elapsed()
}
