//! The mounts of a command, made by `bwrap` where only it may make namespaces.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::FdFlags;

use super::mounts::IGNORE;
use super::place::{find_itself, find_link, is_dir};
use super::plan::{MountAccess, MountPlan};
use super::policy::Policy;

/// Where `bwrap` is looked for: no `PATH` says what builds a sandbox.
const PROGRAMS: [&str; 3] = ["/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap"];

/// Returns `bwrap` with all that it needs to start this program in a sandbox; the arguments of the
/// program are added behind.
///
/// # Errors
/// The system's error if this program cannot be opened, or `bwrap` is gone.
pub(super) fn command(policy: &Policy, workspace: &Path) -> io::Result<Command> {
    let program =
        program().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "bwrap is gone"))?;
    // By a descriptor: at its path there may be another program by now, or nothing.
    let own = File::open("/proc/self/exe")?;
    rustix::io::fcntl_setfd(&own, FdFlags::empty())?;
    let mut command = Command::new(program);
    command.args(arguments(policy, workspace)?);
    command
        .arg("--")
        .arg(format!("/proc/self/fd/{}", own.as_raw_fd()));
    // It stays open until this process ends, or closes what it inherits.
    let _inherited = own.into_raw_fd();
    Ok(command)
}

/// Returns `bwrap`, if it is installed and only root can have put it there.
pub(super) fn program() -> Option<PathBuf> {
    PROGRAMS.iter().map(PathBuf::from).find(|program| {
        program.metadata().is_ok_and(|metadata| {
            metadata.is_file() && metadata.uid() == 0 && metadata.mode() & 0o022 == 0
        })
    })
}

fn arguments(policy: &Policy, workspace: &Path) -> io::Result<Vec<OsString>> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |option: &str, paths: &[&Path]| {
        arguments.push(option.into());
        arguments.extend(paths.iter().map(|path| path.as_os_str().to_owned()));
    };
    for option in [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--die-with-parent",
        "--as-pid-1",
    ] {
        add(option, &[]);
    }
    add("--cap-drop", &["ALL".as_ref()]);
    if !policy.network {
        add("--unshare-net", &[]);
    }
    add("--ro-bind", &["/".as_ref(), "/".as_ref()]);
    add("--dev", &["/dev".as_ref()]);
    add("--proc", &["/proc".as_ref()]);
    // What can be written there of a process is its memory.
    add("--remount-ro", &["/proc".as_ref()]);
    let plan = MountPlan::of(policy);
    let mut covers = Vec::new();
    for (path, access) in plan.mounts() {
        let source = access.source(path);
        let Some((_, stat)) = find_itself(source)? else {
            if plan.is_covered(path)
                && let Some(link) = find_link(path)?
            {
                let target = OsStr::from_bytes(link.as_bytes());
                add("--symlink", &[target.as_ref(), path]);
            }
            continue;
        };
        match access {
            MountAccess::Write { .. } => add("--bind", &[source, path]),
            MountAccess::Read => add("--ro-bind", &[path, path]),
            MountAccess::Nothing { .. } if !is_dir(&stat) => {
                add("--ro-bind", &["/dev/null".as_ref(), path])
            }
            MountAccess::Nothing { for_git } => {
                add("--tmpfs", &[path]);
                let ignore = path.join(IGNORE);
                if *for_git && ignore.exists() {
                    add("--ro-bind", &[&ignore, &ignore]);
                }
                covers.push(path);
            }
        }
    }
    // What is shown below them has its mount point by now.
    for path in covers {
        add("--remount-ro", &[path]);
    }
    add("--chdir", &[workspace]);
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use crate::policy::tests::plain_policy;
    use crate::policy::{Hidden, Writable};
    use crate::protected::{Missing, Protected};

    #[test]
    fn what_is_there_is_mounted_from_the_top_down() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        for folder in ["t", "w/.git/hooks", "w/.team"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in [".netrc", "w/.team/.gitignore"] {
            File::create(root.join(file)).unwrap();
        }
        std::os::unix::fs::symlink("hooks", root.join("w/.git/link")).unwrap();
        let at = |path: PathBuf, at: PathBuf| Writable {
            place: Place::of_this_call(path),
            at,
            plain: false,
        };
        let policy = Policy {
            network: false,
            temp: at(root.join("t"), root.join("other")),
            writable: vec![at(root.join("w"), root.join("w"))],
            protected: ["w/.git/hooks", "w/.git/config", "w/.git/link"]
                .map(|path| Protected {
                    path: root.join(path),
                    if_missing: Missing::Leave,
                })
                .into(),
            hidden: ["w/.team", ".netrc", ".ssh"]
                .map(|path| Hidden {
                    path: root.join(path),
                    is_of_team: path.ends_with(".team"),
                })
                .into(),
            ..plain_policy()
        };
        let arguments = arguments(&policy, &root.join("w")).unwrap();
        let line: Vec<_> = arguments
            .iter()
            .filter_map(|argument| argument.to_str())
            .collect();
        let line = line.join(" ").replace(root.to_str().unwrap(), "~");
        let (_, mounts) = line.split_once("--unshare-net ").unwrap();
        let (fixed, mounts) = mounts
            .split_once("--proc /proc --remount-ro /proc ")
            .unwrap();
        assert_eq!(fixed, "--ro-bind / / --dev /dev ");
        assert_eq!(
            mounts,
            "--ro-bind /dev/null ~/.netrc --bind ~/t ~/other --bind ~/w ~/w --bind ~/w/.git ~/w/.git --ro-bind ~/w/.git/hooks ~/w/.git/hooks \
             --tmpfs ~/w/.team --ro-bind ~/w/.team/.gitignore ~/w/.team/.gitignore --remount-ro ~/w/.team --chdir ~/w"
        );
    }
}
