//! Answers that reached the limit of one answer: the model goes on where a text was cut, a few
//! times, and a call of such an answer does not run, since a part of it may be missing.

use serde_json::Value;
use teamd_shared::message::RUNTIME;
use teamd_shared::transcript::Cut;

/// What the model reads when its text was cut.
pub const CONTINUE: &str = "Your answer was cut: it reached the limit of one answer. Continue exactly where it ended, and \
     repeat none of it.";

/// The result of a call in an answer that was cut.
pub const CUT_CALL: &str = "not run: your answer reached the limit of one answer, so this call may not be whole; make it \
     again in a shorter answer (write a long file in pieces)";

/// How often in a row an answer goes on.
const MOST: u32 = 3;

/// The answers that were cut, up to the last one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CutAnswers {
    last: Option<CutAnswer>,
    /// How many of them in a row are texts that go on.
    count: u32,
    /// What they said.
    text: String,
}

/// An answer that was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CutAnswer {
    /// A text that goes on. `told`: the model has read that it was cut.
    Text { told: bool },
    /// One with calls.
    Calls,
}

impl CutAnswers {
    /// Follows an answer. Returns all that it says, with the pieces of it that came before.
    pub(crate) fn answered(&mut self, text: String, cut: Option<Cut>, has_calls: bool) -> String {
        let text = std::mem::take(&mut self.text) + &text;
        self.last = None;
        if cut != Some(Cut::Length) {
            self.count = 0;
            return text;
        }
        if has_calls {
            self.last = Some(CutAnswer::Calls);
        } else if self.count < MOST {
            self.count += 1;
            self.last = Some(CutAnswer::Text { told: false });
            self.text.clone_from(&text);
        }
        text
    }

    /// Follows messages that the model has read.
    pub(crate) fn read(&mut self, messages: &[Value]) {
        let is_told = messages
            .iter()
            .any(|message| message["from"] == RUNTIME && message["content"] == CONTINUE);
        if let Some(CutAnswer::Text { told }) = &mut self.last {
            *told |= is_told;
        }
    }

    /// Tells whether the last answer is a text that goes on.
    pub fn goes_on(&self) -> bool {
        matches!(self.last, Some(CutAnswer::Text { .. }))
    }

    /// Tells whether the model is to be told that its text was cut.
    pub fn must_be_told(&self) -> bool {
        self.last == Some(CutAnswer::Text { told: false })
    }

    /// Tells whether the calls of the last answer do not run.
    pub fn has_calls(&self) -> bool {
        self.last == Some(CutAnswer::Calls)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told() -> [Value; 1] {
        [json!({"from": RUNTIME, "content": CONTINUE})]
    }

    #[test]
    fn a_text_goes_on_three_times_and_is_one_answer() {
        let mut cut = CutAnswers::default();
        let mut text = String::new();
        for piece in ["a", "b", "c"] {
            text = cut.answered(piece.to_owned(), Some(Cut::Length), false);
            assert!(cut.goes_on() && cut.must_be_told());
            cut.read(&[json!({"from": "bob", "content": CONTINUE})]);
            assert!(cut.must_be_told());
            cut.read(&told());
            assert!(cut.goes_on() && !cut.must_be_told());
        }
        assert_eq!(text, "abc");
        assert_eq!(
            cut.answered("d".to_owned(), Some(Cut::Length), false),
            "abcd"
        );
        assert!(!cut.goes_on(), "three times are enough");
        // Another answer that is cut may go on again.
        assert_eq!(cut.answered("whole".to_owned(), None, false), "whole");
        cut.answered("a".to_owned(), Some(Cut::Length), false);
        assert!(cut.goes_on());
        assert_eq!(cut.answered("z".to_owned(), None, false), "az");
    }

    #[test]
    fn calls_of_a_cut_answer_do_not_run_and_a_refusal_goes_on_nowhere() {
        let mut cut = CutAnswers::default();
        cut.answered("I write".to_owned(), Some(Cut::Length), true);
        assert!(cut.has_calls() && !cut.goes_on());
        assert_eq!(cut.answered("done".to_owned(), None, false), "done");
        assert!(!cut.has_calls());
        cut.answered("no".to_owned(), Some(Cut::Refusal), false);
        assert!(!cut.goes_on());
    }
}
