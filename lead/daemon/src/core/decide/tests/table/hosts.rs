//! Hosts: when a spawn there is refused, what an unreachable host does not end, and what is lost.

use teamd_shared::control::{Command, RefusalCode, SpawnOrder};
use teamd_shared::host::{Host, HostTerms, HostWay, LinkState};
use teamd_shared::inbox::UnreadMail;
use teamd_shared::member::{Ending, Phase, Restart, TermsPatch};
use teamd_shared::process::Identity;
use teamd_shared::request::Status;
use uuid::Uuid;

use super::super::harness::{CLIENT, GRACE, Harness, WATCHDOG, incarnation, name, order, refusal};
use crate::core::caller::Actor;
use crate::core::event::{Action, Event};
use crate::core::host_link::HostLink;
use crate::core::runtime::WorkerLink;

fn link(harness: &mut Harness, state: LinkState) {
    let since = harness.now.wall;
    harness.on(&Event::Link {
        host: name("box"),
        link: HostLink {
            state,
            since,
            version: None,
        },
    });
}

fn cut() -> LinkState {
    LinkState::Unreachable {
        why: "ssh ended".to_owned(),
    }
}

fn process_there() -> Identity {
    Identity {
        pid: 1,
        start_ticks: 1,
        boot_id: "there".to_owned(),
    }
}

fn there(who: &str) -> SpawnOrder {
    SpawnOrder {
        terms: TermsPatch {
            host: Some(name("box")),
            workspace: Some("~/work".to_owned()),
            restart: Some(Restart::Never),
            ..TermsPatch::default()
        },
        ..order(who)
    }
}

/// A team with the host `box`, whose link is up.
fn linked() -> Harness {
    let mut harness = Harness::new();
    let host = Host {
        name: name("box"),
        way: HostWay::Ssh("u@box".to_owned()),
        allow_weak_sandbox: false,
        terms: HostTerms::default(),
    };
    let add = Event::Command(CLIENT, Actor::Person, Command::AddHost(host));
    let added = harness.on(&add);
    assert!(matches!(added.actions.first(), Some(Action::Dial(_))));
    link(&mut harness, LinkState::Up);
    harness
}

#[test]
fn a_spawn_is_carried_out_over_a_link_that_is_up_and_never_kept_for_later() {
    let mut harness = Harness::new();
    let (code, why) = refusal(harness.spawn(there("alice")));
    assert_eq!(code, RefusalCode::NotFound, "{why}");
    let mut harness = linked();
    link(&mut harness, cut());
    let (code, why) = refusal(harness.spawn(there("alice")));
    assert_eq!(code, RefusalCode::Failed);
    assert!(why.contains("cannot be reached: ssh ended"), "{why}");
    assert!(harness.team.members.is_empty());
    link(&mut harness, LinkState::Up);
    harness.spawn(there("alice")).unwrap();
}

#[test]
fn a_conversation_stays_where_it_is() {
    let mut harness = linked();
    harness.spawn(there("alice")).unwrap();
    let alice = harness.starts("alice");
    harness.ends(&alice);
    let (code, why) = refusal(harness.spawn(order("alice")));
    assert_eq!(code, RefusalCode::Conflict);
    assert!(why.contains("on box"), "{why}");
    harness.spawn(there("alice")).unwrap();
}

#[test]
fn while_a_host_is_unreachable_no_clock_ends_its_members() {
    let mut harness = linked();
    harness.spawn(there("alice")).unwrap();
    harness.starts("alice");
    let id = harness.request_shutdown("alice", Some(1.0));
    link(&mut harness, cut());
    let later = WATCHDOG * 4 + GRACE * 4;
    let decision = harness.advance(later.as_secs());
    assert!(decision.records.is_empty(), "{decision:?}");
    assert_eq!(harness.runtime.next_deadline(), None);
    assert_eq!(harness.member("alice").ending, None);
    assert_eq!(harness.status(&id), Status::Pending);
    link(&mut harness, LinkState::Up);
    harness.advance(2);
    assert_eq!(
        harness.member("alice").ending,
        Some(Ending::Force),
        "the time that --force gives begins anew when it can be heard"
    );
}

#[test]
fn a_signal_is_sent_again_when_its_host_is_reached_again() {
    let mut harness = linked();
    harness.spawn(there("alice")).unwrap();
    let alice = harness.starts("alice");
    harness.request_shutdown("alice", Some(0.0));
    harness.advance(1);
    assert!(harness.member("alice").ending.is_some());
    link(&mut harness, cut());
    link(&mut harness, LinkState::Up);
    let reached = harness.on(&Event::Reached {
        incarnation: alice.clone(),
        process: process_there(),
    });
    assert_eq!(reached.actions, [Action::Terminate(alice)]);
}

#[test]
fn a_worker_that_waits_for_its_welcome_gets_it_over_the_next_link() {
    let mut harness = linked();
    harness.spawn(there("alice")).unwrap();
    let alice = incarnation("alice", 1);
    link(&mut harness, cut());
    link(&mut harness, LinkState::Up);
    let reached = harness.on(&Event::Reached {
        incarnation: alice.clone(),
        process: process_there(),
    });
    assert_eq!(reached.records.len(), 1, "its process is journaled");
    let greeted = harness.on(&Event::Greeted {
        incarnation: alice.clone(),
    });
    assert_eq!(greeted.actions, [Action::Welcome(alice.clone())]);
    let worker = harness.runtime.of(&alice).unwrap();
    assert_eq!(worker.link, WorkerLink::Open);
}

#[test]
fn mail_for_an_unreachable_host_starts_no_watchdog() {
    let mut harness = linked();
    harness.spawn(there("alice")).unwrap();
    let alice = harness.starts("alice");
    link(&mut harness, cut());
    let Harness {
        team,
        runtime,
        now,
        rules,
        ..
    } = &mut harness;
    runtime.mail_arrived(team, &alice, *now, *rules);
    assert_eq!(harness.runtime.next_deadline(), None);
}

#[test]
fn only_a_member_whose_host_cannot_be_reached_can_be_lost() {
    let mut harness = linked();
    harness.spawn(there("alice")).unwrap();
    harness.starts("alice");
    harness.runs("bob");
    let lose = |who: &str| Command::Lose { name: name(who) };
    let (_, why) = refusal(harness.ask(lose("bob")));
    assert!(why.contains("on this machine"), "{why}");
    let (_, why) = refusal(harness.ask(lose("alice")));
    assert!(why.contains("can be reached"), "{why}");
    link(&mut harness, cut());
    harness.unread.mail = vec![UnreadMail {
        id: Uuid::from_u128(9),
        from: "bob".to_owned(),
        text: "hello".to_owned(),
    }];
    harness.ask(lose("alice")).unwrap();
    let alice = harness.member("alice");
    assert_eq!(alice.phase, Phase::Lost);
    assert_eq!(alice.exit.as_ref().unwrap().returned, 1);
    let (_, why) = refusal(harness.ask(lose("alice")));
    assert!(why.contains("is not running"), "{why}");
    // Its host comes back, and reports the end of what it had.
    link(&mut harness, LinkState::Up);
    let late = harness.ends(&incarnation("alice", 1));
    assert!(late.records.is_empty());
}

#[test]
fn a_host_is_removed_once_it_has_no_members() {
    let mut harness = linked();
    harness.spawn(there("alice")).unwrap();
    let alice = harness.starts("alice");
    let remove = Command::RemoveHost { name: name("box") };
    let (_, why) = refusal(harness.ask(remove.clone()));
    assert!(why.contains("has teammates: alice"), "{why}");
    harness.ends(&alice);
    refusal(harness.ask(remove.clone()));
    let forget = Command::Forget {
        name: name("alice"),
        discard: false,
    };
    harness.ask(forget).unwrap();
    harness.ask(remove).unwrap();
    assert!(harness.team.hosts.as_ref().unwrap().list.is_empty());
}
