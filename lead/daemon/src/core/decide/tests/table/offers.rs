//! Reminders of a task that its owner has not submitted.

use teamd_shared::check::CheckReport;
use teamd_shared::checkout::Checkout;
use teamd_shared::control::{Command, RefusalCode, TaskOrder, WorkerState};
use teamd_shared::job::JobReport;
use teamd_shared::journal::Record;
use teamd_shared::member::Doing;
use teamd_shared::task::{MAX_IDLE_RELEASES, MAX_REMINDERS, TaskEvent, TaskFields, TaskStatus};

use super::super::harness::*;
use crate::core::event::{Action, Actor, Event, Incarnation};

/// Makes a task, which waits for a teammate.
fn adds(harness: &mut Harness) {
    let fields = TaskFields {
        subject: Some("fix it".to_owned()),
        ..TaskFields::default()
    };
    let add = TaskOrder::Add {
        id: next_id(),
        tasks: vec![fields],
        within: false,
    };
    harness.on(&Event::Command(CLIENT, Actor::Person, Command::Task(add)));
}

fn asks(harness: &mut Harness, who: &str, order: TaskOrder) -> Result<(), RefusalCode> {
    let by = if who.is_empty() {
        Actor::Person
    } else {
        Actor::Member(name(who))
    };
    let decision = harness.on(&Event::Command(CLIENT, by, Command::Task(order)));
    reply(&decision).map(drop).map_err(|refusal| refusal.code)
}

#[test]
fn a_task_that_owners_let_lie_three_times_waits_for_a_person_and_no_check_has_failed() {
    let mut harness = Harness::new();
    adds(&mut harness);
    for times in 1..=MAX_IDLE_RELEASES {
        harness.spawn(never_restarted("alice")).unwrap();
        let alice = harness.starts("alice");
        assert_eq!(
            asks(&mut harness, "alice", TaskOrder::Claim(Some(1))),
            Ok(())
        );
        // The second time it crashes for good.
        if times == 2 {
            harness.ends(&alice);
        } else {
            for _ in 0..=MAX_REMINDERS {
                for doing in [Doing::Working, Doing::Idle] {
                    let state = WorkerState { doing, ..idle() };
                    harness.on(&Event::Said {
                        incarnation: alice.clone(),
                        state,
                    });
                }
            }
        }
        let task = &harness.team.tasks[&1];
        assert_eq!(
            (task.status, task.attempts, task.idle_releases),
            (TaskStatus::Pending, 0, times)
        );
        if times != 2 {
            harness.ends(&alice);
        }
    }
    harness.runs("alice");
    for id in [Some(1), None] {
        assert_eq!(
            asks(&mut harness, "alice", TaskOrder::Claim(id)),
            Err(RefusalCode::Conflict)
        );
    }
    assert_eq!(
        asks(&mut harness, "", TaskOrder::Assign(1, name("alice"))),
        Ok(())
    );
    assert_eq!(asks(&mut harness, "alice", TaskOrder::Claim(None)), Ok(()));
    assert_eq!(harness.team.tasks[&1].idle_releases, 0);
}

#[test]
fn a_check_that_fails_while_the_kernel_kills_for_memory_is_run_once_more_and_then_counts() {
    let mut harness = Harness::new();
    harness.runs("alice");
    let check = Some("true".to_owned());
    let fields = TaskFields {
        subject: Some("fix it".to_owned()),
        check,
        ..TaskFields::default()
    };
    let add = TaskOrder::Add {
        id: next_id(),
        tasks: vec![fields],
        within: false,
    };
    assert_eq!(asks(&mut harness, "", add), Ok(()));
    for submission in 1..=2 {
        if submission == 1 {
            assert_eq!(asks(&mut harness, "alice", TaskOrder::Claim(None)), Ok(()));
        }
        assert_eq!(
            asks(&mut harness, "alice", TaskOrder::Submit(1, String::new())),
            Ok(())
        );
        let report = CheckReport {
            exit: Some(137),
            starved: true,
            ..CheckReport::default()
        };
        let decision = harness.check_ends(1, report.clone());
        assert!(
            decision.actions.contains(&Action::CheckAgain(1)),
            "{decision:?}"
        );
        let task = &harness.team.tasks[&1];
        assert_eq!(
            (task.status, task.attempts),
            (TaskStatus::InReview, submission - 1)
        );
        assert!(task.held_up().unwrap().contains("for memory"), "{task:?}");
        harness.check_ends(1, report);
        let task = &harness.team.tasks[&1];
        assert_eq!(
            (task.status, task.attempts),
            (TaskStatus::InProgress, submission)
        );
    }
}

/// Whether an owner that goes idle is reminded, after this was asked of the daemon.
fn is_reminded(asked: Option<Command>) -> bool {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    adds(&mut harness);
    harness.on(&Event::Command(
        CLIENT,
        Actor::Member(name("alice")),
        Command::Task(TaskOrder::Claim(Some(1))),
    ));
    let says = |doing| Event::Said {
        incarnation: alice.clone(),
        state: WorkerState { doing, ..idle() },
    };
    harness.on(&says(Doing::Working));
    asked.map(|command| harness.on(&Event::Command(CLIENT, Actor::Person, command)));
    let decision = harness.on(&says(Doing::Idle));
    decision
        .records
        .iter()
        .any(|record| matches!(record, Record::Task(it) if it.event == TaskEvent::Reminded))
}

#[test]
fn an_owner_is_reminded_of_its_task_unless_it_is_to_leave() {
    assert!(is_reminded(None));
    assert!(!is_reminded(Some(Command::Stop { force: true })));
    assert!(!is_reminded(Some(shutdown("alice", None))));
}

/// A teammate with a checkout, whose claim of the first of two tasks has begun a job.
fn claims_in_a_checkout() -> (Harness, Incarnation, u64) {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let state = harness.team.members.get_mut(&name("alice")).unwrap();
    state.record.terms.checkout = Some(Checkout::default());
    adds(&mut harness);
    adds(&mut harness);
    let claim = Command::Task(TaskOrder::Claim(None));
    let by = Actor::Member(name("alice"));
    let decision = harness.on(&Event::Command(CLIENT, by, claim));
    let [Action::Begin(job)] = decision.actions.as_slice() else {
        panic!("{decision:?}")
    };
    let job = harness.live.jobs.begin(job.then.clone()).unwrap();
    (harness, alice, job)
}

fn branched(job: u64) -> Event {
    Event::JobEnded {
        job,
        ended: Ok(JobReport::Branched(Vec::new())),
    }
}

#[test]
fn one_branch_at_a_time_is_begun_in_a_checkout() {
    let (mut harness, _, job) = claims_in_a_checkout();
    let other = asks(&mut harness, "alice", TaskOrder::Claim(Some(2)));
    assert_eq!(other, Err(RefusalCode::Conflict));
    harness.on(&branched(job));
    assert_eq!(harness.team.held_by(&name("alice")).unwrap().id, 1);
}

#[test]
fn a_claim_counts_only_while_the_incarnation_runs_that_made_it() {
    let (mut harness, alice, job) = claims_in_a_checkout();
    harness.ends(&alice);
    harness.starts("alice");
    assert_eq!(harness.on(&branched(job)).records, []);
}

#[test]
fn a_claim_whose_task_was_taken_meanwhile_is_refused() {
    let (mut harness, _, job) = claims_in_a_checkout();
    assert_eq!(asks(&mut harness, "", TaskOrder::Cancel(1)), Ok(()));
    let decision = harness.on(&branched(job));
    assert_eq!(refusal(reply(&decision)).0, RefusalCode::Conflict);
}
