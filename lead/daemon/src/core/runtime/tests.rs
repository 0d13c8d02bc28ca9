//! What a worker is woken for, and when it is offered work again.

use teamd_shared::control::{Command, TaskOrder};
use teamd_shared::fingerprint::Baseline;
use teamd_shared::job::JobReport;

use super::*;
use crate::core::caller::Actor;
use crate::core::job::{SuspendedCommand, Then};

fn idle() -> LastSaid {
    LastSaid {
        doing: Doing::Idle,
        usage: Usage::default(),
        other_models: OtherModels::default(),
        read: 0,
        gate: None,
    }
}

#[test]
fn a_worker_that_hears_of_its_mail_no_more_is_rung_once_for_what_came_before() {
    let mut runtime = Runtime::default();
    let incarnation = Incarnation {
        name: Name::new("alice").unwrap(),
        number: 1,
    };
    assert!(!runtime.needs_waking(&incarnation, true), "it is not known");
    runtime.recall(&incarnation, idle());
    let told =
        [false, true, true, false, true].map(|wants| runtime.needs_waking(&incarnation, wants));
    assert_eq!(told, [false, true, false, false, true]);
    let next = Incarnation {
        number: 2,
        ..incarnation
    };
    assert!(!runtime.needs_waking(&next, true), "another incarnation");
}

#[test]
fn a_teammate_is_offered_work_again_when_a_person_has_changed_a_task() {
    let mut runtime = Runtime::default();
    let name = Name::new("alice").unwrap();
    let alice = Incarnation {
        name: name.clone(),
        number: 1,
    };
    runtime.recall(&alice, idle());
    let client = ReplyTo {
        connection: 1,
        tag: 1,
        agent: false,
    };
    let retry = || Command::Task(TaskOrder::Retry(1, Box::default()));
    let member = Actor::Member(name.clone());
    for (by, needs_job, is_freed) in [
        (Actor::Person, false, true),
        (Actor::Person, true, true),
        (member, true, false),
    ] {
        let offer = Then::Offer {
            incarnation: alice.clone(),
            task: 1,
        };
        let job = runtime.jobs.begin(offer).unwrap();
        let ended = Err("no branch".to_owned());
        runtime.job_ended(&Team::default(), job, &ended);
        if needs_job {
            let suspended = SuspendedCommand {
                client,
                by,
                incarnation: 1,
                author: None,
                command: retry(),
            };
            let job = runtime
                .jobs
                .begin(Then::Command(Box::new(suspended)))
                .unwrap();
            let looked = JobReport::Protected(Baseline::Unknown("x".to_owned()));
            runtime.job_ended(&Team::default(), job, &Ok(looked));
        } else {
            let event = Event::Command(client, by, retry());
            runtime.apply(&Team::default(), &event);
        }
        let member = runtime.member(&name).unwrap();
        assert_eq!(
            (!member.refusals.is_current, member.refusals.in_a_row == 0),
            (is_freed, is_freed),
            "{needs_job}"
        );
    }
}

#[test]
fn who_has_worked_without_a_connection_is_offered_work_again() {
    let name = Name::new("alice").unwrap();
    let alice = Incarnation {
        name: name.clone(),
        number: 1,
    };
    let mut runtime = Runtime::default();
    runtime.recall(&alice, idle());
    let mut state = runtime.of(&alice).unwrap().state.clone();
    let offer = Then::Offer {
        incarnation: alice.clone(),
        task: 1,
    };
    let job = runtime.jobs.begin(offer).unwrap();
    runtime.job_ended(&Team::default(), job, &Err("no branch".to_owned()));
    let is_refused = |runtime: &Runtime| runtime.member(&name).unwrap().refusals.is_current;
    runtime.enter(&alice).report(&state);
    assert!(is_refused(&runtime), "it has done nothing since");
    state.read = 310;
    runtime.enter(&alice).report(&state);
    assert!(!is_refused(&runtime));
}
