//! A simulated team: the real decisions, fold, volatile state and directives, driven through one
//! schedule after another of deaths, cuts, lost frames, forgeries and jumps of the clock. All
//! follows from a seed.
//!
//! `TEAM_SIM_SEED=n` replays one schedule and prints it; `TEAM_SIM_FROM=n` and
//! `TEAM_SIM_SCHEDULES=n` run others.

mod agent;
mod clients;
mod daemon;
mod disk;
mod effects;
mod hosts;
mod intake;
mod jobs;
mod machine;
mod mail;
mod quiet;
mod recovery;
mod tasks;
mod worker;
mod world;

use std::fmt;

use super::mutants::Mutant;
pub(super) use daemon::Daemon;
pub(super) use jobs::Checkouts;
pub(super) use worker::Worker;
pub(super) use world::{RULES, World};

/// How many schedules a test run takes. The same ones every time, so that it never fails by chance.
const SCHEDULES: u64 = 300;
/// The steps of a schedule, before everything comes to rest.
const STEPS: usize = 220;

/// Numbers that follow from a seed (splitmix64, <https://prng.di.unimi.it/splitmix64.c>).
#[derive(Debug, Clone)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`, which is not 0.
    pub(super) fn below(&mut self, n: u32) -> u32 {
        u32::try_from(self.next() % u64::from(n)).unwrap()
    }

    pub(super) fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// Returns one of them; none if there is none.
    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let n = u32::try_from(from.len()).unwrap();
        if n == 0 {
            None
        } else {
            Some(from[self.below(n) as usize].clone())
        }
    }
}

/// A promise that was broken, and how it came to that.
pub(super) struct Broken {
    pub(super) seed: u64,
    pub(super) what: String,
    story: Vec<String>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = self.story.len().saturating_sub(400);
        let story = self.story[from..].join("\n");
        write!(
            f,
            "{story}\nbroken: {}\nreplay: TEAM_SIM_SEED={} cargo test -p teamd-daemon sim",
            self.what, self.seed
        )
    }
}

/// Runs one schedule; `told` writes its story.
pub(super) fn run(seed: u64, mutant: Option<Mutant>, told: bool) -> Result<(), Broken> {
    let mut world = World::new(seed, mutant, told);
    world.start_daemon();
    let steps = if world.works { 2 * STEPS } else { STEPS };
    for _ in 0..steps {
        if world.broken.is_some() {
            break;
        }
        world.step();
    }
    world.settle();
    match world.broken.take() {
        None => Ok(()),
        Some(what) => Err(Broken {
            seed,
            what,
            story: world.story,
        }),
    }
}

/// Runs one schedule of the real rules, and tells its story if it breaks a promise.
fn keeps_its_promises(seed: u64) -> Result<(), Broken> {
    run(seed, None, false).or_else(|_| run(seed, None, true))
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

#[test]
fn every_promise_holds_in_every_schedule() {
    if let Some(seed) = from_env("TEAM_SIM_SEED") {
        if let Err(broken) = run(seed, None, true) {
            panic!("{broken}");
        }
        return;
    }
    let from = from_env("TEAM_SIM_FROM").unwrap_or(0);
    for seed in from..from + from_env("TEAM_SIM_SCHEDULES").unwrap_or(SCHEDULES) {
        if let Err(broken) = keeps_its_promises(seed) {
            panic!("{broken}");
        }
    }
}

#[test]
fn a_schedule_follows_from_its_seed() {
    let story = |seed| {
        let mut world = World::new(seed, None, true);
        world.start_daemon();
        (0..STEPS).for_each(|_| world.step());
        world.story
    };
    assert_eq!(story(7), story(7));
    assert_ne!(story(7), story(8));
}
