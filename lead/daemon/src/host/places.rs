//! Where a teammate works and writes here. Home names it, and this host looks it up: once for a
//! conversation, since a link that is there later can be of a tool.

use std::collections::BTreeSet;
use std::fs::symlink_metadata;
use std::path::{Path, PathBuf};

use teamd_shared::caches::{self, caches};
use teamd_shared::environment::Environment;
use teamd_shared::place::follow;
use teamd_shared::spawn::{can_work, folder_of_link, holds_system_programs, repository_of};
use teamd_shared::user_dirs::login_dir;

use super::daemon::HostDaemon;
use super::frames::named_path;
use super::state::{Conversation, HostState, NamedPath};

/// Looks up the paths of one order.
pub(super) struct Places<'a> {
    state: &'a HostState,
    /// The team directory of the host daemon.
    team_dir: &'a Path,
    login_dir: PathBuf,
    /// What home calls this host.
    host: String,
}

/// What a teammate is to write beside its workspace.
pub(super) struct Writes<'a> {
    pub(super) of: Conversation<'a>,
    /// As home names it.
    pub(super) named: &'a [String],
    /// The real path of the workspace, where its commands can make links, too.
    pub(super) workspace: &'a str,
}

/// What can be written.
#[derive(Debug, PartialEq)]
pub(super) struct WritablePlaces {
    pub(super) paths: Vec<NamedPath>,
    pub(super) unusable: Vec<UnusablePlace>,
}

/// A path that cannot be written.
#[derive(Debug, PartialEq)]
pub(super) struct UnusablePlace {
    /// As home names it.
    pub(super) named: String,
    /// Why. One line.
    pub(super) why: String,
}

/// Where a path leads, and the links on the way.
struct Followed {
    real: String,
    links: Vec<PathBuf>,
}

impl WritablePlaces {
    /// Returns the real paths.
    pub(super) fn real(&self) -> Vec<String> {
        self.paths.iter().map(|path| path.real.clone()).collect()
    }

    /// Takes out why an order is refused. `is_first`: it begins the conversation, and else what it
    /// names itself (`asked`) must be usable. What is only recorded refuses nothing: no later order
    /// takes a path back.
    pub(super) fn take_refusal(&mut self, is_first: bool, asked: &[String]) -> Option<String> {
        let mut unusable = self.unusable.iter();
        let refuses = unusable.position(|path| is_first || asked.contains(&path.named))?;
        Some(self.unusable.remove(refuses).why)
    }
}

impl HostDaemon {
    /// Returns what looks up the paths of an order.
    pub(super) fn places(&self) -> Result<Places<'_>, String> {
        let login_dir = login_dir(|name| std::env::var_os(name)).map_err(|why| why.to_string())?;
        Ok(Places {
            state: &self.log.state,
            team_dir: self.dir.root(),
            login_dir,
            host: self.host_name(),
        })
    }
}

impl Places<'_> {
    /// Returns the real path of a workspace.
    pub(super) fn workspace(&self, of: &Conversation<'_>, named: &str) -> Result<String, String> {
        let real = match self.state.workspace(of, named) {
            Some(known) => known.to_owned(),
            None => {
                let found = self.find(named);
                found
                    .map_err(|why| format!("the workspace {named} cannot be used: {why}"))?
                    .real
            }
        };
        can_work(of.name, Path::new(&real))?;
        Ok(real)
    }

    /// Returns what else the commands of a teammate may write, with the caches of this machine in
    /// the place of [`caches::OF_HOST`]; and what cannot be written.
    pub(super) fn writable(
        &self,
        writes: &Writes<'_>,
        environment: &Environment,
    ) -> WritablePlaces {
        let mut known = Vec::new();
        let mut found = Vec::new();
        let mut unusable = Vec::new();
        let mut own = BTreeSet::from([writes.workspace.to_owned()]);
        for named in writes.named {
            let before = known.len();
            known.extend(self.state.writable(&writes.of, named).cloned());
            if known.len() > before {
                continue;
            }
            match self.find_writable(named, environment) {
                Ok(places) => {
                    own.extend(places.iter().map(|place| place.real.clone()));
                    found.push((named, places));
                }
                Err(why) => unusable.push(self.unusable(writes, named, &why)),
            }
        }
        own.extend(known.iter().map(|path| path.real.clone()));
        let mut paths = known;
        for (named, places) in found {
            // A link in one of its paths does not decide where another one leads, either: between
            // two looks a command of its setup can have made it.
            let mut links = places.iter().flat_map(|place| &place.links);
            if let Some(why) = links.find_map(|link| made_in(link, &own)) {
                unusable.push(self.unusable(writes, named, &why));
                continue;
            }
            paths.extend(places.into_iter().map(|place| NamedPath {
                named: named.clone(),
                real: place.real,
            }));
        }
        WritablePlaces { paths, unusable }
    }

    fn unusable(&self, writes: &Writes<'_>, named: &str, why: &str) -> UnusablePlace {
        let name = writes.of.name;
        let host = &self.host;
        UnusablePlace {
            named: named.to_owned(),
            why: format!("{name} cannot write {named} on {host}: {why}"),
        }
    }

    fn find_writable(
        &self,
        named: &str,
        environment: &Environment,
    ) -> Result<Vec<Followed>, String> {
        if named == caches::OF_HOST {
            let caches = caches(environment).map_err(|refusal| refusal.message)?;
            return caches.iter().map(|cache| self.find(cache)).collect();
        }
        let found = self.find(named)?;
        // A mistyped path would show only when a command fails.
        symlink_metadata(&found.real).map_err(|error| format!("{}: {error}", found.real))?;
        Ok(vec![found])
    }

    /// Follows the links of a path, but for those that a tool can have made.
    fn find(&self, named: &str) -> Result<Followed, String> {
        let path = named_path(named, &self.login_dir)?;
        let mut links = Vec::new();
        let real: Result<PathBuf, std::io::Error> = follow(&path, |link| {
            links.push(link.to_owned());
            match made_in(link, self.state.territory()) {
                Some(why) => Err(std::io::Error::other(why)),
                None => Ok(()),
            }
        });
        let real = real.map_err(|why| why.to_string())?;
        if real.starts_with(self.team_dir) {
            return Err("it lies in the team directory of the host daemon".to_owned());
        }
        if holds_system_programs(&real) {
            return Err("the programs of the system are there".to_owned());
        }
        if let Some(repository) = repository_of(&real) {
            return Err(format!(
                "it belongs to the repository {}, whose hooks and settings the git of its owner believes",
                repository.display()
            ));
        }
        let real = real.into_os_string().into_string();
        let real = real.map_err(|_| "its real path is not UTF-8".to_owned())?;
        Ok(Followed { real, links })
    }
}

/// Returns why a link is not followed, if a tool that writes in this territory can have made it.
fn made_in(link: &Path, territory: &BTreeSet<String>) -> Option<String> {
    folder_of_link(link, territory.iter().map(Path::new))?;
    let link = link.display();
    Some(format!("{link} is a link that a tool can have made"))
}

#[cfg(test)]
mod tests;
