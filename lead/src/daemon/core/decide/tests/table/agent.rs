//! The lead agent: a member like the others, that may ask for some of what a person may.

use teamd_shared::control::{Command, Done, RefusalCode, SpawnOrder};
use teamd_shared::journal::{Line, Record};
use teamd_shared::member::{ApproveBy, Phase, TermsPatch};
use teamd_shared::message::{ASKED_BY, AnsweredBy, Body};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::request::Status;

use super::super::desk::*;
use crate::daemon::core::decide::Decision;
use crate::daemon::core::event::{Action, Event, SpawnFacts, Until};
use crate::daemon::core::notices::messages;
use crate::daemon::core::waiters::Waiters;

fn answer(id: &teamd_shared::id::RequestId, approve: bool) -> Command {
    Command::Answer { request_id: id.clone(), approve, feedback: String::new() }
}

fn order_to_leave(who: &str) -> Command {
    shutdown(who, None)
}

/// Who asked for the end that a decision tells of, as its messages say.
fn asked_by(decision: &Decision) -> Vec<Option<serde_json::Value>> {
    let exited =
        decision.records.iter().find(|record| matches!(record, Record::Member(it) if !it.tell.is_empty()));
    let record = exited.unwrap().clone();
    let line = Line { seq: 1, at: 1.0, version: None, done: 0, lead: None, record };
    let ended = |body: &Body| matches!(body, Body::TeammateTerminated { .. });
    let told = messages(&line).into_iter().filter(|(_, message)| ended(&message.body));
    told.map(|(_, message)| message.extra.get(ASKED_BY).cloned()).collect()
}

#[test]
fn the_lead_agent_is_a_member_and_begins_where_the_inbox_ends() {
    let mut desk = Desk::new();
    let end = Position { offset: 700, tail: 9 };
    let facts = SpawnFacts { held: None, default_workspace: "/".to_owned(), lead_inbox: Some(end) };
    let decision = desk.on(&Event::Spawn(CLIENT, next_id(), Box::new(order("lead")), facts));
    assert_eq!(decision.actions[1..], [Action::Wait(CLIENT, Name::lead(), Until::Ready(1))]);
    let lead = desk.starts("lead");
    assert_eq!(desk.member("lead").begins_at, end);
    assert_eq!(refusal(desk.spawn(order("lead"))).0, RefusalCode::Conflict);
    let id = desk.asks("lead", None);
    let body = Body::ShutdownResponse {
        request_id: id.clone(),
        approve: true,
        reason: "idle".to_owned(),
        answered_by: Some(AnsweredBy::Runtime),
    };
    assert_eq!(recorded(&desk.names(&lead, body)), Status::Approved);
    desk.ends(&lead);
    assert_eq!(desk.member("lead").phase, Phase::Shutdown);
    assert_eq!(
        desk.ask(Command::Forget { name: name("lead") }).map(|done| match done {
            Done::Forgotten { files } => files.iter().any(|file| file.contains("inbox")),
            other => panic!("{other:?}"),
        }),
        Ok(false)
    );
}

#[test]
fn a_lead_agent_that_crashes_is_started_again_and_its_shutdown_expires() {
    let mut desk = Desk::new();
    let lead = desk.runs("lead");
    desk.ends(&lead);
    let again = desk.starts("lead");
    assert_eq!((again.number, desk.member("lead").conversation), (2, 1));
    let id = desk.asks("lead", None);
    desk.ends(&again);
    assert_eq!((desk.member("lead").phase, desk.status(&id)), (Phase::Crashed, Status::Expired));
}

#[test]
fn the_lead_agent_answers_only_the_plans_that_a_person_has_left_to_it() {
    let mut desk = Desk::new();
    desk.runs("lead");
    let alice = desk.runs_with_plan("alice");
    let of_alice = desk.submits(&alice, "aaaa0001");
    for approve in [true, false] {
        let (code, message) = refusal(desk.agent_asks(answer(&of_alice, approve)));
        assert_eq!(code, RefusalCode::Rejected);
        assert_eq!(message, "the plan aaaa0001 of alice is a person's to answer");
    }
    assert_eq!(desk.status(&of_alice), Status::Pending);
    desk.ask(answer(&of_alice, true)).unwrap();
    // The same answer, once a person has given it, changes nothing.
    assert_eq!(desk.agent_asks(answer(&of_alice, true)), Ok(Done::Answered { repeated: true }));
    assert_eq!(refusal(desk.agent_asks(answer(&of_alice, false))).0, RefusalCode::Conflict);
    let (plan, approve_by) = (Some(true), Some(ApproveBy::Lead));
    let terms = TermsPatch { plan, approve_by, ..TermsPatch::default() };
    desk.spawn(SpawnOrder { terms, ..order("bob") }).unwrap();
    let bob = desk.starts("bob");
    let of_bob = desk.submits(&bob, "bbbb0001");
    assert_eq!(desk.agent_asks(answer(&of_bob, false)), Ok(Done::Answered { repeated: false }));
    assert_eq!(desk.status(&of_bob), Status::Rejected);
}

#[test]
fn the_lead_agent_has_no_plans_and_none_of_its_own_is_answered_by_it() {
    let mut desk = Desk::new();
    let refused = |desk: &mut Desk, order| refusal(desk.spawn(order)).0;
    let planning = TermsPatch { plan: Some(true), ..TermsPatch::default() };
    let approving = TermsPatch { approve_by: Some(ApproveBy::Lead), ..TermsPatch::default() };
    for terms in [planning, approving] {
        assert_eq!(refused(&mut desk, SpawnOrder { terms, ..order("lead") }), RefusalCode::Usage);
    }
    let lead = desk.runs("lead");
    let ask = plan_request("lead");
    assert_eq!(refusal(desk.ask(ask)).0, RefusalCode::Conflict);
    let own = desk.submits(&lead, "cccc0001");
    assert_eq!(refusal(desk.agent_asks(answer(&own, true))).0, RefusalCode::Rejected);
}

#[test]
fn who_asked_for_an_end_is_told_where_it_was_the_lead_agent() {
    let mut desk = Desk::new();
    let told = |desk: &mut Desk, who: &str| {
        let incarnation = incarnation(who, 1);
        let id = desk.team.shutdown_of(&name(who)).unwrap().request_id.clone();
        desk.names(
            &incarnation,
            Body::ShutdownResponse {
                request_id: id,
                approve: true,
                reason: "idle".to_owned(),
                answered_by: Some(AnsweredBy::Runtime),
            },
        );
        asked_by(&desk.ends(&incarnation))
    };
    desk.runs("lead");
    for who in ["alice", "bob", "carol"] {
        desk.runs(who);
    }
    desk.agent_asks(order_to_leave("alice")).unwrap();
    desk.ask(order_to_leave("bob")).unwrap();
    // A person asks first, and the lead agent joins.
    let first = desk.ask(order_to_leave("carol"));
    assert_eq!(desk.agent_asks(order_to_leave("carol")), first);
    let lead = || Some(serde_json::json!("lead"));
    assert_eq!(told(&mut desk, "alice"), [lead()], "once");
    assert_eq!(told(&mut desk, "bob"), [None]);
    assert_eq!(told(&mut desk, "carol"), [lead()]);
}

#[test]
fn a_plan_that_is_awaited_is_told_when_it_is_answered() {
    let mut desk = Desk::new();
    let alice = desk.runs_with_plan("alice");
    let id = desk.submits(&alice, "aaaa0001");
    let mut waiters = Waiters::default();
    let awaits = desk.on(&Event::Command(AGENT, Command::AwaitVerdict { request_id: id.clone() }));
    assert_eq!(awaits.actions, [Action::Wait(AGENT, alice.name.clone(), Until::Judged(id.clone()))]);
    waiters.add(AGENT, alice.name.clone(), Until::Judged(id.clone()));
    assert_eq!(waiters.answered(&desk.team, &desk.live, &alice.name), []);
    // Its incarnation may end meanwhile: the plan belongs to the conversation.
    desk.ends(&alice);
    assert_eq!(waiters.answered(&desk.team, &desk.live, &alice.name), []);
    let feedback = "mind the tests".to_owned();
    desk.ask(Command::Answer { request_id: id, approve: true, feedback }).unwrap();
    let answers = waiters.answered(&desk.team, &desk.live, &alice.name);
    let [(AGENT, Ok(Done::Judged(verdict)))] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!((verdict.status, verdict.feedback.as_str()), (Status::Approved, "mind the tests"));
}
