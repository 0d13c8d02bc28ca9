//! A team under random kills, for as long as one likes:
//! `scripts/soak [DURATION] [--team N] [--seed S]`.
//!
//! People, teammates and a foreign writer send numbered messages; workers, shims and the daemon are
//! killed, stopped and continued; teammates are shut down, spawned again and forgotten; plans are
//! answered. Every so often all of that rests, and then nothing may be missing, doubled, out of
//! order or left over ([`check`]); what grows is written down ([`leaks`]). Any violation makes the
//! exit code 1, and the directory stays to be looked into.
//!
//! Without arguments it runs for some seconds: that is what `cargo test` does. The seed fixes what
//! each actor chooses, not how the kernel schedules the processes.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a harness: it stops where it cannot go on"
)]

mod actors;
mod agents;
mod check;
mod kills;
mod leaks;
mod ledger;
#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "the end-to-end tests use the rest")]
mod support;
mod team;

use std::process::ExitCode;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use team::{Rng, Team};

/// What is asked for.
struct Args {
    duration: Duration,
    team: usize,
    seed: u64,
    programs: Option<std::path::PathBuf>,
}

/// What all threads share.
pub(crate) struct Soak {
    pub(crate) team: Team,
    pub(crate) ledger: ledger::Ledger,
    /// Held for reading by each actor, for writing by the checks.
    pub(crate) rest: RwLock<()>,
    pub(crate) over: AtomicBool,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(args) = parse(&args) else {
        return ExitCode::SUCCESS;
    };
    let team = Team::new(args.programs.as_deref(), args.team);
    println!(
        "soak: {:?}, {} teammates, seed {}, in {}",
        args.duration,
        args.team,
        args.seed,
        team.root().display()
    );
    let soak = Soak {
        team,
        ledger: ledger::Ledger::default(),
        rest: RwLock::new(()),
        over: AtomicBool::new(false),
    };
    run(&soak, &args);
    let violations = soak.ledger.violations();
    println!("{}", soak.ledger.table());
    if violations.is_empty() {
        println!("soak: no violation (seed {})", args.seed);
        return ExitCode::SUCCESS;
    }
    for violation in &violations {
        println!("VIOLATION: {violation}");
    }
    println!(
        "soak: {} violations (seed {}); kept: {}",
        violations.len(),
        args.seed,
        soak.team.keep().display()
    );
    ExitCode::FAILURE
}

fn run(soak: &Soak, args: &Args) {
    let began = Instant::now();
    soak.team.bring_agents(soak);
    soak.team.start_daemon(soak);
    actors::respawn(soak, &mut Rng::new(args.seed));
    let short = args.duration < Duration::from_secs(60);
    let pace = if short {
        Duration::from_millis(20)
    } else {
        Duration::from_millis(100)
    };
    let between = if short {
        args.duration / 2
    } else {
        Duration::from_secs(120)
    };
    let mut samples = Vec::new();
    std::thread::scope(|scope| {
        for (number, actor) in actors::ALL.iter().enumerate() {
            let mut rng = Rng::new(args.seed.wrapping_add(number as u64 + 1));
            scope.spawn(move || {
                while !soak.over.load(Ordering::Relaxed) {
                    let acting = soak.rest.read().unwrap();
                    actor(soak, &mut rng);
                    drop(acting);
                    std::thread::park_timeout(pace.mul_f64(2.0 * rng.unit()));
                }
            });
        }
        while began.elapsed() < args.duration && soak.ledger.violations().len() < 20 {
            let next = between.min(args.duration.saturating_sub(began.elapsed()));
            std::thread::park_timeout(next);
            let all_rest = soak.rest.write().unwrap();
            check::at_rest(soak);
            let sample = leaks::Sample::take(soak, began.elapsed());
            println!("{sample}");
            samples.push(sample);
            drop(all_rest);
        }
        soak.over.store(true, Ordering::Relaxed);
    });
    leaks::judge(soak, &samples);
}

/// Reads the command line; none if it is not meant for this (`cargo test NAME`, `--list`).
fn parse(args: &[String]) -> Option<Args> {
    let mut parsed = Args {
        duration: Duration::from_secs(12),
        team: 20,
        seed: 1,
        programs: None,
    };
    let Some((first, rest)) = args.split_first() else {
        return Some(Args { team: 6, ..parsed });
    };
    parsed.duration = team::duration(first)?;
    for pair in rest.chunks(2) {
        match pair {
            [flag, value] if flag == "--team" => parsed.team = value.parse().unwrap(),
            [flag, value] if flag == "--seed" => parsed.seed = value.parse().unwrap(),
            [flag, value] if flag == "--programs" => parsed.programs = Some(value.into()),
            other => panic!(
                "usage: soak [DURATION] [--team N] [--seed S] [--programs DIR], not {other:?}"
            ),
        }
    }
    Some(parsed)
}
