//! What ended processes left, and no start removes. What was set aside for people is only listed.

use std::path::Path;

use teamd_shared::checkout::Checkout;
use teamd_shared::state::StateDir;
use teamd_shared::team_dir::Found;

use super::finding::DoctorCheck;
use super::snapshot::Snapshot;

/// The end of the name of a replacement that was never finished.
const UNFINISHED: &str = ".new";

/// Judges what was left.
pub(super) fn leftovers(snapshot: &Snapshot, check: &mut DoctorCheck) -> Option<String> {
    let aside: Vec<String> = snapshot
        .files
        .iter()
        .filter(|file| is_set_aside(file))
        .map(|file| file.at.to_string())
        .collect();
    if !aside.is_empty() {
        let what = format!("set aside for you to look at: {}", aside.join(", "));
        let next = "delete them when you have seen them";
        check.note(what, "no program reads them again", next);
    }
    checkouts(snapshot, check);
    Some("nothing".to_owned())
}

/// Judges the checkouts of the team: each is whole, and each has a teammate.
fn checkouts(snapshot: &Snapshot, check: &mut DoctorCheck) {
    let roster = snapshot.roster.as_ref().ok().and_then(Option::as_ref);
    let mut roots = Vec::new();
    for member in roster.iter().flat_map(|roster| &roster.members) {
        let Some(checkout) = &member.checkout else {
            continue;
        };
        if member.host.is_some() {
            // It is on another machine.
            continue;
        }
        let root = Path::new(&checkout.root);
        roots.push(root);
        if root.join(".git/HEAD").symlink_metadata().is_err() {
            let name = &member.name;
            let what = format!(
                "{} is no longer a checkout of {name}: its .git is missing or damaged",
                root.display()
            );
            let removal = match root.join(".git/config").symlink_metadata() {
                Ok(_) => format!("`teamctl forget {name} --discard` removes it"),
                Err(_) => "move it away".to_owned(),
            };
            let next = format!("save what you need of it; {removal}");
            check.problem(what, "nothing of it can be submitted", &next);
        }
    }
    let Ok(state) = StateDir::of_process() else {
        return;
    };
    let home = state.of_git(&snapshot.dir);
    let noted = Checkout::noted(&home).unwrap_or_else(|error| {
        let what = format!("{} cannot be listed: {error}", home.display());
        let means = "checkouts of no teammate are not found";
        check.note(what, means, "let this user read it");
        Vec::new()
    });
    for root in noted {
        if !roots.contains(&root.as_path()) {
            let root = root.display();
            let what = format!("the checkout {root} is of no teammate");
            let next = format!("look whether it holds work, and remove it: `rm -r {root}`");
            check.note(what, "nothing uses it", &next);
        }
    }
}

fn is_set_aside(file: &Found) -> bool {
    let name = file.at.file_name();
    let folder = file.at.folder();
    let torn = name.ends_with(".torn") && folder.is_none_or(|folder| folder == "transcript");
    let replaced = name.starts_with("config.json.") || name.starts_with("journal.jsonl.");
    torn || folder.is_none() && replaced && !name.ends_with(UNFINISHED)
}
