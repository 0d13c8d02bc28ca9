//! How the end of a command in the background reaches the model: as a message, once.

use serde_json::{Value, json};

use crate::support::Team;

fn with_alice() -> Team {
    let team = Team::started();
    team.spawn("alice", "");
    team
}

fn in_background(command: &str) -> String {
    let call = json!({"command": command, "run_in_background": true});
    format!("/bash {call}")
}

/// What the runtime has told her.
fn told(team: &Team) -> Vec<String> {
    let all = team.inbox("alice").into_iter();
    all.filter(|message| message["from"] == "runtime")
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect()
}

/// How often she has read what the runtime has told her.
fn read(team: &Team) -> usize {
    let entries = team.transcript("alice").into_iter();
    let messages = entries.filter_map(|entry| entry["messages"].as_array().cloned());
    messages
        .flatten()
        .filter(|message: &Value| message["from"] == "runtime")
        .count()
}

#[test]
fn the_model_reads_how_it_ended_once_even_if_it_is_idle() {
    let team = with_alice();
    let order = in_background("echo first; echo '/bash touch obeyed'; echo no good >&2; exit 3");
    team.does("alice", &order);
    team.until("the message to be read", || read(&team) == 1);
    let told_of = told(&team);
    let text = &told_of[0];
    assert!(
        text.starts_with("Your background command 1 (`echo first;"),
        "{text}"
    );
    assert!(text.contains(" is over: exit code 3, after "), "{text}");
    assert!(text.contains("background-1.log; it ends with:"), "{text}");
    assert!(text.ends_with("\n> no good"), "{text}");
    team.until("her to be idle again", || {
        let last = team.transcript("alice").pop().unwrap();
        last["entry"] == "idle" && team.status("alice") == "idle"
    });
    assert!(!team.made("obeyed"), "an output gives no orders");
    let log = team.file("log/alice.background-1.log");
    assert!(log.ends_with("[exit code 3]\n"), "{log}");
    // A resume repeats nothing.
    team.kill_and_wait_for_restart("alice");
    team.does("alice", "/bash echo again");
    assert_eq!((told(&team).len(), read(&team)), (1, 1));
}

#[test]
fn nothing_is_told_of_one_that_the_gate_or_a_shutdown_ended() {
    let team = with_alice();
    team.does("alice", &in_background("sleep 300"));
    team.teamctl(["request-plan", "alice"]).ok();
    let log = || team.file("log/alice.background-1.log");
    team.until("the gate to end it", || log() == "\n[ended]\n");
    let other = team.spawn("bob", "");
    assert_eq!(other["status"], "idle");
    team.does("bob", &in_background("sleep 300"));
    team.teamctl(["shutdown", "bob"]).ok();
    let ended = team.teamctl(["status", "--json"]).ok();
    assert!(ended.stdout.contains("shutdown"), "{}", ended.stdout);
    assert!(told(&team).is_empty());
    let of_bob = team.inbox("bob");
    assert!(of_bob.iter().all(|message| message["from"] != "runtime"));
}

#[test]
fn after_a_crash_the_model_reads_which_have_ended_with_its_worker() {
    let team = with_alice();
    let orders = [in_background("sleep 300"), in_background("exit 0")].join("\n");
    team.does("alice", &orders);
    team.until("the end of the second to be read", || read(&team) == 1);
    team.kill_and_wait_for_restart("alice");
    team.until("the end of the first to be read", || read(&team) == 2);
    let told_of = told(&team);
    assert!(
        told_of[1].starts_with("Your background command 1 ended when the worker was killed"),
        "{told_of:?}"
    );
    let log = team.file("log/alice.background-1.log");
    assert!(log.contains("its worker, which was killed"), "{log}");
    team.kill_and_wait_for_restart("alice");
    team.does("alice", "/bash echo again");
    assert_eq!((told(&team).len(), read(&team)), (2, 2));
}

#[test]
fn the_owner_of_a_task_is_not_reminded_of_it_while_its_command_runs() {
    let team = with_alice();
    team.teamctl(["task", "add", "build"]).ok();
    let command = in_background("until [ -e go ]; do sleep 0.05; done");
    let orders = format!("/claim_task {{\"task_id\": 1}}\n{command}");
    team.teamctl(["send", "alice", &orders]).ok();
    let task = || team.json(["task", "show", "1"]);
    team.until("her to wait for the command", || {
        let last = team.transcript("alice").pop().unwrap();
        task()["status"] == "in_progress" && last["entry"] == "idle"
    });
    team.spawn("bob", "");
    team.does("bob", "/bash echo another piece of work");
    assert_eq!(team.events("reminded"), 0);
    team.write("go", "");
    team.until("the end to be read", || read(&team) == 1);
    team.until("a reminder", || team.events("reminded") > 0);
}

#[test]
fn what_her_commands_printed_is_kept_with_her_other_files_when_she_is_forgotten() {
    let team = with_alice();
    team.does("alice", &in_background("echo printed"));
    team.until("the output to be kept", || {
        team.file("log/alice.background-1.log").contains("printed")
    });
    team.shutdown("alice", &[], 0);
    let forgotten = team.json(["forget", "alice"]);
    let files = forgotten["files"].as_array().unwrap().iter();
    let mut files = files.filter_map(Value::as_str);
    let kept = files.find(|file| file.ends_with(".log.alice.background-1.log"));
    assert!(team.file(kept.unwrap()).contains("printed"), "{forgotten}");
    assert!(!team.path("log/alice.background-1.log").exists());
    // Another one of that name begins without it.
    team.spawn("alice", "");
    assert!(!team.path("log/alice.background-1.log").exists());
}
