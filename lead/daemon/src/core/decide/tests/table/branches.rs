//! The user's branch, integrated: one task as long as that has not worked, and none when it has.

use teamd_shared::check::CheckReport;
use teamd_shared::control::{Done, TaskOrder};
use teamd_shared::merged::Landed;
use teamd_shared::merged::Merged;
use teamd_shared::task::{Task, TaskId, TaskStatus};
use teamd_shared::work::Work;

use super::super::harness::*;
use crate::core::decide::Decision;
use crate::core::event::{Actor, Event};

/// What the first commit of the user, and the next one, are called.
const COMMITS: [&str; 2] = [
    "1111111111111111111111111111111111111111",
    "2222222222222222222222222222222222222222",
];

struct Synced(Harness);

impl Synced {
    /// Asks for the branch to be integrated; returns the task that does it.
    fn asks(&mut self, commit: Option<&str>) -> Option<Task> {
        let commit = commit.map(str::to_owned);
        let decision = self
            .0
            .on(&Event::Synced(CLIENT, next_id(), branch(), commit));
        let Ok(Done::Tasks(tasks)) = reply(&decision) else {
            panic!("{decision:?}")
        };
        tasks.into_iter().next()
    }

    fn is_checked(&mut self, task: TaskId, report: CheckReport) {
        let number = self.task(task).submission.as_ref().unwrap().number;
        self.0.on(&Event::Checked {
            task,
            number,
            ended: Ok(report),
        });
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
        self.0.on(&Event::Integrated {
            task,
            number,
            ended: Ok(true),
        })
    }

    fn task(&self, id: TaskId) -> &Task {
        &self.0.team.tasks[&id]
    }

    fn stands(&self, id: TaskId) -> (TaskStatus, Option<&str>) {
        (self.task(id).status, self.task(id).returned.as_deref())
    }

    fn is_claimed(&mut self, id: TaskId) {
        let alice = Actor::Member(name("alice"));
        self.0.on(&Event::Task(
            CLIENT,
            alice,
            TaskOrder::Claim(Some(id)),
            None,
        ));
        assert_eq!(self.task(id).status, TaskStatus::InProgress);
    }
}

fn branch() -> (String, String) {
    ("main".to_owned(), "team/integration".to_owned())
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
    let landed = |after: &str| {
        let tip = COMMITS[1].to_owned();
        let before = COMMITS[0].to_owned();
        let after = after.to_owned();
        Event::Landed(
            CLIENT,
            Landed {
                branch: "main".to_owned(),
                before,
                after,
                tip,
                pointers: Vec::new(),
            },
        )
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
            1 => it.0.on(&Event::Synced(CLIENT, next_id(), branch(), None)),
            _ => {
                assert!(
                    it.0.on(&landed(COMMITS[0])).records.is_empty(),
                    "it has not landed"
                );
                it.0.on(&landed(COMMITS[1]))
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
