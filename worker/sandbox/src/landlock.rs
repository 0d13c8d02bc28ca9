//! What Landlock lets a command do with files, and with processes outside its sandbox.
//!
//! Above namespaces it says again what the mounts say. Alone it must say all of it: it only allows,
//! so what is hidden is left out where it lies, and what is protected must not lie in what is
//! writable.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, BitFlags, LandlockStatus, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use super::place::{is_dir, open_itself};
use super::policy::{Policy, Writable};

/// The newest interface that is known here; an older kernel enforces what it knows of it.
const NEWEST: ABI = ABI::V7;

/// The devices that may be written, where `/dev` is the machine's: those that hold nothing of it.
const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/tty",
    "/dev/random",
    "/dev/urandom",
];

/// The devices of the machine, those above apart: a program that reads a terminal takes what its
/// user types, and all programs share `/dev/shm`.
const OTHER_DEVICES: &str = "/dev";

/// Restricts this process and all that it starts.
///
/// # Errors
/// Why it cannot. Fits behind "error: ".
pub(super) fn restrict(policy: &Policy) -> Result<(), String> {
    let status = try_restrict(policy).map_err(|error| error.to_string())?;
    if status == RulesetStatus::NotEnforced {
        Err("the kernel does not enforce it".to_owned())
    } else {
        Ok(())
    }
}

fn try_restrict(policy: &Policy) -> Result<RulesetStatus, RulesetError> {
    let all = AccessFs::from_all(NEWEST);
    let read = AccessFs::ReadFile | AccessFs::Execute;
    let list: BitFlags<AccessFs> = AccessFs::ReadDir.into();
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let (readable, listed, devices) = if policy.has_mounts() {
        (
            vec![PathBuf::from("/")],
            vec![PathBuf::from("/")],
            vec!["/dev"],
        )
    } else {
        let readable = all_but(hidden_paths(policy, false), &policy.shown);
        (
            readable,
            all_but(hidden_paths(policy, true), &policy.shown),
            DEVICES.to_vec(),
        )
    };
    // There is no such right on a file, and a rule without a right is none.
    let listed = listed.into_iter().filter(|path| path.is_dir());
    // Without namespaces it is the machine's.
    let shared = policy.has_mounts().then_some("/dev/shm");
    let not_plain = AccessFs::MakeSym
        | AccessFs::MakeFifo
        | AccessFs::MakeSock
        | AccessFs::MakeChar
        | AccessFs::MakeBlock;
    let opened = policy
        .all_writable()
        .filter_map(|it| Some((it, open_writable(it)?)));
    let writable = opened.map(|(writable, (fd, is_dir))| {
        let access = match is_dir {
            true if writable.plain => all & !not_plain,
            true => all,
            false => AccessFs::from_file(NEWEST),
        };
        Ok::<_, RulesetError>(PathBeneath::new(fd, access))
    });
    let created = Ruleset::default()
        .handle_access(all)?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let ruled = created
        .add_rules(path_beneath_rules(listed, list))?
        .add_rules(path_beneath_rules(readable, read))?
        .add_rules(path_beneath_rules(devices, device))?
        .add_rules(path_beneath_rules(shared, all))?
        .add_rules(writable)?;
    Ok(ruled.restrict_self()?.ruleset)
}

/// Opens what may be written, and tells whether it is a directory; none where it is not there, or
/// where a tool has put a link or another directory since the path was found.
fn open_writable(writable: &Writable) -> Option<(OwnedFd, bool)> {
    let (fd, stat) = open_itself(&writable.at).ok()?;
    writable.place.can_be(&stat).then(|| (fd, is_dir(&stat)))
}

/// Returns the version of the kernel's interface, at most the newest that is known here; 0 if there
/// is none.
pub(super) fn version() -> u8 {
    // The kernel tells it only to a thread that restricts itself: one does, and then ends.
    let asked = std::thread::spawn(|| {
        let ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(NEWEST))?
            .create()?;
        Ok::<_, RulesetError>(ruleset.restrict_self()?.landlock)
    });
    match asked.join() {
        Ok(Ok(LandlockStatus::Available { effective_abi, .. })) => effective_abi as u8,
        _ => 0,
    }
}

/// Returns what may not be listed, or else what may not be read: that, and the devices.
fn hidden_paths(policy: &Policy, listed: bool) -> Vec<PathBuf> {
    let hidden = policy
        .hidden
        .iter()
        .filter(|it| it.is_of_team || !listed)
        .map(|it| it.path.clone());
    hidden
        .chain((!listed).then(|| OTHER_DEVICES.into()))
        .collect()
}

/// Returns the topmost files and directories that hold nothing hidden, also in what is seen
/// although it lies in that.
fn all_but(hidden: Vec<PathBuf>, seen: &[PathBuf]) -> Vec<PathBuf> {
    let hidden: Vec<_> = hidden
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    let mut shown = Vec::new();
    let mut open = vec![PathBuf::from("/")];
    // A link shows nothing: what it leads to would be readable, and a teammate may have made it.
    let itself = |path: &&PathBuf| open_itself(path).is_ok();
    open.extend(seen.iter().filter(itself).cloned());
    while let Some(path) = open.pop() {
        if hidden.contains(&path) {
            continue;
        }
        if !hidden.iter().any(|secret| secret.starts_with(&path)) {
            shown.push(path);
            continue;
        }
        let entries = fs::read_dir(&path)
            .into_iter()
            .flatten()
            .filter_map(Result::ok);
        // A rule applies to what a link leads to, and that lies elsewhere.
        let entries =
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
        open.extend(entries.map(|entry| entry.path()));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn what_is_hidden_is_left_out_and_what_lies_beside_it_is_not() {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path().canonicalize().unwrap();
        fs::create_dir_all(home.join(".ssh")).unwrap();
        fs::create_dir_all(home.join(".config/gh")).unwrap();
        fs::create_dir_all(home.join(".config/app")).unwrap();
        drop(fs::File::create(home.join("notes")).unwrap());
        std::os::unix::fs::symlink(home.join(".ssh"), home.join("link")).unwrap();
        let shown = all_but(
            vec![
                home.join(".ssh"),
                home.join(".config/gh"),
                home.join(".aws"),
            ],
            &[],
        );
        let mut near: Vec<_> = shown
            .iter()
            .filter_map(|path| path.strip_prefix(&home).ok())
            .collect();
        near.sort();
        assert_eq!(near, [Path::new(".config/app"), Path::new("notes")]);
        assert!(shown.contains(&"/usr".into()) && !shown.contains(&"/".into()));
        assert_eq!(all_but(Vec::new(), &[]), [Path::new("/")]);
        // A link among what is seen does not show what it leads to.
        std::os::unix::fs::symlink("../gh", home.join(".config/app/link")).unwrap();
        for seen in [".config/app/link", "link"] {
            let shown = all_but(vec![home.clone()], &[home.join(seen)]);
            assert!(!shown.iter().any(|path| path.starts_with(&home)), "{seen}");
        }
        fs::remove_file(home.join(".config/app/link")).unwrap();
        // What is seen in something hidden has its own secrets.
        drop(fs::File::create(home.join(".config/app/key")).unwrap());
        drop(fs::File::create(home.join(".config/app/plain")).unwrap());
        let shown = all_but(
            vec![home.join(".config"), home.join(".config/app/key")],
            &[home.join(".config/app")],
        );
        assert!(
            !shown.contains(&home.join(".config/app")) && !shown.contains(&home.join(".config/gh"))
        );
        assert!(shown.contains(&home.join(".config/app/plain")));
    }
}
