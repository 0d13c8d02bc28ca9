//! Cutting a conversation that comes near the end of the model's window, pure: what the model is
//! asked for a summary with, and what stands in the place of what is cut.
//!
//! Whole answers with their results are cut, never parts of them. What must not be lost stands in
//! the summary word for word, whatever the model wrote: the work, the plan and its verdict, plans
//! and a shutdown that wait for an answer. All of it together has a share of the window. If that is
//! still too much, the next cut is shorter.

use teamd_shared::transcript::Event;

use super::conversation::{BYTES_PER_TOKEN, Essentials, ModelConversation};
use super::prompt::{PromptTurn, Role, TurnPart};
use teamd_shared::message_text::excerpt;

/// The share of the window from which on a conversation is cut, in percent.
const FULL: u64 = 80;

/// The share of the window that the last answers may keep, in percent.
const KEPT: u64 = 25;

/// The share of the window that a summary may have, in percent.
const SUMMARY: u64 = 20;

/// The share of the window that the guide of a workspace may have, in percent: it stands in every
/// prompt, and what cannot be cut out must leave room for what is kept.
const GUIDE: u64 = 10;

/// How often a conversation is cut, shorter each time, before its work is given up.
const CUTS: u32 = 3;

/// How much of a part the model gets for its summary if the whole is too long, in characters.
const GLANCE: usize = 1500;

/// How much of each of the last answers is in a summary that no model wrote, in characters.
const EXCERPT: usize = 500;

/// How many answers are shown there.
const EXCERPTS: usize = 12;

/// The request for a summary, behind why the conversation is cut and what is kept.
const ORDER: &str = "Write down, for yourself, all that \
    you need to continue: what was asked and by whom, what you have done and found out (files, \
    commands, results, decisions and their reasons), what is open, and what comes next. Call no tool. Answer with \
    this text alone.";

/// Why a conversation is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// It comes near the end of the window.
    Long,
    /// A person asks for it.
    Asked {
        /// Whether there is no work.
        at_rest: bool,
    },
}

impl Occasion {
    /// Returns what the model is told when it is asked for a summary.
    fn reason(self) -> &'static str {
        match self {
            Self::Long => {
                "This conversation has come near the end of what you can read at once. It will be cut: you will keep \
                 only your task, your plan, the last few steps, and what you write now."
            }
            Self::Asked { .. } => {
                "A person wants this conversation to go on from a summary. It will be cut: you will keep only your \
                 task, your plan, and what you write now."
            }
        }
    }

    /// Returns what stands above a summary.
    fn title(self) -> &'static str {
        match self {
            Self::Long => {
                "[The conversation was too long, and its beginning was cut. This is what is kept of it.]"
            }
            Self::Asked { .. } => {
                "[The conversation was cut, because a person wanted it. This is what is kept of it.]"
            }
        }
    }

    /// Tells whether there is no work.
    pub(super) fn is_at_rest(self) -> bool {
        self == Self::Asked { at_rest: true }
    }
}

/// The room of a conversation in the window of its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// The maximum length of a prompt and its answer together, in tokens.
    window: u64,
    /// How often it was cut since the model has answered, or the work has ended.
    cuts: u32,
    /// Whether the service has refused it for its length since then. Then the whole conversation is
    /// not sent again.
    pub(super) refused: bool,
}

impl Room {
    /// Makes the room for a window of so many tokens.
    pub(super) fn new(window: u64) -> Self {
        Self {
            window,
            cuts: 0,
            refused: false,
        }
    }

    /// Another model answers from here on, with such a window.
    pub(super) fn resize(&mut self, window: u64) {
        self.window = window;
    }

    /// Applies the next entry.
    pub(super) fn observe(&mut self, event: &Event) {
        match event {
            Event::Compacted { .. } => {
                self.cuts += 1;
                self.refused = false;
            }
            Event::Answer { .. } | Event::Idle { .. } => {
                self.cuts = 0;
                self.refused = false;
            }
            _ => {}
        }
    }

    /// Returns whether it must be cut before the model is asked again.
    pub(super) fn is_full(&self, tokens: u64) -> bool {
        let due = tokens.saturating_mul(100) >= self.window.saturating_mul(FULL);
        // After a cut it may fit although it still looks long; the service decides.
        (self.refused && self.cuts < CUTS) || (due && self.cuts == 0)
    }

    /// Returns how many of the last answers are kept.
    pub(super) fn kept(&self, conversation: &ModelConversation) -> usize {
        if self.refused {
            0
        } else {
            conversation.answers_within(self.bytes(KEPT))
        }
    }

    /// Returns the maximum length of a summary in bytes; it shrinks with each cut.
    pub(super) fn for_summary(&self) -> usize {
        (self.bytes(SUMMARY) >> (2 * self.cuts.min(CUTS))).max(LEAST)
    }

    /// Returns how long the guide of a workspace may be, in bytes.
    pub(super) fn for_guide(&self) -> usize {
        self.bytes(GUIDE)
    }

    /// Returns how long the question for a summary may be once the whole conversation was refused,
    /// in bytes.
    pub(super) fn for_short_question(&self) -> usize {
        self.bytes(50)
    }

    fn bytes(&self, percent: u64) -> usize {
        let bytes = self
            .window
            .saturating_mul(percent)
            .saturating_mul(BYTES_PER_TOKEN)
            / 100;
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

/// The shortest useful summary, in bytes.
const LEAST: usize = 2000;

/// Returns the turns that ask for a summary of all of it: what a cache holds already, and the order
/// behind it.
pub(super) fn question(mut turns: Vec<PromptTurn>, occasion: Occasion) -> Vec<PromptTurn> {
    let part = TurnPart::Text(format!("{} {ORDER}", occasion.reason()));
    match turns.last_mut() {
        Some(last) if last.role == Role::User => last.parts.push(part),
        _ => turns.push(PromptTurn {
            role: Role::User,
            parts: vec![part],
        }),
    }
    turns
}

/// As [`question`], of a conversation that is too long already: long parts are shortened, and as
/// much of its beginning is left out as must be.
pub(super) fn short_question(
    mut turns: Vec<PromptTurn>,
    occasion: Occasion,
    room: usize,
) -> Vec<PromptTurn> {
    for item in turns.iter_mut().flat_map(|turn| &mut turn.parts) {
        shorten(item);
    }
    let mut left: usize = turns.iter().map(PromptTurn::bytes).sum();
    let mut first = 0;
    // Up to an answer, so that every result keeps its call.
    while first + 1 < turns.len() && (left > room || (first > 0 && turns[first].role == Role::User))
    {
        left -= turns[first].bytes();
        first += 1;
    }
    let mut turns = turns.split_off(first);
    if turns
        .first()
        .is_some_and(|turn| turn.role == Role::Assistant)
    {
        let note = TurnPart::Text("[the beginning is left out]".to_owned());
        turns.insert(
            0,
            PromptTurn {
                role: Role::User,
                parts: vec![note],
            },
        );
    }
    // A last turn of results alone, whose call was left out, cannot be sent.
    if first > 0 && turns.len() == 1 {
        turns[0]
            .parts
            .retain(|part| matches!(part, TurnPart::Text(_)));
    }
    question(turns, occasion)
}

/// Makes the text that replaces all that is cut. `written`: the model's summary, if it could write
/// one; `kept`: the number of answers that stay; `room`: the maximum length in bytes.
pub(super) fn compose(
    conversation: &ModelConversation,
    occasion: Occasion,
    written: &str,
    kept: usize,
    room: usize,
) -> String {
    let Essentials {
        work,
        waiting,
        plan,
        todo,
        asked,
        ..
    } = &conversation.essentials;
    let turns = conversation.turns();
    let mut text = occasion.title().to_owned();
    // The shares of the room, in percent.
    let mut section = |heading: &str, share: usize, body: &str| {
        if !body.trim().is_empty() {
            text.push_str(&format!(
                "\n\n{heading}\n{}",
                excerpt(body.trim(), room / 100 * share)
            ));
        }
    };
    let work_heading = if occasion.is_at_rest() {
        "What you worked on last, word for word (that work has ended):"
    } else {
        "What you are working on, word for word:"
    };
    section(work_heading, 25, &work.join("\n"));
    if let Some((plan, became)) = plan {
        section("Your latest plan, word for word:", 10, plan);
        section("What became of it:", 5, became);
    }
    let plans: Vec<&str> = waiting.iter().map(|(_, told)| told.as_str()).collect();
    section("Plans that wait for your verdict:", 10, &plans.join("\n"));
    section("Your list of steps, word for word:", 10, &todo.to_string());
    match written.trim() {
        "" => section(
            "Your last steps (you could not write a summary):",
            25,
            &last_steps(&turns),
        ),
        written => section("What you wrote down for yourself:", 35, written),
    }
    if kept == 0 {
        section("What came last:", 15, &last_words(&turns));
    }
    if let Some((request_id, reason)) = asked {
        let order = format!("request_id {request_id}: {reason}\nAnswer it with shutdown_response.");
        section("You are asked to leave, and have not answered:", 5, &order);
    }
    text
}

/// Returns the text of the user's last turn: messages, and results without an answer.
fn last_words(turns: &[PromptTurn]) -> String {
    let parts = turns
        .last()
        .into_iter()
        .flat_map(|turn| &turn.parts)
        .filter_map(|part| match part {
            TurnPart::Text(text) => Some(text.clone()),
            TurnPart::Result { content, .. } => Some(excerpt(content, EXCERPT)),
            TurnPart::Call { .. } | TurnPart::Opaque(_) => None,
        });
    parts.collect::<Vec<_>>().join("\n")
}

/// Describes the last answers without a model.
fn last_steps(turns: &[PromptTurn]) -> String {
    let answers: Vec<_> = turns
        .iter()
        .filter(|turn| turn.role == Role::Assistant)
        .collect();
    let last = &answers[answers.len().saturating_sub(EXCERPTS)..];
    last.iter()
        .map(|turn| {
            let parts = turn.parts.iter().filter_map(|part| match part {
                TurnPart::Text(text) => Some(excerpt(text, EXCERPT)),
                TurnPart::Call { name, input, .. } => {
                    Some(format!("{name} {}", excerpt(&input.to_string(), EXCERPT)))
                }
                TurnPart::Result { .. } | TurnPart::Opaque(_) => None,
            });
            format!("- {}", parts.collect::<Vec<_>>().join("; "))
        })
        .collect::<Vec<_>>()
        .join("\n")
}

fn shorten(part: &mut TurnPart) {
    match part {
        TurnPart::Text(text) => *text = excerpt(text, GLANCE),
        TurnPart::Result {
            content, images, ..
        } => {
            *content = excerpt(content, GLANCE);
            images.clear();
        }
        // Its input is not touched: a service may look at it. What a model writes is bounded by its
        // output limit.
        TurnPart::Call { .. } | TurnPart::Opaque(_) => {}
    }
}

#[cfg(test)]
mod tests;
