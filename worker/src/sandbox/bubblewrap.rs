//! The command line of `bwrap`, for machines where only it may make namespaces. It builds what `mounts` builds.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::{Errno, FdFlags};

use super::known::open_itself;
use super::mounts::IGNORE;
use super::policy::{Guard, Policy};

/// Returns `bwrap` with all it needs to start this binary in a sandbox; what that shall do is added behind.
///
/// # Errors
/// The system's error if this binary cannot be opened.
pub(super) fn command(policy: &Policy) -> io::Result<Command> {
    // By a descriptor: what stands at its path may be another one by now, or hidden.
    let own = File::open("/proc/self/exe")?;
    rustix::io::fcntl_setfd(&own, FdFlags::empty())?;
    let program = program().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "bwrap is gone"))?;
    let mut command = Command::new(program);
    // What is mounted is what the policy means, and not what a tool has put a link to since. What cannot be looked at may
    // be there all the same: then `bwrap` says so, and nothing runs.
    let is_itself =
        |path: &Path| !matches!(open_itself(path), Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP));
    let exists = |path: &Path| {
        let missing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
        path.symlink_metadata().err().is_none_or(|error| !missing.contains(&error.kind()))
    };
    command.args(arguments(policy, exists, is_itself, |path| {
        path.symlink_metadata().is_ok_and(|it| it.is_dir())
    }));
    command.arg("--").arg(format!("/proc/self/fd/{}", own.as_raw_fd()));
    // It stays open until this process ends, or closes what it inherits.
    let _inherited = own.into_raw_fd();
    Ok(command)
}

/// Pure: what is there, and what is a directory, is asked of the caller.
fn arguments(
    policy: &Policy,
    exists: impl Fn(&Path) -> bool,
    is_itself: impl Fn(&Path) -> bool,
    is_dir: impl Fn(&Path) -> bool,
) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |option: &str, paths: &[&Path]| {
        arguments.push(option.into());
        arguments.extend(paths.iter().map(|path| path.as_os_str().to_owned()));
    };
    let tmp = Path::new("/tmp");
    for option in ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--as-pid-1"] {
        add(option, &[]);
    }
    add("--cap-drop", &[Path::new("ALL")]);
    if !policy.network {
        add("--unshare-net", &[]);
    }
    add("--ro-bind", &[Path::new("/"), Path::new("/")]);
    add("--dev", &[Path::new("/dev")]);
    add("--proc", &[Path::new("/proc")]);
    if policy.private_tmp {
        add("--bind", &[&policy.temp, tmp]);
    }
    for path in policy.writable.iter().chain(&policy.pinned).filter(|path| is_itself(path)) {
        add("--bind", &[path, path]);
    }
    for path in policy.hidden.iter().filter(|path| exists(path)) {
        match is_dir(path) {
            true => {
                add("--tmpfs", &[path]);
                let ignore = path.join(IGNORE);
                if policy.is_in_the_way_of_git(path) && exists(&ignore) {
                    add("--ro-bind", &[&ignore, &ignore]);
                }
                add("--remount-ro", &[path]);
            }
            false => add("--ro-bind", &[Path::new("/dev/null"), path]),
        }
    }
    let protected = policy.protected.iter().filter(|it| it.guard != Guard::IfFile || !is_dir(&it.path));
    for path in protected.map(|it| &it.path).filter(|path| is_itself(path)) {
        add("--ro-bind", &[path, path]);
    }
    add("--chdir", &[&policy.workspace]);
    arguments
}

/// Where `bwrap` is looked for: nobody's `PATH` says what builds a sandbox.
const PROGRAMS: [&str; 3] = ["/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap"];

/// Returns where `bwrap` is, if it is installed and only root can have put it there.
pub(super) fn program() -> Option<PathBuf> {
    PROGRAMS.iter().map(PathBuf::from).find(|program| {
        program.metadata().is_ok_and(|found| found.is_file() && found.uid() == 0 && found.mode() & 0o022 == 0)
    })
}

#[cfg(test)]
mod tests {
    use super::super::policy::Protected;
    use super::*;
    use teamd_shared::sandbox::{Layers, Namespaces};

    #[test]
    fn what_is_protected_is_mounted_after_what_is_writable() {
        let policy = Policy {
            layers: Layers { namespaces: Namespaces::Bubblewrap, landlock: 0, seccomp: true },
            workspace: "/w".into(),
            temp: "/t".into(),
            private_tmp: true,
            writable: vec!["/w".into()],
            plain: Vec::new(),
            known: Vec::new(),
            protected: vec![
                Protected { path: "/w/hooks".into(), guard: Guard::IfThere },
                Protected { path: "/w/absent".into(), guard: Guard::IfThere },
                Protected { path: "/w/.git".into(), guard: Guard::IfFile },
                Protected { path: "/w/dir/.ssh".into(), guard: Guard::IfFile },
            ],
            notes: PathBuf::new(),
            pinned: Vec::new(),
            hidden: vec!["/home/u/.ssh".into(), "/home/u/.netrc".into()],
            sealed: Vec::new(),
            network: false,
        };
        let is_there = |path: &Path| !path.ends_with("absent");
        let arguments = arguments(&policy, is_there, is_there, |path| path.ends_with(".ssh"));
        let line: Vec<_> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
        let line = line.join(" ");
        assert!(
            line.ends_with(
                "--unshare-net --ro-bind / / --dev /dev --proc /proc --bind /t /tmp --bind /w /w --tmpfs /home/u/.ssh \
                 --remount-ro /home/u/.ssh --ro-bind /dev/null /home/u/.netrc --ro-bind /w/hooks /w/hooks \
                 --ro-bind /w/.git /w/.git --chdir /w"
            ),
            "{line}"
        );
    }
}
