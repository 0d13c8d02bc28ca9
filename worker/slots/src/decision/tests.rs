//! Many leases over one pool, without files.

use proptest::prelude::*;

use super::*;

/// A command that builds: it takes a token whenever one waits and it can use more.
#[derive(Debug, Clone, Default, PartialEq)]
struct Command {
    /// How many processes it would run beside its first one.
    demand: u32,
    taken: u32,
    waiting: u32,
    part: Option<(u32, Wish)>,
}

#[derive(Debug)]
struct World {
    slots: u32,
    commands: Vec<Command>,
}

impl World {
    fn new(slots: u32, demands: &[u32]) -> Self {
        let commands = demands.iter().map(|&demand| Command {
            demand,
            ..Command::default()
        });
        Self {
            slots,
            commands: commands.collect(),
        }
    }

    fn held(&self) -> u32 {
        let parts = self.commands.iter().filter_map(|command| command.part);
        parts.map(|(held, _)| held).sum()
    }

    fn members(&self) -> u32 {
        let members = self.commands.iter().filter(|it| it.part.is_some()).count();
        u32::try_from(members).unwrap()
    }

    fn fair(&self) -> u32 {
        (self.slots / self.members().max(1)).max(1)
    }

    /// Has one lease look until it rests.
    fn settle(&mut self, index: usize) {
        let mut none_free = false;
        for _ in 0..1000 {
            let wishes = self.commands.iter().enumerate();
            let of_others = wishes.filter(|(other, _)| *other != index);
            let wish_of_others = of_others
                .filter_map(|(_, command)| command.part.map(|(_, wish)| wish))
                .max()
                .unwrap_or(Wish::Nothing);
            let fair = self.fair();
            let next_fair = self.slots / (self.members() + 1);
            let is_free = self.held() < self.slots;
            let command = &mut self.commands[index];
            let seen = Seen {
                taken: command.taken,
                waiting: command.waiting,
                pool: match command.part {
                    None => View::Outside {
                        may_begin: is_free || next_fair >= 2,
                    },
                    Some((held, wish)) => View::Inside(Share {
                        held,
                        fair,
                        wish,
                        wish_of_others,
                        none_free,
                    }),
                },
            };
            match (seen.step(), &mut command.part) {
                (Step::Join, part) => {
                    *part = Some((0, Wish::Nothing));
                }
                (Step::TakeSlot, Some((held, _))) => {
                    if is_free {
                        *held += 1;
                    }
                    none_free = !is_free;
                }
                (Step::Put, _) => command.waiting += 1,
                (Step::TakeOut, _) => command.waiting -= 1,
                (Step::GiveBack, Some((held, _))) => {
                    command.waiting -= 1;
                    *held -= 1;
                }
                (Step::Wish(wish), Some((_, said))) => {
                    *said = wish;
                    none_free = false;
                }
                (Step::Rest, _) => return,
                (step, None) => panic!("{step:?} without a part"),
            }
        }
        panic!("it never rests: {self:?}");
    }

    /// Has programs take tokens and leases look, until nothing changes any more.
    fn rest(&mut self) {
        for _ in 0..1000 {
            let before = self.commands.clone();
            for index in 0..self.commands.len() {
                self.settle(index);
                let command = &mut self.commands[index];
                while command.waiting > 0 && command.taken < command.demand {
                    command.waiting -= 1;
                    command.taken += 1;
                }
            }
            if self.commands == before {
                return;
            }
        }
        panic!("no rest: {self:?}");
    }

    /// A process ends that had a token.
    fn ends(&mut self, index: usize) {
        let command = &mut self.commands[index];
        if command.taken > 0 {
            command.taken -= 1;
            command.waiting += 1;
        }
    }
}

fn running(world: &World) -> Vec<u32> {
    world.commands.iter().map(|it| 1 + it.taken).collect()
}

/// Lets all processes end in turn, so that tokens on credit come back.
fn pass(world: &mut World) {
    for _ in 0..world.slots + 2 {
        for index in 0..world.commands.len() {
            world.ends(index);
            world.settle(index);
        }
        world.rest();
    }
}

#[test]
fn one_build_alone_uses_all_slots() {
    let mut world = World::new(8, &[100]);
    world.rest();
    assert_eq!(running(&world), [8]);
}

#[test]
fn a_command_that_takes_no_token_costs_nothing() {
    let mut world = World::new(4, &[0, 100, 0, 0]);
    world.rest();
    assert_eq!(running(&world), [1, 4, 1, 1]);
    assert_eq!(world.members(), 1);
}

#[test]
fn builds_that_want_all_get_the_same() {
    let mut world = World::new(8, &[100]);
    world.rest();
    world
        .commands
        .extend(World::new(8, &[100, 100, 100]).commands);
    pass(&mut world);
    assert_eq!(running(&world), [2, 2, 2, 2], "{world:?}");
}

#[test]
fn a_build_that_needs_less_leaves_the_rest_to_others() {
    let mut world = World::new(8, &[1, 100]);
    pass(&mut world);
    let running = running(&world);
    assert_eq!(running[0], 2);
    assert!(running[1] >= 5, "{running:?}");
}

#[test]
fn more_builds_than_slots_all_go_on() {
    let mut world = World::new(2, &[100; 5]);
    pass(&mut world);
    assert_eq!(running(&world), [1; 5]);
}

#[test]
fn what_a_build_leaves_is_used_by_those_that_go_on() {
    let mut world = World::new(6, &[100, 100]);
    pass(&mut world);
    assert_eq!(running(&world), [3, 3]);
    world.commands.pop();
    world.rest();
    assert_eq!(running(&world), [6]);
}

proptest! {
    /// Whatever begins, ends and wants in any order: no slot is held twice or without need, each
    /// command runs at most one process that no slot covers, and none waits where a slot is free.
    #[test]
    fn slots_are_used_and_never_exceeded(
        slots in 1u32..12,
        steps in proptest::collection::vec((0usize..6, 0u32..5, 0u8..4), 1..80),
    ) {
        let mut world = World::new(slots, &[0, 3, 100]);
        for (index, demand, what) in steps {
            let index = index % world.commands.len();
            match what {
                0 => world.commands[index].demand = demand,
                1 => world.ends(index),
                2 if world.commands.len() < 6 => {
                    world.commands.extend(World::new(slots, &[demand]).commands);
                }
                3 if world.commands.len() > 1 => drop(world.commands.remove(index)),
                _ => {}
            }
            world.settle(index % world.commands.len());
            prop_assert!(world.held() <= slots, "{world:?}");
            for command in &world.commands {
                let covered = command.part.map_or(0, |(held, _)| held.max(1) - 1);
                let is_one_more = command.taken + command.waiting <= covered + 1;
                prop_assert!(is_one_more, "{world:?}");
            }
        }
        for command in &mut world.commands {
            command.demand = 100;
        }
        pass(&mut world);
        let all: u32 = running(&world).iter().sum();
        let commands = u32::try_from(world.commands.len()).unwrap();
        prop_assert!(all <= slots.max(commands), "{world:?}");
        let fewest = running(&world).into_iter().min().unwrap();
        prop_assert!(fewest >= (slots / commands).max(1), "{:?}", world);
        // When all are done, nothing is held.
        for command in &mut world.commands {
            command.demand = 0;
        }
        pass(&mut world);
        for command in &mut world.commands {
            // As a lease does after a while.
            if command.part.is_some() && command.taken == 0 {
                command.part = None;
                command.waiting = command.waiting.min(1);
            }
        }
        world.rest();
        prop_assert_eq!(world.held(), 0);
    }
}
