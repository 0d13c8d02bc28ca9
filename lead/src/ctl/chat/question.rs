//! The question whether a plan is approved, after the lead agent has called for a verdict on it. Pure.

use teamd_shared::id::RequestId;

use super::view::Proposal;

/// The question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlanQuestion {
    proposal: Proposal,
    /// The question in words: which plan, of whom, how long.
    pub(super) text: String,
    /// Whether the person rejects the plan, and only the reason is missing.
    rejects: bool,
}

/// What the person answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PlanReply {
    /// The verdict.
    Verdict { approve: bool, feedback: String },
    /// The plan is rejected; the reason is asked for.
    Why,
    /// Not now.
    Later,
    /// The whole plan is to be shown.
    View,
    /// The line is a message to the agent.
    Message,
}

impl PlanQuestion {
    /// Asks whether the person agrees with the lead agent about a plan of `from` with so many lines.
    pub(super) fn new(proposal: Proposal, from: &str, lines: usize) -> Self {
        let lines = if lines == 1 { "1 line".to_owned() } else { format!("{lines} lines") };
        let text = format!("Approve plan {} of {from} ({lines})?", proposal.request_id);
        Self { proposal, text, rejects: false }
    }

    /// Returns the id of the plan.
    pub(super) fn request_id(&self) -> &RequestId {
        &self.proposal.request_id
    }

    /// Returns the prompt for the answer.
    pub(super) fn prompt(&self) -> &'static str {
        if self.rejects { "what shall change> " } else { "[y]es, [n]o, [v]iew, [l]ater> " }
    }

    /// Tells whether a text is an answer to such a question, and hardly a message.
    pub(super) fn is_answer(text: &str) -> bool {
        let words = ["y", "yes", "a", "approve", "n", "no", "r", "reject", "v", "view", "l", "later"];
        words.contains(&text.trim().to_lowercase().as_str())
    }

    /// Reads an answer. Only a whole word is one: the beginning of a sentence approves nothing.
    pub(super) fn read(&mut self, text: &str) -> PlanReply {
        let text = text.trim();
        // The feedback of the lead agent belongs to its own verdict.
        let of_lead = |approve: bool| match self.proposal.approve == approve {
            true => self.proposal.feedback.clone(),
            false => String::new(),
        };
        if self.rejects {
            let feedback = if text.is_empty() { of_lead(false) } else { text.to_owned() };
            return PlanReply::Verdict { approve: false, feedback };
        }
        match text.to_lowercase().as_str() {
            "y" | "yes" | "a" | "approve" => PlanReply::Verdict { approve: true, feedback: of_lead(true) },
            "n" | "no" | "r" | "reject" => {
                self.rejects = true;
                PlanReply::Why
            }
            "v" | "view" => PlanReply::View,
            "l" | "later" => PlanReply::Later,
            _ => PlanReply::Message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(approve: bool) -> PlanQuestion {
        let request_id = RequestId::new("a1").unwrap();
        let feedback = "mind the log".to_owned();
        PlanQuestion::new(Proposal { call: "t".to_owned(), request_id, approve, feedback }, "bob", 200)
    }

    fn gives(approve: bool, feedback: &str) -> PlanReply {
        PlanReply::Verdict { approve, feedback: feedback.to_owned() }
    }

    #[test]
    fn the_feedback_of_the_lead_agent_goes_with_its_own_verdict_only() {
        assert_eq!(question(true).read(" A "), gives(true, "mind the log"));
        assert_eq!(question(false).read("Approve"), gives(true, ""));
        for (recommended, typed, expected) in
            [(true, "", ""), (false, "", "mind the log"), (false, "a", "a"), (true, "smaller", "smaller")]
        {
            let mut question = question(recommended);
            assert_eq!(question.read("r"), PlanReply::Why);
            assert_eq!(question.read(typed), gives(false, expected));
        }
    }

    #[test]
    fn only_a_whole_word_is_an_answer() {
        for text in ["y", "yes", " Yes ", "a", "approve"] {
            assert_eq!(question(true).read(text), gives(true, "mind the log"), "{text}");
        }
        for text in ["n", "no", "r", "Reject"] {
            assert_eq!(question(true).read(text), PlanReply::Why, "{text}");
        }
        for text in ["", "ok", "a question first", "yes, but", "what does step 2 do?"] {
            assert_eq!(question(true).read(text), PlanReply::Message, "{text}");
        }
        assert_eq!(question(true).read("later"), PlanReply::Later);
        assert_eq!(question(true).read("v"), PlanReply::View);
        assert_eq!(question(true).text, "Approve plan a1 of bob (200 lines)?");
    }
}
