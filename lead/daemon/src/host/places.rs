//! Where a teammate works and writes here. Home names it, and this host looks it up: once, since a
//! link that is there later can be of a tool.

use std::path::{Path, PathBuf};

use teamd_shared::caches::{self, caches};
use teamd_shared::environment::Environment;
use teamd_shared::name::Name;
use teamd_shared::place::follow;
use teamd_shared::spawn::{can_work, holds_system_programs, repository_of};
use teamd_shared::user_dirs::login_dir;

use super::frames::named_path;
use super::run::HostDaemon;
use super::state::NamedPath;

/// Returns the real paths.
pub(super) fn real_paths(paths: &[NamedPath]) -> Vec<String> {
    paths.iter().map(|path| path.real.clone()).collect()
}

impl HostDaemon {
    /// Returns the real path of a workspace.
    pub(super) fn workspace(&self, name: &Name, named: &str) -> Result<String, String> {
        let real = match self.log.state.workspace(name, named) {
            Some(known) => known.to_owned(),
            None => self
                .find_place(named)
                .map_err(|why| format!("the workspace {named} cannot be used: {why}"))?,
        };
        can_work(name, Path::new(&real))?;
        Ok(real)
    }

    /// Returns what else the commands of a teammate may write, with the caches of this machine in
    /// the place of [`caches::OF_HOST`]; and why the rest cannot be written.
    pub(super) fn writable(
        &self,
        name: &Name,
        named: &[String],
        environment: &Environment,
    ) -> (Vec<NamedPath>, Vec<String>) {
        let mut all = Vec::new();
        let mut unusable = Vec::new();
        for named in named {
            let known = self.log.state.writable(name, named).cloned();
            let known: Vec<NamedPath> = known.collect();
            if !known.is_empty() {
                all.extend(known);
                continue;
            }
            let places = if named == caches::OF_HOST {
                caches(environment).map_err(|refusal| refusal.message)
            } else {
                Ok(vec![named.clone()])
            };
            let mut found = Vec::new();
            let places = places.and_then(|places| {
                for place in places {
                    let named = named.clone();
                    let real = self.find_place(&place)?;
                    found.push(NamedPath { named, real });
                }
                Ok(())
            });
            match places {
                Ok(()) => all.append(&mut found),
                Err(why) => unusable.push(format!("{name} cannot write {named}: {why}")),
            }
        }
        (all, unusable)
    }

    /// Follows the links of a path, but for those that a tool can have made.
    fn find_place(&self, named: &str) -> Result<String, String> {
        let login_dir = login_dir(|name| std::env::var_os(name)).map_err(|why| why.to_string())?;
        let path = named_path(named, &login_dir)?;
        let territory = self.log.state.territory();
        let real: Result<PathBuf, std::io::Error> = follow(&path, |link| {
            if territory.iter().any(|tools| link.starts_with(tools)) {
                let why = format!("{} is a link that a tool can have made", link.display());
                return Err(std::io::Error::other(why));
            }
            Ok(())
        });
        let real = real.map_err(|why| why.to_string())?;
        if real.starts_with(self.dir.root()) {
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
        real.map_err(|_| "its real path is not UTF-8".to_owned())
    }
}
