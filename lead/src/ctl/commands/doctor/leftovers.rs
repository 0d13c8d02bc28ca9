//! What ended processes left: harmless, and of no use. What was set aside for people is only listed.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use teamd_shared::cgroup::{self, Place};
use teamd_shared::team_dir::{FileKind, Found, TeamPath};

use super::finding::Severity::Note;
use super::finding::{Check, Fix};
use super::seen::Seen;

/// The end of the name of a replacement that was never finished.
const UNFINISHED: &str = ".new";

/// Judges what lies about.
pub(super) fn leftovers(seen: &Seen, check: &mut Check) -> Option<String> {
    let aside: Vec<String> =
        seen.files.iter().filter(|it| is_set_aside(it)).map(|it| it.at.to_string()).collect();
    if !aside.is_empty() {
        let what = format!("set aside for you to look at: {}", aside.join(", "));
        check.note(what, "no program reads them again", "delete them when you have seen them");
    }
    cgroups(seen, check);
    checkouts(seen, check);
    temporary_directories(seen, check);
    // In run/ workers write too.
    let at_work = seen.is_at_work();
    for found in seen.files.iter().filter(|_| !seen.locked) {
        let at = &found.at;
        if [TeamPath::socket(), TeamPath::pid()].contains(at) {
            let what = format!("{at} is there, and no daemon runs");
            check.fixable(Note, what, "the next daemon replaces it", Fix::Remove(at.clone()));
        }
        let may_be_moved = at.folder().is_none_or(|folder| folder == "run" && !at_work);
        if may_be_moved && found.kind == FileKind::File && at.file_name().ends_with(UNFINISHED) {
            let what = format!("{at} was never finished ({} bytes)", found.size);
            check.fixable(
                Note,
                what,
                "the file that it was to replace is untouched",
                Fix::Archive(at.clone()),
            );
        }
    }
    Some("nothing".to_owned())
}

/// Judges what lies beside the checkouts of the team.
fn checkouts(seen: &Seen, check: &mut Check) {
    let members = seen.roster.iter().flatten().flat_map(|roster| &roster.members);
    let mut roots = Vec::new();
    for (member, checkout) in members.filter_map(|member| Some((member, member.checkout.as_ref()?))) {
        let root = Path::new(&checkout.root);
        roots.push(root);
        if root.join(".git/HEAD").symlink_metadata().is_err() {
            let name = &member.name;
            let what = format!(
                "{} is not a checkout of {name} any more: its .git is missing or damaged",
                root.display()
            );
            let removes = match root.join(".git/config").symlink_metadata() {
                Ok(_) => format!("`teamctl forget {name} --discard` removes it"),
                Err(_) => "move it away".to_owned(),
            };
            let next = format!("save what you need of it; {removes}");
            check.problem(what, "nothing of it can be submitted", &next);
        }
    }
    let mut beside = seen.dir.workspace().into_os_string();
    beside.push(".team");
    let bases: BTreeSet<PathBuf> =
        roots.iter().filter_map(|root| root.parent()).map(Path::to_owned).chain([beside.into()]).collect();
    for path in bases.iter().flat_map(|base| listed(base, check)).collect::<Vec<_>>() {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if name.starts_with(b".") && name.ends_with(UNFINISHED.as_bytes()) {
            let what = format!("the checkout {} was never finished", path.display());
            check.note(what, "it holds no work", "the next spawn of that teammate removes it");
        } else if !roots.contains(&path.as_path()) {
            let what = format!("the checkout {} is of no teammate", path.display());
            let next = format!("look whether it holds work, and remove it: `rm -r {}`", path.display());
            check.note(what, "nothing uses it", &next);
        }
    }
}

/// Returns what lies in a folder, if that is there.
fn listed(folder: &Path, check: &mut Check) -> Vec<PathBuf> {
    let found = folder.read_dir().and_then(|all| all.map(|entry| entry.map(|it| it.path())).collect());
    found.unwrap_or_else(|error: io::Error| {
        if error.kind() != io::ErrorKind::NotFound {
            let what = format!("{} cannot be listed: {error}", folder.display());
            check.note(what, "what lies there is not judged", "let this user read it");
        }
        Vec::new()
    })
}

fn is_set_aside(found: &Found) -> bool {
    let (name, folder) = (found.at.file_name(), found.at.folder());
    let torn = name.ends_with(".torn") && folder.is_none_or(|folder| folder == "transcript");
    let replaced = name.starts_with("config.json.") || name.starts_with("journal.jsonl.");
    torn || folder.is_none() && replaced && !name.ends_with(UNFINISHED)
}

/// Judges the temporary directories of this team's incarnations, as workers name them; that of a killed one stays until the
/// next incarnation of the same name removes it. What is older than the team directory is of another one, which had the
/// same number on this file system.
fn temporary_directories(seen: &Seen, check: &mut Check) {
    let Ok(stat) = rustix::fs::fstat(&*seen.dir) else { return };
    let begin = format!("teamd-{}-{:x}-{:x}-", nix::unistd::geteuid(), stat.st_dev, stat.st_ino);
    let born = seen.dir.root().metadata().and_then(|it| it.created()).ok();
    let above = BTreeSet::from([PathBuf::from("/tmp"), std::env::temp_dir()]);
    for path in above.iter().flat_map(|folder| listed(folder, check)).collect::<Vec<_>>() {
        let rest = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(&begin));
        let Some((member, _)) = rest.and_then(|rest| rest.rsplit_once('-')) else { continue };
        let is_older =
            || path.symlink_metadata().and_then(|it| it.modified()).is_ok_and(|at| Some(at) < born);
        if !seen.running().any(|it| it.name.as_str() == member) && !is_older() {
            let what = format!("the temporary directory {} is of no incarnation that runs", path.display());
            check.note(what, "a worker that was killed had made it", &format!("`rm -r {}`", path.display()));
        }
    }
}

/// Judges the cgroups of this team that belong to no incarnation that runs.
fn cgroups(seen: &Seen, check: &mut Check) {
    let Some((team, name)) = seen.team().zip(cgroup::of_team(&seen.dir).ok()) else { return };
    let recorded =
        team.members.values().filter_map(|it| Path::new(&it.record.cgroup.as_ref()?.path).parent());
    let recorded = recorded.filter(|above| above.ends_with(&name)).map(Path::to_owned);
    let here = Place::look(Some(&name)).ok().map(|place| place.folder.join(&name));
    let is_used = |path: &Path| {
        seen.locked && (path.ends_with(cgroup::DAEMON) || cgroup::is_of_check(path))
            || seen.running().any(|it| it.cgroup.as_ref().is_some_and(|it| Path::new(&it.path) == path))
    };
    let mut empty = |folder: &Path| {
        let what = format!("the cgroup {} is empty, and of no incarnation that runs", folder.display());
        check.fixable(Note, what, "a daemon that was killed had made it", Fix::Cgroup(folder.to_owned()));
    };
    let mut populated = Vec::new();
    for folder in recorded.chain(here).collect::<BTreeSet<PathBuf>>() {
        let below = cgroup::below(&folder);
        let unused = below.iter().filter(|path| !is_used(path));
        let (full, free): (Vec<_>, Vec<_>) =
            unused.partition(|path| cgroup::is_populated(path).unwrap_or(true));
        free.iter().for_each(|path| empty(path));
        // The team's own goes after all that is in it, and only if all of that goes.
        if free.len() == below.len() && !seen.locked && folder.exists() {
            empty(&folder);
        }
        populated.extend(full.into_iter().cloned());
    }
    for path in populated {
        let path = path.display();
        let what = format!("processes run in the cgroup {path}, which is of no incarnation that runs");
        let next = format!("`cat {path}/cgroup.procs` shows them; `echo 1 > {path}/cgroup.kill` ends them");
        check.problem(what, "no daemon supervises them", &next);
    }
}
