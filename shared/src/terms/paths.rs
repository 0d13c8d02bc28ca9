//! The paths that a spawn order names: where a teammate works, what it may write besides, what its
//! tools may not read.
//!
//! The command that spawns resolves each path once, before it asks the daemon: the real path is
//! recorded and shown. No later incarnation resolves it again; it is opened without following any
//! link ([`open_itself`]). A link that a tool can have made is refused: its maker would say what
//! others may write.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::caches::caches;
use super::{Sandbox, add};
use crate::control::{Refusal, RefusalCode, SpawnOrder};
use crate::name::Name;
use crate::place::{follow, open_itself};
use crate::settings::{Lookup, SettingError};
use crate::team_dir::TeamDir;

/// Where tools of any teammate may or once could write, and whose tools
/// ([`crate::journal::Team::territory`]).
pub type Territory = Vec<(PathBuf, Name)>;

/// Puts real paths in the place of those that an order names. `recorded` is the workspace and the
/// sandbox of the incarnation that is resumed: their paths stay as they are. The caches that it
/// asks for are among its writable paths afterwards.
///
/// The territory is read after the links were followed: a tool that made one of them is recorded by
/// then.
///
/// # Errors
/// Why a path cannot be used, or the error of reading the territory.
pub fn resolve_paths<E: From<Refusal>>(
    order: &mut SpawnOrder,
    dir: &TeamDir,
    recorded: Option<(&str, &Sandbox)>,
    territory: impl FnOnce() -> Result<Territory, E>,
) -> Result<(), E> {
    let (recorded_workspace, recorded_sandbox) = recorded.unzip();
    let recorded_sandbox = recorded_sandbox.cloned().unwrap_or_default();
    let mut search = Search {
        name: &order.name,
        dir,
        links: Vec::new(),
    };
    let terms = &mut order.terms;
    if terms.sandbox.caches.take() == Some(true) {
        add(&mut terms.sandbox.writable, &caches(&order.environment)?);
    }
    let default = recorded_workspace.map_or_else(
        || dir.workspace().to_string_lossy().into_owned(),
        str::to_owned,
    );
    let workspace = match terms
        .workspace
        .take()
        .filter(|named| Some(named.as_str()) != recorded_workspace)
    {
        Some(named) => search.find("work in", &named)?,
        None => default,
    };
    let of_workspace = std::mem::take(&mut search.links);
    let writable = search.find_all("write", &terms.sandbox.writable, &recorded_sandbox.writable)?;
    let visible = search.find_all("see", &terms.sandbox.visible, &recorded_sandbox.visible)?;
    let hidden = search.find_all(
        "be kept from",
        &terms.sandbox.hidden,
        &recorded_sandbox.hidden,
    )?;
    if !of_workspace.is_empty() || !search.links.is_empty() {
        let territory = territory()?;
        search.refuse_links_of_tools(&of_workspace, &territory)?;
        search.refuse_links_of_tools(&search.links, &territory)?;
        // A link in one of the paths that it is to write says nothing of where another one leads,
        // either.
        let own = std::iter::once(&workspace).chain(&writable);
        let own = own
            .map(|path| (PathBuf::from(path), order.name.clone()))
            .collect();
        search.refuse_links_of_tools(&search.links, &own)?;
    }
    search.refuse_repositories(("work in", &workspace), &writable)?;
    let mut all_writable = writable.clone();
    let mut all_hidden = hidden.clone();
    add(&mut all_writable, &recorded_sandbox.writable);
    add(&mut all_hidden, &recorded_sandbox.hidden);
    search.refuse_to_hide_what_is_needed(&workspace, (&all_writable, &all_hidden))?;
    can_work(&order.name, Path::new(&workspace)).map_err(|why| {
        Refusal::new(RefusalCode::Failed, why)
            .hint("name a directory that exists, or make it first")
    })?;
    terms.workspace = Some(workspace);
    terms.sandbox.writable = writable;
    terms.sandbox.hidden = hidden;
    terms.sandbox.visible = visible;
    Ok(())
}

/// Makes sure that a teammate can work where it is recorded to work. A shortage of the moment and a
/// failing disk say nothing of that: the worker finds them out.
///
/// # Errors
/// Why not. Fits behind "error: ".
pub fn can_work(name: &Name, workspace: &Path) -> Result<(), String> {
    let at = workspace.display();
    match open_itself(workspace, OFlags::RDONLY | OFlags::DIRECTORY) {
        Ok(_) | Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR | Errno::AGAIN) => {
            Ok(())
        }
        Err(Errno::NOSPC | Errno::DQUOT | Errno::IO) => Ok(()),
        Err(Errno::LOOP) => Err(format!(
            "a symbolic link stands on the way to the workspace {at}, and none did when it was named, so a tool can have made \
             it: remove the link, or name the workspace anew (`teamctl spawn {name} --resume --workspace DIR`)"
        )),
        Err(Errno::NOTDIR) => Err(format!("the workspace {at} is not a directory")),
        Err(errno) => Err(format!("the workspace {at} cannot be used: {errno}")),
    }
}

/// Makes a path absolute: `~` is the user's home, any other path counts from a directory. `..`
/// stays: behind a link it is not what it looks like.
///
/// # Errors
/// [`SettingError`] if the path begins with `~` and there is no home.
pub fn absolute(base: &Path, path: &str, lookup: Lookup<'_>) -> Result<String, SettingError> {
    let in_home = path
        .strip_prefix('~')
        .filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let path = match in_home {
        Some(rest) => {
            let expected = "a path begins with ~";
            let home = lookup("HOME").filter(|home| !home.is_empty());
            let home = home.ok_or(SettingError {
                variable: "HOME",
                value: String::new(),
                expected,
            })?;
            Path::new(&home).join(rest.trim_start_matches('/'))
        }
        None => base.join(path),
    };
    let tidy: PathBuf = path
        .components()
        .filter(|part| *part != Component::CurDir)
        .collect();
    Ok(tidy.to_string_lossy().into_owned())
}

/// What `git` keeps in a repository. A working tree can lie in a bare one, beside these.
const OF_GIT: [&str; 9] = [
    "hooks",
    "objects",
    "refs",
    "logs",
    "info",
    "worktrees",
    "modules",
    "branches",
    "rr-cache",
];

/// Returns the repository of `git` (the directory that holds its settings) that a path is, or
/// belongs to.
fn repository_of(path: &Path) -> Option<&Path> {
    path.ancestors().find(|folder| {
        let inside = path
            .strip_prefix(folder)
            .ok()
            .and_then(|inside| inside.components().next());
        let is_its_own =
            inside.is_none_or(|first| OF_GIT.iter().any(|name| first.as_os_str() == *name));
        let is_bare = || {
            ["HEAD", "objects", "refs"]
                .iter()
                .all(|name| folder.join(name).exists())
        };
        folder.ends_with(".git") || is_its_own && is_bare()
    })
}

/// A link that was followed, and for which path.
struct Link {
    doing: &'static str,
    named: String,
    link: PathBuf,
}

struct Search<'a> {
    name: &'a Name,
    dir: &'a TeamDir,
    links: Vec<Link>,
}

impl Search<'_> {
    /// Follows every link. What is missing stays as it is named: it may be made later.
    fn find(&mut self, doing: &'static str, named: &str) -> Result<String, Refusal> {
        let mut links = Vec::new();
        let found = follow::<io::Error>(Path::new(named), |link| {
            links.push(Link {
                doing,
                named: named.to_owned(),
                link: link.to_owned(),
            });
            Ok(())
        });
        self.links.append(&mut links);
        let cannot = |why: String, hint: &str| {
            usage(
                format!("{} cannot {doing} {named}: {why}", who(self.name)),
                hint,
            )
        };
        let found = found
            .map_err(|error| cannot(error.to_string(), "name a path that can be looked up"))?;
        if found.starts_with(self.dir.root()) {
            let hint = "name something outside of it, with --workspace, --writable or in team.toml";
            return Err(cannot(
                "it lies in the team directory, which no tool touches".to_owned(),
                hint,
            ));
        }
        found.into_os_string().into_string().map_err(|found| {
            let why = format!("it leads to {}, which is not UTF-8", found.display());
            cannot(why, "rename that, or name something else")
        })
    }

    fn find_all(
        &mut self,
        doing: &'static str,
        named: &[String],
        recorded: &[String],
    ) -> Result<Vec<String>, Refusal> {
        let mut all = Vec::new();
        for named in named {
            let found = if recorded.contains(named) {
                named.clone()
            } else {
                self.find(doing, named)?
            };
            add(&mut all, &[found]);
        }
        Ok(all)
    }

    fn refuse_links_of_tools(&self, links: &[Link], territory: &Territory) -> Result<(), Refusal> {
        // A bind mount shows a directory by another path, too: the kernel's own number for it is
        // the same.
        let ids: Vec<_> = territory.iter().map(|(path, _)| id(path)).collect();
        for Link { doing, named, link } in links {
            // Tools cannot replace the directory itself: that takes the right to write in the one
            // above.
            let Some((folder, maker)) = link.ancestors().skip(1).find_map(|above| {
                let here = id(above);
                let mut known = territory.iter().zip(&ids);
                known.find_map(|((path, name), id)| {
                    (path == above || here.is_some() && here == *id).then_some((path, name))
                })
            }) else {
                continue;
            };
            let why = format!(
                "{} cannot {doing} {named}: {} is a symbolic link in {}, where the tools of {} may write or once could, so one \
                 of them can have made it",
                who(self.name),
                link.display(),
                folder.display(),
                who(maker)
            );
            let hint = format!(
                "see where it leads (`readlink -f {}`), and name that instead, if it is what you mean",
                link.display()
            );
            return Err(usage(why, hint));
        }
        Ok(())
    }

    fn refuse_repositories(
        &self,
        workspace: (&str, &str),
        writable: &[String],
    ) -> Result<(), Refusal> {
        let writable = writable.iter().map(|path| ("write", path.as_str()));
        for (doing, path) in std::iter::once(workspace).chain(writable) {
            let Some(repository) = repository_of(Path::new(path)) else {
                continue;
            };
            let why = format!(
                "{} cannot {doing} {path}: it belongs to the repository {}, and a command that writes there also writes hooks \
                 and settings that your own git runs and believes",
                who(self.name),
                repository.display()
            );
            let hint = "a linked working tree (`git worktree add`) as the workspace needs no --writable: commits work there, and \
                        hooks and settings stay as they are";
            return Err(usage(why, hint));
        }
        Ok(())
    }

    fn refuse_to_hide_what_is_needed(
        &self,
        workspace: &str,
        (writable, hidden): (&[String], &[String]),
    ) -> Result<(), Refusal> {
        let real = Path::new(workspace)
            .canonicalize()
            .unwrap_or_else(|_| PathBuf::from(workspace));
        let works = std::iter::once((real.as_path(), "works in"));
        let needed: Vec<_> = works
            .chain(writable.iter().map(|path| (Path::new(path), "may write")))
            .collect();
        for hidden in hidden {
            let Some((path, does)) = needed.iter().find(|(path, _)| path.starts_with(hidden))
            else {
                continue;
            };
            let why = format!(
                "{} cannot be kept from {hidden}: it {does} {}",
                who(self.name),
                path.display()
            );
            let hint = "hide what lies beside or below that, with --hidden or in team.toml";
            return Err(usage(why, hint));
        }
        Ok(())
    }
}

fn usage(why: String, hint: impl Into<String>) -> Refusal {
    Refusal::new(RefusalCode::Usage, why).hint(hint)
}

fn id(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata()
        .ok()
        .map(|found| (found.dev(), found.ino()))
}

fn who(name: &Name) -> &str {
    if *name == Name::lead() {
        "the lead agent"
    } else {
        name.as_str()
    }
}

#[cfg(test)]
mod tests;
