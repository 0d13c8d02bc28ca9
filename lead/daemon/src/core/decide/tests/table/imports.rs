//! Tasks that are made of what strangers have written: by a person, and each source once.

use teamd_shared::control::{Command, Done, ImportedTask, RefusalCode, TaskOrder};
use teamd_shared::id::RequestId;
use teamd_shared::journal::Record;
use teamd_shared::name::Name;
use teamd_shared::task::TaskFields;

use super::super::harness::{AGENT, CLIENT, Harness, name, refusal, reply, request_id};
use crate::core::caller::Actor;
use crate::core::event::Event;

fn import(id: RequestId, sources: &[&str]) -> Command {
    let tasks = sources.iter().map(|source| ImportedTask {
        source: source.to_string(),
        fields: TaskFields {
            subject: Some("theirs".to_owned()),
            plan: Some(true),
            ..TaskFields::default()
        },
    });
    let tasks = tasks.collect();
    Command::Task(TaskOrder::Import { id, tasks })
}

#[test]
fn only_a_person_imports_tasks() {
    let mut harness = Harness::new();
    harness.runs("lead");
    harness.runs("alice");
    let order = || import(request_id("aaaa0001"), &["gh:a/b#1"]);
    for by in [
        Actor::Member(Name::lead()),
        Actor::Member(name("alice")),
        Actor::RunByLead("claude (pid 7)".to_owned()),
    ] {
        let refused = reply(&harness.on(&Event::Command(AGENT, by, order())));
        assert_eq!(refusal(refused).0, RefusalCode::Rejected);
    }
    assert_eq!(harness.ask(order()), Ok(Done::Made(vec![1])));
    let task = &harness.team.tasks[&1];
    assert_eq!(task.source.as_deref(), Some("gh:a/b#1"));
    assert!(task.plan);
}

#[test]
fn each_source_is_imported_once_and_the_same_command_is_joined() {
    let mut harness = Harness::new();
    let first = import(request_id("aaaa0001"), &["gh:a/b#1", "gh:a/b#2"]);
    assert_eq!(harness.ask(first.clone()), Ok(Done::Made(vec![1, 2])));
    assert_eq!(harness.ask(first), Ok(Done::Made(vec![1, 2])));
    for again in [&["gh:a/b#3", "gh:a/b#2"][..], &["gh:a/b#4", "gh:a/b#4"]] {
        let refused = harness.ask(import(request_id("aaaa0002"), again));
        let (_, message) = refusal(refused);
        let is_told = message == "gh:a/b#2 is imported already: task 2 (theirs)"
            || message == "gh:a/b#4 is there twice";
        assert!(is_told, "{message}");
    }
    for wrong in ["", "gh:a/b#\u{202e}1", &"x".repeat(301)] {
        let refused = harness.ask(import(request_id("aaaa0003"), &[wrong]));
        assert_eq!(refusal(refused).0, RefusalCode::Usage, "{wrong}");
    }
    assert_eq!(harness.team.last_task, 2);
    // A cancelled task is not made again either, and a snapshot knows the source without the task.
    let cancel = Command::Task(TaskOrder::Cancel(2));
    harness.ask(cancel).unwrap();
    let refused = harness.ask(import(request_id("aaaa0004"), &["gh:a/b#2"]));
    assert_eq!(refusal(refused).0, RefusalCode::Conflict);
    let Some(Record::Snapshot(snapshot)) = harness.team.snapshot() else {
        panic!("there is none");
    };
    let sources: Vec<&str> = snapshot.sources.keys().map(String::as_str).collect();
    assert_eq!(sources, ["gh:a/b#1", "gh:a/b#2"]);
}

#[test]
fn the_lead_agent_takes_the_plan_from_no_imported_task() {
    let mut harness = Harness::new();
    harness.runs("lead");
    harness
        .ask(import(request_id("aaaa0001"), &["gh:a/b#1"]))
        .unwrap();
    let loose = TaskFields {
        plan: Some(false),
        ..TaskFields::default()
    };
    let edit = || Command::Task(TaskOrder::Edit(1, Box::new(loose.clone())));
    let (code, message) = refusal(harness.agent_asks(edit()));
    assert_eq!(code, RefusalCode::Conflict);
    assert!(message.contains("the plan of task 1"), "{message}");
    let person = reply(&harness.on(&Event::Command(CLIENT, Actor::Person, edit())));
    assert!(person.is_ok() && !harness.team.tasks[&1].plan);
}
