//! Plans and the gate.

use super::*;

#[test]
fn only_a_higher_word_counts() {
    let mut state = at(At::Idle);
    state.directive(closes(7), NOW);
    state.directive(directive(6), NOW);
    assert_eq!(state.gate(), Gate::Closed);
    state.directive(directive(8), NOW);
    assert_eq!(state.gate(), Gate::Open);
}

#[test]
fn a_closing_directive_is_applied_when_nothing_runs_any_more_that_an_open_gate_let_through() {
    let mut state = at(calling(true));
    state.background(true);
    state.directive(closes(2), NOW);
    assert!(state.must_end_background());
    assert_eq!(state.report(false).applied_seq, 1);
    state.background(false);
    assert_eq!(state.report(false).applied_seq, 1);
    state.call_ended(true);
    assert_eq!(state.report(false).applied_seq, 2);
    let mut reading = at(calling(false));
    reading.directive(closes(2), NOW);
    assert_eq!(reading.report(false).applied_seq, 2);
    let mut open = at(calling(true));
    open.directive(directive(2), NOW);
    assert_eq!(open.report(false).applied_seq, 2);
}

#[test]
fn a_plan_closes_the_gate_and_is_named_when_no_background_command_runs() {
    let mut state = at(At::Call);
    state.background(true);
    assert!(!state.must_end_background());
    state.submitting(plan("p1"));
    assert_eq!((state.gate(), state.next(NOW)), (Gate::Closed, WAIT));
    assert!(state.must_end_background());
    state.background(false);
    assert_eq!(state.next(NOW), NextStep::Submit);
    state.submitted();
    state.directive(directive(2), NOW);
    assert_eq!((state.gate(), state.next(NOW)), (Gate::Closed, WAIT));
}

#[test]
fn a_plan_is_resolved_by_the_word_and_by_what_is_recorded_of_it() {
    let decided = |status, feedback: &str| NextStep::Resolve(Ok((status, feedback.to_owned())));
    for status in [Status::Approved, Status::Rejected, Status::Expired] {
        let mut state = submitted();
        state.directive(judges(2, status), NOW);
        assert_eq!(state.next(NOW), decided(status, "mind the cache"));
        let mut repeated = planning();
        repeated.submitted();
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
    state.submitted();
    state.refused(&id("p1"), ("taken".to_owned(), true), NOW);
    assert_eq!(state.next(NOW), NextStep::Renumber);
    state.submitting(plan("p2"));
    // Its line was lost: it is written again, but not for ever.
    for _ in 0..=REWRITES {
        assert_eq!(state.next(NOW), NextStep::Submit);
        state.submitted();
        state.refused(&id("p2"), ("no such line".to_owned(), false), NOW);
    }
    assert_eq!(
        state.next(NOW),
        NextStep::Resolve(Err("no such line".to_owned()))
    );
}

/// The incarnation before submitted the same plan under its next id, which is approved; the daemon
/// answers for the id that is submitted.
#[test]
fn a_plan_that_expired_with_an_earlier_incarnation_is_renumbered_although_it_is_submitted_already()
{
    let submitted = || {
        let mut state = planning();
        state.submitted();
        state
    };
    let taken = || {
        let mut state = submitted();
        state.refused(&id("p1"), ("taken".to_owned(), true), NOW);
        state
    };
    for (mut state, told) in [
        (planning(), "nothing"),
        (submitted(), "submitted"),
        (taken(), "taken"),
    ] {
        state.directive(judges(2, Status::Expired), NOW);
        assert_eq!(state.next(NOW), NextStep::Renumber, "{told}");
        state.submitting(plan("p2"));
        assert_eq!(state.next(NOW), NextStep::Submit);
    }
}

#[test]
fn an_approved_plan_opens_the_gate_only_with_the_word() {
    let mut state = submitted();
    state.directive(
        Directive {
            gate: Gate::Closed,
            ..judges(2, Status::Approved)
        },
        NOW,
    );
    state.call_ended(true);
    assert_eq!(state.gate(), Gate::Closed);
    state.directive(judges(3, Status::Approved), NOW);
    assert_eq!(state.gate(), Gate::Open);
}

/// Crash window P4: the daemon died between its decision and its directive; the line was there
/// before.
#[test]
fn a_message_that_closes_the_gate_holds_until_the_directive_of_its_line() {
    let mut state = at(At::Idle);
    state.told_of_a_gate_closed(2);
    assert_eq!(state.gate(), Gate::Closed);
    state.directive(directive(1), NOW);
    assert_eq!(state.gate(), Gate::Closed, "that one was decided before");
    state.directive(directive(2), NOW);
    assert_eq!((state.gate(), state.report(false).doubts), (Gate::Open, 0));
}

/// Each process of the user can write such a line: the daemon, who alone knows its journal, is
/// asked.
#[test]
fn a_forged_message_about_the_gate_counts_until_the_daemon_has_answered() {
    let mut state = at(At::Idle);
    let settles = |seq, settles| Directive {
        settles,
        ..directive(seq)
    };
    for (seq, doubts) in [(u64::MAX, 1), (3, 2)] {
        state.told_of_a_gate_closed(seq);
        assert_eq!(
            (state.gate(), state.report(false).doubts),
            (Gate::Closed, doubts)
        );
        state.directive(settles(1, doubts - 1), NOW);
        assert_eq!(state.gate(), Gate::Closed, "the daemon had not heard of it");
        state.directive(settles(1, doubts), NOW);
        state.directive(settles(1, 0), NOW);
        assert_eq!((state.gate(), state.report(false).doubts), (Gate::Open, 0));
    }
}
