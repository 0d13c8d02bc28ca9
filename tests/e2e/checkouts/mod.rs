//! Checkouts: a teammate works in a clone of its own, and `git` at its hands is hostile. Each test
//! as root and as a user.

mod broken_off;
mod landing;
mod loss;
mod making;
mod malice;
mod tasks;

use std::path::PathBuf;

use serde_json::Value;

use crate::support::Team;
use crate::support::user::User;

const SH: &str = "set -e\nexport GIT_AUTHOR_NAME=u GIT_AUTHOR_EMAIL=u@x GIT_COMMITTER_NAME=u GIT_COMMITTER_EMAIL=u@x\n";

/// Runs a script of the user in the workspace.
#[track_caller]
pub(crate) fn user(team: &Team, script: &str) -> String {
    team.run_program("bash", ["-c", &format!("{SH}{script}")])
        .ok()
        .stdout
        .trim()
        .to_owned()
}

pub(crate) const REPOSITORY: &str =
    "git init -q -b main . && printf 'one\\n' > a.txt && git add a.txt && git commit -qm first\n";

/// A team in a repository, with these lines in `team.toml`, which are trusted.
pub(crate) fn team(who: User, toml: &str, script: &str) -> Team {
    let team = Team::of(who);
    user(&team, &format!("{REPOSITORY}{script}"));
    team.write("team.toml", toml);
    team.trust();
    team.teamd(["start"]).ok();
    team
}

pub(crate) fn checkout(team: &Team, name: &str) -> PathBuf {
    team.root().with_file_name("work.team").join(name)
}

pub(crate) fn repository(team: &Team) -> PathBuf {
    let home = team.home().join(".local/state/teamd/repositories");
    let mut found = home
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path().join("team.git"));
    found.find(|path| path.exists()).unwrap()
}

/// What `git` says in the team repository.
#[track_caller]
pub(crate) fn git(team: &Team, args: &[&str]) -> String {
    let repository = format!("--git-dir={}", repository(team).display());
    team.run_program("git", [repository.as_str()].iter().chain(args))
        .ok()
        .stdout
        .trim()
        .to_owned()
}

#[track_caller]
pub(crate) fn says(results: &[Value], number: usize, text: &str) {
    let said = results[number]["content"].as_str().unwrap();
    assert!(said.contains(text), "{number}: {said}\nwanted: {text}");
}

/// What is the user's, but for what is shown of the integration branch: objects may come, all else
/// stays.
pub(crate) fn of_user(team: &Team) -> String {
    user(
        team,
        "find . \\( -path ./.team -o -path ./.git/objects -o -path ./.git/refs/remotes \\) -prune -o -printf '%p %m %s %T@ %i\\n' | grep -v '^\\./\\.git [0-9]' | grep -v '^\\./\\.git/refs ' | sort; git for-each-ref | grep -v refs/remotes/team/integration; git fsck",
    )
}

pub(crate) fn task(team: &Team, id: u64) -> Value {
    serde_json::from_str(&team.file(&format!("tasks/{id}.json"))).unwrap()
}

pub(crate) fn until(team: &Team, id: u64, status: &str) -> Value {
    team.until(&format!("task {id} to be {status}"), || {
        task(team, id)["status"] == status
    });
    task(team, id)
}

pub(crate) fn add(team: &Team, args: &[&str]) {
    team.teamctl(["task", "add"].iter().chain(args)).ok();
}

/// What `doctor` says, on one line.
fn doctor(team: &Team) -> String {
    team.teamctl(["doctor"])
        .stdout
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Gives the user's repository a submodule with a file, of which the user's tree has the only copy.
pub(crate) const SUBMODULE: &str = "git init -q ../sub; echo s > ../sub/s; git -C ../sub add s; git -C ../sub commit -qm s; \
     git -c protocol.file.allow=always submodule --quiet add ../sub sub; git commit -qm sub; rm -rf ../sub";
