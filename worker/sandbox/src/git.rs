//! What of a repository `git` runs or believes: hooks, settings, and what says where the repository
//! is. Where that lies elsewhere than in the workspace, [`teamd_shared::repository`] says whether
//! it counts.

use std::path::{Path, PathBuf};

pub(crate) use teamd_shared::repository::{Elsewhere, GIT};

use super::protected::{Missing, Protected};

/// What the next `git` of the user runs or believes in a workspace. The rest of `.git` may be
/// written.
const SETTINGS: [(&str, Missing); 4] = [
    // An empty directory is no hook.
    (".git/hooks", Missing::MakeEmpty),
    (".git/config", Missing::Leave),
    // It counts where the settings that are there say so.
    (".git/config.worktree", Missing::PutAside),
    // It says where hooks and settings are, if they are not there (`gitrepository-layout(5)`).
    (".git/commondir", Missing::PutAside),
];

/// What `git` runs or believes of a linked tree's own directory.
const OF_A_TREE: [(&str, Missing); 3] = [
    ("commondir", Missing::Leave),
    ("gitdir", Missing::Leave),
    ("config.worktree", Missing::PutAside),
];

/// What `git` believes for all trees of the repository, below what a command of one tree writes:
/// the first replaces any object for each reader, the second says where else objects lie.
const OF_ALL_TREES: [(&str, Missing); 2] = [
    ("refs/replace", Missing::MakeEmpty),
    ("objects/info", Missing::MakeEmpty),
];

/// The same of a repository that lies by itself: the settings of one in a workspace, and what
/// belongs to other trees.
const OF_ONE_APART: [(&str, Missing); 6] = [
    ("hooks", Missing::MakeEmpty),
    ("config", Missing::Leave),
    ("config.worktree", Missing::PutAside),
    ("commondir", Missing::PutAside),
    ("worktrees", Missing::Leave),
    ("modules", Missing::Leave),
];

/// Tells whether a path within a workspace is one that `git` runs or believes, or lies below one.
pub fn is_setting(way: &Path) -> bool {
    SETTINGS.iter().any(|(file, _)| way.starts_with(file))
}

/// Returns what is protected in a directory that a command may write. `git_files`: the files `.git`
/// that say where a repository is.
pub(super) fn protected_in(folder: &Path, git_files: &[PathBuf]) -> Vec<Protected> {
    let file = folder.join(GIT);
    if git_files.contains(&file) {
        return vec![Protected {
            path: file,
            if_missing: Missing::Leave,
        }];
    }
    below(folder, &SETTINGS).collect()
}

/// Returns what is protected of a repository which a file `.git` names, and which a command may
/// write anyway.
pub(super) fn protected_of_one_inside(repository: &Path) -> impl Iterator<Item = Protected> {
    below(repository, &OF_ONE_APART[..4])
}

fn below(folder: &Path, what: &[(&str, Missing)]) -> impl Iterator<Item = Protected> {
    what.iter().map(|&(file, if_missing)| Protected {
        path: folder.join(file),
        if_missing,
    })
}

/// Tells whether a repository lies elsewhere than in a directory.
pub(super) fn is_git_file(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|metadata| metadata.is_file())
}

/// What `git` writes for each tree of the repository, beside `worktrees/NAME`: commits, and the
/// names of commits.
const WRITTEN: [&str; 3] = ["objects", "refs", "logs"];

/// The same, where it is there: names in another form, and what Git LFS stores.
const WRITTEN_IF_THERE: [&str; 2] = ["reftable", "lfs"];

/// Returns what is protected of a repository elsewhere.
pub(super) fn protected_of(repository: &Elsewhere) -> Vec<Protected> {
    let own: &[_] = if repository.is_linked() {
        &OF_A_TREE
    } else {
        &OF_ONE_APART
    };
    below(&repository.own, own)
        .chain(below(&repository.common, &OF_ALL_TREES))
        .collect()
}

/// Returns what of a repository elsewhere a command writes that works in its tree.
pub(super) fn written_of(repository: &Elsewhere) -> Vec<PathBuf> {
    let mut written = vec![repository.own.clone()];
    if repository.is_linked() {
        let common = &repository.common;
        written.extend(WRITTEN.map(|name| common.join(name)));
        let others = WRITTEN_IF_THERE.map(|name| common.join(name));
        written.extend(others.into_iter().filter(|path| path.exists()));
    }
    written
}
