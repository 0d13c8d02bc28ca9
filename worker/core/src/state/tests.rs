//! The table of the next steps. What is about one subject stands in the files beside this one.

mod limits;
mod plans;
mod schedules;
mod shutdowns;

use std::time::Duration;

use serde_json::json;
use teamd_shared::control::PlanVerdict;
use teamd_shared::machine::memory::MemoryKill;
use teamd_shared::member::Doing;
use teamd_shared::message::IdleReason;
use teamd_shared::name::Name;
use teamd_shared::transcript::{Block, Event, Usage};
use uuid::Uuid;

use super::*;
use crate::tools::Outcome;

const NOW: Duration = Duration::from_secs(100);
/// The decision time of the shutdowns here.
const WITHIN: Duration = Duration::from_secs(30);
const WAIT: NextStep = NextStep::Wait(None);

fn id(id: &str) -> RequestId {
    RequestId::new(id).unwrap()
}

fn directive(seq: u64) -> Directive {
    Directive {
        seq,
        gate: Gate::Open,
        shutdown: None,
        release: false,
        plan: None,
        verdict: None,
        permissions: Default::default(),
        settles: 0,
        checking: None,
    }
}

fn asks(seq: u64) -> Directive {
    let shutdown = PendingShutdown {
        request_id: id("s1"),
        reason: "tidy".to_owned(),
        decide_within: 30.0,
    };
    Directive {
        shutdown: Some(shutdown),
        ..directive(seq)
    }
}

fn releases(seq: u64) -> Directive {
    Directive {
        release: true,
        ..directive(seq)
    }
}

fn closes(seq: u64) -> Directive {
    Directive {
        gate: Gate::Closed,
        ..directive(seq)
    }
}

fn judges(seq: u64, status: Status) -> Directive {
    let verdict = PlanVerdict {
        request_id: id("p1"),
        status,
        feedback: "mind the cache".to_owned(),
    };
    Directive {
        verdict: Some(verdict),
        ..directive(seq)
    }
}

fn at(at: At) -> State {
    state_of(at, 1, 0, Relevance::None)
}

fn state_of(at: At, turns: u32, output_tokens: u64, mail: Relevance) -> State {
    let mut work = WorkProgress::new(Name::new("alice").unwrap());
    work.at = at;
    work.turns = turns;
    work.spent.own = Usage {
        output_tokens,
        ..Usage::default()
    };
    let limits = Budget {
        turns: 3,
        asks_itself: false,
        tokens: Some(1000),
        cost: None,
        total: Default::default(),
    };
    State::new(
        work,
        limits,
        Arrived {
            mail,
            ..Arrived::default()
        },
        directive(1),
        NOW,
    )
}

fn plan(request_id: &str) -> LeadQuestion {
    LeadQuestion {
        asks: Asks::Plan("drop it".to_owned()),
        message_id: Uuid::from_u128(1),
        request_id: id(request_id),
    }
}

fn call() -> Block {
    let id = "call-1".to_owned();
    let name = "bash".to_owned();
    let input = json!({});
    Block::ToolUse {
        id,
        name,
        input,
        message_id: None,
        request_id: None,
    }
}

/// What the session does with a state.
impl State {
    fn takes_in(&mut self, work: bool, rest: bool) {
        let messages = vec![json!({"type": "message", "from": "lead", "content": "do it"})];
        self.consumed(rest);
        if work {
            self.follow(&Event::Messages { messages });
        }
    }

    fn answered(&mut self, calls: bool) {
        let content = if calls { vec![call()] } else { Vec::new() };
        self.follow(&Event::Answer {
            content,
            usage: Usage::default(),
            cut: None,
            length: None,
            model_calls: 1,
        });
    }

    fn call_ended(&mut self, more: bool) {
        if more {
            let turns = self.work.turns;
            self.answered(true);
            self.work.turns = turns;
        }
        let tool_use_id = if more { "another" } else { "call-1" }.to_owned();
        self.follow(&Event::Result {
            tool_use_id,
            content: String::new(),
            is_error: false,
            images: Vec::new(),
            killed_for_memory: None,
        });
    }

    fn skips(&mut self) {
        self.drop_answer();
        self.call_ended(false);
    }

    fn shown(&mut self) {
        self.follow(&Event::Asked {
            request_id: id("s1"),
            reason: "tidy".to_owned(),
        });
    }

    fn count_usage(&mut self, usage: Usage) {
        self.follow(&Event::Charged {
            usage,
            model_calls: 0,
        });
    }

    fn finished(&mut self, idle_reason: IdleReason, told: &str) {
        let content = told.to_owned();
        let message_id = Uuid::from_u128(2);
        self.follow(&Event::Idle {
            idle_reason,
            content,
            message_id,
            goes_on: false,
        });
    }

    fn mail(&mut self, mail: Relevance, now: Duration) {
        self.arrived(
            Arrived {
                mail,
                ..self.arrived
            },
            now,
        );
    }

    fn rest(&mut self, rest: bool) {
        self.arrived.rest = rest;
    }

    fn spoken_to(&mut self, of_person: bool) {
        self.arrived.of_person = of_person;
    }

    fn told_of_a_gate_closed(&mut self, seq: u64) {
        let Closings { count, seq: before } = self.arrived.closings;
        let closings = Closings {
            count: count + 1,
            seq: seq.max(before),
        };
        self.arrived(
            Arrived {
                closings,
                ..self.arrived
            },
            NOW,
        );
    }
}

fn calling(gated: bool) -> At {
    At::Calling {
        activity: "bash: make".to_owned(),
        gated,
        is_mind: false,
    }
}

fn planning() -> State {
    let mut state = at(At::Call);
    state.submitting(plan("p1"));
    state
}

fn submitted() -> State {
    let mut state = planning();
    state.submitted();
    state.recorded(&id("p1"), Status::Pending);
    state
}

/// Every place where work can stand, without and with results.
fn places() -> Vec<State> {
    let mut places: Vec<State> = [
        At::Idle,
        At::Turn { results: false },
        At::Turn { results: true },
        At::Thinking { results: true },
        At::Call,
        calling(true),
        At::Done(IdleReason::Available),
    ]
    .map(at)
    .into();
    places.push(submitted());
    places
}

fn each(change: impl Fn(&mut State)) -> Vec<NextStep> {
    places()
        .into_iter()
        .map(|mut state| {
            change(&mut state);
            state.next(NOW)
        })
        .collect()
}

fn show() -> NextStep {
    NextStep::Show {
        request_id: id("s1"),
        reason: "tidy".to_owned(),
    }
}

fn approve(reason: &str) -> NextStep {
    NextStep::Approve {
        request_id: id("s1"),
        reason: reason.to_owned(),
    }
}

fn skip(why: Why) -> NextStep {
    NextStep::Skip(why)
}

/// Checks one row of the table: what is done next at each place, once something is known. The cells
/// are those of idle, before a model call without and with results, before a call, and at a plan.
/// What runs is not for this table, and work that has ended is told whatever else is known.
fn row(
    known: &str,
    change: impl Fn(&mut State),
    [idle, fresh, results, call, plan]: [NextStep; 5],
) {
    let done = NextStep::Finish(IdleReason::Available);
    let expected = [idle, fresh, results, WAIT, call, WAIT, done, plan];
    for ((step, expected), place) in each(change).iter().zip(&expected).zip(places()) {
        assert_eq!(step, expected, "{known}, at {:?}", place.work.at);
    }
}

#[test]
fn mail_is_consumed_before_the_model_is_asked() {
    row(
        "nothing",
        |_| {},
        [WAIT, NextStep::Think, NextStep::Think, NextStep::Call, WAIT],
    );
    for mail in [Relevance::News, Relevance::Work] {
        let cells = [
            NextStep::TakeIn,
            NextStep::TakeIn,
            NextStep::TakeIn,
            NextStep::Call,
            WAIT,
        ];
        row("mail", |state| state.mail(mail, NOW), cells);
    }
}

#[test]
fn a_shutdown_is_answered_where_there_is_no_work_and_shown_with_results() {
    let idle = || approve("idle");
    let suspended = || approve("waiting for a verdict on its plan");
    row(
        "a shutdown",
        |state| drop(state.directive(asks(2), NOW)),
        [idle(), NextStep::Think, show(), NextStep::Call, suspended()],
    );
    for mail in [Relevance::News, Relevance::Work] {
        let cells = [
            NextStep::TakeIn,
            NextStep::TakeIn,
            NextStep::TakeIn,
            NextStep::Call,
            suspended(),
        ];
        row(
            "a shutdown, mail before it",
            |state| {
                state.mail(mail, NOW);
                state.directive(asks(2), NOW);
            },
            cells,
        );
    }
    let cells = [
        idle(),
        NextStep::TakeIn,
        NextStep::TakeIn,
        NextStep::Call,
        suspended(),
    ];
    row(
        "a shutdown, mail behind it",
        |state| {
            state.directive(asks(2), NOW);
            state.mail(Relevance::Work, NOW);
        },
        cells,
    );
    let late = || approve("no answer within 30 s");
    row(
        "a shutdown whose time is over",
        |state| drop(state.directive(asks(2), NOW - WITHIN)),
        [idle(), late(), late(), late(), suspended()],
    );
}

#[test]
fn what_ends_the_turn_or_the_incarnation_gives_every_call_a_result_first() {
    let leave = || NextStep::Leave(IncarnationEnd::Approved);
    row(
        "let go",
        |state| {
            drop(state.directive(
                Directive {
                    release: true,
                    ..directive(2)
                },
                NOW,
            ))
        },
        [
            leave(),
            leave(),
            leave(),
            skip(Why::Released),
            skip(Why::Released),
        ],
    );
    let finish = || NextStep::Finish(IdleReason::Interrupted);
    let skipped = || skip(Why::Interrupted);
    row(
        "an interruption",
        State::interrupt,
        [WAIT, finish(), finish(), skipped(), skipped()],
    );
    let ends = || NextStep::Leave(IncarnationEnd::Terminated);
    let ended = || skip(Why::Ends(IncarnationEnd::Terminated));
    let expected = [
        ends(),
        ends(),
        ends(),
        ends(),
        ended(),
        ended(),
        NextStep::Finish(IdleReason::Available),
        ended(),
    ];
    assert_eq!(
        each(|state| state.end(IncarnationEnd::Terminated)),
        expected
    );
}

#[test]
fn while_its_work_is_checked_no_other_work_begins() {
    let mut state = at(At::Idle);
    state.directive(
        Directive {
            checking: Some(3),
            ..closes(2)
        },
        NOW,
    );
    state.mail(Relevance::Work, NOW);
    assert_eq!(state.next(NOW), WAIT);
    let mut asked = state.clone();
    asked.directive(
        Directive {
            checking: Some(3),
            gate: Gate::Closed,
            ..asks(3)
        },
        NOW,
    );
    assert_eq!(asked.next(NOW), NextStep::TakeIn, "a shutdown waits for it");
    state.directive(directive(3), NOW);
    assert_eq!(state.next(NOW), NextStep::TakeIn);
}

#[test]
fn while_an_answer_is_on_its_way_nothing_else_is_done() {
    let steps = each(|state| state.answering(id("s1"), true, AnsweredBy::Runtime));
    assert!(steps.iter().all(|step| *step == WAIT), "{steps:?}");
}

#[test]
fn a_model_call_is_dropped_for_what_cannot_wait_and_a_tool_call_only_by_the_lead_or_an_end() {
    let hold = |place: At, change: fn(&mut State)| {
        let mut state = at(place);
        change(&mut state);
        state.hold(NOW)
    };
    let thinking = || At::Thinking { results: false };
    let go = Ok(None);
    type Change = fn(&mut State);
    type Held = Result<Option<Duration>, Why>;
    let rows: [(Change, Held, Held); 8] = [
        (|_| {}, go.clone(), go.clone()),
        (
            |state| state.mail(Relevance::Work, NOW),
            go.clone(),
            go.clone(),
        ),
        (
            |state| drop(state.directive(asks(2), NOW)),
            Ok(Some(NOW + WITHIN)),
            go.clone(),
        ),
        (
            |state| drop(state.directive(asks(2), NOW - WITHIN)),
            Err(Why::Overdue),
            go.clone(),
        ),
        (
            |state| {
                drop(state.directive(
                    Directive {
                        release: true,
                        ..directive(2)
                    },
                    NOW,
                ))
            },
            Err(Why::Released),
            go,
        ),
        (
            State::interrupt,
            Err(Why::Interrupted),
            Err(Why::Interrupted),
        ),
        (
            |state| {
                drop(state.directive(
                    Directive {
                        checking: Some(3),
                        ..closes(2)
                    },
                    NOW,
                ))
            },
            Ok(None),
            Err(Why::Checked(3)),
        ),
        (
            |state| state.end(IncarnationEnd::Terminated),
            Err(Why::Ends(IncarnationEnd::Terminated)),
            Err(Why::Ends(IncarnationEnd::Terminated)),
        ),
    ];
    for (row, (change, model, tool)) in rows.into_iter().enumerate() {
        assert_eq!(hold(thinking(), change), model, "row {row}");
        assert_eq!(hold(calling(true), change), tool, "row {row}");
    }
}

#[test]
fn news_alone_start_no_turn() {
    let mut state = at(At::Idle);
    state.takes_in(false, false);
    assert_eq!(state.next(NOW), WAIT);
}

#[test]
fn a_dropped_model_call_leaves_no_trace() {
    for results in [false, true] {
        let mut state = at(At::Turn { results });
        state.thinking();
        state.dropped();
        assert_eq!(
            (&state.work.at, state.work.turns),
            (&At::Turn { results }, 1)
        );
    }
}

#[test]
fn a_pause_in_a_model_call_is_said_until_the_call_goes_on_or_is_over() {
    let mut state = at(At::Turn { results: true });
    let pause = Waiting {
        until: 5.0,
        why: "overloaded (529)".to_owned(),
    };
    let shown = |state: &State| {
        let report = state.report(false);
        (report.doing, report.activity, report.waiting)
    };
    let thinks = (Doing::Working, "thinking".to_owned(), None);
    state.thinking();
    state.pause(Some(pause.clone()));
    assert_eq!(
        shown(&state),
        (Doing::Working, "thinking".to_owned(), Some(pause.clone()))
    );
    state.pause(None);
    assert_eq!(shown(&state), thinks);
    state.pause(Some(pause));
    state.dropped();
    assert_eq!(shown(&state), thinks, "the call is over");
    state.thinking();
    assert_eq!(shown(&state), thinks, "and this is another one");
}

#[test]
fn the_first_reason_to_end_counts() {
    let mut state = at(At::Idle);
    state.end(IncarnationEnd::Terminated);
    state.end(IncarnationEnd::Unknown("late".to_owned()));
    assert_eq!(state.next(NOW), NextStep::Leave(IncarnationEnd::Terminated));
}

#[test]
fn the_worker_says_what_it_does_and_which_plan_it_waits_for() {
    let shown = |state: &State| {
        let report = state.report(false);
        (report.doing, report.activity, report.awaits)
    };
    assert_eq!(shown(&at(At::Idle)), (Doing::Idle, String::new(), None));
    assert_eq!(
        shown(&at(At::Call)),
        (Doing::Working, "thinking".to_owned(), None)
    );
    assert_eq!(
        shown(&at(calling(true))),
        (Doing::Working, "bash: make".to_owned(), None)
    );
    let plan = Some(id("p1"));
    assert_eq!(
        shown(&planning()),
        (
            Doing::Working,
            "asking for approval".to_owned(),
            plan.clone()
        )
    );
    assert_eq!(
        shown(&submitted()),
        (Doing::Idle, "waiting for approval".to_owned(), plan)
    );
}

#[test]
fn what_teammates_say_at_the_end_of_their_work_is_consumed_together() {
    let mut state = at(At::Idle);
    let settled = NOW + Duration::from_secs(2);
    state.mail(Relevance::Soon, NOW);
    assert_eq!(state.next(NOW), NextStep::Wait(Some(settled)));
    // More of it puts nothing off.
    state.mail(Relevance::Soon, NOW + Duration::from_secs(1));
    assert_eq!(
        state.next(NOW + Duration::from_secs(1)),
        NextStep::Wait(Some(settled))
    );
    assert_eq!(state.next(settled), NextStep::TakeIn);
    state.takes_in(true, false);
    assert_eq!(state.next(settled), NextStep::Think);
    // Once it is consumed, what comes next waits anew.
    let mut state = at(At::Idle);
    state.mail(Relevance::Soon, NOW);
    state.takes_in(false, false);
    state.mail(Relevance::Soon, settled);
    assert_eq!(
        state.next(settled),
        NextStep::Wait(Some(settled + Duration::from_secs(2)))
    );
    // What is work takes the others along; and a worker in a turn reads all with the next results.
    state.mail(Relevance::Work, settled);
    assert_eq!(state.next(settled), NextStep::TakeIn);
    let mut state = at(At::Turn { results: true });
    state.mail(Relevance::Soon, NOW);
    assert_eq!(state.next(NOW), NextStep::TakeIn);
    // No shutdown waits for it.
    let mut state = at(At::Idle);
    state.mail(Relevance::Soon, NOW);
    state.directive(asks(2), NOW);
    assert_eq!(state.next(NOW), approve("idle"));
}

#[test]
fn a_call_that_waits_for_a_person_yields_to_whatever_else_comes() {
    let hold = |change: fn(&mut State)| {
        let mut state = at(At::Asking);
        change(&mut state);
        (state.hold(NOW), state.next(NOW))
    };
    let go = Ok(None);
    assert_eq!(hold(|_| {}), (go.clone(), WAIT));
    assert_eq!(
        hold(|state| state.mail(Relevance::Work, NOW)),
        (go, WAIT),
        "a teammate waits for its turn"
    );
    for (change, why) in [
        (
            (|state| state.spoken_to(true)) as fn(&mut State),
            Why::SpokenTo,
        ),
        (|state| drop(state.directive(asks(2), NOW)), Why::Asked),
        (State::interrupt, Why::Interrupted),
        (
            |state| state.end(IncarnationEnd::Terminated),
            Why::Ends(IncarnationEnd::Terminated),
        ),
    ] {
        assert_eq!(hold(change).0, Err(why));
    }
    let mut state = at(At::Asking);
    state.call_ended(false);
    assert_eq!(state.next(NOW), NextStep::Think);
}

#[test]
fn a_model_that_cannot_be_reached_has_no_vote_to_wait_for() {
    let outage = Waiting {
        until: 5.0,
        why: "connection refused by 127.0.0.1:1".to_owned(),
    };
    let silent = Waiting {
        until: 5.0,
        why: Waiting::SILENT.to_owned(),
    };
    let asked = |pause: Option<Waiting>| {
        let mut state = at(At::Turn { results: true });
        state.thinking();
        state.pause(pause);
        drop(state.directive(asks(2), NOW));
        state
    };
    assert!(asked(None).hold(NOW).is_ok() && asked(Some(silent)).hold(NOW).is_ok());
    let mut state = asked(Some(outage.clone()));
    assert_eq!(state.hold(NOW), Err(Why::Overdue));
    state.dropped();
    let NextStep::Approve { reason, .. } = state.next(NOW) else {
        panic!("{:?}", state.next(NOW))
    };
    assert_eq!(
        reason,
        "no model could answer: connection refused by 127.0.0.1:1"
    );
    // A pause that begins after it was asked for is the same; one that is over is none.
    let mut state = asked(None);
    state.pause(Some(outage));
    assert_eq!(state.hold(NOW), Err(Why::Overdue));
    state.pause(None);
    assert!(state.hold(NOW).is_ok());
}

#[test]
fn a_summary_is_written_at_rest_or_before_the_model_is_asked_again_and_a_shutdown_goes_before() {
    let mut state = at(At::Idle);
    state.asks_to_compact(id("c1"));
    assert_eq!(state.next(NOW), NextStep::Compact);
    assert!(state.compacting().1);
    assert_eq!(state.hold(NOW), Ok(None));
    assert!(state.report(false).activity.contains("summary"));
    state.mail(Relevance::Work, NOW);
    assert_eq!(state.hold(NOW), Ok(None), "mail waits for it");
    state.directive(asks(2), NOW);
    assert_eq!(state.hold(NOW), Err(Why::Asked));
    assert_eq!(state.compacted(), [id("c1")]);
    let mut state = at(At::Call);
    state.asks_to_compact(id("c1"));
    state.asks_to_compact(id("c2"));
    assert_eq!(
        state.next(NOW),
        NextStep::Call,
        "the step that runs ends first"
    );
    state.work.at = At::Turn { results: true };
    assert_eq!(state.next(NOW), NextStep::Compact);
    assert!(!state.compacting().1);
    assert_eq!(state.compacted(), [id("c1"), id("c2")]);
    assert_eq!(state.next(NOW), NextStep::Think);
    assert_eq!(state.work.at, At::Turn { results: true });
}

#[test]
fn a_summary_in_work_comes_before_the_mail_and_ends_for_a_shutdown_or_an_interruption() {
    let in_work = || {
        let mut state = at(At::Turn { results: true });
        state.asks_to_compact(id("c1"));
        state.mail(Relevance::Work, NOW);
        assert_eq!(state.next(NOW), NextStep::Compact);
        assert!(!state.compacting().1);
        assert_eq!(state.hold(NOW), Ok(None));
        state
    };
    let mut asked = in_work();
    asked.directive(asks(2), NOW);
    assert_eq!(asked.hold(NOW), Err(Why::Asked));
    assert_eq!(asked.compacted(), [id("c1")]);
    assert_eq!(asked.next(NOW), NextStep::TakeIn);
    // One that is asked for meanwhile waits for the answer.
    asked.asks_to_compact(id("c2"));
    assert_eq!(asked.next(NOW), NextStep::TakeIn);
    let mut interrupted = in_work();
    interrupted.interrupt();
    assert_eq!(interrupted.hold(NOW), Err(Why::Interrupted));
    assert_eq!(interrupted.compacted(), [id("c1")]);
    assert_eq!(
        interrupted.next(NOW),
        NextStep::Finish(IdleReason::Interrupted)
    );
    let mut at_rest = at(At::Idle);
    at_rest.asks_to_compact(id("c1"));
    assert!(at_rest.compacting().1);
    at_rest.interrupt();
    assert_eq!(at_rest.hold(NOW), Err(Why::Interrupted));
    assert_eq!(at_rest.compacted(), [id("c1")]);
    at_rest.work.at = At::Turn { results: false };
    assert_eq!(
        at_rest.next(NOW),
        NextStep::Think,
        "the next work was not interrupted"
    );
}

/// A call that waits for memory has not begun: all that could end a call ends it at once.
#[test]
fn what_ends_a_wait_for_memory() {
    let held = |gated| {
        let mut state = at(At::Call);
        state.holding(2, gated);
        state
    };
    let state = held(true);
    assert_eq!(state.hold(NOW), Ok(None));
    assert_eq!(
        state.report(false).activity,
        "waits for memory, 2 before it"
    );
    assert_eq!(state.report(false).doing, Doing::Working);
    let directed = |gated, directive| {
        let mut state = held(gated);
        state.directive(directive, NOW);
        state
    };
    let closed = directed(true, closes(2));
    assert_eq!(closed.hold(NOW), Err(Why::Closed));
    // Nothing runs that an open gate let through.
    assert_eq!(closed.report(false).applied_seq, 2);
    assert_eq!(directed(false, closes(2)).hold(NOW), Ok(None));
    let checked = Directive {
        checking: Some(3),
        ..closes(2)
    };
    assert_eq!(directed(true, checked).hold(NOW), Err(Why::Checked(3)));
    let released = Directive {
        release: true,
        ..directive(2)
    };
    assert_eq!(directed(false, released).hold(NOW), Err(Why::Released));
    assert_eq!(directed(false, asks(2)).hold(NOW), Err(Why::Asked));
    let mut state = held(false);
    state.interrupt();
    assert_eq!(state.hold(NOW), Err(Why::Interrupted));
    state.end(IncarnationEnd::Terminated);
    assert_eq!(state.hold(NOW), Err(Why::Ends(IncarnationEnd::Terminated)));
}

#[test]
fn a_command_that_was_killed_for_memory_is_seen_until_the_next_one_ends() {
    let mut state = at(At::Call);
    let ends = |content: &str, killed_for_memory| {
        let outcome = Outcome {
            killed_for_memory,
            ..Outcome::error(content)
        };
        outcome.into_result("0".to_owned())
    };
    for kill in [MemoryKill::Certain, MemoryKill::Probable] {
        state.follow(&ends("[exit code 137]", Some(kill)));
        let activity = state.report(false).activity;
        assert!(activity.contains("killed for memory"), "{activity}");
    }
    // What it prints says nothing.
    state.follow(&ends("[exit code 1; killed for memory: no]", None));
    let activity = state.report(false).activity;
    assert!(!activity.contains("killed for memory"), "{activity}");
}

#[test]
fn what_a_model_calls_beside_or_behind_its_approval_is_not_refused_for_memory() {
    let mut state = at(At::Call);
    state.directive(asks(2), NOW);
    assert!(!state.may_wait_for_memory(), "it ends soon");
    let mut approved = at(At::Call);
    approved.directive(releases(2), NOW);
    approved.release.keeps_calls = true;
    approved.holding(0, true);
    assert_eq!(approved.hold(NOW), Ok(None));
    assert!(at(At::Call).may_wait_for_memory());
}
