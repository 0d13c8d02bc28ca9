//! The user that the programs of a team run as. A finding can hold for root alone, or for an
//! ordinary user alone, so a test of one tries both.

use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Team, cgroup::note, process::is_root};

/// The ordinary user where root runs the tests: a number without an account, without groups,
/// without rights.
const ORDINARY: u32 = 65_533;

/// The programs of a team.
const PROGRAMS: [&str; 3] = [
    env!("CARGO_BIN_EXE_teamd"),
    env!("CARGO_BIN_EXE_teamctl"),
    env!("CARGO_BIN_EXE_team-worker"),
];

/// The user of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// A user without rights: the one that runs the tests, unless that is root.
    Ordinary,
    /// Only where root runs the tests.
    Root,
}

impl User {
    /// The users that a team of a test can have here. Says which one it cannot have.
    pub(crate) fn at_hand() -> Vec<Self> {
        if is_root() {
            return vec![Self::Ordinary, Self::Root];
        }
        note("skipped as root: an ordinary user runs the tests");
        vec![Self::Ordinary]
    }

    /// The number of the user.
    pub(crate) fn uid(self) -> u32 {
        if self == Self::Ordinary && is_root() {
            ORDINARY
        } else {
            nix::unistd::geteuid().as_raw()
        }
    }

    /// Whether the tests run as another user.
    fn is_another(self) -> bool {
        self == Self::Ordinary && is_root()
    }
}

impl Team {
    /// A workspace of this user, without a team yet.
    pub(crate) fn of(user: User) -> Self {
        let mut team = Self::new();
        if user.is_another() {
            team.user = Some(user);
            let scratch = team.scratch.path().to_owned();
            for folder in [
                &scratch,
                &team.root,
                &scratch.join("home"),
                &scratch.join("tmp"),
            ] {
                team.give(folder);
            }
            team.programs = reachable_programs(&scratch);
        }
        team
    }

    /// Installs the programs in a folder of the workspace, and runs them from there.
    pub(crate) fn with_programs_in(mut self, folder: &str) -> Self {
        let folder = self.make_dir(folder);
        for program in PROGRAMS {
            // By another process: one that another test starts just then could inherit what is open
            // for writing here.
            let copied = Command::new("cp")
                .arg(program)
                .arg(&folder)
                .status()
                .unwrap();
            assert!(copied.success());
            self.give(&folder.join(Path::new(program).file_name().unwrap()));
        }
        self.programs = Some(folder);
        self
    }

    /// Whether another user than that of the test runs everything.
    pub(crate) fn is_of_another(&self) -> bool {
        self.user.is_some()
    }

    /// Makes a directory by its path from the workspace, and those above it that are missing.
    pub(crate) fn make_dir(&self, path: &str) -> PathBuf {
        let made = self.root().join(path);
        let missing: Vec<_> = made
            .ancestors()
            .take_while(|folder| !folder.exists())
            .collect();
        std::fs::create_dir_all(&made).unwrap();
        for folder in missing.iter() {
            self.give(folder);
        }
        made
    }

    /// Gives what the test has made to the user of the team.
    pub(crate) fn give(&self, path: &Path) {
        if let Some(user) = self.user {
            chown(path, Some(user.uid()), Some(user.uid())).unwrap();
        }
    }

    /// Lets a command run as the user of the team. The program is ours, or none of ours.
    pub(super) fn command_of_user(&self, program: &str) -> Command {
        let ours = if PROGRAMS.contains(&program) {
            self.programs.as_ref()
        } else {
            None
        };
        let moved = ours.map(|folder| folder.join(Path::new(program).file_name().unwrap()));
        let mut command = Command::new(moved.unwrap_or_else(|| program.into()));
        if let Some(user) = self.user {
            // The standard library drops the supplementary groups with the number.
            command.uid(user.uid()).gid(user.uid());
        }
        command
    }
}

/// Where another user runs the programs; none if it can where they were built.
fn reachable_programs(scratch: &Path) -> Option<PathBuf> {
    if is_open(Path::new(PROGRAMS[0])) {
        return None;
    }
    let folder = scratch.join("programs");
    std::fs::create_dir(&folder).unwrap();
    for program in PROGRAMS.map(Path::new) {
        link_or_copy(program, &folder.join(program.file_name().unwrap()));
    }
    Some(folder)
}

/// Whether every user can enter all directories above.
pub(crate) fn is_open(path: &Path) -> bool {
    path.ancestors()
        .skip(1)
        .all(|folder| folder.metadata().unwrap().mode() & 0o001 != 0)
}

/// Makes a second name of a file; a copy where the two places are not of one file system.
pub(crate) fn link_or_copy(from: &Path, to: &Path) {
    if std::fs::hard_link(from, to).is_err() {
        std::fs::copy(from, to).unwrap();
    }
}
