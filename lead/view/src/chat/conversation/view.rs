//! A conversation as it is shown: the text of the answer in progress and the entries of the
//! transcript become items. Pure: no file, no terminal.
//!
//! The text of an answer arrives twice: piece by piece while the model gives it, and complete when
//! it is in the transcript. It is shown once. Where the two differ, the transcript is right, and
//! the answer is shown again.

use std::collections::HashSet;

use serde_json::Value;
use teamd_shared::id::RequestId;
use teamd_shared::message::{Body, IdleReason, Message};
use teamd_shared::name::Name;
use teamd_shared::transcript::{Block, Entry, Event};
use uuid::Uuid;

use crate::model::{Part, Parts};

/// A part of the output, not yet escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::chat) enum Item {
    /// More of the agent's answer: it continues the line.
    Answer(String),
    /// The agent's answer is over: what follows begins on a line of its own.
    End,
    /// A line about what happens beside the answer.
    Aside(String),
    /// A line about a failure.
    Failure(String),
}

/// A verdict on a plan for which the agent has called, and which a person confirms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::chat) struct Proposal {
    /// The id of the call.
    pub(in crate::chat) call: String,
    /// The plan.
    pub(in crate::chat) request_id: RequestId,
    /// The verdict of the agent.
    pub(in crate::chat) approve: bool,
    /// Its feedback.
    pub(in crate::chat) feedback: String,
}

/// The state of a conversation.
#[derive(Debug)]
pub(in crate::chat) struct ConversationView {
    parts: Parts,
    /// The text that is shown of the answer in progress.
    shown: String,
    /// The text of the last complete answer, until the next one begins.
    complete: Option<String>,
    /// Whether a model call was abandoned: its text is ignored until the next one begins.
    abandoned: bool,
    /// Messages that are not shown: the person has just typed them.
    own: HashSet<Uuid>,
    /// Whether plans are not shown when the agent reads them: the chat shows them by itself.
    hides_plans: bool,
    proposals: Vec<Proposal>,
    ended: Option<IdleReason>,
}

impl ConversationView {
    /// Begins with nothing of a member's conversation. With `hides_plans` a plan that the agent
    /// reads is not shown.
    pub(in crate::chat) fn new(name: &Name, hides_plans: bool) -> Self {
        Self {
            parts: Parts::new(name),
            shown: String::new(),
            complete: None,
            abandoned: false,
            own: HashSet::new(),
            hides_plans,
            proposals: Vec::new(),
            ended: None,
        }
    }

    /// Does not show a message when the agent reads it.
    pub(in crate::chat) fn sent(&mut self, id: Uuid) {
        self.own.insert(id);
    }

    /// Tells whether a turn is running, according to the transcript.
    pub(in crate::chat) fn in_turn(&self) -> bool {
        self.parts.in_turn()
    }

    /// Returns the text that is shown of the answer in progress.
    pub(in crate::chat) fn live(&self) -> &str {
        &self.shown
    }

    /// Returns how the last piece of work ended; none while the next one is in progress.
    pub(in crate::chat) fn ended(&self) -> Option<IdleReason> {
        self.ended
    }

    /// Returns the verdicts for which the agent has called without a result yet, oldest first.
    pub(in crate::chat) fn proposals(&self) -> &[Proposal] {
        &self.proposals
    }

    /// Takes entries that are not shown, and the text that was read before them.
    pub(in crate::chat) fn skip(&mut self, entries: &[Entry], live: &str) {
        let mut hidden = Vec::new();
        for entry in entries.iter() {
            self.entry(&entry.event, &mut hidden);
        }
        if !self.in_turn() {
            self.complete = Some(live.to_owned());
            self.abandoned = false;
        }
    }

    /// Returns what is new: the text of the answer in progress, and the entries that were read
    /// *after* it. In this order the entries have each answer whose text made room for the next
    /// one.
    pub(in crate::chat) fn update(&mut self, live: &str, entries: &[Entry]) -> Vec<Item> {
        let mut items = Vec::new();
        let was_abandoned = self.abandoned;
        for entry in entries {
            self.entry(&entry.event, &mut items);
        }
        let is_answered = entries
            .iter()
            .any(|entry| matches!(entry.event, Event::Answer { .. }));
        match (was_abandoned, self.abandoned) {
            // It was read before the answer began: the next one that is read may still be of this
            // answer.
            (_, false) if live.is_empty() && is_answered => {}
            (_, false) => self.grow(live, &mut items),
            // The text may have grown before the call was abandoned: only the next one that is read
            // is complete.
            (false, true) => {}
            (true, true) => {
                self.complete = Some(live.to_owned());
                self.abandoned = false;
            }
        }
        items
    }

    fn grow(&mut self, live: &str, items: &mut Vec<Item>) {
        if let Some(complete) = &self.complete {
            // The file still has the answer that is shown already.
            if !live.is_empty() && complete.starts_with(live) {
                return;
            }
            self.complete = None;
        }
        if let Some(more) = live.strip_prefix(self.shown.as_str()) {
            if !more.is_empty() {
                items.push(Item::Answer(more.to_owned()));
            }
        } else {
            items.extend([
                Item::End,
                Item::Aside("the answer broke off, and begins again".to_owned()),
            ]);
            if !live.is_empty() {
                items.push(Item::Answer(live.to_owned()));
            }
        }
        live.clone_into(&mut self.shown);
    }

    fn entry(&mut self, event: &Event, items: &mut Vec<Item>) {
        match event {
            Event::Incarnation { .. } | Event::Left { .. } => self.abandon(items),
            Event::Answer { content, .. } => self.answer(content, items),
            Event::Result { tool_use_id, .. } => {
                self.proposals.retain(|it| it.call != *tool_use_id)
            }
            Event::Idle { idle_reason, .. } => {
                self.abandon(items);
                self.proposals.clear();
                self.ended = Some(*idle_reason);
            }
            _ => {}
        }
        let mut parts = self.parts.of(event);
        if let Event::Messages { messages } = event {
            let mut messages = messages.iter();
            parts.retain(|_| messages.next().is_none_or(|value| !self.is_hidden(value)));
        }
        items.extend(parts.iter().filter_map(|part| match part {
            // An answer is shown as it arrives.
            Part::Answer(_) | Part::Detail(_) => None,
            Part::Failure(_) | Part::Result { is_error: true, .. } => {
                Some(Item::Failure(part.line()))
            }
            _ => Some(Item::Aside(part.line())),
        }));
    }

    fn answer(&mut self, content: &[Block], items: &mut Vec<Item>) {
        self.ended = None;
        let texts: Vec<&str> = content.iter().filter_map(Block::text).collect();
        let streamed = texts.concat();
        let blocks = texts.join("\n");
        let shown = std::mem::take(&mut self.shown);
        let rest = streamed
            .strip_prefix(shown.as_str())
            .or_else(|| blocks.strip_prefix(shown.as_str()));
        let agrees = rest.is_some();
        let begins = shown.is_empty();
        match rest {
            Some("") => {}
            Some(rest) if !begins => items.push(Item::Answer(rest.to_owned())),
            Some(_) => items.push(Item::Answer(blocks)),
            None => items.extend([Item::End, Item::Answer(blocks)]),
        }
        // The file has this answer now. Where the two differ, only the next look knows what the
        // file has.
        self.complete = agrees.then_some(streamed);
        self.abandoned = !agrees;
        items.push(Item::End);
        self.proposals.extend(content.iter().filter_map(proposal));
    }

    /// An answer in progress will not be completed.
    fn abandon(&mut self, items: &mut Vec<Item>) {
        if !std::mem::take(&mut self.shown).is_empty() {
            items.push(Item::End);
        }
        self.abandoned |= self.complete.is_none();
    }

    fn is_hidden(&mut self, value: &Value) -> bool {
        let Ok(message) = Message::from_json(value.clone()) else {
            return false;
        };
        let is_plan = matches!(
            message.body,
            Body::PlanApprovalRequest { .. } | Body::PermissionRequest { .. }
        );
        self.hides_plans && is_plan || message.id.is_some_and(|id| self.own.remove(&id))
    }
}

/// Reads a call of the lead agent that answers a plan. The call by which a teammate submits a plan
/// has no request id.
fn proposal(block: &Block) -> Option<Proposal> {
    let Block::ToolUse {
        id, name, input, ..
    } = block
    else {
        return None;
    };
    if name != "plan_approval" {
        return None;
    }
    let text = |field: &str| input.get(field).and_then(Value::as_str);
    Some(Proposal {
        call: id.clone(),
        request_id: RequestId::new(text("request_id")?).ok()?,
        approve: input.get("approve")?.as_bool()?,
        feedback: text("feedback").unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Item::{Answer, Aside, End, Failure};
    use serde_json::json;

    fn entry(event: Value) -> Entry {
        let mut line = json!({"at": 1.0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}});
        line.as_object_mut()
            .unwrap()
            .extend(event.as_object().unwrap().clone());
        serde_json::from_value(line).unwrap()
    }

    fn answer(content: Value) -> Entry {
        let usage = json!({"input_tokens": 1, "output_tokens": 1});
        entry(json!({"entry": "answer", "content": content, "usage": usage}))
    }

    fn text(text: &str) -> Entry {
        answer(json!([{"type": "text", "text": text}]))
    }

    fn idle(reason: &str, content: &str) -> Entry {
        let id = "018f0000-0000-7000-8000-000000000000";
        entry(json!({"entry": "idle", "idle_reason": reason, "content": content, "message_id": id}))
    }

    fn says(said: &str) -> Item {
        Answer(said.to_owned())
    }

    #[test]
    fn an_answer_is_shown_once_piece_by_piece() {
        let mut view = ConversationView::new(&Name::lead(), false);
        assert_eq!(view.update("Hel", &[]), [says("Hel")]);
        assert_eq!(view.update("Hel", &[]), []);
        assert_eq!(view.update("Hello", &[]), [says("lo")]);
        assert_eq!(
            view.update("Hello the", &[text("Hello there")]),
            [says(" there"), End]
        );
        assert_eq!(
            view.update("Hello there", &[]),
            [],
            "what is left in the file is old"
        );
        assert_eq!(view.update("", &[]), []);
        assert_eq!(
            view.update("Hello", &[]),
            [says("Hello")],
            "the next answer begins like the last one"
        );
    }

    #[test]
    fn an_answer_that_was_not_streamed_is_shown_as_a_whole() {
        let mut view = ConversationView::new(&Name::lead(), false);
        let two = answer(json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]));
        assert_eq!(
            view.update("onetwo", std::slice::from_ref(&two)),
            [says("one\ntwo"), End]
        );
        assert_eq!(view.update("", &[]), []);
        assert_eq!(view.update("onetw", &[]), [says("onetw")]);
        assert_eq!(view.update("", &[two]), [says("o"), End]);
    }

    #[test]
    fn an_answer_that_was_complete_before_its_text_was_read_is_shown_once() {
        let mut view = ConversationView::new(&Name::lead(), false);
        assert_eq!(
            view.update("", &[text("Hello"), idle("available", "Hello")]),
            [says("Hello"), End]
        );
        assert_eq!(view.update("Hello", &[]), []);
    }

    #[test]
    fn an_answer_that_was_emptied_for_the_next_one_is_not_taken_for_a_broken_one() {
        let mut view = ConversationView::new(&Name::lead(), false);
        view.update("first", &[]);
        // Between two looks: the rest of the first, its end, and the beginning of the second.
        assert_eq!(
            view.update("sec", &[text("first!")]),
            [says("!"), End, says("sec")]
        );
    }

    #[test]
    fn a_broken_answer_begins_again_on_a_line_of_its_own() {
        let mut view = ConversationView::new(&Name::lead(), false);
        view.update("I thi", &[]);
        let broke = Aside("the answer broke off, and begins again".to_owned());
        assert_eq!(view.update("We", &[]), [End, broke, says("We")]);
        assert_eq!(
            view.update("We", &[text("You know")]),
            [End, says("You know"), End]
        );
        view.update("", &[]);
        view.update("more", &[]);
        let ended = view.update("more", &[idle("failed", "no credit")]);
        assert_eq!(ended[0], End);
        assert!(
            matches!(&ended[1], Failure(line) if line.contains("no credit")),
            "{ended:?}"
        );
    }

    #[test]
    fn an_answer_that_was_given_up_is_not_shown_again() {
        let mut view = ConversationView::new(&Name::lead(), false);
        view.update("I thi", &[]);
        assert_eq!(
            view.update("I thi", &[idle("interrupted", "")]),
            [End, Failure("interrupted".to_owned())]
        );
        assert_eq!(view.update("I think", &[]), []);
        assert_eq!(view.update("I think", &[]), []);
        assert_eq!(view.update("", &[]), []);
        assert_eq!(view.update("I th", &[]), [says("I th")]);
    }

    #[test]
    fn the_past_is_not_shown_and_what_is_under_way_is() {
        let mut view = ConversationView::new(&Name::lead(), false);
        view.skip(&[text("old"), idle("available", "old")], "old");
        assert_eq!((view.update("old", &[]), view.in_turn()), (vec![], false));
        let mut view = ConversationView::new(&Name::lead(), false);
        view.skip(&[text("old")], "new");
        assert_eq!(
            (view.update("new", &[]), view.in_turn()),
            (vec![says("new")], true)
        );
    }

    #[test]
    fn what_the_person_typed_is_not_repeated_and_other_messages_are_shown() {
        let mut view = ConversationView::new(&Name::lead(), false);
        let own = Uuid::from_u128(1);
        let other = Uuid::from_u128(2);
        view.sent(own);
        let message =
            |id: Uuid| json!({"id": id, "type": "message", "from": "user", "content": "hi"});
        let taken = entry(json!({"entry": "messages", "messages": [message(own), message(other)]}));
        assert_eq!(view.update("", &[taken]), [Aside("user: hi".to_owned())]);
        assert!(view.in_turn());
        view.update("", &[text("ok"), idle("available", "ok")]);
        assert_eq!(
            (view.in_turn(), view.ended()),
            (false, Some(IdleReason::Available))
        );
    }

    #[test]
    fn a_plan_that_the_chat_shows_is_not_shown_when_the_agent_reads_it() {
        let plan = json!({"type": "plan_approval_request", "from": "bob", "request_id": "a1", "plan": "p"});
        let taken = || entry(json!({"entry": "messages", "messages": [plan]}));
        let mut view = ConversationView::new(&Name::lead(), false);
        assert_eq!(
            view.update("", &[taken()]),
            [Aside("bob submits a plan (a1)".to_owned())]
        );
        let mut view = ConversationView::new(&Name::lead(), true);
        assert_eq!(
            (view.update("", &[taken()]), view.in_turn()),
            (vec![], true)
        );
    }

    #[test]
    fn a_verdict_of_the_lead_agent_is_a_proposal_until_it_has_a_result() {
        let mut view = ConversationView::new(&Name::lead(), false);
        let call = |input: Value| json!({"type": "tool_use", "id": "t1", "name": "plan_approval", "input": input});
        view.update("", &[answer(json!([call(json!({"plan": "mine"}))]))]);
        assert_eq!(view.proposals(), []);
        let input = json!({"request_id": "a1", "approve": true, "feedback": "go"});
        view.update("", &[answer(json!([call(input)]))]);
        let expected = Proposal {
            call: "t1".to_owned(),
            request_id: RequestId::new("a1").unwrap(),
            approve: true,
            feedback: "go".to_owned(),
        };
        assert_eq!(view.proposals(), [expected]);
        view.update(
            "",
            &[entry(
                json!({"entry": "result", "tool_use_id": "t1", "content": "x", "is_error": false}),
            )],
        );
        assert_eq!(view.proposals(), []);
    }
}
