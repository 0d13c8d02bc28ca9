//! What a spawn takes, gives and refuses.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{Team, is_alive, signal};

#[test]
fn spawn_returns_when_the_worker_is_ready() {
    let team = Team::started();
    let spawned = team.spawn("alice", "");
    assert_eq!(spawned["name"], "alice");
    assert_eq!(spawned["incarnation"], 1);
    assert_eq!(spawned["status"], "idle");
    let pid = i32::try_from(spawned["pid"].as_i64().unwrap()).unwrap();
    assert!(is_alive(pid));
    let member = team.member("alice");
    assert_eq!(
        (&member["pid"], &member["status"]),
        (&spawned["pid"], &spawned["status"]),
        "config.json shows it"
    );
    assert_eq!(member["gate"], "open");
    assert_eq!(
        member["workspace"],
        team.root().canonicalize().unwrap().to_str().unwrap()
    );
    assert!(member["exit"].is_null());
}

#[test]
fn a_prompt_comes_from_the_command_line_a_file_or_standard_input() {
    let team = Team::started();
    std::fs::File::create(team.root().join("prompt")).unwrap();
    let fill = team
        .command("sh", ["-c", "echo '/write_file bob.txt hi' > prompt"])
        .status()
        .unwrap();
    assert!(fill.success());
    team.teamctl(["spawn", "alice", "--prompt", "/write_file alice.txt hi"])
        .ok();
    team.teamctl(["spawn", "bob", "--prompt-file", "prompt"])
        .ok();
    team.teamctl_with(
        ["spawn", "carol", "--prompt-file", "-"],
        "/write_file carol.txt hi\n",
    )
    .ok();
    for name in ["alice", "bob", "carol"] {
        team.until("its file", || {
            team.root().join(format!("{name}.txt")).exists()
        });
    }
}

/// Names like `../../x`, `a/b`, the empty one and `lead` are accepted (two teaching systems).
/// Failure 23 (A, B).
#[test]
fn a_name_that_is_ill_formed_or_reserved_is_refused_and_makes_nothing() {
    let team = Team::started();
    let before = (
        team.file("journal.jsonl"),
        std::fs::read_dir(team.path("inbox")).unwrap().count(),
    );
    let long = "x".repeat(33);
    let names = [
        "../../x", "a/b", "", "lead", "user", "all", "teamd", "runtime", "Alice", "a b", ".",
        "a.jsonl", "ä", "_a", "a\n", &long,
    ];
    for name in names {
        let said = team.teamctl(["spawn", "--", name]).exits(2);
        assert!(said.stderr.contains("error: "), "{said:?}");
    }
    team.teamctl(["spawn", "-x"]).exits(2);
    assert_eq!(
        before,
        (
            team.file("journal.jsonl"),
            std::fs::read_dir(team.path("inbox")).unwrap().count()
        )
    );
    assert_eq!(team.roster()["members"], serde_json::json!([]));
}

/// `runtime` became the sender of what a worker tells its own teammate.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the journal of an earlier version is made"
)]
fn a_member_whose_name_is_no_longer_given_is_read_and_forgotten_but_never_begins() {
    let team = Team::started();
    team.spawn("bob", "");
    team.teamctl(["shutdown", "bob"]).ok();
    team.teamd(["stop"]).ok();
    let journal = team.file("journal.jsonl");
    let old = journal.replace("\"bob\"", "\"runtime\"");
    assert_ne!(journal, old);
    std::fs::write(team.path("journal.jsonl"), old).unwrap();
    std::fs::rename(
        team.path("inbox/bob.jsonl"),
        team.path("inbox/runtime.jsonl"),
    )
    .unwrap();

    team.teamd(["start"]).ok();
    assert_eq!(team.member("runtime")["status"], "shutdown");
    for args in [&["spawn", "runtime"][..], &["spawn", "runtime", "--resume"]] {
        let refused = team.teamctl(args).exits(2);
        assert!(refused.stderr.contains("is reserved"), "{refused:?}");
    }
    team.teamctl(["forget", "runtime"]).ok();
    assert_eq!(team.roster()["members"], serde_json::json!([]));
}

#[test]
fn a_name_that_is_taken_is_refused_and_the_taker_goes_on() {
    let team = Team::started();
    team.spawn("alice", "");
    let pid = team.pid("alice");
    let said = team.teamctl(["--json", "spawn", "alice"]).exits(7);
    let error: Value =
        serde_json::from_str(&said.stderr).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    assert_eq!(error["error"]["code"], "conflict");
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("alice"),
        "{error}"
    );
    assert!(!error["error"]["hint"].as_str().unwrap().is_empty());
    assert_eq!((team.pid("alice"), team.incarnation("alice")), (pid, 1));
}

#[test]
fn a_missing_worker_program_is_said() {
    let team = Team::new().with("TEAM_WORKER", "/nowhere/team-worker");
    for start in [&["start"][..], &["start", "--allow-weak-sandbox"]] {
        let said = team.teamd(start).exits(1);
        assert!(
            said.stderr.contains("/nowhere/team-worker") && said.stderr.contains("hint: "),
            "{said:?}"
        );
    }
    team.teamctl(["status"]).exits(6);
}

#[test]
fn a_worker_that_ends_before_it_is_ready_is_given_up_and_the_spawn_fails() {
    let team = Team::new().with("TEAM_WORKER", "/bin/false");
    team.teamd(["start", "--allow-weak-sandbox"]).ok();
    let said = team.teamctl(["spawn", "alice"]).exits(1);
    assert!(said.stderr.contains("alice"), "{said:?}");
    team.wait_for("alice", "crashed");
    team.teamd(["stop"]).ok();
}

#[test]
fn a_missing_workspace_is_said() {
    let team = Team::started();
    let said = team
        .teamctl(["spawn", "alice", "--workspace", "/nowhere/at/all"])
        .run_failed();
    assert!(said.stderr.contains("/nowhere/at/all"), "{said:?}");
    assert_ne!(team.status("alice"), "idle");
    // One that goes away later: the restart fails, and says so.
    let workspace = team.root().join("there");
    std::fs::create_dir(&workspace).unwrap();
    team.teamctl(["spawn", "bob", "--workspace", "there"]).ok();
    assert_eq!(
        team.member("bob")["workspace"],
        workspace.canonicalize().unwrap().to_str().unwrap()
    );
    std::fs::remove_dir(&workspace).unwrap();
    signal(team.pid("bob"), Signal::SIGKILL);
    team.wait_for("bob", "crashed");
    assert!(
        team.teamctl(["status", "bob"])
            .ok()
            .stdout
            .contains("there"),
        "it says why"
    );
}

/// Failure 26 (a vendor's CLI, measured).
#[test]
fn environment_and_umask_reach_the_tools_and_keys_do_not() {
    let team = Team::started();
    let spawn = format!(
        "umask 027; export COLORTERM=turquoise-7f3a ANTHROPIC_API_KEY=sk-ant-secret OPENAI_API_KEY=sk-oai-secret; \
         exec {} spawn alice --model script --prompt '/bash env > env.txt; umask > umask.txt; : > made'",
        env!("CARGO_BIN_EXE_teamctl")
    );
    assert!(
        team.command("sh", ["-c", &spawn])
            .status()
            .unwrap()
            .success()
    );
    let read = |file: &str| std::fs::read_to_string(team.root().join(file)).unwrap_or_default();
    let check = || {
        team.until("the tool to have run", || team.root().join("made").exists());
        let env = read("env.txt");
        assert!(
            env.lines().any(|line| line == "COLORTERM=turquoise-7f3a"),
            "{env}"
        );
        assert!(!env.contains("secret"), "{env}");
        assert_eq!(read("umask.txt").trim(), "0027");
    };
    check();
    // The worker itself has no key in its environment either, where the kernel shows it.
    let environment =
        std::fs::read(format!("/proc/{}/environ", team.pid("alice"))).unwrap_or_default();
    assert!(!String::from_utf8_lossy(&environment).contains("secret"));
    // A restart by the policy has the same, and so has one after the daemon was restarted in
    // between.
    for daemon_too in [false, true] {
        team.wait_for("alice", "idle");
        if daemon_too {
            team.kill_daemon();
            team.teamd(["start"]).ok();
            // With its connection it gives its environment back.
            team.until("alice to be connected", || {
                team.teamctl(["interrupt", "alice"]).is_done()
            });
        }
        team.kill_and_wait_for_restart("alice");
        std::fs::remove_file(team.root().join("made")).unwrap();
        team.send("alice", "/bash env > env.txt; umask > umask.txt; : > made");
        check();
    }
    let mut folders = vec![team.path("")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text =
                String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned();
            assert!(
                !text.contains("secret"),
                "a key stands in {}",
                path.display()
            );
            assert!(
                !text.contains("turquoise-7f3a"),
                "the environment stands in {}",
                path.display()
            );
        }
    }
}
