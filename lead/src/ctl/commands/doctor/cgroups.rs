//! Who runs without a cgroup: what daemons did, whatever one would do that is started now.

use super::finding::{Finding, count};
use super::seen::Seen;

const CHECK: &str = "cgroup";

/// Tells of the lives that have none, by the journal.
pub(super) fn judge_lives(seen: &Seen) -> Vec<Finding> {
    let Some(team) = seen.team() else { return Vec::new() };
    let alive = team.members.values().map(|state| &state.record).filter(|member| {
        !member.phase.is_ended() && member.process.as_ref().is_some_and(|process| seen.is_alive(process))
    });
    let (with, without): (Vec<_>, Vec<_>) = alive.partition(|member| member.cgroup.is_some());
    let names: Vec<&str> = without.iter().map(|member| member.name.as_str()).collect();
    says(with.len(), &names).into_iter().collect()
}

fn says(with: usize, without: &[&str]) -> Option<Finding> {
    (!without.is_empty()).then(|| {
        let all = count(with + without.len(), "worker");
        Finding::note(CHECK, format!("of {all} no cgroup was given to {}", without.join(", ")))
            .means("what they start is found and ended by their keepers")
            .next("their daemon says why in log/teamd.log")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_without_a_cgroup_is_named() {
        assert_eq!(says(2, &[]), None);
        assert_eq!(says(0, &[]), None);
        let told = says(1, &["alice", "bob"]).unwrap();
        assert_eq!(told.what, "of 3 workers no cgroup was given to alice, bob");
    }
}
