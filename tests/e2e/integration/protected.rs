//! What is protected is seen to be changed, by a commit, a check or a setup.

use serde_json::json;

use super::SUBMIT;
use crate::checkouts::{add, git, task, team, until};
use crate::support::user::User;

#[test]
fn a_deleted_test_is_seen_however_much_else_is_changed() {
    let team = team(
        User::at_hand()[0],
        "[work]\ncheck = \"true\"\nprotect = [\"tests/**\"]\n",
        "mkdir tests; echo t > tests/t; git add tests; git commit -qm tests",
    );
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    add(&team, &["one"]);
    let long = "x".repeat(80);
    let many = format!("for i in $(seq 400); do echo > aa-{long}-$i; echo > zz-{long}-$i; done");
    let work = format!("/bash {many}; git rm -q tests/t; git add .; git commit -qm many");
    team.does(
        "alice",
        &format!("/claim_task {{\"task_id\": 1}}\n{work}\n{SUBMIT}"),
    );
    team.until("the review", || {
        task(&team, 1)["submission"]["stage"] == "reviewing"
    });
    assert_eq!(
        task(&team, 1)["result"]["touched_protected"],
        "it changes more files than can be looked at"
    );
    // Who reviews it is told that not all is shown.
    assert!(
        team.teamctl(["diff", "1"])
            .ok()
            .stdout
            .contains(" characters cut]")
    );
}

/// What a teammate does to a protected file so that its own `git` does not show it, and which file
/// is named all the same.
const TRICKS: [(&str, &str, &str); 11] = [
    (
        "submodule",
        "mkdir sub; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub",
        "sub",
    ),
    (
        "modules",
        "touch .gitmodules; git add .gitmodules",
        ".gitmodules",
    ),
    (
        "skip",
        "echo evil > tests/t; git add tests/t; git update-index --skip-worktree tests/t",
        "tests/t",
    ),
    (
        "assume",
        "echo evil > tests/t; git add tests/t; git update-index --assume-unchanged tests/t",
        "tests/t",
    ),
    (
        "exclude",
        "echo tests/ >> .git/info/exclude; echo tests/ > .gitignore; touch tests/new; git add -f .gitignore tests/new",
        "tests/new",
    ),
    ("rename", "git mv tests/t elsewhere", "tests/t"),
    (
        "link",
        "git mv tests kept; ln -s kept tests; git add -A",
        "tests, tests/t",
    ),
    (
        "readd",
        "git rm -q tests/t; git commit -qm gone; mkdir tests; echo other > tests/t; git add tests/t",
        "tests/t",
    ),
    ("mode", "chmod +x tests/t; git add tests/t", "tests/t"),
    (
        "attributes",
        "echo 'tests/** working-tree-encoding=UTF-16' > .gitattributes; git add .gitattributes",
        ".gitattributes",
    ),
    (
        "replace",
        "echo evil > tests/t; git commit -qam evil; git replace -f HEAD HEAD^ || true; git commit -q --allow-empty -m x",
        "tests/t",
    ),
];

#[test]
fn nothing_that_a_teammate_does_to_its_git_hides_a_changed_protected_file() {
    let team = team(
        User::at_hand()[0],
        "[work]\nprotect = [\"tests/**\"]\n",
        "mkdir tests; echo t > tests/t; git add tests; git commit -qm tests",
    );
    for (number, (name, trick, _)) in TRICKS.iter().enumerate() {
        team.teamctl(["spawn", name, "--checkout"]).ok();
        let id = number + 1;
        add(&team, &[name, "--for", name]);
        let work = format!(
            "/claim_task {{\"task_id\": {id}}}\n/bash {trick}; git commit -qm {name} || true"
        );
        team.teamctl([
            "send",
            name,
            &format!("{work}\n/task_update {{\"task_id\": {id}, \"status\": \"completed\"}}"),
        ])
        .ok();
    }
    for (number, (name, _, touched)) in TRICKS.iter().enumerate() {
        let id = number as u64 + 1;
        team.until(&format!("the review of {name}"), || {
            task(&team, id)["submission"]["stage"] == "reviewing"
        });
        assert_eq!(
            task(&team, id)["result"]["touched_protected"],
            *touched,
            "{name}"
        );
        team.teamctl(["task", "cancel", &id.to_string()]).ok();
    }
    // What is put back in the commit is no change.
    team.teamctl(["spawn", "honest", "--checkout"]).ok();
    add(&team, &["honest", "--check", "grep -qx t tests/t"]);
    let back = "git rm -q tests/t; git commit -qm gone; git checkout -q HEAD^ tests/t; touch x; git add -A; git commit -qm back";
    team.teamctl([
        "send",
        "honest",
        &format!("/claim_task {{\"task_id\": 12}}\n/bash {back}\n/task_update {{\"task_id\": 12, \"status\": \"completed\"}}"),
    ])
    .ok();
    let done = until(&team, 12, "completed");
    assert_eq!(done["result"]["verified"], "checked");
    assert_eq!(git(&team, &["show", "integration:tests/t"]), "t");
}

/// A program that exchanges two directories (`renameat2(2)`), as it stands between double quotes.
fn exchanges(one: &str, other: &str) -> String {
    let number = if cfg!(target_arch = "x86_64") {
        316
    } else {
        276
    };
    format!(
        "perl -e 'my (\\$a, \\$b) = (q({one}), q({other})); syscall({number}, -100, \\$a, -100, \\$b, 2)'"
    )
}

/// Work that changes what the check builds with, and nothing that is protected.
fn builds_with(program: &str) -> String {
    format!("/bash echo \"{program}\" > build.sh; git commit -qam build")
}

const GUARDED: &str = "mkdir -p deep/tests; echo exit 1 > deep/tests/t; echo true > build.sh; git add .; git commit -qm tests";

#[test]
fn no_check_changes_what_a_pattern_begins_with_before_it_is_used() {
    let team = team(
        User::at_hand()[0],
        "[work]\nprotect = [\"deep/tests/**\", \"lost/**\"]\ncheck = \"bash build.sh; bash deep/tests/t\"\n",
        GUARDED,
    );
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    let evil = "cp -a deep evil; echo exit 0 > evil/tests/t; ";
    let attacks = [
        "echo exit 0 > deep/tests/t".to_owned(),
        "rm -rf deep; mkdir -p deep/tests; echo exit 0 > deep/tests/t".to_owned(),
        "mv deep/tests x; mkdir deep/tests; echo exit 0 > deep/tests/t".to_owned(),
        "mv deep x; mkdir -p deep/tests; echo exit 0 > deep/tests/t".to_owned(),
        format!("{evil}{}", exchanges("deep", "evil")),
        format!("{evil}{}", exchanges("deep/tests", "evil/tests")),
        format!("{evil}mv -T evil/tests deep/tests; mount --bind evil deep"),
    ];
    for (number, attack) in attacks.iter().enumerate() {
        add(
            &team,
            &[
                "build",
                "--max-attempts",
                "1",
                "--description",
                &builds_with(attack),
            ],
        );
        let failed = until(&team, number as u64 + 1, "failed");
        let found = (
            &failed["result"]["check"]["exit"],
            &failed["result"]["touched_protected"],
        );
        assert_eq!(found, (&json!(1), &json!(null)), "{attack}");
    }
    // What is not there yet cannot be mounted: that it is made is seen.
    let makes = builds_with("mkdir lost; rmdir lost; exit 0");
    add(
        &team,
        &[
            "makes",
            "--check",
            "mkdir lost; rmdir lost",
            "--max-attempts",
            "1",
            "--description",
            &makes,
        ],
    );
    let failed = until(&team, attacks.len() as u64 + 1, "failed");
    assert_eq!(
        failed["result"]["touched_protected"],
        "changed while the check ran: lost"
    );
}

#[test]
fn what_is_exchanged_while_a_check_runs_is_seen_where_a_pattern_begins_with_no_path() {
    let team = team(
        User::at_hand()[0],
        "[work]\nprotect = [\"**/t\"]\ncheck = \"bash build.sh; bash deep/tests/t && bash build.sh\"\n",
        GUARDED,
    );
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    // There and back again, so that nothing is left to be found.
    let evil = "test -e evil || { cp -a deep evil; echo exit 0 > evil/tests/t; }; ";
    add(
        &team,
        &[
            "build",
            "--description",
            &builds_with(&format!("{evil}{}", exchanges("deep", "evil"))),
        ],
    );
    team.until("the review", || {
        task(&team, 1)["submission"]["stage"] == "reviewing"
    });
    let touched = task(&team, 1)["result"]["touched_protected"].clone();
    assert_eq!(touched, "changed while the check ran: deep");
}

#[test]
fn what_a_protected_link_leads_to_is_protected_in_commits_and_while_a_check_runs() {
    let team = team(
        User::at_hand()[0],
        "[work]\nprotect = [\"tests/**\", \"link.sh\"]\ncheck = \"bash build.sh; bash tests/t && bash link.sh\"\n",
        "mkdir -p deep/spec lib; ln -s deep/spec tests; ln -s tests/../lib/one.sh link.sh; ln -s real.sh lib/one.sh; \
         ln -sf lib/one.sh link.sh; echo exit 1 > deep/spec/t; echo exit 1 > lib/real.sh; echo true > build.sh; git add .; git commit -qm links",
    );
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    let cases = [
        ("echo exit 0 > deep/spec/t", "deep/spec/t"),
        ("echo exit 0 > lib/real.sh", "lib/real.sh"),
        ("rm tests; cp -r deep/spec tests", "tests, tests/t"),
    ];
    for (id, (work, touched)) in (1..).zip(cases) {
        let work = format!("/bash {work}; git add -A; git commit -qm work");
        add(
            &team,
            &[
                "one",
                "--check",
                "true",
                "--max-attempts",
                "1",
                "--description",
                &work,
            ],
        );
        assert_eq!(
            until(&team, id, "failed")["result"]["touched_protected"],
            touched
        );
    }
    for (id, attack) in (4..).zip([
        "echo exit 0 > deep/spec/t",
        "mv deep/spec x; mkdir deep/spec; echo exit 0 > deep/spec/t",
        "echo exit 0 > lib/real.sh",
    ]) {
        add(
            &team,
            &[
                "build",
                "--max-attempts",
                "1",
                "--description",
                &builds_with(attack),
            ],
        );
        let failed = until(&team, id, "failed");
        assert_eq!(failed["result"]["check"]["exit"], 1, "{attack}");
    }
}

#[test]
fn a_setup_that_changes_protected_files_before_the_check_is_seen() {
    let team = team(
        User::at_hand()[0],
        "[work]\nprotect = [\"tests/**\"]\ncheck = \"sh tests/run.sh\"\n[checkout]\nsetup = \"sh setup.sh\"\n",
        "mkdir tests; echo exit 1 > tests/run.sh; echo true > setup.sh; git add .; git commit -qm tests",
    );
    team.teamctl(["spawn", "alice", "--checkout", "--auto"])
        .ok();
    let work = "/bash echo 'echo exit 0 > tests/run.sh' > setup.sh; git commit -qam setup";
    add(&team, &["setup", "--description", work]);
    team.until("the review", || {
        task(&team, 1)["submission"]["stage"] == "reviewing"
    });
    assert_eq!(
        task(&team, 1)["result"]["touched_protected"],
        "changed by the setup: tests/run.sh"
    );
}
