//! The cgroup (version 2) of this process, and the names of the cgroups that a team makes in it.
//!
//! The daemon makes and kills cgroups, and a worker enters its own; nothing here does that. The
//! layout, below the cgroup in which the daemon is:
//!
//! ```text
//! teamd-DEVICE-INODE-BIRTH/        one for each team directory
//!     alice.1/, bob.3/ …           one for each incarnation: worker, shims, commands
//!     check-4f0c2a91/ …            one for each check that runs
//!     daemon/                      the daemon itself, where it had to make way for a limit
//! ```

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, getxattr};

use crate::id::RequestId;
use crate::name::Name;
use crate::process::is_gone;
use crate::team_dir::TeamDir;

/// The daemon's own cgroup in that of its team. No incarnation has this name.
pub const DAEMON: &str = "daemon";

/// Whether each incarnation gets a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Use {
    /// Wherever the machine lets the daemon make cgroups.
    #[default]
    Auto,
    /// Never.
    Off,
}

impl Use {
    /// Returns the setting as it is written.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// What this process may do with a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupRights {
    /// Make cgroups in it, and pass its controllers on to them.
    Delegated,
    /// Make cgroups in it: the files are this user's. The manager of the cgroup has not delegated
    /// its controllers.
    Writable,
    /// Nothing: it belongs to another manager, even if root could write there.
    Foreign,
}

impl CgroupRights {
    /// Judges by four facts: whether its files can be `written`, whether its manager has `marked`
    /// it as delegated, whether it is the `top` of what can be seen (of a container, or of a
    /// machine without a service manager), and whether `root` asks, who can write everywhere.
    pub fn judge(written: bool, marked: bool, top: bool, root: bool) -> Self {
        match (written, marked || top, root) {
            (false, ..) => Self::Foreign,
            (true, true, _) => Self::Delegated,
            (true, false, true) => Self::Foreign,
            (true, false, false) => Self::Writable,
        }
    }
}

/// The cgroup in which incarnations get their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupPlace {
    /// Its path as the kernel names it (`/proc/PID/cgroup`).
    pub path: String,
    /// Its directory, absolute.
    pub folder: PathBuf,
    /// What may be done there.
    pub standing: CgroupRights,
    /// The controllers that could be passed on, separated by spaces.
    pub controllers: String,
}

/// Why there is no [`CgroupPlace`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// Cgroups cannot be read here.
    #[error("no cgroup can be seen")]
    Unseen,
    /// Only the old hierarchies are there, or the new one is not mounted where this process could
    /// reach its own.
    #[error("version 2 is not mounted here")]
    NotMounted,
}

impl CgroupPlace {
    /// Finds the cgroup of this process. For a daemon that moved into the cgroup of its `team`,
    /// that is the one above.
    ///
    /// # Errors
    /// [`NoPlace`].
    pub fn look(team: Option<&str>) -> Result<Self, NoPlace> {
        let own = std::fs::read_to_string("/proc/self/cgroup").map_err(|_| NoPlace::Unseen)?;
        let mounts =
            std::fs::read_to_string("/proc/self/mountinfo").map_err(|_| NoPlace::Unseen)?;
        let path = path_in(&own).ok_or(NoPlace::NotMounted)?;
        let path = team.map_or(path, |team| above_daemon(path, team));
        let folder = folders_of(&mounts, path).find(|folder| folder.join("cgroup.procs").exists());
        let folder = folder.ok_or(NoPlace::NotMounted)?;
        let written = [folder.clone(), folder.join("cgroup.procs")];
        let written = written
            .iter()
            .all(|path| access(path, Access::WRITE_OK).is_ok());
        let root = rustix::process::geteuid().is_root();
        let standing = CgroupRights::judge(written, is_marked(&folder), path == "/", root);
        let controllers =
            std::fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
        Ok(Self {
            path: path.to_owned(),
            folder,
            standing,
            controllers: controllers.trim().to_owned(),
        })
    }

    /// Tells whether a service manager starts programs in this very cgroup: a service, or what it
    /// names below one (`DelegateSubgroup=`). It could not start the daemon again there, while
    /// workers live below, once a controller is passed on (the rule of no internal processes:
    /// `EBUSY`).
    pub fn is_a_service(&self) -> bool {
        let mut up = self.path.rsplit('/');
        let own = up.next().unwrap_or_default();
        let above = up.next().unwrap_or_default();
        // Below the service that is the user's own manager, it starts scopes too.
        let is_manager = above.starts_with("user@");
        own.ends_with(".service") || above.ends_with(".service") && !is_manager
    }
}

/// Returns the path of a process in the hierarchy of version 2, from its `/proc/PID/cgroup`.
pub fn path_in(cgroup: &str) -> Option<&str> {
    cgroup
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .filter(|path| path.starts_with('/'))
}

/// Returns the path above the cgroup of the team, for a process in the daemon's own cgroup there;
/// else the same path.
fn above_daemon<'p>(path: &'p str, team: &str) -> &'p str {
    let above = path
        .strip_suffix(DAEMON)
        .and_then(|path| path.strip_suffix('/'));
    let above = above
        .and_then(|path| path.strip_suffix(team))
        .and_then(|path| path.strip_suffix('/'));
    above.map_or(path, |above| if above.is_empty() { "/" } else { above })
}

/// Returns the directories at which a path of the hierarchy lies, by `/proc/PID/mountinfo`
/// (`proc_pid_mountinfo(5)`).
fn folders_of(mounts: &str, path: &str) -> impl Iterator<Item = PathBuf> {
    mounts.lines().filter_map(move |line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ');
        let root = fields.nth(3)?;
        let at = fields.next()?;
        // A mount point with a blank, which is escaped there, is not supported.
        let plain = system.starts_with("cgroup2 ") && !at.contains('\\');
        if !plain {
            return None;
        }
        let inside = Path::new(path).strip_prefix(root).ok()?;
        // What is mounted from above a cgroup namespace begins with `..`, and so does what lies
        // outside of it.
        let up = inside
            .components()
            .any(|part| part == std::path::Component::ParentDir);
        (!up).then(|| {
            if inside.as_os_str().is_empty() {
                PathBuf::from(at)
            } else {
                Path::new(at).join(inside)
            }
        })
    })
}

/// Tells whether a service manager has marked a cgroup as delegated.
fn is_marked(folder: &Path) -> bool {
    // What only root may set counts as well as what the user's own manager has set.
    ["trusted.delegate", "user.delegate"].iter().any(|name| {
        let mut value = [0_u8; 8];
        getxattr(folder, *name, &mut value[..]).is_ok_and(|length| value[..length] == *b"1")
    })
}

/// Returns the name of the cgroup of a team: the identity of its directory. A copy of the directory
/// has another one, and so has a directory that gets the same inode later.
///
/// # Errors
/// The system's error if the directory cannot be looked at.
pub fn of_team(dir: &TeamDir) -> io::Result<String> {
    Ok(format!("teamd-{}", dir.id()?))
}

/// Returns the name of the cgroup of an incarnation in that of its team.
pub fn of_incarnation(name: &Name, incarnation: u32) -> String {
    format!("{name}.{incarnation}")
}

/// What the name of the cgroup of a check begins with. It has no dot, and that of an incarnation
/// has one.
const CHECK: &str = "check-";

/// Returns the name of the cgroup of a check in that of its team. No other check has ever had this
/// id.
pub fn of_check(id: &RequestId) -> String {
    format!("{CHECK}{id}")
}

/// Tells whether a cgroup in that of a team is named as one of a check.
pub fn is_of_check(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(CHECK) && !name.contains('.'))
}

/// Tells whether processes live in a cgroup, or in one below it: `populated` of its
/// `cgroup.events`.
///
/// # Errors
/// The system's error; `NotFound` if there is no such cgroup (or no longer).
pub fn is_populated(folder: &Path) -> io::Result<bool> {
    let mut events = String::new();
    std::fs::File::open(folder.join("cgroup.events"))?.read_to_string(&mut events)?;
    populated(&events)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "cgroup.events cannot be read"))
}

/// Lists the cgroups in a cgroup; none where it cannot be read.
pub fn below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let folders = entries
        .filter_map(Result::ok)
        .filter(|it| it.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// Lists a cgroup with all those below it, the deepest last.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(folder) = folders.get(next) {
        let below = below(folder);
        folders.extend(below);
        next += 1;
    }
    folders
}

/// Removes a cgroup with those below it, as far as they are empty; one that does not exist is no
/// error.
///
/// # Errors
/// The first error of the system: `EBUSY` for one that holds a process, which stays.
pub fn remove(folder: &Path) -> io::Result<()> {
    let mut removed = Ok(());
    for folder in tree(folder).iter().rev() {
        match std::fs::remove_dir(folder) {
            Err(error) if !is_gone(&error) => removed = removed.and(Err(error)),
            _ => {}
        }
    }
    removed
}

/// Reads `populated` from the text of `cgroup.events`.
pub fn populated(events: &str) -> Option<bool> {
    match events
        .lines()
        .find_map(|line| line.strip_prefix("populated "))?
    {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn whatever_the_kernel_lists_is_a_place_or_none(lines in "([0-9a-z /.:,\\\\-]{0,60}\n?){0,8}", path in "/?[a-z./]{0,20}") {
            proptest::prop_assert!(path_in(&lines).is_none_or(|path| path.starts_with('/')));
            proptest::prop_assert!(populated(&lines).is_none() || lines.contains("populated"));
            for folder in folders_of(&lines, &path) {
                proptest::prop_assert!(!folder.components().any(|part| part == std::path::Component::ParentDir));
            }
            proptest::prop_assert!(path.starts_with(above_daemon(&path, "t")) || path.is_empty());
        }
    }

    #[test]
    fn the_path_is_that_of_version_2() {
        assert_eq!(
            path_in("9:memory:/a\n0::/user.slice/x.scope\n"),
            Some("/user.slice/x.scope")
        );
        assert_eq!(path_in("0::/\n"), Some("/"));
        assert_eq!(path_in("9:memory:/a\n"), None);
        assert_eq!(path_in(""), None);
    }

    fn folders(mounts: &str, path: &str) -> Vec<PathBuf> {
        folders_of(mounts, path).collect()
    }

    #[test]
    fn the_directory_is_found_where_the_hierarchy_is_mounted() {
        let unified =
            "38 31 0:29 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(
            folders(unified, "/a/b.scope"),
            [Path::new("/sys/fs/cgroup/a/b.scope")]
        );
        assert_eq!(folders(unified, "/"), [Path::new("/sys/fs/cgroup")]);
        assert_eq!(
            folders(unified, "/../x"),
            [] as [&Path; 0],
            "outside of the namespace"
        );
        let hybrid = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n38 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
        assert_eq!(folders(hybrid, "/"), [Path::new("/sys/fs/cgroup/unified")]);
        let part = "38 31 0:29 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup rw";
        assert_eq!(
            folders(part, "/docker/1/x"),
            [Path::new("/sys/fs/cgroup/x")]
        );
        assert_eq!(folders(part, "/docker/12"), [] as [&Path; 0]);
        let above = "38 31 0:29 /.. /sys/fs/cgroup ro - cgroup2 cgroup rw";
        assert_eq!(folders(above, "/x"), [] as [&Path; 0]);
    }

    #[test]
    fn a_cgroup_is_used_only_where_it_is_this_users_own() {
        use CgroupRights::{Delegated, Foreign, Writable};
        let judge = CgroupRights::judge;
        assert_eq!(judge(true, true, false, false), Delegated);
        assert_eq!(
            judge(true, false, false, false),
            Writable,
            "a scope of the user's own manager"
        );
        assert_eq!(
            judge(true, false, false, true),
            Foreign,
            "root can write everywhere"
        );
        assert_eq!(
            (
                judge(true, true, false, true),
                judge(true, false, true, true)
            ),
            (Delegated, Delegated)
        );
        for (marked, top, root) in [
            (true, true, true),
            (true, false, false),
            (false, true, true),
        ] {
            assert_eq!(judge(false, marked, top, root), Foreign);
        }
    }

    #[test]
    fn a_daemon_that_made_way_stands_where_its_team_lies() {
        assert_eq!(
            above_daemon("/a/b.scope/teamd-1/daemon", "teamd-1"),
            "/a/b.scope"
        );
        assert_eq!(above_daemon("/teamd-1/daemon", "teamd-1"), "/");
        for path in [
            "/a/teamd-2/daemon",
            "/a/xteamd-1/daemon",
            "/teamd-1/daemons",
            "/daemon",
        ] {
            assert_eq!(above_daemon(path, "teamd-1"), path);
        }
    }

    #[test]
    fn a_service_is_known_by_its_name() {
        let place = |path: &str| CgroupPlace {
            path: path.to_owned(),
            folder: PathBuf::new(),
            standing: CgroupRights::Delegated,
            controllers: String::new(),
        };
        assert!(place("/user.slice/user@1.service/app.slice/teamd.service").is_a_service());
        assert!(
            place("/system.slice/teamd.service/main").is_a_service(),
            "DelegateSubgroup=main"
        );
        assert!(!place("/user.slice/user@1.service/app.slice/run-1.scope").is_a_service());
        assert!(!place("/user.slice/user@1.service/run-1.scope").is_a_service());
        assert!(!place("/").is_a_service());
    }

    #[test]
    fn a_copied_team_directory_has_another_cgroup_and_a_moved_one_the_same() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let of = |name: &str| of_team(&TeamDir::create(&path(name)).unwrap()).unwrap();
        let one = of("one");
        let other = of("other");
        assert_ne!(one, other);
        std::fs::rename(path("one"), path("moved")).unwrap();
        assert_eq!(of("moved"), one);
        assert!(one.len() < 100 && !one.contains('/'), "{one}");
    }

    #[test]
    fn what_cgroup_events_says_is_read() {
        assert_eq!(populated("populated 1\nfrozen 0\n"), Some(true));
        assert_eq!(populated("frozen 0\npopulated 0\n"), Some(false));
        assert_eq!(populated("frozen 0\n"), None);
    }
}
