//! Forms of repositories: in each one a teammate commits in place, works on a task in a checkout,
//! and the user lands that; or the spawn is refused, with the next step. Nothing fails when the
//! work is done.

mod names;
mod trust;

use crate::checkouts::{add, checkout, until, user};
use crate::support::Team;
use crate::support::user::User;

/// What a form is good for.
#[derive(Clone, Copy)]
enum Spawn {
    Works,
    /// It is refused: what is said, and the next step.
    Refused(&'static str, &'static str),
}

use Spawn::{Refused, Works};

/// A form of repository: how it is made in the workspace of a team.
struct Form {
    name: &'static str,
    make: &'static str,
    in_place: Spawn,
    checkout: Spawn,
}

const fn form(name: &'static str, make: &'static str) -> Form {
    Form {
        name,
        make,
        in_place: Works,
        checkout: Works,
    }
}

/// A repository elsewhere, with three commits and a second directory.
const UP: &str = "git init -q -b main ../up; (cd ../up; git config uploadpack.allowFilter true; mkdir x y; \
     for i in 1 2 3; do echo $i > a.txt; echo $i > x/f; echo $i > y/f; git add .; git commit -qm c$i; done; git tag v1)\n";

const LYING_BY_THEMSELVES: [Form; 5] = [
    form(
        "shallow, on no branch",
        "git clone -q --depth 1 file://$PWD/../up .; git checkout -q --detach",
    ),
    // `sparse-checkout` switches the settings of a tree on as well.
    form(
        "sparse, with the objects of another one",
        "git clone -q --shared ../up .; git gc -q; git sparse-checkout set --no-cone '/*' '!/y/'",
    ),
    form(
        "sha256",
        "git init -q -b main --object-format=sha256 .; echo 1 > a.txt; git add .; git commit -qm c1",
    ),
    Form {
        checkout: Refused("is a partial clone", "full clone"),
        ..form(
            "partial",
            "git clone -q --filter=blob:none file://$PWD/../up .",
        )
    },
    Form {
        checkout: Refused("has no commit yet", "git commit"),
        ..form("no commit", "git init -q -b main .")
    },
];

const WITH_A_FILE: [Form; 6] = [
    form(
        "bare, with linked trees",
        "git clone -q --bare ../up ../bare.git; git -C ../bare.git worktree add -q $PWD main",
    ),
    form(
        "linked tree of a submodule",
        "git init -q ../super; cd ../super; git -c protocol.file.allow=always submodule --quiet add ../up lib; cd lib; \
         git worktree add -q -b wt ../../work",
    ),
    form(
        "separate, and names its tree",
        "git init -q -b main --separate-git-dir ../apart.git .; git config core.worktree $PWD; echo 1 > a.txt; git add .; git commit -qm c1",
    ),
    Form {
        in_place: Refused("does not name", "config core.worktree"),
        ..form(
            "separate",
            "git clone -q --separate-git-dir ../apart.git ../up .",
        )
    },
    Form {
        in_place: Refused("is a link to", "put a file in its place"),
        ..form(
            "a link",
            "git clone -q ../up .; mv .git ../real.git; ln -s ../real.git .git",
        )
    },
    form(
        "inside, by a file",
        "git clone -q ../up .; mv .git .real; echo gitdir: .real > .git; echo /.real >> .real/info/exclude",
    ),
];

/// A check that the tree is what a task has made of it, and that the user's names are there.
const TOML: &str = "[work]\ncheck = \"test -e one && git log -1 --format=%s >/dev/null\"\n";

fn refuses(team: &Team, args: &[&str], why: &str, next: &str) {
    let refused = team.teamctl(["spawn"].iter().chain(args)).run_failed();
    assert!(
        refused.stderr.contains(why) && refused.stderr.contains(next),
        "{refused:?}"
    );
}

fn commits_in_place(team: &Team, form: &Form) {
    let Works = form.in_place else {
        let Refused(why, next) = form.in_place else {
            return;
        };
        return refuses(team, &["bob"], why, next);
    };
    team.teamctl(["spawn", "bob"]).ok();
    team.does("bob", "/bash echo more >> a.txt; git add a.txt; git commit -qm in-place; git stash list; git status --short");
    assert_eq!(
        user(team, "git log -1 --format=%s"),
        "in-place",
        "{}",
        form.name
    );
    team.teamctl(["shutdown", "bob"]).ok();
}

fn lands_a_task(team: &Team, form: &Form) {
    let Works = form.checkout else {
        let Refused(why, next) = form.checkout else {
            return;
        };
        return refuses(team, &["alice", "--checkout"], why, next);
    };
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    add(
        team,
        &[
            "one",
            "--description",
            "/bash echo one > one; git add one; git commit -qm one",
        ],
    );
    let done = until(team, 1, "completed");
    assert_eq!(done["result"]["verified"], "checked", "{}", form.name);
    // It has moved on: what is landed is merged with that first.
    user(
        team,
        "git symbolic-ref -q HEAD || git checkout -q -b result; echo u > u; git add u; git commit -qm u",
    );
    let landed = team.teamctl(["land"]).ok();
    assert!(
        team.made("one") && team.made("u"),
        "{}: {landed:?}",
        form.name
    );
    let after = user(
        team,
        "git fsck --connectivity-only; git status --short | grep -v -e team.toml -e ' .real' || true; git log -1 --format=%an",
    );
    assert_eq!(
        after.lines().last(),
        Some("teamd"),
        "{}: {after}",
        form.name
    );
    assert_eq!(
        after
            .lines()
            .filter(|line| !line.contains("dangling"))
            .count(),
        1,
        "{}: {after}",
        form.name
    );
    team.teamctl(["shutdown", "alice"]).ok();
    team.teamctl(["forget", "alice"]).ok();
    assert!(!checkout(team, "alice").exists(), "{}", form.name);
}

fn holds(who: User, form: &Form) {
    let team = Team::of(who);
    user(
        &team,
        &format!(
            "printf '[user]\\nname=u\\nemail=u@x\\n' > ../home/.gitconfig; {UP}{}",
            form.make
        ),
    );
    team.write("team.toml", TOML);
    team.trust();
    team.teamd(["start"]).ok();
    // What is refused for want of a commit works when there is one.
    lands_a_task(&team, form);
    commits_in_place(&team, form);
    if form.name.starts_with("shallow") {
        user(
            &team,
            "git fetch -q --unshallow; git fsck --connectivity-only; test $(git rev-list --count HEAD) -gt 5",
        );
    }
}

#[test]
fn each_form_that_lies_by_itself_works_from_spawn_to_land_or_is_refused_at_spawn() {
    for form in LYING_BY_THEMSELVES.iter() {
        holds(User::Ordinary, form);
    }
}

#[test]
fn each_form_that_a_file_leads_to_works_from_spawn_to_land_or_is_refused_at_spawn() {
    for form in WITH_A_FILE.iter() {
        holds(User::Ordinary, form);
    }
}
