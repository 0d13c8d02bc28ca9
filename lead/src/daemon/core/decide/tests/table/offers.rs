//! Reminders of a task that its owner has not submitted.

use teamd_shared::control::{Command, TaskOrder, WorkerState};
use teamd_shared::journal::Record;
use teamd_shared::member::Doing;
use teamd_shared::task::{TaskEvent, TaskFields};

use super::super::harness::*;
use crate::daemon::core::event::{Actor, Event};

/// Whether an owner that goes idle is reminded, after this was asked of the daemon.
fn is_reminded(asked: Option<Command>) -> bool {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let fields = TaskFields { subject: Some("fix it".to_owned()), ..TaskFields::default() };
    let add = TaskOrder::Add { id: next_id(), tasks: vec![fields], within: false };
    harness.on(&Event::Task(CLIENT, Actor::Person, add, None));
    harness.on(&Event::Task(CLIENT, Actor::Member(name("alice")), TaskOrder::Claim(Some(1)), None));
    let says = |doing| Event::Said { incarnation: alice.clone(), state: WorkerState { doing, ..idle() } };
    harness.on(&says(Doing::Working));
    asked.map(|command| harness.on(&Event::Command(CLIENT, command)));
    let decision = harness.on(&says(Doing::Idle));
    let reminds = |record: &Record| matches!(record, Record::Task(it) if it.event == TaskEvent::Reminded);
    decision.records.iter().any(reminds)
}

#[test]
fn an_owner_is_reminded_of_its_task_unless_it_is_to_leave() {
    assert!(is_reminded(None));
    assert!(!is_reminded(Some(Command::Stop { force: true })));
    assert!(!is_reminded(Some(shutdown("alice", None))));
}
