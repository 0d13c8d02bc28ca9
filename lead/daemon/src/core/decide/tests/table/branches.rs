//! The user's branch, integrated: one task as long as that has not worked, and none when it has.

use teamd_shared::check::CheckReport;
use teamd_shared::control::{Command, Done, IntegrationOrder, TaskOrder};
use teamd_shared::job::JobReport;
use teamd_shared::merged::Landed;
use teamd_shared::merged::Merged;
use teamd_shared::task::{Task, TaskId, TaskStatus};
use teamd_shared::work::Work;

use super::super::harness::*;
use crate::core::caller::Actor;
use crate::core::decide::Decision;
use crate::core::event::Event;
use crate::core::job::Then;

/// What the first commit of the user, and the next one, are called.
const COMMITS: [&str; 2] = [
    "1111111111111111111111111111111111111111",
    "2222222222222222222222222222222222222222",
];

struct Synced(Harness);

impl Synced {
    /// Asks for the branch to be integrated; returns the task that does it.
    fn asks(&mut self, commit: Option<&str>) -> Option<Task> {
        let decision = self.syncs(commit);
        let Ok(Done::Tasks(tasks)) = reply(&decision) else {
            panic!("{decision:?}")
        };
        tasks.into_iter().next()
    }

    fn syncs(&mut self, commit: Option<&str>) -> Decision {
        let id = next_id();
        let sync = IntegrationOrder::Sync { id, into: None };
        let report = JobReport::Synced {
            branch: "main".to_owned(),
            commit: commit.map(str::to_owned),
            shown: "team/integration".to_owned(),
        };
        self.0.job_ends(of_person(sync), Ok(report))
    }

    fn is_checked(&mut self, task: TaskId, report: CheckReport) {
        self.0.check_ends(task, report);
    }

    fn conflicts(&mut self, task: TaskId) {
        self.is_checked(
            task,
            CheckReport {
                conflicts: vec!["a".to_owned(), "b".to_owned()],
                ..CheckReport::default()
            },
        );
    }

    fn is_integrated(&mut self, task: TaskId) -> Decision {
        let merged = Merged {
            commit: COMMITS[1].to_owned(),
            old: COMMITS[0].to_owned(),
        };
        let report = CheckReport {
            exit: Some(0),
            merged: Some(merged),
            ..CheckReport::default()
        };
        self.is_checked(task, report);
        let number = self.task(task).submission.as_ref().unwrap().number;
        let then = Then::Integrate { task, number };
        self.0.job_ends(then, Ok(JobReport::Integrated(true)))
    }

    fn task(&self, id: TaskId) -> &Task {
        &self.0.team.tasks[&id]
    }

    fn stands(&self, id: TaskId) -> (TaskStatus, Option<&str>) {
        (self.task(id).status, self.task(id).returned.as_deref())
    }

    fn is_claimed(&mut self, id: TaskId) {
        let alice = Actor::Member(name("alice"));
        self.0.on(&Event::Command(
            CLIENT,
            alice,
            Command::Task(TaskOrder::Claim(Some(id))),
        ));
        assert_eq!(self.task(id).status, TaskStatus::InProgress);
    }
}

fn of_person(order: IntegrationOrder) -> Then {
    goes_on(Actor::Person, Command::Integration(order))
}

fn begun() -> Synced {
    let mut harness = Harness::new();
    harness.runs("alice");
    harness.team.work = Work {
        check: Some("true".to_owned()),
        ..Work::default()
    };
    Synced(harness)
}

const WHY: Option<&str> = Some("conflicts with what is integrated, in a, b");

#[test]
fn a_branch_that_conflicts_stays_one_task_until_it_is_integrated() {
    let mut it = begun();
    for number in 1..=3 {
        let task = it.asks(Some(COMMITS[0])).unwrap();
        assert_eq!((task.id, task.submission.unwrap().number), (1, number));
        assert_eq!(it.asks(Some(COMMITS[0])).unwrap().id, 1, "it is under way");
        assert_eq!(it.stands(1), (TaskStatus::InReview, None));
        it.conflicts(1);
        assert_eq!(it.stands(1), (TaskStatus::Pending, WHY));
    }
    // The user has merged by hand.
    let task = it.asks(Some(COMMITS[1])).unwrap();
    assert_eq!(
        (task.id, task.subject.as_str()),
        (1, "Integrate main at 222222222222")
    );
    assert_eq!(task.branch.unwrap().commit, COMMITS[1]);
    it.is_integrated(1);
    assert_eq!(it.stands(1), (TaskStatus::Completed, None));
    assert_eq!(
        it.asks(Some(COMMITS[0])).unwrap().id,
        2,
        "a new piece of work"
    );
}

#[test]
fn a_check_that_fails_too_often_leaves_one_task_that_can_be_tried_again() {
    let mut it = begun();
    for attempt in [1, 2, 3, 1] {
        assert_eq!(it.asks(Some(COMMITS[0])).unwrap().id, 1);
        it.is_checked(
            1,
            CheckReport {
                exit: Some(1),
                ..CheckReport::default()
            },
        );
        assert_eq!(it.task(1).attempts, attempt);
    }
    it.asks(Some(COMMITS[1]));
    assert_eq!(it.task(1).submission.as_ref().unwrap().number, 5);
}

/// While a teammate works on it, the user goes another way: with another commit, or without any.
#[test]
fn a_task_of_a_branch_that_is_in_without_it_is_cancelled_and_its_owner_told() {
    let land = || {
        of_person(IntegrationOrder::Land {
            into: None,
            environment: None,
            visible: Vec::new(),
        })
    };
    let landed = |after: &str| {
        Ok(JobReport::Landed(Landed {
            branch: "main".to_owned(),
            before: COMMITS[0].to_owned(),
            after: after.to_owned(),
            tip: COMMITS[1].to_owned(),
            pointers: Vec::new(),
        }))
    };
    for way in 0..3 {
        let mut it = begun();
        it.asks(Some(COMMITS[0]));
        it.conflicts(1);
        it.is_claimed(1);
        assert_eq!(
            it.asks(Some(COMMITS[0])).unwrap().owner,
            Some(name("alice"))
        );
        let decision = match way {
            0 => {
                assert_eq!(it.asks(Some(COMMITS[1])).unwrap().id, 2);
                it.is_integrated(2)
            }
            1 => it.syncs(None),
            _ => {
                let decision = it.0.job_ends(land(), landed(COMMITS[0]));
                assert!(decision.records.is_empty(), "it has not landed");
                it.0.job_ends(land(), landed(COMMITS[1]))
            }
        };
        assert_eq!(it.task(1).status, TaskStatus::Cancelled, "{way}");
        let tells = decision
            .records
            .iter()
            .flat_map(|record| record.tell().to_vec());
        assert!(
            tells.into_iter().any(|tell| tell.to == name("alice")),
            "{way}"
        );
    }
}
