//! Spawn, interrupt, forget.

use teamd_shared::control::{Command, Done, RefusalCode, SpawnOrder, ToWorker};
use teamd_shared::journal::{MemberEvent, Record};
use teamd_shared::member::{Gate, Phase, Restart, TermsPatch};
use teamd_shared::position::Position;

use super::super::desk::{
    CLIENT, Desk, environment, incarnation, name, never_restarted, next_id, order, refusal, reply, said,
};
use crate::daemon::core::event::{Action, Event, SpawnFacts, Until};

#[test]
fn a_spawn_is_journaled_before_it_is_started_and_answered() {
    let mut desk = Desk::new();
    let facts = SpawnFacts { held: None, default_workspace: "/home/u/web".to_owned(), lead_inbox: None };
    let terms = TermsPatch { prompt: Some("count the files".to_owned()), ..TermsPatch::default() };
    let order = Box::new(SpawnOrder { terms, ..order("alice") });
    let spawned = desk.on(&Event::Spawn(CLIENT, next_id(), order, facts));
    let [Record::Member(record)] = spawned.records.as_slice() else { panic!("{spawned:?}") };
    assert_eq!((record.event, record.member.phase), (MemberEvent::Spawning, Phase::Spawning));
    assert_eq!(
        (record.member.incarnation, record.member.conversation, record.member.gate),
        (1, 1, Gate::Open)
    );
    assert_eq!(record.member.begins_at, Position::START);
    assert_eq!(spawned.actions[0], Action::Start(incarnation("alice", 1)));
    assert_eq!(spawned.actions[1..], [Action::Wait(CLIENT, name("alice"), Until::Ready(1))]);
    assert_eq!(desk.team.members[&name("alice")].prompt.as_deref(), Some("count the files"));
}

#[test]
fn who_must_submit_a_plan_begins_with_a_closed_gate() {
    let mut desk = Desk::new();
    desk.runs_with_plan("alice");
    assert_eq!(desk.member("alice").gate, Gate::Closed);
}

#[test]
fn a_name_is_taken_from_its_spawn_to_its_end() {
    let mut desk = Desk::new();
    desk.spawn(order("alice")).unwrap();
    assert_eq!(refusal(desk.spawn(order("alice"))).0, RefusalCode::Conflict);
    let alice = desk.starts("alice");
    assert_eq!(refusal(desk.spawn(order("alice"))).0, RefusalCode::Conflict);
    desk.asks("alice", Some(0.0));
    desk.later(0);
    assert_eq!(refusal(desk.spawn(order("alice"))).0, RefusalCode::Conflict);
    desk.ends(&alice);
    assert_eq!(desk.spawn(order("alice")), Ok(2));
}

#[test]
fn a_spawn_that_makes_no_sense_is_refused_and_changes_nothing() {
    let mut desk = Desk::new();
    let alice = desk.runs("alice");
    desk.asks("alice", Some(0.0));
    desk.later(0);
    desk.ends(&alice);
    let before = desk.team.clone();
    let prompted = TermsPatch { prompt: Some("hi".to_owned()), ..TermsPatch::default() };
    let planning = TermsPatch { plan: Some(true), ..TermsPatch::default() };
    let cases = [
        (
            SpawnOrder { name: teamd_shared::name::Name::lead(), terms: planning, ..order("bob") },
            RefusalCode::Usage,
        ),
        (SpawnOrder { resume: true, ..order("bob") }, RefusalCode::NotFound),
        (SpawnOrder { resume: true, terms: prompted, ..order("alice") }, RefusalCode::Usage),
    ];
    for (order, code) in cases {
        let refusal = desk.spawn(order.clone()).expect_err("a refusal");
        assert_eq!(refusal.code, code, "{order:?}");
    }
    let facts = SpawnFacts {
        held: Some("process 7 holds its life lock".to_owned()),
        default_workspace: "/".to_owned(),
        lead_inbox: None,
    };
    let held = desk.on(&Event::Spawn(CLIENT, next_id(), Box::new(order("alice")), facts));
    assert_eq!(refusal(reply(&held)).0, RefusalCode::Conflict);
    assert_eq!(desk.team, before);
}

#[test]
fn nobody_is_spawned_while_the_team_is_stopping() {
    let mut desk = Desk::new();
    desk.runs("alice");
    desk.on(&Event::Command(CLIENT, Command::Stop { force: false }));
    assert_eq!(refusal(desk.spawn(order("bob"))).0, RefusalCode::Conflict);
}

#[test]
fn a_refused_spawn_leaves_the_environment_of_whoever_runs_as_it_is() {
    let mut desk = Desk::new();
    let other = || SpawnOrder { environment: environment(2), ..order("alice") };
    desk.spawn(order("alice")).unwrap();
    desk.spawn(other()).unwrap_err();
    let alice = desk.starts("alice");
    // Its connection is broken: it runs all the same.
    desk.on(&Event::Disconnected { incarnation: alice.clone() });
    desk.spawn(other()).unwrap_err();
    let given = |desk: &Desk| desk.live.member(&name("alice")).and_then(|alive| alive.environment.clone());
    assert_eq!(given(&desk), Some(environment(1)));
    desk.ends(&alice);
    assert_eq!((desk.member("alice").phase, given(&desk)), (Phase::Spawning, Some(environment(1))));
}

#[test]
fn a_resume_goes_on_with_the_conversation_and_changes_what_it_names() {
    let mut desk = Desk::new();
    let (role, restart) = (Some("coder".to_owned()), Some(Restart::Never));
    let terms = TermsPatch { role, restart, ..TermsPatch::default() };
    desk.spawn(SpawnOrder { terms, ..order("alice") }).unwrap();
    let alice = desk.starts("alice");
    desk.ends(&alice);
    let terms = TermsPatch { plan: Some(true), ..TermsPatch::default() };
    let resumed = desk.spawn(SpawnOrder { resume: true, terms, ..order("alice") });
    assert_eq!(resumed, Ok(2));
    let member = desk.member("alice");
    assert_eq!(
        (member.conversation, member.terms.role.as_str(), member.terms.restart),
        (1, "coder", Restart::Never)
    );
    assert_eq!((member.terms.plan, member.gate, member.begins_at), (true, Gate::Closed, Position::START));
}

#[test]
fn a_fresh_incarnation_skips_the_mail_of_the_old_one() {
    let mut desk = Desk::new();
    desk.spawn(never_restarted("alice")).unwrap();
    let alice = desk.starts("alice");
    desk.ends(&alice);
    assert_eq!(desk.spawn(order("alice")), Ok(2));
    assert_eq!((desk.member("alice").conversation, desk.member("alice").begins_at.offset), (2, 70));
}

const NOON: std::time::Duration = std::time::Duration::from_secs(12);

#[test]
fn an_interrupt_is_said_and_not_journaled() {
    let mut desk = Desk::new();
    desk.runs("alice");
    let interrupted =
        desk.on(&Event::Command(CLIENT, Command::Interrupt { name: name("alice"), asked_at: NOON }));
    assert_eq!(
        (interrupted.records.len(), said(&interrupted)),
        (0, vec![&ToWorker::Interrupt { asked_at: NOON }])
    );
    assert_eq!(
        refusal(desk.ask(Command::Interrupt { name: name("bob"), asked_at: NOON })).0,
        RefusalCode::NotFound
    );
}

#[test]
fn only_who_has_ended_is_forgotten_and_its_name_is_free_once_its_files_are_moved() {
    let mut desk = Desk::new();
    let forget = || Command::Forget { name: name("alice") };
    assert_eq!(refusal(desk.ask(forget())).0, RefusalCode::NotFound);
    let alice = desk.runs("alice");
    assert_eq!(refusal(desk.ask(forget())).0, RefusalCode::Conflict);
    let id = desk.asks("alice", Some(0.0));
    desk.later(0);
    desk.ends(&alice);
    let Ok(Done::Forgotten { files }) = desk.ask(forget()) else { panic!("it was not forgotten") };
    assert!(files.iter().all(|file| file.contains(&format!("/{}.", desk.team.seq))), "{files:?}");
    assert!(desk.team.members.is_empty() && desk.team.requests.contains_key(&id));
    assert_eq!(refusal(desk.spawn(order("alice"))).0, RefusalCode::Conflict);
    desk.team.mark_done(desk.team.seq);
    assert_eq!(desk.spawn(order("alice")), Ok(2));
    assert_eq!(desk.team.shutdown_of(&name("alice")), None);
}

#[test]
fn commands_about_nobody_are_not_found_and_about_ended_ones_a_conflict() {
    let mut desk = Desk::new();
    desk.spawn(never_restarted("alice")).unwrap();
    let alice = desk.starts("alice");
    desk.ends(&alice);
    let commands = |who: &str| {
        [
            super::super::desk::shutdown(who, None),
            super::super::desk::plan_request(who),
            Command::Interrupt { name: name(who), asked_at: NOON },
        ]
    };
    for command in commands("alice") {
        assert_eq!(refusal(desk.ask(command)).0, RefusalCode::Conflict);
    }
    for command in commands("bob") {
        assert_eq!(refusal(desk.ask(command)).0, RefusalCode::NotFound);
    }
}

#[test]
fn a_spawn_that_is_said_again_waits_with_the_first_and_another_one_is_refused() {
    let mut desk = Desk::new();
    let facts = || SpawnFacts { held: None, default_workspace: "/home/u/web".to_owned(), lead_inbox: None };
    let spawn = |id| Event::Spawn(CLIENT, id, Box::new(order("alice")), facts());
    let id = next_id();
    desk.on(&spawn(id.clone()));
    let waits = [Action::Wait(CLIENT, name("alice"), Until::Ready(1))];
    let alice = desk.starts("alice");
    for _ in 0..2 {
        let again = desk.on(&spawn(id.clone()));
        assert_eq!((again.records.as_slice(), again.actions.as_slice()), ([].as_slice(), waits.as_slice()));
        // A restart by the policy is another incarnation: the first one was not ready, or has ended.
        desk.ends(&alice);
    }
    assert_eq!(refusal(reply(&desk.on(&spawn(next_id())))).0, RefusalCode::Conflict);
}

#[test]
fn what_never_comes_this_way_is_refused() {
    let mut desk = Desk::new();
    assert_eq!(desk.ask(Command::Ping).unwrap_err().code, RefusalCode::Failed);
    assert_eq!(
        desk.ask(Command::Spawn { id: next_id(), order: Box::new(order("alice")) }).unwrap_err().code,
        RefusalCode::Failed
    );
    assert_eq!(desk.team.seq, 0);
}
