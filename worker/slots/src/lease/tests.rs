//! Leases over a real pool, with FIFOs and the kernel's locks.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::wakes::Wakes;

/// A command whose programs take tokens.
struct Command {
    reads: File,
    writes: File,
    serving: JoinHandle<()>,
}

impl Command {
    fn of(mut lease: Lease) -> Self {
        let [reads, writes]: [OwnedFd; 2] = lease.hand_on().try_into().unwrap();
        // Both ends are read and written by this test alone.
        rustix::fs::fcntl_setfl(&reads, rustix::fs::OFlags::NONBLOCK).unwrap();
        Self {
            reads: reads.into(),
            writes: writes.into(),
            serving: tokio::spawn(lease.serve()),
        }
    }

    /// Takes all tokens that come, up to so many.
    async fn takes(&mut self, tokens: usize) {
        let mut taken = 0;
        let taking = async {
            while taken < tokens {
                match self.reads.read(&mut [0]) {
                    Ok(read) => taken += read,
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        };
        let is_done = timeout(Duration::from_secs(10), taking).await;
        assert!(is_done.is_ok(), "{taken} of {tokens}");
    }

    /// Waits until so many tokens can be taken.
    async fn until_waiting(&self, tokens: u64) {
        let waiting = async {
            while rustix::io::ioctl_fionread(&self.reads).unwrap() != tokens {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let is_so = timeout(Duration::from_secs(10), waiting).await;
        assert!(is_so.is_ok(), "not {tokens} tokens");
    }

    fn returns(&mut self, tokens: usize) {
        self.writes.write_all(&b"++++++++"[..tokens]).unwrap();
    }
}

/// Waits until this many slots are held.
async fn until_held(pool: &Pool, held: u32) {
    let all_free = async {
        loop {
            let mut member = pool.join().unwrap();
            let mut free = 0;
            while member.take_slot().unwrap() {
                free += 1;
            }
            drop(member);
            if pool.slots() - free == held {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let is_so = timeout(Duration::from_secs(20), all_free).await;
    assert!(is_so.is_ok(), "{held} slots are not held");
}

struct World {
    scratch: tempfile::TempDir,
    slots: Slots,
}

impl World {
    fn new(slots: u32) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let pool = scratch.path().join("slots");
        let mut slots = Slots::open(&pool, slots, None).unwrap();
        slots.form = Form::Descriptors;
        Self { scratch, slots }
    }

    fn command(&self) -> Command {
        let at = self.scratch.path();
        Command::of(self.slots.lease(at, at).unwrap())
    }
}

#[tokio::test]
async fn a_build_alone_takes_all_slots_and_its_end_frees_them() {
    let world = World::new(4);
    let mut build = world.command();
    build.takes(3).await;
    build.until_waiting(0).await;
    until_held(&world.slots.pool, 4).await;
    // As after a kill: the tokens do not come back.
    build.serving.abort();
    until_held(&world.slots.pool, 0).await;
}

#[tokio::test]
async fn two_builds_share_and_what_one_gives_back_the_other_gets() {
    let world = World::new(4);
    let mut first = world.command();
    first.takes(3).await;
    let mut second = world.command();
    // On credit: the first one is to give back what covers it.
    second.takes(1).await;
    first.returns(1);
    first.until_waiting(0).await;
    first.returns(1);
    first.until_waiting(0).await;
    // Its share is covered: what is returned can be taken again.
    second.returns(1);
    second.until_waiting(1).await;
    second.takes(1).await;
    first.until_waiting(0).await;
    until_held(&world.slots.pool, 4).await;
    first.serving.abort();
    second.takes(2).await;
}

#[tokio::test]
async fn builds_share_where_no_inotify_instance_is_left() {
    let world = World::new(2);
    let by_time = Arc::new(Wakes::by_time());
    *world.slots.wakes.lock().unwrap() = Arc::downgrade(&by_time);
    let mut first = world.command();
    first.takes(1).await;
    let mut second = world.command();
    until_held(&world.slots.pool, 2).await;
    second.until_waiting(0).await;
    first.serving.abort();
    second.takes(1).await;
}

#[tokio::test]
async fn a_build_that_is_over_leaves_its_slots_to_others() {
    let world = World::new(3);
    let mut build = world.command();
    build.takes(2).await;
    until_held(&world.slots.pool, 3).await;
    build.returns(2);
    until_held(&world.slots.pool, 0).await;
    build.takes(2).await;
}

#[tokio::test]
async fn bytes_that_no_lease_has_put_in_are_taken_out() {
    let world = World::new(2);
    let mut build = world.command();
    build.returns(8);
    build.until_waiting(1).await;
    build.takes(1).await;
    until_held(&world.slots.pool, 2).await;
    build.returns(8);
    build.until_waiting(1).await;
}

#[tokio::test]
async fn what_is_told_by_a_path_is_gone_with_its_command() {
    let world = World::new(2);
    let at = world.scratch.path();
    let mut slots = world.slots;
    slots.form = Form::Path;
    let lease = slots.lease(at, Path::new("/inside")).unwrap();
    let told = lease.variables(&Environment::default());
    let [(_, count), (name, told)] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!((*name, count.as_str()), ("CARGO_MAKEFLAGS", "2"));
    let file = told
        .strip_prefix("-j --jobserver-auth=fifo:/inside/")
        .unwrap();
    assert!(at.join(file).exists());
    drop(lease);
    assert!(!at.join(file).exists());
}

#[tokio::test]
async fn make_is_told_behind_what_the_user_tells_it() {
    let world = World::new(2);
    let at = world.scratch.path();
    // A make that is old would fail.
    let mut slots = world.slots.telling_make();
    let told = |slots: &Slots, own: Option<&str>| {
        let lease = slots.lease(at, Path::new("/inside")).unwrap();
        let mut environment = Environment::default();
        if let Some(own) = own {
            environment.set("MAKEFLAGS", own);
        }
        let variables = lease.variables(&environment);
        let of = |name| variables.iter().find(|(known, _)| *known == name);
        let flags = of("CARGO_MAKEFLAGS").map(|(_, value)| value.clone());
        let of_make = of("MAKEFLAGS").map(|(_, value)| value.clone());
        of_make.map(|told| told.replace(&flags.unwrap(), "OURS"))
    };
    assert_eq!(told(&slots, Some("k")), None);
    slots.form = Form::Path;
    assert_eq!(told(&slots, Some("k")), None);
    let slots = slots.telling_make();
    for (own, expected) in [
        (None, "OURS"),
        (Some("k -O"), "k -O OURS"),
        (Some(r" -- A=b\ \ c"), r"OURS -- A=b\ \ c"),
        (Some("-s -- A=1"), "-s OURS -- A=1"),
    ] {
        assert_eq!(told(&slots, own).as_deref(), Some(expected));
    }
}

/// The worker has other things to do than to keep up with it.
#[tokio::test]
async fn a_flood_does_not_hold_the_worker() {
    let world = World::new(4);
    let build = world.command();
    let mut floods = build.writes.try_clone().unwrap();
    rustix::fs::fcntl_setfl(&floods, rustix::fs::OFlags::NONBLOCK).unwrap();
    let (ends, ended) = std::sync::mpsc::channel::<()>();
    let flood = std::thread::spawn(move || {
        let is_over = || ended.try_recv() != Err(std::sync::mpsc::TryRecvError::Empty);
        while !is_over() {
            // Where it is full, the next write finds room.
            drop(floods.write(&[b'+'; 4096]));
        }
    });
    let works_on = async {
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(Duration::from_secs(10), works_on).await.is_ok());
    drop(ends);
    flood.join().unwrap();
    build.until_waiting(1).await;
}
