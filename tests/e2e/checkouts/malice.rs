//! What a teammate can do to `git`.

use super::{add, git, of_user, repository, says, team, until};
use crate::support::user::User;

#[test]
fn what_a_teammate_can_do_to_git_changes_neither_the_repositories_nor_what_we_run() {
    for who in User::at_hand() {
        let team = team(who, "", "");
        let before = of_user(&team);
        for name in ["alice", "bob"] {
            team.teamctl(["spawn", name, "--checkout"]).ok();
        }
        team.spawn("zoe", "");
        let repository = repository(&team);
        let at = repository.display();
        let pwned = team.root().with_file_name("pwned");
        let run = pwned.display();
        add(&team, &["one"]);
        let attacks = [
            format!("/bash touch {at}/x; echo x >> {at}/config; rm -rf {at}/objects; find {at}/objects -type f -exec chmod u+w {{}} + -exec sh -c 'echo x > \"$1\"' _ {{}} \\;"),
            "/bash echo x > .git/hooks/pre-commit; echo x >> .git/config; git config core.fsmonitor x; mv .git .g; echo x > .git/config.worktree; ls -la .git/hooks".to_owned(),
            "/claim_task {\"task_id\": 1}".to_owned(),
            // All that `git` could be told to run, by files that it reads.
            format!("/bash printf '* filter=x diff=x merge=x\\n' > .gitattributes; printf '* filter=x\\n' > .git/info/attributes; \
                     printf '[filter \"x\"]\\nclean=touch {run}\\nsmudge=touch {run}\\n[core]\\nfsmonitor=touch {run}\\nsshCommand=touch {run}\\n' > .git/config.worktree; \
                     mkdir -p sub && cd sub && git init -q . && printf '[core]\\nfsmonitor=touch {run}; false\\nhooksPath=/tmp\\n' >> .git/config && git -c user.name=x commit -q --allow-empty -m x; cd ..; \
                     git add .gitattributes; git commit -qm attributes; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub; git commit -qm sub; echo gitdir: /tmp > sub2"),
            "/bash git add -A; git commit -qm all; git replace HEAD HEAD^; git rev-parse HEAD".to_owned(),
            "/task_update {\"task_id\": 1, \"status\": \"completed\"}".to_owned(),
        ];
        let results = team.does("alice", &attacks.join("\n"));
        says(&results, 1, "total");
        says(&results, 5, "is submitted");
        // It is merged, and shown to the user: nothing of it runs on that way either.
        until(&team, 1, "completed");
        assert!(!pwned.exists(), "something that a teammate named was run");
        assert_eq!(of_user(&team), before);
        git(&team, &["fsck", "--strict"]);
        assert_eq!(git(&team, &["config", "gc.auto"]), "0");
        // Others see nothing of it; the other teammate still can work.
        let hidden = team.does("zoe", &format!("/bash ls {at} && echo BROKEN"));
        assert!(
            !hidden[0]["content"].as_str().unwrap().contains("BROKEN"),
            "{hidden:?}"
        );
        let results = team.does(
            "bob",
            "/bash git fetch -q && git status --short && git fsck && git log --oneline | wc -l",
        );
        says(&results, 0, "1");
    }
}

#[test]
fn malice_in_commits_is_refused_and_the_team_repository_does_not_take_it() {
    let team = team(User::at_hand()[0], "", "");
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    add(&team, &["one"]);
    let refs = || git(&team, &["for-each-ref"]);
    let before = refs();
    // What is malicious lies in a commit below HEAD, whose own files are as they should be.
    let evil = |tree: &str| {
        format!(
            "/bash tree=$({tree}); e=$(git commit-tree -p origin/integration -m evil $tree); echo z > z; git add z; \
             git reset -q --soft $(git commit-tree -p $e -m top $(git write-tree)); git status --short; git log --oneline | wc -l"
        )
    };
    let blob = "git hash-object -w --stdin <<< x";
    let entry = |mode: &str, name: &str| {
        evil(&format!(
            "printf '{mode} blob %s\\t{name}\\n' $({blob}) | git mktree --missing"
        ))
    };
    for order in [
        entry("100644", ".git"),
        entry("100644", ".GIT"),
        evil(&format!(
            "printf '040000 tree %s\\t.git\\n' $(printf '100644 blob %s\\tconfig\\n' $({blob}) | git mktree) | git mktree"
        )),
        evil(
            "printf '120000 blob %s\\t.gitmodules\\n' $(printf x | git hash-object -w --stdin) | git mktree",
        ),
        evil(
            "printf '[submodule \"../../x\"]\\n\\tpath = x\\n\\turl = --upload-pack=touch\\n' > m; printf '100644 blob %s\\t.gitmodules\\n' $(git hash-object -w m) | git mktree; rm m",
        ),
        // Objects that are missing.
        "/bash echo y > y; git add y; git commit -qm y; rm -rf .git/objects/??; git log --oneline | wc -l"
            .to_owned(),
    ] {
        let update = |status| format!("/task_update {{\"task_id\": 1, \"status\": \"{status}\"}}");
        let parts = [
            "/claim_task {\"task_id\": 1}",
            &order,
            &update("completed"),
            "/bash git reset -q --hard origin/integration",
            &update("pending"),
        ];
        let results = team.does("alice", &parts.join("\n"));
        says(&results, 0, "is yours");
        let said = results[2]["content"].as_str().unwrap();
        assert!(
            said.contains("the work is refused: ") && !said.contains("refused:  (")
                || order.contains("rm -rf") && results[2]["is_error"] == true,
            "{order}\n{said}"
        );
        says(&results, 4, "is pending");
        assert_eq!(refs(), before, "{order}");
    }
    git(&team, &["fsck", "--strict"]);
}

#[test]
fn thousands_of_files_that_are_not_committed_are_named_and_break_nothing() {
    let team = team(User::at_hand()[0], "", "");
    team.teamctl(["spawn", "alice", "--checkout"]).ok();
    add(&team, &["one"]);
    add(&team, &["two"]);
    let many = "for i in $(seq 4000); do echo > a-file-that-is-not-committed-$i; done";
    let results = team.does(
        "alice",
        &format!(
            "/claim_task {{\"task_id\": 1}}\n/bash {many}\n/task_update {{\"task_id\": 1, \"status\": \"completed\"}}\n/task_update {{\"task_id\": 1, \"status\": \"pending\"}}\n/claim_task {{\"task_id\": 2}}"
        ),
    );
    for number in [2, 4] {
        says(
            &results,
            number,
            "has changes that are not committed: a-file-that-is-not-committed-1, ",
        );
    }
    assert!(
        team.teamctl(["diff", "alice"])
            .ok()
            .stdout
            .contains("not in git: a-file-that-is-not-committed-1\n")
    );
    team.teamctl(["shutdown", "alice"]).ok();
    let refused = team.teamctl(["forget", "alice"]).exits(7);
    assert!(
        refused
            .stderr
            .contains("not committed: a-file-that-is-not-committed-1, "),
        "{refused:?}"
    );
}
