//! `teamctl run`: a team that works unattended; every way in which that ends, and what is said of
//! it.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use teamd_shared::member::MemberStatus;

use crate::disk::limit_files;
use crate::support::look::HELD;
use crate::support::model_server::{ModelServer, Reply};
use crate::support::terminal::Terminal;
use crate::support::{Run, Team, is_alive, signal};

/// A team that is not started yet, whose `team.toml` names these members.
fn team(members: &str) -> Team {
    let team = Team::new();
    team.write("team.toml", members);
    team
}

fn run(team: &Team, args: &[&str], tasks: &str) -> Run {
    team.teamctl_with(["run", "--tasks", "-"].iter().chain(args), tasks)
}

fn report(team: &Team) -> Value {
    serde_json::from_str(&team.text("report.json")).unwrap()
}

/// The reasons that the report names, each with its task; 0 is the goal.
fn stuck(team: &Team) -> Vec<(u64, String)> {
    let obstacles = report(team)["obstacles"].as_array().unwrap().clone();
    obstacles
        .iter()
        .map(|it| {
            (
                it["task"].as_u64().unwrap_or_default(),
                it["why"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

#[test]
fn a_team_does_its_tasks_and_the_report_says_what_the_list_says() {
    let team = team("[members.coder]\ncount = 2\n");
    let tasks = "- [ ] ship\n  /bash cat a b > shipped\n  - [ ] a\n    /bash echo a > a\n  - [ ] b\n    /bash echo b > b\n";
    let done = run(&team, &["--report", "report.json"], tasks).ok();
    assert_eq!(team.text("shipped"), "a\nb\n");
    team.until_no_process_is_left();
    for told in [
        "coder-1 runs",
        "task 3 (ship) completed",
        "coder-2 shut down",
        "3 of 3 tasks completed in ",
    ] {
        assert!(done.stdout.contains(told), "{told}: {done:?}");
    }
    let report = report(&team);
    let listed = team.json(["task", "list", "--all"]);
    assert_eq!(
        (
            &report["outcome"],
            &report["exit_code"],
            &report["obstacles"]
        ),
        (&json!("completed"), &json!(0), &json!([]))
    );
    let same = ["id", "subject", "status", "attempts"];
    for (reported, task) in report["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .zip(listed.as_array().unwrap())
    {
        for field in same.iter() {
            assert_eq!(reported[field], task[field]);
        }
        assert_eq!(
            (&reported["verified"], &reported["owner"]),
            (&task["result"]["verified"], &task["submission"]["by"])
        );
    }
    assert_eq!(report["tasks"].as_array().unwrap().len(), 3);
    // What an earlier run has done is not of the next one, and a file that is done is made anew.
    let more = run(&team, &["--json", "--report", "report.xml"], tasks).ok();
    let lines: Vec<Value> = more
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (last, changes) = lines.split_last().unwrap();
    let ids: Vec<_> = last["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids, [4, 5, 6]);
    assert!(
        changes
            .iter()
            .any(|line| line["event"] == "completed" && line["id"] == 6),
        "{more:?}"
    );
    let schema = jsonschema::validator_for(&team.json(["schema", "run"])).unwrap();
    assert!(schema.is_valid(last) && schema.is_valid(&report), "{last}");
    for field in last.as_object().unwrap().keys() {
        let mut broken = last.clone();
        broken[field] = json!([{"what": "ever"}]);
        assert!(!schema.is_valid(&broken), "{field}");
    }
    let journal = jsonschema::validator_for(&team.json(["schema", "journal"])).unwrap();
    assert!(
        changes.iter().all(|line| journal.is_valid(line)),
        "{more:?}"
    );
    let xml = team.text("report.xml");
    assert!(
        xml.contains("<testcase classname=\"coder-")
            && xml.contains("tests=\"3\" failures=\"0\" errors=\"0\""),
        "{xml}"
    );
}

#[test]
fn what_is_not_done_is_told_with_the_reason_and_exits_with_3() {
    let team = team(
        "[work]\n[members.ana]\n[members.planner]\nplan = true\nprompt = '/plan_approval Drop it'\n",
    );
    let tasks = "[[task]]\nsubject = 'never'\ncheck = 'echo why; exit 7'\nmax_attempts = 1\nfor = 'ana'\n\n\
        [[task]]\nsubject = 'after it'\nblocked_by = [1]\n\n[[task]]\nsubject = 'planned'\nfor = 'planner'\n\n\
        [[task]]\nsubject = 'of a stranger'\nfor = 'zoe'\n";
    let ended = run(&team, &["--report", "report.json", "--keep"], tasks).exits(3);
    let plan = team.last_request("plan_approval");
    let why = [
        (2, "it is blocked by 1 (failed)".to_owned()),
        (3, format!("the plan {plan} of planner waits for a person")),
        (
            4,
            "it is reserved for zoe, but no such teammate exists".to_owned(),
        ),
    ];
    assert_eq!(stuck(&team), why);
    assert_eq!(report(&team)["outcome"], "unfinished");
    assert!(
        ended
            .stderr
            .contains(&format!("task 3 is stuck: {}", why[1].1)),
        "{ended:?}"
    );
    assert!(
        ended.stderr.contains("`teamctl approve ID`")
            && ended.stderr.contains("`teamctl task retry ID`"),
        "{ended:?}"
    );
    // The team was kept: the next run goes on where it stands, and leaves it so.
    team.teamctl(["approve", &plan]).ok();
    team.teamctl(["wait", "--task", "3"]).ok();
    let ended = team.teamctl(["run", "--report", "report.xml"]).exits(3);
    assert!(ended.stdout.contains("0 of 2 tasks completed"), "{ended:?}");
    assert!(
        team.text("report.xml")
            .contains("failures=\"0\" errors=\"2\""),
        "{}",
        team.text("report.xml")
    );
    assert!(
        ended.stderr.contains("before this run: ana, planner")
            && ended.stderr.contains("teamctl down"),
        "{ended:?}"
    );
    assert_eq!(
        (team.status("planner").as_str(), team.status("ana").as_str()),
        ("idle", "idle")
    );
    team.teamctl(["down"]).ok();
    team.until_no_process_is_left();
}

#[test]
fn a_second_run_is_refused_and_a_run_ends_only_what_it_has_started() {
    let team = team("[members.ana]\n");
    team.teamctl(["spawn", "bob"]).ok();
    team.write("tasks.md", &format!("- [ ] long\n  {HELD}\n"));
    let args = ["run", "--tasks", "tasks.md", "--report", "report.json"];
    let running = team.start_teamctl(args);
    team.until_held();
    let refused = team.teamctl(args).exits(7);
    assert!(
        refused.stderr.contains("another `teamctl run` is running"),
        "{refused:?}"
    );
    running.signal(Signal::SIGTERM);
    let ended = running.finish().exits(143);
    assert!(ended.stderr.contains("before this run: bob"), "{ended:?}");
    assert_eq!(
        (team.status("ana").as_str(), team.status("bob").as_str()),
        ("shutdown", "idle")
    );
    assert_eq!(report(&team)["tasks"].as_array().unwrap().len(), 1);
    // What is started by then is ended, too, and the daemon stays that was there before.
    team.release();
    team.teamctl(["forget", "ana"]).ok();
    let ended = team.teamctl(["run"]).ok();
    assert!(
        ended.stdout.contains("ana shut down") && ended.stderr.contains("before this run: bob"),
        "{ended:?}"
    );
    team.teamctl(["shutdown", "bob"]).ok();
    let ended = run(&team, &[], "- [ ] x\n").ok();
    assert!(
        ended.stderr.contains("before this run: the daemon"),
        "{ended:?}"
    );
    team.teamctl(["down"]).ok();
}

#[test]
fn a_run_that_is_still_starting_its_members_ends_by_a_signal() {
    let script =
        "git init -q . && git -c user.name=u -c user.email=u@x commit -q --allow-empty -m first";
    let team =
        team("[members.ana]\n[checkout]\nalways = true\nsetup = \"touch begun; sleep 600\"\n");
    team.run_program("bash", ["-c", script]).ok();
    team.trust();
    team.write("tasks.md", "- [ ] x\n");
    let running = team.start_teamctl(["run", "--tasks", "tasks.md", "--report", "report.json"]);
    let begun = team.root().with_file_name("work.team").join("ana/begun");
    team.until("the setup to run", || begun.exists());
    running.signal(Signal::SIGTERM);
    running.finish().exits(143);
    assert_eq!(report(&team)["outcome"], "interrupted");
    team.until_no_process_is_left();
}

#[test]
fn a_member_that_is_being_prepared_when_the_run_ends_is_not_started() {
    let script =
        "git init -q . && git -c user.name=u -c user.email=u@x commit -q --allow-empty -m first";
    let team =
        team("[members.ana]\n[checkout]\nalways = true\nsetup = \"touch begun; sleep 600\"\n");
    team.run_program("bash", ["-c", script]).ok();
    team.trust();
    team.teamd(["start"]).ok();
    team.write("tasks.md", "- [ ] x\n");
    let running = team.start_teamctl(["run", "--tasks", "tasks.md"]);
    let ana = team.root().with_file_name("work.team").join("ana");
    team.until("the setup to run", || ana.join("begun").exists());
    running.signal(Signal::SIGINT);
    running.finish().exits(130);
    assert_eq!(team.member("ana"), Value::Null);
    team.until("the daemon alone to be left", || {
        team.processes().len() == 1
    });
    team.teamctl(["down"]).ok();
}

#[test]
fn a_run_whose_members_cannot_be_told_to_leave_says_so() {
    let team = team("[members.ana]\n");
    team.teamd(["start"]).ok();
    team.write("tasks.md", &format!("- [ ] long\n  {HELD}\n"));
    let running = team.start_teamctl(["run", "--tasks", "tasks.md"]);
    team.until_held();
    let daemon = team.daemon_pid();
    limit_files(daemon, Some(team.file("journal.jsonl").len()));
    running.signal(Signal::SIGINT);
    let ended = running.finish().exits(1);
    assert!(
        ended.stderr.contains("cannot write the journal") && ended.stderr.contains("hint: "),
        "{ended:?}"
    );
    // Its turn may have been ended before that could be recorded, and it may not.
    let status = team.status("ana");
    assert!(["working", "idle"].contains(&status.as_str()), "{status}");
    // The next run ends what this one has started.
    limit_files(daemon, None);
    team.release();
    // The first task may be finished by now: a run without another one would have nothing to do.
    team.write("more.md", "- [ ] next\n  /bash true\n");
    team.teamctl(["run", "--tasks", "more.md"]).ok();
    assert_eq!(team.status("ana"), "shutdown");
    team.teamctl(["down"]).ok();
}

#[test]
fn a_limit_ends_the_team_in_order() {
    let team = team("[members.ana]\n");
    let ended = run(
        &team,
        &["--timeout", "2s", "--report", "report.json", "--keep"],
        &format!("- [ ] long\n  {HELD}\n"),
    )
    .exits(5);
    assert!(
        ended.stderr.contains("the limit of time is reached"),
        "{ended:?}"
    );
    assert_eq!(report(&team)["limit"], "time");
    // On a slow machine the time was over before the task was made.
    let tasks = report(&team)["tasks"].clone();
    assert!(
        tasks == json!([]) || tasks[0]["status"] == "pending",
        "{tasks}"
    );
    team.until_no_process_is_left();
    let server = ModelServer::start();
    let team = server.team();
    team.write("team.toml", "[members.ana]\nmodel = 'anthropic:fake'\n");
    let refused = run(&team, &["--max-cost", "1"], "- [ ] think\n").exits(2);
    assert!(
        refused
            .stderr
            .contains("price of anthropic:fake is not known"),
        "{refused:?}"
    );
    let ended = run(
        &team,
        &["--max-tokens", "10", "--report", "report.json"],
        "- [ ] think\n",
    )
    .exits(5);
    assert!(
        ended.stderr.contains("the limit of tokens is reached"),
        "{ended:?}"
    );
    let used = report(&team)["tasks"][0]["usage"].clone();
    assert!(used["output_tokens"].as_u64() > Some(0), "{used}");
}

#[test]
fn ctrl_c_ends_the_run_in_order_and_twice_at_once() {
    let team = team("[members.ana]\n");
    team.write("tasks.md", &format!("- [ ] long\n  {HELD}\n"));
    let running = team.start_teamctl(["run", "--tasks", "tasks.md", "--report", "report.json"]);
    team.until("the work", || team.made("held"));
    running.signal(Signal::SIGINT);
    let ended = running.finish().exits(130);
    assert_eq!(team.status("ana"), "shutdown", "{ended:?}");
    team.until_no_process_is_left();
    assert_eq!(report(&team)["outcome"], "interrupted");
    assert_eq!(
        team.events("reminded"),
        0,
        "its turn was ended, and it is to leave"
    );
    // One that is stopped cannot leave.
    std::fs::remove_file(team.root().join("held")).unwrap();
    let running = team.start_teamctl(["run", "--report", "report.json"]);
    team.until("the work", || team.made("held"));
    let worker = team.pid("ana");
    signal(worker, Signal::SIGSTOP);
    running.signal(Signal::SIGINT);
    team.until("the shutdown to be asked", || team.events("asked") == 2);
    let asked = std::time::Instant::now();
    running.signal(Signal::SIGINT);
    let ended = running.finish().exits(130);
    assert!(
        asked.elapsed() < Duration::from_secs(20) && is_alive(worker),
        "{ended:?}"
    );
    assert!(
        ended.stderr.contains("the team is still shutting down"),
        "{ended:?}"
    );
    assert_eq!(report(&team)["outcome"], "interrupted");
}

#[test]
fn a_run_that_was_killed_goes_on_and_makes_no_task_twice() {
    let team = team("[members.ana]\n");
    team.write(
        "tasks.md",
        &format!("- [ ] last\n  - [ ] first\n    {HELD}\n"),
    );
    let mut args = vec!["run", "--tasks", "tasks.md"];
    let running = team.start_teamctl(&args);
    team.until("the work", || team.made("held"));
    running.signal(Signal::SIGKILL);
    running.finish();
    args.extend(["--report", "report.json"]);
    let again = Terminal::teamctl(&team, &args);
    again.until("these tasks were imported before, from task 1 on");
    team.release();
    assert_eq!(again.finish(), Some(0));
    assert_eq!(report(&team)["tasks"].as_array().unwrap().len(), 2);
    team.until_no_process_is_left();
}

#[test]
fn a_daemon_that_dies_ends_the_run_with_6_and_the_next_run_goes_on() {
    let team = team("[members.ana]\n");
    team.write("tasks.md", &format!("- [ ] long\n  {HELD}\n"));
    let running = team.start_teamctl(["run", "--tasks", "tasks.md"]);
    team.until("the work", || team.made("held"));
    team.kill_daemon();
    let ended = running.finish().exits(6);
    assert!(
        ended.stderr.contains("run `teamctl run` again"),
        "{ended:?}"
    );
    team.release();
    team.teamctl(["run", "--tasks", "tasks.md"]).ok();
    team.until_no_process_is_left();
}

#[test]
fn the_lead_agent_makes_the_tasks_of_a_goal() {
    let server = ModelServer::answering(|request| {
        if request.mentions("Build it") && !request.mentions("is created") {
            let task = json!({"subject": "build", "description": "/bash touch built", "check": "test -e built"});
            return Reply::call("task_create", task);
        }
        Reply::text("The task is created.")
    });
    let team = server.team();
    team.write("team.toml", "[members.ana]\nmodel = 'script'\n");
    let args = [
        "run",
        "Build it, and check it.",
        "--report",
        "report.json",
        "--max-tokens",
        "10M",
    ];
    let ended = team.teamctl(args).ok();
    assert!(
        team.made("built") && ended.stdout.contains("1 of 1 task completed"),
        "{ended:?}"
    );
    let report = report(&team);
    assert_eq!(
        (
            &report["tasks"][0]["verified"],
            &report["tasks"][0]["owner"]
        ),
        (&json!("in place"), &json!("ana"))
    );
    assert!(report["usage"]["output_tokens"].as_u64().unwrap() > 0);
    assert_eq!(
        (team.status("lead").as_str(), team.status("ana").as_str()),
        ("shutdown", "shutdown")
    );
    // A goal of which no task is made is not reached, whatever the lead agent says.
    let ended = team
        .teamctl(["run", "Say hello.", "--report", "report.json"])
        .exits(3);
    assert!(
        ended
            .stderr
            .contains("the goal is stuck: the lead agent has created no tasks for the goal"),
        "{ended:?}"
    );
    // One whose model does not serve is named.
    server.fails(400);
    team.teamctl(["run", "Say good night.", "--report", "report.json"])
        .exits(3);
    assert!(
        stuck(&team)[0].1.starts_with("lead could not continue: "),
        "{:?}",
        stuck(&team)
    );
}

#[test]
fn a_goal_that_is_under_way_is_not_said_twice() {
    let team = team("[members.ana]\n");
    let goal = format!(
        "/task_create {}",
        json!({"subject": "long", "description": HELD})
    );
    let running = team.start_teamctl(["run", &goal]);
    team.until("the work", || team.made("held"));
    running.signal(Signal::SIGKILL);
    running.finish();
    let again = Terminal::teamctl(&team, &["run", &goal, "--report", "report.json"]);
    again.until("was given this goal before");
    team.release();
    assert_eq!(again.finish(), Some(0));
    assert_eq!(report(&team)["tasks"].as_array().unwrap().len(), 1);
}

#[test]
fn what_cannot_begin_is_refused_before_anything_is_started() {
    let without = Team::new();
    for (args, told) in [
        (vec!["run"], "names no member"),
        (
            vec!["run", "go", "--report", "report.txt"],
            "neither .json nor .xml",
        ),
        (
            vec!["run", "go", "--report", "no/where.json"],
            "no does not exist",
        ),
        (vec!["run", " "], "the goal is empty"),
        (vec!["run", "go", "--timeout", "soon"], "--timeout"),
        (vec!["run", "go", "--max-tokens", "0"], "--max-tokens"),
    ] {
        let refused = without.teamctl(&args).exits(2);
        assert!(refused.stderr.contains(told), "{args:?}: {refused:?}");
    }
    let team = team("[members.ana]\n");
    assert!(
        team.teamctl(["run"])
            .exits(2)
            .stderr
            .contains("there is nothing to do")
    );
    assert!(
        run(&team, &[], "no list")
            .exits(2)
            .stderr
            .contains("line 1")
    );
    team.write("team.toml", "[members.ana]\nmodel = 'anthropic:fake'\n");
    run(&team, &[], "- [ ] x\n").exits(2);
    assert!(!team.path("").exists());
    team.write("team.toml", "auto_start = false\n[members.ana]\n");
    run(&team, &[], "- [ ] x\n").exits(6);
    // A report that cannot be written is an error, when all else is done.
    team.write("team.toml", "[members.ana]\n");
    std::os::unix::fs::symlink("/dev/full", team.root().join("full.json")).unwrap();
    let ended = run(&team, &["--report", "full.json"], "- [ ] x\n").exits(1);
    assert!(
        ended.stderr.contains("cannot write the report")
            && ended.stdout.contains("1 of 1 task completed"),
        "{ended:?}"
    );
    let refused = team.teamctl(["run"]).exits(2);
    assert!(
        refused.stderr.contains("every task is finished") && refused.stderr.contains("task retry"),
        "{refused:?}"
    );
    team.until_no_process_is_left();
}

#[test]
fn a_terminal_shows_how_far_the_tasks_are_and_what_each_member_does() {
    let team = team("[members.ana]\n");
    team.write("tasks.md", &format!("- [ ] long\n  {HELD}\n- [ ] short\n"));
    let terminal = Terminal::teamctl_at(
        &team,
        &["run", "--tasks", "tasks.md", "--timeout", "1h"],
        (80, 24),
    );
    terminal.until_screen("the work", |screen| {
        screen.contains("ana   working  1. long")
            && screen.contains("0 of 2 completed")
            && screen.contains("of 1h")
    });
    assert_eq!(terminal.wrapped_rows(), 0, "{}", terminal.screen());
    team.release();
    terminal.until("2 of 2 tasks completed");
    assert_eq!(terminal.finish(), Some(0));
    assert_eq!(team.status("ana"), MemberStatus::Shutdown.as_str());
}
