//! Workers that do not answer: asked, told of, ended, or back again.

use std::time::Duration;

use teamd_shared::control::{SpawnOrder, WorkerState};
use teamd_shared::journal::{MemberEvent, Record};
use teamd_shared::member::{Doing, Ending, Phase, TermsPatch};

use super::super::desk::{Desk, answer, idle, never_restarted, nothing, order};
use crate::daemon::core::decide::Decision;
use crate::daemon::core::event::{Action, Event, Incarnation};
use crate::daemon::core::notices::messages;

/// A member at work that can be asked.
fn works(desk: &mut Desk, who: &str) -> Incarnation {
    let incarnation = desk.runs(who);
    desk.on(&Event::Pong { incarnation: incarnation.clone(), number: 0 });
    let state = WorkerState { doing: Doing::Working, applied_seq: desk.team.seq, ..WorkerState::default() };
    desk.on(&Event::Said { incarnation: incarnation.clone(), state });
    incarnation
}

fn event(decision: &Decision) -> MemberEvent {
    match decision.records.as_slice() {
        [Record::Member(record)] => record.event,
        other => panic!("{other:?}"),
    }
}

fn told(decision: &Decision) -> String {
    let line = teamd_shared::journal::Line {
        seq: 1,
        at: 1.0,
        version: None,
        done: 0,
        lead: None,
        record: decision.records[0].clone(),
    };
    let messages = messages(&line);
    assert!(messages.iter().all(|(to, message)| to.as_str() == "lead" && message.from == "teamd"));
    assert_eq!(messages.len(), 1);
    messages[0].1.content.clone()
}

#[test]
fn an_idle_worker_is_not_asked_and_may_be_silent_for_ever() {
    let mut desk = Desk::new();
    let incarnation = works(&mut desk, "alice");
    let applied_seq = desk.team.seq;
    desk.on(&Event::Said { incarnation, state: WorkerState { applied_seq, ..idle() } });
    assert_eq!(desk.watches(10_000), (Vec::new(), Vec::new()));
    assert_eq!(desk.live.next_deadline(), None, "nothing wakes the daemon");
}

#[test]
fn whoever_was_taken_for_hung_and_says_that_sigterm_ends_it_is_not_started_again() {
    let mut desk = Desk::new();
    let alice = works(&mut desk, "alice");
    desk.watches(300);
    assert_eq!(desk.member("alice").ending, Some(Ending::Hung));
    desk.on(&Event::Leaving { incarnation: alice.clone() });
    desk.ends(&alice);
    let member = desk.member("alice");
    assert_eq!((member.phase, member.incarnation), (Phase::Killed, 1));
    let exit = member.exit.as_ref().unwrap();
    assert_eq!((exit.ending, &exit.note), (Some(Ending::Sigterm), &None));
}

#[test]
fn whoever_works_is_asked_told_of_and_ended_as_one_that_crashed() {
    let mut desk = Desk::new();
    let alice = works(&mut desk, "alice");
    let (asked, decisions) = desk.watches(300);
    assert_eq!(asked, [1], "one open question is enough");
    let [silent, hung] = decisions.as_slice() else { panic!("{decisions:?}") };
    assert_eq!((event(silent), silent.actions.as_slice()), (MemberEvent::Silent, [].as_slice()));
    let text = told(silent);
    assert!(text.starts_with("alice does not respond: it has not answered for 1m; if it"), "{text}");
    assert!(text.contains("started again from its transcript"), "{text}");
    assert_eq!(
        (event(hung), hung.actions.as_slice()),
        (MemberEvent::Ending, [Action::Kill(alice.clone())].as_slice())
    );
    assert_eq!(desk.member("alice").ending, Some(Ending::Hung));
    desk.ends(&alice);
    let member = desk.member("alice");
    assert_eq!((member.phase, member.incarnation, member.restarted), (Phase::Spawning, 2, 1));
    assert_eq!((member.silent_since, member.ending, &member.ending_note), (None, None, &None));
    let exit = member.exit.clone().unwrap();
    assert_eq!(exit.ending, Some(Ending::Hung));
    assert_eq!(exit.note.as_deref(), Some("it did not answer for 2m, and was killed"));
}

#[test]
fn one_that_hangs_and_must_not_be_restarted_has_crashed() {
    let mut desk = Desk::new();
    desk.spawn(never_restarted("alice")).unwrap();
    let alice = desk.starts("alice");
    desk.on(&Event::Pong { incarnation: alice.clone(), number: 0 });
    desk.on(&Event::Said {
        incarnation: alice.clone(),
        state: WorkerState { doing: Doing::Working, ..WorkerState::default() },
    });
    desk.watches(300);
    desk.ends(&alice);
    assert_eq!(desk.member("alice").phase, Phase::Crashed);
}

#[test]
fn one_that_answers_again_goes_on_and_the_lead_hears_of_it() {
    let mut desk = Desk::new();
    let alice = works(&mut desk, "alice");
    let (asked, decisions) = desk.watches(80);
    assert_eq!((asked.as_slice(), decisions.len()), ([1].as_slice(), 1));
    let back = desk.on(&Event::Pong { incarnation: alice.clone(), number: 1 });
    assert_eq!(event(&back), MemberEvent::Answering);
    assert_eq!(told(&back), "alice answers again, after 1m5s, and goes on");
    // The number of another question, or of none, is no answer; and whoever answers all is left alone.
    for number in [0, 1, 7] {
        assert!(nothing(&desk.on(&Event::Pong { incarnation: alice.clone(), number })));
    }
    for _ in 0..50 {
        let (asked, decisions) = desk.watches(20);
        assert_eq!(decisions, []);
        for number in asked {
            assert!(nothing(&desk.on(&Event::Pong { incarnation: alice.clone(), number })));
        }
    }
}

#[test]
fn a_word_and_mail_are_reasons_to_ask_one_that_is_idle() {
    let mut desk = Desk::new();
    let alice = works(&mut desk, "alice");
    let applied_seq = desk.team.seq;
    desk.on(&Event::Said { incarnation: alice.clone(), state: WorkerState { applied_seq, ..idle() } });
    desk.live.mail_arrived(&desk.team, &alice, desk.now, desk.rules);
    // What it says shows that it has seen the mail.
    desk.on(&Event::Said { incarnation: alice.clone(), state: WorkerState { applied_seq, ..idle() } });
    assert!(desk.watches(30).0.is_empty());
    desk.live.mail_arrived(&desk.team, &alice, desk.now, desk.rules);
    assert_eq!(desk.watches(30).0, [1]);
    desk.on(&Event::Pong { incarnation: alice.clone(), number: 1 });
    assert_eq!(desk.watches(100), (Vec::new(), Vec::new()));
    desk.asks("alice", None);
    let (asked, decisions) = desk.watches(300);
    assert_eq!((asked.as_slice(), decisions.len()), ([2].as_slice(), 2));
}

#[test]
fn who_is_ended_already_or_agreed_to_leave_is_not_ended_as_one_that_hangs() {
    let mut desk = Desk::new();
    let alice = works(&mut desk, "alice");
    desk.watches(100);
    desk.asks("alice", Some(600.0));
    assert_eq!(desk.watches(300).1, [], "its ladder runs");
    let mut desk = Desk::new();
    let bob = works(&mut desk, "bob");
    let id = desk.asks("bob", None);
    desk.names(&bob, answer(&id, true));
    assert_eq!(desk.watches(300).1, []);
    drop(alice);
}

#[test]
fn a_new_daemon_counts_anew_and_tells_anew() {
    let mut desk = Desk::new();
    let alice = works(&mut desk, "alice");
    desk.watches(100);
    assert!(desk.member("alice").silent_since.is_some());
    desk.live = crate::daemon::core::live::Live::default();
    desk.on(&Event::Found { incarnation: alice.clone() });
    assert_eq!(desk.member("alice").silent_since, None);
    // It does not come back: that is told, but nobody is ended who could not be asked.
    let (asked, decisions) = desk.watches(1000);
    assert_eq!((asked, decisions.len()), (Vec::new(), 1));
    assert!(told(&decisions[0]).contains("it has no connection"), "{decisions:?}");
}

#[test]
fn an_incarnation_ends_at_its_limit_of_time_and_is_not_started_again() {
    let mut desk = Desk::new();
    let terms = TermsPatch { max_time: Some(3600), ..TermsPatch::default() };
    desk.spawn(SpawnOrder { terms, ..order("alice") }).unwrap();
    let alice = desk.starts("alice");
    assert!(nothing(&desk.later(3599)));
    let over = desk.later(1);
    assert_eq!(
        (event(&over), over.actions.as_slice()),
        (MemberEvent::Ending, [Action::Terminate(alice.clone())].as_slice())
    );
    assert_eq!(desk.later(10).actions, [Action::Kill(alice.clone())]);
    desk.ends(&alice);
    let exit = desk.member("alice").exit.clone().unwrap();
    assert_eq!((desk.member("alice").phase, exit.ending), (Phase::Killed, Some(Ending::Limit)));
    assert_eq!(exit.note.as_deref(), Some("it had lived as long as it may: 1h"));
}

#[test]
fn what_an_incarnation_has_lasted_counts_over_a_restart_of_the_daemon() {
    let mut desk = Desk::new();
    let terms = TermsPatch { max_time: Some(3600), ..TermsPatch::default() };
    desk.spawn(SpawnOrder { terms, ..order("alice") }).unwrap();
    let alice = desk.starts("alice");
    desk.live = crate::daemon::core::live::Live::default();
    desk.live.aged(&alice, Duration::from_secs(3590));
    desk.on(&Event::Found { incarnation: alice.clone() });
    assert_eq!(desk.later(9).actions, []);
    assert_eq!(desk.later(1).actions, [Action::Terminate(alice)]);
}
