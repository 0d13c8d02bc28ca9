//! The cgroups of the team (version 2): one for each life, where the machine lets the daemon make some.
//!
//! They make an end quick and sure: `cgroup.kill` reaches what no parent and no session leads to, and `cgroup.events` says
//! when nobody is left. They replace nothing: keepers end what a command started, the liveness lock tells when they have, and a
//! life without a cgroup is supervised as well as any other. So nothing here may fail a spawn, and no error here may end a life
//! that is not over.
//!
//! Only what lies in a cgroup of this team's own name is ever killed or removed ([`cgroup::of_team`]): a copied team
//! directory has another one.

mod group;
mod limits;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use teamd_shared::cgroup::{self, Place, Standing, Use};
use teamd_shared::journal::Team;
use teamd_shared::member::{Bounds, Cgroup, Member};
use teamd_shared::process::boot_id;
use teamd_shared::team_dir::TeamDir;

pub(crate) use self::group::Group;
use crate::daemon::core::event::Incarnation;

/// The magic number of the file system (`statfs(2)`).
const CGROUP2: i64 = 0x6367_7270;

/// Where the lives of this team get their cgroups, and how theirs are known.
#[derive(Debug)]
pub(crate) struct Cgroups {
    /// What the cgroup of the team is called; none: that cannot be told, and none is known.
    name: Option<String>,
    /// Where it is made; none: new lives get none.
    place: Option<Place>,
}

impl Cgroups {
    /// Looks where cgroups can be made, and says so in the log.
    pub(crate) fn open(dir: &TeamDir, wanted: Use) -> Self {
        let name = cgroup::of_team(dir);
        let name = name.inspect_err(|e| tracing::warn!("cannot tell what its cgroup is called: {e}")).ok();
        let place =
            name.as_deref().filter(|_| wanted == Use::Auto).and_then(|name| match Place::look(Some(name)) {
                Ok(place) if place.standing == Standing::Foreign => {
                    tracing::info!("lives get no cgroup: {} is not delegated to this user", place.path);
                    None
                }
                Ok(place) => Some(place),
                Err(why) => {
                    tracing::info!("lives get no cgroup: {why}");
                    None
                }
            });
        Self { name, place }
    }

    /// The cgroup of the team, made or not.
    fn team(&self) -> Option<(&Place, PathBuf)> {
        self.place.as_ref().zip(self.name.as_ref()).map(|(place, name)| (place, place.folder.join(name)))
    }

    /// Tells whether lives get cgroups.
    pub(crate) fn are_made(&self) -> bool {
        self.place.is_some()
    }

    /// Tells whether a process can be one that a life has left: it is in the cgroup of a life of this team, or where it is
    /// cannot be seen.
    pub(crate) fn may_hold(&self, pid: u32) -> bool {
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { return true };
        let (Some(path), Some(team)) = (cgroup::path_in(&text), &self.name) else { return true };
        let mut below = Path::new(path).iter().skip_while(|part| *part != team.as_str()).skip(1);
        below.next().is_some_and(|life| life != cgroup::DAEMON)
    }

    /// Puts a worker that waits for its welcome, and so has started nothing, into a cgroup of its own. None, and a line in the
    /// log, where that does not work.
    pub(crate) fn enclose(&self, life: &Incarnation, pid: u32, bounds: &Bounds) -> Option<Group> {
        let (place, team) = self.team()?;
        match enclose(place, &team, life, (pid, bounds)) {
            Ok(group) => Some(group),
            Err(why) => {
                tracing::warn!("{} does without a cgroup: {why}", life.name);
                None
            }
        }
    }

    /// Returns the cgroup that the journal names for a life, if it is this team's and this life's, and its worker, if it
    /// lives, is in it. The daemon that made it may have stood elsewhere.
    pub(crate) fn find(&self, life: &Incarnation, member: &Member) -> Option<Group> {
        let (recorded, process) = member.cgroup.as_ref().zip(member.process.as_ref())?;
        let other_boot = || boot_id().is_ok_and(|now| now != process.boot_id);
        if !self.owns(life, Path::new(&recorded.path)) || other_boot() {
            return None;
        }
        // Of one that has ended there is nothing to be read.
        let stands = fs::read_to_string(format!("/proc/{}/cgroup", process.pid)).ok();
        let stands = stands.filter(|_| matches!(process.runs(), Ok(true)));
        let elsewhere =
            |text: &String| cgroup::path_in(text).is_some_and(|path| !self.names(life, Path::new(path)));
        if stands.is_some_and(|text| elsewhere(&text)) {
            tracing::warn!("somebody has taken {} out of its cgroup {}", life.name, recorded.path);
            return None;
        }
        Some(Group::new(recorded.clone(), self.team().map(|(_, team)| team)))
    }

    /// Tells whether a directory is the cgroup of a life of this team. One that cannot be looked at is nobody else's.
    fn owns(&self, life: &Incarnation, folder: &Path) -> bool {
        let is_one = match rustix::fs::statfs(folder) {
            Ok(found) => found.f_type == CGROUP2,
            Err(errno) => errno != rustix::io::Errno::NOENT,
        };
        is_one && folder.is_absolute() && self.names(life, folder)
    }

    /// Tells whether a path ends with the names of the team and of a life.
    fn names(&self, life: &Incarnation, path: &Path) -> bool {
        let Some(name) = &self.name else { return false };
        path.ends_with(Path::new(name).join(cgroup::of_life(&life.name, life.incarnation)))
    }

    /// Removes what earlier daemons left empty; what lives of the journal still name is theirs.
    pub(crate) fn tidy(&self, team: &Team) {
        let Some((_, folder)) = self.team() else { return };
        let alive = team.members.values().filter(|state| !state.record.phase.is_ended());
        let named: Vec<&str> =
            alive.filter_map(|state| state.record.cgroup.as_ref()).map(|it| it.path.as_str()).collect();
        for left in cgroup::below(&folder) {
            if !named.iter().any(|path| Path::new(path) == left) {
                group::remove_empty(&left);
            }
        }
    }

    /// Removes the cgroup of the team, when nobody is left.
    pub(crate) fn close(&self) {
        let Some((place, team)) = self.team() else { return };
        if let Err(error) = limits::come_back(place, &team) {
            tracing::info!("cannot leave its cgroup {}: {error}", team.display());
        }
        group::remove_empty(&team);
    }
}

fn enclose(
    place: &Place,
    team: &Path,
    life: &Incarnation,
    (pid, bounds): (u32, &Bounds),
) -> Result<Group, String> {
    let folder = team.join(cgroup::of_life(&life.name, life.incarnation));
    let cannot = |what: &str, error: io::Error| format!("cannot {what} {}: {error}", folder.display());
    let path = folder.to_str().ok_or("its path is not UTF-8")?;
    make(team, &folder).map_err(|e| cannot("make", e))?;
    let entered = || {
        if !folder.join("cgroup.kill").exists() {
            return Err("the kernel does not know cgroup.kill (5.14 and newer do)".to_owned());
        }
        let (memory, procs) = limits::hold(place, team, &folder, bounds);
        // The last step: what is in it is bounded from its first moment.
        limits::write(&folder.join("cgroup.procs"), &pid.to_string()).map_err(|e| cannot("enter", e))?;
        Ok(Cgroup { path: path.to_owned(), memory, procs })
    };
    entered()
        .map(|record| Group::new(record, Some(team.to_owned())))
        .inspect_err(|_| group::remove_empty(&folder))
}

/// Makes the cgroup of a life. What an earlier journal left under the same name is taken if it is empty; if not, it is
/// somebody's whom nobody knows, and is left alone.
fn make(team: &Path, folder: &Path) -> io::Result<()> {
    let unless_there = |made: io::Result<()>| match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        other => other.map(|()| true),
    };
    unless_there(fs::create_dir(team))?;
    if !unless_there(fs::create_dir(folder))? {
        group::remove_empty(folder);
        fs::create_dir(folder)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
