use std::time::Duration;

use proptest::prelude::*;
use teamd_shared::control::PlanVerdict;
use teamd_shared::member::Doing;

use super::*;

const NOW: Duration = Duration::from_secs(100);
/// The decision time of the shutdowns here.
const WITHIN: Duration = Duration::from_secs(30);
const WAIT: Step = Step::Wait { until: None };

fn id(id: &str) -> RequestId {
    RequestId::new(id).unwrap()
}

fn word(seq: u64) -> Word {
    Word { seq, gate: Gate::Open, shutdown: None, let_go: false, plan: None, verdict: None }
}

fn asks(seq: u64) -> Word {
    let shutdown = ShutdownWord { request_id: id("s1"), reason: "tidy".to_owned(), decide_within: 30.0 };
    Word { shutdown: Some(shutdown), ..word(seq) }
}

fn closes(seq: u64) -> Word {
    Word { gate: Gate::Closed, ..word(seq) }
}

fn judges(seq: u64, status: Status) -> Word {
    let verdict = PlanVerdict { request_id: id("p1"), status, feedback: "mind the cache".to_owned() };
    Word { verdict: Some(verdict), ..word(seq) }
}

fn at(at: At) -> State {
    let limits = Budget { turns: 3, tokens: Some(1000) };
    let usage = Usage::default();
    State::new(Beginning { at, turns: 1, spent: 0, limits, usage, mail: Mail::None }, word(1), NOW)
}

fn calling(gated: bool) -> At {
    At::Calling { activity: "bash: make".to_owned(), gated }
}

fn planning() -> State {
    let mut state = at(At::Call);
    state.planning(id("p1"));
    state
}

fn submitted() -> State {
    let mut state = planning();
    state.named();
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

fn each(change: impl Fn(&mut State)) -> Vec<Step> {
    let step = |mut state: State| {
        change(&mut state);
        state.next(NOW)
    };
    places().into_iter().map(step).collect()
}

fn show() -> Step {
    Step::Show { request_id: id("s1"), reason: "tidy".to_owned() }
}

fn approve(because: Because) -> Step {
    Step::Approve { request_id: id("s1"), because }
}

fn skip(why: Why) -> Step {
    Step::Skip(why)
}

/// Checks one row of the table: what is done next at each place, once something is known. The cells are those of
/// idle, before a model call without and with results, before a call, and at a plan. What runs is not for this
/// table, and work that has ended is told whatever else is known.
fn row(known: &str, change: impl Fn(&mut State), [idle, fresh, results, call, plan]: [Step; 5]) {
    let done = Step::Finish(IdleReason::Available);
    let expected = [idle, fresh, results, WAIT, call, WAIT, done, plan];
    for ((step, expected), place) in each(change).iter().zip(&expected).zip(places()) {
        assert_eq!(step, expected, "{known}, at {:?}", place.at);
    }
}

#[test]
fn mail_is_taken_in_before_the_model_is_asked() {
    row("nothing", |_| {}, [WAIT, Step::Think, Step::Think, Step::Call, WAIT]);
    for mail in [Mail::News, Mail::Work] {
        let cells = [Step::TakeIn, Step::TakeIn, Step::TakeIn, Step::Call, WAIT];
        row("mail", |state| state.mail(mail, NOW), cells);
    }
}

#[test]
fn a_shutdown_is_answered_where_nobody_works_and_shown_with_results() {
    let (idle, suspended) = (|| approve(Because::Idle), || approve(Because::Suspended));
    let asked = |state: &mut State| state.word(asks(2), NOW);
    row("a shutdown", asked, [idle(), Step::Think, show(), Step::Call, suspended()]);
    for mail in [Mail::News, Mail::Work] {
        let before = |state: &mut State| {
            state.mail(mail, NOW);
            state.word(asks(2), NOW);
        };
        let cells = [Step::TakeIn, Step::TakeIn, Step::TakeIn, Step::Call, suspended()];
        row("a shutdown, mail before it", before, cells);
    }
    let behind = |state: &mut State| {
        state.word(asks(2), NOW);
        state.mail(Mail::Work, NOW);
    };
    let cells = [idle(), Step::TakeIn, Step::TakeIn, Step::Call, suspended()];
    row("a shutdown, mail behind it", behind, cells);
    let over = |state: &mut State| state.word(asks(2), NOW - WITHIN);
    let late = || approve(Because::Overdue(30.0));
    row("a shutdown whose time is over", over, [idle(), late(), late(), late(), suspended()]);
}

#[test]
fn what_ends_the_turn_or_the_life_gives_every_call_a_result_first() {
    let leave = || Step::Leave(End::Approved);
    let let_go = |state: &mut State| state.word(Word { let_go: true, ..word(2) }, NOW);
    row("let go", let_go, [leave(), leave(), leave(), skip(Why::LetGo), skip(Why::LetGo)]);
    let (finish, skipped) = (|| Step::Finish(IdleReason::Interrupted), || skip(Why::Interrupted));
    row("an interruption", State::interrupt, [WAIT, finish(), finish(), skipped(), skipped()]);
    let ends = || Step::Leave(End::Terminated);
    let ended = || skip(Why::Ends(End::Terminated));
    let expected =
        [ends(), ends(), ends(), ends(), ended(), ended(), Step::Finish(IdleReason::Available), ended()];
    assert_eq!(each(|state| state.end(End::Terminated)), expected);
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
    let go = Hold::Go { until: None };
    type Change = fn(&mut State);
    let rows: [(Change, Hold, Hold); 7] = [
        (|_| {}, go.clone(), go.clone()),
        (|state| state.mail(Mail::Work, NOW), go.clone(), go.clone()),
        (|state| state.word(asks(2), NOW), Hold::Go { until: Some(NOW + WITHIN) }, go.clone()),
        (|state| state.word(asks(2), NOW - WITHIN), Hold::Stop(Why::Overdue), go.clone()),
        (|state| state.word(Word { let_go: true, ..word(2) }, NOW), Hold::Stop(Why::LetGo), go),
        (State::interrupt, Hold::Stop(Why::Interrupted), Hold::Stop(Why::Interrupted)),
        (
            |state| state.end(End::Terminated),
            Hold::Stop(Why::Ends(End::Terminated)),
            Hold::Stop(Why::Ends(End::Terminated)),
        ),
    ];
    for (row, (change, model, tool)) in rows.into_iter().enumerate() {
        assert_eq!(hold(thinking(), change), model, "row {row}");
        assert_eq!(hold(calling(true), change), tool, "row {row}");
    }
}

#[test]
fn mail_that_came_before_a_shutdown_is_worked_on_and_the_model_asked_with_the_results() {
    let mut state = at(At::Idle);
    state.mail(Mail::Work, NOW);
    state.word(asks(2), NOW);
    assert_eq!(state.next(NOW), Step::TakeIn);
    state.taken_in(true, false);
    assert_eq!(state.next(NOW), Step::Think);
    state.thinking();
    state.answered(true);
    state.calling("bash".to_owned(), true);
    state.call_ended(false);
    assert_eq!(state.next(NOW), show());
    state.shown();
    assert_eq!(state.next(NOW), Step::Think);
    state.thinking();
    state.answered(false);
    assert_eq!(state.next(NOW), Step::Finish(IdleReason::Available));
    state.finished(IdleReason::Available, "");
    state.mail(Mail::Work, NOW);
    assert_eq!(state.next(NOW), approve(Because::TurnEnded));
}

#[test]
fn more_mail_than_one_look_finds_is_taken_in_before_the_life_ends() {
    let mut state = at(At::Idle);
    state.mail(Mail::Work, NOW);
    state.word(asks(2), NOW);
    state.taken_in(true, true);
    state.at = At::Idle;
    state.mail(Mail::Work, NOW);
    assert_eq!(state.next(NOW), Step::TakeIn);
}

#[test]
fn calls_that_came_with_an_approval_still_run() {
    let mut state = at(At::Call);
    state.word(asks(2), NOW);
    state.calling("answering".to_owned(), false);
    state.answering(id("s1"), true, AnsweredBy::Model);
    state.recorded(&id("s1"), Status::Approved);
    let Step::Settle(answer) = state.next(NOW) else { panic!("{:?}", state.next(NOW)) };
    assert_eq!(answer.outcome, Some(Outcome::Recorded(Status::Approved)));
    state.settled(NOW);
    state.call_ended(true);
    state.word(Word { let_go: true, ..word(3) }, NOW);
    assert_eq!(state.next(NOW), Step::Call);
    state.calling("bash".to_owned(), true);
    assert_eq!(state.hold(NOW), Hold::Go { until: None });
    state.call_ended(false);
    assert_eq!(state.next(NOW), Step::Leave(End::Approved));
}

#[test]
fn what_the_runtime_approved_ends_the_answer() {
    let mut state = at(At::Call);
    state.word(asks(2), NOW - WITHIN);
    state.answering(id("s1"), true, AnsweredBy::Runtime);
    state.recorded(&id("s1"), Status::Approved);
    state.settled(NOW);
    assert_eq!(state.next(NOW), skip(Why::LetGo));
    state.skipped();
    assert_eq!(state.next(NOW), Step::Leave(End::Approved));
}

#[test]
fn a_word_that_lets_go_settles_an_answer_whose_reply_was_lost() {
    let mut state = at(At::Idle);
    state.word(asks(2), NOW);
    state.answering(id("s1"), true, AnsweredBy::Runtime);
    state.word(Word { let_go: true, ..word(3) }, NOW);
    assert!(matches!(state.next(NOW), Step::Settle(_)));
    state.settled(NOW);
    assert_eq!(state.next(NOW), Step::Leave(End::Approved));
}

#[test]
fn a_rejected_shutdown_is_over_although_an_older_word_still_tells_it() {
    let mut state = at(calling(false));
    state.word(asks(2), NOW);
    state.answering(id("s1"), false, AnsweredBy::Model);
    state.recorded(&id("s1"), Status::Rejected);
    state.settled(NOW);
    state.call_ended(false);
    state.word(asks(2), NOW);
    assert_eq!(state.pending_shutdown(), None);
    assert_eq!(state.next(NOW), Step::Think);
}

#[test]
fn a_refused_answer_is_given_again_a_little_later_while_the_word_calls_it_pending() {
    let mut state = at(At::Idle);
    state.word(asks(2), NOW);
    state.answering(id("s1"), true, AnsweredBy::Runtime);
    state.refused(&id("s1"), "no line stands there".to_owned(), false);
    assert!(matches!(state.next(NOW), Step::Settle(_)));
    state.settled(NOW);
    let Step::Wait { until: Some(later) } = state.next(NOW) else { panic!("{:?}", state.next(NOW)) };
    assert_eq!(state.next(later), approve(Because::Idle));
    state.word(word(3), NOW);
    assert_eq!(state.next(later), WAIT);
}

#[test]
fn an_answer_that_could_not_be_written_is_tried_again_a_little_later() {
    let mut state = at(At::Idle);
    state.word(asks(2), NOW);
    state.answer_failed(NOW);
    let Step::Wait { until: Some(later) } = state.next(NOW) else { panic!("{:?}", state.next(NOW)) };
    assert_eq!(state.next(later), approve(Because::Idle));
}

#[test]
fn the_time_to_decide_begins_with_the_first_word_that_tells_the_request() {
    let mut state = at(At::Thinking { results: true });
    state.word(asks(2), NOW);
    state.word(asks(5), NOW + WITHIN);
    assert_eq!(state.hold(NOW + WITHIN), Hold::Stop(Why::Overdue));
    for (decide_within, over) in [(-1.0, true), (f64::NAN, true), (f64::INFINITY, false), (1e300, false)] {
        let shutdown = ShutdownWord { request_id: id("s2"), reason: String::new(), decide_within };
        let mut state = at(At::Thinking { results: true });
        state.word(Word { shutdown: Some(shutdown), ..word(2) }, NOW);
        assert_eq!(state.hold(NOW + WITHIN) == Hold::Stop(Why::Overdue), over, "{decide_within}");
    }
}

#[test]
fn only_a_higher_word_counts() {
    let mut state = at(At::Idle);
    state.word(closes(7), NOW);
    state.word(word(6), NOW);
    assert_eq!(state.gate(), Gate::Closed);
    state.word(word(8), NOW);
    assert_eq!(state.gate(), Gate::Open);
}

#[test]
fn a_closing_word_is_acted_on_when_nothing_runs_any_more_that_an_open_gate_let_through() {
    let mut state = at(calling(true));
    state.background(true);
    state.word(closes(2), NOW);
    assert!(state.must_end_background());
    assert_eq!(state.report(false).acted_on, 1);
    state.background(false);
    assert_eq!(state.report(false).acted_on, 1);
    state.call_ended(true);
    assert_eq!(state.report(false).acted_on, 2);
    let mut reading = at(calling(false));
    reading.word(closes(2), NOW);
    assert_eq!(reading.report(false).acted_on, 2);
    let mut open = at(calling(true));
    open.word(word(2), NOW);
    assert_eq!(open.report(false).acted_on, 2);
}

#[test]
fn a_plan_closes_the_gate_and_is_named_when_no_background_command_runs() {
    let mut state = at(At::Call);
    state.background(true);
    assert!(!state.must_end_background());
    state.planning(id("p1"));
    assert_eq!((state.gate(), state.next(NOW)), (Gate::Closed, WAIT));
    assert!(state.must_end_background());
    state.background(false);
    assert_eq!(state.next(NOW), Step::NamePlan);
    state.named();
    state.word(word(2), NOW);
    assert_eq!((state.gate(), state.next(NOW)), (Gate::Closed, WAIT));
}

#[test]
fn a_plan_is_resolved_by_the_word_and_by_what_is_recorded_of_it() {
    let decided =
        |status, feedback: &str| Step::Resolve(Verdict::Decided { status, feedback: feedback.to_owned() });
    for status in [Status::Approved, Status::Rejected, Status::Expired] {
        let mut state = submitted();
        state.word(judges(2, status), NOW);
        assert_eq!(state.next(NOW), decided(status, "mind the cache"));
        let mut repeated = planning();
        repeated.named();
        repeated.recorded(&id("p1"), status);
        assert_eq!(repeated.next(NOW), decided(status, ""));
    }
    let mut other = submitted();
    other.recorded(&id("p0"), Status::Approved);
    assert_eq!(other.next(NOW), WAIT);
}

#[test]
fn a_plan_whose_id_is_taken_gets_another_and_one_that_is_refused_ends() {
    let mut state = planning();
    state.named();
    state.refused(&id("p1"), "taken".to_owned(), true);
    assert_eq!(state.next(NOW), Step::RenamePlan);
    state.planning(id("p2"));
    // Its line was lost: it is written again, but not for ever.
    for _ in 0..=REWRITES {
        assert_eq!(state.next(NOW), Step::NamePlan);
        state.named();
        state.refused(&id("p2"), "no such line".to_owned(), false);
    }
    assert_eq!(state.next(NOW), Step::Resolve(Verdict::Refused("no such line".to_owned())));
}

#[test]
fn an_approved_plan_opens_the_gate_only_with_the_word() {
    let mut state = submitted();
    state.word(Word { gate: Gate::Closed, ..judges(2, Status::Approved) }, NOW);
    state.call_ended(true);
    assert_eq!(state.gate(), Gate::Closed);
    state.word(judges(3, Status::Approved), NOW);
    assert_eq!(state.gate(), Gate::Open);
}

#[test]
fn a_piece_of_work_has_a_limit_of_turns_and_the_next_one_its_own() {
    let mut state = at(At::Turn { results: false });
    for _ in 0..2 {
        state.thinking();
        state.answered(true);
        state.call_ended(false);
    }
    assert_eq!(state.next(NOW), Step::Finish(IdleReason::MaxTurns));
    state.finished(IdleReason::MaxTurns, "");
    state.taken_in(true, false);
    assert_eq!(state.next(NOW), Step::Think);
}

#[test]
fn a_piece_of_work_has_a_limit_of_tokens_and_what_came_from_a_cache_does_not_count() {
    let spend = |state: &mut State, input_tokens, cache_read_input_tokens| {
        state.thinking();
        let usage = Usage { input_tokens, output_tokens: 9, cache_read_input_tokens, ..Usage::default() };
        state.paid(usage);
        state.answered(true);
        state.call_ended(false);
    };
    let mut state = at(At::Turn { results: false });
    spend(&mut state, 900, 1_000_000);
    assert_eq!(state.next(NOW), Step::Think);
    spend(&mut state, 82, 0);
    assert_eq!(state.next(NOW), Step::Finish(IdleReason::MaxTurns), "the limit of turns goes before");
    state.limits.turns = 50;
    assert_eq!(state.next(NOW), Step::Finish(IdleReason::MaxTokens));
    state.finished(IdleReason::MaxTokens, "");
    state.taken_in(true, false);
    assert_eq!(state.next(NOW), Step::Think, "the next piece of work has as much again");
    assert_eq!(state.report(false).usage.cache_read_input_tokens, 1_000_000, "all that was spent is said");
    state.limits.tokens = None;
    spend(&mut state, u64::MAX, 0);
    assert_eq!(state.next(NOW), Step::Think);
}

#[test]
fn why_work_came_to_nothing_is_said_until_other_work_begins() {
    let mut state = at(At::Turn { results: false });
    let activity = |state: &State| state.report(false).activity;
    state.failed();
    let Step::Finish(reason) = state.next(NOW) else { panic!() };
    state.finished(reason, "\nthe key was refused (401) (hint: take\nanother one)");
    assert_eq!(activity(&state), "failed: the key was refused (401)");
    state.taken_in(false, false);
    assert_eq!(activity(&state), "failed: the key was refused (401)", "news are no work");
    state.taken_in(true, false);
    assert_eq!(activity(&state), "thinking");
    for (reason, said) in [
        (IdleReason::MaxTokens, "stopped: token limit"),
        (IdleReason::MaxTurns, "stopped: turn limit"),
        (IdleReason::Interrupted, "interrupted"),
        (IdleReason::Available, ""),
    ] {
        state.finished(reason, "all is well");
        assert_eq!(activity(&state), said);
    }
    state.finished(IdleReason::Failed, &"x".repeat(10_000));
    assert!(activity(&state).len() < 200);
}

#[test]
fn an_end_by_a_limit_names_it_and_how_to_raise_it() {
    let budget = Budget { turns: 3, tokens: Some(1000) };
    let told = budget.told(IdleReason::MaxTurns).unwrap();
    assert!(told.starts_with("stopped at the limit of 3 model calls") && told.contains("`--max-turns`"));
    let told = budget.told(IdleReason::MaxTokens).unwrap();
    assert!(told.contains("1000 tokens") && told.contains("`max_tokens` in team.toml"), "{told}");
    assert_eq!(budget.told(IdleReason::Available), None);
}

#[test]
fn news_alone_start_no_turn() {
    let mut state = at(At::Idle);
    state.taken_in(false, false);
    assert_eq!(state.next(NOW), WAIT);
}

#[test]
fn a_dropped_model_call_leaves_no_trace() {
    for results in [false, true] {
        let mut state = at(At::Turn { results });
        state.thinking();
        state.dropped();
        assert_eq!((&state.at, state.turns), (&At::Turn { results }, 1));
    }
}

#[test]
fn a_pause_in_a_model_call_is_said_until_the_call_goes_on_or_is_over() {
    let mut state = at(At::Turn { results: true });
    let pause = Waiting { until: 5.0, why: "overloaded (529)".to_owned() };
    let said = |state: &State| {
        let report = state.report(false);
        (report.doing, report.activity, report.waiting)
    };
    let thinks = (Doing::Working, "thinking".to_owned(), None);
    state.thinking();
    state.pause(Some(pause.clone()));
    assert_eq!(said(&state), (Doing::Working, "thinking".to_owned(), Some(pause.clone())));
    state.pause(None);
    assert_eq!(said(&state), thinks);
    state.pause(Some(pause));
    state.dropped();
    assert_eq!(said(&state), thinks, "the call is over");
    state.thinking();
    assert_eq!(said(&state), thinks, "and this is another one");
}

#[test]
fn the_first_reason_to_end_counts() {
    let mut state = at(At::Idle);
    state.end(End::Terminated);
    state.end(End::Unknown("late".to_owned()));
    assert_eq!(state.next(NOW), Step::Leave(End::Terminated));
}

#[test]
fn the_worker_says_what_it_does_and_which_plan_it_waits_for() {
    let said = |state: &State| {
        let report = state.report(false);
        (report.doing, report.activity, report.plan)
    };
    assert_eq!(said(&at(At::Idle)), (Doing::Idle, String::new(), None));
    assert_eq!(said(&at(At::Call)), (Doing::Working, "thinking".to_owned(), None));
    assert_eq!(said(&at(calling(true))), (Doing::Working, "bash: make".to_owned(), None));
    let plan = Some(id("p1"));
    assert_eq!(said(&planning()), (Doing::Working, "submitting a plan".to_owned(), plan.clone()));
    assert_eq!(said(&submitted()), (Doing::Idle, "waiting for approval".to_owned(), plan));
}

/// What the outside does in a random schedule.
#[derive(Debug, Clone)]
enum Move {
    Word(Word),
    Mail(Mail),
    Reply(Status),
    Refuse(bool),
    Interrupt,
    Later(u64),
    ActivityEnds,
    Term,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let status = prop_oneof![
        Just(Status::Pending),
        Just(Status::Approved),
        Just(Status::Rejected),
        Just(Status::Expired)
    ];
    let word = (0_u64..20, any::<(bool, bool, bool)>(), status.clone()).prop_map(
        |(seq, (open, asked, go), status)| {
            let word = if asked { asks(seq) } else { judges(seq, status) };
            let gate = if open { Gate::Open } else { Gate::Closed };
            Move::Word(Word { gate, let_go: go && seq > 15, ..word })
        },
    );
    let one = prop_oneof![
        4 => word,
        2 => prop_oneof![Just(Mail::News), Just(Mail::Work)].prop_map(Move::Mail),
        2 => status.prop_map(Move::Reply),
        1 => any::<bool>().prop_map(Move::Refuse),
        1 => Just(Move::Interrupt),
        2 => (1_u64..40).prop_map(Move::Later),
        6 => Just(Move::ActivityEnds),
        1 => Just(Move::Term),
    ];
    prop::collection::vec(one, 0..60)
}

/// Plays the session: performs steps until the state waits. Returns whether the life has ended.
fn perform(
    state: &mut State,
    now: Duration,
    open: &mut usize,
    may_leave: bool,
) -> Result<bool, TestCaseError> {
    for _ in 0..200 {
        match state.next(now) {
            Step::Wait { until } => {
                prop_assert!(until.is_none_or(|until| until > now), "a wait that is over");
                return Ok(false);
            }
            Step::TakeIn => state.taken_in(state.mail == Mail::Work, false),
            Step::Show { .. } => state.shown(),
            Step::Think => {
                prop_assert_eq!(*open, 0, "a model call although calls have no result");
                state.thinking();
            }
            Step::Call => {
                prop_assert!(*open > 0);
                let gated = state.gate() == Gate::Open;
                if *open == 2 { state.planning(id("p1")) } else { state.calling("bash".to_owned(), gated) }
            }
            Step::Skip(_) => {
                *open = 0;
                state.skipped();
            }
            Step::NamePlan => state.named(),
            Step::RenamePlan => state.planning(id("p2")),
            Step::Resolve(_) => {
                *open -= 1;
                state.call_ended(*open > 0);
            }
            Step::Approve { request_id, .. } => {
                prop_assert_eq!(state.pending_shutdown(), Some(&request_id));
                state.answering(request_id, true, AnsweredBy::Runtime);
            }
            Step::Settle(_) => state.settled(NOW),
            Step::Finish(reason) => {
                prop_assert_eq!(*open, 0, "work ends although calls have no result");
                state.finished(reason, "");
            }
            Step::Leave(end) => {
                prop_assert_eq!(*open, 0, "a life ends although calls have no result");
                prop_assert!(may_leave || end == End::Terminated, "nobody recorded an approval");
                return Ok(true);
            }
        }
    }
    Err(TestCaseError::fail("the state never waits"))
}

proptest! {
    #[test]
    fn whatever_happens_every_call_gets_a_result_and_nobody_leaves_unasked(moves in moves()) {
        let mut state = at(At::Idle);
        let (mut now, mut open, mut may_leave) = (NOW, 0, false);
        for (turn, one) in moves.into_iter().enumerate() {
            if perform(&mut state, now, &mut open, may_leave)? {
                return Ok(());
            }
            match one {
                Move::Word(word) => {
                    may_leave |= word.let_go && word.seq >= state.word.seq;
                    state.word(word, now);
                }
                Move::Mail(mail) => state.mail(mail, NOW),
                Move::Reply(status) => {
                    may_leave |= status == Status::Approved && state.answer.is_some();
                    ["s1", "p1", "p2"].into_iter().for_each(|it| state.recorded(&id(it), status));
                }
                Move::Refuse(taken) => {
                    state.refused(&id("s1"), String::new(), false);
                    ["p1", "p2"].into_iter().for_each(|it| state.refused(&id(it), String::new(), taken));
                }
                Move::Interrupt => state.interrupt(),
                Move::Later(seconds) => now += Duration::from_secs(seconds),
                Move::ActivityEnds => match state.at {
                    At::Thinking { .. } if matches!(state.hold(now), Hold::Stop(_)) => state.dropped(),
                    At::Thinking { .. } => {
                        open = turn % 4;
                        state.answered(open > 0);
                    }
                    At::Calling { .. } if state.answer.is_none() => {
                        open -= 1;
                        state.call_ended(open > 0);
                    }
                    _ => {}
                },
                Move::Term => state.end(End::Terminated),
            }
        }
    }
}

#[test]
fn what_teammates_say_at_the_end_of_their_work_is_taken_in_together() {
    let mut state = at(At::Idle);
    let settled = NOW + Duration::from_secs(2);
    state.mail(Mail::Soon, NOW);
    assert_eq!(state.next(NOW), Step::Wait { until: Some(settled) });
    // More of it puts nothing off.
    state.mail(Mail::Soon, NOW + Duration::from_secs(1));
    assert_eq!(state.next(NOW + Duration::from_secs(1)), Step::Wait { until: Some(settled) });
    assert_eq!(state.next(settled), Step::TakeIn);
    state.taken_in(true, false);
    assert_eq!(state.next(settled), Step::Think);
    // Once it is taken in, what comes next waits anew.
    let mut state = at(At::Idle);
    state.mail(Mail::Soon, NOW);
    state.taken_in(false, false);
    state.mail(Mail::Soon, settled);
    assert_eq!(state.next(settled), Step::Wait { until: Some(settled + Duration::from_secs(2)) });
    // What is work takes the others along; and whoever works reads all with the next results.
    state.mail(Mail::Work, settled);
    assert_eq!(state.next(settled), Step::TakeIn);
    let mut state = at(At::Turn { results: true });
    state.mail(Mail::Soon, NOW);
    assert_eq!(state.next(NOW), Step::TakeIn);
    // Nobody's leaving waits for it.
    let mut state = at(At::Idle);
    state.mail(Mail::Soon, NOW);
    state.word(asks(2), NOW);
    assert_eq!(state.next(NOW), approve(Because::Idle));
}

#[test]
fn a_call_that_waits_for_a_person_yields_to_whatever_else_comes() {
    let hold = |change: fn(&mut State)| {
        let mut state = at(At::Asking);
        change(&mut state);
        (state.hold(NOW), state.next(NOW))
    };
    let go = Hold::Go { until: None };
    assert_eq!(hold(|_| {}), (go.clone(), WAIT));
    assert_eq!(hold(|state| state.mail(Mail::Work, NOW)), (go, WAIT), "a teammate waits for its turn");
    for (change, why) in [
        ((|state| state.spoken_to(true)) as fn(&mut State), Why::SpokenTo),
        (|state| state.word(asks(2), NOW), Why::Asked),
        (State::interrupt, Why::Interrupted),
        (|state| state.end(End::Terminated), Why::Ends(End::Terminated)),
    ] {
        assert_eq!(hold(change).0, Hold::Stop(why));
    }
    let mut state = at(At::Asking);
    state.call_ended(false);
    assert_eq!(state.next(NOW), Step::Think);
}

#[test]
fn what_arrives_when_a_limit_is_reached_begins_the_next_piece_of_work() {
    for (turns, spent) in [(3, 0), (1, 1000)] {
        let limits = Budget { turns: 3, tokens: Some(1000) };
        let (at, usage) = (At::Turn { results: true }, Usage::default());
        let beginning = Beginning { at, turns, spent, limits, usage, mail: Mail::Work };
        let mut state = State::new(beginning, word(1), NOW);
        assert!(matches!(state.next(NOW), Step::Finish(_)), "{turns} {spent}");
        state.finished(IdleReason::MaxTurns, "told");
        assert_eq!(state.next(NOW), Step::TakeIn);
        state.taken_in(true, false);
        assert_eq!(state.next(NOW), Step::Think);
    }
}
