//! A question to the person: shall a plan be approved, on which the lead agent has called for a verdict? Pure.

use teamd_shared::id::RequestId;
use teamd_shared::request::{Payload, Request};

use super::view::Proposal;

/// The question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    proposal: Proposal,
    /// Whether the answer is no, and only the reason is missing.
    rejects: bool,
}

/// What the person means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// The verdict.
    Give {
        /// Yes or no.
        approve: bool,
        /// What to mind, or to change.
        feedback: String,
    },
    /// No; the reason is asked for.
    Why,
    /// Not now.
    Later,
    /// It is no answer.
    Unclear,
}

impl Question {
    /// Asks whether a person agrees.
    pub(super) fn new(proposal: Proposal) -> Self {
        Self { proposal, rejects: false }
    }

    /// Returns the plan.
    pub(super) fn request_id(&self) -> &RequestId {
        &self.proposal.request_id
    }

    /// Returns the call for a verdict.
    pub(super) fn call(&self) -> &str {
        &self.proposal.call
    }

    /// Returns what stands in front of the answer.
    pub(super) fn prompt(&self) -> &'static str {
        if self.rejects { "what shall change> " } else { "[a]pprove, [r]eject, [l]ater> " }
    }

    /// Shows the plan, whose it is, and what the lead agent would answer.
    pub(super) fn heading(&self, request: &Request) -> (String, String, String) {
        let plan = match &request.payload {
            Payload::Plan { plan } => plan.clone(),
            Payload::Shutdown { .. } => String::new(),
        };
        let verdict = if self.proposal.approve { "approve" } else { "reject" };
        let why = match self.proposal.feedback.as_str() {
            "" => String::new(),
            feedback => format!(": {feedback}"),
        };
        let heading = format!("the plan {} of {}:", request.request_id, request.from);
        (heading, plan, format!("the lead agent would {verdict} it{why}"))
    }

    /// Tells whether a text is an answer to any question, and hardly anything else.
    pub(super) fn is_word(text: &str) -> bool {
        matches!(text.trim().to_lowercase().as_str(), "a" | "approve" | "r" | "reject" | "l" | "later")
    }

    /// Reads an answer. Only a word of its own is one: nobody approves by the beginning of a sentence.
    pub(super) fn read(&mut self, text: &str) -> Reply {
        let text = text.trim();
        let of_lead = |approve: bool| match self.proposal.approve == approve {
            true => self.proposal.feedback.clone(),
            false => String::new(),
        };
        if self.rejects {
            let feedback = if text.is_empty() { of_lead(false) } else { text.to_owned() };
            return Reply::Give { approve: false, feedback };
        }
        match text.to_lowercase().as_str() {
            "a" | "approve" => Reply::Give { approve: true, feedback: of_lead(true) },
            "r" | "reject" => {
                self.rejects = true;
                Reply::Why
            }
            "l" | "later" => Reply::Later,
            _ => Reply::Unclear,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(approve: bool) -> Question {
        let request_id = RequestId::new("a1").unwrap();
        Question::new(Proposal {
            call: "t".to_owned(),
            request_id,
            approve,
            feedback: "mind the log".to_owned(),
        })
    }

    fn gives(approve: bool, feedback: &str) -> Reply {
        Reply::Give { approve, feedback: feedback.to_owned() }
    }

    #[test]
    fn the_feedback_of_the_lead_agent_goes_with_its_own_verdict_only() {
        assert_eq!(question(true).read(" A "), gives(true, "mind the log"));
        assert_eq!(question(false).read("Approve"), gives(true, ""));
        for (recommended, typed, expected) in
            [(true, "", ""), (false, "", "mind the log"), (false, "a", "a"), (true, "smaller", "smaller")]
        {
            let mut question = question(recommended);
            assert_eq!(question.read("r"), Reply::Why);
            assert_eq!(question.read(typed), gives(false, expected));
        }
    }

    #[test]
    fn a_sentence_approves_nothing() {
        assert_eq!(question(true).read("a question first"), Reply::Unclear);
        for text in ["", "y", "yes", "n", "no", "ok"] {
            assert_eq!(question(true).read(text), Reply::Unclear, "{text}");
        }
        assert_eq!(question(true).read("later"), Reply::Later);
    }
}
