//! Tokens, counted and cached as the services do: four bytes are one.

use std::collections::HashSet;

use serde_json::Value;

use super::Api;

/// The shortest beginning that is cached, in tokens.
const LEAST: u64 = 1024;

/// How many blocks the cache looks back from a mark.
const LOOKBACK: usize = 20;

/// What OpenAI's cache counts in.
const STEP: u64 = 128;

/// What an answer costs, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Bill {
    /// Neither read from the cache nor put there.
    pub(crate) input: u64,
    /// Read from the cache.
    pub(crate) read: u64,
    /// Put into the cache.
    pub(crate) written: u64,
    pub(crate) output: u64,
}

impl Bill {
    /// All that was read.
    pub(crate) fn all_input(self) -> u64 {
        self.input + self.read + self.written
    }
}

/// What is cached.
#[derive(Debug, Default)]
pub(super) struct Till {
    /// Beginnings of Anthropic's requests that ended with a mark.
    marked: HashSet<String>,
    /// Requests of OpenAI's.
    seen: Vec<String>,
}

impl Till {
    pub(super) fn bill(&mut self, api: Api, body: &Value, answered: usize) -> Bill {
        let bill = match api {
            Api::Anthropic => self.by_marks(body),
            Api::OpenAi | Api::Responses | Api::Google => self.by_beginning(body),
        };
        Bill {
            output: tokens(answered).max(1),
            ..bill
        }
    }

    /// Tools, then system, then messages. From each mark the cache looks back for a beginning that
    /// it has.
    fn by_marks(&mut self, body: &Value) -> Bill {
        let blocks = blocks(body);
        let mut beginnings = Vec::new();
        let mut beginning = body["model"].to_string();
        for (block, _) in &blocks {
            beginning.push_str(block);
            beginnings.push(beginning.clone());
        }
        let length = |place: usize| tokens(beginnings[place].len());
        let marks: Vec<usize> = (0..blocks.len())
            .filter(|&place| blocks[place].1 && length(place) >= LEAST)
            .collect();
        let read = marks
            .iter()
            .filter_map(|mark| {
                let places = (mark.saturating_sub(LOOKBACK - 1)..=*mark).rev();
                places
                    .into_iter()
                    .find(|&place| self.marked.contains(&beginnings[place]))
            })
            .map(length)
            .max()
            .unwrap_or(0);
        let cached = marks.last().map_or(0, |&mark| length(mark));
        let all = tokens(beginning.len());
        let bill = Bill {
            input: all - cached.max(read),
            read,
            written: cached.saturating_sub(read),
            output: 0,
        };
        self.marked
            .extend(marks.into_iter().map(|mark| beginnings[mark].clone()));
        bill
    }

    /// The longest common beginning with an earlier request.
    fn by_beginning(&mut self, body: &Value) -> Bill {
        let items = |name: &str| {
            body[name]
                .as_array()
                .into_iter()
                .flatten()
                .map(Value::to_string)
        };
        let text: String = [body["model"].to_string()]
            .into_iter()
            .chain(items("tools"))
            .chain(items("messages"))
            .chain(items("contents"))
            .collect();
        let longest = tokens(
            self.seen
                .iter()
                .map(|seen| {
                    seen.bytes()
                        .zip(text.bytes())
                        .take_while(|(one, other)| one == other)
                        .count()
                })
                .max()
                .unwrap_or(0),
        );
        let read = if longest < LEAST {
            0
        } else {
            longest / STEP * STEP
        };
        let input = tokens(text.len()) - read;
        self.seen.push(text);
        Bill {
            input,
            read,
            ..Bill::default()
        }
    }
}

/// Each block, without its mark, and whether it has one.
fn blocks(body: &Value) -> Vec<(String, bool)> {
    let mut blocks = Vec::new();
    let mut add = |before: &str, block: &Value| {
        let mut block = block.clone();
        let mark = block
            .as_object_mut()
            .and_then(|block| block.shift_remove("cache_control"));
        blocks.push((format!("{before}{block}"), mark.is_some()));
    };
    for name in ["tools", "system"] {
        for block in body[name].as_array().into_iter().flatten() {
            add(name, block);
        }
    }
    for message in body["messages"].as_array().into_iter().flatten() {
        let role = message["role"].as_str().unwrap_or_default();
        match &message["content"] {
            Value::Array(content) => {
                for block in content.iter() {
                    add(role, block);
                }
            }
            text => add(role, text),
        }
    }
    blocks
}

fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap().div_ceil(4)
}
