//! A disk that stays full while commands keep coming.

use teamd_shared::control::{IntegrationOrder, TaskOrder};
use teamd_shared::fingerprint::Baseline;
use teamd_shared::job::JobReport;
use teamd_shared::task::TaskFields;

use super::*;
use crate::core::event::Until;
use crate::core::job::{SuspendedCommand, Then};

impl Fixture {
    /// Three commands come, none of which can be journaled, and then nothing more, until a second
    /// is over.
    fn is_kept_busy(&mut self) {
        for _ in 0..3 {
            self.io.now.monotonic += RETRY / 4;
            let taken = self.on(Event::Command(
                CLIENT,
                Actor::Person,
                Command::Stop { force: false },
            ));
            assert!(taken.contains(&"refuse"), "{taken:?}");
        }
        self.io.now.monotonic += RETRY / 4;
    }
}

#[test]
fn what_could_not_be_journaled_is_tried_again_although_commands_keep_coming() {
    let mut fixture = Fixture::with_alice();
    fixture.io.full = true;
    fixture.on(Event::Leaving {
        incarnation: alice(),
    });
    fixture.is_kept_busy();
    fixture.io.full = false;
    fixture.on(ended());
    let taken = fixture.on(Event::Command(
        CLIENT,
        Actor::Person,
        Command::Interrupt {
            name: alice().name,
            asked_at: RETRY,
        },
    ));
    assert!(
        taken.contains(&"append"),
        "each command brings what waits before it: {taken:?}"
    );
    assert_eq!(fixture.alice().phase, Phase::Killed, "the farewell first");
}

#[test]
fn what_is_due_comes_although_commands_keep_coming() {
    let mut fixture = Fixture::with_alice();
    fixture.on(Event::Command(
        CLIENT,
        Actor::Person,
        Command::Shutdown(leave(0.0, Some(0.0))),
    ));
    fixture.io.full = true;
    assert!(fixture.seconds_later(1).contains(&"append fails"));
    fixture.is_kept_busy();
    fixture.io.full = false;
    assert!(
        fixture.seconds_later(1).contains(&"signal"),
        "she is made to leave"
    );
}

#[test]
fn a_second_sigterm_ends_the_daemon_although_neither_can_be_journaled() {
    for commands in [false, true] {
        let mut fixture = Fixture::with_alice();
        fixture.io.full = true;
        fixture.on(Event::Terminate);
        for _ in 0..3 {
            if commands {
                fixture.is_kept_busy();
            }
            fixture.seconds_later(1);
            assert!(
                fixture.dispatcher.end().is_none(),
                "told once, it waits for the disk"
            );
        }
        assert!(
            fixture.on(Event::Terminate).contains(&"signal"),
            "{commands}"
        );
        assert!(
            matches!(fixture.dispatcher.end(), Some(DaemonEnd::Failed(_))),
            "{commands}"
        );
    }
}

#[test]
fn what_a_person_ends_by_force_is_killed_at_once_and_recorded_later() {
    let mut fixture = Fixture::with_alice();
    fixture.io.full = true;
    let taken = fixture.on(Event::Command(
        CLIENT,
        Actor::Person,
        Command::Shutdown(leave(0.0, None)),
    ));
    assert!(
        taken.contains(&"refuse") && !taken.contains(&"signal"),
        "{taken:?}"
    );
    let shutdown = |after| {
        Event::Command(
            CLIENT,
            Actor::Person,
            Command::Shutdown(leave(0.0, Some(after))),
        )
    };
    fixture.io.taken.clear();
    fixture
        .dispatcher
        .handle(vec![shutdown(10.0)], &mut fixture.io);
    let replies = fixture.dispatcher.take_replies();
    assert!(
        !fixture.io.taken.contains(&"signal"),
        "it is to have its ten seconds: {replies:?}"
    );
    let hint = replies[0].1.clone().unwrap_err().hint.unwrap();
    assert!(
        hint.contains("`teamctl shutdown alice --force --timeout 0s`"),
        "{hint}"
    );
    let taken = fixture.on(shutdown(0.0));
    assert!(
        taken.contains(&"refuse") && taken.contains(&"signal"),
        "{taken:?}"
    );
    fixture.on(ended());
    fixture.io.full = false;
    fixture.seconds_later(1);
    assert_eq!(
        fixture.alice().phase,
        Phase::Killed,
        "and not started again"
    );
    assert!(fixture.dispatcher.end().is_none());
}

#[test]
fn a_command_that_a_job_has_prepared_is_refused_and_not_carried_out_later() {
    let mut fixture = Fixture::with_alice();
    fixture.io.full = true;
    let fields = TaskFields {
        subject: Some("x".to_owned()),
        ..TaskFields::default()
    };
    let add = TaskOrder::Add {
        id: next_id(),
        tasks: vec![fields],
        within: false,
    };
    let id = next_id();
    let sync = IntegrationOrder::Sync { id, into: None };
    let synced = JobReport::Synced {
        branch: "main".to_owned(),
        commit: Some("0123456789ab".to_owned()),
        shown: "team/integration".to_owned(),
    };
    let looked = JobReport::Protected(Baseline::Hash("1".to_owned()));
    for (command, report) in [
        (Command::Task(add), looked),
        (Command::Integration(sync), synced),
    ] {
        let suspended = SuspendedCommand {
            client: CLIENT,
            by: Actor::Person,
            incarnation: 0,
            author: None,
            command,
        };
        let then = Then::Command(Box::new(suspended));
        let job = fixture.dispatcher.runtime.jobs.begin(then).unwrap();
        let ended = Ok(report);
        let taken = fixture.on(Event::JobEnded { job, ended });
        assert_eq!(
            taken,
            ["append fails", "show", "refuse"],
            "at once, although an attempt has just failed"
        );
    }
    fixture.io.full = false;
    fixture.seconds_later(1);
    assert!(fixture.dispatcher.team.tasks.is_empty() && !fixture.dispatcher.has_undecided());
}

#[test]
fn a_stop_by_force_ends_the_daemon_and_all_teammates() {
    let mut fixture = Fixture::with_alice();
    fixture.io.full = true;
    let taken = fixture.on(Event::Command(
        CLIENT,
        Actor::Person,
        Command::Stop { force: true },
    ));
    assert!(
        taken.contains(&"refuse") && taken.contains(&"signal"),
        "{taken:?}"
    );
    assert!(matches!(
        fixture.dispatcher.end(),
        Some(DaemonEnd::Failed(_))
    ));
}

#[test]
fn a_spawn_that_waits_is_told_that_nothing_can_be_recorded() {
    let mut fixture = Fixture::with_alice();
    fixture
        .dispatcher
        .waiters
        .add(CLIENT, alice().name, Until::Ready(alice().number));
    fixture.io.full = true;
    fixture.dispatcher.handle(
        vec![
            Event::Unable {
                incarnation: alice(),
                why: "cannot write: no space left".to_owned(),
            },
            ended(),
        ],
        &mut fixture.io,
    );
    let replies = fixture.dispatcher.take_replies();
    let refusal = replies[0].1.clone().unwrap_err();
    assert!(
        refusal
            .message
            .starts_with("alice cannot begin: cannot write: no space left; "),
        "{refusal:?}"
    );
    assert!(
        refusal.message.contains("cannot write the journal: "),
        "{refusal:?}"
    );
    assert!(fixture.dispatcher.trouble().is_some());
    fixture.io.full = false;
    fixture.seconds_later(1);
    assert_eq!(fixture.dispatcher.trouble(), None);
    let note = fixture.alice().exit.clone().unwrap().note.unwrap();
    assert!(note.starts_with("cannot write: no space left"), "{note}");
}

/// Adds a task with a check.
fn add() -> Event {
    let fields = TaskFields {
        subject: Some("x".to_owned()),
        check: Some("true".to_owned()),
        ..TaskFields::default()
    };
    let add = TaskOrder::Add {
        id: next_id(),
        tasks: vec![fields],
        within: false,
    };
    Event::Command(CLIENT, Actor::Person, Command::Task(add))
}

impl Fixture {
    /// A job reports what can be journaled at the third attempt only.
    fn ends_while_full(&mut self, job: u64, ended: Result<JobReport, String>) {
        self.io.full = true;
        assert!(
            self.on(Event::JobEnded { job, ended })
                .contains(&"append fails")
        );
        assert!(self.seconds_later(1).contains(&"append fails"));
        self.io.full = false;
        assert!(self.seconds_later(1).contains(&"append"));
    }
}

#[test]
fn an_offer_that_was_refused_counts_once_although_it_is_journaled_later() {
    let mut fixture = with_alice_in_a_checkout();
    let taken = fixture.on(add());
    assert!(taken.contains(&"run"), "her branch is begun: {taken:?}");
    fixture.ends_while_full(2, Err("no branch".to_owned()));
    let member = fixture.dispatcher.runtime.member(&alice().name).unwrap();
    assert_eq!(
        (member.refusals.in_a_row, member.refusals.is_current),
        (1, true)
    );
}

#[test]
fn a_check_that_could_not_run_counts_once_although_it_is_journaled_later() {
    let mut fixture = Fixture::with_alice();
    fixture.on(add());
    for order in [
        TaskOrder::Claim(None),
        TaskOrder::Submit(1, "done".to_owned()),
    ] {
        let by = Actor::Member(alice().name);
        fixture.on(Event::Command(CLIENT, by, Command::Task(order)));
    }
    let check = Then::Check {
        task: 1,
        number: 1,
        host: None,
    };
    let job = fixture.dispatcher.runtime.jobs.begin(check).unwrap();
    fixture.ends_while_full(job, Err("no space".to_owned()));
    assert_eq!(fixture.dispatcher.runtime.fruitless_checks(1), 1);
}

#[test]
fn work_is_offered_again_after_a_claim_that_could_not_be_journaled() {
    let mut fixture = with_alice_in_a_checkout();
    fixture.on(says(Doing::Working));
    fixture.on(add());
    let claim = Command::Task(TaskOrder::Claim(None));
    let taken = fixture.on(Event::Command(CLIENT, Actor::Member(alice().name), claim));
    assert!(taken.contains(&"run"), "{taken:?}");
    fixture.on(says(Doing::Idle));
    fixture.io.full = true;
    let ended = Ok(JobReport::Branched(Vec::new()));
    let taken = fixture.on(Event::JobEnded { job: 2, ended });
    assert!(taken.contains(&"refuse"), "{taken:?}");
    fixture.io.full = false;
    let taken = fixture.seconds_later(1);
    assert!(taken.contains(&"run"), "her branch is begun: {taken:?}");
}
