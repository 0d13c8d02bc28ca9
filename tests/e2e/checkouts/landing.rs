//! What lands is written into the tree of the user, and no edit of the user is lost where git
//! cannot write all of it.

use super::{add, git, team, until, user};
use crate::support::Team;
use crate::support::user::User;

/// A team whose teammate has done this work, which is integrated.
fn with_work(begin: &str, work: &str) -> Team {
    let team = team(User::Ordinary, "[work]\ncheck = \"true\"\n", begin);
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    add(
        &team,
        &[
            "one",
            "--description",
            &format!("/bash set -e; {work}; git add -A; git commit -qm work"),
        ],
    );
    until(&team, 1, "completed");
    team
}

#[test]
fn where_git_cannot_write_all_files_those_without_edits_are_put_back_and_the_others_stay() {
    let team = with_work(
        "mkdir closed; for f in b.txt removed closed/k; do echo one > $f; done; git add .; git commit -qm files",
        "echo two > a.txt; echo two > b.txt; git rm -q removed; mkdir -p n/deep empty; for f in staged n/deep/x new empty/x closed/z; do echo two > $f; done",
    );
    let tip = git(&team, &["rev-parse", "integration"]);
    // Staged as they will be, and edited since: git does not refuse that, and leaves them alone.
    user(
        &team,
        "for f in a.txt staged; do echo two > $f; git add $f; echo mine >> $f; done; mkdir empty; chmod 555 closed",
    );
    let state = || {
        user(
            &team,
            "git rev-parse main; git status --short; find . -path ./.git -prune -o -path ./.team -prune -o -print | sort; cat a.txt staged b.txt removed",
        )
    };
    let before = state();
    let refused = team.teamctl(["land"]).exits(7);
    let said = refused
        .stderr
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        said.contains("main cannot be moved: ") && said.contains("Permission denied"),
        "{said}"
    );
    let (_, back) = said
        .split_once("put back: ")
        .unwrap_or_else(|| panic!("{said}"));
    for file in ["b.txt", "removed", "n/deep/x", "new", "empty/x"] {
        assert!(back.contains(file), "{file}: {said}");
    }
    assert!(
        !back.contains("a.txt") && !back.contains("staged") && !said.contains("not as before"),
        "{said}"
    );
    assert_eq!(state(), before);
    user(&team, "chmod 755 closed");
    team.teamctl(["land"]).ok();
    assert_eq!(user(&team, "git rev-parse main"), tip);
    assert_eq!(
        user(&team, "cat a.txt staged b.txt"),
        "two\nmine\ntwo\nmine\ntwo"
    );
}

#[test]
fn what_lies_beyond_a_link_of_the_user_is_not_removed() {
    let team = with_work(
        "echo real > .gitignore; mkdir d real; echo secret > real/settings.json; ln -s ../real d/conf; git add .; git commit -qm link",
        "rm d/conf; mkdir d/conf; for f in settings.json other; do echo two > d/conf/$f; done; echo two > b.txt",
    );
    user(&team, "chmod 555 d");
    let refused = team.teamctl(["land"]).exits(7);
    assert!(
        refused.stderr.contains("main cannot be moved: "),
        "{refused:?}"
    );
    assert_eq!(
        user(&team, "cat real/settings.json; ls real; readlink d/conf"),
        "secret\nsettings.json\n../real"
    );
    assert_eq!(user(&team, "git status --porcelain"), "?? team.toml");
    user(&team, "chmod 755 d");
    team.teamctl(["land"]).ok();
    assert_eq!(
        user(&team, "cat real/settings.json d/conf/settings.json"),
        "secret\ntwo"
    );
}
