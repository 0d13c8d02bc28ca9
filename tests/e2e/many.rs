//! Several teammates at once: `up`, `down` and `logs`.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{Team, is_alive, read_piece};

const CODERS: &str = "[roles.coder]\nprompt = \"Write code.\"\n[members.coder]\nrole = \"coder\"\ncount = 3\n\
    [members.rita]\nrole = \"reviewer\"\nmodel = \"script\"\n";

fn with_file(text: &str) -> Team {
    let team = Team::new();
    team.write("team.toml", text);
    team
}

#[test]
fn up_starts_the_members_and_the_daemon_and_down_ends_both() {
    let team = with_file(CODERS);
    let up = team.teamctl(["up"]).ok();
    assert!(up.stderr.starts_with("started teamd (pid "), "{up:?}");
    let said: Vec<&str> = up
        .stdout
        .lines()
        .filter_map(|line| line.split_once(" (pid "))
        .map(|it| it.0)
        .collect();
    assert_eq!(
        said,
        [
            "coder-1 is idle",
            "coder-2 is idle",
            "coder-3 is idle",
            "rita is idle"
        ]
    );
    let of_role = |role: &str| {
        let roster = team.roster();
        roster["members"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|member| member["role"] == role)
            .count()
    };
    assert_eq!((of_role("coder"), of_role("reviewer")), (3, 1));
    let daemon = team.daemon_pid();
    let down = team.teamctl(["down"]).ok();
    assert_eq!(
        down.stdout,
        "teamd has stopped, and all teammates with it\n"
    );
    assert!(!is_alive(daemon));
    team.until_no_process_is_left();
    let again = team.teamctl(["down"]).ok();
    assert_eq!(again.stdout, "teamd is not running, and no teammate is\n");
}

#[test]
fn up_leaves_alone_whom_it_finds_running_and_starts_who_has_ended() {
    let team = with_file(CODERS);
    team.teamctl(["up", "coder"]).ok();
    assert_eq!(team.roster()["members"].as_array().unwrap().len(), 3);
    let pid = team.pid("coder-1");
    team.shutdown("coder-2", &[], 0);
    let again = team.teamctl(["up", "coder-1", "coder"]).ok();
    let lines: Vec<&str> = again.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "each once: {again:?}");
    assert_eq!(lines[0], "coder-1 runs already: idle");
    assert!(lines[1].starts_with("coder-2 is idle (pid "), "{again:?}");
    assert_eq!((team.pid("coder-1"), again.stderr.as_str()), (pid, ""));
    // A daemon that was killed is started again, and the teammates that outlived it run already.
    team.kill_daemon();
    let adopted = team.json(["up", "coder-1", "rita"]);
    let results = adopted["results"].as_array().unwrap();
    assert_eq!(
        (&results[0]["already_running"], &results[0]["pid"]),
        (&true.into(), &pid.into()),
        "{adopted}"
    );
    assert_eq!(
        (&results[1]["already_running"], &results[1]["name"]),
        (&false.into(), &"rita".into())
    );
}

#[test]
fn one_that_cannot_be_started_stops_no_other() {
    let team = with_file("[members.alice]\nmodel = \"anthropic\"\n[members.bob]\n");
    let up = team.teamctl(["up"]).exits(2);
    assert!(up.stdout.starts_with("bob is idle"), "{up:?}");
    assert!(
        up.stderr.contains("error: ") && up.stderr.contains("ANTHROPIC_API_KEY"),
        "{up:?}"
    );
    let run = team.teamctl(["--json", "up"]).exits(2);
    let results = run.json()["results"].clone();
    assert_eq!(
        (&results[0]["error"]["code"], &results[1]["already_running"]),
        (&"usage".into(), &true.into())
    );
    // Nothing is started for a team of which no teammate can be.
    let none = with_file("[members.alice]\nmodel = \"anthropic\"\n");
    none.teamctl(["up"]).exits(2);
    assert!(!none.path("").exists());
    let untrusted = with_file("[members.alice]\nsandbox.mode = \"off\"\n");
    assert!(
        untrusted
            .teamctl(["up"])
            .exits(3)
            .stderr
            .contains("teamd trust")
    );
    assert!(!untrusted.path("").exists());
}

#[test]
fn up_without_members_or_with_a_wrong_name_says_what_to_do() {
    let team = Team::new();
    let none = team.teamctl(["up"]).exits(4);
    assert!(
        none.stderr
            .starts_with("error: there is no team.toml here\nhint: write `[members.NAME]`"),
        "{none:?}"
    );
    team.write("team.toml", "grace = 1\n");
    assert!(
        team.teamctl(["up"])
            .exits(4)
            .stderr
            .contains("team.toml names no member")
    );
    team.write("team.toml", CODERS);
    for (wrong, hint) in [
        ("coder-4", "did you mean coder? its members are"),
        ("zoe", "its members are coder, rita"),
    ] {
        let run = team.teamctl(["up", "rita", wrong]).exits(4);
        assert!(
            run.stderr.contains(&format!("has no member {wrong}")) && run.stderr.contains(hint),
            "{run:?}"
        );
    }
    team.teamctl(["up", "--no-start"]).exits(6);
    team.write("team.toml", "[members.coder]\ncount = 0\n");
    assert!(
        team.teamctl(["up"])
            .exits(2)
            .stderr
            .contains("team.toml:2:9: ")
    );
    assert!(!team.path("").exists());
}

#[test]
fn a_counted_member_has_its_settings_by_spawn_too() {
    let team = with_file(CODERS);
    team.teamctl(["spawn", "coder-2"]).ok();
    team.teamctl(["spawn", "coder-4"]).ok();
    assert_eq!(
        (
            &team.member("coder-2")["role"],
            &team.member("coder-4")["role"]
        ),
        (&"coder".into(), &"".into())
    );
}

#[test]
fn logs_are_merged_by_time_with_the_name_in_front() {
    let team = Team::started();
    team.spawn("bob", "");
    team.teamctl(["down"]).ok();
    let line =
        |second: u32, text: &str| format!("2026-01-01T00:00:{second:02}.000000Z  INFO {text}\n");
    let teamd = line(1, "first") + &line(4, "fourth") + "torn";
    team.put("log/teamd.log", &teamd);
    let bob = line(2, "second") + "  goes on \u{1b}[31m\n" + &line(3, "third");
    team.put("log/bob.log", &bob);
    let shown = |args: &[&str]| {
        let run = team.teamctl(args).ok();
        let words = run.stdout.lines().map(|line| {
            line.replace("2026-01-01T00:00:0", "")
                .replace(".000000Z  INFO", "")
        });
        (words.collect::<Vec<_>>().join("\n"), run.stderr)
    };
    let merged = "teamd | 1 first\nbob   | 2 second\nbob   |   goes on \\u{1b}[31m\nbob   | 3 third\nteamd | 4 fourth\nteamd | torn";
    assert_eq!(shown(&["logs"]), (merged.to_owned(), String::new()));
    assert_eq!(
        shown(&["logs", "bob", "--last", "1"]).0,
        "3 third",
        "one alone needs no name"
    );
    let json = team.json(["logs", "--last", "1"]);
    assert_eq!(
        (&json[0]["name"], &json[2]["line"]),
        (&"bob".into(), &"torn".into()),
        "{json}"
    );
    let coloured = team
        .with("CLICOLOR_FORCE", "1")
        .teamctl(["logs", "bob", "teamd"])
        .ok();
    assert!(
        coloured.stdout.contains("\u{1b}[36mbob   |\u{1b}[0m 2026-"),
        "{coloured:?}"
    );
}

#[test]
fn logs_of_an_unknown_name_are_not_found() {
    let team = Team::started();
    team.spawn("alice", "");
    let run = team.teamctl(["logs", "alice", "alcie"]).exits(4);
    assert!(run.stderr.contains("did you mean"), "{run:?}");
    // `log` is the same command.
    assert!(team.teamctl(["log", "teamd"]).ok().stdout.starts_with("20"));
}

#[test]
fn logs_are_followed_also_of_a_teammate_that_comes_later() {
    let team = Team::started();
    let mut running = team.start_teamctl(["--json", "logs", "--follow"]);
    let mut stdout = running.stdout();
    team.put("log/alice.log", "hello\n");
    let mut all = Vec::new();
    let mut piece = [0; 4096];
    let named = |all: &[u8], name: &str| {
        let text = String::from_utf8_lossy(all);
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["name"] == name).count()
    };
    while named(&all, "alice") == 0 || named(&all, "teamd") == 0 {
        let length = read_piece(&mut stdout, &mut piece).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&piece[..length]);
    }
    running.signal(Signal::SIGINT);
    running.finish();
}
