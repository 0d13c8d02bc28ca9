//! Locks that a killed `git` has left: every later `git` there would fail. They are removed before
//! an incarnation begins its work, and before a job works in a checkout: then no process of the
//! teammate is left.
//!
//! A person may work there, too. So a lock goes only if this user owns it, no process that lives
//! can hold it, and, in the user's own tree, it was made since the teammate exists, on a file
//! system that no other machine writes to: its processes are not seen here. A lock is a file that
//! `git` makes with `O_EXCL`, and it does not say whose it is: `git commit` closes it while its
//! editor is open. So each `git` that works in the repository counts as a holder.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, stat, statat, statfs, unlinkat,
};
use rustix::io::Errno;
use teamd_shared::place::open_itself;
use teamd_shared::repository::{Elsewhere, GIT, named_by};

/// Where locks lie below a directory of a repository, beside its top. Whether what lies below is
/// looked at, too.
const BELOW: [(&str, bool); 6] = [
    ("refs", true),
    ("reftable", false),
    ("info", false),
    ("objects/info", true),
    ("objects/pack", false),
    ("modules", true),
];

/// Whose tree it is.
#[derive(Debug, Clone, Copy)]
pub enum Whose {
    /// That of a teammate.
    Teammates,
    /// The user's. Only what was made since this time, in seconds, can be a teammate's.
    Users {
        /// Since when it was made, in seconds.
        since: i64,
    },
}

/// A lock, by the directory that it lies in.
struct Lock {
    folder: PathBuf,
    name: Vec<u8>,
    inode: (u64, u64),
}

impl Lock {
    fn path(&self) -> PathBuf {
        self.folder.join(OsStr::from_bytes(&self.name))
    }
}

/// Removes the stale locks of the repository of a tree. Says so in the log, and if one stays.
pub fn remove_stale(tree: &Path, whose: Whose) {
    if let Err(error) = try_remove(tree, whose) {
        tracing::warn!(
            "whether a killed git has left locks in {} cannot be seen: {error}",
            tree.display()
        );
    }
}

fn try_remove(tree: &Path, whose: Whose) -> io::Result<()> {
    let Some((own, common)) = repository_of(tree) else {
        return Ok(());
    };
    let mut locks = Vec::new();
    locks_in(
        tree,
        false,
        &mut |name| name == b".gitmodules.lock",
        &mut locks,
    )?;
    for at in [&own, &common] {
        // The top of another's repository is written by no command.
        if at == &own {
            locks_in(at, false, &mut is_lock, &mut locks)?;
        }
        for (name, is_deep) in BELOW
            .iter()
            .filter(|(name, _)| *name != "modules" || own == common)
        {
            locks_in(&at.join(name), *is_deep, &mut is_lock, &mut locks)?;
        }
        if own == common {
            break;
        }
    }
    if let Whose::Users { since } = whose {
        locks.retain(|lock| itself(lock).is_ok_and(|(_, found)| found.st_mtime >= since));
    }
    let Some(first) = locks.first() else {
        return Ok(());
    };
    let first = first.path();
    if matches!(whose, Whose::Users { .. }) && !sees_all_processes() {
        tracing::warn!(
            "{} may be left of a git that was killed; in a container this cannot be seen: remove it if no git runs",
            first.display()
        );
        return Ok(());
    }
    if matches!(whose, Whose::Users { .. }) && locks.iter().any(|lock| is_shared(&lock.folder)) {
        tracing::warn!(
            "{} may be left of a git that was killed; another machine may hold it: remove it if no git runs there",
            first.display()
        );
        return Ok(());
    }
    let trees = trees_of(tree, &own, &common)?;
    if let Some(holder) = holder(&locks, &trees)? {
        tracing::warn!("{} stays: {holder} may hold it", first.display());
        return Ok(());
    }
    let mut removed = Vec::new();
    for lock in &locks {
        match itself(lock) {
            Ok((folder, found)) if (found.st_dev, found.st_ino) == lock.inode => {
                unlinkat(folder, lock.name.as_slice(), AtFlags::empty())?;
                removed.push(lock.path().display().to_string());
            }
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    if !removed.is_empty() {
        tracing::warn!(
            "removed what a git has left that was killed: {}",
            removed.join(", ")
        );
    }
    Ok(())
}

/// Returns the directory of a repository that is the tree's own, and that of the repository.
fn repository_of(tree: &Path) -> Option<(PathBuf, PathBuf)> {
    let git = tree.join(GIT);
    if git.symlink_metadata().ok()?.is_dir() {
        return Some((git.clone(), git));
    }
    if let Some(Elsewhere { own, common }) = Elsewhere::find(tree) {
        return Some((own, common));
    }
    let inside = named_by(tree).filter(|named| named.starts_with(tree))?;
    Some((inside.clone(), inside))
}

fn is_lock(name: &[u8]) -> bool {
    name.ends_with(b".lock")
}

/// Adds the locks of this user in a directory. No link is followed.
fn locks_in(
    folder: &Path,
    is_deep: bool,
    is_one: &mut dyn FnMut(&[u8]) -> bool,
    found: &mut Vec<Lock>,
) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let mut level = vec![folder.to_owned()];
    while let Some(at) = level.pop() {
        let open = match open_itself(&at, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => continue,
            other => other?,
        };
        for entry in Dir::read_from(&open)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let stat = match statat(&open, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                other => other?,
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile if is_one(name) && stat.st_uid == user => {
                    let inode = (stat.st_dev, stat.st_ino);
                    found.push(Lock {
                        folder: at.clone(),
                        name: name.to_vec(),
                        inode,
                    });
                }
                // Nothing in it is a lock, and there is much of it.
                FileType::Directory
                    if is_deep && !matches!(name, b"objects" | b"logs" | b"hooks") =>
                {
                    level.push(at.join(OsStr::from_bytes(name)));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Opens the directory of a lock, and looks at what has its name now.
fn itself(lock: &Lock) -> rustix::io::Result<(OwnedFd, Stat)> {
    let folder = open_itself(&lock.folder, OFlags::PATH | OFlags::DIRECTORY)?;
    let stat = statat(&folder, lock.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((folder, stat))
}

/// File systems that no other machine writes to, by the magic number that `statfs` gives:
/// `include/uapi/linux/magic.h` and statfs(2).
const LOCAL: [i128; 14] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683E, // Btrfs
    0x2FC1_2FC1, // ZFS
    0xF2F5_2010, // F2FS
    0xCA45_1A4E, // bcachefs
    0x0102_1994, // tmpfs
    0x8584_58F6, // ramfs
    0x794C_7630, // overlay
    0x3434,      // NILFS
    0x3153_464A, // JFS
    0x4D44,      // FAT
    0x2011_BAB0, // exFAT
    0x7366_746E, // NTFS
];

/// Tells whether another machine may write to the file system of a path. So it is with one that is
/// not known.
fn is_shared(path: &Path) -> bool {
    // The numbers have 32 bits, in a field whose type differs between architectures and may be
    // signed.
    !statfs(path).is_ok_and(|it| LOCAL.contains(&(i128::from(it.f_type) & 0xFFFF_FFFF)))
}

/// Tells whether each process of the machine can be seen: this is the first process namespace
/// (`pid_namespaces(7)`).
fn sees_all_processes() -> bool {
    const FIRST: &str = "pid:[4026531836]";
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|own| own == Path::new(FIRST))
}

/// Returns which directories a `git` works in that writes to the repository.
fn trees_of(tree: &Path, own: &Path, common: &Path) -> io::Result<Vec<(u64, u64)>> {
    let mut all = vec![tree.to_owned(), own.to_owned(), common.to_owned()];
    if common.file_name() == Some(OsStr::new(GIT)) {
        all.extend(common.parent().map(Path::to_owned));
    }
    let linked = match common.join("worktrees").read_dir() {
        Ok(linked) => linked.collect::<io::Result<Vec<_>>>()?,
        Err(_) => Vec::new(),
    };
    for entry in linked {
        let named = std::fs::read_to_string(entry.path().join("gitdir")).unwrap_or_default();
        all.extend(
            entry
                .path()
                .join(named.trim_end())
                .parent()
                .map(Path::to_owned),
        );
    }
    // One that is gone has no process in it.
    let stats = all.iter().filter_map(|path| stat(path).ok());
    Ok(stats.map(|stat| (stat.st_dev, stat.st_ino)).collect())
}

/// Finds a process that may hold one of the locks: one that has it open, or a `git` that works in
/// one of these directories, or below, or where this cannot be seen.
fn holder(locks: &[Lock], trees: &[(u64, u64)]) -> io::Result<Option<String>> {
    let this = std::process::id().to_string();
    for entry in Path::new("/proc").read_dir()? {
        let entry = entry?;
        let pid = entry.file_name();
        let is_process = pid.as_bytes().iter().all(u8::is_ascii_digit);
        if !is_process || pid == this.as_str() {
            continue;
        }
        let at = entry.path();
        // It is gone.
        let Ok(name) = std::fs::read_to_string(at.join("comm")) else {
            continue;
        };
        let is_git = name.starts_with("git");
        if has_open(&at, locks) || is_git && is_of_this_user(&at) && works_in(&at, trees) {
            return Ok(Some(format!(
                "the process {} ({})",
                pid.display(),
                name.trim_end()
            )));
        }
    }
    Ok(None)
}

/// Tells whether a process makes files of this user: what it makes is of another one else, and so
/// no lock that is looked at.
fn is_of_this_user(process: &Path) -> bool {
    let Ok(status) = std::fs::read_to_string(process.join("status")) else {
        return true;
    };
    let user = rustix::process::geteuid().as_raw().to_string();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.is_none_or(|ids| ids.split_whitespace().any(|id| id == user))
}

fn has_open(process: &Path, locks: &[Lock]) -> bool {
    let Ok(open) = process.join("fd").read_dir() else {
        return false;
    };
    let stats = open.flatten().filter_map(|entry| stat(entry.path()).ok());
    let inodes = stats
        .map(|stat| (stat.st_dev, stat.st_ino))
        .collect::<Vec<_>>();
    locks.iter().any(|lock| inodes.contains(&lock.inode))
}

/// Tells whether a process works in one of these directories, or below: it may see them at another
/// path. So it is if this cannot be seen, unless the process is gone or only waits to be reaped.
fn works_in(process: &Path, trees: &[(u64, u64)]) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder = match openat(CWD, process.join("cwd"), flags, Mode::empty()) {
        Ok(folder) => folder,
        Err(Errno::NOENT | Errno::SRCH) => return false,
        Err(_) => return true,
    };
    let mut last = None;
    loop {
        let Ok(stat) = fstat(&folder) else {
            return true;
        };
        let inode = (stat.st_dev, stat.st_ino);
        if trees.contains(&inode) {
            return true;
        }
        if last == Some(inode) {
            return false;
        }
        last = Some(inode);
        match openat(folder.as_fd(), "..", flags, Mode::empty()) {
            Ok(above) => folder = above,
            Err(_) => return false,
        }
    }
}

/// Returns since when a file is there, in seconds; none if its file system does not say so.
pub fn born(file: &File) -> Option<i64> {
    let created = file.metadata().ok()?.created().ok()?;
    let since = created.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test writes plain files")]
mod tests {
    use std::fs;
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn repository() -> (tempfile::TempDir, PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        for folder in [
            "refs/heads/a",
            "info",
            "objects/info",
            "objects/pack",
            "objects/ab",
            "modules/m/refs",
            "logs",
        ] {
            fs::create_dir_all(root.join(GIT).join(folder)).unwrap();
        }
        (scratch, root)
    }

    fn put(root: &Path, files: &[&str]) {
        for file in files.iter() {
            fs::write(root.join(file), "").unwrap();
        }
    }

    fn there(root: &Path, files: &[&str]) -> Vec<bool> {
        files.iter().map(|file| root.join(file).exists()).collect()
    }

    const LOCKS: [&str; 8] = [
        ".git/index.lock",
        ".git/HEAD.lock",
        ".git/config.lock",
        ".git/packed-refs.lock",
        ".git/refs/heads/a/b.lock",
        ".git/objects/info/commit-graph.lock",
        ".git/modules/m/index.lock",
        ".gitmodules.lock",
    ];

    #[test]
    fn what_a_killed_git_has_left_goes_and_nothing_else() {
        let (_scratch, root) = repository();
        let others = [
            ".git/index",
            "Cargo.lock",
            ".git/objects/ab/c.lock",
            ".git/logs/x.lock",
        ];
        put(&root, &LOCKS);
        put(&root, &others);
        std::os::unix::fs::symlink(root.join("Cargo.lock"), root.join(".git/link.lock")).unwrap();
        remove_stale(&root, Whose::Teammates);
        assert_eq!(there(&root, &LOCKS), [false; 8]);
        assert_eq!(there(&root, &others), [true; 4]);
        assert!(root.join(".git/link.lock").is_symlink());
    }

    /// Starts a program that is called `git`, and that waits. Returns once it has that name: the
    /// kernel lets the parent go on before it names the process (`begin_new_exec` in `fs/exec.c`).
    fn git_at(folder: &Path, at: &Path) -> Child {
        let program = folder.join("git");
        fs::copy("/bin/sleep", &program).unwrap();
        let child = Command::new(program)
            .arg("600")
            .current_dir(at)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let name = format!("/proc/{}/comm", child.id());
        while fs::read_to_string(&name).unwrap() != "git\n" {
            std::thread::yield_now();
        }
        child
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_lock_stays_that_a_living_git_may_hold() {
        let (_scratch, root) = repository();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::create_dir(root.join("sub")).unwrap();
        put(&root, &LOCKS);
        let git = git_at(elsewhere.path(), &root.join("sub"));
        remove_stale(&root, Whose::Teammates);
        assert_eq!(there(&root, &LOCKS), [true; 8]);
        end(git);
        let git = git_at(elsewhere.path(), elsewhere.path());
        remove_stale(&root, Whose::Teammates);
        assert_eq!(there(&root, &LOCKS), [false; 8], "it works elsewhere");
        end(git);
        // Whatever the program is called.
        put(&root, &LOCKS[..1]);
        let held = File::open(root.join(LOCKS[0])).unwrap();
        let holder = Command::new("sleep")
            .arg("600")
            .stdin(held)
            .current_dir("/")
            .spawn()
            .unwrap();
        remove_stale(&root, Whose::Teammates);
        assert_eq!(there(&root, &LOCKS[..1]), [true]);
        end(holder);
    }

    #[test]
    fn a_file_system_that_is_not_known_to_be_local_is_shared() {
        let (_scratch, root) = repository();
        assert!(!is_shared(&root));
        for network in [
            0x6969,
            0x517B,
            0xFF53_4D42,
            0xFE53_4D42,
            0x0102_1997,
            0x6573_5546,
            0x00C3_6400,
        ] {
            assert!(!LOCAL.contains(&network), "{network:#x}");
        }
        assert!(is_shared(Path::new("/proc")) && is_shared(&root.join("none")));
    }

    #[test]
    fn in_the_tree_of_the_user_only_what_is_younger_than_the_teammate_goes() {
        let (_scratch, root) = repository();
        put(&root, &LOCKS);
        let now = i64::try_from(
            std::time::SystemTime::UNIX_EPOCH
                .elapsed()
                .unwrap()
                .as_secs(),
        )
        .unwrap();
        remove_stale(&root, Whose::Users { since: now + 60 });
        assert_eq!(there(&root, &LOCKS), [true; 8]);
        remove_stale(&root, Whose::Users { since: now - 60 });
        assert_eq!(there(&root, &LOCKS), [!sees_all_processes(); 8]);
    }
}
