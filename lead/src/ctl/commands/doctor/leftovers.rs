//! What ended processes left: harmless, and of no use. What was set aside for people is only listed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use teamd_shared::cgroup::{self, Place};
use teamd_shared::team_dir::{Found, Kind, TeamPath};

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
    // In run/ workers write too.
    let at_work = seen.is_at_work();
    for found in seen.files.iter().filter(|_| !seen.locked) {
        let at = &found.at;
        if [TeamPath::socket(), TeamPath::pid()].contains(at) {
            let means = "the daemon that made it was killed; the next one replaces it";
            let next = "`teamctl doctor --fix` removes it";
            check
                .note(format!("{at} is there, and no daemon runs"), means, next)
                .fix(Fix::Remove(at.clone()));
        }
        let may_be_moved = at.folder().is_none_or(|folder| folder == "run" && !at_work);
        if may_be_moved && found.kind == Kind::File && at.file_name().ends_with(UNFINISHED) {
            let what = format!("{at} was never finished ({} bytes)", found.size);
            let means = "its writer was killed; the file that it was to replace is untouched";
            let next = "`teamctl doctor --fix` moves it into archive/";
            check.note(what, means, next).fix(Fix::Archive(at.clone()));
        }
    }
    Some("nothing".to_owned())
}

fn is_set_aside(found: &Found) -> bool {
    let (name, folder) = (found.at.file_name(), found.at.folder());
    let torn = name.ends_with(".torn") && folder.is_none_or(|folder| folder == "transcript");
    let replaced = name.starts_with("config.json.") || name.starts_with("journal.jsonl.");
    torn || folder.is_none() && replaced && !name.ends_with(UNFINISHED)
}

/// Judges the cgroups of this team that belong to no incarnation that runs.
fn cgroups(seen: &Seen, check: &mut Check) {
    let Some((team, name)) = seen.team().zip(cgroup::of_team(&seen.dir).ok()) else { return };
    let recorded = team.members.values().filter_map(|state| state.record.cgroup.as_ref());
    let of_team =
        recorded.filter_map(|it| Path::new(&it.path).parent().filter(|above| above.ends_with(&name)));
    let here = Place::look(Some(&name)).ok().map(|place| place.folder.join(&name));
    let folders: BTreeSet<PathBuf> = of_team.map(Path::to_owned).chain(here).collect();
    let is_used = |path: &Path| {
        seen.locked && path.ends_with(cgroup::DAEMON)
            || seen.running().any(|it| it.cgroup.as_ref().is_some_and(|it| Path::new(&it.path) == path))
    };
    for folder in folders {
        let below = cgroup::below(&folder);
        let mut removed = 0;
        for path in below.iter().filter(|path| !is_used(path)) {
            match cgroup::is_populated(path) {
                Ok(true) => {
                    let shown = path.display();
                    check.problem(
                        format!("processes run in the cgroup {shown}, and the journal knows no such incarnation"),
                        "no daemon supervises what they do",
                        &format!("see them: `ps -p $(paste -sd, {shown}/cgroup.procs)`; `echo 1 > {shown}/cgroup.kill` ends them"),
                    );
                }
                Ok(false) => {
                    empty(check, path);
                    removed += 1;
                }
                Err(_) => {}
            }
        }
        // The team's own goes after all that is in it, and only if all of that goes.
        if removed == below.len() && !seen.locked && folder.exists() {
            empty(check, &folder);
        }
    }
}

fn empty(check: &mut Check, folder: &Path) {
    let what = format!("the cgroup {} is empty, and of no incarnation that runs", folder.display());
    let next = "`teamctl doctor --fix` removes it";
    check.note(what, "a daemon that was killed had made it", next).fix(Fix::Cgroup(folder.to_owned()));
}
