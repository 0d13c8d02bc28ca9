//! The lead agent: a member like the others, that may ask for some of what a person may.

use teamd_shared::control::{Command, Done, RefusalCode, SpawnOrder, TaskOrder};
use teamd_shared::journal::{Line, Record};
use teamd_shared::member::{ApproveBy, Phase, TermsPatch};
use teamd_shared::message::{ASKED_BY, AnsweredBy, Body};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::request::Status;
use teamd_shared::task::TaskFields;

use super::super::harness::*;
use crate::core::caller::Actor;
use crate::core::decide::Decision;
use crate::core::event::{Action, Event, Until};
use crate::core::job::SpawnFacts;
use crate::core::notices::messages;
use crate::core::waiters::Waiters;

fn answer(id: &teamd_shared::id::RequestId, approve: bool) -> Command {
    Command::Answer {
        request_id: id.clone(),
        approve,
        feedback: String::new(),
        permissions: None,
    }
}

fn order_to_leave(who: &str) -> Command {
    shutdown(who, None)
}

/// Who asked for the end that a decision tells of, as its messages say.
fn asked_by(decision: &Decision) -> Vec<Option<serde_json::Value>> {
    let exited = decision
        .records
        .iter()
        .find(|record| matches!(record, Record::Member(it) if !it.tell.is_empty()));
    let record = exited.unwrap().clone();
    let line = Line {
        seq: 1,
        at: 1.0,
        version: None,
        done: 0,
        lead: None,
        record,
    };
    let ended = |body: &Body| matches!(body, Body::TeammateTerminated { .. });
    let told = messages(&line)
        .into_iter()
        .filter(|(_, message)| ended(&message.body));
    told.map(|(_, message)| message.extra.get(ASKED_BY).cloned())
        .collect()
}

#[test]
fn the_lead_agent_is_a_member_and_begins_where_the_inbox_ends() {
    let mut harness = Harness::new();
    let end = Position {
        offset: 700,
        tail: 9,
    };
    let facts = SpawnFacts {
        held: None,
        lead_inbox: Ok(Some(end)),
        cannot_commit: None,
    };
    let decision = harness.on(&Event::Spawn(
        CLIENT,
        next_id(),
        Box::new(order("lead")),
        facts,
    ));
    assert_eq!(
        decision.actions[1..],
        [Action::Wait(CLIENT, Name::lead(), Until::Ready(1))]
    );
    let lead = harness.starts("lead");
    assert_eq!(harness.member("lead").begins_at, end);
    assert_eq!(
        refusal(harness.spawn(order("lead"))).0,
        RefusalCode::Conflict
    );
    let id = harness.request_shutdown("lead", None);
    let body = Body::ShutdownResponse {
        request_id: id.clone(),
        approve: true,
        reason: "idle".to_owned(),
        answered_by: Some(AnsweredBy::Runtime),
    };
    harness.submit(&lead, body);
    assert_eq!(harness.status(&id), Status::Approved);
    harness.ends(&lead);
    assert_eq!(harness.member("lead").phase, Phase::Shutdown);
    assert_eq!(
        harness
            .ask(Command::Forget {
                name: name("lead"),
                discard: false
            })
            .map(|done| match done {
                Done::Forgotten { files } => files.iter().any(|file| file.contains("inbox")),
                other => panic!("{other:?}"),
            }),
        Ok(false)
    );
}

#[test]
fn a_lead_agent_that_crashes_is_started_again_and_its_shutdown_expires() {
    let mut harness = Harness::new();
    let lead = harness.runs("lead");
    harness.ends(&lead);
    let again = harness.starts("lead");
    assert_eq!((again.number, harness.member("lead").conversation), (2, 1));
    let id = harness.request_shutdown("lead", None);
    harness.ends(&again);
    assert_eq!(
        (harness.member("lead").phase, harness.status(&id)),
        (Phase::Crashed, Status::Expired)
    );
}

#[test]
fn the_lead_agent_answers_only_the_plans_that_a_person_has_left_to_it() {
    let mut harness = Harness::new();
    harness.runs("lead");
    let alice = harness.runs_with_plan("alice");
    let of_alice = harness.submit_plan(&alice, "aaaa0001");
    for approve in [true, false] {
        let (code, message) = refusal(harness.agent_asks(answer(&of_alice, approve)));
        assert_eq!(code, RefusalCode::Rejected);
        assert_eq!(
            message,
            "the plan aaaa0001 of alice is a person's to answer"
        );
    }
    assert_eq!(harness.status(&of_alice), Status::Pending);
    harness.ask(answer(&of_alice, true)).unwrap();
    // The same answer, once a person has given it, changes nothing.
    assert_eq!(
        harness.agent_asks(answer(&of_alice, true)),
        Ok(Done::Answered { repeated: true })
    );
    assert_eq!(
        refusal(harness.agent_asks(answer(&of_alice, false))).0,
        RefusalCode::Conflict
    );
    let plan = Some(true);
    let approve_by = Some(ApproveBy::Lead);
    let terms = TermsPatch {
        plan,
        approve_by,
        ..TermsPatch::default()
    };
    harness
        .spawn(SpawnOrder {
            terms,
            ..order("bob")
        })
        .unwrap();
    let bob = harness.starts("bob");
    let of_bob = harness.submit_plan(&bob, "bbbb0001");
    assert_eq!(
        harness.agent_asks(answer(&of_bob, false)),
        Ok(Done::Answered { repeated: false })
    );
    assert_eq!(harness.status(&of_bob), Status::Rejected);
}

#[test]
fn the_lead_agent_has_no_plans_and_none_of_its_own_is_answered_by_it() {
    let mut harness = Harness::new();
    let refused = |harness: &mut Harness, order| refusal(harness.spawn(order)).0;
    let planning = TermsPatch {
        plan: Some(true),
        ..TermsPatch::default()
    };
    let approving = TermsPatch {
        approve_by: Some(ApproveBy::Lead),
        ..TermsPatch::default()
    };
    for terms in [planning, approving] {
        assert_eq!(
            refused(
                &mut harness,
                SpawnOrder {
                    terms,
                    ..order("lead")
                }
            ),
            RefusalCode::Usage
        );
    }
    let lead = harness.runs("lead");
    let ask = plan_request("lead");
    assert_eq!(refusal(harness.ask(ask)).0, RefusalCode::Conflict);
    let own = harness.submit_plan(&lead, "cccc0001");
    assert_eq!(
        refusal(harness.agent_asks(answer(&own, true))).0,
        RefusalCode::Rejected
    );
}

#[test]
fn a_notice_of_an_end_says_if_the_lead_agent_asked_for_it() {
    let mut harness = Harness::new();
    let told = |harness: &mut Harness, who: &str| {
        let incarnation = incarnation(who, 1);
        let id = harness
            .team
            .shutdown_of(&name(who))
            .unwrap()
            .request_id
            .clone();
        harness.submit(
            &incarnation,
            Body::ShutdownResponse {
                request_id: id,
                approve: true,
                reason: "idle".to_owned(),
                answered_by: Some(AnsweredBy::Runtime),
            },
        );
        asked_by(&harness.ends(&incarnation))
    };
    harness.runs("lead");
    for who in ["alice", "bob", "carol"] {
        harness.runs(who);
    }
    harness.agent_asks(order_to_leave("alice")).unwrap();
    harness.ask(order_to_leave("bob")).unwrap();
    // A person asks first, and the lead agent joins.
    let first = harness.ask(order_to_leave("carol"));
    assert_eq!(harness.agent_asks(order_to_leave("carol")), first);
    let lead = || Some(serde_json::json!("lead"));
    assert_eq!(told(&mut harness, "alice"), [lead()], "once");
    assert_eq!(told(&mut harness, "bob"), [None]);
    assert_eq!(told(&mut harness, "carol"), [lead()]);
}

#[test]
fn a_plan_that_is_awaited_is_told_when_it_is_answered() {
    let mut harness = Harness::new();
    let alice = harness.runs_with_plan("alice");
    let id = harness.submit_plan(&alice, "aaaa0001");
    let mut waiters = Waiters::default();
    let awaits = harness.on(&Event::Command(
        AGENT,
        Actor::Member(Name::lead()),
        Command::AwaitVerdict {
            request_id: id.clone(),
        },
    ));
    assert_eq!(
        awaits.actions,
        [Action::Wait(
            AGENT,
            alice.name.clone(),
            Until::Judged(id.clone())
        )]
    );
    waiters.add(AGENT, alice.name.clone(), Until::Judged(id.clone()));
    assert_eq!(
        waiters.answered(&harness.team, &harness.runtime, &alice.name),
        []
    );
    // Its incarnation may end meanwhile: the plan belongs to the conversation.
    harness.ends(&alice);
    assert_eq!(
        waiters.answered(&harness.team, &harness.runtime, &alice.name),
        []
    );
    let feedback = "mind the tests".to_owned();
    harness
        .ask(Command::Answer {
            request_id: id,
            approve: true,
            feedback,
            permissions: None,
        })
        .unwrap();
    let answers = waiters.answered(&harness.team, &harness.runtime, &alice.name);
    let [(AGENT, Ok(Done::Judged(verdict)))] = answers.as_slice() else {
        panic!("{answers:?}")
    };
    assert_eq!(
        (verdict.status, verdict.feedback.as_str()),
        (Status::Approved, "mind the tests")
    );
}

/// Returns why a member may not ask for something.
fn is_refused(who: &str, command: Command) -> Option<String> {
    let mut harness = Harness::new();
    let by = Actor::Member(name(who));
    let decision = harness.on(&Event::Command(AGENT, by, command));
    let [Action::Reply(AGENT, Err(refusal))] = decision.actions.as_slice() else {
        return None;
    };
    assert!(refusal.hint.is_some(), "no next step: {refusal:?}");
    Some(refusal.message.clone())
}

#[test]
fn only_the_lead_agent_is_heard_over_its_own_connection() {
    let id = next_id();
    let refused = "only the lead agent asks for something";
    for command in [
        order_to_leave("bob"),
        plan_request("bob"),
        Command::AwaitVerdict { request_id: id },
    ] {
        let of_lead = is_refused("lead", command.clone());
        assert_ne!(of_lead.as_deref(), Some(refused), "{command:?}");
        let of_alice = is_refused("alice", command.clone());
        assert_eq!(of_alice.as_deref(), Some(refused), "{command:?}");
    }
}

#[test]
fn what_a_person_alone_may_do_is_refused_to_the_lead_agent() {
    let forbidden = "that is not for the lead agent to do";
    let by_force = "the lead agent ends no teammate by force";
    for (command, refused) in [
        (shutdown("bob", Some(0.0)), by_force),
        (Command::Stop { force: false }, forbidden),
        (
            Command::Forget {
                name: name("bob"),
                discard: false,
            },
            forbidden,
        ),
        (
            Command::Interrupt {
                name: name("bob"),
                asked_at: std::time::Duration::ZERO,
            },
            forbidden,
        ),
    ] {
        let why = is_refused("lead", command.clone());
        assert_eq!(why.as_deref(), Some(refused), "{command:?}");
    }
}

#[test]
fn the_lead_agent_makes_the_team_no_larger_than_it_may_be_and_a_person_does() {
    let mut harness = Harness::new();
    harness.runs("lead");
    let most = rules().max_members;
    for number in 1..most {
        harness.runs(&format!("m{number}"));
    }
    let agent_spawns = |harness: &mut Harness, who: &str| {
        let spawn = Command::Spawn {
            id: next_id(),
            order: Box::new(order(who)),
        };
        harness.on(&Event::Command(AGENT, Actor::Member(Name::lead()), spawn))
    };
    let is_taken = |decision: &Decision| matches!(decision.actions[..], [Action::Look(..)]);
    assert!(is_taken(&agent_spawns(&mut harness, "last")));
    harness.runs("last");
    let refused = refusal(reply(&agent_spawns(&mut harness, "more")));
    assert_eq!(refused.0, RefusalCode::Conflict);
    assert!(refused.1.contains("16 teammates run"), "{}", refused.1);
    let more = harness.runs("more");
    harness.ends(&more);
    assert_eq!(
        refusal(reply(&agent_spawns(&mut harness, "other"))).0,
        RefusalCode::Conflict
    );
}

#[test]
fn the_lead_agent_takes_no_check_and_no_review_away_that_a_person_chose() {
    let mut harness = Harness::new();
    harness.runs("lead");
    let chosen = TaskFields {
        subject: Some("one".to_owned()),
        check: Some("true".to_owned()),
        review: Some("person".to_owned()),
        ..TaskFields::default()
    };
    let add = |tasks: Vec<TaskFields>| {
        Command::Task(TaskOrder::Add {
            id: next_id(),
            tasks,
            within: false,
        })
    };
    harness.ask(add(vec![chosen.clone()])).unwrap();
    harness.agent_asks(add(vec![chosen])).unwrap();
    let edit = |id: u32, fields: TaskFields| Command::Task(TaskOrder::Edit(id, Box::new(fields)));
    let check = |command: &str| TaskFields {
        check: Some(command.to_owned()),
        ..TaskFields::default()
    };
    let review = |by: &str| TaskFields {
        review: Some(by.to_owned()),
        ..TaskFields::default()
    };
    for loosened in [
        check("none"),
        check("false"),
        review("none"),
        review("lead"),
    ] {
        let refused = refusal(harness.agent_asks(edit(1, loosened.clone())));
        assert_eq!(refused.0, RefusalCode::Conflict, "{loosened:?}");
        harness.ask(edit(1, loosened)).unwrap();
        let again = TaskFields {
            review: Some("person".to_owned()),
            ..check("true")
        };
        harness.ask(edit(1, again)).unwrap();
    }
    let priority = TaskFields {
        priority: Some(3),
        ..TaskFields::default()
    };
    harness.agent_asks(edit(1, priority)).unwrap();
    harness.agent_asks(edit(2, check("none"))).unwrap();
}
