//! The mounts of a command, from its policy: what each is, from the top down. Two back ends make
//! them, [`super::mounts`] and [`super::bubblewrap`]; [`MountPlan::check`] looks from inside
//! whether they are in place.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, OFlags, StatVfsMountFlags, StatxAttributes, StatxFlags, fstatvfs, statx,
};
use teamd_shared::place::open_itself;

use super::place::is_absent;
use super::policy::Policy;

/// What a command may do from a path downwards, as far as the next path of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MountAccess {
    /// Write what lies at this path of the machine.
    Write { source: PathBuf },
    /// Read.
    Read,
    /// Nothing: it looks empty. `for_git`: it lies where `git clean` would remove an empty
    /// directory.
    Nothing { for_git: bool },
}

impl MountAccess {
    /// Returns the path of the machine that is mounted at a path.
    pub(super) fn source<'a>(&'a self, path: &'a Path) -> &'a Path {
        match self {
            Self::Write { source } => source,
            Self::Read | Self::Nothing { .. } => path,
        }
    }
}

/// The mounts of a command. All else is mounted read-only.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MountPlan(BTreeMap<PathBuf, MountAccess>);

impl MountPlan {
    /// Makes the plan of a policy.
    pub(super) fn of(policy: &Policy) -> Self {
        let mut paths = BTreeMap::new();
        for writable in policy.all_writable() {
            paths.insert(
                writable.at.clone(),
                MountAccess::Write {
                    source: writable.place.path.clone(),
                },
            );
        }
        paths.extend(
            policy
                .protected
                .iter()
                .map(|it| (it.path.clone(), MountAccess::Read)),
        );
        for hidden in &policy.hidden {
            let for_git = hidden.is_of_team && policy.is_writable(&hidden.path);
            paths.insert(hidden.path.clone(), MountAccess::Nothing { for_git });
        }
        for shown in &policy.shown {
            paths.entry(shown.clone()).or_insert(MountAccess::Read);
        }
        let all = Self(paths);
        let valid = all.0.iter().filter(|(path, access)| {
            let is_shown = policy.shown.iter().any(|shown| path.starts_with(shown));
            !all.is_overruled(path, access, is_shown)
        });
        let mut plan = Self(
            valid
                .map(|(path, access)| (path.clone(), access.clone()))
                .collect(),
        );
        plan.pin();
        plan
    }

    /// Tells whether a path lies below one that allows less. What is shown is seen below what is
    /// hidden, but not written below what is read.
    fn is_overruled(&self, path: &Path, access: &MountAccess, is_shown: bool) -> bool {
        let above = path.ancestors().skip(1);
        above
            .filter_map(|above| self.0.get(above))
            .any(|above| match above {
                MountAccess::Nothing { .. } => !is_shown,
                MountAccess::Read => matches!(access, MountAccess::Write { .. }),
                MountAccess::Write { .. } => false,
            })
    }

    /// Adds each directory between something writable and something below it that is not: if one of
    /// them could be renamed, another could take its name, and what lies below it would be
    /// replaced.
    fn pin(&mut self) {
        let mut pinned = Vec::new();
        for path in self.0.keys().filter(|path| !self.is_write(path)) {
            let above = path.ancestors().filter(|above| self.is_write(above));
            let Some(top) = above.last() else {
                continue;
            };
            let between = path.ancestors().skip(1).take_while(|above| *above != top);
            pinned.extend(
                between
                    .filter(|above| !self.0.contains_key(*above))
                    .map(Path::to_owned),
            );
        }
        for path in pinned {
            let access = MountAccess::Write {
                source: path.clone(),
            };
            // What lies between in something read-only stays so.
            if self.is_writable(&path) {
                self.0.insert(path, access);
            }
        }
    }

    /// Tells whether something writable is mounted at a path itself.
    fn is_write(&self, path: &Path) -> bool {
        matches!(self.0.get(path), Some(MountAccess::Write { .. }))
    }

    /// Returns the mounts in the order in which they are made.
    pub(super) fn mounts(&self) -> impl Iterator<Item = (&Path, &MountAccess)> {
        self.0.iter().map(|(path, access)| (path.as_path(), access))
    }

    /// Tells whether what a path lies in is covered: it must be opened before that is.
    pub(super) fn is_covered(&self, path: &Path) -> bool {
        let above = path.ancestors().skip(1).find_map(|above| self.0.get(above));
        matches!(above, Some(MountAccess::Nothing { .. }))
    }

    /// Tells whether something is mounted below a path.
    pub(super) fn has_below(&self, path: &Path) -> bool {
        let behind = self
            .0
            .range::<Path, _>((Bound::Excluded(path), Bound::Unbounded));
        behind
            .map(|(next, _)| next)
            .next()
            .is_some_and(|next| next.starts_with(path))
    }

    /// Tells whether what lies at a path may be written.
    pub(super) fn is_writable(&self, path: &Path) -> bool {
        let nearest = path.ancestors().find_map(|above| self.0.get(above));
        matches!(nearest, Some(MountAccess::Write { .. }))
    }

    /// Tells whether what is mounted at a path belongs to the gate of a policy: it may be written,
    /// and not always.
    pub(super) fn is_gated(&self, policy: &Policy, path: &Path) -> bool {
        let nearest = path.ancestors().find(|above| self.0.contains_key(*above));
        self.is_writable(path) && nearest.is_some_and(|nearest| !policy.is_always_writable(nearest))
    }

    /// Checks from inside that each mount is where it should be: other commands work in the same
    /// directories while the mounts are made, and can close, open, move and remove what is in them.
    ///
    /// # Errors
    /// A text for the model.
    pub(super) fn check(&self) -> Result<(), String> {
        self.mounts().try_for_each(|(path, access)| {
            check_one(path, access).map_err(|why| {
                let path = path.display();
                format!("not run: {path} cannot be kept as it is: {why}; try again, or look at its directory")
            })
        })
    }
}

fn check_one(path: &Path, access: &MountAccess) -> Result<(), String> {
    let mounted = match open_itself(path, OFlags::PATH) {
        Err(errno) if is_absent(errno) => return Ok(()),
        opened => opened.map_err(|errno| errno.to_string())?,
    };
    let stat = statx(&mounted, "", AtFlags::EMPTY_PATH, StatxFlags::empty())
        .map_err(|errno| errno.to_string())?;
    // A kernel that does not say so (before Linux 5.8) is trusted to have mounted it.
    if stat
        .stx_attributes_mask
        .contains(StatxAttributes::MOUNT_ROOT)
        && !stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    {
        return Err("it could be moved away".to_owned());
    }
    if !matches!(access, MountAccess::Write { .. }) {
        let flags = fstatvfs(&mounted)
            .map_err(|errno| errno.to_string())?
            .f_flag;
        if !flags.contains(StatVfsMountFlags::RDONLY) {
            return Err("something else has taken its place".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::{place, plain_policy};
    use crate::policy::{Hidden, Writable};
    use crate::protected::{Missing, Protected};

    fn policy(writable: &[&str], protected: &[&str], hidden: &[&str]) -> Policy {
        let temp = Writable {
            place: place("/var/tmp/t"),
            at: "/tmp".into(),
            plain: false,
        };
        Policy {
            temp,
            writable: writable
                .iter()
                .map(|path| Writable {
                    place: place(path),
                    at: path.into(),
                    plain: false,
                })
                .collect(),
            protected: protected
                .iter()
                .map(|path| Protected {
                    path: path.into(),
                    if_missing: Missing::Leave,
                })
                .collect(),
            hidden: hidden
                .iter()
                .map(|path| Hidden {
                    path: path.into(),
                    is_of_team: path.ends_with(".team"),
                })
                .collect(),
            ..plain_policy()
        }
    }

    fn planned(plan: &MountPlan) -> Vec<String> {
        plan.mounts()
            .map(|(path, access)| {
                let what = match access {
                    MountAccess::Write { source } if source == path => "writes",
                    MountAccess::Write { .. } => "writes elsewhere",
                    MountAccess::Read => "reads",
                    MountAccess::Nothing { for_git: true } => "nothing for git",
                    MountAccess::Nothing { for_git: false } => "nothing",
                };
                format!("{} {what}", path.display())
            })
            .collect()
    }

    #[test]
    fn what_lies_between_the_writable_and_what_is_not_stays_where_it_is() {
        let plan = MountPlan::of(&policy(
            &["/home/u", "/home/u/cache/deep"],
            &["/home/u/.git/hooks", "/home/u/cache/deep/.git/config"],
            &["/home/u/.config/gh", "/home/u/a/b/.team", "/etc/shadow"],
        ));
        let expected = [
            "/etc/shadow nothing",
            "/home/u writes",
            "/home/u/.config writes",
            "/home/u/.config/gh nothing",
            "/home/u/.git writes",
            "/home/u/.git/hooks reads",
            "/home/u/a writes",
            "/home/u/a/b writes",
            "/home/u/a/b/.team nothing for git",
            "/home/u/cache writes",
            "/home/u/cache/deep writes",
            "/home/u/cache/deep/.git writes",
            "/home/u/cache/deep/.git/config reads",
            "/tmp writes elsewhere",
        ];
        assert_eq!(planned(&plan), expected);
        for (path, writable) in [
            ("/home/u/x", true),
            ("/home/u/.git/hooks/pre-commit", false),
            ("/home/u/a/b/.team/inbox", false),
            ("/tmp/x", true),
            ("/home", false),
        ] {
            assert_eq!(plan.is_writable(Path::new(path)), writable, "{path}");
        }
    }

    #[test]
    fn what_lies_below_something_that_allows_less_is_allowed_no_more() {
        let plan = MountPlan::of(&policy(
            &["/w", "/w/hidden/cache", "/w/read/cache"],
            &["/w/hidden/.git/hooks", "/w/hidden", "/w/read"],
            &["/w/hidden", "/w/read/key"],
        ));
        assert_eq!(
            planned(&plan)[1..],
            [
                "/w writes",
                "/w/hidden nothing",
                "/w/read reads",
                "/w/read/key nothing"
            ]
        );
    }

    #[test]
    fn what_is_no_mount_can_be_moved_and_what_can_be_written_is_found() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let write = MountAccess::Write {
            source: root.clone(),
        };
        assert_eq!(
            check_one(&root, &write),
            Err("it could be moved away".to_owned())
        );
        assert_eq!(check_one(&root.join("missing"), &MountAccess::Read), Ok(()));
        assert_eq!(check_one(Path::new("/proc"), &write), Ok(()));
        // A mount that can be written is none of ours.
        if !rustix::fs::statvfs("/dev/shm")
            .unwrap()
            .f_flag
            .contains(StatVfsMountFlags::RDONLY)
        {
            assert!(
                check_one(Path::new("/dev/shm"), &MountAccess::Read)
                    .unwrap_err()
                    .contains("something else")
            );
        }
    }
}
