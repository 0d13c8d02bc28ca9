//! The children of the daemon that are no workers: what lives have left to it, and what is nobody's.
//!
//! What a worker and its keeper leave that are killed together comes to the daemon, the subreaper of all that it starts:
//! that is ended. But other children are none of its business, and never signalled: those that were there when it began (a
//! shell that has started something, and then became `teamd`), and, for the first process of a container, the orphans of
//! everybody else there. Those are only reaped.

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::Instant;

use teamd_shared::process::{
    SHIM, Stray, children_of, is_gone, kill_child, killed_by_shim, reap_child, start_ticks,
};

use crate::daemon::io::cgroup::Cgroups;

/// The variable by which a daemon tells the program that takes its place who was there when it began: no setting, and read by
/// nobody else.
const BESIDE: &str = "TEAMD_BESIDE";

/// A process id with the start of the process, in clock ticks since the boot.
type Started = (u32, u64);

/// What is known of them.
#[derive(Debug)]
pub(crate) struct Orphans {
    /// Those that no life has left.
    preexisting: HashSet<Started>,
    /// What lives have left, and when that was first seen.
    left: HashMap<u32, Instant>,
    /// Whether a life has no cgroup.
    unenclosed: bool,
}

/// What was found of lives that have ended.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// What is not gone yet, of the time that was asked for.
    pub(crate) left: Vec<u32>,
    /// How many processes had to be killed that were not seen before, by their keepers or here; none if that cannot be
    /// known.
    pub(crate) killed: Option<u32>,
    /// Whether what a life has left can be told from what is not its.
    pub(crate) told_apart: bool,
}

impl Orphans {
    /// Notes who is there before anybody is started; after a hand-over, who was there before.
    ///
    /// # Errors
    /// The system's error if the children of this process cannot be seen.
    pub(crate) fn begin() -> io::Result<Self> {
        let preexisting = match std::env::var(BESIDE) {
            Ok(known) => parse(&known),
            Err(_) => children(&HashSet::new())?.into_iter().collect(),
        };
        Ok(Self { preexisting, left: HashMap::new(), unenclosed: false })
    }

    /// Takes in whether a life has a cgroup.
    pub(crate) fn enclosed(&mut self, has_cgroup: bool) {
        self.unenclosed |= !has_cgroup;
    }

    /// Says to the program that takes this one's place who is there that no life has left.
    pub(crate) fn told(&self) -> (String, String) {
        let known: Vec<_> =
            self.preexisting.iter().map(|(pid, started)| format!("{pid}:{started}")).collect();
        (BESIDE.to_owned(), known.join(" "))
    }

    /// Ends what lives have left, and returns what was not here before `since`.
    ///
    /// # Errors
    /// The system's error if the children of this process cannot be seen: then nothing is known of what is left.
    pub(crate) fn end(
        &mut self,
        workers: &HashSet<u32>,
        cgroups: &Cgroups,
        since: Instant,
    ) -> io::Result<Found> {
        let orphans = self.of_lives(workers, cgroups)?;
        self.left.retain(|pid, _| orphans.iter().any(|(stray, _)| stray == pid));
        let now = Instant::now();
        let mut told_apart = self.marks(cgroups) != Marks::None;
        let mut killed = told_apart.then_some(0);
        for (pid, started) in orphans {
            let stray = kill_child(pid);
            if stray.ran && stray.refused {
                let comm = &stray.comm;
                tracing::warn!("the process {pid} ({comm}) that a teammate left may not be killed: it stays");
                self.left.remove(&pid);
                self.preexisting.insert((pid, started));
                (told_apart, killed) = (false, None);
                continue;
            }
            let new = self.left.insert(pid, now).map(|seen| self.left.insert(pid, seen)).is_none();
            killed = killed.zip(count(&stray, new)).map(|(sum, more)| sum + more);
        }
        let left = self.left.iter().filter(|(_, seen)| **seen >= since).map(|(pid, _)| *pid).collect();
        Ok(Found { left, killed, told_apart })
    }

    /// Reaps what has ended of those that no life has left: the first process of a container has many.
    pub(crate) fn reap_others(&mut self, workers: &HashSet<u32>, cgroups: &Cgroups) {
        if let Err(error) = self.of_lives(workers, cgroups) {
            tracing::warn!("cannot see which children have ended: {error}");
        }
    }

    /// Returns what lives have left, and reaps what has ended of the others.
    fn of_lives(&mut self, workers: &HashSet<u32>, cgroups: &Cgroups) -> io::Result<Vec<Started>> {
        let children = children(workers)?;
        self.preexisting.retain(|known| children.contains(known));
        let marks = self.marks(cgroups);
        let is_left = |child: &Started| {
            !self.preexisting.contains(child)
                && match marks {
                    Marks::Cgroup => cgroups.may_hold(child.0),
                    Marks::Parent => true,
                    Marks::None => false,
                }
        };
        let (left, others): (Vec<_>, Vec<_>) = children.into_iter().partition(is_left);
        others.into_iter().for_each(|(pid, _)| reap_child(pid));
        Ok(left)
    }

    fn marks(&self, cgroups: &Cgroups) -> Marks {
        match () {
            () if cgroups.are_made() && !self.unenclosed => Marks::Cgroup,
            () if std::process::id() == 1 => Marks::None,
            () => Marks::Parent,
        }
    }
}

/// By what it is known that a life has left a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marks {
    /// Each life has a cgroup.
    Cgroup,
    /// Only what this process and its descendants have started comes to it.
    Parent,
    /// The first process of a machine or container: everybody's orphans come to it.
    None,
}

/// Returns the children of this process, but for these. They keep their pids until it reaps them.
fn children(but: &HashSet<u32>) -> io::Result<Vec<Started>> {
    let mut children = Vec::new();
    for pid in children_of(std::process::id())?.into_iter().filter(|pid| !but.contains(pid)) {
        match start_ticks(pid) {
            Ok(started) => children.push((pid, started)),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(children)
}

fn parse(known: &str) -> HashSet<Started> {
    let each =
        |one: &str| one.split_once(':').and_then(|(pid, at)| Some((pid.parse().ok()?, at.parse().ok()?)));
    known.split_ascii_whitespace().filter_map(each).collect()
}

/// Returns how many processes a stray stands for that had to be killed; none if that cannot be known.
fn count(stray: &Stray, new: bool) -> Option<u32> {
    if stray.comm.as_bytes() != SHIM.to_bytes() {
        return Some(u32::from(new && stray.ran));
    }
    // A keeper that is not reaped yet is found again; one that was killed itself has told nobody.
    match stray.code {
        None => Some(0),
        Some(0) => Some(0),
        Some(code) => killed_by_shim(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_there_is_told_to_the_next_program() {
        let preexisting = HashSet::from([(7, 81991), (u32::MAX, u64::MAX)]);
        let orphans = Orphans { preexisting: preexisting.clone(), left: HashMap::new(), unenclosed: false };
        assert_eq!(parse(&orphans.told().1), preexisting);
        assert_eq!(parse("x 1 :2 3: 4:5"), HashSet::from([(4, 5)]));
    }
}
