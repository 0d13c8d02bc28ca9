//! The texts that users read: each help page, and the common errors. The snapshots are in `texts/`.
//!
//! After an intended change `INSTA_UPDATE=always cargo test --test e2e -- texts::` takes them
//! again; read the difference.

use std::ffi::OsStr;
use std::fmt::Write;

use crate::support::{Run, Team};

/// The width of a help page, in columns.
const WIDTH: &str = "100";

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path("texts");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// Takes the help page of a program and of each of its commands.
fn snapshot_help(program: &str) {
    let team = Team::new().with("COLUMNS", WIDTH);
    let page = |args: &[&str]| match program {
        "teamd" => team.teamd(args).ok().stdout,
        _ => team.teamctl(args).ok().stdout,
    };
    let overview = page(&["--help"]);
    snapshot(program, &overview);
    let commands = overview.lines().take_while(|line| *line != "Options:");
    let named = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = named.filter_map(|line| line.split_whitespace().next());
    // The first help leaves these out.
    let more = ["plans", "reviews"]
        .into_iter()
        .filter(|_| program == "teamctl");
    let names: Vec<&str> = names.chain(more).collect();
    assert!(names.len() > 4, "{overview}");
    for name in names.into_iter().filter(|name| *name != "help") {
        snapshot(&format!("{program}-{name}"), &page(&[name, "--help"]));
    }
}

#[test]
fn each_help_page_of_teamctl_reads_well() {
    snapshot_help("teamctl");
}

#[test]
fn each_help_page_of_teamd_reads_well() {
    snapshot_help("teamd");
}

/// A session at a shell: the commands, and what they print.
struct Session<'t> {
    team: &'t Team,
    text: String,
}

impl<'t> Session<'t> {
    fn new(team: &'t Team) -> Self {
        Self {
            team,
            text: String::new(),
        }
    }

    fn teamctl(&mut self, line: &str) {
        self.teamctl_with(line, "");
    }

    fn teamctl_with(&mut self, line: &str, stdin: &str) {
        let run = self
            .team
            .teamctl_with(line.split(' ').map(OsStr::new), stdin);
        self.add(&format!("teamctl {line}"), &run);
    }

    fn teamd(&mut self, line: &str) {
        let run = self.team.teamd(line.split(' '));
        self.add(&format!("teamd {line}"), &run);
    }

    fn add(&mut self, line: &str, run: &Run) {
        let code = run.code.map_or("none".to_owned(), |code| code.to_string());
        writeln!(
            self.text,
            "$ {line}\n{}{}[exit {code}]\n",
            run.stdout, run.stderr
        )
        .unwrap();
    }

    /// Replaces what differs between two runs: each text by its name.
    fn snapshot(self, name: &str, varies: &[(&str, &str)]) {
        let root = self.team.root().display().to_string();
        let mut text = self.text.replace(&root, "[workspace]");
        for (from, to) in varies {
            text = text.replace(from, to);
        }
        snapshot(name, &pids(&text));
    }
}

/// Replaces each pid.
fn pids(text: &str) -> String {
    let mut parts = text.split("(pid ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + "(pid PID" + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

#[test]
fn errors_without_a_daemon_say_what_to_do() {
    let team = Team::new();
    let mut session = Session::new(&team);
    for line in [
        "status",
        "spawn alice --no-start",
        "send alice hi",
        "chat --last x",
        "transcript alice",
        "lint nowhere",
    ] {
        session.teamctl(line);
    }
    session.teamd("stop");
    session.teamd("--team-dir typo/team start");
    session.teamctl_with("chat --no-start", "hi");
    team.teamd(["start"]).ok();
    team.teamd(["stop"]).ok();
    for line in [
        "status",
        "spawn alice --no-start",
        "send alice hi",
        "shutdown alice",
    ] {
        session.teamctl(line);
    }
    session.teamd("status");
    session.teamctl("spawn alice --model anthropic");
    session.teamd("status");
    session.teamctl("spawn alice");
    session.snapshot("errors-without-a-daemon", &[]);
}

#[test]
fn errors_of_the_command_line_say_what_is_expected() {
    let team = Team::started();
    let mut session = Session::new(&team);
    for line in [
        "spawn",
        "spawn Alice",
        "spawn lead",
        "spawn user",
        "spawn alice --model gpt",
        "spawn alice --timeout soon",
        "spawn alice --memory 10M",
        "spawn alice --max-tokens many",
        "spawn alice --sandbox none",
        "spawn alice --workspace nowhere",
        "spawn alice --prompt-file nowhere",
        "spawn alice --promt hi",
        "shutdown",
        "wait alice --for gone",
        "send alice",
        "restart alice",
        "stop alice",
        "kill alice",
        "status --xyz",
    ] {
        session.teamctl(line);
    }
    session.teamctl_with("send lead -", " \n");
    session.teamctl_with("chat", "");
    session.teamctl_with("chat", "/team a b\n");
    session.teamctl_with("chat", "/shutdown\n");
    session.snapshot("errors-of-the-command-line", &[]);
}

#[test]
fn errors_about_teammates_say_what_is_wrong() {
    let team = Team::started();
    team.spawn("alice", "");
    team.spawn_rejecting("bob", "still writing");
    let mut session = Session::new(&team);
    for line in [
        "send alcie hi",
        "shutdown alcie",
        "status alcie",
        "log alcie",
        "transcript alcie",
        "interrupt alcie",
        "spawn alice",
        "forget alice",
        "wait alice --for working --timeout 10ms",
        "shutdown bob",
        "shutdown alice",
        "shutdown alice",
        "send alice hi",
        "interrupt alice",
        "request-plan alice",
        "wait alice --for idle",
        "spawn carol --resume",
        "status bob zoe",
    ] {
        session.teamctl(line);
    }
    session.teamctl_with("attach alice", "hi");
    session.teamd("start");
    session.teamd("stop --timeout 0s");
    session.snapshot("errors-about-teammates", &[]);
}

#[test]
fn errors_about_plans_say_what_is_wrong() {
    let team = Team::started();
    team.teamctl([
        "spawn",
        "alice",
        "--plan",
        "--prompt",
        "/plan_approval Drop the cache",
    ])
    .ok();
    let id = team.until_planned("alice");
    let mut session = Session::new(&team);
    for line in [
        "approve nothing",
        "approve alice",
        "plans nothing",
        "requests nothing",
    ] {
        session.teamctl(line);
    }
    session.teamctl(&format!("reject {id}"));
    session.teamctl(&format!("reject {id}"));
    session.teamctl(&format!("approve {id}"));
    team.teamd(["stop", "--force"]).ok();
    session.teamctl(&format!("approve {id}"));
    session.snapshot("errors-about-plans", &[(&id, "0a1b2c3d")]);
}

#[test]
fn an_ambiguous_id_lists_its_candidates() {
    let team = Team::started();
    let mut plans: Vec<(String, String)> = Vec::new();
    // Among 17 ids two begin with the same digit.
    let (first, second) = loop {
        let name = format!("t{}", plans.len());
        team.teamctl([
            "spawn",
            &name,
            "--plan",
            "--prompt",
            "/plan_approval Drop the cache",
        ])
        .ok();
        let id = team.until_planned(&name);
        if let Some(first) = plans.iter().find(|(_, other)| other[..1] == id[..1]) {
            break (first.clone(), (name, id));
        }
        plans.push((name, id));
    };
    let prefix = &first.1[..1];
    let run = team.teamctl(["approve", prefix]).exits(4);
    // Ids are random, and so is their order; ages vary.
    let mut lines: Vec<&str> = run
        .stderr
        .lines()
        .map(|line| line.rsplit_once(", ").map_or(line, |(line, _)| line))
        .collect();
    lines[1..3].sort_unstable_by_key(|line| !line.contains(&first.1));
    let text = lines
        .join("\n")
        .replace(&format!("error: {prefix} "), "error: 7 ");
    let text = text
        .replace(&first.1, "7a1b2c3d")
        .replace(&second.1, "7e4f5a6b");
    let text = text
        .replace(&format!(" {},", first.0), " alice,")
        .replace(&format!(" {},", second.0), " bob,");
    snapshot("errors-ambiguous-id", &text);
}

#[test]
fn errors_of_settings_name_the_setting() {
    let team = Team::started();
    let mut session = Session::new(&team);
    let settings = [
        "models = 1",
        "model = 7",
        "model = \"gpt\"",
        "grace = \"soon\"",
        "[members.alice\nrole = 1",
        "[members.alice]\nworkspace = \"nowhere\"",
        "[sandbox]\nmode = \"off\"",
    ];
    for setting in settings {
        team.write("team.toml", setting);
        writeln!(session.text, "# team.toml: {}", setting.replace('\n', "; ")).unwrap();
        session.teamctl("spawn alice");
    }
    std::fs::remove_file(team.root().join("team.toml")).unwrap();
    session.teamctl("spawn keyless --model anthropic");
    session.snapshot("errors-of-settings", &[]);
    let team = Team::new().with("TEAM_GRACE", "soon");
    let mut session = Session::new(&team);
    session.teamd("start");
    session.snapshot("errors-of-variables", &[]);
}
