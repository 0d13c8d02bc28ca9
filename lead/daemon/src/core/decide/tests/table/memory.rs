//! What the team remembers: proposed by members, accepted by a person alone.

use teamd_shared::control::{Command, Done, RefusalCode};
use teamd_shared::id::RequestId;
use teamd_shared::journal::MAX_MEMORY;
use teamd_shared::request::{Kind, Status};
use teamd_shared::terms::ToolGroup;

use super::super::harness::{AGENT, CLIENT, Harness, name, refusal, reply, request_id, verdict};
use crate::core::caller::Actor;
use crate::core::directive::welcome;
use crate::core::event::Event;

fn propose(harness: &mut Harness, id: &str, text: &str) -> Result<Done, (RefusalCode, String)> {
    let command = Command::Remember {
        id: request_id(id),
        text: text.to_owned(),
    };
    let by = Actor::Member(name("alice"));
    let answer = reply(&harness.on(&Event::Command(CLIENT, by, command)));
    answer.map_err(|refused| (refused.code, refused.message))
}

fn set_groups(harness: &mut Harness, who: &str, groups: &[ToolGroup]) {
    let member = harness.team.members.get_mut(&name(who)).unwrap();
    member.record.terms.groups = groups.to_vec();
}

fn asked(id: &str) -> Result<Done, (RefusalCode, String)> {
    Ok(Done::Asked {
        request_id: request_id(id),
    })
}

fn forget(id: &RequestId) -> Command {
    Command::ForgetMemory {
        request_id: id.clone(),
    }
}

#[test]
fn a_person_accepts_what_a_member_proposes_and_the_lead_agent_never_does() {
    let mut harness = Harness::new();
    let alice = harness.runs("alice");
    set_groups(&mut harness, "alice", &[ToolGroup::Memory]);
    harness.runs("lead");
    assert_eq!(
        propose(&mut harness, "aaaa0001", " build with make\n"),
        asked("aaaa0001")
    );
    assert_eq!(
        propose(&mut harness, "aaaa0002", "build with make"),
        asked("aaaa0001"),
        "once"
    );
    let id = request_id("aaaa0001");
    let (code, why) = refusal(harness.agent_asks(verdict(&id, true)));
    assert_eq!(code, RefusalCode::Rejected);
    assert!(why.contains("is a person's to answer"), "{why}");
    let by_agent = Event::Command(
        AGENT,
        Actor::LeadAnswers("an MCP lead".to_owned()),
        verdict(&id, true),
    );
    assert!(reply(&harness.on(&by_agent)).is_err());
    assert_eq!(harness.team.memory_text(), "");
    // It closes no gate, awaits nothing of the teammate, and outlives it.
    assert!(harness.team.awaited_by(&name("alice")).is_none());
    harness.ends(&alice);
    assert_eq!(harness.status(&id), Status::Pending);
    assert_eq!(
        harness.ask(verdict(&id, true)),
        Ok(Done::Answered { repeated: false })
    );
    assert_eq!(
        harness.team.memory_text(),
        "alice (aaaa0001):\n> build with make\n\n"
    );
    let bob = harness.runs("bob");
    set_groups(&mut harness, "bob", &[ToolGroup::Memory]);
    let told = |harness: &Harness| {
        let welcome = welcome(&harness.team, &harness.runtime, &bob);
        welcome.unwrap().memory
    };
    assert!(told(&harness).unwrap().contains("> build with make"));
    set_groups(&mut harness, "bob", &[]);
    assert_eq!(told(&harness), None);
    assert!(harness.agent_asks(forget(&id)).is_err());
    assert_eq!(
        harness.ask(forget(&id)),
        Ok(Done::Answered { repeated: false })
    );
    assert_eq!(
        harness.ask(forget(&id)),
        Ok(Done::Answered { repeated: true })
    );
    assert_eq!(
        (harness.team.memory_text().as_str(), harness.status(&id)),
        ("", Status::Expired)
    );
}

#[test]
fn what_does_not_fit_is_refused_with_what_to_do() {
    let mut harness = Harness::new();
    harness.runs("alice");
    set_groups(&mut harness, "alice", &[ToolGroup::Memory]);
    let text = |number: usize| format!("{number}{}", "x".repeat(900));
    for number in 0..5 {
        let id = format!("aaaa000{number}");
        assert_eq!(propose(&mut harness, &id, &text(number)), asked(&id));
        let answer = harness.ask(verdict(&request_id(&id), true));
        assert_eq!(answer.is_ok(), number < 4, "{answer:?}");
        if number == 4 {
            let refused = answer.unwrap_err();
            assert!(
                refused.message.contains("and 4096 are possible"),
                "{refused:?}"
            );
            assert!(refused.hint.unwrap().contains("memory forget"));
        }
    }
    assert!(harness.team.memory_text().len() <= MAX_MEMORY);
    harness.ask(forget(&request_id("aaaa0000"))).unwrap();
    assert!(harness.ask(verdict(&request_id("aaaa0004"), true)).is_ok());
    let (_, why) = propose(&mut harness, "aaaa0010", &"x".repeat(1001)).unwrap_err();
    assert!(why.contains("1 to 1000 are possible"), "{why}");
    for number in 0..10 {
        propose(
            &mut harness,
            &format!("bbbb000{number}"),
            &format!("{number}"),
        )
        .unwrap();
    }
    let (_, why) = propose(&mut harness, "bbbb0010", "one more").unwrap_err();
    assert!(why.contains("wait for a person"), "{why}");
    let pending = harness.team.requests.values();
    let pending = pending.filter(|it| it.kind == Kind::Memory && it.is_pending());
    assert_eq!(pending.count(), 10);
    set_groups(&mut harness, "alice", &[]);
    let (_, why) = propose(&mut harness, "cccc0001", "x").unwrap_err();
    assert!(why.contains("remembers nothing"), "{why}");
    let by_person = harness.ask(Command::Remember {
        id: request_id("dddd0001"),
        text: "x".to_owned(),
    });
    assert!(by_person.is_err());
}
