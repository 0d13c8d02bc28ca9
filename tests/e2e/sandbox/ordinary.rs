//! Ordinary work is not broken: repositories, compilers, interpreters, pipes, jobs, servers on this
//! machine.

use super::{With, attack, has, python, teams, works};
use crate::support::Team;

/// A server and a client on this machine.
pub(super) const LOCALHOST: &str = r#"
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
def serve():
    connection, _ = server.accept()
    print("heard", connection.recv(16).decode())
thread = threading.Thread(target=serve)
thread.start()
client = socket.create_connection(server.getsockname())
client.sendall(b"hello")
client.close()
thread.join()
"#;

/// The variables with which `cargo` finds its toolchain although the home directory is another one;
/// none, and the reason printed, without `cargo`.
pub(super) fn toolchain(team: &Team) -> Option<String> {
    let home = std::env::home_dir()?;
    let named = |name: &str, default: &str| {
        let path = std::env::var_os(name).map_or_else(|| home.join(default), Into::into);
        format!("{name}={}", path.display())
    };
    let environment = [
        named("RUSTUP_HOME", ".rustup"),
        named("CARGO_HOME", ".cargo"),
    ]
    .join(" ");
    let version = team
        .command("bash", ["-c", &format!("{environment} cargo --version")])
        .output()
        .unwrap();
    if !version.status.success() {
        println!("skipped: there is no cargo here");
    }
    version.status.success().then_some(environment)
}

/// A package with one test.
pub(super) fn package(team: &Team) {
    std::fs::create_dir_all(team.root().join("src")).unwrap();
    team.write(
        "Cargo.toml",
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    );
    team.write(
        "src/lib.rs",
        "#[test]\nfn two() {\n    assert_eq!(1 + 1, 2);\n}\n",
    );
}

const EVERYWHERE: [With; 3] = [With::All, With::Bubblewrap, With::Bare];

#[test]
fn pipes_jobs_and_devices_work() {
    for with in EVERYWHERE {
        let Some(team) = with.team(&[]) else { continue };
        let said = works(
            &team,
            &[
                "seq 1 1000 | sort -rn | head -1",
                "diff <(echo a) <(echo a) && echo same",
                "sleep 0.05 & sleep 0.01 & wait; jobs -r; echo done",
                "set -m; sleep 5 & kill %1; wait %1 2> /dev/null; echo $?",
                "trap 'echo heard' USR1; (sleep 0.01; kill -USR1 $$) & wait; true",
                "echo x > /dev/null; head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c",
                "echo to stderr > /dev/stderr; echo to stdout > /dev/stdout",
                "cat << END | tee file\nheredoc\nEND",
                "mkfifo pipe; (echo through > pipe) & cat pipe",
                "read line; echo \"nothing to read: $?\"",
                "[ -t 0 ] || echo no terminal; (: < /dev/tty) 2>/dev/null || echo none at all",
            ],
        );
        let expected = [
            "1000",
            "same",
            "done",
            "143",
            "heard",
            "4\n4",
            "to stderr\nto stdout",
            "heredoc",
            "through",
            "nothing to read: 1",
            "no terminal\nnone at all",
        ];
        assert_eq!(said, expected, "{with:?}");
        // Else it is the machine's.
        if with.has_mounts() {
            assert_eq!(
                works(
                    &team,
                    &["echo x > /dev/shm/x && cat /dev/shm/x; rm /dev/shm/x"]
                ),
                ["x"]
            );
        }
    }
}

#[test]
fn a_repository_is_made_and_committed_to() {
    for with in EVERYWHERE {
        let Some(team) = with.team(&[]) else { continue };
        if !has(&team, "git") {
            return;
        }
        team.write(
            "../home/.gitconfig",
            "[user]\n  name = u\n  email = u@example.org\n",
        );
        let said = works(
            &team,
            &[
                "git init -q . && echo one > file && git add file && git commit -qm one && git log --oneline | wc -l",
                "echo two >> file && git commit -qam two && git checkout -qb branch && git stash list && git gc -q && \
                 git rebase -q HEAD~1 && git log --oneline | wc -l",
            ],
        );
        assert_eq!(said, ["1", "2"], "{with:?}");
    }
}

#[test]
fn python_forks_pools_waits_and_serves() {
    const WORK: &str = r#"
import asyncio, multiprocessing, subprocess, sys, tempfile
def square(n):
    return n * n
async def main():
    process = await asyncio.create_subprocess_exec("echo", "async", stdout=subprocess.PIPE)
    out, _ = await process.communicate()
    return out.decode().strip()
if __name__ == "__main__":
    print(subprocess.run(["echo", "subprocess"], capture_output=True, text=True).stdout.strip())
    with multiprocessing.Pool(2) as pool:
        print(sum(pool.map(square, range(4))))
    print(asyncio.run(main()))
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
    print("temp")
"#;
    for with in EVERYWHERE {
        // Its locks lie in shared memory, which is the machine's where there are no namespaces.
        let flags: &[&str] = if with.has_mounts() {
            &[]
        } else {
            &["--writable", "/dev/shm"]
        };
        let Some(team) = with.team(flags) else {
            continue;
        };
        let Some(work) = python(&team, "work.py", WORK) else {
            return;
        };
        let Some(localhost) = python(&team, "localhost.py", LOCALHOST) else {
            return;
        };
        let said = works(&team, &[&work, &localhost]);
        assert_eq!(
            said,
            ["subprocess\n14\nasync\ntemp", "heard hello"],
            "{with:?}"
        );
    }
}

#[test]
fn node_and_npm_work() {
    const FORK: &str = "const { fork } = require('child_process');\n\
        if (process.send) { process.send('from the child'); }\n\
        else { fork(__filename).on('message', (said) => { console.log(said); }); }\n";
    for with in [With::All, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        if !has(&team, "node") || !has(&team, "npm") {
            return;
        }
        team.write("fork.js", FORK);
        let said = works(
            &team,
            &[
                "node fork.js",
                "npm_config_cache=$TMPDIR/npm npm init -y > /dev/null && cat package.json",
            ],
        );
        assert!(
            said[0] == "from the child" && said[1].contains("\"version\""),
            "{said:?}"
        );
    }
}

#[test]
fn a_crate_is_built_and_tested() {
    for with in [With::All, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        let Some(environment) = toolchain(&team) else {
            return;
        };
        package(&team);
        let said = works(
            &team,
            &[&format!("{environment} cargo test --offline 2>&1")],
        );
        assert!(said[0].contains("1 passed"), "{said:?}");
    }
}

#[test]
fn a_program_that_waits_for_input_is_given_none() {
    let Some(team) = With::All.team(&[]) else {
        return;
    };
    let results = team.does(
        "alice",
        "/bash cat; echo end of input\n/bash head -c 3 /dev/zero; printf '\\xff\\x1b[2J'",
    );
    assert_eq!(results[0]["content"], "end of input");
    assert_eq!(
        results[1]["content"], "\u{fffd}",
        "a model gets what a terminal would show"
    );
}

#[test]
fn how_a_command_ended_is_told_as_without_a_sandbox() {
    for with in EVERYWHERE {
        let Some(team) = with.team(&[]) else { continue };
        let results = team.does(
            "alice",
            "/bash exit 3\n/bash kill -9 $$\n/bash nonsense-that-is-no-program",
        );
        let said: Vec<&str> = results
            .iter()
            .map(|result| result["content"].as_str().unwrap())
            .collect();
        assert_eq!(
            &said[..2],
            ["[exit code 3]", "[ended by signal 9]"],
            "{with:?}"
        );
        assert!(said[2].ends_with("[exit code 127]"), "{said:?}");
    }
}

#[test]
fn a_history_is_made_changed_and_cleaned_up() {
    for (case, team) in teams(&With::EACH, &[]) {
        if !has(&team, "git") {
            return;
        }
        team.write(
            "../home/.gitconfig",
            "[user]\n  name = u\n  email = u@example.org\n[init]\n  defaultBranch = main\n",
        );
        let said = works(
            &team,
            &[
                "git init -q && echo one > file && git add file && git commit -qm one && echo two >> file && \
                 git commit -qam two && git commit -q --amend -m 'two, better' && git log --format=%s",
                "git switch -qc side HEAD~1 && echo other > other && git add other && git commit -qm other && \
                 git rebase -q main && git log --format=%s",
                "echo kept >> file && git stash -q && git stash list | wc -l && git stash pop -q && tail -1 file",
                "git tag v1 && git tag -am annotated v2 && git tag | tr '\\n' ' '",
                "git reset -q --hard HEAD~1 && touch untracked && mkdir -p build/deep && touch build/deep/x && git clean -qfd -e .team && ls",
                "git switch -q main && git merge -q v1 && git branch -qD side 2> refused; git branch --list side; \
                 rm refused; git worktree list | wc -l",
                "git gc -q && git fsck --no-dangling --no-progress 2>&1 && git status --short -uno | wc -l",
            ],
        );
        let expected = [
            "two, better\none",
            "other\ntwo, better\none",
            "1\nkept",
            "v1 v2",
            "file",
            "1",
            "0",
        ];
        let said: Vec<_> = said.iter().map(|said| said.trim_end()).collect();
        assert_eq!(said, expected, "{case:?}");
        assert_eq!(team.text("other"), "other\n", "{case:?}");
    }
}

#[test]
fn the_team_directory_is_nothing_that_git_cleans_up_or_adds() {
    // Without mounts it is a link, which a command may remove.
    for (case, team) in teams(&[With::All, With::NoLandlock, With::Bubblewrap], &[]) {
        if !has(&team, "git") {
            return;
        }
        let said = works(
            &team,
            &[
                "git init -q && touch build && git clean -fd && git add -A && git status --short && ls -a .team",
            ],
        );
        assert_eq!(said, ["Removing build\n.\n..\n.gitignore"], "{case:?}");
        attack(
            &team,
            &[
                "echo x > .team/.gitignore && echo BROKEN; rm -f .team/.gitignore && echo BROKEN; touch .team/x && echo BROKEN",
            ],
        );
    }
}

#[test]
fn make_builds_what_has_changed() {
    for (case, team) in teams(&With::EACH, &[]) {
        if !has(&team, "make") {
            return;
        }
        team.write(
            "Makefile",
            "all: a.out b.out\n%.out: %.in\n\tsort $< > $@\n",
        );
        team.write("a.in", "2\n1\n");
        team.write("b.in", "b\na\n");
        let said = works(
            &team,
            &[
                "make -sj2 && cat a.out b.out",
                "make -q && echo nothing to do",
            ],
        );
        assert_eq!(said, ["1\n2\na\nb", "nothing to do"], "{case:?}");
    }
}

#[test]
fn modes_times_and_links_are_copied_unpacked_and_installed() {
    const SHOWN: &str = "stat -c '%n %a %F' * | sort; readlink link; stat -c %Y run";
    for (case, team) in teams(&With::EACH, &[]) {
        let said = works(
            &team,
            &[
                &format!(
                    "umask 022; mkdir from && cd from && echo x > run && chmod 755 run && echo x > own && chmod 600 own && echo x > read && \
                     chmod 444 read && mkdir -m 750 folder && ln -s run link && touch -d @86400 run && {SHOWN}"
                ),
                &format!(
                    "tar -cf all.tar -C from . && mkdir unpacked && tar -xpf all.tar -C unpacked && cd unpacked && {SHOWN}"
                ),
                &format!("cp -a from copied && cd copied && {SHOWN}"),
                "install -D -m 755 from/own bin/own && install -d -m 700 private && stat -c %a bin/own private",
            ],
        );
        assert!(
            said[0].contains("run 755 regular file") && said[0].ends_with("run\n86400"),
            "{case:?} {said:?}"
        );
        assert!(
            said[1] == said[0] && said[2] == said[0],
            "{case:?} {said:#?}"
        );
        assert_eq!(said[3], "755\n700", "{case:?}");
    }
}

#[test]
fn an_archive_with_a_setuid_program_is_unpacked_without_the_bit() {
    for (case, team) in teams(&With::EACH, &[]) {
        team.make_dir("packed");
        for file in ["packed/a", "packed/program", "packed/z"] {
            team.write(file, "x");
        }
        team.run_program("chmod", ["6755", "packed/program"]).ok();
        team.run_program("tar", ["-cf", "packed.tar", "packed"])
            .ok();
        team.run_program("rm", ["-r", "packed"]).ok();
        // Each program says what it could not do, and goes on.
        let said = attack(
            &team,
            &[
                "tar -xpf packed.tar; ls packed; [ -u packed/program -o -g packed/program ] && echo BROKEN; rm -r packed",
                "tar -xf packed.tar; ls packed; [ -u packed/program -o -g packed/program ] && echo BROKEN; true",
                "cp -a packed copied && ls copied",
            ],
        );
        for said in &said {
            assert!(said.contains("a\nprogram\nz"), "{case:?} {said}");
        }
    }
}

#[test]
fn a_workspace_of_a_group_is_worked_in() {
    for (case, team) in teams(&With::EACH, &[]) {
        let shared = team.make_dir("shared");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o2775);
        std::fs::set_permissions(shared, mode).unwrap();
        let said = works(
            &team,
            &[
                "cd shared && umask 022 && mkdir -p a/b && echo x > a/b/f && cp -r a c && mkdir -m 700 own && install -d -m 755 d && \
               stat -c '%n %a' a c/b c/b/f own d",
            ],
        );
        // What is made in a directory with the setgid bit is the group's as well.
        assert_eq!(
            said,
            ["a 2755\nc/b 2755\nc/b/f 644\nown 2700\nd 2755"],
            "{case:?}"
        );
    }
}
