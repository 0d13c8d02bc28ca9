//! A conversation as it is shown: what came of the answer in progress, and the entries of the transcript, become
//! pieces of output. Pure: no file, no terminal.
//!
//! The text of an answer reaches this twice: piece by piece while the model gives it, and as a whole when it is in
//! the transcript. It is shown once. Only the transcript is the truth: where the two differ, the whole is shown anew.

use std::collections::HashSet;

use serde_json::Value;
use teamd_shared::id::RequestId;
use teamd_shared::message::{Body, IdleReason, Message};
use teamd_shared::name::Name;
use teamd_shared::transcript::{Block, Cut, Entry, Event};
use uuid::Uuid;

use super::brief;

/// A piece of output, not yet escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// More of the agent's answer: it continues the line.
    Answer(String),
    /// The agent's answer is over: what follows begins on a line of its own.
    End,
    /// A line about what happens beside the answer.
    Aside(String),
    /// A line about what went wrong.
    Wrong(String),
}

/// A verdict on a plan for which the agent has called, and which a person confirms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proposal {
    /// The call.
    pub(super) call: String,
    /// The plan.
    pub(super) request_id: RequestId,
    /// What the agent would answer.
    pub(super) approve: bool,
    /// What it would say.
    pub(super) feedback: String,
}

/// What is known of a conversation.
#[derive(Debug)]
pub(super) struct View {
    /// Whose conversation it is.
    name: Name,
    /// What was shown of the answer in progress.
    shown: String,
    /// The text of the last whole answer, until the next one begins.
    whole: Option<String>,
    /// Whether a call was given up: what stands in the file until the next one begins is of no use.
    stale: bool,
    /// Messages that need not be shown: the person has just typed them.
    own: HashSet<Uuid>,
    /// Whether plans need not be shown when they are taken in: whoever looks is told of them otherwise.
    knows_plans: bool,
    /// Calls for a verdict without a result.
    proposals: Vec<Proposal>,
    /// Whether a turn runs.
    turn: bool,
    /// How the last piece of work ended.
    ended: Option<IdleReason>,
    /// The line about a last piece of work that failed.
    failure: Option<String>,
    /// How many pieces of work have ended.
    works: usize,
}

impl View {
    /// Knows nothing yet of the conversation of a member.
    pub(super) fn new(name: &Name) -> Self {
        Self {
            name: name.clone(),
            shown: String::new(),
            whole: None,
            stale: false,
            own: HashSet::new(),
            knows_plans: false,
            proposals: Vec::new(),
            turn: false,
            ended: None,
            failure: None,
            works: 0,
        }
    }

    /// Does not show plans when they are taken in.
    pub(super) fn without_plans(self) -> Self {
        Self { knows_plans: true, ..self }
    }

    /// Does not show a message when it is taken in.
    pub(super) fn sent(&mut self, id: Uuid) {
        self.own.insert(id);
    }

    /// Tells whether a turn runs, as far as the transcript says.
    pub(super) fn in_turn(&self) -> bool {
        self.turn
    }

    /// Returns how the last piece of work ended; none while the next one is under way.
    pub(super) fn ended(&self) -> Option<IdleReason> {
        self.ended
    }

    /// Returns why the last piece of work failed, if it has; none while the next one is under way.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref().filter(|_| self.ended == Some(IdleReason::Failed))
    }

    /// Returns how many pieces of work have ended since this began to look.
    pub(super) fn works(&self) -> usize {
        self.works
    }

    /// Returns the verdicts that the agent has called for, oldest first.
    pub(super) fn proposals(&self) -> &[Proposal] {
        &self.proposals
    }

    /// Takes in what happened before anybody looked, and is not shown: the entries, and the text of the answer that was
    /// read before them, which is a whole one unless a model call runs.
    pub(super) fn past(&mut self, entries: &[Entry], live: &str) {
        let mut unseen = Vec::new();
        entries.iter().for_each(|entry| self.entry(&entry.event, &mut unseen));
        if !self.turn {
            (self.whole, self.stale) = (Some(live.to_owned()), false);
        }
        self.works = 0;
    }

    /// Takes in what has happened: the text of the answer in progress, and the entries that were read *after* it. In
    /// this order an answer that was emptied for the next one is always among the entries.
    pub(super) fn round(&mut self, live: &str, entries: &[Entry]) -> Vec<Piece> {
        let (mut pieces, was_stale) = (Vec::new(), self.stale);
        for entry in entries {
            self.entry(&entry.event, &mut pieces);
        }
        match (was_stale, self.stale) {
            (_, false) => self.live(live, &mut pieces),
            // It may have grown before the call was given up: only the next look knows all of it.
            (false, true) => {}
            (true, true) => (self.whole, self.stale) = (Some(live.to_owned()), false),
        }
        pieces
    }

    fn live(&mut self, live: &str, pieces: &mut Vec<Piece>) {
        if let Some(whole) = &self.whole {
            // What stands there is still the answer that was shown as a whole.
            if !live.is_empty() && whole.starts_with(live) {
                return;
            }
            self.whole = None;
        }
        if let Some(more) = live.strip_prefix(self.shown.as_str()) {
            if !more.is_empty() {
                pieces.push(Piece::Answer(more.to_owned()));
                self.shown.push_str(more);
            }
        } else {
            // The attempt was given up, and the next one begins.
            pieces.extend([Piece::End, Piece::Aside("the answer broke off, and begins again".to_owned())]);
            if !live.is_empty() {
                pieces.push(Piece::Answer(live.to_owned()));
            }
            live.clone_into(&mut self.shown);
        }
    }

    fn entry(&mut self, event: &Event, pieces: &mut Vec<Piece>) {
        match event {
            Event::Life { incarnation, conversation, prompt } => {
                self.give_up(pieces);
                self.turn = prompt.is_some() && incarnation == conversation;
                if incarnation != conversation {
                    pieces.push(Piece::Aside(format!("life {incarnation} goes on with the conversation")));
                } else if let Some(prompt) = prompt {
                    pieces.push(Piece::Aside(brief::prompt(prompt)));
                }
            }
            Event::Messages { messages } => {
                self.turn |= !event.is_rest(&self.name);
                let new = messages.iter().filter(|value| !self.is_known(value));
                pieces.extend(new.map(|value| Piece::Aside(brief::taken_in(value))));
            }
            Event::Answer { content, cut, .. } => self.answer(content, *cut, pieces),
            // What it came to is told by what follows.
            Event::Paid { .. } => {}
            Event::Result { tool_use_id, content, is_error } => {
                self.proposals.retain(|proposal| proposal.call != *tool_use_id);
                let line = brief::result(content);
                pieces.push(if *is_error { Piece::Wrong(line) } else { Piece::Aside(line) });
            }
            Event::Idle { idle_reason, content, .. } => {
                self.give_up(pieces);
                self.proposals.clear();
                (self.turn, self.ended, self.works) = (false, Some(*idle_reason), self.works + 1);
                self.failure = brief::ended(*idle_reason, content);
                if let Some(line) = self.failure.clone() {
                    pieces.push(Piece::Wrong(line));
                }
            }
            Event::Left { reason, .. } => {
                self.give_up(pieces);
                self.turn = false;
                pieces.push(Piece::Aside(brief::line(&format!("left: {reason}"))));
            }
            Event::Asked { reason, .. } => pieces.push(Piece::Aside(brief::asked(reason))),
            Event::Compacted { .. } => {
                pieces.push(Piece::Aside(
                    "the conversation grew long: what came before is summed up".to_owned(),
                ));
            }
            Event::Rejected { offset, reason, .. } => {
                let line = format!("the line at offset {offset} of the inbox is no message: {reason}");
                pieces.push(Piece::Wrong(brief::line(&line)));
            }
            Event::Restarted { reason } => {
                pieces
                    .push(Piece::Wrong(brief::line(&format!("the inbox is read from its start: {reason}"))));
            }
        }
    }

    fn answer(&mut self, content: &[Block], cut: Option<Cut>, pieces: &mut Vec<Piece>) {
        (self.turn, self.ended) = (true, None);
        let texts: Vec<&str> = content.iter().filter_map(Block::text).collect();
        // As it came, and as the blocks stand.
        let (came, stands) = (texts.concat(), texts.join("\n"));
        let shown = std::mem::take(&mut self.shown);
        let rest = came.strip_prefix(shown.as_str()).or_else(|| stands.strip_prefix(shown.as_str()));
        let agrees = rest.is_some();
        match rest.map(str::to_owned) {
            Some(_) if shown.is_empty() => {
                if !stands.is_empty() {
                    pieces.push(Piece::Answer(stands));
                }
            }
            Some(rest) if rest.is_empty() => {}
            Some(rest) => pieces.push(Piece::Answer(rest)),
            None => pieces.extend([Piece::End, Piece::Answer(stands)]),
        }
        // What stands in the file is this answer; if it is not, the next look knows what.
        (self.whole, self.stale) = (agrees.then_some(came), !agrees);
        pieces.push(Piece::End);
        if let Some(cut) = cut {
            pieces.push(Piece::Wrong(brief::cut(cut).to_owned()));
        }
        for block in content {
            if let Block::ToolUse { id, name, input, .. } = block {
                pieces.push(Piece::Aside(brief::call(name, input)));
                self.proposals.extend(proposal(id, name, input));
            }
        }
    }

    /// An answer that was under way will not come.
    fn give_up(&mut self, pieces: &mut Vec<Piece>) {
        if !std::mem::take(&mut self.shown).is_empty() {
            pieces.push(Piece::End);
        }
        self.stale |= self.whole.is_none();
    }

    fn is_known(&mut self, value: &Value) -> bool {
        let Ok(message) = Message::from_json(value.clone()) else { return false };
        let plan = self.knows_plans && matches!(message.body, Body::PlanApprovalRequest { .. });
        plan || message.id.is_some_and(|id| self.own.remove(&id))
    }
}

/// Reads a call of the lead agent that answers a plan. A teammate's own plan has no request id in its input.
fn proposal(call: &str, name: &str, input: &Value) -> Option<Proposal> {
    if name != "plan_approval" {
        return None;
    }
    let text = |field: &str| input.get(field).and_then(Value::as_str);
    Some(Proposal {
        call: call.to_owned(),
        request_id: RequestId::new(text("request_id")?).ok()?,
        approve: input.get("approve")?.as_bool()?,
        feedback: text("feedback").unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Piece::{Answer, Aside, End, Wrong};
    use serde_json::json;

    fn entry(event: Value) -> Entry {
        let mut line = json!({"at": 1.0, "inbox": {"offset": 0, "tail": "cbf29ce484222325"}});
        line.as_object_mut().unwrap().extend(event.as_object().unwrap().clone());
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

    fn says(said: &str) -> Piece {
        Answer(said.to_owned())
    }

    #[test]
    fn an_answer_is_shown_once_piece_by_piece() {
        let mut view = View::new(&Name::lead());
        assert_eq!(view.round("Hel", &[]), [says("Hel")]);
        assert_eq!(view.round("Hel", &[]), []);
        assert_eq!(view.round("Hello", &[]), [says("lo")]);
        assert_eq!(view.round("Hello the", &[text("Hello there")]), [says(" there"), End]);
        assert_eq!(view.round("Hello there", &[]), [], "what is left in the file is old");
        assert_eq!(view.round("", &[]), []);
        assert_eq!(view.round("Hello", &[]), [says("Hello")], "the next answer begins like the last one");
    }

    #[test]
    fn an_answer_that_nobody_watched_is_shown_as_a_whole() {
        let mut view = View::new(&Name::lead());
        let two = answer(json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]));
        assert_eq!(view.round("onetwo", std::slice::from_ref(&two)), [says("one\ntwo"), End]);
        assert_eq!(view.round("", &[]), []);
        assert_eq!(view.round("onetw", &[]), [says("onetw")]);
        assert_eq!(view.round("", &[two]), [says("o"), End]);
    }

    #[test]
    fn an_answer_that_was_emptied_for_the_next_one_is_not_taken_for_a_broken_one() {
        let mut view = View::new(&Name::lead());
        view.round("first", &[]);
        // Between two looks: the rest of the first, its end, and the beginning of the second.
        assert_eq!(view.round("sec", &[text("first!")]), [says("!"), End, says("sec")]);
    }

    #[test]
    fn a_broken_answer_begins_again_on_a_line_of_its_own() {
        let mut view = View::new(&Name::lead());
        view.round("I thi", &[]);
        let broke = Aside("the answer broke off, and begins again".to_owned());
        assert_eq!(view.round("We", &[]), [End, broke, says("We")]);
        assert_eq!(view.round("We", &[text("You know")]), [End, says("You know"), End]);
        view.round("", &[]);
        view.round("more", &[]);
        assert_eq!(view.failure(), None);
        let ended = view.round("more", &[idle("failed", "no credit")]);
        assert_eq!(view.failure(), Some("failed: no credit"));
        assert_eq!(ended[0], End);
        assert!(matches!(&ended[1], Wrong(line) if line.contains("no credit")), "{ended:?}");
    }

    #[test]
    fn an_answer_that_was_given_up_is_not_shown_again() {
        let mut view = View::new(&Name::lead());
        view.round("I thi", &[]);
        assert_eq!(view.round("I thi", &[idle("interrupted", "")]), [End, Wrong("interrupted".to_owned())]);
        assert_eq!(view.round("I think", &[]), []);
        assert_eq!(view.round("I think", &[]), []);
        assert_eq!(view.round("", &[]), []);
        assert_eq!(view.round("I th", &[]), [says("I th")]);
    }

    #[test]
    fn the_past_is_not_shown_and_what_is_under_way_is() {
        let mut view = View::new(&Name::lead());
        view.past(&[text("old"), idle("available", "old")], "old");
        assert_eq!((view.round("old", &[]), view.in_turn(), view.works()), (vec![], false, 0));
        let mut view = View::new(&Name::lead());
        view.past(&[text("old")], "new");
        assert_eq!((view.round("new", &[]), view.in_turn()), (vec![says("new")], true));
    }

    #[test]
    fn what_the_person_typed_is_not_repeated_and_what_others_say_is() {
        let mut view = View::new(&Name::lead());
        let (own, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        view.sent(own);
        let message = |id: Uuid| json!({"id": id, "type": "message", "from": "user", "content": "hi"});
        let taken = entry(json!({"entry": "messages", "messages": [message(own), message(other)]}));
        assert_eq!(view.round("", &[taken]), [Aside("user: hi".to_owned())]);
        assert!(view.in_turn());
        view.round("", &[text("ok"), idle("available", "ok")]);
        assert_eq!((view.in_turn(), view.ended(), view.works()), (false, Some(IdleReason::Available), 1));
    }

    #[test]
    fn a_plan_that_is_told_otherwise_is_not_shown_when_it_is_taken_in() {
        let plan = json!({"type": "plan_approval_request", "from": "bob", "request_id": "a1", "plan": "p"});
        let taken = || entry(json!({"entry": "messages", "messages": [plan]}));
        let mut view = View::new(&Name::lead());
        assert_eq!(view.round("", &[taken()]), [Aside("bob submits a plan (a1)".to_owned())]);
        let mut view = View::new(&Name::lead()).without_plans();
        assert_eq!((view.round("", &[taken()]), view.in_turn()), (vec![], true));
    }

    #[test]
    fn a_verdict_of_the_lead_agent_is_a_proposal_until_it_has_a_result() {
        let mut view = View::new(&Name::lead());
        let call =
            |input: Value| json!({"type": "tool_use", "id": "t1", "name": "plan_approval", "input": input});
        view.round("", &[answer(json!([call(json!({"plan": "mine"}))]))]);
        assert_eq!(view.proposals(), []);
        let input = json!({"request_id": "a1", "approve": true, "feedback": "go"});
        view.round("", &[answer(json!([call(input)]))]);
        let expected = Proposal {
            call: "t1".to_owned(),
            request_id: RequestId::new("a1").unwrap(),
            approve: true,
            feedback: "go".to_owned(),
        };
        assert_eq!(view.proposals(), [expected]);
        view.round(
            "",
            &[entry(json!({"entry": "result", "tool_use_id": "t1", "content": "x", "is_error": false}))],
        );
        assert_eq!(view.proposals(), []);
    }
}
