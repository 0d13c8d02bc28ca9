//! `teamctl spawn` and `teamctl chat` start the daemon if none runs, as `teamd start` does without
//! a terminal.

use std::thread;

use crate::support::{Run, Team};

fn chat(team: &Team, said: &str) -> Run {
    team.teamctl_with(["chat"], said)
}

#[test]
fn the_first_spawn_starts_the_daemon_once_and_says_so() {
    let team = Team::new();
    let first = team.teamctl(["spawn", "alice"]).ok();
    let path = team.root().join(".team");
    let said = format!(
        "started teamd (pid {}) for {}\n",
        team.daemon_pid(),
        path.display()
    );
    assert!(first.stderr.starts_with(&said), "{first:?}");
    let second = team.teamctl(["spawn", "bob"]).ok();
    assert!(!second.stderr.contains("started teamd"), "{second:?}");
    // Programs get the result alone.
    let other = Team::new();
    let json = other.teamctl(["--json", "spawn", "alice"]).ok();
    assert_eq!(
        (json.json()["name"].as_str(), json.stderr.as_str()),
        (Some("alice"), "")
    );
}

#[test]
fn of_two_commands_at_once_one_starts_the_daemon() {
    let team = Team::new();
    let runs: Vec<_> = thread::scope(|scope| {
        let names = ["alice", "bob", "carol"].map(|name| {
            let team = &team;
            scope.spawn(move || team.teamctl(["spawn", name]).ok())
        });
        names
            .map(|running| running.join().unwrap())
            .into_iter()
            .collect()
    });
    let starts = runs
        .iter()
        .filter(|run| run.stderr.contains("started teamd"))
        .count();
    assert_eq!(
        (starts, team.roster()["members"].as_array().unwrap().len()),
        (1, 3),
        "{runs:?}"
    );
}

#[test]
fn a_command_that_fails_leaves_no_daemon_that_it_has_started() {
    let team = Team::new();
    let run = team
        .teamctl(["spawn", "alice", "--model", "script", "--checkout"])
        .exits(7);
    assert!(run.stderr.contains("stopped teamd again"), "{run:?}");
    team.until_no_process_is_left();
    let run = chat(&team, "").exits(2);
    assert!(
        run.stderr.contains("there is no message on stdin"),
        "{run:?}"
    );
    team.until_no_process_is_left();
    assert!(
        team.teamctl(["down"])
            .ok()
            .stdout
            .contains("is not running")
    );
    // One that ran before stays.
    team.teamd(["start"]).ok();
    chat(&team, "").exits(2);
    team.teamctl(["spawn", "alice", "--checkout"]).exits(7);
    team.teamctl(["status"]).ok();
    assert!(team.teamctl(["down"]).ok().stdout.contains("has stopped"));
}

#[test]
fn a_flag_a_variable_and_the_file_switch_it_off() {
    let team = Team::new();
    team.teamctl(["spawn", "alice", "--no-start"]).exits(6);
    team.write("team.toml", "auto_start = false\n");
    team.teamctl(["spawn", "alice"]).exits(6);
    chat(&team, "hi").exits(6);
    assert!(!team.path("").exists());
    let team = team.with("TEAM_AUTO_START", "true");
    team.teamctl(["spawn", "alice"]).ok();
    let off = Team::new().with("TEAM_AUTO_START", "false");
    off.teamctl(["spawn", "alice"]).exits(6);
    Team::new()
        .with("TEAM_AUTO_START", "maybe")
        .teamctl(["spawn", "alice"])
        .exits(2);
}

#[test]
fn nothing_is_started_that_is_not_trusted_or_could_not_be_done() {
    let team = Team::new();
    team.write("team.toml", "[sandbox]\nmode = 'off'\n");
    let refused = team.teamctl(["spawn", "alice"]).exits(3);
    assert!(refused.stderr.contains("teamd trust"), "{refused:?}");
    let refused = chat(&team, "hi").exits(3);
    assert!(refused.stderr.contains("teamd trust"), "{refused:?}");
    team.write("team.toml", "");
    team.teamctl(["spawn", "alice", "--model", "anthropic"])
        .exits(2);
    assert!(!team.path("").exists());
    // A team directory that another program made is not adopted.
    std::fs::create_dir_all(team.path("inbox")).unwrap();
    team.teamctl(["spawn", "alice"]).exits(6);
    assert!(!team.path("journal.jsonl").exists());
}

#[test]
fn in_the_home_directory_no_daemon_starts_by_itself() {
    let team = Team::new();
    for command in [
        ["teamctl", "spawn", "alice"],
        ["teamctl", "chat", "--fresh"],
    ] {
        let run = team.run_in(&team.home(), command).exits(6);
        assert!(
            run.stderr.contains("home directory") && run.stderr.contains("hint: "),
            "{run:?}"
        );
    }
    assert!(!team.home().join(".team").exists());
}
