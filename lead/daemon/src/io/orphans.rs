//! The children of the daemon that are no workers: orphans of incarnations, and others.
//!
//! The daemon is the subreaper of all that it starts. When a worker and its shim are killed
//! together, the processes of their command become children of the daemon, and the daemon ends
//! them. It never signals its other children, it only reaps them: those that existed before the
//! daemon began (a shell that has started something, and then became `teamd`) and, where the daemon
//! is the first process of a container, the orphans of other programs.

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::Instant;

use teamd_shared::mutant;
use teamd_shared::process::{Stat, children_of, is_gone, kill_child, reap_child};

use crate::io::cgroup::Cgroups;

/// The variable in which a daemon names the preexisting children to the program that replaces it.
/// It is no setting.
const PREEXISTING: &str = "TEAMD_PREEXISTING";

/// A process id with the start of the process, in clock ticks since the boot.
type PidAndStart = (u32, u64);

/// What the daemon knows of its children that are no workers.
#[derive(Debug)]
pub(crate) struct Orphans {
    /// Children that belong to no incarnation.
    preexisting: HashSet<PidAndStart>,
    /// Orphans that have not ended yet, and when each was first seen.
    orphans: HashMap<u32, Instant>,
    /// Whether an incarnation has no cgroup.
    without_cgroup: bool,
}

/// What [`Orphans::end`] found.
#[derive(Debug, Default)]
pub(crate) struct OrphanReport {
    /// Orphans that appeared in the given time and have not ended yet.
    pub(crate) remaining: Vec<u32>,
    /// Whether the daemon saw, and could end, all orphans.
    pub(crate) complete: bool,
}

impl Orphans {
    /// Notes the children that exist before any worker is started; after a hand-over, those that
    /// the daemon before named.
    ///
    /// # Errors
    /// The system's error if the children of this process cannot be listed.
    pub(crate) fn begin() -> io::Result<Self> {
        let preexisting = match std::env::var(PREEXISTING) {
            Ok(named) => parse(&named),
            Err(_) => children(&HashSet::new())?.into_iter().collect(),
        };
        Ok(Self {
            preexisting,
            orphans: HashMap::new(),
            without_cgroup: false,
        })
    }

    /// Notes whether an incarnation has a cgroup.
    pub(crate) fn record_cgroup(&mut self, has_cgroup: bool) {
        self.without_cgroup |= !has_cgroup;
    }

    /// Returns the variable that names the preexisting children to the program that replaces this
    /// one.
    pub(crate) fn variable(&self) -> (String, String) {
        let named: Vec<_> = self
            .preexisting
            .iter()
            .map(|(pid, started)| format!("{pid}:{started}"))
            .collect();
        (PREEXISTING.to_owned(), named.join(" "))
    }

    /// Kills all orphans of incarnations, and reports on those that appeared after `since`.
    ///
    /// # Errors
    /// The system's error if the children of this process cannot be listed.
    pub(crate) fn end(
        &mut self,
        workers: &HashSet<u32>,
        cgroups: &Cgroups,
        since: Instant,
    ) -> io::Result<OrphanReport> {
        let mut orphans = self.of_incarnations(workers, cgroups)?;
        if mutant::is_on("orphans-kept") {
            orphans.clear();
        }
        self.orphans
            .retain(|pid, _| orphans.iter().any(|(orphan, _)| orphan == pid));
        let now = Instant::now();
        let mut complete = self.rule(cgroups) != Rule::None;
        for (pid, started) in orphans {
            if kill_child(pid) {
                self.orphans.entry(pid).or_insert(now);
            } else {
                tracing::warn!("the orphan {pid} of a teammate cannot be killed: it stays");
                self.orphans.remove(&pid);
                self.preexisting.insert((pid, started));
                complete = false;
            }
        }
        let remaining = self
            .orphans
            .iter()
            .filter(|(_, seen)| **seen >= since)
            .map(|(pid, _)| *pid)
            .collect();
        Ok(OrphanReport {
            remaining,
            complete,
        })
    }

    /// Reaps the ended children that belong to no incarnation: the first process of a container has
    /// many.
    pub(crate) fn reap_others(&mut self, workers: &HashSet<u32>, cgroups: &Cgroups) {
        if let Err(error) = self.of_incarnations(workers, cgroups) {
            tracing::warn!("cannot see which children have ended: {error}");
        }
    }

    /// Returns the orphans of incarnations, and reaps the other children that have ended.
    fn of_incarnations(
        &mut self,
        workers: &HashSet<u32>,
        cgroups: &Cgroups,
    ) -> io::Result<Vec<PidAndStart>> {
        let children = children(workers)?;
        self.preexisting.retain(|known| children.contains(known));
        let rule = self.rule(cgroups);
        let (orphans, others): (Vec<_>, Vec<_>) = children.into_iter().partition(|child| {
            !self.preexisting.contains(child)
                && match rule {
                    Rule::Cgroup => cgroups.may_hold(child.0),
                    Rule::Parent => true,
                    Rule::None => false,
                }
        });
        for (pid, _) in others {
            reap_child(pid);
        }
        Ok(orphans)
    }

    fn rule(&self, cgroups: &Cgroups) -> Rule {
        match () {
            () if cgroups.are_made() && !self.without_cgroup => Rule::Cgroup,
            () if std::process::id() == 1 => Rule::None,
            () => Rule::Parent,
        }
    }
}

/// How the daemon tells an orphan of an incarnation from another child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// By its cgroup: each incarnation has one.
    Cgroup,
    /// Each child is one: only descendants of this process become its children.
    Parent,
    /// Not at all: all orphans of a machine or container become children of its first process.
    None,
}

/// Returns the children of this process that are no workers. They keep their pids until this
/// process reaps them.
fn children(workers: &HashSet<u32>) -> io::Result<Vec<PidAndStart>> {
    let mut children = Vec::new();
    for pid in children_of(std::process::id())?
        .into_iter()
        .filter(|pid| !workers.contains(pid))
    {
        match Stat::of(pid) {
            Ok(stat) => children.push((pid, stat.start_ticks)),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(children)
}

fn parse(named: &str) -> HashSet<PidAndStart> {
    named
        .split_ascii_whitespace()
        .filter_map(|one| {
            one.split_once(':')
                .and_then(|(pid, at)| Some((pid.parse().ok()?, at.parse().ok()?)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_program_reads_the_preexisting_children_back() {
        let preexisting = HashSet::from([(7, 81991), (u32::MAX, u64::MAX)]);
        let orphans = Orphans {
            preexisting: preexisting.clone(),
            orphans: HashMap::new(),
            without_cgroup: false,
        };
        assert_eq!(parse(&orphans.variable().1), preexisting);
        assert_eq!(parse("x 1 :2 3: 4:5"), HashSet::from([(4, 5)]));
    }
}
