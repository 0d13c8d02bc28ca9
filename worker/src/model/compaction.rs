//! Cutting a conversation that comes near the end of the model's window, pure: what the model is asked for a summary
//! with, and what stands in the place of what is cut.
//!
//! Whole answers with their results are cut, never parts of them. What must not be lost stands in the summary word for
//! word, whatever the model wrote: the task, the plan and its verdict, a shutdown that waits for an answer.

use super::conversation::{BYTES_PER_TOKEN, Conversation, Gist, weight};
use super::prompt::{Part, Role, Turn, excerpt};

/// The share of the window from which on a conversation is cut, in percent.
const FULL: u64 = 80;

/// The share of the window that the last answers may keep, in percent.
const KEPT: u64 = 25;

/// How much of a part is shown to the model for its summary if all of it is too much, in characters.
const GLANCE: usize = 1500;

/// How much of the task, the plan, or a reason is kept word for word, in characters.
const VERBATIM: usize = 20_000;

/// How much of each of the last answers stands in a summary that no model wrote, in characters.
const EXCERPT: usize = 500;

/// How many answers are shown there.
const EXCERPTS: usize = 12;

/// What the model is asked.
const ORDER: &str = "This conversation has come near the end of what you can read at once. It will be cut: you will \
    go on with nothing of it but your task, your plan, the last few steps, and what you write now. Write down, for \
    yourself, all that you need to go on: what was asked and by whom, what you have done and found out (files, \
    commands, results, decisions and their reasons), what is open, and what comes next. Call no tool. Answer with \
    this text alone.";

/// Tells whether a conversation has to be cut before the model is asked again.
pub(super) fn is_due(tokens: u64, window: u64) -> bool {
    tokens.saturating_mul(100) >= window.saturating_mul(FULL)
}

/// Returns how many of the last answers are kept.
pub(super) fn kept(conversation: &Conversation, window: u64) -> usize {
    conversation.answers_within(window.saturating_mul(KEPT * BYTES_PER_TOKEN) / 100)
}

/// Returns the turns that ask for a summary of all of it: what a cache holds already, and the order behind it.
pub(super) fn question(turns: &[Turn]) -> Vec<Turn> {
    let mut turns = turns.to_vec();
    order(&mut turns);
    turns
}

/// As [`question`], of a conversation that is too long already: long parts are shortened, and as much of its
/// beginning is left out as must be.
pub(super) fn short_question(turns: &[Turn], window: u64) -> Vec<Turn> {
    let mut short: Vec<Turn> = turns.to_vec();
    short.iter_mut().flat_map(|turn| &mut turn.parts).for_each(shorten);
    let most = window.saturating_mul(BYTES_PER_TOKEN) / 2;
    let mut left: u64 = short.iter().map(weight).sum();
    let mut first = 0;
    // Up to an answer, so that every result keeps its call.
    while first + 1 < short.len() && (left > most || (first > 0 && short[first].role == Role::User)) {
        left = left.saturating_sub(weight(&short[first]));
        first += 1;
    }
    let mut turns = short.split_off(first);
    if turns.first().is_some_and(|turn| turn.role == Role::Assistant) {
        let note = Part::Text("[the beginning is left out]".to_owned());
        turns.insert(0, Turn { role: Role::User, parts: vec![note] });
    }
    // A last turn of results alone, whose call was left out, cannot be sent.
    if first > 0 && turns.len() == 1 {
        turns[0].parts.retain(|part| matches!(part, Part::Text(_)));
    }
    order(&mut turns);
    turns
}

fn order(turns: &mut Vec<Turn>) {
    let part = Part::Text(ORDER.to_owned());
    match turns.last_mut() {
        Some(last) if last.role == Role::User => last.parts.push(part),
        _ => turns.push(Turn { role: Role::User, parts: vec![part] }),
    }
}

/// Makes what stands for all that is cut. `summary`: what the model wrote, if it could.
pub(super) fn compose(conversation: &Conversation, summary: Option<&str>) -> String {
    let Gist { task, plan, asked } = &conversation.gist;
    let mut text =
        "[The conversation was too long, and its beginning was cut. This is what is kept of it.]".to_owned();
    let mut section = |heading: &str, body: &str| {
        text.push_str(&format!("\n\n{heading}\n{}", excerpt(body.trim(), VERBATIM)));
    };
    if let Some(task) = task {
        section("Your task, word for word:", task);
    }
    if let Some((plan, became)) = plan {
        section("Your latest plan, word for word:", plan);
        section("What became of it:", became);
    }
    match summary.map(str::trim).filter(|summary| !summary.is_empty()) {
        Some(summary) => section("What you wrote down for yourself:", summary),
        None => {
            section("Your last steps (you could not write a summary):", &last_steps(conversation.turns()))
        }
    }
    if let Some((request_id, reason)) = asked {
        let order = format!("request_id {request_id}: {reason}\nAnswer it with shutdown_response.");
        section("You are asked to leave, and have not answered:", &order);
    }
    text
}

/// Describes the last answers without a model.
fn last_steps(turns: &[Turn]) -> String {
    let answers = turns.iter().filter(|turn| turn.role == Role::Assistant);
    let mut lines: Vec<String> = answers
        .rev()
        .take(EXCERPTS)
        .map(|turn| {
            let parts = turn.parts.iter().filter_map(|part| match part {
                Part::Text(text) => Some(excerpt(text, EXCERPT)),
                Part::Call { name, input, .. } => {
                    Some(format!("{name} {}", excerpt(&input.to_string(), EXCERPT)))
                }
                Part::Result { .. } | Part::Opaque(_) => None,
            });
            format!("- {}", parts.collect::<Vec<_>>().join("; "))
        })
        .collect();
    lines.reverse();
    if lines.is_empty() { "- none".to_owned() } else { lines.join("\n") }
}

fn shorten(part: &mut Part) {
    match part {
        Part::Text(text) | Part::Result { content: text, .. } => *text = excerpt(text, GLANCE),
        // Its input is not touched: a service may look at it. What a model writes is bounded by its output limit.
        Part::Call { .. } | Part::Opaque(_) => {}
    }
}

#[cfg(test)]
mod tests;
