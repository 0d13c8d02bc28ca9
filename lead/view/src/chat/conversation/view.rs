//! A conversation as it is shown: the entries of the transcript become parts, and the text of the
//! answer in progress comes below them. Pure: no file, no terminal.
//!
//! The text of an answer arrives twice: piece by piece while the model gives it, and complete when
//! it is in the transcript. It is shown once, and the transcript is right.

use std::collections::HashSet;

use serde_json::Value;
use teamd_shared::id::RequestId;
use teamd_shared::message::{Body, IdleReason, Message};
use teamd_shared::name::Name;
use teamd_shared::transcript::{Block, Entry, Event};
use uuid::Uuid;

use crate::model::{ConversationPart, PartReader};

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
    parts: PartReader,
    /// The text of the answer in progress.
    live: String,
    /// A text that the file of that answer may still have, and that is shown already.
    stale: String,
    /// Messages that are not shown: the person has just typed them.
    own: HashSet<Uuid>,
    /// Whether plans are hidden when the agent reads them, because the chat shows them itself.
    hides_plans: bool,
    proposals: Vec<Proposal>,
    ended: Option<IdleReason>,
}

impl ConversationView {
    /// Begins with nothing of a member's conversation. With `hides_plans` a plan that the agent
    /// reads is not shown.
    pub(in crate::chat) fn new(name: &Name, hides_plans: bool) -> Self {
        Self {
            parts: PartReader::new(name),
            live: String::new(),
            stale: String::new(),
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

    /// Returns the text of the answer in progress.
    pub(in crate::chat) fn live(&self) -> &str {
        &self.live
    }

    /// Returns how the last piece of work ended; none while the next one is in progress.
    pub(in crate::chat) fn ended(&self) -> Option<IdleReason> {
        self.ended
    }

    /// Returns the verdicts for which the agent has called without a result yet, oldest first.
    pub(in crate::chat) fn proposals(&self) -> &[Proposal] {
        &self.proposals
    }

    /// Returns the parts that are new: those of the entries that were read *after* the text of the
    /// answer in progress.
    pub(in crate::chat) fn update(
        &mut self,
        live: &str,
        entries: &[Entry],
    ) -> Vec<ConversationPart> {
        let mut parts = Vec::new();
        for entry in entries {
            if entry.call.is_none() {
                self.entry(&entry.event, &mut parts);
            } else {
                parts.extend(self.parts.of_entry(entry));
            }
        }
        if !self.in_turn() {
            live.clone_into(&mut self.stale);
        }
        // The file of an answer that breaks off is emptied before the transcript says so.
        let may_break_off = live.is_empty() && self.in_turn();
        if !may_break_off {
            self.live.clear();
        }
        if !self.stale.starts_with(live) {
            self.live.push_str(live);
        }
        parts
    }

    fn entry(&mut self, event: &Event, parts: &mut Vec<ConversationPart>) {
        match event {
            Event::Incarnation { .. } | Event::Left { .. } => self.break_off(parts),
            Event::Answer { content, .. } => {
                self.ended = None;
                self.live.clear();
                self.stale = content.iter().filter_map(Block::text).collect();
                self.proposals.extend(content.iter().filter_map(proposal));
            }
            Event::Result { tool_use_id, .. } => {
                self.proposals.retain(|it| it.call != *tool_use_id)
            }
            Event::Idle { idle_reason, .. } => {
                self.break_off(parts);
                self.proposals.clear();
                self.ended = Some(*idle_reason);
            }
            _ => {}
        }
        let mut new = self.parts.of(event);
        if let Event::Messages { messages } = event {
            let mut messages = messages.iter();
            new.retain(|_| messages.next().is_none_or(|value| !self.is_hidden(value)));
        }
        new.retain(|part| !matches!(part, ConversationPart::Detail(_)));
        parts.append(&mut new);
    }

    /// Keeps the text of an answer that will not be completed.
    fn break_off(&mut self, parts: &mut Vec<ConversationPart>) {
        if !self.live.is_empty() {
            parts.push(ConversationPart::Answer(std::mem::take(&mut self.live)));
        }
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
    use serde_json::json;

    fn entry(event: Value) -> Entry {
        let mut line = json!({"at": 1.0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}});
        line.as_object_mut()
            .unwrap()
            .extend(event.as_object().unwrap().clone());
        serde_json::from_value(line).unwrap()
    }

    fn answer(content: Value) -> Entry {
        let usage = json!({"input_tokens": 1, "output_tokens": 1, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0});
        entry(json!({"entry": "answer", "content": content, "usage": usage}))
    }

    fn text(text: &str) -> Entry {
        answer(json!([{"type": "text", "text": text}]))
    }

    fn idle(reason: &str, content: &str) -> Entry {
        let id = "018f0000-0000-7000-8000-000000000000";
        entry(json!({"entry": "idle", "idle_reason": reason, "content": content, "message_id": id}))
    }

    fn says(text: &str) -> ConversationPart {
        ConversationPart::Answer(text.to_owned())
    }

    fn view() -> ConversationView {
        let mut view = ConversationView::new(&Name::lead(), false);
        let message = json!({"type": "message", "from": "user", "content": "hi"});
        view.update(
            "",
            &[entry(json!({"entry": "messages", "messages": [message]}))],
        );
        view
    }

    #[test]
    fn an_answer_is_shown_once_whatever_its_file_still_has() {
        let mut view = view();
        assert_eq!((view.update("Hel", &[]), view.live()), (vec![], "Hel"));
        let parts = view.update("Hello the", &[text("Hello there")]);
        assert_eq!((parts, view.live()), (vec![says("Hello there")], ""));
        for stale in ["Hello there", "Hello", ""] {
            assert_eq!((view.update(stale, &[]), view.live()), (vec![], ""));
        }
        assert_eq!((view.update("We", &[]), view.live()), (vec![], "We"));
        // Between two looks: the end of one answer, and the beginning of the next.
        let parts = view.update("sec", &[text("We do!")]);
        assert_eq!((parts, view.live()), (vec![says("We do!")], "sec"));
    }

    #[test]
    fn an_answer_that_was_not_streamed_is_shown_as_a_whole() {
        let mut view = view();
        let two = answer(json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]));
        assert_eq!(view.update("onetwo", &[two]), [says("one\ntwo")]);
        assert_eq!((view.update("onetwo", &[]), view.live()), (vec![], ""));
    }

    #[test]
    fn an_answer_that_breaks_off_stays_and_is_not_shown_again() {
        let mut view = view();
        view.update("I thi", &[]);
        assert_eq!((view.update("", &[]), view.live()), (vec![], "I thi"));
        let ended = view.update("", &[idle("interrupted", "")]);
        let failure = ConversationPart::Failure("interrupted".to_owned());
        assert_eq!((ended, view.live()), (vec![says("I thi"), failure], ""));
        assert_eq!((view.update("I think", &[]), view.live()), (vec![], ""));
        let mut other = self::view();
        other.update("I thi", &[]);
        assert_eq!((other.update("We", &[]), other.live()), (vec![], "We"));
    }

    #[test]
    fn what_is_in_progress_at_the_first_look_is_shown() {
        let mut view = ConversationView::new(&Name::lead(), false);
        view.update("old", &[text("old"), idle("available", "old")]);
        assert_eq!((view.live(), view.in_turn()), ("", false));
        let mut view = ConversationView::new(&Name::lead(), false);
        view.update("new", &[text("old")]);
        assert_eq!((view.live(), view.in_turn()), ("new", true));
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
        assert_eq!(
            view.update("", &[taken]),
            [ConversationPart::Said {
                from: "user".to_owned(),
                text: "hi".to_owned()
            }]
        );
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
            [ConversationPart::Aside(
                "bob submits a plan (a1)".to_owned()
            )]
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
