//! Linked working trees (`git worktree add`): work in one needs no flag, and what another tree or
//! the user's next `git` runs or believes stays as it is.

use std::path::PathBuf;

use super::{Case, With, attack, cases, has, works};
use crate::support::Team;

/// `git` as the user of the team.
#[track_caller]
fn git(team: &Team, args: &[&str]) {
    let identity = [
        "-c",
        "user.name=u",
        "-c",
        "user.email=u@example.org",
        "-c",
        "init.defaultBranch=main",
    ];
    team.run_program("git", identity.iter().chain(args)).ok();
}

/// A teammate that works in a linked working tree of a repository elsewhere; none without `git`, or
/// without these layers. Returns the common directory, too.
fn team(case: Case) -> Option<(Team, PathBuf)> {
    let team = Team::of(case.user);
    if !has(&team, "git") {
        return None;
    }
    team.write(
        "../home/.gitconfig",
        "[user]\n  name = u\n  email = u@example.org\n[gc]\n  auto = 0\n",
    );
    let main = team.make_dir("../main");
    let at = main.to_str().unwrap();
    git(&team, &["init", "-q", at]);
    for message in ["first", "second"] {
        git(
            &team,
            &["-C", at, "commit", "-q", "--allow-empty", "-m", message],
        );
    }
    git(&team, &["-C", at, "branch", "packed"]);
    git(&team, &["-C", at, "pack-refs", "--all"]);
    for (tree, branch) in [("../tree", "wt"), ("../other", "o")] {
        git(
            &team,
            &[
                "-C",
                at,
                "worktree",
                "add",
                "-q",
                team.root().join(tree).to_str().unwrap(),
                "-b",
                branch,
            ],
        );
    }
    let tree = team.root().join("../tree").canonicalize().unwrap();
    let team = case
        .with
        .confine(team, &["--workspace", tree.to_str().unwrap()])?;
    Some((team, main.join(".git").canonicalize().unwrap()))
}

#[test]
fn in_a_linked_working_tree_git_works_without_a_flag() {
    // Without Landlock the repository is read-only.
    for case in cases(&[With::All, With::Bubblewrap, With::Bare]) {
        let Some((team, common)) = team(case) else {
            continue;
        };
        let said = works(
            &team,
            &[
                "echo 1 > f && git add f && git commit -qm one && git commit -q --amend -m 'one, amended' && git log -1 --format=%s",
                "git switch -qc topic && echo 2 >> f && git commit -qam two && git rebase -q wt && git log --format=%s | wc -l",
                "echo 3 >> f && git stash -q && git stash pop -q && git checkout -q f && git stash list | wc -l",
                "git tag v1 && git switch -q wt; git branch | tr -d ' *+\\n'",
                &format!(
                    "git fetch -q {} main && git rev-parse -q FETCH_HEAD > /dev/null && echo fetched",
                    common.display()
                ),
                "git status --short | wc -l",
            ],
        );
        // Above it `git` says that it could not look after `packed-refs`, which lies in the
        // repository itself.
        let last: Vec<&str> = said
            .iter()
            .map(|said| said.lines().last().unwrap())
            .collect();
        assert_eq!(
            last,
            [
                "one, amended",
                "4",
                "0",
                "mainopackedtopicwt",
                "fetched",
                "0"
            ],
            "{case:?} {said:?}"
        );
        // The user sees it from the other side.
        let seen = team.run_program(
            "git",
            [
                "--git-dir",
                common.to_str().unwrap(),
                "log",
                "-1",
                "--format=%s",
                "wt",
            ],
        );
        assert_eq!(seen.ok().stdout, "one, amended\n", "{case:?}");
    }
}

#[test]
fn a_linked_working_tree_changes_nothing_that_another_tree_trusts() {
    for case in cases(&With::EACH) {
        let Some((team, common)) = team(case) else {
            continue;
        };
        let at = common.display();
        let config = std::fs::read(common.join("config")).unwrap();
        attack(
            &team,
            &[
                &format!("echo evil > {at}/hooks/pre-commit && echo BROKEN"),
                &format!("mv {at}/hooks {at}/moved && echo BROKEN"),
                "git config core.hooksPath /tmp && echo BROKEN",
                "git config --worktree core.hooksPath /tmp && echo BROKEN",
                &format!("echo x >> {at}/config && echo BROKEN"),
                &format!("echo x > {at}/info/attributes && echo BROKEN"),
                &format!("echo x > {at}/worktrees/other/commondir && echo BROKEN"),
                &format!("echo x > {at}/worktrees/other/HEAD && echo BROKEN"),
                &format!("mkdir {at}/worktrees/new && echo BROKEN"),
                &format!(
                    "rm -rf {at}/worktrees/other; [ -e {at}/worktrees/other/HEAD ] || echo BROKEN"
                ),
                "git worktree add -q ../third && echo BROKEN",
                "git branch -D packed && echo BROKEN",
                &format!("echo x > {at}/../planted && echo BROKEN"),
                &format!("rm -f {at}/logs/HEAD; ln -s ~/.bashrc {at}/logs/HEAD && echo BROKEN"),
                &format!("ln -s ~/.bashrc link; mv link {at}/logs/HEAD && echo BROKEN"),
                &format!(
                    "ln -s ~ {at}/logs/refs/heads/x && echo BROKEN; mkfifo {at}/logs/pipe && echo BROKEN"
                ),
                &format!("ln -s ~/.bashrc {at}/worktrees/tree/logs/link && echo BROKEN"),
            ],
        );
        if case.with.has_mounts() {
            attack(
                &team,
                &[
                    "git commit -q --allow-empty -m x; git replace HEAD HEAD~1 && echo BROKEN",
                    &format!("echo /tmp > {at}/objects/info/alternates && echo BROKEN"),
                    &format!("echo ../../../evil > {at}/worktrees/tree/commondir && echo BROKEN"),
                    &format!(
                        "mv {at}/worktrees/tree/commondir {at}/worktrees/tree/x && echo BROKEN"
                    ),
                    &format!("mv {at}/objects {at}/elsewhere && echo BROKEN"),
                    &format!("mv {at}/worktrees/tree {at}/worktrees/gone && echo BROKEN"),
                    "echo 'gitdir: /tmp/evil' > .git && echo BROKEN",
                ],
            );
        }
        assert_eq!(
            std::fs::read(common.join("config")).unwrap(),
            config,
            "{case:?}"
        );
        assert!(!common.join("hooks/pre-commit").exists(), "{case:?}");
    }
}

#[test]
fn a_file_that_a_command_made_gives_it_no_repository() {
    for case in cases(&With::EACH) {
        let Some(team) = case.team(&[]) else { continue };
        if !has(&team, "git") {
            return;
        }
        let victim = team.make_dir("../victim");
        git(&team, &["init", "-q", victim.to_str().unwrap()]);
        git(
            &team,
            &[
                "-C",
                victim.to_str().unwrap(),
                "commit",
                "-q",
                "--allow-empty",
                "-m",
                "first",
            ],
        );
        let tree = team.root().join("../linked");
        git(
            &team,
            &[
                "-C",
                victim.to_str().unwrap(),
                "worktree",
                "add",
                "-q",
                tree.to_str().unwrap(),
            ],
        );
        let git_dir = victim.join(".git").canonicalize().unwrap();
        works(
            &team,
            &[&format!(
                "echo 'gitdir: {}/worktrees/linked' > .git",
                git_dir.display()
            )],
        );
        attack(
            &team,
            &[
                &format!(
                    "echo x > {}/refs/heads/evil && echo BROKEN",
                    git_dir.display()
                ),
                &format!(
                    "echo x > {}/worktrees/linked/HEAD && echo BROKEN",
                    git_dir.display()
                ),
            ],
        );
    }
}

#[test]
fn a_repository_is_not_made_writable_by_name() {
    let Some((team, common)) = cases(&[With::All]).find_map(team) else {
        return;
    };
    for path in [common.clone(), common.join("objects")] {
        let refused = team
            .teamctl(["spawn", "bob", "--writable", path.to_str().unwrap()])
            .exits(2);
        assert!(
            refused.stderr.contains("linked working tree") && refused.stderr.contains("hooks"),
            "{refused:?}"
        );
    }
    // Nor as a workspace, where all of it is written.
    for path in [common.clone(), common.join("hooks")] {
        let refused = team
            .teamctl(["spawn", "bob", "--workspace", path.to_str().unwrap()])
            .exits(2);
        assert!(
            refused.stderr.contains("belongs to the repository"),
            "{refused:?}"
        );
    }
    // The same under another name.
    let bare = team.make_dir("../bare.git");
    git(&team, &["init", "-q", "--bare", bare.to_str().unwrap()]);
    team.teamctl(["spawn", "bob", "--writable", bare.to_str().unwrap()])
        .exits(2);
    team.teamctl(["spawn", "bob", "--workspace", bare.to_str().unwrap()])
        .exits(2);
    // A working tree can lie in a bare repository.
    let tree = team.make_dir("../bare.git/tree");
    team.teamctl(["spawn", "bob", "--workspace", tree.to_str().unwrap()])
        .ok();
}
