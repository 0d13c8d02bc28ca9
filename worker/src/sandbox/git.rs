//! What of a repository `git` runs or believes: hooks, settings, and what says where the repository is.
//!
//! A *linked working tree* (`git worktree add`) has its repository elsewhere. Its file `.git` names a directory of the
//! repository, `worktrees/NAME`; a file there, `gitdir`, names the workspace. A command could make the first, and the second
//! lies where it cannot write: so a tree counts as linked only if the repository names it too (`gitrepository-layout(5)`,
//! `git-worktree(1)`).

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fstat};
use teamd_shared::place;

use super::missing::Missing;
use super::place::is_file;
use super::policy::Protected;

/// A repository, or a file that says where it is.
pub(crate) const GIT: &str = ".git";

/// What the next `git` of the user runs or believes in a workspace. The rest of `.git` may be written.
const SETTINGS: [(&str, Missing); 4] = [
    // An empty directory is no hook.
    (".git/hooks", Missing::MakeEmpty),
    (".git/config", Missing::Leave),
    (".git/config.worktree", Missing::Leave),
    // It says where hooks and settings are, if they are not there (`gitrepository-layout(5)`).
    (".git/commondir", Missing::PutAside),
];

/// What `git` runs or believes of a linked tree's own directory.
const OF_A_TREE: [(&str, Missing); 3] =
    [("commondir", Missing::Leave), ("gitdir", Missing::Leave), ("config.worktree", Missing::PutAside)];

/// What `git` believes for all trees of the repository, below what a command of one tree writes: the first replaces any
/// object for each reader, the second says where else objects lie.
const OF_ALL_TREES: [(&str, Missing); 2] =
    [("refs/replace", Missing::MakeEmpty), ("objects/info", Missing::MakeEmpty)];

/// Tells whether a path within a workspace is one that `git` runs or believes, or lies below one.
pub(crate) fn is_setting(way: &Path) -> bool {
    SETTINGS.iter().any(|(file, _)| way.starts_with(file))
}

/// Returns what is protected in a directory that a command may write. `git_files`: the files `.git` that say where a
/// repository is.
pub(super) fn protected_in(folder: &Path, git_files: &[PathBuf]) -> Vec<Protected> {
    let file = folder.join(GIT);
    if git_files.contains(&file) {
        return vec![Protected { path: file, if_missing: Missing::Leave }];
    }
    below(folder, &SETTINGS).collect()
}

fn below(folder: &Path, what: &[(&str, Missing)]) -> impl Iterator<Item = Protected> {
    what.iter().map(|&(file, if_missing)| Protected { path: folder.join(file), if_missing })
}

/// Tells whether a repository lies elsewhere than in a directory.
pub(super) fn is_git_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_file())
}

/// The longest of these files that is read, in bytes: a path and a newline.
const LONGEST: u64 = 8 << 10;

/// What `git` writes for each tree of the repository, beside `worktrees/NAME`: commits, and the names of commits.
const WRITTEN: [&str; 3] = ["objects", "refs", "logs"];

/// The repository of a linked working tree. Both paths are absolute and without links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkedTree {
    /// The directory that is this tree's own: `worktrees/NAME` in the repository.
    pub(crate) own: PathBuf,
    /// The repository.
    pub(crate) common: PathBuf,
}

impl LinkedTree {
    /// Finds the repository that a workspace is a linked working tree of; none if it is none.
    pub(crate) fn find(workspace: &Path) -> Option<Self> {
        let named = first_line(&workspace.join(GIT))?;
        let named = Path::new(OsStr::from_bytes(named.strip_prefix(b"gitdir: ")?)).to_owned();
        let own = workspace.join(named).canonicalize().ok()?;
        let line = |file: &str| Some(own.join(OsStr::from_bytes(&first_line(&own.join(file))?)));
        let common = line("commondir")?.canonicalize().ok()?;
        let tree = line("gitdir")?.parent()?.canonicalize().ok()?;
        let is_linked = tree == workspace && own.parent() == Some(&common.join("worktrees"));
        is_linked.then_some(Self { own, common })
    }

    /// Returns what is protected of the repository.
    pub(super) fn protected(&self) -> impl Iterator<Item = Protected> {
        below(&self.own, &OF_A_TREE).chain(below(&self.common, &OF_ALL_TREES))
    }

    /// Returns what of the repository a command writes that works in this tree.
    pub(super) fn written(&self) -> impl Iterator<Item = PathBuf> {
        [self.own.clone()].into_iter().chain(WRITTEN.iter().map(|name| self.common.join(name)))
    }
}

/// Reads the first line of a file that no link leads to.
fn first_line(path: &Path) -> Option<Vec<u8>> {
    let file = place::open_itself(path, OFlags::RDONLY | OFlags::NONBLOCK).ok()?;
    is_file(&fstat(&file).ok()?).then_some(())?;
    let mut text = Vec::new();
    File::from(file).take(LONGEST).read_to_end(&mut text).ok()?;
    let line = text.split(|&byte| byte == b'\n').next()?;
    Some(line.to_vec())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    fn write(file: &Path, text: &str) {
        File::create(file).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn trees() -> (tempfile::TempDir, PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        for folder in ["main/.git/worktrees/tree", "tree", "other"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let own = root.join("main/.git/worktrees/tree");
        write(&own.join("gitdir"), &format!("{}\n", root.join("tree/.git").display()));
        write(&own.join("commondir"), "../..\n");
        for tree in ["tree", "other"] {
            write(&root.join(tree).join(".git"), &format!("gitdir: {}\n", own.display()));
        }
        (scratch, root)
    }

    #[test]
    fn a_tree_is_linked_if_its_repository_says_so_too() {
        let (_scratch, root) = trees();
        let common = root.join("main/.git");
        let found = LinkedTree { own: common.join("worktrees/tree"), common };
        assert_eq!(LinkedTree::find(&root.join("tree")), Some(found.clone()));
        assert_eq!(LinkedTree::find(&root.join("other")), None, "a command can have made that file");
        assert_eq!(LinkedTree::find(&root.join("main")), None);
        // `git worktree add --relative-paths` (git 2.48).
        write(&root.join("tree/.git"), "gitdir: ../main/.git/worktrees/tree\n");
        write(&found.own.join("gitdir"), "../../../../tree/.git\n");
        assert_eq!(LinkedTree::find(&root.join("tree")), Some(found));
    }

    #[test]
    fn a_directory_of_trees_that_another_repository_claims_is_none() {
        let (_scratch, root) = trees();
        fs::create_dir_all(root.join("evil/worktrees")).unwrap();
        write(&root.join("main/.git/worktrees/tree/commondir"), root.join("evil").to_str().unwrap());
        assert_eq!(LinkedTree::find(&root.join("tree")), None);
    }
}
