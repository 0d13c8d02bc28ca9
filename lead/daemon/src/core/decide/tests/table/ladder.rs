//! Asking, joining, deadlines, signals, and the stop of the team.

use std::time::Duration;

use teamd_shared::control::{Command, Done, RefusalCode, ShutdownOrder};
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::journal::{Record, RequestEvent, TeamEvent};
use teamd_shared::member::{self, Ending, Phase};
use teamd_shared::request::{Kind, Payload, Status};
use uuid::Uuid;

use super::super::harness::{
    CLIENT, Harness, answer, name, nothing, refusal, request_id, shutdown, shutdown_as,
};
use crate::core::caller::Actor;
use crate::core::decide::{Decision, DecisionView, decide};
use crate::core::event::{Action, Event, Until};
use crate::core::waiters::Waiters;

fn force(harness: &Harness, id: &RequestId) -> Option<f64> {
    match &harness.request(id).payload {
        Payload::Shutdown { force_after, .. } => *force_after,
        other => panic!("{other:?}"),
    }
}

fn team_events(decision: &Decision) -> Vec<TeamEvent> {
    decision
        .records
        .iter()
        .filter_map(|record| {
            if let Record::Team(record) = record {
                Some(record.event)
            } else {
                None
            }
        })
        .collect()
}

#[test]
fn a_shutdown_is_pending_with_its_line_and_told_to_the_one_who_is_asked() {
    let mut harness = Harness::new();
    harness.runs("alice");
    let asked = harness.on(&Event::Command(
        CLIENT,
        Actor::Person,
        shutdown("alice", None),
    ));
    let [Record::Request(record)] = asked.records.as_slice() else {
        panic!("{asked:?}")
    };
    assert_eq!(
        (record.event, record.request.status),
        (RequestEvent::Asked, Status::Pending)
    );
    let told = &record.tell[0];
    assert_eq!(
        (told.to.as_str(), told.id),
        ("alice", record.request.message_id)
    );
    assert_eq!(
        (record.request.incarnation, record.request.member()),
        (1, "alice")
    );
}

/// Its process has ended in time; what it started takes longer.
#[test]
fn a_worker_that_left_as_agreed_is_not_overdue_while_it_is_reaped() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let id = harness.request_shutdown("alice", None);
    harness.submit(&alice, answer(&id, true));
    harness.runtime.process_exited(&alice);
    assert!(nothing(&harness.advance(3600)));
    harness.ends(&alice);
    assert_eq!(harness.member("alice").phase, Phase::Shutdown);
}

#[test]
fn a_further_shutdown_joins_the_open_one_and_only_more_force_is_recorded() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let id = harness.request_shutdown("alice", None);
    let seq = harness.team.seq;
    assert_eq!(
        (harness.request_shutdown("alice", None), harness.team.seq),
        (id.clone(), seq)
    );
    assert_eq!(
        (
            harness.request_shutdown("alice", Some(20.0)),
            force(&harness, &id)
        ),
        (id.clone(), Some(20.0))
    );
    assert_eq!(
        (
            harness.request_shutdown("alice", Some(30.0)),
            force(&harness, &id)
        ),
        (id.clone(), Some(20.0))
    );
    assert_eq!(
        (
            harness.request_shutdown("alice", None),
            force(&harness, &id)
        ),
        (id.clone(), Some(20.0))
    );
    assert_eq!(harness.team.seq, seq + 1);
    harness.submit(&alice, answer(&id, true));
    // Agreed, but not gone: more force still counts.
    assert_eq!(
        (
            harness.request_shutdown("alice", Some(5.0)),
            force(&harness, &id)
        ),
        (id.clone(), Some(5.0))
    );
    assert_eq!(
        (
            harness.status(&id),
            harness.team.pending(&name("alice"), Kind::Shutdown)
        ),
        (Status::Approved, None)
    );
    assert_eq!(harness.advance(5).actions, [Action::Terminate(alice)]);
}

#[test]
fn after_a_rejection_a_further_shutdown_is_a_new_request() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let first = harness.request_shutdown("alice", None);
    harness.submit(&alice, answer(&first, false));
    let second = harness.request_shutdown("alice", None);
    assert_ne!(first, second);
    assert_eq!(
        (harness.status(&first), harness.status(&second)),
        (Status::Rejected, Status::Pending)
    );
}

#[test]
fn force_leads_from_sigterm_over_the_grace_period_to_sigkill() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    harness.request_shutdown("alice", Some(5.0));
    assert!(nothing(&harness.advance(4)));
    let forced = harness.advance(1);
    assert_eq!(
        (forced.records.len(), forced.actions.as_slice()),
        (1, [Action::Terminate(alice.clone())].as_slice())
    );
    assert_eq!(harness.member("alice").ending, Some(Ending::Force));
    assert!(nothing(&harness.advance(9)));
    let killed = harness.advance(1);
    assert_eq!(
        (killed.records.len(), killed.actions.as_slice()),
        (0, [Action::Kill(alice.clone())].as_slice())
    );
    harness.runtime.killed(&alice);
    assert!(nothing(&harness.advance(60)));
    assert_eq!(harness.runtime.next_deadline(), None);
}

#[test]
fn a_released_worker_that_stays_is_overdue_after_the_grace_period() {
    let mut harness = Harness::new();
    harness.rules.watchdog = None;
    let alice = harness.runs("alice");
    let id = harness.request_shutdown("alice", None);
    assert_eq!(harness.runtime.next_deadline(), None);
    harness.submit(&alice, answer(&id, true));
    assert!(nothing(&harness.advance(9)));
    assert_eq!(harness.advance(1).actions, [Action::Terminate(alice)]);
    assert_eq!(harness.member("alice").ending, Some(Ending::Overdue));
}

#[test]
fn a_deadline_without_end_is_no_deadline_and_none_overflows() {
    for endless in [f64::MAX, 1.8e19] {
        let mut harness = Harness::new();
        harness.runs("alice");
        harness.request_shutdown("alice", Some(endless));
        assert!(nothing(&harness.advance(1 << 32)));
    }
}

#[test]
fn deadlines_begin_anew_with_the_daemon() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    harness.request_shutdown("alice", Some(5.0));
    harness.advance(4);
    harness.runtime = Default::default();
    harness.now.monotonic = Duration::ZERO;
    harness.on(&Event::Found {
        incarnation: alice.clone(),
    });
    assert!(nothing(&harness.advance(4)));
    assert_eq!(harness.advance(1).actions, [Action::Terminate(alice)]);
}

#[test]
fn a_rejection_under_force_is_overruled_at_once() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let id = harness.request_shutdown("alice", Some(30.0));
    let rejected = harness.submit(&alice, answer(&id, false));
    assert_eq!(
        rejected.actions.last(),
        Some(&Action::Terminate(alice.clone()))
    );
    assert_eq!(
        (harness.status(&id), harness.member("alice").ending),
        (Status::Rejected, Some(Ending::Force))
    );
    harness.ends(&alice);
    assert_eq!(harness.member("alice").phase, Phase::Killed);
}

#[test]
fn a_stop_asks_all_and_waits() {
    let mut harness = Harness::new();
    harness.runs("alice");
    harness.runs("bob");
    let joined = harness.request_shutdown("bob", None);
    let stopped = harness.on(&Event::Command(
        CLIENT,
        Actor::Person,
        Command::Stop { force: false },
    ));
    assert_eq!(
        (team_events(&stopped), stopped.records.len()),
        (vec![TeamEvent::Stopping], 2)
    );
    assert_eq!(stopped.actions, [Action::WaitForStop(CLIENT)]);
    assert!(harness.team.stopping && force(&harness, &joined).is_none());
    let again = harness.on(&Event::Command(
        CLIENT,
        Actor::Person,
        Command::Stop { force: true },
    ));
    // Nothing new is asked, but with force now.
    assert_eq!(
        (
            team_events(&again),
            again.records.len(),
            force(&harness, &joined)
        ),
        (vec![], 2, Some(10.0))
    );
}

#[test]
fn a_rejection_keeps_the_daemon_running() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let bob = harness.runs("bob");
    harness.on(&Event::Command(
        CLIENT,
        Actor::Person,
        Command::Stop { force: false },
    ));
    let id = |harness: &Harness, who| {
        harness
            .team
            .shutdown_of(&name(who))
            .unwrap()
            .request_id
            .clone()
    };
    let rejected = harness.submit(&alice, answer(&id(&harness, "alice"), false));
    assert_eq!(
        (team_events(&rejected), harness.team.stopping),
        (vec![TeamEvent::Staying], false)
    );
    assert_eq!(harness.member("alice").ending, None);
    let approved = harness.submit(&bob, answer(&id(&harness, "bob"), true));
    assert_eq!(team_events(&approved), []);
    harness.ends(&bob);
    assert_eq!(
        (harness.member("bob").phase, harness.member("alice").phase),
        (Phase::Shutdown, Phase::Running)
    );
}

#[test]
fn a_rejection_of_another_shutdown_does_not_end_a_stop_that_never_was() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let id = harness.request_shutdown("alice", None);
    assert_eq!(team_events(&harness.submit(&alice, answer(&id, false))), []);
}

#[test]
fn a_signal_to_the_daemon_cannot_be_refused() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let bob = harness.runs("bob");
    let told = harness.on(&Event::Terminate);
    assert_eq!(
        (team_events(&told), told.records.len(), told.actions.len()),
        (vec![TeamEvent::Stopping], 3, 0)
    );
    let id = harness
        .team
        .shutdown_of(&name("alice"))
        .unwrap()
        .request_id
        .clone();
    let rejected = harness.submit(&alice, answer(&id, false));
    assert_eq!(
        (team_events(&rejected), rejected.actions.last()),
        (vec![], Some(&Action::Terminate(alice)))
    );
    assert_eq!(harness.member("alice").ending, Some(Ending::Stop));
    assert!(nothing(&harness.advance(5)));
    assert_eq!(harness.advance(1).actions, [Action::Terminate(bob)]);
}

#[test]
fn a_second_signal_kills_and_the_lines_come_first() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let bob = harness.runs("bob");
    harness.on(&Event::Leaving {
        incarnation: alice.clone(),
    });
    harness.on(&Event::Terminate);
    let killed = harness.on(&Event::Terminate);
    // alice is being ended already: no second line for her.
    assert_eq!((team_events(&killed), killed.records.len()), (vec![], 1));
    let expected = [
        Action::Terminate(bob.clone()),
        Action::Kill(bob),
        Action::Kill(alice),
    ];
    assert_eq!(killed.actions, expected);
    assert_eq!(harness.member("bob").ending, Some(Ending::Stop));
}

#[test]
fn a_stop_of_an_empty_team_is_recorded_and_asks_no_member() {
    let mut harness = Harness::new();
    let stopped = harness.on(&Event::Command(
        CLIENT,
        Actor::Person,
        Command::Stop { force: false },
    ));
    assert_eq!(
        (team_events(&stopped), stopped.records.len()),
        (vec![TeamEvent::Stopping], 1)
    );
}

/// Gives the first request id twice, and then others.
#[derive(Debug)]
struct Doubled(u32);

impl Ids for Doubled {
    fn message(&mut self) -> Uuid {
        self.0 += 1;
        Uuid::from_u128(u128::from(self.0))
    }

    fn request(&mut self) -> RequestId {
        self.0 += 1;
        RequestId::from_bits(self.0 / 3)
    }
}

#[test]
fn an_id_that_is_drawn_twice_is_given_once() {
    let mut harness = Harness::new();
    harness.runs("alice");
    harness.runs("bob");
    let view = DecisionView {
        team: &harness.team,
        runtime: &harness.runtime,
        now: harness.now,
        rules: harness.rules,
        places: &harness.places,
        prepared: None,
        unread: &teamd_shared::inbox::NOTHING_UNREAD,
    };
    let stopped = decide(&view, &Event::Terminate, &mut Doubled(3));
    let ids: Vec<_> = stopped
        .records
        .iter()
        .filter_map(|record| {
            if let Record::Request(it) = record {
                Some(it.request.request_id.clone())
            } else {
                None
            }
        })
        .collect();
    assert!(
        matches!(ids.as_slice(), [first, second] if first != second),
        "{ids:?}"
    );
}

#[test]
fn times_that_are_no_times_are_refused() {
    let mut harness = Harness::new();
    harness.runs("alice");
    let seq = harness.team.seq;
    for bad in [f64::NAN, f64::NEG_INFINITY, -1.0] {
        let order = |decide_within, force_after| {
            let Command::Shutdown(order) = shutdown("alice", None) else {
                panic!()
            };
            Command::Shutdown(ShutdownOrder {
                decide_within,
                force_after,
                ..order
            })
        };
        harness.ask(order(bad, None)).unwrap_err();
        harness.ask(order(1.0, Some(bad))).unwrap_err();
    }
    assert_eq!(harness.team.seq, seq);
    assert!(matches!(
        harness.ask(shutdown("alice", None)),
        Ok(Done::Asked { .. })
    ));
}

/// The first order was carried out, but its client lost the daemon before it heard so.
#[test]
fn an_order_that_is_said_again_joins_its_request_and_asks_no_later_incarnation() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    let again = || shutdown_as(request_id("aaaa0001"), "alice", Some(0.0));
    assert!(
        matches!(harness.ask(again()), Ok(Done::Asked { request_id: id }) if id == request_id("aaaa0001"))
    );
    harness.advance(0);
    harness.ends(&alice);
    harness.runs("alice");
    let seq = harness.team.seq;
    assert!(
        matches!(harness.ask(again()), Ok(Done::Asked { request_id: id }) if id == request_id("aaaa0001"))
    );
    assert_eq!(harness.team.seq, seq, "the next incarnation is not asked");
    let name = alice.name.clone();
    let mut waiters = Waiters::default();
    waiters.add(CLIENT, name.clone(), Until::Ended(request_id("aaaa0001")));
    let ended = Done::Ended {
        request_id: request_id("aaaa0001"),
        status: member::MemberStatus::Killed,
        exit: harness.team.members[&name]
            .record
            .exit
            .clone()
            .map(Box::new),
    };
    assert_eq!(
        waiters.answered(&harness.team, &harness.runtime, &name),
        [(CLIENT, Ok(ended))]
    );
}

#[test]
fn an_id_of_another_request_is_refused_as_taken() {
    let mut harness = Harness::new();
    harness.runs("alice");
    let bob = harness.runs_with_plan("bob");
    let plan = harness.submit_plan(&bob, "aaaa0001");
    harness
        .ask(shutdown_as(request_id("aaaa0002"), "bob", None))
        .unwrap();
    for id in [plan, request_id("aaaa0002")] {
        assert_eq!(
            refusal(harness.ask(shutdown_as(id, "alice", None))).0,
            RefusalCode::Taken
        );
    }
}

fn asked(decision: &Decision) -> Vec<String> {
    decision
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Request(record) => Some(record.request.to.clone()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_team_is_stopped_in_reverse_order_of_its_spawns_and_the_lead_agent_goes_last() {
    let stops = [
        Event::Terminate,
        Event::Command(CLIENT, Actor::Person, Command::Stop { force: false }),
    ];
    for stop in stops {
        let mut harness = Harness::new();
        for who in ["lead", "bob", "alice", "carol"] {
            harness.runs(who);
        }
        // A restart by the policy is no spawn; a resume by a person is one.
        let bob = super::super::harness::incarnation("bob", 1);
        harness.ends(&bob);
        harness.starts("bob");
        assert_eq!(asked(&harness.on(&stop)), ["carol", "alice", "bob", "lead"]);
    }
    let mut harness = Harness::new();
    for who in ["lead", "bob", "alice"] {
        harness.runs(who);
    }
    harness.on(&Event::Terminate);
    let killed = harness.on(&Event::Terminate);
    let order: Vec<_> = killed
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Kill(incarnation) => Some(incarnation.name.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(
        order,
        ["alice", "bob", "lead"],
        "a second signal ends them at once, in the same order"
    );
}
