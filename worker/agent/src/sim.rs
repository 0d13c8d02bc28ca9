//! A simulated worker: the real session, state, transcript, mailbox, outbox and link, driven
//! through one schedule after another. Simulated is what is outside of the worker: its tools, its
//! model, its daemon, the people, the clock, and the moment of its death, which may lie in the
//! middle of any line that it writes. All follows from a seed.
//!
//! `TEAM_SIM_SEED=n` replays one schedule and prints it; `TEAM_SIM_FROM=n` and
//! `TEAM_SIM_SCHEDULES=n` run others.

mod agent;
mod agent_history;
mod agent_process;
mod daemon;
mod disk;
mod machine;
mod mutants;
mod people;
mod promises;
mod schedules;
mod world;

pub(crate) use disk::{
    syncs_an_inbox, where_no_inbox_can_be_synced, writes_a_line, writes_an_entry,
};
use mutants::Mutant;
use teamd_shared::name::Name;
use world::{Fixture, World};

/// The steps of a schedule, before everything comes to rest.
const STEPS: usize = 160;

fn alice() -> Name {
    Name::new("alice").unwrap()
}

/// Numbers that follow from a seed (splitmix64, <https://prng.di.unimi.it/splitmix64.c>).
#[derive(Debug, Clone)]
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    fn below(&mut self, n: u32) -> u32 {
        u32::try_from(self.next() % u64::from(n)).unwrap()
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// One of them; there is one.
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(u32::try_from(from.len()).unwrap()) as usize]
    }
}

/// A promise that was broken, and how it came to that.
struct Broken {
    seed: u64,
    what: String,
    story: Vec<String>,
}

/// Runs one schedule; `narrates`: its story is written.
fn run(place: &Fixture, seed: u64, mutant: Option<Mutant>, narrates: bool) -> Result<(), Broken> {
    let mut world = World::new(place, seed, mutant, narrates);
    for _ in 0..STEPS {
        if world.is_broken() {
            break;
        }
        world.step();
    }
    world.settle();
    match world.ends() {
        None => Ok(()),
        Some((what, story)) => Err(Broken { seed, what, story }),
    }
}
