//! An answer that its service pauses: it is sent back as it is, nothing stands behind it, and the model goes on. Pure.
//!
//! Elsewhere it is one answer, which counts when it has ended. So no transcript holds a piece of one, and no message, no
//! crash and no compaction can come between its pieces: a worker that dies meanwhile asks anew.

use std::borrow::Cow;

use teamd_shared::transcript::{Block, Usage};

use super::draft::Piece;
use crate::model::prompt::{Part, Role, Turn};
use crate::model::{Answer, ModelError};

/// How often one answer may be paused. Each piece costs tokens, so an answer that never ends must be given up.
pub(super) const MOST: u32 = 10;

/// What is there of an answer.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    content: Vec<Block>,
    usage: Usage,
    times: u32,
}

impl Pieces {
    /// Takes in the next piece; returns the answer, if that is its end.
    ///
    /// # Errors
    /// [`ModelError::Failed`] if it was paused too often.
    pub(super) fn add(&mut self, piece: Piece) -> Result<Option<Answer>, ModelError> {
        let Piece { answer, paused } = piece;
        self.content.extend(answer.content);
        self.usage += answer.usage;
        // With a call in it, it goes on behind the result.
        if !paused || self.content.iter().any(|block| matches!(block, Block::ToolUse { .. })) {
            let Self { content, usage, times } = std::mem::take(self);
            // For each piece all of the conversation was read again, with the pieces before: only the last count is
            // its length.
            let last = answer.usage.input().saturating_add(answer.usage.output_tokens);
            let length = (times > 0).then_some(last);
            return Ok(Some(Answer { content, usage, cut: answer.cut, length }));
        }
        self.times += 1;
        if self.times > MOST {
            let why = format!("its service has paused this answer {} times, and it has no end", self.times);
            return Err(ModelError::Failed(why));
        }
        Ok(None)
    }

    /// Returns how often it was paused.
    pub(super) fn times(&self) -> u32 {
        self.times
    }

    /// Returns what is to be sent: the conversation, and what is there of the answer.
    pub(super) fn turns<'a>(&self, turns: &'a [Turn]) -> Cow<'a, [Turn]> {
        if self.content.is_empty() {
            return Cow::Borrowed(turns);
        }
        let mut turns = turns.to_vec();
        turns.push(Turn { role: Role::Assistant, parts: self.content.iter().map(Part::from).collect() });
        Cow::Owned(turns)
    }

    /// Returns what was heard of it.
    pub(super) fn text(&self) -> String {
        self.content.iter().filter_map(Block::text).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn piece(content: Vec<Block>, paused: bool) -> Piece {
        let usage = Usage { input_tokens: 10, output_tokens: 1, ..Usage::default() };
        Piece { answer: Answer { content, usage, cut: None, length: None }, paused }
    }

    fn text(text: &str) -> Block {
        Block::Text { text: text.to_owned() }
    }

    fn opaque(value: Value) -> Block {
        Block::Opaque { value }
    }

    fn asked() -> Vec<Turn> {
        vec![Turn { role: Role::User, parts: vec![Part::Text("search".to_owned())] }]
    }

    #[test]
    fn a_paused_answer_is_sent_back_as_it_is_and_its_pieces_become_one() {
        let mut pieces = Pieces::default();
        assert_eq!(*pieces.turns(&asked()), asked());
        let search = opaque(json!({"type": "server_tool_use", "id": "s"}));
        let found = opaque(json!({"type": "web_search_tool_result", "tool_use_id": "s"}));
        assert_eq!(pieces.add(piece(vec![text("I look. "), search.clone()], true)).unwrap(), None);
        assert_eq!((pieces.text(), pieces.times()), ("I look. ".to_owned(), 1));
        let turns = pieces.turns(&asked()).into_owned();
        assert_eq!((turns.len(), turns[1].role, turns[1].parts.len()), (2, Role::Assistant, 2));
        let whole = pieces.add(piece(vec![found.clone(), text("It is there.")], false)).unwrap().unwrap();
        assert_eq!(whole.content, [text("I look. "), search, found, text("It is there.")]);
        assert_eq!((whole.usage.input_tokens, whole.usage.output_tokens), (20, 2));
        assert_eq!(whole.length, Some(11), "the last piece was counted with all that stands before it");
    }

    #[test]
    fn a_piece_that_says_nothing_is_asked_for_again() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.add(piece(vec![], true)).unwrap(), None);
        assert_eq!(*pieces.turns(&asked()), asked());
    }

    #[test]
    fn calls_end_an_answer_whatever_its_service_says() {
        let input = json!({});
        let name = "bash".to_owned();
        let call = Block::ToolUse { id: "1".to_owned(), name, input, message_id: None, request_id: None };
        let whole = Pieces::default().add(piece(vec![call], true)).unwrap().unwrap();
        assert_eq!(whole.length, None, "what it cost says it");
    }

    #[test]
    fn an_answer_that_is_paused_for_ever_is_given_up() {
        let mut pieces = Pieces::default();
        for _ in 0..MOST {
            assert_eq!(pieces.add(piece(vec![text("and ")], true)).unwrap(), None);
        }
        let error = pieces.add(piece(vec![text("and ")], true)).unwrap_err();
        assert!(error.to_string().contains("paused"), "{error}");
    }
}
