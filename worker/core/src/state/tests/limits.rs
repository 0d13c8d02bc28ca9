//! What one piece of work may cost, and how its end is reported.

use std::collections::BTreeMap;

use teamd_shared::position::Position;
use teamd_shared::price::{Dollars, Price};
use teamd_shared::transcript::Entry;

use super::*;
use crate::tools::Grant;

#[test]
fn a_piece_of_work_has_a_limit_of_turns_and_the_next_one_its_own() {
    let mut state = at(At::Turn { results: false });
    for _ in 0..2 {
        state.thinking();
        state.answered(true);
        state.call_ended(false);
    }
    assert_eq!(state.next(NOW), NextStep::Finish(IdleReason::MaxTurns));
    state.finished(IdleReason::MaxTurns, "");
    state.takes_in(true, false);
    assert_eq!(state.next(NOW), NextStep::Think);
}

#[test]
fn a_piece_of_work_has_a_limit_of_tokens_and_what_came_from_a_cache_does_not_count() {
    let spend = |state: &mut State, input_tokens, cache_read_input_tokens| {
        state.thinking();
        let usage = Usage {
            input_tokens,
            output_tokens: 9,
            cache_read_input_tokens,
            ..Usage::default()
        };
        state.count_usage(usage);
        state.answered(true);
        state.call_ended(false);
    };
    let mut state = at(At::Turn { results: false });
    spend(&mut state, 900, 1_000_000);
    assert_eq!(state.next(NOW), NextStep::Think);
    spend(&mut state, 82, 0);
    assert_eq!(
        state.next(NOW),
        NextStep::Finish(IdleReason::MaxTurns),
        "the limit of turns goes before"
    );
    state.limits.turns = 50;
    assert_eq!(state.next(NOW), NextStep::Finish(IdleReason::MaxTokens));
    state.finished(IdleReason::MaxTokens, "");
    state.takes_in(true, false);
    assert_eq!(
        state.next(NOW),
        NextStep::Think,
        "the next piece of work has as much again"
    );
    assert_eq!(
        state.report(false).usage.cache_read_input_tokens,
        1_000_000,
        "all that was spent is said"
    );
    assert_eq!(state.budget_left().tokens, Some(1000));
    state.count_usage(Usage {
        output_tokens: 400,
        cache_read_input_tokens: 9,
        ..Usage::default()
    });
    assert_eq!(state.budget_left().tokens, Some(600));
    state.count_usage(Usage {
        output_tokens: 4000,
        ..Usage::default()
    });
    assert_eq!(state.budget_left().tokens, Some(0));
    state.limits.tokens = None;
    assert_eq!(state.budget_left().tokens, None);
    spend(&mut state, u64::MAX, 0);
    assert_eq!(state.next(NOW), NextStep::Think);
}

#[test]
fn what_is_given_to_teammates_is_spent_and_no_more_can_be_given_than_is_left() {
    let mut state = at(At::Turn { results: false });
    let of_tokens = |tokens| Grant {
        tokens,
        ..Grant::default()
    };
    let most = state.budget_left().tokens.unwrap();
    assert_eq!(state.budget_left().can_grant(of_tokens(most)), Ok(()));
    let error = state.budget_left().can_grant(of_tokens(most + 1));
    assert!(error.unwrap_err().contains("max_tokens"));
    let unlimited = state.budget_left().can_grant(Grant::default());
    assert!(unlimited.unwrap_err().contains("max_tokens"));
    state.work.granted = of_tokens(most - 1);
    assert_eq!(state.budget_left().tokens, Some(1));
    assert_eq!(state.limit_reached(), None);
    state.work.granted = of_tokens(most);
    assert_eq!(state.limit_reached(), Some(IdleReason::MaxTokens));
    let nothing = state.budget_left().can_grant(of_tokens(1)).unwrap_err();
    assert!(nothing.starts_with("nothing is left"), "{nothing}");
    state.limits.tokens = None;
    assert_eq!(state.budget_left().can_grant(Grant::default()), Ok(()));
    state.limits.cost = Some((Dollars::try_from(2.0).unwrap(), None));
    let of_cost = |dollars| Grant {
        cost: Dollars::try_from(dollars).unwrap(),
        ..Grant::default()
    };
    let limits = state.limits;
    assert_eq!(limits.can_grant(of_cost(2.0)), Ok(()));
    for grant in [of_cost(2.01), Grant::default()] {
        let error = limits.can_grant(grant).unwrap_err();
        assert!(error.contains("max_cost, at most $2.00"), "{error}");
    }
}

#[test]
fn why_work_came_to_nothing_is_said_until_other_work_begins() {
    let mut state = at(At::Turn { results: false });
    let activity = |state: &State| state.report(false).activity;
    state.failed("told".to_owned());
    let NextStep::Finish(reason) = state.next(NOW) else {
        panic!()
    };
    state.finished(
        reason,
        "\nthe key was refused (401) (hint: take\nanother one)",
    );
    assert_eq!(activity(&state), "failed: the key was refused (401)");
    state.takes_in(false, false);
    assert_eq!(
        activity(&state),
        "failed: the key was refused (401)",
        "news are no work"
    );
    state.takes_in(true, false);
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
    let budget = Budget {
        turns: 3,
        asks_itself: false,
        tokens: Some(1000),
        cost: None,
        total: Default::default(),
    };
    let text = budget.explain(IdleReason::MaxTurns).unwrap();
    assert!(
        text.starts_with("stopped at the limit of 3 model calls") && text.contains("`--max-turns`")
    );
    let text = budget.explain(IdleReason::MaxTokens).unwrap();
    assert!(
        text.contains("1000 tokens") && text.contains("`max_tokens` in team.toml"),
        "{text}"
    );
    assert_eq!(budget.explain(IdleReason::Available), None);
}

#[test]
fn what_arrives_when_a_limit_is_reached_begins_the_next_piece_of_work() {
    for (turns, spent) in [(3, 0), (1, 1000)] {
        let mut state = state_of(At::Turn { results: true }, turns, spent, Relevance::Work);
        assert!(
            matches!(state.next(NOW), NextStep::Finish(_)),
            "{turns} {spent}"
        );
        state.finished(IdleReason::MaxTurns, "told");
        assert_eq!(state.next(NOW), NextStep::TakeIn);
        state.takes_in(true, false);
        assert_eq!(state.next(NOW), NextStep::Think);
    }
}

/// What each entry of the next function that costs something costs.
const COST: Usage = Usage {
    input_tokens: 90,
    output_tokens: 10,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: 1_000_000,
};

/// Returns the entries of two pieces of work.
fn two_pieces_of_work() -> Vec<Event> {
    let answer = |content| Event::Answer {
        content,
        usage: COST,
        cut: None,
        length: None,
        model_calls: 1,
    };
    let work = [
        Event::Messages {
            messages: vec![json!({"type": "message", "from": "lead", "content": "do it"})],
        },
        answer(vec![call()]),
        Event::Result {
            tool_use_id: "call-1".to_owned(),
            content: "done".to_owned(),
            is_error: false,
            images: Vec::new(),
            killed_for_memory: None,
        },
        Event::Charged {
            usage: COST,
            model_calls: 1,
        },
        answer(Vec::new()),
        Event::Idle {
            idle_reason: IdleReason::Available,
            content: "There.".to_owned(),
            message_id: Uuid::from_u128(8),
            goes_on: false,
        },
    ];
    work.iter().chain(&work).cloned().collect()
}

/// Returns the state of a worker that begins after these entries, with a total of 350 tokens.
fn restarted_after(entries: &[Event]) -> State {
    let mut state = at(At::Idle);
    let restart = Event::Incarnation {
        incarnation: 2,
        conversation: 1,
        prompt: None,
        tools: teamd_shared::tool_set::ToolSet::default(),
    };
    for event in entries.iter().chain([&restart]) {
        state.work.replay(&Entry {
            at: 0.0,
            inbox: Position::START,
            pending_notices: Vec::new(),
            call: None,
            model: None,
            event: event.clone(),
        });
    }
    state.limits.turns = 50;
    state.limits.total.tokens = Some(350);
    state
}

#[test]
fn a_total_holds_over_pieces_of_work_and_over_a_restart_at_any_entry() {
    let entries = two_pieces_of_work();
    for count in 0..=entries.len() {
        let known = &entries[..count];
        let costs = |event: &&Event| matches!(event, Event::Answer { .. } | Event::Charged { .. });
        let spent = 100 * known.iter().filter(costs).count() as u64;
        let mut state = restarted_after(known);
        let left = 350_u64.saturating_sub(spent);
        assert_eq!(state.budget_left().tokens, Some(left), "{count}");
        state.takes_in(true, false);
        let reached = (spent >= 350).then_some(IdleReason::MaxTokens);
        assert_eq!(state.limit_reached(), reached, "{count}");
        if reached.is_none() {
            continue;
        }
        let text = state.explain(IdleReason::MaxTokens).unwrap();
        assert!(
            text.contains("350 tokens that its lead gave it")
                && text.contains("`teamctl spawn alice --resume --max-tokens N`"),
            "{text}"
        );
        // Whatever it still has to end: no model is asked.
        while state.work.at != At::Idle {
            match state.next(NOW) {
                NextStep::Finish(reason) => state.finished(reason, ""),
                NextStep::Call => state.call_ended(false),
                other => panic!("{count}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_total_in_dollars_needs_the_price_and_the_lower_limit_counts() {
    let mut state = at(At::Turn { results: false });
    let dollars = |amount| Dollars::try_from(amount).unwrap();
    let price: Price = serde_json::from_value(
        json!({"input": 1e6, "output": 1e6, "cache_write": 0, "cache_read": 0}),
    )
    .unwrap();
    state.limits.tokens = None;
    state.limits.cost = Some((dollars(150.0), Some(price)));
    state.limits.total.cost = Some(dollars(150.0));
    state.count_usage(COST);
    let left = |state: &State| state.budget_left().cost.map(|(left, _)| left);
    assert_eq!(left(&state), Some(dollars(50.0)));
    state.finished(IdleReason::Available, "");
    state.takes_in(true, false);
    assert_eq!(left(&state), Some(dollars(50.0)), "another piece of work");
    assert_eq!(state.limit_reached(), None);
    state.limits.cost = Some((dollars(20.0), Some(price)));
    assert_eq!(left(&state), Some(dollars(20.0)));
    state.limits.cost = Some((dollars(150.0), Some(price)));
    state.count_usage(COST);
    assert_eq!(state.limit_reached(), Some(IdleReason::MaxCost));
    let text = state.explain(IdleReason::MaxCost).unwrap();
    assert!(
        text.contains("$150.00") && text.contains("--max-cost DOLLARS"),
        "{text}"
    );
    state.limits.total.cost = Some(dollars(1e6));
    assert_eq!(state.limit_reached(), None);
    // Nothing says any more what it costs.
    state.limits.cost = Some((dollars(150.0), None));
    assert_eq!(state.limit_reached(), Some(IdleReason::MaxCost));
}

#[test]
fn a_fallback_counts_at_its_own_price_and_one_without_a_price_leaves_nothing() {
    let price = |dollars: f64| -> Price {
        let each = json!(dollars);
        let of = json!({"input": each, "output": each, "cache_write": each, "cache_read": each});
        serde_json::from_value(of).unwrap()
    };
    let tokens = |output_tokens| Usage {
        output_tokens,
        ..Usage::default()
    };
    let mut state = at(At::Thinking { results: true });
    state.limits.tokens = None;
    state.limits.cost = Some((Dollars::try_from(10.0).unwrap(), Some(price(1e6))));
    state.know_prices(BTreeMap::from([("openai:small".to_owned(), price(1e5))]));
    let left = |state: &State| {
        let (left, price) = state.budget_left().cost.unwrap();
        (f64::from(left), price)
    };
    state.count_usage(tokens(4));
    assert_eq!(left(&state), (6.0, Some(price(1e6))));
    let falls_back = |model: &str| Event::Fallback {
        answers: model.to_owned(),
        reason: String::new(),
    };
    state.follow(&falls_back("openai:small"));
    assert_eq!(
        state.work.at,
        At::Turn { results: true },
        "it is asked again"
    );
    state.count_usage(tokens(10));
    assert_eq!(left(&state), (5.0, Some(price(1e5))));
    assert_eq!(state.report(false).usage, tokens(14));
    let others = state.other_models();
    assert_eq!(others.answers.as_deref(), Some("openai:small"));
    assert_eq!(others.usage["openai:small"], tokens(10));
    state.count_usage(tokens(49));
    assert_eq!(state.limit_reached(), None);
    state.count_usage(tokens(1));
    assert_eq!(state.limit_reached(), Some(IdleReason::MaxCost));
    let mut state = at(At::Turn { results: true });
    state.limits.cost = Some((Dollars::try_from(10.0).unwrap(), Some(price(1e6))));
    state.follow(&falls_back("openai:unknown"));
    assert_eq!(
        state.limit_reached(),
        Some(IdleReason::MaxCost),
        "before it has used anything: it is not asked"
    );
    state.count_usage(tokens(1));
    assert_eq!(state.limit_reached(), Some(IdleReason::MaxCost));
}
