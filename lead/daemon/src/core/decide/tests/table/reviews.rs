//! Reviews of submitted work: asked for, answered, withdrawn with the work, and what a daemon that
//! begins does again.

use teamd_shared::check::CheckReport;
use teamd_shared::control::{Command, Done, Refusal, RefusalCode, TaskOrder};
use teamd_shared::fingerprint::Baseline;
use teamd_shared::id::RequestId;
use teamd_shared::job::JobReport;
use teamd_shared::journal::{Line, Record};
use teamd_shared::member::ApproveBy;
use teamd_shared::message::Body;
use teamd_shared::request::{Payload, Status};
use teamd_shared::task::{MAX_RETURNS, Task, TaskFields, TaskId, TaskStatus};
use teamd_shared::work::Work;

use super::super::harness::*;
use crate::core::caller::{Actor, ReplyTo};
use crate::core::decide::Decision;
use crate::core::event::{Action, Event, Until};
use crate::core::incarnation::Incarnation;
use crate::core::notices::messages;

/// A team in which `alice` has submitted work that passed its check and waits for its review.
struct Reviewed {
    harness: Harness,
    alice: Incarnation,
    task: TaskId,
}

impl Reviewed {
    fn new(review: &str) -> Self {
        let mut harness = Harness::new();
        let alice = harness.runs("alice");
        let mut it = Self {
            harness,
            alice,
            task: 1,
        };
        let fields = TaskFields {
            subject: Some("fix it".to_owned()),
            review: Some(review.to_owned()),
            check: Some("true".to_owned()),
            ..TaskFields::default()
        };
        it.order(
            &Actor::Person,
            TaskOrder::Add {
                id: next_id(),
                tasks: vec![fields],
                within: false,
            },
        )
        .unwrap();
        it.works();
        it
    }

    /// Claims and submits the task; its check passes.
    fn works(&mut self) -> Decision {
        let alice = Actor::Member(name("alice"));
        if self.task().status == TaskStatus::Pending {
            self.order(&alice, TaskOrder::Claim(Some(self.task)))
                .unwrap();
        }
        self.order(&alice, TaskOrder::Submit(self.task, "done".to_owned()))
            .unwrap();
        self.passes(false)
    }

    fn passes(&mut self, touched_protected: bool) -> Decision {
        let report = CheckReport {
            command: 0,
            exit: Some(0),
            how: String::new(),
            seconds: 1.0,
            output: String::new(),
            touched_protected: touched_protected.then(|| "tests/a".to_owned()),
            ..CheckReport::default()
        };
        self.harness.check_ends(self.task, report)
    }

    fn order(&mut self, by: &Actor, order: TaskOrder) -> Result<Done, Refusal> {
        let event = Event::Command(CLIENT, by.clone(), Command::Task(order));
        let decision = self.harness.on(&event);
        let [Action::Begin(job)] = decision.actions.as_slice() else {
            return reply(&decision);
        };
        // It looks at the protected files.
        let looked = JobReport::Protected(Baseline::Hash("1".to_owned()));
        reply(&self.harness.job_ends(job.then.clone(), Ok(looked)))
    }

    /// Adds tasks after a look at the protected files.
    fn adds(&mut self, by: Actor, order: TaskOrder, baseline: Baseline) {
        let then = goes_on(by, Command::Task(order));
        let looked = JobReport::Protected(baseline);
        self.harness.job_ends(then, Ok(looked));
    }

    fn task(&self) -> &Task {
        &self.harness.team.tasks[&self.task]
    }

    fn review(&self) -> RequestId {
        self.task().review_id().expect("a review").clone()
    }

    fn answer(&mut self, by: ReplyTo, id: &RequestId, approve: bool) -> Decision {
        let actor = if by.agent {
            Actor::Member(name("lead"))
        } else {
            Actor::Person
        };
        self.harness
            .on(&Event::Command(by, actor, verdict(id, approve)))
    }
}

/// Returns whom a decision tells what, in the order of its lines.
fn told(decision: &Decision) -> Vec<(String, String)> {
    let messages = decision.records.iter().flat_map(|record| {
        messages(&Line {
            seq: 1,
            at: 1.0,
            version: None,
            done: 0,
            lead: None,
            record: record.clone(),
        })
    });
    messages
        .map(|(to, message)| (to.to_string(), message.content))
        .collect()
}

#[test]
fn work_that_passed_its_check_is_completed_when_it_is_approved() {
    let mut it = Reviewed::new("person");
    assert_eq!(it.task().status, TaskStatus::InReview);
    let id = it.review();
    let request = it.harness.request(&id).clone();
    assert_eq!(
        (request.from.as_str(), request.to.as_str(), request.member()),
        ("alice", "lead", "alice")
    );
    let Payload::Review(review) = &request.payload else {
        panic!("{request:?}")
    };
    assert_eq!(
        (review.task, review.submission, review.by),
        (1, 1, ApproveBy::Person)
    );
    let decision = it.answer(CLIENT, &id, true);
    assert_eq!(reply(&decision), Ok(Done::Answered { repeated: false }));
    assert_eq!(
        (it.harness.status(&id), it.task().status),
        (Status::Approved, TaskStatus::Completed)
    );
    assert_eq!(
        told(&decision),
        [(
            "lead".to_owned(),
            "task 1 (fix it) is completed by alice; verified: in place".to_owned()
        )]
    );
    assert_eq!(
        reply(&it.answer(CLIENT, &id, true)),
        Ok(Done::Answered { repeated: true })
    );
    assert_eq!(
        reply(&it.answer(CLIENT, &id, false)).unwrap_err().code,
        RefusalCode::Conflict
    );
}

#[test]
fn rejected_work_goes_back_to_its_owner_with_the_feedback_and_counts_no_attempt() {
    let mut it = Reviewed::new("person");
    for returns in 1..=MAX_RETURNS {
        let id = it.review();
        let decision = it.answer(CLIENT, &id, false);
        assert_eq!(
            (it.task().status, it.task().attempts),
            (TaskStatus::InProgress, 0)
        );
        assert_eq!(
            (it.task().returns, it.task().owner.clone()),
            (returns, Some(name("alice")))
        );
        let mut expected = vec![(
            "alice".to_owned(),
            "task 1 (fix it) is not approved: mind the tests".to_owned(),
        )];
        if returns == MAX_RETURNS {
            expected.push((
                "lead".to_owned(),
                "task 1 (fix it) was sent back 10 times: look at it".to_owned(),
            ));
        }
        assert_eq!(told(&decision), expected);
        let asked = it.works();
        assert_ne!(it.review(), id, "an approval is of one submission");
        let lead = told(&asked);
        assert_eq!(
            lead,
            [(
                "lead".to_owned(),
                format!("task 1 (fix it), submission {}\n\ndone", returns + 1)
            )]
        );
        assert_eq!(
            reply(&it.answer(CLIENT, &id, true)).unwrap_err().code,
            RefusalCode::Conflict
        );
        assert_eq!(it.task().status, TaskStatus::InReview);
    }
}

/// Every event in every status of a review: where the review and the task stand then.
#[test]
fn every_event_leads_a_review_and_its_task_where_the_table_says() {
    let approve = |it: &mut Reviewed, id: &RequestId| drop(it.answer(CLIENT, id, true));
    let reject = |it: &mut Reviewed, id: &RequestId| drop(it.answer(CLIENT, id, false));
    let release = |it: &mut Reviewed, _: &RequestId| {
        drop(it.order(&Actor::Member(name("alice")), TaskOrder::Release(1)));
    };
    let cancel =
        |it: &mut Reviewed, _: &RequestId| drop(it.order(&Actor::Person, TaskOrder::Cancel(1)));
    let submit = |it: &mut Reviewed, _: &RequestId| {
        drop(it.order(&Actor::Person, TaskOrder::Submit(1, "again".to_owned())));
    };
    let owner_ends = |it: &mut Reviewed, _: &RequestId| {
        it.harness
            .team
            .members
            .get_mut(&name("alice"))
            .unwrap()
            .record
            .terms
            .restart = teamd_shared::member::Restart::Never;
        drop(it.harness.ends(&it.alice.clone()));
    };
    let begin = |it: &mut Reviewed, _: &RequestId| drop(it.harness.on(&Event::Review { task: 1 }));
    let late_check = |it: &mut Reviewed, _: &RequestId| drop(it.passes(true));
    type Act = dyn Fn(&mut Reviewed, &RequestId);
    let table: [(&str, &Act, [&str; 4]); 8] = [
        // After this, the review that was pending, approved, rejected, expired; and its task.
        (
            "approve",
            &approve,
            [
                "approved completed",
                "approved completed",
                "rejected in_progress",
                "expired pending",
            ],
        ),
        (
            "reject",
            &reject,
            [
                "rejected in_progress",
                "approved completed",
                "rejected in_progress",
                "expired pending",
            ],
        ),
        (
            "release",
            &release,
            [
                "expired pending",
                "approved completed",
                "rejected pending",
                "expired pending",
            ],
        ),
        (
            "cancel",
            &cancel,
            [
                "expired cancelled",
                "approved completed",
                "rejected cancelled",
                "expired cancelled",
            ],
        ),
        (
            "submit",
            &submit,
            [
                "pending in_review",
                "approved completed",
                "rejected in_review",
                "expired pending",
            ],
        ),
        (
            "the owner ends",
            &owner_ends,
            [
                "pending in_review",
                "approved completed",
                "rejected pending",
                "expired pending",
            ],
        ),
        (
            "a daemon begins",
            &begin,
            [
                "pending in_review",
                "approved completed",
                "rejected in_progress",
                "expired pending",
            ],
        ),
        (
            "a check ends once more",
            &late_check,
            [
                "pending in_review",
                "approved completed",
                "rejected in_progress",
                "expired pending",
            ],
        ),
    ];
    let before: [(&str, &Act); 4] = [
        ("pending", &|_, _| ()),
        ("approved", &approve),
        ("rejected", &reject),
        ("expired", &release),
    ];
    for (event, act, expected) in table {
        for ((status, lead_to), expected) in before.iter().zip(expected) {
            let mut it = Reviewed::new("person");
            let id = it.review();
            lead_to(&mut it, &id);
            assert_eq!(it.harness.status(&id).as_str(), *status);
            act(&mut it, &id);
            let found = format!(
                "{} {}",
                it.harness.status(&id).as_str(),
                it.task().status.as_str()
            );
            assert_eq!(found, expected, "{event}, {status}");
        }
    }
}

#[test]
fn work_of_a_teammate_that_has_ended_is_approved_or_goes_back_to_all() {
    for (approve, status) in [(true, TaskStatus::Completed), (false, TaskStatus::Pending)] {
        let mut it = Reviewed::new("person");
        it.harness
            .team
            .members
            .get_mut(&name("alice"))
            .unwrap()
            .record
            .terms
            .restart = teamd_shared::member::Restart::Never;
        it.harness.ends(&it.alice.clone());
        let forget = || Command::Forget {
            name: name("alice"),
            discard: false,
        };
        // Its check would lose the terms that it runs by.
        let refused = refusal(it.harness.ask(forget()));
        assert_eq!(
            refused.1,
            "the work of alice on task 1 (fix it) is in review"
        );
        let id = it.review();
        it.answer(CLIENT, &id, approve);
        assert_eq!((it.task().status, it.task().owner.clone()), (status, None));
        assert!(it.harness.ask(forget()).is_ok());
    }
}

#[test]
fn the_lead_agent_answers_only_what_is_left_to_it_and_never_its_own() {
    for (review, may) in [("person", false), ("lead", true)] {
        let mut it = Reviewed::new(review);
        let id = it.review();
        let answered = reply(&it.answer(AGENT, &id, true));
        assert_eq!(answered.is_ok(), may, "{answered:?}");
        if let Err(refusal) = answered {
            assert_eq!(refusal.code, RefusalCode::Rejected);
            assert!(
                refusal
                    .message
                    .contains(&format!("the review {id} of alice is a person's")),
                "{refusal:?}"
            );
        }
    }
    // A person may always.
    let mut it = Reviewed::new("lead");
    let id = it.review();
    it.answer(CLIENT, &id, false);
    assert_eq!(it.task().status, TaskStatus::InProgress);
}

#[test]
fn a_changed_protected_file_forces_a_review_by_a_person_or_by_whom_the_setting_names() {
    for (protect_review, may) in [(ApproveBy::Person, false), (ApproveBy::Lead, true)] {
        let mut it = Reviewed::new("lead");
        it.harness.team.work = Work {
            protect: vec!["tests/**".to_owned()],
            protect_review,
            ..Work::default()
        };
        let id = it.review();
        it.answer(CLIENT, &id, false);
        it.order(
            &Actor::Person,
            TaskOrder::Edit(
                1,
                Box::new(TaskFields {
                    review: Some(String::new()),
                    ..TaskFields::default()
                }),
            ),
        )
        .unwrap();
        // Nothing is asked where nothing protected was changed.
        it.order(&Actor::Person, TaskOrder::Submit(1, "done".to_owned()))
            .unwrap();
        let asked = it.passes(true);
        assert!(
            told(&asked)[0]
                .1
                .contains("touched protected files (tests/a)"),
            "{asked:?}"
        );
        let id = it.review();
        assert_eq!(reply(&it.answer(AGENT, &id, true)).is_ok(), may);
        it.answer(CLIENT, &id, true);
        assert_eq!(
            it.task().result.as_ref().unwrap().verified(),
            "in place, touched protected"
        );
    }
}

#[test]
fn protected_files_are_looked_at_where_no_check_runs() {
    let mut it = Reviewed::new("none");
    assert_eq!(
        it.task().status,
        TaskStatus::Completed,
        "no review was asked for"
    );
    it.harness.team.work.protect = vec!["tests/**".to_owned()];
    let fields = TaskFields {
        subject: Some("x".to_owned()),
        no_check: Some(true),
        ..TaskFields::default()
    };
    let add = TaskOrder::Add {
        id: next_id(),
        tasks: vec![fields],
        within: false,
    };
    it.order(&Actor::Person, add).unwrap();
    it.task = 2;
    let alice = Actor::Member(name("alice"));
    it.order(&alice, TaskOrder::Claim(Some(2))).unwrap();
    let submitted = it.harness.on(&Event::Command(
        CLIENT,
        alice,
        Command::Task(TaskOrder::Submit(2, String::new())),
    ));
    assert!(
        submitted.actions.contains(&Action::Check(2)),
        "{submitted:?}"
    );
    it.passes(true);
    let id = it.review();
    it.answer(CLIENT, &id, true);
    assert_eq!(it.task().result.as_ref().unwrap().verified(), "no");
}

#[test]
fn a_task_keeps_what_the_protected_files_were_for_a_person_or_the_lead() {
    let mut it = Reviewed::new("none");
    let fields = || TaskFields {
        subject: Some("x".to_owned()),
        ..TaskFields::default()
    };
    let add = || TaskOrder::Add {
        id: next_id(),
        tasks: vec![fields()],
        within: false,
    };
    let baselines = [
        Baseline::Hash("1".to_owned()),
        Baseline::Unknown("it is gone".to_owned()),
    ];
    let protected = |it: &Reviewed, id: TaskId| it.harness.team.tasks[&id].protected.clone();
    for (number, baseline) in [2, 4].into_iter().zip(baselines) {
        it.adds(Actor::Person, add(), baseline.clone());
        // What a teammate finds when it makes a task may be its own doing.
        let other = Baseline::Hash("other".to_owned());
        it.adds(Actor::Member(name("alice")), add(), other);
        assert_eq!(protected(&it, number), Some(baseline.clone()));
        assert_eq!(protected(&it, number + 1), Some(baseline));
    }
    it.order(&Actor::Person, TaskOrder::Edit(2, Box::new(fields())))
        .unwrap();
    assert_eq!(protected(&it, 2), None, "nothing was looked at");
}

#[test]
fn a_daemon_that_begins_asks_for_a_review_whose_line_was_cut_off() {
    let mut it = Reviewed::new("person");
    let id = it.review();
    it.harness.team.requests.remove(&id);
    let decision = it.harness.on(&Event::Review { task: 1 });
    assert!(
        matches!(&decision.records[..], [Record::Request(record)] if record.request.request_id == id)
    );
    it.answer(CLIENT, &id, true);
    assert_eq!(it.task().status, TaskStatus::Completed);
    // The same where only the answer is in the journal.
    let mut it = Reviewed::new("person");
    let id = it.review();
    it.harness.team.requests.get_mut(&id).unwrap().status = Status::Approved;
    it.harness.on(&Event::Review { task: 1 });
    assert_eq!(it.task().status, TaskStatus::Completed);
}

#[test]
fn a_teammate_sets_no_review_and_a_summary_has_an_end() {
    let mut it = Reviewed::new("none");
    let alice = Actor::Member(name("alice"));
    let fields = TaskFields {
        subject: Some("x".to_owned()),
        review: Some("none".to_owned()),
        ..TaskFields::default()
    };
    let add = |fields| TaskOrder::Add {
        id: next_id(),
        tasks: vec![fields],
        within: false,
    };
    let refused = refusal(it.order(&alice, add(fields.clone())));
    assert_eq!(
        refused,
        (
            RefusalCode::Rejected,
            "`review` is for a person or the lead to set".to_owned()
        )
    );
    let wrong = TaskFields {
        review: Some("bob".to_owned()),
        ..fields
    };
    let refused = refusal(it.order(&Actor::Person, add(wrong)));
    assert_eq!(
        refused,
        (
            RefusalCode::Usage,
            "`review` is \"person\", \"lead\" or \"none\", not \"bob\"".to_owned()
        )
    );
    let fields = TaskFields {
        subject: Some("x".to_owned()),
        ..TaskFields::default()
    };
    it.order(&alice, add(fields)).unwrap();
    it.order(&alice, TaskOrder::Claim(Some(2))).unwrap();
    let long = refusal(it.order(&alice, TaskOrder::Submit(2, "x".repeat(50_001))));
    assert_eq!(long.0, RefusalCode::Usage);
}

#[test]
fn a_review_is_asked_of_the_lead_in_a_message_that_names_it() {
    let mut it = Reviewed::new("lead");
    let id = it.review();
    it.answer(CLIENT, &id, false);
    let decision = it.works();
    let record = decision
        .records
        .iter()
        .find(|record| matches!(record, Record::Request(_)))
        .unwrap();
    let line = Line {
        seq: 1,
        at: 1.0,
        version: None,
        done: 0,
        lead: None,
        record: record.clone(),
    };
    let (to, message) = messages(&line).remove(0);
    let expected = Body::ReviewRequest {
        request_id: it.review(),
        task_id: Some(1),
    };
    assert_eq!(
        (to.as_str(), message.from.as_str(), message.body),
        ("lead", "teamd", expected)
    );
    // The lead agent waits for a person in the same way as for the verdict on a plan.
    let decision = it.harness.on(&Event::Command(
        AGENT,
        Actor::Member(name("lead")),
        Command::AwaitVerdict {
            request_id: it.review(),
        },
    ));
    let until = Until::Judged(it.review());
    assert_eq!(
        decision.actions,
        [Action::Wait(AGENT, name("alice"), until)]
    );
}
