//! A team of ten, of a hundred, of a thousand: what everything takes, and how the cost of one thing
//! grows with the team.
//!
//! The cost of one thing is the processor time of the daemon and what it writes. The sender and the
//! receiver are one process each, however many others there are.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use teamd_shared::inbox::{Appender, Durability, count_lines};
use teamd_shared::message::{Body, Message};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::transcript;

use crate::Effort;
use crate::figure::{Figure, time};
use crate::idle::{end, scheduled};
use crate::lifecycle::{once, run};
use crate::support::Team;
use crate::support::process::{descriptors, let_pass};

/// How many `teamctl spawn` run at once.
const SPAWNERS: usize = 4;
/// How often one thing is done to see what it costs.
const TIMES: u32 = 20;
/// What was begun before must not be counted.
const SETTLE: Duration = Duration::from_millis(500);

/// What one thing costs the daemon.
#[derive(Debug, Clone, Copy)]
struct Cost {
    cpu: Duration,
    /// Bytes that it writes; none where only root sees them.
    written: Option<u64>,
}

/// The costs in a team of one size.
struct Costs {
    size: usize,
    spawn: Cost,
    message: Cost,
    shutdown: Cost,
}

/// One thing, and what it costs.
type Thing = (&'static str, fn(&Costs) -> Cost);

/// Measures three teams, or with `--quick` the first two.
pub(crate) fn measure(effort: Effort) -> Vec<Figure> {
    let sizes: &[usize] = if effort.quick {
        &[10, 100]
    } else {
        &[10, 100, 1000]
    };
    let mut figures = Vec::new();
    let costs: Vec<Costs> = sizes
        .iter()
        .map(|&size| of_size(size, &mut figures))
        .collect();
    let first = &costs[0];
    let last = &costs[costs.len() - 1];
    let things: [Thing; 3] = [
        (
            "message (`send`, consumed, two changes of status, notice)",
            |costs| costs.message,
        ),
        ("`spawn`", |costs| costs.spawn),
        ("`shutdown` (all others are told)", |costs| costs.shutdown),
    ];
    for (what, of) in things {
        let cpu: Vec<String> = costs
            .iter()
            .map(|costs| format!("{}: {}", costs.size, time(of(costs).cpu)))
            .collect();
        let ratio = of(last).cpu.as_secs_f64() / of(first).cpu.as_secs_f64();
        figures.push(row(
            &format!("one {what}: CPU of the daemon"),
            cpu.join(", "),
            Some(ratio),
        ));
        let written: Vec<String> = costs
            .iter()
            .map(|costs| {
                of(costs).written.map_or_else(
                    || "only root sees it".to_owned(),
                    |it| format!("{}: {it}", costs.size),
                )
            })
            .collect();
        let ratio = of(last)
            .written
            .zip(of(first).written)
            .map(|(last, first)| last as f64 / first as f64);
        figures.push(row(
            &format!("one {what}: bytes that the daemon writes"),
            written.join(", "),
            ratio,
        ));
    }
    figures
}

fn row(name: &str, measured: String, ratio: Option<f64>) -> Figure {
    let limit = String::new();
    let aim = "";
    let limit = if ratio.is_some() {
        "the smallest team".to_owned()
    } else {
        limit
    };
    Figure {
        name: name.to_owned(),
        measured,
        limit,
        ratio,
        aim,
        met: true,
    }
}

fn of_size(size: usize, figures: &mut Vec<Figure>) -> Costs {
    let team = Team::started();
    let mut tell = |what: &str, measured: String| {
        figures.push(row(&format!("{size} teammates: {what}"), measured, None))
    };
    let daemon = || Meter::of(&team);
    let before = daemon();
    let (_, took) = once(|| spawn_all(&team, size));
    let spawn = daemon().since(before, u32::try_from(size).unwrap());
    tell("spawn all, four at a time", took);
    until_all_rest(&team, size);
    tell(
        "memory (PSS) of all workers and of the daemon, descriptors of the daemon, inotify instances",
        standing(&team),
    );
    tell("`teamctl status`", once(|| run(&team, &["status"])).1);
    let message = each(&team, size, |name| {
        run(&team, &["send", name, "one message"])
    });
    tell(
        "`teamctl send`",
        once(|| run(&team, &["send", &name(1), "one message"])).1,
    );
    tell(
        "`teamctl broadcast`",
        once(|| run(&team, &["broadcast", "to all"])).1,
    );
    tell(
        "from there until all have consumed it",
        once(|| until_all_rest(&team, size)).1,
    );
    let before = daemon();
    let workers = cpu_of_workers(&team);
    tell(
        "100 messages each: to write them",
        once(|| write_to_all(&team, size, 100)).1,
    );
    tell(
        "from there until all are consumed",
        once(|| until_all_rest(&team, size)).1,
    );
    let daemon_cpu = daemon().since(before, 1).cpu;
    let worker_cpu = cpu_of_workers(&team) - workers;
    tell(
        "CPU of the daemon and of all workers for those",
        format!("{}, {}", time(daemon_cpu), time(worker_cpu)),
    );
    let mut next = 0;
    let shutdown = times(&team, TIMES.min(5), || {
        run(&team, &["shutdown", &name(next)]);
        next += 1;
    });
    tell(
        "`teamctl shutdown NAME`",
        once(|| run(&team, &["shutdown", &name(next)])).1,
    );
    until_all_rest(&team, size);
    team.kill_daemon();
    tell(
        "`teamd start` after kill -9",
        once(|| drop(team.teamd(["start"]).ok())).1,
    );
    tell(
        "from there until all are adopted",
        once(|| team.until("adoption", || team.events("adopted") >= size - next - 1)).1,
    );
    tell(
        "`teamctl shutdown --all`",
        once(|| run(&team, &["shutdown", "--all"])).1,
    );
    end(&team);
    Costs {
        size,
        spawn,
        message,
        shutdown,
    }
}

fn name(number: usize) -> String {
    format!("w{number:04}")
}

fn spawn_all(team: &Team, size: usize) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..SPAWNERS {
            scope.spawn(|| {
                while let Some(number) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&it| it < size)
                {
                    run(team, &["spawn", &name(number), "--model", "script"]);
                }
            });
        }
    });
}

/// Processor time and written bytes of the daemon so far.
#[derive(Debug, Clone, Copy)]
struct Meter {
    cpu: u64,
    written: Option<u64>,
}

impl Meter {
    fn of(team: &Team) -> Self {
        let pid = team.daemon_pid();
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).ok();
        let written = io.and_then(|io| {
            io.lines()
                .find_map(|line| line.strip_prefix("wchar: ")?.parse().ok())
        });
        Self {
            cpu: scheduled(pid).0,
            written,
        }
    }

    fn since(self, before: Self, times: u32) -> Cost {
        let written = self
            .written
            .zip(before.written)
            .map(|(now, before)| (now - before) / u64::from(times));
        Cost {
            cpu: Duration::from_nanos(self.cpu - before.cpu) / times,
            written,
        }
    }
}

fn each(team: &Team, size: usize, what: impl Fn(&str)) -> Cost {
    let mut number = 0;
    times(team, TIMES, || {
        what(&name(number % size));
        number += 7;
    })
}

/// What one costs, each with all that follows from it.
fn times(team: &Team, times: u32, mut what: impl FnMut()) -> Cost {
    let_pass(SETTLE);
    let before = Meter::of(team);
    for _ in 0..times {
        what();
        let_pass(SETTLE);
    }
    Meter::of(team).since(before, times)
}

/// Appends messages to each inbox, as a program does that keeps them open.
fn write_to_all(team: &Team, size: usize, count: usize) {
    let dir = TeamDir::open(&team.path("")).unwrap();
    let mut inboxes: Vec<(Name, Appender)> = (0..size)
        .map(|number| Name::new(&name(number)).unwrap())
        .map(|name| (name.clone(), Appender::new(&name)))
        .collect();
    for number in 0..count {
        for (name, inbox) in &mut inboxes {
            let content = format!("message {number}");
            let message = Message::new(
                uuid::Uuid::now_v7(),
                "lead",
                name.as_str(),
                1.0,
                Body::Message,
            );
            inbox
                .append(&dir, &message.with_content(content), Durability::Process)
                .unwrap();
        }
    }
}

/// Waits until each running teammate is idle and has read all mail.
fn until_all_rest(team: &Team, size: usize) {
    let dir = TeamDir::open(&team.path("")).unwrap();
    let mut busy: BTreeSet<Name> = (0..size)
        .map(|number| Name::new(&name(number)).unwrap())
        .collect();
    team.until("all to rest", || {
        let roster = team.roster();
        let members = roster["members"].as_array().unwrap();
        let resting = members
            .iter()
            .filter(|it| it["status"] == "idle" || !it["exit"].is_null());
        let resting: BTreeSet<&str> = resting
            .filter_map(|member| member["name"].as_str())
            .collect();
        busy.retain(|name| {
            let read = transcript::position(&dir, name)
                .unwrap()
                .unwrap_or(Position::START);
            !resting.contains(name.as_str())
                || count_lines(&dir, name, read).is_ok_and(|count| count.mail > 0)
        });
        busy.is_empty()
    });
}

fn pids(team: &Team) -> Vec<i32> {
    let roster = team.roster();
    let pids = roster["members"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|member| member["pid"].as_i64());
    pids.map(|pid| i32::try_from(pid).unwrap()).collect()
}

fn cpu_of_workers(team: &Team) -> Duration {
    Duration::from_nanos(pids(team).into_iter().map(|pid| scheduled(pid).0).sum())
}

fn standing(team: &Team) -> String {
    let workers: f64 = pids(team).into_iter().filter_map(megabytes).sum();
    let daemon = megabytes(team.daemon_pid()).unwrap_or_default();
    let open = descriptors(team.daemon_pid()).unwrap_or_default();
    let instances = pids(team)
        .into_iter()
        .chain([team.daemon_pid()])
        .map(inotify_instances)
        .sum::<usize>();
    format!("{workers:.1} MB, {daemon:.1} MB, {open}, {instances}")
}

fn megabytes(pid: i32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let kilobytes = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss:"))?
        .split_whitespace()
        .next()?;
    kilobytes
        .parse::<f64>()
        .ok()
        .map(|kilobytes| kilobytes / 1024.0)
}

fn inotify_instances(pid: i32) -> usize {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets
        .filter(|target| target.to_str() == Some("anon_inode:inotify"))
        .count()
}
