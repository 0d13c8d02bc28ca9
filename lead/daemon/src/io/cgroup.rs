//! The cgroups of the team (version 2): one for each incarnation and each check, where the machine
//! lets the daemon make some.
//!
//! A cgroup makes an end quick and sure: `cgroup.kill` reaches processes to which no parent and no
//! session leads, and `cgroup.events` says when none is left. It replaces nothing: shims end what
//! their commands started, the liveness lock tells when they have, and an incarnation without a
//! cgroup is supervised as well. So no error here fails a spawn, and none ends an incarnation
//! early.
//!
//! The daemon kills and removes only what lies in the cgroup that is named after this team
//! directory ([`cgroup::of_team`]). A copied team directory has another name.

mod group;
mod limits;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use teamd_shared::cgroup::{self, CgroupPlace, CgroupRights, Use};
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::member::{Bounds, Cgroup, Member};
use teamd_shared::team_dir::TeamDir;

pub(crate) use self::group::{CgroupHandle, Emptiness};
use crate::core::incarnation::Incarnation;

/// Where the incarnations of this team get their cgroups, and how the daemon knows them.
#[derive(Debug)]
pub(crate) struct Cgroups {
    /// The name of the team's cgroup; `None` if the daemon cannot tell it, and then it knows none.
    name: Option<String>,
    /// Where that is made; `None` if new incarnations get no cgroup.
    place: Option<CgroupPlace>,
}

impl Cgroups {
    /// Looks where cgroups can be made, and writes to the log where not.
    pub(crate) fn open(dir: &TeamDir, wanted: Use) -> Self {
        let name = cgroup::of_team(dir);
        let name = name
            .inspect_err(|e| tracing::warn!("cannot find the name of its cgroup: {e}"))
            .ok();
        let place = if wanted == Use::Auto {
            name.as_deref()
                .and_then(|name| match CgroupPlace::look(Some(name)) {
                    Ok(place) if place.standing == CgroupRights::Foreign => {
                        tracing::info!(
                            "no cgroups are made: {} is not delegated to this user",
                            place.path
                        );
                        None
                    }
                    Ok(place) => Some(place),
                    Err(why) => {
                        tracing::info!("no cgroups are made: {why}");
                        None
                    }
                })
        } else {
            None
        };
        Self { name, place }
    }

    /// Returns the cgroup of the team, whether it exists or not.
    fn team(&self) -> Option<(&CgroupPlace, PathBuf)> {
        self.place
            .as_ref()
            .zip(self.name.as_ref())
            .map(|(place, name)| (place, place.folder.join(name)))
    }

    /// Tells whether new incarnations get cgroups.
    pub(crate) fn are_made(&self) -> bool {
        self.place.is_some()
    }

    /// Tells whether a process may be an orphan of an incarnation: it is in the cgroup of one of
    /// this team, or its cgroup cannot be seen.
    pub(crate) fn may_hold(&self, pid: u32) -> bool {
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else {
            return true;
        };
        let Some(path) = cgroup::path_in(&text) else {
            return true;
        };
        let Some(team) = &self.name else { return true };
        let mut below = Path::new(path)
            .iter()
            .skip_while(|part| *part != team.as_str())
            .skip(1);
        below.next().is_some_and(|child| child != cgroup::DAEMON)
    }

    /// Makes the cgroup of an incarnation. Its worker enters it before it starts a command, so all
    /// that the worker ever starts is in it. Returns `None`, and writes to the log, where that does
    /// not work.
    pub(crate) fn make(
        &self,
        Incarnation { name, number }: &Incarnation,
        bounds: &Bounds,
    ) -> Option<CgroupHandle> {
        self.make_named(&cgroup::of_incarnation(name, *number), bounds)
    }

    /// Makes the cgroup of a check, which the job enters likewise, and gives it more of the
    /// processors than a teammate has.
    pub(crate) fn make_for_check(&self, bounds: &Bounds) -> Option<CgroupHandle> {
        let made = self.make_named(&cgroup::of_check(&RandomIds.request()), bounds)?;
        if let Some((place, team)) = self.team() {
            limits::prefer(place, &team, Path::new(&made.record().path));
        }
        Some(made)
    }

    fn make_named(&self, name: &str, bounds: &Bounds) -> Option<CgroupHandle> {
        let (place, team) = self.team()?;
        match make(place, &team, name, bounds) {
            Ok(group) => Some(group),
            Err(why) => {
                tracing::warn!("{name} runs without a cgroup: {why}");
                None
            }
        }
    }

    /// Returns the cgroup that the journal names for an incarnation, if it is named after this team
    /// and incarnation. The daemon that made it may have stood elsewhere.
    pub(crate) fn find(
        &self,
        incarnation: &Incarnation,
        recorded: &Cgroup,
    ) -> Option<CgroupHandle> {
        let Incarnation { name, number } = incarnation;
        let named = Path::new(self.name.as_ref()?).join(cgroup::of_incarnation(name, *number));
        let folder = Path::new(&recorded.path);
        let is_ours = folder.is_absolute() && folder.ends_with(named);
        is_ours.then(|| CgroupHandle::new(recorded.clone(), self.team().map(|(_, team)| team)))
    }

    /// Removes the cgroups that earlier daemons left: those of checks with what is in them, since
    /// no check outlives its daemon, and the empty ones of incarnations that do not run. Must be
    /// called within the runtime.
    pub(crate) fn tidy<'a>(&self, unended: impl Iterator<Item = &'a Member>) {
        let Some((_, folder)) = self.team() else {
            return;
        };
        let used: Vec<&str> = unended
            .filter_map(|member| member.cgroup.as_ref())
            .map(|it| it.path.as_str())
            .collect();
        for left in cgroup::below(&folder) {
            if cgroup::is_of_check(&left) {
                let path = left.to_string_lossy().into_owned();
                let group = CgroupHandle::new(
                    Cgroup {
                        path,
                        memory: false,
                        procs: false,
                    },
                    Some(folder.clone()),
                );
                tokio::spawn(async move { group.empty("a check of an earlier daemon").await });
            } else if !used.iter().any(|path| Path::new(path) == left) {
                group::remove_empty(&left);
            }
        }
    }

    /// Removes the cgroup of the team, when no incarnation is left.
    pub(crate) fn close(&self) {
        let Some((place, team)) = self.team() else {
            return;
        };
        if let Err(error) = limits::come_back(place, &team) {
            tracing::info!("cannot leave its cgroup {}: {error}", team.display());
        }
        group::remove_empty(&team);
    }
}

fn make(
    place: &CgroupPlace,
    team: &Path,
    name: &str,
    bounds: &Bounds,
) -> Result<CgroupHandle, String> {
    let folder = team.join(name);
    let path = folder.to_str().ok_or("its path is not UTF-8")?.to_owned();
    make_folder(team, &folder).map_err(|error| format!("cannot make {path}: {error}"))?;
    if let Err(why) = can_be_used(&folder) {
        group::remove_empty(&folder);
        return Err(why);
    }
    let (memory, procs) = limits::hold(place, team, &folder, bounds);
    Ok(CgroupHandle::new(
        Cgroup {
            path,
            memory,
            procs,
        },
        Some(team.to_owned()),
    ))
}

/// Tells why a worker could not enter a new cgroup, or the daemon not kill what is in it.
fn can_be_used(folder: &Path) -> Result<(), String> {
    if !folder.join("cgroup.kill").exists() {
        return Err("the kernel does not know cgroup.kill (5.14 and newer do)".to_owned());
    }
    let kind = fs::read_to_string(folder.join("cgroup.type")).unwrap_or_default();
    if kind.trim_end() != "domain" {
        return Err(format!(
            "its type is {:?}: no process can enter it",
            kind.trim_end()
        ));
    }
    Ok(())
}

/// Makes the cgroup of an incarnation. An empty one that an earlier journal left under the same
/// name is replaced; one that is not empty is unknown, and left alone.
fn make_folder(team: &Path, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(team)?;
    if folder.exists() {
        group::remove_empty(folder);
    }
    fs::create_dir(folder)
}

#[cfg(test)]
mod tests;
