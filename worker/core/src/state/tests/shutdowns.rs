//! A shutdown: who answers it, when, and what becomes of the calls.

use teamd_shared::message::IDLE;

use super::*;

#[test]
fn mail_that_came_before_a_shutdown_is_worked_on_and_the_model_asked_with_the_results() {
    let mut state = at(At::Idle);
    state.mail(Relevance::Work, NOW);
    state.directive(asks(2), NOW);
    assert_eq!(state.next(NOW), NextStep::TakeIn);
    state.takes_in(true, false);
    assert_eq!(state.next(NOW), NextStep::Think);
    state.thinking();
    state.answered(true);
    state.calling("bash".to_owned(), true, false);
    state.call_ended(false);
    assert_eq!(state.next(NOW), show());
    state.shown();
    assert_eq!(state.next(NOW), NextStep::Think);
    state.thinking();
    state.answered(false);
    assert_eq!(state.next(NOW), NextStep::Finish(IdleReason::Available));
    state.finished(IdleReason::Available, "");
    state.mail(Relevance::Work, NOW);
    assert_eq!(state.next(NOW), approve("the turn ended without an answer"));
}

#[test]
fn more_mail_than_one_look_finds_is_consumed_before_the_incarnation_ends() {
    let mut state = at(At::Idle);
    state.mail(Relevance::Work, NOW);
    state.directive(asks(2), NOW);
    state.takes_in(true, true);
    state.work.at = At::Idle;
    state.mail(Relevance::Work, NOW);
    assert_eq!(state.next(NOW), NextStep::TakeIn);
}

#[test]
fn behind_more_news_than_one_look_finds_there_may_be_mail_that_is_consumed_first() {
    for (rest, expected) in [(true, NextStep::TakeIn), (false, approve("idle"))] {
        let mut state = at(At::Idle);
        state.mail(Relevance::News, NOW);
        state.rest(rest);
        state.directive(asks(2), NOW);
        assert_eq!(state.next(NOW), NextStep::TakeIn);
        state.takes_in(false, rest);
        state.rest(false);
        state.mail(Relevance::Work, NOW);
        assert_eq!(state.next(NOW), expected);
    }
}

#[test]
fn calls_that_came_with_an_approval_still_run() {
    let mut state = at(At::Call);
    state.directive(asks(2), NOW);
    state.calling("answering".to_owned(), false, false);
    state.answering(id("s1"), true, AnsweredBy::Model);
    assert_eq!(state.directive(releases(3), NOW), Some(id("s1")));
    let NextStep::ResolveAnswer(answer) = state.next(NOW) else {
        panic!("{:?}", state.next(NOW))
    };
    assert_eq!(answer.outcome, Some(Ok(Status::Approved)));
    state.answer_told(NOW);
    state.call_ended(true);
    assert_eq!(state.next(NOW), NextStep::Call);
    state.calling("bash".to_owned(), true, false);
    assert_eq!(state.hold(NOW), Ok(None));
    state.call_ended(false);
    assert_eq!(state.next(NOW), NextStep::Leave(IncarnationEnd::Approved));
}

#[test]
fn what_the_runtime_approved_ends_the_answer() {
    let mut state = at(At::Call);
    state.directive(asks(2), NOW - WITHIN);
    state.answering(id("s1"), true, AnsweredBy::Runtime);
    assert_eq!(state.next(NOW), WAIT);
    state.directive(releases(3), NOW);
    assert_eq!(state.next(NOW), skip(Why::Released));
    state.skips();
    assert_eq!(state.next(NOW), NextStep::Leave(IncarnationEnd::Approved));
}

#[test]
fn an_answer_is_on_its_way_while_the_word_calls_the_shutdown_pending() {
    let mut state = at(At::Idle);
    state.directive(asks(2), NOW);
    state.answering(id("s1"), true, AnsweredBy::Runtime);
    assert_eq!(
        (state.directive(asks(3), NOW), state.next(NOW)),
        (None, WAIT)
    );
    assert_eq!(state.directive(releases(4), NOW), Some(id("s1")));
    assert_eq!(state.next(NOW), NextStep::Leave(IncarnationEnd::Approved));
}

#[test]
fn a_rejected_shutdown_is_over_although_an_older_word_still_tells_it() {
    let mut state = at(calling(false));
    state.directive(asks(2), NOW);
    state.answering(id("s1"), false, AnsweredBy::Model);
    state.directive(directive(3), NOW);
    let NextStep::ResolveAnswer(answer) = state.next(NOW) else {
        panic!("{:?}", state.next(NOW))
    };
    assert_eq!(answer.outcome, Some(Ok(Status::Rejected)));
    state.answer_told(NOW);
    state.call_ended(false);
    state.directive(asks(2), NOW);
    assert_eq!(state.pending_shutdown(), None);
    assert_eq!(state.next(NOW), NextStep::Think);
}

#[test]
fn a_refused_answer_is_given_again_a_little_later_while_the_word_calls_it_pending() {
    let mut state = at(At::Idle);
    state.directive(asks(2), NOW);
    state.answering(id("s1"), true, AnsweredBy::Runtime);
    state.refused(&id("s1"), ("no line stands there".to_owned(), false), NOW);
    let NextStep::Wait(Some(later)) = state.next(NOW) else {
        panic!("{:?}", state.next(NOW))
    };
    assert_eq!(state.next(later), approve("idle"));
    state.directive(directive(3), NOW);
    assert_eq!(state.next(later), WAIT);
}

#[test]
fn an_answer_that_could_not_be_written_is_tried_again_a_little_later() {
    let mut state = at(At::Idle);
    state.directive(asks(2), NOW);
    state.answer_failed(NOW);
    let NextStep::Wait(Some(later)) = state.next(NOW) else {
        panic!("{:?}", state.next(NOW))
    };
    assert_eq!(state.next(later), approve("idle"));
}

#[test]
fn the_time_to_decide_begins_with_the_first_word_that_tells_the_request() {
    let mut state = at(At::Thinking { results: true });
    state.directive(asks(2), NOW);
    state.directive(asks(5), NOW + WITHIN);
    assert_eq!(state.hold(NOW + WITHIN), Err(Why::Overdue));
    for (decide_within, over) in [
        (-1.0, true),
        (f64::NAN, true),
        (1e19, false),
        (f64::INFINITY, false),
        (1e300, false),
    ] {
        let shutdown = PendingShutdown {
            request_id: id("s2"),
            reason: String::new(),
            decide_within,
        };
        let mut state = at(At::Thinking { results: true });
        state.directive(
            Directive {
                shutdown: Some(shutdown),
                ..directive(2)
            },
            NOW,
        );
        let held = state.hold(NOW + WITHIN);
        assert_eq!(held == Err(Why::Overdue), over, "{decide_within}");
        if let Ok(Some(until)) = held {
            assert!(
                std::time::Instant::now().checked_add(until).is_some(),
                "a clock reaches {until:?}"
            );
        }
    }
}

#[test]
fn a_worker_with_news_without_a_pause_answers_when_the_time_is_over() {
    let mut state = at(At::Idle);
    state.mail(Relevance::News, NOW);
    state.directive(asks(2), NOW);
    assert_eq!(state.next(NOW), NextStep::TakeIn);
    for passed in [Duration::ZERO, WITHIN / 2] {
        state.takes_in(false, true);
        state.mail(Relevance::News, NOW + passed);
        assert_eq!(
            state.next(NOW + passed),
            NextStep::TakeIn,
            "after {passed:?}"
        );
    }
    assert_eq!(state.next(NOW + WITHIN), approve("idle"));
}

#[test]
fn one_that_is_asked_because_it_was_idle_says_no_when_something_has_come() {
    let asks_idle = || {
        let mut directive = asks(2);
        directive.shutdown.as_mut().unwrap().reason = IDLE.to_owned();
        directive
    };
    let refuses = NextStep::Refuse {
        request_id: id("s1"),
        reason: "not idle any more".to_owned(),
    };
    let mut state = at(At::Idle);
    state.directive(asks_idle(), NOW);
    assert_eq!(state.next(NOW), approve("idle"));
    state.mail(Relevance::Work, NOW);
    assert_eq!(state.next(NOW), refuses, "it came behind the question");
    let mut state = at(At::Idle);
    state.mail(Relevance::Work, NOW);
    state.directive(asks_idle(), NOW);
    assert_eq!(state.next(NOW), refuses, "it came before");
    let mut state = at(At::Turn { results: false });
    state.directive(asks_idle(), NOW);
    assert_eq!(state.next(NOW), refuses);
}
