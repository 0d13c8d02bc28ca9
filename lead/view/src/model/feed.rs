//! What happened in a team, newest last: the steps of one request are one item. Pure.

use std::collections::HashSet;

use teamd_shared::id::RequestId;
use uuid::Uuid;

use super::steps::{FeedStep, RequestStage};

/// How many items are kept.
const KEPT: usize = 2_000;

/// A step, or all steps of one request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    /// Its number: it stays when the item moves.
    pub key: u64,
    /// Oldest first, at least one.
    pub steps: Vec<FeedStep>,
}

impl Item {
    /// Returns the time of the last step, in seconds since 1970.
    pub(crate) fn at(&self) -> f64 {
        self.steps.iter().map(|step| step.at).fold(0.0, f64::max)
    }

    fn request(&self) -> Option<&RequestId> {
        self.steps.first()?.request.as_ref().map(|(id, _)| id)
    }

    /// Adds a step. For a request the journal is more precise than an inbox.
    fn add(&mut self, step: FeedStep) {
        let stage = step.stage();
        let same = self.steps.iter_mut().find(|other| {
            other.stage() == stage && stage != Some(RequestStage::Joined) && other.seq != step.seq
        });
        match same {
            Some(same) if same.seq.is_none() => *same = step,
            Some(_) => {}
            None => self.steps.push(step),
        }
        self.steps.sort_by(|a, b| a.at.total_cmp(&b.at));
    }
}

/// The items.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    items: Vec<Item>,
    last_key: u64,
    messages: HashSet<Uuid>,
    /// How many messages were added.
    pub(crate) messages_added: u64,
    /// Whether old items stay, too.
    is_whole: bool,
}

impl Feed {
    /// Makes one that has everything.
    pub(super) fn whole() -> Self {
        Self {
            is_whole: true,
            ..Self::default()
        }
    }

    /// Returns all steps, oldest first.
    pub(super) fn into_steps(self) -> Vec<FeedStep> {
        let mut steps: Vec<FeedStep> = self.items.into_iter().flat_map(|item| item.steps).collect();
        steps.sort_by(|a, b| a.at.total_cmp(&b.at));
        steps
    }

    /// Returns the items, oldest first.
    pub(crate) fn items(&self) -> &[Item] {
        &self.items
    }

    /// Adds steps.
    pub(crate) fn add(&mut self, steps: impl IntoIterator<Item = FeedStep>) {
        for step in steps {
            if step.message.is_some_and(|id| !self.messages.insert(id)) {
                continue;
            }
            self.messages_added += u64::from(step.seq.is_none());
            let request = step.request.as_ref().map(|(id, _)| id);
            let item = request.and_then(|id| {
                self.items
                    .iter_mut()
                    .rev()
                    .find(|item| item.request() == Some(id))
            });
            match item {
                Some(item) => item.add(step),
                None => {
                    self.last_key += 1;
                    self.items.push(Item {
                        key: self.last_key,
                        steps: vec![step],
                    });
                }
            }
        }
        // By the time, and not by the file: an inbox may be read later than another.
        self.items.sort_by(|a, b| a.at().total_cmp(&b.at()));
        let kept = if self.is_whole { usize::MAX } else { KEPT };
        let excess = self.items.len().saturating_sub(kept);
        for item in self.items.drain(..excess) {
            for id in item.steps.iter().filter_map(|step| step.message) {
                self.messages.remove(&id);
            }
        }
    }

    /// Removes what came from the journal, which was replaced.
    pub(super) fn forget_journal(&mut self) {
        for item in &mut self.items {
            item.steps.retain(|step| step.seq.is_none());
        }
        self.items.retain(|item| !item.steps.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use teamd_client::testing::asked;
    use teamd_shared::name::Name;

    fn message(value: &Value) -> FeedStep {
        FeedStep::of_message(&Name::lead(), value.to_string().as_bytes()).unwrap()
    }

    fn line(line: &str) -> FeedStep {
        FeedStep::of_line(&serde_json::from_str(line.trim_end()).unwrap()).unwrap()
    }

    fn shown(feed: &Feed) -> Vec<String> {
        feed.items()
            .iter()
            .map(|item| {
                item.steps
                    .iter()
                    .map(|step| {
                        step.request
                            .as_ref()
                            .map_or(step.what.clone(), |it| it.1.word().to_owned())
                    })
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect()
    }

    #[test]
    fn the_steps_of_a_request_are_one_item_whichever_file_tells_them_first() {
        let asks = json!({"type": "plan_approval_request", "from": "alice", "to": "lead", "request_id": "a1b2c3d4",
            "content": "as the inbox has it", "timestamp": 0.5});
        let says = json!({"type": "message", "from": "bob", "to": "lead", "content": "hi", "timestamp": 0.9});
        let answers = json!({"type": "plan_approval_response", "from": "lead", "to": "alice", "request_id": "a1b2c3d4",
            "approve": false, "content": "no", "timestamp": 2.0});
        let mut feed = Feed::default();
        feed.add([message(&asks), message(&says)]);
        feed.add([
            line(&asked(1, "a1b2c3d4", "plan_approval")),
            message(&answers),
            message(&asks),
        ]);
        assert_eq!(shown(&feed), ["", "asked rejected"]);
        assert_eq!(
            feed.items()[1].steps[0].text,
            "Drop the cache.\nThen rebuild."
        );
        feed.forget_journal();
        assert_eq!(shown(&feed), ["", "rejected"]);
    }

    #[test]
    fn a_message_of_several_inboxes_is_shown_once_and_old_ones_go() {
        let one = |n: usize| {
            let id = format!("018f0000-0000-7000-8000-{n:012}");
            message(
                &json!({"type": "broadcast", "from": "lead", "content": "x", "timestamp": n, "id": id}),
            )
        };
        let mut feed = Feed::default();
        feed.add([one(1), one(1)]);
        assert_eq!((feed.items().len(), feed.messages_added), (1, 1));
        feed.add((1..KEPT + 10).map(one));
        assert_eq!((feed.items().len(), feed.items()[0].at()), (KEPT, 10.0));
        assert_eq!(feed.messages.len(), KEPT);
    }

    #[test]
    fn a_time_that_is_none_does_not_break_the_order() {
        let mut feed = Feed::default();
        let say = |at: Value| {
            message(&json!({"type": "message", "from": "bob", "content": "x", "timestamp": at}))
        };
        feed.add([
            say(json!(9)),
            say(Value::Null),
            say(json!(-3)),
            say(json!(5)),
        ]);
        assert_eq!(
            feed.items().iter().map(Item::at).collect::<Vec<_>>(),
            [0.0, 0.0, 5.0, 9.0]
        );
    }
}
