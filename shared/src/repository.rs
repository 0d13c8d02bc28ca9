//! Where the repository of a workspace lies, if it does not lie in the workspace. Nothing is
//! started, and nothing is written.
//!
//! A file `.git` in a workspace names a directory elsewhere (`gitrepository-layout(5)`). A command
//! could make that file and name a directory where it cannot write. So the file counts only if the
//! repository also names the workspace: a *linked working tree* (`git worktree add`) by the file
//! `gitdir` of its own directory, `worktrees/NAME`; a submodule, or a repository that was separated
//! from its working tree, by its setting `core.worktree`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::place;

/// A repository, or a file that says where it is.
pub const GIT: &str = ".git";

/// The longest of these files that is read, in bytes: one with a path, and one with settings.
const LONGEST: u64 = 8 << 10;
const LONGEST_SETTINGS: u64 = 1 << 20;

/// A repository that lies elsewhere. Both paths are absolute and without links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// The directory that is this working tree's own: `worktrees/NAME` in the repository, or the
    /// repository.
    pub own: PathBuf,
    /// The repository.
    pub common: PathBuf,
}

impl Elsewhere {
    /// Finds the repository of a workspace, if it lies elsewhere and names the workspace.
    pub fn find(workspace: &Path) -> Option<Self> {
        let own = named_by(workspace)?;
        Self::linked(workspace, &own).or_else(|| Self::parted(workspace, own))
    }

    /// Tells whether the workspace is a linked tree of it.
    pub fn is_linked(&self) -> bool {
        self.own != self.common
    }

    fn linked(workspace: &Path, own: &Path) -> Option<Self> {
        let common = path_in(own, "commondir")?.canonicalize().ok()?;
        let tree = path_in(own, "gitdir")?.parent()?.canonicalize().ok()?;
        let is_linked = tree == workspace && own.parent() == Some(&common.join("worktrees"));
        is_linked.then(|| Self {
            own: own.to_owned(),
            common,
        })
    }

    fn parted(workspace: &Path, own: PathBuf) -> Option<Self> {
        // A directory with that file is part of another repository.
        own.join("commondir").symlink_metadata().err()?;
        // Any other link in it leads to a place that was not checked.
        ["HEAD", "objects", "refs"]
            .iter()
            .all(|name| place::open_itself(&own.join(name), OFlags::PATH).is_ok())
            .then_some(())?;
        let settings = text_of(&own.join("config"), LONGEST_SETTINGS)?;
        let mut named = last_setting(&settings, "core", "worktree");
        if last_setting(&settings, "extensions", "worktreeconfig")
            .is_some_and(|value| is_true(&value))
            && let Some(more) = text_of(&own.join("config.worktree"), LONGEST_SETTINGS)
        {
            named = last_setting(&more, "core", "worktree").or(named);
        }
        let tree = own.join(named?).canonicalize().ok()?;
        (tree == workspace).then(|| Self {
            common: own.clone(),
            own,
        })
    }
}

/// Returns the directory that the file `.git` of a workspace names.
pub fn named_by(workspace: &Path) -> Option<PathBuf> {
    let named = first_line(&workspace.join(GIT))?;
    let named = Path::new(OsStr::from_bytes(named.strip_prefix(b"gitdir: ")?)).to_owned();
    workspace.join(named).canonicalize().ok()
}

/// Explains why no command that may write only the workspace can commit there, and what to do; none
/// if one can, or if there is no repository.
pub fn cannot_commit(workspace: &Path) -> Option<(String, String)> {
    let git = workspace.join(GIT);
    let shown = git.display();
    let metadata = git.symlink_metadata().ok()?;
    if metadata.is_symlink() {
        let real = git.canonicalize().ok()?;
        let at = real.display();
        return Some((
            format!(
                "{shown} is a link to {at}, which nothing protects, or nothing there can be written"
            ),
            format!(
                "put a file in its place (`rm {shown}; echo gitdir: {at} >{shown}; git config core.worktree {}`)",
                workspace.display()
            ),
        ));
    }
    if metadata.is_dir() {
        let name = ["HEAD", "objects", "refs", "logs", "index", "packed-refs"]
            .into_iter()
            .find(|name| {
                let real = git.join(name).canonicalize();
                real.is_ok_and(|real| !real.starts_with(workspace))
            })?;
        let why = format!(
            "{shown}/{name} is a link that leads out of the workspace, where no command writes"
        );
        return Some((
            why,
            "run the team in a clone or a linked tree (`git worktree add`)".to_owned(),
        ));
    }
    let named = named_by(workspace)?;
    if named.starts_with(workspace) || Elsewhere::find(workspace).is_some() {
        return None;
    }
    let at = named.display();
    let tree = workspace.display();
    if named.join("commondir").exists() {
        let why = format!("{shown} leads to {at}, which is of another working tree");
        return Some((
            why,
            format!("`git worktree repair {tree}` in the repository puts that right"),
        ));
    }
    named.join("objects").exists().then(|| {
        let why = format!(
            "{shown} leads to the repository {at}, which does not name {tree} as its working tree"
        );
        (
            why,
            format!("if that is right, say so to it: `git -C {tree} config core.worktree {tree}`"),
        )
    })
}

/// Returns the repository that contains a workspace, if the workspace itself has none.
pub fn above(workspace: &Path) -> Option<PathBuf> {
    let folder = workspace
        .ancestors()
        .find(|above| above.join(GIT).join("HEAD").exists() || above.join(GIT).is_file())?;
    (folder != workspace).then(|| folder.to_owned())
}

/// Returns the path that the first line of a file of git names, from its folder on.
fn path_in(folder: &Path, file: &str) -> Option<PathBuf> {
    let line = first_line(&folder.join(file))?;
    Some(folder.join(OsStr::from_bytes(&line)))
}

/// Reads the first line of a file that no link leads to.
fn first_line(path: &Path) -> Option<Vec<u8>> {
    let text = text_of(path, LONGEST)?;
    let line = text.split(|&byte| byte == b'\n').next()?;
    Some(line.to_vec())
}

/// Reads a file that no link leads to.
fn text_of(path: &Path, longest: u64) -> Option<Vec<u8>> {
    let file = File::from(place::open_itself(path, OFlags::RDONLY | OFlags::NONBLOCK).ok()?);
    file.metadata().ok()?.is_file().then_some(())?;
    let mut text = Vec::new();
    file.take(longest).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Reads a file of settings of `git` that no link leads to.
pub fn text_of_settings(path: &Path) -> Option<Vec<u8>> {
    text_of(path, LONGEST_SETTINGS)
}

/// A setting of `git`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// In lower case.
    pub section: String,
    /// The name in quotes behind it; empty if there is none.
    pub subsection: String,
    /// In lower case.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
}

impl Setting {
    /// Returns its full name: `section.key`, or `section.subsection.key`.
    pub fn name(&self) -> String {
        let parts = [&self.section, &self.subsection, &self.key];
        parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .cloned()
            .collect::<Vec<_>>()
            .join(".")
    }
}

/// Returns the settings of a `git` configuration file that have a value, in order
/// (`git-config(1)`).
pub fn settings_of(text: &[u8]) -> Vec<Setting> {
    let mut section = String::new();
    let mut subsection = String::new();
    let mut settings = Vec::new();
    for line in lines(text) {
        let mut line = line.trim_ascii();
        if line.starts_with(b"[") {
            let (name, rest) = header(&line[1..]);
            let name = String::from_utf8_lossy(name).into_owned();
            let (first, second) = name.split_once('"').unwrap_or((&name, ""));
            section = first.trim().to_ascii_lowercase();
            subsection = second.trim_end().trim_end_matches('"').to_owned();
            line = rest.trim_ascii();
        }
        let Some(equals) = line.iter().position(|&byte| byte == b'=') else {
            continue;
        };
        let key = String::from_utf8_lossy(line[..equals].trim_ascii()).to_ascii_lowercase();
        let value = plain(line[equals + 1..].trim_ascii());
        settings.push(Setting {
            section: section.clone(),
            subsection: subsection.clone(),
            key,
            value,
        });
    }
    settings
}

/// Returns the lines of a file of settings: a backslash at an end joins two of them.
fn lines(text: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    let mut begun = Vec::new();
    for line in text.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let backslashes = line.iter().rev().take_while(|&&byte| byte == b'\\').count();
        if backslashes % 2 == 1 && !line.trim_ascii_start().starts_with(b"#") {
            begun.extend_from_slice(&line[..line.len() - 1]);
            continue;
        }
        begun.extend_from_slice(line);
        lines.push(std::mem::take(&mut begun));
    }
    lines
}

/// Splits the name of a section, which ends in a bracket that is not quoted, from the text behind
/// it.
fn header(text: &[u8]) -> (&[u8], &[u8]) {
    let mut is_quoted = false;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b']' if !is_quoted => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    (text, b"")
}

/// Returns the last value of a setting in a `git` configuration file; included files do not count.
fn last_setting(text: &[u8], section: &str, key: &str) -> Option<OsString> {
    let last = settings_of(text).into_iter().rfind(|setting| {
        setting.section == section && setting.subsection.is_empty() && setting.key == key
    })?;
    Some(OsString::from_vec(last.value))
}

/// Removes the quotes and backslashes from a value, and a comment behind it.
fn plain(value: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut is_quoted = false;
    let mut bytes = value.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\\' => plain.extend(bytes.next()),
            b'#' | b';' if !is_quoted => return plain.trim_ascii_end().to_vec(),
            other => plain.push(other),
        }
    }
    plain
}

fn is_true(value: &OsStr) -> bool {
    ["true", "yes", "on", "1"]
        .iter()
        .any(|yes| value.eq_ignore_ascii_case(yes))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test writes plain files")]
mod tests {
    use std::fs;

    use super::*;

    fn trees() -> (tempfile::TempDir, PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        for folder in ["main/.git/worktrees/tree", "tree", "other"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let own = root.join("main/.git/worktrees/tree");
        fs::write(
            own.join("gitdir"),
            format!("{}\n", root.join("tree/.git").display()),
        )
        .unwrap();
        fs::write(own.join("commondir"), "../..\n").unwrap();
        for tree in ["tree", "other"] {
            fs::write(
                root.join(tree).join(".git"),
                format!("gitdir: {}\n", own.display()),
            )
            .unwrap();
        }
        (scratch, root)
    }

    #[test]
    fn a_tree_is_linked_if_its_repository_says_so_too() {
        let (_scratch, root) = trees();
        let common = root.join("main/.git");
        let found = Elsewhere {
            own: common.join("worktrees/tree"),
            common,
        };
        assert_eq!(Elsewhere::find(&root.join("tree")), Some(found.clone()));
        assert!(found.is_linked() && cannot_commit(&root.join("tree")).is_none());
        assert_eq!(
            Elsewhere::find(&root.join("other")),
            None,
            "a command can have made that file"
        );
        let (why, next) = cannot_commit(&root.join("other")).unwrap();
        assert!(
            why.contains("of another working tree") && next.contains("worktree repair"),
            "{why}"
        );
        assert_eq!(Elsewhere::find(&root.join("main")), None);
        // `git worktree add --relative-paths` (git 2.48).
        fs::write(
            root.join("tree/.git"),
            "gitdir: ../main/.git/worktrees/tree\n",
        )
        .unwrap();
        fs::write(found.own.join("gitdir"), "../../../../tree/.git\n").unwrap();
        assert_eq!(Elsewhere::find(&root.join("tree")), Some(found));
    }

    #[test]
    fn settings_are_read_as_git_writes_them() {
        let text = "[a] K = 1 ; one\n# [b]\n[includeIf \"gitdir:~/[x]/\"]\n\tpath = \"a # b\" # c\n[a]\n\tflag\n\tlong = x\\\n y\n\tend = \\\\\r\n";
        let found = settings_of(text.as_bytes());
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.name(), String::from_utf8(it.value.clone()).unwrap()))
            .collect();
        let expected = [
            ("a.k", "1"),
            ("includeif.gitdir:~/[x]/.path", "a # b"),
            ("a.long", "x y"),
            ("a.end", "\\"),
        ];
        assert_eq!(
            found,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }

    #[test]
    fn a_directory_of_trees_that_another_repository_claims_is_none() {
        let (_scratch, root) = trees();
        fs::create_dir_all(root.join("evil/worktrees")).unwrap();
        fs::write(
            root.join("main/.git/worktrees/tree/commondir"),
            root.join("evil").to_str().unwrap(),
        )
        .unwrap();
        assert_eq!(Elsewhere::find(&root.join("tree")), None);
    }

    #[test]
    fn a_repository_that_lies_apart_counts_if_it_names_the_workspace() {
        let (_scratch, root) = trees();
        let apart = root.join("apart.git");
        for folder in ["objects", "refs"] {
            fs::create_dir_all(apart.join(folder)).unwrap();
        }
        fs::write(apart.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        let tree = root.join("tree");
        let other = root.join("other");
        for at in [&tree, &other] {
            fs::write(at.join(".git"), "gitdir: ../apart.git\n").unwrap();
        }
        let config = |text: &str| fs::write(apart.join("config"), text).unwrap();
        config("[core]\n\tbare = false\n[other]\n\tworktree = ../tree\n");
        let (why, next) = cannot_commit(&tree).unwrap();
        assert!(
            why.contains("does not name") && next.contains("config core.worktree"),
            "{why} {next}"
        );
        for named in [
            "../tree",
            "\"../tree\" ; as it was",
            "../nowhere\n\tWorkTree = ../tr\\ee",
        ] {
            config(&format!("[Core]\n\tbare = false\n\tworktree = {named}\n"));
            let found = Elsewhere::find(&tree).unwrap_or_else(|| panic!("{named}"));
            assert!(found.own == apart && found.common == apart && !found.is_linked());
            assert_eq!(
                (Elsewhere::find(&other), cannot_commit(&tree)),
                (None, None),
                "{named}"
            );
        }
        // `git sparse-checkout` moves it there.
        config("[extensions]\n\tworktreeConfig = true\n");
        fs::write(
            apart.join("config.worktree"),
            "[core]\n\tworktree = ../tree\n",
        )
        .unwrap();
        assert!(Elsewhere::find(&tree).is_some());
        config("[core]\n\tbare = false\n");
        assert!(Elsewhere::find(&tree).is_none(), "that file does not count");
        config("[core]\n\tworktree = ../tree\n");
        fs::remove_dir(apart.join("objects")).unwrap();
        std::os::unix::fs::symlink(&other, apart.join("objects")).unwrap();
        assert!(
            Elsewhere::find(&tree).is_none(),
            "a link there leads elsewhere"
        );
    }

    #[test]
    fn what_leads_out_of_a_workspace_is_told() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        for folder in ["real/objects", "tree/sub"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let tree = root.join("tree");
        assert_eq!((cannot_commit(&tree), above(&tree)), (None, None));
        std::os::unix::fs::symlink("../real", tree.join(".git")).unwrap();
        assert!(cannot_commit(&tree).unwrap().0.contains("is a link to"));
        fs::remove_file(tree.join(".git")).unwrap();
        fs::create_dir(tree.join(".git")).unwrap();
        fs::write(tree.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        assert_eq!(
            (cannot_commit(&tree), above(&tree.join("sub"))),
            (None, Some(tree.clone()))
        );
        std::os::unix::fs::symlink("../../real/objects", tree.join(".git/objects")).unwrap();
        assert!(
            cannot_commit(&tree)
                .unwrap()
                .0
                .contains("/objects is a link")
        );
    }
}
