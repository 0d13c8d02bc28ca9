//! Which points are tried, and how: dry runs count them, then each is a run.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::choice::choose;
use crate::invariants;
use crate::options::Options;
use crate::report::{self, Cell, Figures};
use crate::scenarios::{self, Scenario};
use crate::stage::{Checked, Stage, Victim, Violation, hold};
use crate::tracer::{self, Point, Seen};

/// One run.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    /// What is done.
    pub(crate) scenario: &'static Scenario,
    /// The victim: the calls of its processes are counted.
    pub(crate) victim: Victim,
    /// What happens; none: it is only counted.
    pub(crate) point: Option<Point>,
    /// The file behind whose syncs alone calls are counted.
    pub(crate) behind: Option<&'static str>,
}

static SCENARIOS: [Scenario; scenarios::ALL.len()] = scenarios::ALL;

/// Runs what the options say.
pub(crate) fn run(options: &Options) -> ExitCode {
    if let Err(why) = can_trace() {
        return refused(&why);
    }
    std::panic::set_hook(Box::new(|_| {}));
    let began = Instant::now();
    let pairs = SCENARIOS.iter().flat_map(|scenario| {
        scenario
            .victims
            .iter()
            .map(move |victim| (scenario, *victim))
    });
    let dry: Vec<Job> = pairs
        .filter(|(scenario, victim)| options.wants(scenario.name, *victim))
        .map(|(scenario, victim)| Job {
            scenario,
            victim,
            point: None,
            behind: options.behind,
        })
        .collect();
    let (seen, mut failed) = count(&dry, options.jobs);
    if options.list || failed > 0 {
        for line in &seen {
            tell(line);
        }
        return if failed > 0 {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        };
    }
    let jobs = choose(&seen, options);
    println!(
        "crash: {} dry runs in {:?}; {} points; seed {}",
        dry.len(),
        began.elapsed(),
        jobs.len(),
        options.seed
    );
    let mut cells: BTreeMap<Cell, Figures> = BTreeMap::new();
    for (job, seen) in &seen {
        for (fault, count) in &seen.counts {
            if options.faults.is_empty() || options.faults.contains(fault) {
                cells
                    .entry((job.scenario.name, job.victim, *fault))
                    .or_default()
                    .points = *count;
            }
        }
    }
    let cells = Mutex::new(cells);
    let violations = Mutex::new(Vec::new());
    let done = Mutex::new(0_usize);
    let total = jobs.len();
    let broken = AtomicBool::new(false);
    each(&jobs, options.jobs, |job| {
        let over = options
            .seconds
            .is_some_and(|seconds| began.elapsed().as_secs() >= seconds);
        if broken.load(Ordering::Relaxed) || over && *done.lock().unwrap() >= AT_LEAST {
            return false;
        }
        let (result, seen) = play(*job);
        if let Err(Violation(why)) = &result {
            broken.fetch_or(
                options.stop.iter().any(|text| why.contains(text)),
                Ordering::Relaxed,
            );
        }
        if let Some(violation) = note(*job, result, &seen, &cells) {
            println!("{violation}");
            violations.lock().unwrap().push(violation);
        }
        let mut done = done.lock().unwrap();
        *done += 1;
        if done.is_multiple_of(50) {
            println!(
                "crash: {done} of {total}, {:.0} s",
                began.elapsed().as_secs_f64()
            );
        }
        true
    });
    let cells = cells.into_inner().unwrap();
    report::print(&cells);
    // Once more at the end: a log that is kept is often only the end of one.
    for violation in violations.into_inner().unwrap().iter() {
        println!("\n{violation}");
    }
    failed += cells
        .values()
        .map(|figures| figures.violations)
        .sum::<u64>();
    if cells.values().all(|figures| figures.runs == figures.missed) {
        println!(
            "error: no run has reached its point\nhint: `--points-only` tells which points there are"
        );
        failed += 1;
    }
    println!(
        "\ncrash: {:.0} s, seed {}, {failed} violations",
        began.elapsed().as_secs_f64(),
        options.seed
    );
    if failed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// A sample makes so many runs, however long they take: a slow machine is no reason to try nothing.
const AT_LEAST: usize = 20;

/// The variable that says that nothing is to be run where nothing can be traced.
const SKIP: &str = "TEAM_CRASH_SKIP";

fn can_trace() -> Result<(), String> {
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return tracer::probe();
    }
    Err("the tracer knows the registers of Linux on x86_64 alone".to_owned())
}

/// Nothing was run: that is no success, unless an option allows it.
fn refused(why: &str) -> ExitCode {
    if std::env::var_os(SKIP).is_some_and(|value| value == "1") {
        println!("crash: {why}: nothing was run, as {SKIP}=1 asks");
        return ExitCode::SUCCESS;
    }
    println!(
        "error: no crash can be tried: {why}\nhint: allow ptrace here (`docker run --cap-add SYS_PTRACE`, \
         `sysctl kernel.yama.ptrace_scope=1`), or set {SKIP}=1 to pass these tests over"
    );
    ExitCode::FAILURE
}

/// Plays each scenario without a fault: what was seen, and how many failed.
fn count(dry: &[Job], threads: usize) -> (Vec<(Job, Seen)>, u64) {
    let seen = Mutex::new(Vec::new());
    let failed = Mutex::new(0);
    each(dry, threads, |job| {
        let (result, counted) = play(*job);
        let none = || {
            hold(!counted.counts.is_empty(), || {
                "not one call was seen: nothing is traced".to_owned()
            })
        };
        if let Err(Violation(why)) = result.and_then(|()| none()) {
            *failed.lock().unwrap() += 1;
            println!(
                "FAILED without any fault: {} {}: {why}",
                job.scenario.name,
                job.victim.name()
            );
        }
        seen.lock().unwrap().push((*job, counted));
        true
    });
    let mut seen = seen.into_inner().unwrap();
    // In whatever order they ended: a seed is to choose the same points again.
    seen.sort_by_key(|(job, _)| (job.scenario.name, job.victim));
    (seen, failed.into_inner().unwrap())
}

/// Tells how many points a scenario has.
fn tell((job, seen): &(Job, Seen)) {
    let counts: Vec<String> = seen
        .counts
        .iter()
        .map(|(fault, count)| format!("{} {count}", fault.name()))
        .collect();
    let scenario = job.scenario.name;
    let victim = job.victim.name();
    let visible = seen.visible.len();
    println!(
        "{scenario} {victim}: {} ({visible} visible)",
        counts.join(", ")
    );
}

/// Counts a run; what is to be told of it, if something did not hold.
fn note(
    job: Job,
    result: Checked,
    seen: &Seen,
    cells: &Mutex<BTreeMap<Cell, Figures>>,
) -> Option<String> {
    let point = job.point?;
    let mut cells = cells.lock().unwrap();
    let figures = cells
        .entry((job.scenario.name, job.victim, point.fault))
        .or_default();
    figures.runs += 1;
    figures.missed += u64::from(seen.fired.is_none());
    let Err(Violation(why)) = result else {
        return None;
    };
    figures.violations += 1;
    let scenario = job.scenario.name;
    let victim = job.victim.name();
    let fault = point.fault.name();
    let at = seen.fired.as_deref().unwrap_or("not reached");
    let behind = job
        .behind
        .map(|file| format!(" --behind {file}"))
        .unwrap_or_default();
    Some(format!(
        "VIOLATION at {at}: {why}\n  again: scripts/crash-test --scenario {scenario} --victim {victim} --fault {fault}{behind} --points {0}..{0}",
        point.at
    ))
}

/// Plays one run to its end.
fn play(job: Job) -> (Checked, Seen) {
    let mut stage = Stage::new(job.victim, job.point, job.behind);
    let played = catch_unwind(AssertUnwindSafe(|| {
        (job.scenario.play)(&mut stage)?;
        invariants::finish(&mut stage)
    }));
    let result = played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Violation(format!(
            "the harness gave up: {}",
            text.unwrap_or_default()
        )))
    });
    let result = result.map_err(|Violation(why)| {
        let did = &stage.ledger.commands;
        let logs = stage.ends_of_logs();
        Violation(format!(
            "{why}\n  what the user did: {did:#?}\n  the ends of the logs:\n{logs}"
        ))
    });
    (result, stage.seen())
}

/// Does something with each, several at once, until one says that it is enough.
fn each<T: Sync>(items: &[T], threads: usize, work: impl Fn(&T) -> bool + Sync) {
    let next = Mutex::new(items.iter());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let item = next.lock().unwrap().next();
                    if !item.is_some_and(&work) {
                        return;
                    }
                }
            });
        }
    });
}
