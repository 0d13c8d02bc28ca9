//! What follows from an end, in every state that it finds.

use std::time::Duration;

use teamd_shared::control::{Command, SpawnOrder, WorkerState};
use teamd_shared::journal::{Line, Record};
use teamd_shared::member::{Emptied, Gate, Phase, RestartLimit};
use teamd_shared::request::Status;

use super::super::desk::never_restarted;
use super::super::desk::{
    CLIENT, Desk, answer, ended, environment, idle, life, name, nothing, order, verdict,
};
use crate::daemon::core::decide::Decision;
use crate::daemon::core::event::{Action, Ended, Event, Incarnation};
use crate::daemon::core::live::Live;
use crate::daemon::core::notices::messages;

fn note(desk: &Desk) -> Option<String> {
    desk.member("alice").exit.as_ref().and_then(|exit| exit.note.clone())
}

fn restarts(decision: &Decision) -> bool {
    decision.actions.iter().any(|action| matches!(action, Action::Start(_)))
}

#[test]
fn the_status_of_an_end_is_a_function_of_the_journal() {
    type Before = fn(&mut Desk, &Incarnation);
    let cases: [(&str, Before, Phase); 5] = [
        (
            "approved",
            |desk, alice| {
                let id = desk.asks("alice", None);
                desk.names(alice, answer(&id, true));
            },
            Phase::Shutdown,
        ),
        (
            "forced",
            |desk, _| {
                desk.asks("alice", Some(0.0));
                desk.later(0);
            },
            Phase::Killed,
        ),
        (
            "approved, and overdue",
            |desk, alice| {
                let id = desk.asks("alice", None);
                desk.names(alice, answer(&id, true));
                desk.later(10);
            },
            Phase::Killed,
        ),
        (
            "told by a signal",
            |desk, alice| {
                desk.on(&Event::Leaving { life: alice.clone() });
            },
            Phase::Killed,
        ),
        ("asked, and gone without an answer", |desk, _| drop(desk.asks("alice", None)), Phase::Crashed),
    ];
    for (case, before, phase) in cases {
        let mut desk = Desk::new();
        let alice = desk.runs("alice");
        before(&mut desk, &alice);
        let ended = desk.ends(&alice);
        assert_eq!((desk.member("alice").phase, ended.records.len()), (phase, 1), "{case}");
        assert!(!restarts(&ended), "{case}");
        let process = (&desk.member("alice").process, desk.member("alice").ending);
        assert_eq!(process, (&None, None), "{case}");
    }
}

#[test]
fn an_exit_names_the_shutdown_that_was_agreed_to_and_no_other() {
    for (approve, agreed) in [(true, true), (false, false)] {
        let mut desk = Desk::new();
        let alice = desk.runs("alice");
        let id = desk.asks("alice", None);
        desk.names(&alice, answer(&id, approve));
        desk.ends(&alice);
        let exit = desk.member("alice").exit.clone().unwrap();
        assert_eq!(exit.request_id, agreed.then_some(id));
        assert_eq!((exit.signal, exit.unread, exit.inbox.offset), (Some(9), 2, 70));
    }
}

#[test]
fn a_crash_and_the_next_life_are_one_line() {
    let mut desk = Desk::new();
    desk.runs("bob");
    let alice = desk.runs_with_plan("alice");
    let plan = desk.submits(&alice, "aaaa0001");
    let crashed = desk.ends(&alice);
    let [Record::Member(record)] = crashed.records.as_slice() else { panic!("{crashed:?}") };
    assert_eq!(
        (record.ended_incarnation, record.member.incarnation, record.member.phase),
        (Some(1), 2, Phase::Spawning)
    );
    assert_eq!((record.member.conversation, record.member.process.clone()), (1, None));
    assert_eq!((desk.status(&plan), record.expired.len()), (Status::Pending, 0));
    assert_eq!(crashed.actions, [Action::Start(life("alice", 2))]);
    let told: Vec<_> = record.tell.iter().map(|tell| tell.to.to_string()).collect();
    assert_eq!(told, ["lead", "bob"]);
}

#[test]
fn an_open_gate_outlives_a_restart_and_not_the_end() {
    let mut desk = Desk::new();
    let alice = desk.runs_with_plan("alice");
    let plan = desk.submits(&alice, "aaaa0001");
    desk.ask(verdict(&plan, true)).unwrap();
    desk.ends(&alice);
    assert_eq!(desk.member("alice").gate, Gate::Open);
    let second = desk.starts("alice");
    let id = desk.asks("alice", None);
    desk.names(&second, answer(&id, true));
    desk.ends(&second);
    assert_eq!((desk.member("alice").phase, desk.member("alice").gate), (Phase::Shutdown, Gate::Closed));
}

#[test]
fn nobody_is_restarted_who_must_not_be() {
    type Before = fn(&mut Desk);
    let cases: [(&str, Before, &str); 3] = [
        ("asked to leave", |desk| drop(desk.asks("alice", None)), "its shutdown was asked for"),
        (
            "stopping",
            |desk| drop(desk.on(&Event::Command(CLIENT, Command::Stop { force: false }))),
            "stopping",
        ),
        ("without environment", |desk| desk.live = Live::default(), "environment was lost"),
    ];
    for (case, before, why) in cases {
        let mut desk = Desk::new();
        let alice = desk.runs("alice");
        before(&mut desk);
        let ended = desk.ends(&alice);
        assert_eq!((desk.member("alice").phase, restarts(&ended)), (Phase::Crashed, false), "{case}");
        assert!(note(&desk).unwrap().contains(why), "{case}: {:?}", note(&desk));
    }
}

#[test]
fn a_crash_without_the_policy_is_the_end_and_needs_no_note() {
    let mut desk = Desk::new();
    desk.spawn(never_restarted("alice")).unwrap();
    let alice = desk.starts("alice");
    let plan = desk.submits(&alice, "aaaa0001");
    assert!(!restarts(&desk.ends(&alice)));
    assert_eq!(
        (desk.member("alice").phase, note(&desk), desk.status(&plan)),
        (Phase::Crashed, None, Status::Expired)
    );
}

#[test]
fn restarts_are_counted_within_their_window_and_a_spawn_begins_anew() {
    let mut desk = Desk::new();
    desk.runs("alice");
    for _ in 0..3 {
        let present = desk.starts("alice");
        assert!(restarts(&desk.ends(&present)));
        desk.passes(1.0);
    }
    desk.passes(60.0);
    let present = desk.starts("alice");
    assert!(restarts(&desk.ends(&present)));
    for _ in 0..2 {
        let present = desk.starts("alice");
        assert!(restarts(&desk.ends(&present)));
    }
    let present = desk.starts("alice");
    assert!(!restarts(&desk.ends(&present)));
    assert!(note(&desk).unwrap().contains("3 times in 60 s"), "{:?}", note(&desk));
    assert_eq!((desk.member("alice").restarted, desk.member("alice").restarts.len()), (6, 3));
    desk.spawn(SpawnOrder { resume: true, ..order("alice") }).unwrap();
    assert_eq!(desk.member("alice").restarted, 0);
    let present = desk.starts("alice");
    assert!(restarts(&desk.ends(&present)));
    assert_eq!(desk.member("alice").restarted, 1);
}

#[test]
fn how_often_it_is_restarted_and_in_which_time_is_a_setting() {
    let mut desk = Desk::new();
    desk.rules.restart = RestartLimit { max: 1, period: Duration::from_millis(500) };
    desk.runs("alice");
    for again in [true, false] {
        let present = desk.starts("alice");
        desk.passes(0.25);
        assert_eq!(restarts(&desk.ends(&present)), again);
    }
    assert_eq!(note(&desk).unwrap(), "not started again: it was 1 times in 0.5 s");
    desk.spawn(SpawnOrder { resume: true, ..order("alice") }).unwrap();
    for _ in 0..5 {
        let present = desk.starts("alice");
        desk.passes(0.5);
        assert!(restarts(&desk.ends(&present)));
    }
}

#[test]
fn a_clock_that_jumps_takes_no_restart_away_and_adds_none() {
    for jump in [-3600.0, -1.0, 3600.0] {
        let mut desk = Desk::new();
        desk.runs("alice");
        for _ in 0..3 {
            let present = desk.starts("alice");
            assert!(restarts(&desk.ends(&present)));
            desk.passes(1.0);
            desk.now.wall += jump;
        }
        let present = desk.starts("alice");
        assert!(!restarts(&desk.ends(&present)), "{jump}");
    }
    // Of those of an earlier daemon only the time of day is known, whichever way it has jumped.
    for (jump, again) in [(-30.0, false), (-3600.0, true), (3600.0, true)] {
        let mut desk = Desk::new();
        desk.runs("alice");
        for _ in 0..3 {
            let present = desk.starts("alice");
            desk.ends(&present);
        }
        let present = desk.starts("alice");
        desk.live = Live::default();
        desk.now.wall += jump;
        let state = WorkerState { applied_seq: desk.team.seq, ..idle() };
        let environment = Some(environment(1));
        desk.on(&Event::Connected { life: present.clone(), environment, state });
        assert_eq!(restarts(&desk.ends(&present)), again, "{jump}");
    }
}

#[test]
fn nobody_is_started_again_where_nobody_can_work() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    let why = "the workspace /home/u/web cannot be used: it does not answer".to_owned();
    let decision = desk.on(&Event::Ended { life: alice, ended: Ended { unworkable: Some(why), ..ended() } });
    assert_eq!((desk.member("alice").phase, restarts(&decision)), (Phase::Crashed, false));
    assert_eq!(
        note(&desk).unwrap(),
        "not started again: the workspace /home/u/web cannot be used: it does not answer"
    );
}

#[test]
fn a_next_life_that_cannot_be_run_is_tried_again_as_often_as_one_that_crashes() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    assert!(restarts(&desk.ends(&alice)));
    for (next, again) in [(2, true), (3, true), (4, false)] {
        let failed = desk.on(&Event::not_started(life("alice", next), "no descriptor is left"));
        assert_eq!(restarts(&failed), again, "{next}");
        let record = failed.records[0].clone();
        let line = Line { seq: 1, at: 1.0, version: None, done: 0, lead: None, record };
        let (_, told) = messages(&line).remove(0);
        assert!(told.content.contains(": it was never run: no descriptor is left"), "{told:?}");
    }
    assert_eq!(desk.member("alice").phase, Phase::Crashed);
    let why = "it was never run: no descriptor is left; not started again: it was 3 times in 60 s";
    assert_eq!(note(&desk).unwrap(), why);
}

#[test]
fn an_end_says_how_it_is_known_that_nothing_is_left() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    desk.ends(&alice);
    let exit = desk.member("alice").exit.clone().unwrap();
    assert_eq!(exit.emptied, Some(Emptied::Tree));
    // The next life was decided, and had no process yet: nothing of it could be left.
    desk.ends(&life("alice", 2));
    let exit = desk.member("alice").exit.clone().unwrap();
    assert_eq!(exit.emptied, None);
}

#[test]
fn a_life_that_was_decided_and_never_begun_is_not_restarted() {
    let mut desk = Desk::new();
    desk.spawn(order("alice")).unwrap();
    assert!(!restarts(&desk.ends(&life("alice", 1))));
    assert!(note(&desk).unwrap().contains("never run"));
}

#[test]
fn an_end_of_another_life_or_of_nobody_decides_nothing() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    assert!(nothing(&desk.ends(&life("alice", 2))));
    assert!(nothing(&desk.ends(&life("bob", 1))));
    desk.ends(&alice);
    assert!(nothing(&desk.ends(&alice)));
    assert_eq!(desk.member("alice").incarnation, 2);
}

#[test]
fn of_an_end_the_lead_is_told_and_everybody_who_stays() {
    let mut desk = Desk::new();
    let lives = ["alice", "asked", "free", "forced", "stays"].map(|who| desk.runs(who));
    desk.spawn(order("starting")).unwrap();
    desk.asks("asked", None);
    let id = desk.asks("free", None);
    desk.names(&lives[2], answer(&id, true));
    desk.asks("forced", Some(0.0));
    desk.later(0);
    let ended = desk.ends(&lives[0]);
    let told: Vec<_> = ended.records[0].tell().iter().map(|tell| tell.to.to_string()).collect();
    assert_eq!(told, ["lead", "stays"]);
    assert!(desk.team.members.contains_key(&name("starting")));
}
