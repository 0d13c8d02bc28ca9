//! Any schedule: whatever happens in whatever order.

use proptest::prelude::*;

use super::*;

/// What the outside does in a random schedule.
#[derive(Debug, Clone)]
enum Move {
    Directive(Directive),
    Mail(Relevance),
    Reply(Status),
    Refuse(bool),
    Interrupt,
    Compact,
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
    let directive = (0_u64..20, any::<(bool, bool, bool)>(), status.clone()).prop_map(
        |(seq, (open, asked, go), status)| {
            let directive = if asked {
                asks(seq)
            } else {
                judges(seq, status)
            };
            let gate = if open { Gate::Open } else { Gate::Closed };
            Move::Directive(Directive {
                gate,
                release: go && seq > 15,
                ..directive
            })
        },
    );
    let one = prop_oneof![
        4 => directive,
        2 => prop_oneof![Just(Relevance::News), Just(Relevance::Work)].prop_map(Move::Mail),
        2 => status.prop_map(Move::Reply),
        1 => any::<bool>().prop_map(Move::Refuse),
        1 => Just(Move::Interrupt),
        1 => Just(Move::Compact),
        2 => (1_u64..40).prop_map(Move::Later),
        6 => Just(Move::ActivityEnds),
        1 => Just(Move::Term),
    ];
    prop::collection::vec(one, 0..60)
}

/// Plays the session: performs steps until the state waits. Returns whether the incarnation has
/// ended.
fn perform(
    state: &mut State,
    now: Duration,
    open: &mut usize,
    may_leave: bool,
) -> Result<bool, TestCaseError> {
    for _ in 0..200 {
        match state.next(now) {
            NextStep::Wait(until) => {
                prop_assert!(until.is_none_or(|until| until > now), "a wait that is over");
                return Ok(false);
            }
            NextStep::TakeIn => state.takes_in(state.arrived.mail == Relevance::Work, false),
            NextStep::Show { .. } => state.shown(),
            NextStep::Think => {
                prop_assert_eq!(*open, 0, "a model call although calls have no result");
                state.thinking();
            }
            NextStep::Compact => {
                prop_assert_eq!(*open, 0, "a summary although calls have no result");
                let (_, at_rest) = state.compacting();
                // At rest it ends at once here, in work with the next activity.
                if at_rest {
                    prop_assert!(!state.compacted().is_empty());
                }
            }
            NextStep::Call => {
                prop_assert!(*open > 0);
                let gated = state.gate() == Gate::Open;
                if *open == 2 {
                    state.submitting(plan("p1"))
                } else {
                    state.calling("bash".to_owned(), gated, false)
                }
            }
            NextStep::Skip(_) => {
                *open = 0;
                state.skips();
            }
            NextStep::Submit => state.submitted(),
            NextStep::Renumber => state.submitting(plan("p2")),
            NextStep::Resolve(_) => {
                *open -= 1;
                state.call_ended(*open > 0);
            }
            NextStep::Refuse { .. } => prop_assert!(false, "no shutdown here asks idle workers"),
            NextStep::Approve { request_id, .. } => {
                prop_assert_eq!(state.pending_shutdown(), Some(&request_id));
                state.answering(request_id, true, AnsweredBy::Runtime);
            }
            NextStep::ResolveAnswer(_) => state.answer_told(NOW),
            NextStep::Finish(reason) => {
                prop_assert_eq!(*open, 0, "work ends although calls have no result");
                state.finished(reason, "");
            }
            NextStep::Leave(end) => {
                prop_assert_eq!(
                    *open,
                    0,
                    "an incarnation ends although calls have no result"
                );
                prop_assert!(
                    may_leave || end == IncarnationEnd::Terminated,
                    "no approval is recorded"
                );
                return Ok(true);
            }
        }
    }
    Err(TestCaseError::fail("the state never waits"))
}

proptest! {
    #[test]
    fn whatever_happens_every_call_gets_a_result_and_no_worker_leaves_unasked(moves in moves()) {
        let mut state = at(At::Idle);
        let (mut now, mut open, mut may_leave) = (NOW, 0, false);
        for (turn, one) in moves.into_iter().enumerate() {
            if perform(&mut state, now, &mut open, may_leave)? {
                return Ok(());
            }
            match one {
                Move::Directive(directive) => {
                    may_leave |= directive.release && directive.seq >= state.directed.directive.seq;
                    state.directive(directive, now);
                }
                Move::Mail(mail) => state.mail(mail, NOW),
                Move::Reply(status) => {
                    ["p1", "p2"].into_iter().for_each(|it| state.recorded(&id(it), status));
                }
                Move::Refuse(taken) => {
                    state.refused(&id("s1"), (String::new(), false), NOW);
                    ["p1", "p2"].into_iter().for_each(|it| state.refused(&id(it), (String::new(), taken), NOW));
                }
                Move::Interrupt => state.interrupt(),
                Move::Compact => state.asks_to_compact(id("c1")),
                Move::Later(seconds) => now += Duration::from_secs(seconds),
                Move::ActivityEnds => match state.work.at {
                    At::Thinking { .. } if !state.compaction.asked.is_empty() => {
                        state.compacted();
                    }
                    At::Thinking { .. } if state.hold(now).is_err() => state.dropped(),
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
                Move::Term => state.end(IncarnationEnd::Terminated),
            }
        }
    }
}
