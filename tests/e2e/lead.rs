//! The lead agent: a worker like the others, with the tools of the lead, that hears what its team says.

use std::fs::File;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use teamd_shared::member::{Restart, Sandbox, SandboxMode};

use crate::support::{Team, is_alive, signal};

fn team() -> Team {
    let team = Team::started();
    team.start_lead();
    team
}

/// The text of a result, and whether it is an error.
fn text(result: &Value) -> (&str, bool) {
    (result["content"].as_str().unwrap(), result["is_error"].as_bool().unwrap())
}

/// Whoever holds this sits at a terminal with `teamctl chat`.
fn chat(team: &Team) -> File {
    let chat = File::create(team.path("run/chat")).unwrap();
    chat.lock_shared().unwrap();
    chat
}

/// The last line of the lead's inbox of a type.
fn heard(team: &Team, kind: &str) -> Option<Value> {
    team.inbox("lead").into_iter().rfind(|line| line["type"] == kind)
}

#[test]
fn a_teammate_that_the_lead_agent_starts_works_and_is_heard() {
    let team = team();
    let results = team.lead_does("/spawn_teammate alice coder /bash echo made > made.txt\n/list_teammates");
    assert_eq!(text(&results[0]), ("alice has started (incarnation 1) and works on your prompt", false));
    assert!(text(&results[1]).0.starts_with("alice (coder): "), "{results:?}");
    team.until_finished("alice", 1);
    assert_eq!(team.text("made.txt"), "made\n");
    // Its notice wakes the lead agent, which has nothing to tell itself.
    team.until_lead_ended(2);
    assert!(team.taken_in("lead").iter().any(|line| line["type"] == "idle_notification"));
    assert!(team.notices("lead").is_empty());
    let (alice, lead) = (team.member("alice"), team.member("lead"));
    assert_eq!((&alice["model"], &alice["workspace"]), (&lead["model"], &lead["workspace"]));
}

#[test]
fn what_the_daemon_refuses_is_told_with_the_way_on() {
    let team = team();
    team.spawn("alice", "");
    let results = team.lead_does(
        "/spawn_teammate alice coder x\n/spawn_teammate Bob coder x\n/spawn_teammate lead boss x\n\
         /shutdown_request nobody\n/shutdown_request lead\n/shutdown_response ffffffff\n/send_message lead me\n\
         /plan_approval {\"plan\":\"mine\"}\n/plan_approval ffffffff approve",
    );
    let expected = [
        "alice is running already (take another name, or `teamctl shutdown alice` first)",
        "\"Bob\" is not a name",
        "the name \"lead\" is reserved",
        "no such teammate: nobody (the team has alice, lead)",
        "that is you: name a teammate",
        "no such request: ffffffff",
        "a message to yourself goes nowhere",
        "plan_approval: the field \"request_id\" is missing",
        "no such request: ffffffff",
    ];
    for (result, expected) in results.iter().zip(expected) {
        assert!(text(result).1 && text(result).0.starts_with(expected), "{result}");
    }
    assert_eq!(results.len(), expected.len());
    assert_eq!(team.roster()["members"].as_array().unwrap().len(), 2);
}

#[test]
fn no_teammate_that_the_lead_agent_starts_may_do_more_than_it_may_itself() {
    let team = Team::started();
    let bounds = Sandbox { mode: SandboxMode::ReadOnly, no_network: true, writable: Vec::new() };
    team.start_lead_with(|order| order.sandbox = Some(bounds));
    std::os::unix::fs::symlink("/", team.root().join("link")).unwrap();
    let spawn = |path: &str| {
        format!(
            "/spawn_teammate {}\n",
            json!({"name": "alice", "role": "coder", "prompt": "/bash echo x > x.txt", "workspace": path})
        )
    };
    let orders: String = ["/", "..", "link", ".team", "."].map(spawn).concat();
    let results = team.lead_does(orders.trim_end());
    for result in &results[..4] {
        assert!(text(result).1 && text(result).0.contains("is not in yours"), "{result}");
    }
    assert_eq!((results.len(), text(&results[4]).1), (5, false), "{results:?}");
    team.until_finished("alice", 1);
    assert!(
        text(&team.results("alice")[0]).1 && !team.made("x.txt"),
        "it can write what the lead agent cannot"
    );
    assert_eq!(team.member("alice")["sandbox"], team.member("lead")["sandbox"]);
}

/// Failure 12 (CC#27265).
#[test]
fn the_lead_agent_only_recommends_where_a_person_decides() {
    let team = team();
    let results =
        team.lead_does(r"/spawn_teammate --plan alice coder /plan_approval Drop it\n/bash echo x > x.txt");
    assert!(text(&results[0]).0.ends_with("it submits a plan first, which a person answers"), "{results:?}");
    let id = team.until_planned("alice");
    team.until("the plan to be read", || team.taken_in("lead").iter().any(|line| line["plan"] == "Drop it"));
    let listed = team.lead_does("/list_teammates");
    assert!(
        text(&listed[0]).0.ends_with(&format!("plan {id} of alice waits for a person: Drop it")),
        "{listed:?}"
    );
    let results = team.lead_does(&format!("/plan_approval {id} approve looks right"));
    let (told, is_error) = text(&results[0]);
    assert!(is_error && told.contains(&format!("`teamctl approve {id}`")), "{told}");
    assert_eq!(
        (team.request(&id)["status"].as_str(), team.member("alice")["gate"].as_str()),
        (Some("pending"), Some("closed"))
    );
    assert!(!team.made("x.txt"));
    team.teamctl(["approve", &id]).ok();
    team.until_finished("alice", 1);
    assert!(team.made("x.txt"));
    let results = team.lead_does(&format!("/shutdown_response {id}"));
    assert_eq!(text(&results[0]), (format!("plan {id} of alice: approved").as_str(), false));
}

#[test]
fn at_a_chat_the_call_waits_for_the_persons_answer() {
    let team = team();
    let chat = chat(&team);
    team.teamctl(["spawn", "alice", "--plan", "--prompt", "/plan_approval Drop it\n/plan_approval Again"])
        .ok();
    let id = team.until_planned("alice");
    team.until_lead_ended(1);
    team.send("lead", &format!("/plan_approval {id} approve fine"));
    team.until("the call to wait", || team.member("lead")["activity"] == "waiting for a person");
    // What arrives meanwhile is kept for after the answer.
    team.echo("lead", r#"{"type":"message","from":"bob","content":"psst"}"#);
    team.teamctl(["reject", &id, "--feedback", "smaller steps"]).ok();
    team.until_lead_ended(2);
    let results = team.results("lead");
    assert_eq!(text(&results[0]), ("the person rejected the plan: smaller steps", false));
    team.until("the message to be read", || team.has_taken_in("lead", "psst"));
    // The chat is closed before the person has answered.
    let again = team.until_planned("alice");
    team.until("the plan to be read", || team.taken_in("lead").iter().any(|line| line["plan"] == "Again"));
    team.send("lead", &format!("/plan_approval {again} approve"));
    team.until("the call to wait", || team.member("lead")["activity"] == "waiting for a person");
    drop(chat);
    team.until("the call to end", || team.results("lead").len() == 2);
    let results = team.results("lead");
    let (told, is_error) = text(&results[1]);
    assert!(is_error && told.starts_with("not decided: the chat was closed"), "{told}");
    assert_eq!(team.request(&again)["status"], "pending");
}

#[test]
fn a_call_that_waits_for_a_person_can_be_interrupted_and_does_not_hold_up_a_shutdown() {
    let team = team();
    let _chat = chat(&team);
    team.teamctl(["spawn", "alice", "--plan", "--prompt", "/plan_approval Drop it"]).ok();
    let id = team.until_planned("alice");
    team.until_lead_ended(1);
    let wait = || {
        team.send("lead", &format!("/plan_approval {id} approve"));
        team.until("the call to wait", || team.member("lead")["activity"] == "waiting for a person");
    };
    wait();
    team.teamctl(["interrupt", "lead"]).ok();
    team.until_lead_ended(2);
    assert!(text(&team.results("lead")[0]).0.starts_with("not decided: interrupted by the user"));
    wait();
    team.send("lead", "what does it do?");
    team.until_lead_ended(3);
    assert!(text(&team.results("lead")[1]).0.starts_with("not decided: the person has written"));
    assert!(team.has_taken_in("lead", "what does it do?"));
    wait();
    assert_eq!(team.shutdown("lead", &[], 0)["outcome"], "shutdown");
    let results = team.results("lead");
    assert!(text(&results[2]).0.starts_with("not decided: you are asked to leave"), "{results:?}");
    assert_eq!(team.request(&id)["status"], "pending");
}

#[test]
fn the_lead_agent_answers_alone_where_a_person_has_said_so() {
    let team = team();
    let args = ["spawn", "alice", "--plan", "--approve-by", "lead", "--prompt"];
    team.teamctl([&args[..], &["/plan_approval One\n/plan_approval Two\n/bash echo x > x.txt"]].concat())
        .ok();
    let one = team.until_planned("alice");
    let results = team.lead_does(&format!("/plan_approval {one} reject smaller steps"));
    assert_eq!(
        text(&results[0]),
        ("rejected: its author has your feedback, and its gate stays closed", false)
    );
    team.until("the second plan", || team.requests("plan_approval").len() == 2);
    let two = team.until_planned("alice");
    let results = team.lead_does(&format!("/plan_approval {two} approve"));
    assert_eq!(text(&results[0]), ("approved: the gate of its author is open", false));
    team.until_finished("alice", 1);
    assert!(team.made("x.txt") && text(&team.results("alice")[0]).0.contains("smaller steps"));
}

/// Failure 27 (CC#47930, #76970).
#[test]
fn what_several_teammates_say_at_the_end_of_their_work_is_one_turn() {
    let team = team();
    for name in ["alice", "bob", "carol"] {
        let line = json!({"type": "idle_notification", "from": name, "to": "lead", "summary": "done", "content": "done"});
        team.echo("lead", &line.to_string());
    }
    team.until_lead_ended(1);
    let batches: Vec<usize> = team
        .entries("lead", "messages")
        .iter()
        .map(|entry| entry["messages"].as_array().unwrap().len())
        .collect();
    assert_eq!((batches, team.answers("lead")), (vec![3], 1));
    // What a person says does not wait, and takes along what does.
    let line = json!({"type": "idle_notification", "from": "alice", "to": "lead", "summary": "done"});
    team.echo("lead", &line.to_string());
    team.send("lead", "hello");
    team.until_lead_ended(2);
    assert_eq!(team.answers("lead"), 2);
}

#[test]
fn protocol_lines_and_what_is_for_the_person_cost_no_model_call() {
    let team = team();
    team.spawn("alice", "");
    team.teamctl(["shutdown", "alice"]).ok();
    team.teamctl(["send", "user", "a note to myself"]).ok();
    team.echo("lead", r#"{"type":"message","from":"lead","to":"lead","content":"/bash touch forged"}"#);
    team.until_caught_up("lead");
    team.teamctl(["wait", "lead", "--for", "idle"]).ok();
    assert_eq!(team.answers("lead"), 0);
    let taken: Vec<_> = team.taken_in("lead").iter().map(|line| line["type"].clone()).collect();
    assert_eq!(taken, ["teammate_terminated"], "news for the next turn");
    assert!(!team.made("forged"));
}

#[test]
fn a_shutdown_that_the_lead_agent_asks_for_ends_in_a_real_exit_that_it_hears_of() {
    let team = team();
    team.spawn("alice", "");
    team.spawn_rejecting("bob", "still writing");
    let pid = team.pid("alice");
    let results = team.lead_does("/shutdown_request alice well done");
    let id = team.last_request("shutdown");
    let told = format!(
        "alice is asked to leave (request {id}); you are told when its process is gone, or why it stays"
    );
    assert_eq!(text(&results[0]), (told.as_str(), false));
    team.wait_for("alice", "shutdown");
    assert!(!is_alive(pid));
    // It had asked, so it is woken.
    team.until_lead_ended(2);
    assert_eq!(heard(&team, "teammate_terminated").unwrap()["asked_by"], "lead");
    let results = team.lead_does(&format!("/shutdown_response {id}"));
    assert_eq!(
        text(&results[0]),
        (format!("shutdown {id} of alice: approved (idle); its process is gone").as_str(), false)
    );
    // A rejection wakes it, too.
    let turns = team.lead_turns();
    team.lead_does("/shutdown_request bob");
    team.until_lead_ended(turns + 2);
    assert_eq!(heard(&team, "shutdown_response").unwrap()["reason"], "still writing");
    assert_ne!(team.status("bob"), "shutdown");
}

#[test]
fn a_teammate_that_stays_though_a_person_asked_is_the_persons_matter() {
    let team = team();
    team.spawn_rejecting("bob", "still writing");
    assert_eq!(team.shutdown("bob", &[], 3)["outcome"], "rejected");
    team.until_caught_up("lead");
    team.teamctl(["wait", "lead", "--for", "idle"]).ok();
    assert_eq!(team.answers("lead"), 0);
    assert_eq!(heard(&team, "shutdown_response").unwrap()["asked_by"], Value::Null);
    // It is news for the next turn.
    team.lead_does("/list_teammates");
    assert!(team.taken_in("lead").iter().any(|line| line["type"] == "shutdown_response"));
}

#[test]
fn a_lead_agent_that_is_killed_goes_on_with_its_conversation() {
    let team = team();
    team.lead_does("/bash echo one");
    team.kill_and_wait_for_the_next_life("lead");
    team.lead_does("/spawn_teammate alice coder hello");
    assert_eq!(team.results("lead").len(), 2);
    let lives = team.entries("lead", "life");
    assert_eq!(lives.iter().map(|life| life["conversation"].as_i64().unwrap()).collect::<Vec<_>>(), [1, 1]);
    team.wait_for("alice", "idle");
}

/// Rule 14: who is asked to leave is one life, and the next one has done nothing.
#[test]
fn a_shutdown_that_a_crash_broke_off_is_not_asked_of_the_next_life() {
    let team = Team::started();
    team.start_lead_with(|order| order.restart = Some(Restart::Never));
    team.spawn("alice", "");
    team.kill_daemon();
    team.send("lead", "/shutdown_request alice");
    team.until("the call to begin", || team.answers("lead") == 1);
    signal(team.pid("lead"), Signal::SIGKILL);
    team.teamd(["start"]).ok();
    team.wait_for("lead", "crashed");
    team.teamctl(["shutdown", "alice"]).ok();
    team.spawn("alice", "");
    team.resume_lead();
    team.until_lead_ended(1);
    let results = team.results("lead");
    let (told, is_error) = text(&results[0]);
    assert!(is_error && told.contains("may have been carried out (list_teammates"), "{told}");
    assert_eq!((team.requests("shutdown").len(), team.status("alice").as_str()), (1, "idle"));
    assert!(is_alive(team.pid("alice")));
}

#[test]
fn a_lead_agent_that_is_killed_in_a_call_does_nothing_twice() {
    let team = team();
    team.spawn("alice", "");
    let daemon = team.daemon_pid();
    let orders = ["/broadcast go on", "/spawn_teammate bob coder hello", "/shutdown_request alice done"];
    for (made, order) in orders.into_iter().enumerate() {
        let (answers, life) = (team.answers("lead"), team.incarnation("lead"));
        signal(daemon, Signal::SIGSTOP);
        team.send("lead", order);
        team.until("the call to begin", || team.answers("lead") > answers);
        signal(team.pid("lead"), Signal::SIGKILL);
        signal(daemon, Signal::SIGCONT);
        team.until("the next life to go on", || {
            team.incarnation("lead") == life + 1 && team.results("lead").len() > made
        });
        team.teamctl(["wait", "lead", "--for", "idle"]).ok();
    }
    let results = team.results("lead");
    assert_eq!((results.len(), text(&results[0])), (3, ("sent to alice", false)));
    for result in &results[1..] {
        assert!(text(result).1 && text(result).0.contains("may have been carried out"), "{result}");
    }
    // Whether the daemon had heard of it before is chance; that it has heard of it once is not.
    // A line that is written again has the same id, and its reader drops it.
    let lines = team.inbox("alice");
    let broadcasts =
        lines.iter().filter(|line| line["type"] == "broadcast").map(|line| line["id"].to_string());
    let broadcasts: std::collections::BTreeSet<String> = broadcasts.collect();
    assert_eq!((broadcasts.len(), team.requests("shutdown").len() <= 1), (1, true));
    assert!(team.incarnation("bob") <= 1);
    if team.requests("shutdown").len() == 1 {
        team.wait_for("alice", "shutdown");
    }
}

#[test]
fn a_call_that_waits_for_a_person_goes_on_waiting_in_the_next_life() {
    let team = team();
    let _chat = chat(&team);
    let prompt = "/plan_approval Drop it\n/bash echo x >> x.txt";
    team.teamctl(["spawn", "alice", "--plan", "--prompt", prompt]).ok();
    let id = team.until_planned("alice");
    team.until_lead_ended(1);
    team.send("lead", &format!("/plan_approval {id} approve fine"));
    team.until("the call to wait", || team.member("lead")["activity"] == "waiting for a person");
    signal(team.pid("lead"), Signal::SIGKILL);
    team.until("the next life to wait", || {
        team.incarnation("lead") == 2 && team.member("lead")["activity"] == "waiting for a person"
    });
    assert_eq!(team.request(&id)["status"], "pending");
    team.teamctl(["approve", &id]).ok();
    team.until_finished("alice", 1);
    team.until_lead_ended(2);
    let results = team.results("lead");
    assert_eq!((results.len(), text(&results[0])), (1, ("the person approved the plan", false)));
    assert_eq!((team.text("x.txt"), team.requests("plan_approval").len()), ("x\n".to_owned(), 1));
}

#[test]
fn a_lead_agent_is_adopted_and_its_team_hears_it_as_before() {
    let team = team();
    let pid = team.pid("lead");
    team.kill_daemon();
    team.send("lead", "/spawn_teammate alice coder hello");
    team.until("the call to begin", || team.answers("lead") == 1);
    team.teamd(["start"]).ok();
    team.until_lead_ended(1);
    assert_eq!(team.pid("lead"), pid);
    assert_eq!(
        text(&team.results("lead")[0]).0,
        "alice has started (incarnation 1) and works on your prompt"
    );
    let alice = team.pid("alice");
    team.teamd(["stop"]).ok();
    assert!(!is_alive(pid) && !is_alive(alice));
    assert_eq!((team.status("lead"), team.status("alice")), ("shutdown".into(), "shutdown".into()));
    team.until_nobody_is_left();
}

#[test]
fn the_lead_agent_leaves_the_quarantine_to_the_daemon() {
    let team = team();
    team.echo("lead", "no message");
    team.until("the line to be kept", || team.lines("inbox/lead.rejected.jsonl").len() == 1);
    team.until_caught_up("lead");
    team.lead_does("hello");
    assert_eq!(team.lines("inbox/lead.rejected.jsonl").len(), 1);
    let notices = team
        .inbox("lead")
        .into_iter()
        .filter(|line| line["content"].as_str().unwrap().contains("could not be read"));
    assert_eq!(notices.count(), 1);
    assert!(team.entries("lead", "rejected").is_empty());
    // The next life of it finds it likewise.
    team.kill_and_wait_for_the_next_life("lead");
    team.lead_does("hello again");
    assert_eq!(team.lines("inbox/lead.rejected.jsonl").len(), 1);
}

#[test]
fn a_fresh_lead_agent_does_not_read_what_was_told_before_and_a_resumed_one_does() {
    let team = Team::started();
    team.send("lead", "months ago");
    team.start_lead();
    team.lead_does("one");
    assert!(!team.has_taken_in("lead", "months ago") && team.has_taken_in("lead", "one"));
    team.teamctl(["shutdown", "lead"]).ok();
    team.send("lead", "between two lives");
    team.resume_lead();
    team.until("the mail to be read", || team.has_taken_in("lead", "between two lives"));
    team.teamctl(["shutdown", "lead"]).ok();
    team.send("lead", "between two others");
    team.start_lead();
    team.lead_does("two");
    assert!(!team.has_taken_in("lead", "between two others"));
}

#[test]
fn people_do_with_the_lead_agent_what_they_do_with_a_member() {
    let team = team();
    team.spawn("alice", "");
    let refused = team.teamctl(["spawn", "lead"]).exits(2);
    assert!(refused.stderr.contains("`teamctl chat`"), "{refused:?}");
    assert!(team.teamctl(["request-plan", "lead"]).exits(7).stderr.contains("submits no plans"));
    assert!(team.teamctl(["broadcast", "hello"]).ok().stdout.contains("sent to alice ("));
    team.teamctl(["status", "lead"]).ok();
    team.teamctl(["transcript", "lead"]).ok();
    team.teamctl(["log", "lead"]).ok();
    assert_eq!(team.json(["wait", "lead", "--for", "idle"])["status"], "idle");
    team.teamctl(["shutdown", "--all"]).ok();
    assert_eq!((team.status("alice"), team.status("lead")), ("shutdown".into(), "idle".into()));
    team.send("lead", "/sleep 30");
    team.wait_for("lead", "working");
    team.teamctl(["interrupt", "lead"]).ok();
    team.until_lead_ended(1);
    team.teamctl(["shutdown", "lead"]).ok();
    let before = team.inbox("lead").len();
    let forgotten = team.json(["forget", "lead"]);
    assert!(
        forgotten["files"].as_array().unwrap().iter().all(|file| !file.as_str().unwrap().contains("inbox"))
    );
    assert_eq!((team.inbox("lead").len(), team.member("lead")), (before, Value::Null));
    assert!(team.teamctl(["transcript", "lead"]).exits(4).stderr.contains("`teamctl chat` starts one"));
    team.start_lead();
    assert_eq!(team.incarnation("lead"), 2, "a name goes on counting");
}

#[test]
fn a_broadcast_of_a_teammate_reaches_the_lead_once() {
    let team = team();
    team.spawn("alice", "");
    team.spawn("bob", "/send_message all stop");
    team.until_finished("bob", 1);
    let to_lead = team.inbox("lead").into_iter().filter(|line| line["type"] == "broadcast").count();
    assert_eq!((to_lead, team.has_taken_in("alice", "stop")), (1, true));
    let results = team.lead_does("/broadcast go on");
    assert_eq!(text(&results[0]), ("sent to alice, bob", false));
    let own = team.inbox("lead").into_iter().filter(|line| line["type"] == "broadcast").count();
    assert_eq!(own, to_lead);
}

#[test]
fn sigterm_ends_the_lead_agent_like_any_worker() {
    let team = team();
    signal(team.pid("lead"), Signal::SIGTERM);
    team.wait_for("lead", "killed");
    assert_eq!(team.events("spawning"), 1, "it is not started again");
}
