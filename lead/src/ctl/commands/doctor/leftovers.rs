//! What dead processes left: harmless, but nobody needs it. What was kept aside for people is only named.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use teamd_shared::cgroup::{self, Place};
use teamd_shared::team_dir::{Found, Kind, TeamPath};

use super::finding::{Finding, Fix};
use super::seen::Seen;

const CHECK: &str = "leftovers";
/// What a replacement that was never finished ends with.
const UNFINISHED: &str = ".new";

/// Judges what lies about.
pub(super) fn judge(seen: &Seen) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !seen.locked {
        findings.extend([TeamPath::socket(), TeamPath::pid()].into_iter().filter_map(|at| stale(seen, at)));
        // In run/ workers write too.
        let at_work = seen.is_at_work();
        let unfinished = |found: &&Found| {
            found.kind == Kind::File
                && found.at.folder().is_none_or(|folder| folder == "run" && !at_work)
                && found.at.file_name().ends_with(UNFINISHED)
        };
        findings.extend(seen.files.iter().filter(unfinished).map(|found| {
            Finding::note(CHECK, format!("{} was never finished ({} bytes)", found.at, found.size))
                .means("whoever wrote it was killed; the file that it was to replace is untouched")
                .next("`teamctl doctor --fix` moves it into archive/")
                .fix(Fix::Archive(found.at.clone()))
        }));
    }
    findings.extend(kept(seen));
    findings.extend(cgroups(seen));
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "nothing"));
    }
    findings
}

/// Judges the cgroups of this team that belong to no life of the journal.
fn cgroups(seen: &Seen) -> Vec<Finding> {
    let Some((team, name)) = seen.team().zip(cgroup::of_team(&seen.dir).ok()) else { return Vec::new() };
    let members = || team.members.values().map(|state| &state.record);
    let recorded = || members().filter_map(|member| Some((member, Path::new(&member.cgroup.as_ref()?.path))));
    let known: Vec<&Path> =
        recorded().filter(|(member, _)| !member.phase.is_ended()).map(|(_, path)| path).collect();
    let of_team = |path: &Path| path.parent().filter(|above| above.ends_with(&name)).map(Path::to_owned);
    let here = Place::look(Some(&name)).ok().map(|place| place.folder.join(&name));
    let all: BTreeSet<PathBuf> = recorded().filter_map(|(_, path)| of_team(path)).chain(here).collect();
    let mut findings = Vec::new();
    for folder in all {
        let below = cgroup::below(&folder);
        let own = |path: &Path| seen.locked && path.ends_with(cgroup::DAEMON);
        let unknown = below.iter().filter(|path| !known.contains(&path.as_path()) && !own(path));
        let unknown: Vec<_> =
            unknown.filter_map(|path| Some((path, cgroup::is_populated(path).ok()?))).collect();
        findings.extend(unknown.iter().map(|(path, populated)| left(path, *populated)));
        // It goes after all that is in it, and only if all of that goes.
        let empty = unknown.iter().filter(|(_, populated)| !populated).count() == below.len();
        if empty && !seen.locked && folder.exists() {
            findings.push(left(&folder, false));
        }
    }
    findings
}

fn left(folder: &Path, populated: bool) -> Finding {
    let shown = folder.display();
    if populated {
        return Finding::problem(CHECK, format!("processes live in the cgroup {shown}, and the journal knows no such life"))
            .means("what they do is nobody's any more")
            .next(format!("see who they are: `ps -p $(paste -sd, {shown}/cgroup.procs)`; `echo 1 > {shown}/cgroup.kill` ends them"));
    }
    Finding::note(CHECK, format!("the cgroup {shown} is empty, and of no life"))
        .means("a daemon that was killed had made it")
        .next("`teamctl doctor --fix` removes it")
        .fix(Fix::Cgroup(folder.to_owned()))
}

fn stale(seen: &Seen, at: TeamPath) -> Option<Finding> {
    seen.at(&at)?;
    let what = format!("{at} is there, and no daemon runs");
    Some(
        Finding::note(CHECK, what)
            .means("the daemon that made it was killed; the next one replaces it")
            .next("`teamctl doctor --fix` removes it")
            .fix(Fix::Remove(at)),
    )
}

/// What was set aside, for people to look at.
fn kept(seen: &Seen) -> Option<Finding> {
    let aside = |found: &&Found| {
        let name = found.at.file_name();
        let top = found.at.folder().is_none();
        (name.ends_with(".torn") && found.at.folder().is_none_or(|folder| folder == "transcript"))
            || (top && (name.starts_with("config.json.") || name.starts_with("journal.jsonl.")))
                && !name.ends_with(UNFINISHED)
    };
    let names: Vec<String> = seen.files.iter().filter(aside).map(|found| found.at.to_string()).collect();
    (!names.is_empty()).then(|| {
        Finding::note(CHECK, format!("set aside for you to look at: {}", names.join(", ")))
            .means("no program reads them again")
            .next("delete them when you have seen them")
    })
}
