//! Offers and claims, with a branch in a checkout, and reminders of a task that its owner has not
//! submitted.

use teamd_shared::check::CheckReport;
use teamd_shared::checkout::Checkout;
use teamd_shared::control::{Command, RefusalCode, TaskOrder, WorkerState};
use teamd_shared::job::JobReport;
use teamd_shared::journal::Record;
use teamd_shared::member::Doing;
use teamd_shared::task::{MAX_IDLE_RELEASES, MAX_REMINDERS, TaskEvent, TaskFields, TaskStatus};

use super::super::harness::*;
use crate::core::caller::Actor;
use crate::core::decide::Decision;
use crate::core::event::{Action, Event};
use crate::core::incarnation::Incarnation;
use crate::core::job::Then;

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

/// Adds a task that is done when its check passes, and its reviewer, if there is one, accepts it.
fn adds_checked_task(harness: &mut Harness, review: Option<&str>) {
    let fields = TaskFields {
        subject: Some("fix it".to_owned()),
        check: Some("true".to_owned()),
        review: review.map(str::to_owned),
        ..TaskFields::default()
    };
    let add = TaskOrder::Add {
        id: next_id(),
        tasks: vec![fields],
        within: false,
    };
    assert_eq!(asks(harness, "", add), Ok(()));
}

#[test]
fn a_check_that_fails_while_the_kernel_kills_for_memory_is_run_once_more_and_then_counts() {
    let mut harness = Harness::new();
    harness.runs("alice");
    adds_checked_task(&mut harness, None);
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

#[test]
fn a_check_that_passes_runs_no_longer_alone() {
    let mut harness = Harness::new();
    harness.runs("alice");
    adds_checked_task(&mut harness, Some("person"));
    for order in [TaskOrder::Claim(None), TaskOrder::Submit(1, String::new())] {
        assert_eq!(asks(&mut harness, "alice", order), Ok(()));
    }
    let is_alone = |harness: &Harness| {
        let submission = harness.team.tasks[&1].submission.as_ref();
        submission.unwrap().starved
    };
    let report = CheckReport {
        exit: Some(137),
        starved: true,
        ..CheckReport::default()
    };
    harness.check_ends(1, report.clone());
    assert!(is_alone(&harness));
    let passed = CheckReport {
        exit: Some(0),
        starved: false,
        ..report
    };
    harness.check_ends(1, passed);
    assert!(!is_alone(&harness));
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
    let job = harness.runtime.jobs.begin(job.then.clone()).unwrap();
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

/// Lets a teammate with a checkout begin.
fn runs_in_a_checkout(harness: &mut Harness, who: &str, auto: bool) -> Incarnation {
    let incarnation = harness.runs(who);
    let state = harness.team.members.get_mut(&name(who)).unwrap();
    state.record.terms.checkout = Some(Checkout::default());
    state.record.terms.auto = auto;
    incarnation
}

/// Returns the job that a decision begins.
fn begins(harness: &mut Harness, decision: &Decision) -> u64 {
    let job = decision.actions.iter().find_map(|action| match action {
        Action::Begin(job) => Some(job.then.clone()),
        _ => None,
    });
    let then = job.unwrap_or_else(|| panic!("{decision:?}"));
    harness.runtime.jobs.begin(then).unwrap()
}

/// A person submits the task that alice holds, which has begun a job in her checkout.
fn submitted_by_a_person() -> (Harness, Incarnation, u64) {
    let (mut harness, alice, job) = claims_in_a_checkout();
    harness.on(&branched(job));
    let submit = Command::Task(TaskOrder::Submit(1, String::new()));
    let decision = harness.on(&Event::Command(CLIENT, Actor::Person, submit));
    let job = begins(&mut harness, &decision);
    (harness, alice, job)
}

fn kept(job: u64) -> Event {
    Event::JobEnded {
        job,
        ended: Ok(JobReport::Kept {
            commit: "1".repeat(40),
            reference: None,
        }),
    }
}

#[test]
fn what_a_person_submits_is_the_work_of_its_owner() {
    let (mut harness, _, job) = submitted_by_a_person();
    harness.on(&kept(job));
    assert_eq!(harness.team.tasks[&1].status, TaskStatus::InReview);
}

#[test]
fn what_a_person_submits_is_refused_when_the_task_has_another_owner_meanwhile() {
    let (mut harness, _, job) = submitted_by_a_person();
    assert_eq!(asks(&mut harness, "", TaskOrder::Release(1)), Ok(()));
    runs_in_a_checkout(&mut harness, "bob", false);
    let claim = Command::Task(TaskOrder::Claim(Some(1)));
    let decision = harness.on(&Event::Command(CLIENT, Actor::Member(name("bob")), claim));
    let branch = begins(&mut harness, &decision);
    harness.on(&branched(branch));
    let decision = harness.on(&kept(job));
    assert_eq!(refusal(reply(&decision)).0, RefusalCode::Conflict);
    let task = &harness.team.tasks[&1];
    assert_eq!(
        (task.status, task.owner.clone()),
        (TaskStatus::InProgress, Some(name("bob")))
    );
}

#[test]
fn what_a_person_submits_is_refused_when_its_owner_has_started_again_meanwhile() {
    let (mut harness, alice, job) = submitted_by_a_person();
    harness.ends(&alice);
    harness.starts("alice");
    let decision = harness.on(&kept(job));
    assert_eq!(refusal(reply(&decision)).0, RefusalCode::Conflict);
    assert_eq!(harness.team.tasks[&1].status, TaskStatus::InProgress);
}

/// An idle teammate whose checkout gets the branch of the task that it is to be given.
fn is_offered() -> (Harness, Incarnation, u64) {
    let mut harness = Harness::new();
    let alice = runs_in_a_checkout(&mut harness, "alice", true);
    adds(&mut harness);
    adds(&mut harness);
    let decision = harness.on(&Event::Offer);
    let job = begins(&mut harness, &decision);
    (harness, alice, job)
}

#[test]
fn an_idle_teammate_is_given_the_task_whose_branch_was_begun() {
    let (mut harness, _, job) = is_offered();
    harness.on(&branched(job));
    assert_eq!(harness.team.held_by(&name("alice")).unwrap().id, 1);
}

#[test]
fn a_branch_that_was_begun_for_an_earlier_incarnation_means_nothing_to_the_next_one() {
    let refused = |job| Event::JobEnded {
        job,
        ended: Err("no branch".to_owned()),
    };
    for report in [branched, refused] {
        let (mut harness, alice, job) = is_offered();
        harness.ends(&alice);
        harness.starts("alice");
        assert_eq!(harness.on(&report(job)).records, []);
        assert_eq!(
            harness
                .runtime
                .member(&name("alice"))
                .unwrap()
                .refusals
                .in_a_row,
            0
        );
    }
}

#[test]
fn a_claim_beside_an_offer_is_told_to_try_again_and_can() {
    let (mut harness, alice, job) = is_offered();
    let state = WorkerState {
        doing: Doing::Working,
        ..WorkerState::default()
    };
    harness.on(&Event::Said {
        incarnation: alice,
        state,
    });
    let claim = || {
        let claim = Command::Task(TaskOrder::Claim(Some(2)));
        Event::Command(CLIENT, Actor::Member(name("alice")), claim)
    };
    let decision = harness.on(&claim());
    let told = reply(&decision).unwrap_err();
    assert_eq!(
        (told.message.as_str(), told.hint.as_deref()),
        (
            "the branch of task 1 is being begun in alice's checkout",
            Some("try again in a moment")
        )
    );
    assert_eq!(harness.on(&branched(job)).records, [], "she is at work");
    let decision = harness.on(&claim());
    begins(&mut harness, &decision);
}

#[test]
fn a_check_of_an_earlier_submission_says_nothing_about_the_present_one() {
    let (mut harness, _, job) = submitted_by_a_person();
    harness.on(&kept(job));
    let earlier = harness
        .runtime
        .jobs
        .begin(Then::Check {
            task: 1,
            number: 1,
            host: None,
        })
        .unwrap();
    assert_eq!(asks(&mut harness, "", TaskOrder::Release(1)), Ok(()));
    let claim = Command::Task(TaskOrder::Claim(Some(1)));
    let alice = Actor::Member(name("alice"));
    let decision = harness.on(&Event::Command(CLIENT, alice.clone(), claim));
    let branch = begins(&mut harness, &decision);
    harness.on(&branched(branch));
    let submit = Command::Task(TaskOrder::Submit(1, String::new()));
    let decision = harness.on(&Event::Command(CLIENT, alice, submit));
    let job = begins(&mut harness, &decision);
    harness.on(&kept(job));
    let passed = CheckReport {
        exit: Some(0),
        ..CheckReport::default()
    };
    let ended = Ok(JobReport::Checked(passed));
    let job = earlier;
    assert_eq!(harness.on(&Event::JobEnded { job, ended }).records, []);
    let submission = harness.team.tasks[&1].submission.as_ref();
    assert_eq!(submission.unwrap().number, 2);
    assert_eq!(harness.team.tasks[&1].status, TaskStatus::InReview);
}
