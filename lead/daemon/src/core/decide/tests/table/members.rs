//! Spawn, interrupt, forget.

use teamd_shared::checkout::Checkout;
use teamd_shared::control::{Command, Done, RefusalCode, SpawnOrder, ToWorker};
use teamd_shared::inbox::UnreadMail;
use teamd_shared::job::JobReport;
use teamd_shared::journal::{MemberEvent, Record};
use teamd_shared::member::{Gate, Phase, Restart, TermsPatch};
use teamd_shared::message::Body;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use uuid::Uuid;

use super::super::harness::{
    CLIENT, Harness, environment, incarnation, name, never_restarted, next_id, order, refusal,
    reply, request_id, said,
};
use crate::core::caller::Actor;
use crate::core::event::{Action, Event, Ordered, Until};
use crate::core::job::SpawnFacts;
use crate::core::notices::messages;
use crate::core::waiters::Waiters;

#[test]
fn a_spawn_is_journaled_before_it_is_started_and_answered() {
    let mut harness = Harness::new();
    let facts = SpawnFacts {
        held: None,
        lead_inbox: Ok(None),
        cannot_commit: None,
    };
    let terms = TermsPatch {
        prompt: Some("count the files".to_owned()),
        ..TermsPatch::default()
    };
    let order = Box::new(SpawnOrder {
        terms,
        ..order("alice")
    });
    let spawned = harness.on(&Event::Spawn(CLIENT, next_id(), order, facts));
    let [Record::Member(record)] = spawned.records.as_slice() else {
        panic!("{spawned:?}")
    };
    assert_eq!(
        (record.event, record.member.phase),
        (MemberEvent::Spawning, Phase::Spawning)
    );
    assert_eq!(
        (
            record.member.incarnation,
            record.member.conversation,
            record.member.gate
        ),
        (1, 1, Gate::Open)
    );
    assert_eq!(record.member.begins_at, Position::START);
    let ordered = Ordered {
        environment: environment(1),
        writable: Vec::new(),
    };
    assert_eq!(
        spawned.actions[0],
        Action::Start(incarnation("alice", 1), Some(ordered))
    );
    assert_eq!(
        spawned.actions[1..],
        [Action::Wait(CLIENT, name("alice"), Until::Ready(1))]
    );
    assert_eq!(
        harness.team.members[&name("alice")].prompt.as_deref(),
        Some("count the files")
    );
}

#[test]
fn a_member_that_must_submit_a_plan_begins_with_a_closed_gate() {
    let mut harness = Harness::new();
    harness.runs_with_plan("alice");
    assert_eq!(harness.member("alice").gate, Gate::Closed);
}

#[test]
fn a_name_is_taken_from_its_spawn_to_its_end() {
    let mut harness = Harness::new();
    harness.spawn(order("alice")).unwrap();
    assert_eq!(
        refusal(harness.spawn(order("alice"))).0,
        RefusalCode::Conflict
    );
    let alice = harness.starts("alice");
    assert_eq!(
        refusal(harness.spawn(order("alice"))).0,
        RefusalCode::Conflict
    );
    harness.request_shutdown("alice", Some(0.0));
    harness.advance(0);
    assert_eq!(
        refusal(harness.spawn(order("alice"))).0,
        RefusalCode::Conflict
    );
    harness.ends(&alice);
    assert_eq!(harness.spawn(order("alice")), Ok(2));
}

#[test]
fn a_spawn_that_makes_no_sense_is_refused_and_changes_nothing() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    harness.request_shutdown("alice", Some(0.0));
    harness.advance(0);
    harness.ends(&alice);
    let before = harness.team.clone();
    let planning = TermsPatch {
        plan: Some(true),
        ..TermsPatch::default()
    };
    let cases = [
        (
            SpawnOrder {
                name: Name::lead(),
                terms: planning,
                ..order("bob")
            },
            RefusalCode::Usage,
        ),
        (
            SpawnOrder {
                resume: true,
                ..order("bob")
            },
            RefusalCode::NotFound,
        ),
    ];
    for (order, code) in cases {
        let refusal = harness.spawn(order.clone()).expect_err("a refusal");
        assert_eq!(refusal.code, code, "{order:?}");
    }
    let facts = SpawnFacts {
        held: Some("process 7 holds its liveness lock".to_owned()),
        lead_inbox: Ok(None),
        cannot_commit: None,
    };
    let held = harness.on(&Event::Spawn(
        CLIENT,
        next_id(),
        Box::new(order("alice")),
        facts,
    ));
    assert_eq!(refusal(reply(&held)).0, RefusalCode::Conflict);
    assert_eq!(harness.team, before);
}

#[test]
fn no_member_is_spawned_while_the_team_is_stopping() {
    let mut harness = Harness::new();
    harness.runs("alice");
    harness.on(&Event::Command(
        CLIENT,
        Actor::Person,
        Command::Stop { force: false },
    ));
    assert_eq!(
        refusal(harness.spawn(order("bob"))).0,
        RefusalCode::Conflict
    );
}

#[test]
fn a_refused_spawn_leaves_the_environment_of_the_running_member() {
    let mut harness = Harness::new();
    let other = || SpawnOrder {
        environment: environment(2),
        ..order("alice")
    };
    harness.spawn(order("alice")).unwrap();
    harness.spawn(other()).unwrap_err();
    let alice = harness.starts("alice");
    // Its connection is broken: it runs all the same.
    harness.on(&Event::Disconnected {
        incarnation: alice.clone(),
    });
    harness.spawn(other()).unwrap_err();
    let given = |harness: &Harness| {
        harness
            .runtime
            .member(&name("alice"))
            .and_then(|worker| worker.environment.clone())
    };
    assert_eq!(given(&harness), Some(environment(1)));
    harness.ends(&alice);
    assert_eq!(
        (harness.member("alice").phase, given(&harness)),
        (Phase::Spawning, Some(environment(1)))
    );
}

#[test]
fn a_resume_goes_on_with_the_conversation_and_changes_what_it_names() {
    let mut harness = Harness::new();
    let role = Some("coder".to_owned());
    let restart = Some(Restart::Never);
    let terms = TermsPatch {
        role,
        restart,
        ..TermsPatch::default()
    };
    harness
        .spawn(SpawnOrder {
            terms,
            ..order("alice")
        })
        .unwrap();
    let alice = harness.starts("alice");
    harness.ends(&alice);
    let terms = TermsPatch {
        plan: Some(true),
        ..TermsPatch::default()
    };
    let resumed = harness.spawn(SpawnOrder {
        resume: true,
        terms,
        ..order("alice")
    });
    assert_eq!(resumed, Ok(2));
    let member = harness.member("alice");
    assert_eq!(
        (
            member.conversation,
            member.terms.role.as_str(),
            member.terms.restart
        ),
        (1, "coder", Restart::Never)
    );
    assert_eq!(
        (member.terms.plan, member.gate, member.begins_at),
        (true, Gate::Closed, Position::START)
    );
}

#[test]
fn a_fresh_incarnation_skips_the_mail_of_the_old_one() {
    let mut harness = Harness::new();
    harness.spawn(never_restarted("alice")).unwrap();
    let alice = harness.starts("alice");
    harness.ends(&alice);
    assert_eq!(harness.spawn(order("alice")), Ok(2));
    assert_eq!(
        (
            harness.member("alice").conversation,
            harness.member("alice").begins_at.offset
        ),
        (2, 70)
    );
}

const NOON: std::time::Duration = std::time::Duration::from_secs(12);

#[test]
fn an_interrupt_is_said_and_not_journaled() {
    let mut harness = Harness::new();
    harness.runs("alice");
    let interrupted = harness.on(&Event::Command(
        CLIENT,
        Actor::Person,
        Command::Interrupt {
            name: name("alice"),
            asked_at: NOON,
        },
    ));
    assert_eq!(
        (interrupted.records.len(), said(&interrupted)),
        (0, vec![&ToWorker::Interrupt { asked_at: NOON }])
    );
    assert_eq!(
        refusal(harness.ask(Command::Interrupt {
            name: name("bob"),
            asked_at: NOON
        }))
        .0,
        RefusalCode::NotFound
    );
}

#[test]
fn a_summary_is_asked_of_a_built_in_agent_alone_and_not_journaled() {
    let mut harness = Harness::new();
    harness.runs("alice");
    let compact = |who: &str| Command::Compact {
        id: request_id("c0ffee01"),
        name: name(who),
    };
    let (code, why) = refusal(harness.ask(compact("alice")));
    assert!(
        code == RefusalCode::Conflict && why.contains("script"),
        "{why}"
    );
    assert_eq!(
        refusal(harness.ask(compact("zoe"))).0,
        RefusalCode::NotFound
    );
    let terms = TermsPatch {
        model: Some("anthropic:x".parse().unwrap()),
        ..TermsPatch::default()
    };
    let ordered = SpawnOrder {
        terms,
        ..order("bob")
    };
    harness.spawn(ordered).unwrap();
    let bob = harness.starts("bob");
    let asked = harness.on(&Event::Command(CLIENT, Actor::Person, compact("bob")));
    let id = request_id("c0ffee01");
    let waits = Action::Wait(CLIENT, name("bob"), Until::Compacted(1, id.clone()));
    assert!(asked.records.is_empty() && asked.actions.contains(&waits));
    assert_eq!(said(&asked), vec![&ToWorker::Compact { id: id.clone() }]);
    let mut waiters = Waiters::default();
    waiters.add(CLIENT, name("bob"), Until::Compacted(1, id.clone()));
    let answers = |waiters: &mut Waiters, harness: &Harness| {
        waiters.answered(&harness.team, &harness.runtime, &name("bob"))
    };
    assert!(answers(&mut waiters, &harness).is_empty());
    harness.on(&Event::Compacted {
        incarnation: bob.clone(),
        id: request_id("c0ffee02"),
        outcome: Ok(()),
    });
    assert!(
        answers(&mut waiters, &harness).is_empty(),
        "it is of another"
    );
    harness.on(&Event::Compacted {
        incarnation: bob.clone(),
        id: id.clone(),
        outcome: Err("there is nothing".to_owned()),
    });
    let answered = answers(&mut waiters, &harness).remove(0).1;
    assert_eq!(refusal(answered).1, "there is nothing");
    waiters.add(
        CLIENT,
        name("bob"),
        Until::Compacted(1, request_id("c0ffee03")),
    );
    harness.ends(&bob);
    let answered = answers(&mut waiters, &harness).remove(0).1;
    assert!(refusal(answered).1.contains("ended before"));
}

#[test]
fn only_an_ended_member_is_forgotten_and_its_name_is_free_once_its_files_are_moved() {
    let mut harness = Harness::new();
    let forget = || Command::Forget {
        name: name("alice"),
        discard: false,
    };
    assert_eq!(refusal(harness.ask(forget())).0, RefusalCode::NotFound);
    let alice = harness.runs("alice");
    assert_eq!(refusal(harness.ask(forget())).0, RefusalCode::Conflict);
    let id = harness.request_shutdown("alice", Some(0.0));
    harness.advance(0);
    harness.ends(&alice);
    harness.unread.mail = vec![UnreadMail {
        id: Uuid::from_u128(1),
        from: "user".to_owned(),
        text: "queued".to_owned(),
    }];
    let Ok(Done::Forgotten { files }) = harness.ask(forget()) else {
        panic!("it was not forgotten")
    };
    let line = harness.team.undone.back().unwrap();
    let (to, back) = messages(line).remove(0);
    assert_eq!((to, back.to.as_deref()), (Name::lead(), Some("user")));
    let Body::Returned { why, text, .. } = &back.body else {
        panic!("{back:?}")
    };
    assert_eq!((why.as_str(), text.as_str()), ("forgotten", "queued"));
    assert!(!back.content.contains("--resume"), "{}", back.content);
    assert!(
        files
            .iter()
            .all(|file| file.contains(&format!("/{}.", harness.team.seq))),
        "{files:?}"
    );
    assert!(harness.team.members.is_empty() && harness.team.requests.contains_key(&id));
    assert_eq!(
        refusal(harness.spawn(order("alice"))).0,
        RefusalCode::Conflict
    );
    harness.team.mark_done(harness.team.seq);
    assert_eq!(harness.spawn(order("alice")), Ok(2));
    assert_eq!(harness.team.shutdown_of(&name("alice")), None);
}

#[test]
fn commands_about_unknown_members_are_not_found_and_about_ended_ones_a_conflict() {
    let mut harness = Harness::new();
    harness.spawn(never_restarted("alice")).unwrap();
    let alice = harness.starts("alice");
    harness.ends(&alice);
    let commands = |who: &str| {
        [
            super::super::harness::shutdown(who, None),
            super::super::harness::plan_request(who),
            Command::Interrupt {
                name: name(who),
                asked_at: NOON,
            },
        ]
    };
    for command in commands("alice") {
        assert_eq!(refusal(harness.ask(command)).0, RefusalCode::Conflict);
    }
    for command in commands("bob") {
        assert_eq!(refusal(harness.ask(command)).0, RefusalCode::NotFound);
    }
}

#[test]
fn a_repeated_spawn_waits_with_the_first_and_another_one_is_refused() {
    let mut harness = Harness::new();
    let spawn = |id| {
        Event::Spawn(
            CLIENT,
            id,
            Box::new(order("alice")),
            SpawnFacts {
                held: None,
                lead_inbox: Ok(None),
                cannot_commit: None,
            },
        )
    };
    let id = next_id();
    harness.on(&spawn(id.clone()));
    let waits = [Action::Wait(CLIENT, name("alice"), Until::Ready(1))];
    let alice = harness.starts("alice");
    for _ in 0..2 {
        let again = harness.on(&spawn(id.clone()));
        assert_eq!(
            (again.records.as_slice(), again.actions.as_slice()),
            ([].as_slice(), waits.as_slice())
        );
        // A restart by the policy is another incarnation: the first one was not ready, or has
        // ended.
        harness.ends(&alice);
    }
    assert_eq!(
        refusal(reply(&harness.on(&spawn(next_id())))).0,
        RefusalCode::Conflict
    );
}

#[test]
fn a_name_cannot_be_spawned_while_the_checkout_of_its_forgotten_owner_is_removed() {
    let mut harness = Harness::new();
    harness.spawn(never_restarted("alice")).unwrap();
    let alice = harness.starts("alice");
    let state = harness.team.members.get_mut(&name("alice")).unwrap();
    state.record.terms.checkout = Some(Checkout::default());
    harness.ends(&alice);
    let forget = Command::Forget {
        name: name("alice"),
        discard: false,
    };
    let decision = harness.on(&Event::Command(CLIENT, Actor::Person, forget));
    let [Action::Begin(job)] = decision.actions.as_slice() else {
        panic!("{decision:?}")
    };
    let job = harness.runtime.jobs.begin(job.then.clone()).unwrap();
    for resume in [false, true] {
        let order = SpawnOrder {
            resume,
            ..order("alice")
        };
        let (code, message) = refusal(harness.spawn(order));
        assert_eq!(code, RefusalCode::Conflict);
        assert!(message.contains("is being forgotten"), "{message}");
    }
    let ended = Ok(JobReport::Removed);
    let decision = harness.on(&Event::JobEnded { job, ended });
    assert!(matches!(reply(&decision), Ok(Done::Forgotten { .. })));
    harness.team.mark_done(harness.team.seq);
    assert_eq!(harness.spawn(order("alice")), Ok(2));
}
