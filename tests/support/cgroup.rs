//! The cgroups of a team, as tests look at them from outside.
//!
//! Teams of tests use cgroups where the machine lets them. `TEAMD_TEST_CGROUP=off` runs the tests
//! without, and with `TEAMD_TEST_CGROUP=auto` a machine that has none to give fails them.

use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};
use teamd_shared::cgroup::{self, CgroupPlace, CgroupRights};
use teamd_shared::team_dir::TeamDir;

use super::Team;

/// The setting that teams are started with.
pub(super) fn setting() -> Option<(String, String)> {
    let wanted = std::env::var("TEAMD_TEST_CGROUP").ok()?;
    Some(("TEAM_CGROUP".to_owned(), wanted))
}

/// Where the daemon of a test makes cgroups; none where it may not.
fn place() -> Option<PathBuf> {
    CgroupPlace::look(None)
        .ok()
        .filter(|place| place.standing != CgroupRights::Foreign)
        .map(|place| place.folder)
}

impl Team {
    /// Whether its workers get cgroups. Says so if not: what a test then does not try is to be
    /// seen.
    pub(crate) fn has_cgroups(&self) -> bool {
        let set = self
            .env
            .iter()
            .rfind(|(name, _)| name == "TEAM_CGROUP")
            .map(|(_, value)| value.as_str());
        let has = set != Some("off") && place().is_some();
        let wanted = set == Some("auto") && setting().is_some_and(|(_, value)| value == "auto");
        assert!(
            has || !wanted,
            "TEAMD_TEST_CGROUP=auto, and workers get no cgroup here: {:?}",
            CgroupPlace::look(None)
        );
        if !has {
            note("workers get no cgroup here");
        }
        has
    }

    /// What an exit record says of how it is known that nothing was left: the cgroup, or what is
    /// said without one.
    pub(crate) fn emptied(&self, without: Value) -> Value {
        if self.has_cgroups() {
            json!("cgroup")
        } else {
            without
        }
    }

    /// The cgroup of the team, whether it is there or not.
    pub(crate) fn cgroup(&self) -> Option<PathBuf> {
        let dir = TeamDir::open(&self.path("")).ok()?;
        Some(place()?.join(cgroup::of_team(&dir).ok()?))
    }

    /// The cgroup of a member's incarnation, which must have one.
    pub(crate) fn cgroup_of(&self, name: &str) -> PathBuf {
        PathBuf::from(self.member(name)["cgroup"]["path"].as_str().unwrap())
    }
}

/// Says what is not tried here. Not with `println!`: its output is not shown for a passing test.
pub(crate) fn note(what: &str) {
    let mut seen = std::io::stderr();
    writeln!(seen, "note: {what}").unwrap();
}

/// The processes in a cgroup; none if there is no such cgroup.
pub(crate) fn members(folder: &std::path::Path) -> Vec<i32> {
    let listed = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    listed.lines().map(|pid| pid.parse().unwrap()).collect()
}
