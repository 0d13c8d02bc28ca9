//! `teamctl chat` and `attach`: at a terminal and in a pipe.

mod leaving;
mod questions;
mod screen;
mod screens;

use std::fs::File;
use std::io::Write;

use crate::support::model_server::{Api, KEY, ModelServer, Reply};
use crate::support::{Run, Team};
use screen::Chat;

fn chat(team: &Team, said: &str) -> Run {
    team.teamctl_with(["chat"], said)
}

/// A chat with a teammate that works, and the file of its answer in progress, which the test writes:
/// a worker writes nothing there while a tool runs.
fn answering(team: &Team, name: &str) -> (Chat, File) {
    let mut terminal = Chat::start(team, &["attach", name]);
    terminal.until_row(&format!("{name}>"));
    terminal.line("//sleep 30");
    team.until("the call", || team.answers(name) == 1);
    let live = File::create(team.path(&format!("run/{name}.live"))).unwrap();
    (terminal, live)
}

fn user_messages(team: &Team, name: &str) -> usize {
    team.inbox(name)
        .iter()
        .filter(|message| message["from"] == "user")
        .count()
}

#[test]
fn in_a_pipe_chat_waits_for_the_teams_work_and_prints_the_answers() {
    let team = Team::started();
    let run = chat(
        &team,
        "//spawn_teammate {\"name\": \"bob\", \"role\": \"coder\", \
         \"prompt\": \"/bash sleep 0.2; touch made\"}\nall right\n",
    )
    .ok();
    assert!(team.made("made"), "it ended before the work did: {run:?}");
    assert!(run.stdout.contains("all right"), "{run:?}");
    assert!(
        !run.stdout.contains("spawn_teammate") && run.stderr.contains("▸ spawn_teammate"),
        "{run:?}"
    );
    assert!(run.stderr.contains("bob is idle"), "{run:?}");
    // The lead agent is one of the team now, and goes on with its conversation.
    let entries: Vec<_> = chat(&team, "still there\n")
        .ok()
        .stdout
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!(entries, ["still there"]);
    let json = team.teamctl_with(["--json", "chat"], "as data").ok();
    let lines: Vec<serde_json::Value> = json
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["messages"][0]["content"], "as data");
    assert_eq!(
        (
            lines[lines.len() - 1]["entry"].as_str(),
            json.stderr.as_str()
        ),
        (Some("idle"), "")
    );
}

#[test]
fn in_a_pipe_a_plan_for_a_person_ends_the_wait_and_failures_are_errors() {
    let team = Team::started();
    let run = chat(
        &team,
        "//spawn_teammate {\"name\": \"bob\", \"role\": \"coder\", \
         \"prompt\": \"/plan_approval Drop the cache\", \"plan\": true}",
    )
    .ok();
    assert!(
        run.stderr.contains("a plan waits for a person: bob"),
        "{run:?}"
    );
    let id = team.until_planned("bob");
    let run = chat(&team, &format!("/approve {} go on\n/team\n", &id[..6])).ok();
    assert!(
        run.stdout.contains("approved") && run.stdout.contains("bob"),
        "{run:?}"
    );
    assert_eq!(team.request(&id)["reason"], "go on");
    // What he says at the end begins a turn of the lead agent.
    team.until_finished("bob", 1);
    team.teamctl(["wait", "lead", "--for", "idle"]).ok();
    let run = team
        .teamctl_with(["chat", "--timeout", "200ms"], "//sleep 30")
        .exits(5);
    assert!(run.stderr.contains("not done"), "{run:?}");
    team.wait_for("lead", "working");
    let waiting = team.start_teamctl(["attach", "lead"]);
    team.teamctl(["interrupt", "lead"]).ok();
    assert!(waiting.finish().exits(1).stderr.contains("interrupted"));
}

#[test]
fn what_is_no_command_is_sent_to_the_built_in_model_alone() {
    let server = ModelServer::start();
    let team = server.team();
    team.teamctl(["spawn", "alice", "--model", Api::Anthropic.model()])
        .ok();
    let run = team
        .teamctl_with(["attach", "alice"], "/team\n/bash touch made\n")
        .exits(2);
    assert!(run.stderr.contains("there is no command /bash"), "{run:?}");
    assert_eq!(
        (user_messages(&team, "alice"), run.stdout.as_str()),
        (0, "")
    );
    team.teamctl(["spawn", "bob", "--model", "script"]).ok();
    let run = team
        .teamctl_with(["attach", "bob"], "/bash echo one\n/approve\n")
        .exits(2);
    assert!(run.stderr.contains("/approve takes ID"), "{run:?}");
    let run = team
        .teamctl_with(["attach", "bob"], "/bash echo one\n")
        .ok();
    assert_eq!(
        (user_messages(&team, "bob"), run.stdout.as_str()),
        (1, "one\n")
    );
    let run = team
        .teamctl_with(["chat", "--model", "script"], "/bash echo two")
        .ok();
    assert_eq!(run.stdout, "two\n");
}

#[test]
fn what_cannot_be_sent_is_an_error() {
    let team = Team::started();
    team.spawn("alice", "");
    chat(&team, "  \n").exits(2);
    team.teamctl_with(["attach", "zoe"], "hi").exits(4);
    team.shutdown("alice", &[], 0);
    team.teamctl_with(["attach", "alice"], "hi").exits(7);
    team.teamd(["stop"]).ok();
    let run = team.teamctl_with(["chat", "--no-start"], "hi").exits(6);
    assert!(run.stderr.contains("`teamd start` starts it"), "{run:?}");
}

#[test]
fn at_a_terminal_a_person_talks_interrupts_and_leaves() {
    let team = Team::started();
    let mut terminal = Chat::start(&team, &["chat"]);
    terminal.until_row("lead>");
    // Faster than a reader reads.
    terminal.press("hello there\r");
    team.until("the answer", || team.answers("lead") == 1);
    // What was typed stands behind its prompt, and the answer below it.
    terminal.until_screen("the answer", |screen| {
        screen.contains("\nlead> hello there\nhello there\nlead>")
    });
    let mark = terminal.mark();
    terminal.line("/team");
    terminal.until_after(&mark, "STATUS");
    terminal.line("/approve");
    terminal.until_after(&mark, "/approve takes ID [FEEDBACK]");
    terminal.line("/bash touch held; sleep 60");
    team.until_held();
    terminal.press("a draft");
    terminal.until_screen("what it does", |screen| {
        screen.contains("lead: bash: touch held; sleep 60 ")
    });
    terminal.press("\x1b");
    terminal.until_screen("the end of the turn", |screen| {
        screen.contains("\ninterrupted\nlead> a draft")
    });
    // Where nothing is interrupted the draft goes.
    terminal.press("\x03");
    terminal.until_row("lead>");
    let mark = terminal.mark();
    terminal.press("\x03");
    terminal.until_after(&mark, "/quit or Ctrl-D leaves");
    terminal.press("x\x7f\x03");
    terminal.until_screen("that another key was between", |screen| {
        screen.matches("or Ctrl-D leaves").count() == 2
    });
    let said = terminal.leave();
    for line in [
        "lead> hello there\nhello there\n",
        "STATUS",
        "\ninterrupted\n",
    ] {
        assert_eq!(said.matches(line).count(), 1, "{line:?}:\n{said}");
    }
    assert!(
        said.ends_with("note: the team continues without you"),
        "{said}"
    );
    // Leaving ends nothing; the roster may hear of the end of the turn after the chat has.
    team.wait_for("lead", "idle");
    let home = team
        .root()
        .parent()
        .unwrap()
        .join("home/.local/state/teamd/history");
    assert!(
        std::fs::read_to_string(home)
            .unwrap()
            .contains("hello there")
    );
}

#[test]
fn what_is_typed_ahead_is_not_lost_and_output_stands_above_the_line() {
    let team = Team::started();
    team.spawn("alice", "");
    let mut terminal = Chat::start(&team, &["attach", "alice"]);
    terminal.until_row("alice>");
    terminal
        .press("//bash touch held; until [ -e go ]; do sleep 0.01; done; echo released\rsecond li");
    team.until_held();
    terminal.until_row("alice> second li");
    team.release();
    terminal.until("released");
    terminal.press("ne\rthird\r\x04");
    team.until("all three", || user_messages(&team, "alice") == 3);
    team.until_caught_up("alice");
    assert!(
        team.has_consumed("alice", "second line"),
        "{:?}",
        team.inbox("alice")
    );
    assert_eq!(terminal.finish(), Some(0));
    team.wait_for("alice", "idle");
}

#[test]
fn the_steps_of_a_teammate_and_what_its_subagent_does_are_shown() {
    let team = Team::new();
    team.write("team.toml", "[tools]\ngroups = ['todo', 'delegate']\n");
    team.teamd(["start"]).ok();
    team.spawn("alice", "");
    let mut terminal = Chat::start(&team, &["attach", "alice"]);
    terminal.until_row("alice>");
    let step = "{\"content\": \"Read\", \"status\": \"in_progress\"}";
    terminal.line(&format!("//todo_write {{\"todos\": [{step}]}}"));
    terminal.until("todo 0/1, now: Read");
    team.until_finished("alice", 1);
    terminal.line("//delegate /bash echo deep\\nfound");
    terminal.until("    ▸ bash echo deep");
    terminal.until("found");
    team.until_finished("alice", 2);
    terminal.press("\x04");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn an_answer_is_shown_while_it_is_given() {
    let team = Team::started();
    team.spawn("alice", "");
    let (mut terminal, mut live) = answering(&team, "alice");
    live.write_all("I thi".as_bytes()).unwrap();
    terminal.until("I thi");
    live.write_all("nk \x1b[2J so".as_bytes()).unwrap();
    terminal.until("nk \\u{1b}[2J so");
    terminal.press("\x03");
    terminal.until_screen("what there is of it", |screen| {
        screen.ends_with("\nI think \\u{1b}[2J so\ninterrupted\nalice>")
    });
    terminal.leave();
}

#[test]
fn chat_shows_once_that_the_service_is_waited_for() {
    let overloaded = || Reply::fail(529).with_header("retry-after-ms", "6000");
    let server = ModelServer::start();
    server
        .replies(overloaded())
        .says("first")
        .replies(overloaded())
        .says("second");
    let team = server.team();
    let model = Api::Anthropic.model();
    let run = team.teamctl_with(["chat", "--model", model], "go\n").ok();
    assert_eq!(run.stderr.matches("lead: waiting ").count(), 1, "{run:?}");
    assert_eq!(run.stdout, "first\n");
    let mut terminal = Chat::start(&team, &["chat"]);
    terminal.until_row("lead>");
    let mark = terminal.mark();
    terminal.line("go on");
    terminal.until_after(&mark, " s: overloaded (529)");
    terminal.until_after(&mark, "second");
    // The line is replaced, and gone when the turn is over.
    terminal.until_screen("the end of the turn", |screen| {
        screen.ends_with("\nsecond\nlead>")
    });
    let said = terminal.leave();
    assert!(!said.contains("waiting"), "{said}");
}

#[test]
fn typing_restarts_an_ended_lead_agent_and_a_lost_daemon_is_reported() {
    let team = Team::started();
    let mut terminal = Chat::start(&team, &["chat"]);
    terminal.until_row("lead>");
    terminal.line("/shutdown lead");
    terminal.until("lead has ended (shutdown)");
    terminal.line("again");
    terminal.until("lead is started again");
    team.until("the answer", || team.answers("lead") == 1);
    team.kill_daemon();
    terminal.until("the daemon is gone");
    terminal.line("without it");
    team.until("the answer", || team.answers("lead") == 2);
    let mark = terminal.mark();
    terminal.line("/shutdown lead");
    terminal.until_after(&mark, "is not running");
    team.teamd(["start"]).ok();
    terminal.until("the daemon is back");
    terminal.line("/quit");
    assert_eq!(terminal.finish(), Some(0));
}

#[test]
fn a_lead_agent_with_a_wrong_key_restarts_with_the_right_one() {
    let server = ModelServer::start();
    let team = server.team_with_key("sk-wrong-0123456789");
    let model = Api::Anthropic.model();
    let run = team.teamctl_with(["chat", "--model", model], "go").exits(1);
    assert!(run.stderr.contains("refuses the key"), "{run:?}");
    let run = chat(&team, "and again").exits(1);
    assert!(
        run.stderr
            .contains("it is started again with the settings here"),
        "{run:?}"
    );
    assert_eq!(team.incarnation("lead"), 2);
    let team = team.with("ANTHROPIC_API_KEY", KEY);
    let run = chat(&team, "once more").ok();
    assert_eq!(
        (run.stdout.as_str(), team.incarnation("lead")),
        ("done\n", 3)
    );
    assert!(
        server.last().mentions("and again"),
        "its conversation goes on"
    );
    for (flag, value) in [("--model", "openai:fake"), ("--workspace", "/var")] {
        let run = team
            .teamctl_with(["chat", flag, value], "not sent")
            .exits(7);
        assert!(run.stderr.contains("would change nothing"), "{run:?}");
        assert!(
            run.stderr
                .contains("`teamctl shutdown lead`, then the same command"),
            "{run:?}"
        );
    }
    team.teamctl_with(["chat", "--fresh"], "not sent").exits(7);
    assert!(!team.file("inbox/lead.jsonl").contains("not sent"));

    let team = team.with("ANTHROPIC_API_KEY", "sk-other-0123456789");
    let run = chat(&team, "still the first").ok();
    assert_eq!(
        (run.stdout.as_str(), team.incarnation("lead")),
        ("done\n", 3),
        "one that works stays"
    );
    team.kill_daemon();
    team.teamd(["start"]).ok();
    chat(&team, "adopted").ok();
}
