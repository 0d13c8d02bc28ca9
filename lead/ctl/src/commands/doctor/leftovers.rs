//! What ended processes left: harmless, and of no use. What was set aside for people is only
//! listed.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use teamd_shared::cgroup::{self, CgroupPlace};
use teamd_shared::checkout::Checkout;
use teamd_shared::state::StateDir;
use teamd_shared::team_dir::Found;

use super::finding::Severity::Note;
use super::finding::{Check, Fix};
use super::seen::Seen;

/// The end of the name of a replacement that was never finished.
const UNFINISHED: &str = ".new";

/// Judges what lies about.
pub(super) fn leftovers(seen: &Seen, check: &mut Check) -> Option<String> {
    let aside: Vec<String> = seen
        .files
        .iter()
        .filter(|it| is_set_aside(it))
        .map(|it| it.at.to_string())
        .collect();
    if !aside.is_empty() {
        let what = format!("set aside for you to look at: {}", aside.join(", "));
        check.note(
            what,
            "no program reads them again",
            "delete them when you have seen them",
        );
    }
    cgroups(seen, check);
    checkouts(seen, check);
    Some("nothing".to_owned())
}

/// Judges what lies beside the checkouts of the team.
fn checkouts(seen: &Seen, check: &mut Check) {
    let members = seen
        .roster
        .iter()
        .flatten()
        .flat_map(|roster| &roster.members);
    let mut roots = Vec::new();
    for (member, checkout) in members.filter_map(|member| Some((member, member.checkout.as_ref()?)))
    {
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
    let Ok(state) = StateDir::of_process() else {
        return;
    };
    // Where each was made is noted beside the team repository.
    let notes = listed(&state.of_git(&seen.dir), check);
    for root in notes
        .iter()
        .filter_map(|note| note.read_link().ok())
        .filter(|it| it.is_absolute())
    {
        let unfinished = Checkout::unfinished(&root);
        if unfinished.exists() {
            let what = format!("the checkout {} was never finished", unfinished.display());
            check.note(
                what,
                "it holds no work",
                "the next spawn of that teammate removes it",
            );
        }
        if root.exists() && !roots.contains(&root.as_path()) {
            let what = format!("the checkout {} is of no teammate", root.display());
            let next = format!(
                "look whether it holds work, and remove it: `rm -r {}`",
                root.display()
            );
            check.note(what, "nothing uses it", &next);
        }
    }
}

/// Returns what lies in a folder, if that is there.
fn listed(folder: &Path, check: &mut Check) -> Vec<PathBuf> {
    let found = folder
        .read_dir()
        .and_then(|all| all.map(|entry| entry.map(|it| it.path())).collect());
    found.unwrap_or_else(|error: io::Error| {
        if error.kind() != io::ErrorKind::NotFound {
            let what = format!("{} cannot be listed: {error}", folder.display());
            check.note(
                what,
                "what lies there is not judged",
                "let this user read it",
            );
        }
        Vec::new()
    })
}

fn is_set_aside(found: &Found) -> bool {
    let name = found.at.file_name();
    let folder = found.at.folder();
    let torn = name.ends_with(".torn") && folder.is_none_or(|folder| folder == "transcript");
    let replaced = name.starts_with("config.json.") || name.starts_with("journal.jsonl.");
    torn || folder.is_none() && replaced && !name.ends_with(UNFINISHED)
}

/// Judges the cgroups of this team that belong to no incarnation that runs.
fn cgroups(seen: &Seen, check: &mut Check) {
    let Some((team, name)) = seen.team().zip(cgroup::of_team(&seen.dir).ok()) else {
        return;
    };
    let recorded = team
        .members
        .values()
        .filter_map(|it| Path::new(&it.record.cgroup.as_ref()?.path).parent());
    let recorded = recorded
        .filter(|above| above.ends_with(&name))
        .map(Path::to_owned);
    let here = CgroupPlace::look(Some(&name))
        .ok()
        .map(|place| place.folder.join(&name));
    let is_used = |path: &Path| {
        seen.locked && (path.ends_with(cgroup::DAEMON) || cgroup::is_of_check(path))
            || seen.running().any(|it| {
                it.cgroup
                    .as_ref()
                    .is_some_and(|it| Path::new(&it.path) == path)
            })
    };
    let mut empty = |folder: &Path| {
        let what = format!(
            "the cgroup {} is empty, and of no incarnation that runs",
            folder.display()
        );
        check.fixable(
            Note,
            what,
            "a daemon that was killed had made it",
            Fix::Cgroup(folder.to_owned()),
        );
    };
    let mut populated = Vec::new();
    for folder in recorded.chain(here).collect::<BTreeSet<PathBuf>>() {
        let below = cgroup::below(&folder);
        let unused = below.iter().filter(|path| !is_used(path));
        let (full, free): (Vec<_>, Vec<_>) =
            unused.partition(|path| cgroup::is_populated(path).unwrap_or(true));
        for path in free.iter() {
            empty(path);
        }
        // The team's own goes after all that is in it, and only if all of that goes.
        if free.len() == below.len() && !seen.locked && folder.exists() {
            empty(&folder);
        }
        populated.extend(full.into_iter().cloned());
    }
    for path in populated {
        let path = path.display();
        let what =
            format!("processes run in the cgroup {path}, which is of no incarnation that runs");
        let next = format!(
            "`cat {path}/cgroup.procs` shows them; `echo 1 > {path}/cgroup.kill` ends them"
        );
        check.problem(what, "no daemon supervises them", &next);
    }
}
