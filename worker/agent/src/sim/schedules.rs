//! The schedules that a test run takes.

use std::fmt;

use super::{Broken, Fixture, run};

/// How many schedules a test run takes. The same ones every time, so that it never fails by chance.
const SCHEDULES: u64 = 200;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = self.story.len().saturating_sub(400);
        let story = self.story[from..].join("\n");
        let what = &self.what;
        let seed = self.seed;
        write!(
            f,
            "{story}\nbroken: {what}\nreplay: TEAM_SIM_SEED={seed} cargo test -p teamd-worker sim::"
        )
    }
}

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

/// Runs schedules of the real rules; the first that breaks a promise is run again, and its story is written.
fn keep_their_promises(seeds: impl Iterator<Item = u64>) {
    let place = Fixture::new();
    for seed in seeds {
        if run(&place, seed, None, false).is_err() {
            match run(&place, seed, None, true) {
                Err(broken) => panic!("{broken}"),
                Ok(()) => panic!("seed {seed} broke a promise once, and not a second time"),
            }
        }
    }
}

#[test]
fn every_promise_of_a_worker_holds_in_every_schedule() {
    if let Some(seed) = from_env("TEAM_SIM_SEED") {
        if let Err(broken) = run(&Fixture::new(), seed, None, true) {
            panic!("{broken}");
        }
        return;
    }
    let from = from_env("TEAM_SIM_FROM").unwrap_or(0);
    keep_their_promises(from..from + from_env("TEAM_SIM_SCHEDULES").unwrap_or(SCHEDULES));
}

// There was no look in between, and both times the last line ends alike.
#[test]
fn an_inbox_that_is_emptied_and_filled_again_alike_is_read_from_its_start() {
    let place = Fixture::new();
    let mut world = super::World::new(&place, 1, None, true);
    world.starts();
    world.writes("user", 0);
    world.wants_a_plan();
    world.settle();
    world.empties_the_inbox(true);
    world.writes("dave", 0);
    world.wants_a_plan();
    world.settle();
    if let Some((what, story)) = world.ends() {
        panic!("{}\n{what}", story.join("\n"));
    }
}

#[test]
fn a_schedule_of_a_worker_follows_from_its_seed() {
    let place = Fixture::new();
    // The time of day stands in the lines: their lengths differ, and where they begin.
    let story = |seed| {
        let mut world = super::World::new(&place, seed, None, true);
        (0..super::STEPS).for_each(|_| world.step());
        world
            .ends_with_its_story()
            .into_iter()
            .map(|line| match line.split_once("offset: ") {
                Some((before, _)) => before.to_owned(),
                None => line,
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(story(7), story(7));
    assert_ne!(story(7), story(8));
}
