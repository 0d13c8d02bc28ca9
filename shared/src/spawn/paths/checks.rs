//! What no spawn order may ask for: a path through a link that a tool made, a repository of `git`,
//! or hiding what is needed.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{FollowedLink, PathSearch, holds_system_programs, usage, who};
use crate::control::Refusal;
use crate::name::Name;

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

/// The folders of which a confined command sees others than the user.
const OF_THE_KERNEL: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Returns the repository of `git` (the directory that holds its settings) that a path is, or
/// belongs to.
pub fn repository_of(path: &Path) -> Option<&Path> {
    path.ancestors().find(|folder| {
        let inside = path
            .strip_prefix(folder)
            .ok()
            .and_then(|inside| inside.components().next());
        let is_its_own =
            inside.is_none_or(|first| OF_GIT.iter().any(|name| first.as_os_str() == *name));
        folder.ends_with(".git") || is_its_own && is_bare_repository(folder)
    })
}

/// The kernel's own number for a directory: a bind mount shows it by another path, with the same
/// number.
#[derive(PartialEq, Eq)]
struct FolderId {
    device: u64,
    inode: u64,
}

fn id(path: &Path) -> Option<FolderId> {
    let metadata = path.symlink_metadata().ok()?;
    Some(FolderId {
        device: metadata.dev(),
        inode: metadata.ino(),
    })
}

/// Returns the one of these directories, where tools may or once could write, in which a link lies:
/// one of them can have made it.
pub fn folder_of_link<'t>(
    link: &Path,
    territory: impl Iterator<Item = &'t Path>,
) -> Option<&'t Path> {
    let folders: Vec<_> = territory.map(|path| (path, id(path))).collect();
    // Tools cannot replace the directory itself: that takes the right to write in the one above.
    link.ancestors().skip(1).find_map(|above| {
        let id = id(above);
        let found = folders
            .iter()
            .find(|(path, its_id)| *path == above || id.is_some() && *its_id == id);
        found.map(|(path, _)| *path)
    })
}

impl PathSearch<'_> {
    /// Refuses a workspace that no confined command would find.
    pub(super) fn refuse_kernel_folders(&self, workspace: &str) -> Result<(), Refusal> {
        let path = Path::new(workspace);
        let Some(folder) = OF_THE_KERNEL.iter().find(|folder| path.starts_with(folder)) else {
            return Ok(());
        };
        Err(usage(
            format!(
                "{} cannot work in {workspace}: confined commands have a {folder} of their own",
                who(self.name)
            ),
            "work in a directory elsewhere, or spawn it with `--sandbox off`",
        ))
    }

    /// Refuses a path with the shell of the system in it: what a teammate may change, `teamd` never runs
    /// again, and the jobs of all checkouts need a shell.
    pub(super) fn refuse_system_programs(
        &self,
        workspace: &str,
        writable: &[String],
    ) -> Result<(), Refusal> {
        let paths = std::iter::once(workspace).chain(writable.iter().map(String::as_str));
        let mut paths = paths.filter(|path| holds_system_programs(Path::new(path)));
        let Some(path) = paths.next() else {
            return Ok(());
        };
        Err(usage(
            format!(
                "{} cannot have all of {path} to work in: the programs of the system are there, and teamd itself runs some",
                who(self.name)
            ),
            "name a directory of its own, with --workspace, --writable or in team.toml",
        ))
    }

    /// Refuses a link in a directory where tools may or once could write (`territory`, with whose
    /// tools).
    pub(super) fn refuse_links_of_tools<'t>(
        &self,
        links: &[FollowedLink],
        territory: impl Iterator<Item = (&'t Path, &'t Name)>,
    ) -> Result<(), Refusal> {
        let makers: BTreeMap<&Path, &Name> = territory.collect();
        for FollowedLink { doing, named, link } in links {
            let folder = folder_of_link(link, makers.keys().copied());
            let Some((folder, maker)) = folder.and_then(|path| makers.get_key_value(path)) else {
                continue;
            };
            let link = link.display();
            let why = format!(
                "{} cannot {doing} {named}: {link} is a symbolic link in {}, where the tools of {} may write or once could, \
                 so one of them can have made it",
                who(self.name),
                folder.display(),
                who(maker)
            );
            let hint = format!(
                "see where it leads (`readlink -f {link}`), and name that instead, if it is what you mean"
            );
            return Err(usage(why, hint));
        }
        Ok(())
    }

    /// Refuses to let tools write in a repository of `git` itself.
    pub(super) fn refuse_repositories(
        &self,
        workspace: &str,
        writable: &[String],
    ) -> Result<(), Refusal> {
        let writable = writable.iter().map(|path| ("write", path.as_str()));
        for (doing, path) in std::iter::once(("work in", workspace)).chain(writable) {
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

    /// Refuses to hide what a teammate needs.
    pub(super) fn refuse_to_hide_what_is_needed(
        &self,
        workspace: &str,
        writable: &[String],
        hidden: &[String],
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

fn is_bare_repository(folder: &Path) -> bool {
    ["HEAD", "objects", "refs"]
        .iter()
        .all(|name| folder.join(name).exists())
}
