//! What lies outside the workspace is not written, what is secret is not read, and no key is in the
//! environment.

use std::os::unix::fs::symlink;

use super::{With, attack, python, teams, works};
use crate::support::Team;

/// Makes what is secret and what is not, in the home directory of the test, and a repository in the
/// workspace.
fn furnish(team: &Team) {
    let home = team.root().parent().unwrap().join("home");
    for folder in [
        ".ssh",
        ".aws",
        ".config/gh",
        ".docker",
        ".cargo",
        ".gnupg",
        ".kube",
    ] {
        std::fs::create_dir_all(home.join(folder)).unwrap();
    }
    for secret in SECRETS {
        team.write(&format!("../home/{secret}"), "hush");
    }
    team.write("../home/notes", "untouched");
    team.write(
        "../home/.gitconfig",
        "[user]\n  name = u\n  email = u@example.org\n",
    );
    std::fs::create_dir_all(team.root().join(".git/hooks")).unwrap();
    team.write(".git/config", "untouched");
}

const SECRETS: [&str; 9] = [
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".config/gh/hosts.yml",
    ".docker/config.json",
    ".cargo/credentials.toml",
    ".gnupg/private",
    ".kube/config",
    ".netrc",
    ".git-credentials",
];

fn nothing_outside(with: With) {
    let Some(team) = with.team(&[]) else { return };
    furnish(&team);
    let reads: Vec<String> = SECRETS
        .iter()
        .map(|secret| format!("grep -q hush ~/{secret} && echo BROKEN"))
        .collect();
    attack(&team, &reads.iter().map(String::as_str).collect::<Vec<_>>());
    attack(
        &team,
        &[
            "echo x >> ~/notes && echo BROKEN",
            "echo x > ~/planted && echo BROKEN",
            "mkdir ~/planted && echo BROKEN",
            "rm ~/notes && echo BROKEN",
            "mv ~/notes . && echo BROKEN",
            "ln ~/notes hard && echo x >> hard && echo BROKEN",
            "ln -s ~ out; echo x > out/planted && echo BROKEN",
            "echo x > ../planted && echo BROKEN",
            "echo x > /tmp/planted.$$ && echo BROKEN",
            "echo x > /var/tmp/planted.$$ && echo BROKEN",
            "echo x > /etc/planted && echo BROKEN",
            "echo x >> /etc/passwd && echo BROKEN",
            "echo x > /usr/bin/planted && echo BROKEN",
            "echo '|/bin/false' > /proc/sys/kernel/core_pattern && echo BROKEN",
            "echo 1 > /proc/sys/vm/drop_caches && echo BROKEN",
            "echo h > /proc/sysrq-trigger && echo BROKEN",
            "echo $$ > /sys/fs/cgroup/cgroup.procs && echo BROKEN",
            "mkdir /sys/fs/cgroup/planted && echo BROKEN",
            "mkdir /sys/fs/cgroup/unified/planted && echo BROKEN",
            // Its own: to leave it, to end all of the incarnation, to lift a limit.
            "own=$(sed -n s/^0:://p /proc/self/cgroup); for at in /sys/fs/cgroup /sys/fs/cgroup/unified; do \
             for file in cgroup.procs ../../cgroup.procs cgroup.kill memory.max pids.max; do \
             ( : >> $at$own/$file ) && echo BROKEN; done; mkdir $at$own/planted && echo BROKEN; done",
            "truncate -s 0 ~/notes && echo BROKEN",
            "cat /proc/[0-9]*/root/home/.ssh/id_ed25519 2>/dev/null | grep hush && echo BROKEN",
            "cat /proc/self/root$HOME/.ssh/id_ed25519 2>/dev/null | grep hush && echo BROKEN",
            "echo x > ~/.ssh/planted && echo BROKEN; mkdir ~/.gnupg/planted && echo BROKEN",
            "mv ~/.aws moved && echo BROKEN; rmdir ~/.kube && echo BROKEN",
            "ln -s ~/.ssh keys; cat keys/id_ed25519 | grep hush && echo BROKEN",
            "grep -E '^(CapEff|CapPrm|CapBnd|CapAmb):' /proc/self/status | grep -v 0000000000000000 && [ $UID = 0 ] && echo BROKEN",
        ],
    );
    let said = works(
        &team,
        &["cat ~/notes; [ -w \"$TMPDIR\" ] && echo x > \"$TMPDIR/x\" && echo ' temp'"],
    );
    assert_eq!(said, ["untouched temp"]);
    let home = team.root().parent().unwrap().join("home");
    assert_eq!(
        std::fs::read_to_string(home.join("notes")).unwrap(),
        "untouched"
    );
    assert!(!home.join("planted").exists());
}

#[test]
fn nothing_outside_is_written_and_no_secret_is_read() {
    nothing_outside(With::All);
}

#[test]
fn nothing_outside_is_written_through_bubblewrap_either() {
    nothing_outside(With::Bubblewrap);
}

#[test]
fn nothing_outside_is_written_without_namespaces_either() {
    nothing_outside(With::Bare);
}

#[test]
fn what_the_users_next_git_believes_is_not_written() {
    for with in [With::All, With::Bubblewrap] {
        let Some(team) = with.team(&[]) else { continue };
        furnish(&team);
        attack(
            &team,
            &[
                "echo x > .git/hooks/pre-commit && echo BROKEN",
                "echo x >> .git/config && echo BROKEN",
                "mv .git/hooks elsewhere && echo BROKEN",
                "rm -rf .git/hooks; [ -d .git/hooks ] || echo BROKEN",
                "mv .git gone && echo BROKEN",
                "mkdir new-hooks; mv -T new-hooks .git/hooks && echo BROKEN",
                "chmod 777 .git/hooks && echo BROKEN",
            ],
        );
        assert_eq!(team.text(".git/config"), "untouched");
        assert!(
            team.root()
                .join(".git/hooks")
                .read_dir()
                .unwrap()
                .next()
                .is_none()
        );
        works(
            &team,
            &["echo x > .git/index.lock && mv .git/index.lock .git/index"],
        );
    }
}

#[test]
fn missing_hooks_are_not_made_and_a_foreign_repository_is_not_named() {
    for with in [With::All, With::Bubblewrap] {
        let Some(team) = with.team(&[]) else { continue };
        std::fs::create_dir(team.root().join(".git")).unwrap();
        attack(
            &team,
            &[
                "mkdir .git/hooks && echo BROKEN; echo x > .git/hooks/pre-commit && echo BROKEN",
                "rmdir .git/hooks && echo BROKEN; mv .git/hooks .git/other && echo BROKEN",
                "mkdir new; echo x > new/pre-commit; mv -T new .git/hooks && echo BROKEN",
            ],
        );
        assert!(
            team.root()
                .join(".git/hooks")
                .read_dir()
                .unwrap()
                .next()
                .is_none(),
            "{with:?}"
        );
        works(
            &team,
            &["cd .git; echo x > index; echo ../evil | tee commondir config.worktree"],
        );
        for file in [".git/commondir", ".git/config.worktree"] {
            assert!(!team.made(file), "{with:?} {file}");
        }
        std::fs::remove_dir_all(team.root().join(".git")).unwrap();
        // A working tree, or a submodule.
        team.write(".git", "gitdir: untouched");
        attack(
            &team,
            &[
                "echo 'gitdir: evil' > .git && echo BROKEN",
                "rm -f .git && echo BROKEN",
                "mv .git moved && echo BROKEN",
                "echo 'gitdir: evil' > named; mv named .git && echo BROKEN",
            ],
        );
        let results = team.does("alice", "/write_file .git gitdir: evil");
        assert_eq!(results[0]["is_error"], true, "{results:?}");
        assert_eq!(team.text(".git"), "gitdir: untouched", "{with:?}");
    }
}

#[test]
fn no_key_is_in_the_environment() {
    let team = Team::new();
    let keys = [
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "MISTRAL_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "GITHUB_TOKEN",
        "NPM_TOKEN",
        "AZURE_OPENAI_KEY",
        "db_password",
        "CLIENT_SECRET",
    ];
    let team = keys
        .iter()
        .fold(team, |team, key| team.with(key, "sk-hush"))
        .with("JAVA_HOME", "yes");
    team.teamd(["start"]).ok();
    team.teamctl(["spawn", "alice", "--model", "script"]).ok();
    let said = attack(
        &team,
        &[
            "env | grep hush && echo BROKEN; echo $JAVA_HOME",
            "cat /proc/*/environ | tr '\\0' '\\n' | grep hush && echo BROKEN",
        ],
    );
    assert_eq!(said[0], "yes");
}

#[test]
fn a_key_that_is_named_in_the_settings_reaches_commands() {
    let team = Team::new()
        .with("GH_TOKEN", "hush")
        .with("NPM_TOKEN", "hush")
        .with("OPENAI_API_KEY", "hush");
    team.write("team.toml", "[sandbox]\nenv = [\"GH_TOKEN\"]\n");
    team.trust();
    team.teamd(["start"]).ok();
    team.teamctl(["spawn", "alice", "--model", "script"]).ok();
    assert_eq!(
        works(&team, &["echo $GH_TOKEN; env | grep -c hush"]),
        ["hush\n1"]
    );
    team.teamctl(["shutdown", "alice"]).ok();
    team.teamctl(["spawn", "alice", "--resume"]).ok();
    assert_eq!(works(&team, &["env | grep hush"]), ["GH_TOKEN=hush"]);
    team.write("team.toml", "[sandbox]\nenv = [\"OPENAI_API_KEY\"]\n");
    let refused = team.teamctl(["spawn", "bob"]).run_failed().stderr;
    assert!(refused.contains("is a model's key"), "{refused}");
}

#[test]
fn what_is_allowed_by_name_may_be_written() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        let cache = team.root().parent().unwrap().join("home/cache");
        std::fs::create_dir(&cache).unwrap();
        team.teamctl(["spawn", "bob", "--writable", cache.to_str().unwrap()])
            .ok();
        attack(&team, &["echo x > ~/cache/new && echo BROKEN"]);
        let results = team.does("bob", "/bash echo x > ~/cache/new && cat ~/cache/new");
        assert_eq!(results[0]["content"], "x", "{with:?}");
    }
}

#[test]
fn caches_may_be_written_and_the_programs_beside_them_may_not() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        for folder in [
            ".cargo/registry/src",
            ".cargo/bin",
            ".npm/_cacache",
            ".npm/_npx/1",
            ".cache/pip",
            ".local/bin",
        ] {
            team.make_dir(&format!("../home/{folder}"));
        }
        team.write("../home/.cargo/bin/cargo", "genuine");
        let writes = "/bash cd ~; for d in .cargo/registry .npm/_cacache .cache/pip; do echo new > $d/new && cat $d/new; done";
        let attacks = "/bash cd ~; for p in .cargo .cargo/bin .npm .npm/_npx .cache .local .local/bin; do \
            ( echo x > $p/planted ) 2> /dev/null && echo BROKEN $p; done; \
            for p in .cargo/bin .npm/_npx .local/bin .cargo/registry; do mv $p $p-2 2> /dev/null && echo BROKEN $p; done; \
            ( echo x >> .cargo/bin/cargo ) 2> /dev/null && echo BROKEN; \
            rm -rf .cargo/registry/src; ln -s ../bin .cargo/registry/src && \
            ( echo x >> .cargo/registry/src/cargo ) 2> /dev/null && echo BROKEN; \
            ln .cargo/bin/cargo .cargo/registry/cargo 2> /dev/null && echo x >> .cargo/registry/cargo && echo BROKEN; true";
        team.teamctl(["spawn", "bob", "--caches"]).ok();
        // By the key of a file, too, and only of those for whom it stands there.
        team.write("team.toml", "members.carol.sandbox.caches = true\n");
        let refused = team.teamctl(["spawn", "carol"]).exits(3).stderr;
        assert!(
            refused.contains("members.carol.sandbox.caches = true"),
            "{refused}"
        );
        team.trust();
        team.teamctl(["spawn", "carol"]).ok();
        for name in ["bob", "carol"] {
            let results = team.does(name, &format!("{writes}\n{attacks}"));
            assert_eq!(
                results[0]["content"], "new\nnew\nnew",
                "{with:?} {results:?}"
            );
            let attacked = results[1]["content"].to_string();
            assert!(!attacked.contains(super::BROKEN), "{with:?} {attacked}");
        }
        attack(
            &team,
            &["( echo x > ~/.cargo/registry/alice ) 2> /dev/null && echo BROKEN; true"],
        );
        let home = team.root().parent().unwrap().join("home");
        assert_eq!(
            std::fs::read_to_string(home.join(".cargo/bin/cargo")).unwrap(),
            "genuine"
        );
    }
}

#[test]
fn what_is_allowed_by_name_is_found_once_and_by_no_link_of_a_tool() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        let home = team.root().parent().unwrap().join("home");
        std::fs::create_dir(home.join("cache")).unwrap();
        std::fs::create_dir(team.root().join("own")).unwrap();
        symlink("cache", home.join("link")).unwrap();
        team.write(
            "team.toml",
            "sandbox.writable = [\"~/link\", \"own\", \"~/missing\"]",
        );
        team.trust();
        team.teamctl(["spawn", "bob"]).ok();
        let orders = "/bash echo x > ~/cache/new && cat ~/cache/new\n/bash rmdir own && ln -s ~ own\n\
            /bash echo x > ~/planted && echo BROKEN; [ -L own ] && echo x > own/planted && echo BROKEN; true";
        let results = team.does("bob", orders);
        assert_eq!(results[0]["content"], "x", "{with:?} {results:?}");
        // It is not found anew by another incarnation, and by none that begins afresh.
        team.teamctl(["shutdown", "bob"]).ok();
        works(&team, &["[ -L own ] || { rmdir own && ln -s ~ own; }"]);
        let refused = team.teamctl(["spawn", "bob"]).exits(2).stderr;
        assert!(
            refused.contains("own is a symbolic link in"),
            "{with:?} {refused}"
        );
        team.teamctl(["spawn", "bob", "--resume"]).ok();
        team.does(
            "bob",
            "/bash echo x > ~/planted && echo BROKEN; [ -L own ] && echo x > own/planted && echo BROKEN; true",
        );
        let said: Vec<_> = team
            .results("bob")
            .iter()
            .map(|result| result["content"].to_string())
            .collect();
        assert!(
            !said.iter().any(|said| said.contains(super::BROKEN)),
            "{with:?} {said:?}"
        );
        assert!(!home.join("planted").exists(), "{with:?}");
    }
}

#[test]
fn a_workspace_that_another_teammate_has_made_a_link_of_is_not_used() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        let home = team.root().parent().unwrap().join("home");
        std::fs::create_dir(team.root().join("sub")).unwrap();
        team.teamctl(["spawn", "bob", "--workspace", "sub", "--restart", "never"])
            .ok();
        assert_eq!(
            team.does("bob", "/bash echo x > new && cat new")[0]["content"],
            "x",
            "{with:?}"
        );
        works(&team, &["mv sub old && ln -s ~ sub"]);
        team.does("bob", "/bash echo x > planted; echo x > ~/planted");
        assert!(!home.join("planted").exists(), "{with:?}");
        team.teamctl(["shutdown", "bob"]).ok();
        let again = ["spawn", "bob", "--resume", "--restart", "never"];
        let refused = team.teamctl(again).run_failed().stderr;
        assert!(
            refused.contains("on the way to the workspace"),
            "{with:?} {refused}"
        );
        team.teamctl(again.iter().chain(&["--workspace", "old"]))
            .ok();
        assert_eq!(
            team.does("bob", "/bash cat new")[0]["content"],
            "x",
            "{with:?}"
        );
    }
}

#[test]
fn nothing_in_the_team_directory_is_allowed_by_name() {
    for with in [With::All, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        symlink(
            team.path("inbox").canonicalize().unwrap(),
            team.root().parent().unwrap().join("home/link"),
        )
        .unwrap();
        team.write("team.toml", "sandbox.writable = [\"~/link\"]");
        team.trust();
        let refused = team
            .teamctl(["spawn", "bob", "--restart", "never"])
            .run_failed()
            .stderr;
        assert!(
            refused.contains("lies in the team directory"),
            "{with:?} {refused}"
        );
    }
}

#[test]
fn what_is_off_by_name_is_not_confined() {
    let team = Team::started();
    team.teamctl(["spawn", "alice", "--sandbox", "off"]).ok();
    let results = team.does(
        "alice",
        "/bash echo x > ~/new && grep Seccomp: /proc/self/status",
    );
    assert_eq!(results[0]["content"], "Seccomp:\t0");
    assert!(team.root().parent().unwrap().join("home/new").exists());
}

#[test]
fn the_temporary_directory_lives_as_long_as_the_incarnation() {
    let team = Team::started();
    team.spawn("alice", "");
    let said = works(
        &team,
        &["echo kept > $TMPDIR/file; echo $TMPDIR", "cat $TMPDIR/file"],
    );
    assert_eq!(said[1], "kept");
    let temp = std::path::PathBuf::from(&said[0]);
    assert!(temp.is_dir());
    team.teamctl(["shutdown", "alice"]).ok();
    assert!(!temp.exists());
}

/// Findings H10 and H14.
#[test]
fn a_named_pipe_outside_is_not_written_where_landlock_holds() {
    const PIPE: &str = "import os, sys\n\
        tried('write', lambda: os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK), b'command'))\n";
    for flags in [&[][..], &["--sandbox", "read-only"]] {
        for (case, team) in teams(&[With::All, With::Bubblewrap, With::Bare], flags) {
            let Some(program) = python(&team, "pipe.py", PIPE) else {
                return;
            };
            let pipe = team
                .make_dir("../home/pipes")
                .canonicalize()
                .unwrap()
                .join("commands");
            nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
            team.give(&pipe);
            let reader = std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(&pipe)
                .unwrap();
            attack(&team, &[&format!("{program} {}", pipe.display())]);
            rustix::io::ioctl_fionbio(&reader, true).unwrap();
            assert!(
                rustix::io::read(&reader, &mut [0_u8; 8][..]).is_err(),
                "{case:?}"
            );
        }
    }
}
