//! The question to the person whether a plan is approved. Pure.

use teamd_client::print::render::count;
use teamd_shared::id::RequestId;
use teamd_shared::request::Request;

use crate::chat::conversation::view::Proposal;

/// The question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::chat) struct PlanQuestion {
    /// The plan.
    pub(in crate::chat) request_id: RequestId,
    /// The question in words: which plan, its author and its length.
    pub(in crate::chat) text: String,
    /// The verdict for which the lead agent has called.
    pub(in crate::chat) proposal: Option<Proposal>,
    /// Whether the person rejects the plan, and only the reason is missing.
    rejects: bool,
}

/// What the person answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::chat) enum PlanReply {
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
    /// Asks about a plan, on which the lead agent may have called for a verdict.
    pub(in crate::chat) fn new(plan: &Request, proposal: Option<Proposal>) -> Self {
        let lines = count(text(plan).lines().count(), "line");
        let text = format!(
            "Approve {} {} of {} ({lines})?",
            plan.kind.noun(),
            plan.request_id,
            plan.from
        );
        Self {
            request_id: plan.request_id.clone(),
            text,
            proposal,
            rejects: false,
        }
    }

    /// Returns the prompt for the answer.
    pub(in crate::chat) fn prompt(&self) -> &'static str {
        if self.rejects {
            "what shall change> "
        } else {
            "[y]es, [n]o, [v]iew, [l]ater> "
        }
    }

    /// Tells whether a text is an answer to such a question, and hardly a message.
    pub(in crate::chat) fn is_answer(text: &str) -> bool {
        let words = [
            "y", "yes", "a", "approve", "n", "no", "r", "reject", "v", "view", "l", "later",
        ];
        words.contains(&text.trim().to_lowercase().as_str())
    }

    /// Returns the feedback of the lead agent, which belongs to its own verdict.
    fn feedback_of_lead(&self, approve: bool) -> String {
        match &self.proposal {
            Some(proposal) if proposal.approve == approve => proposal.feedback.clone(),
            _ => String::new(),
        }
    }

    /// Reads an answer. Only a whole word is one: the beginning of a sentence approves nothing.
    pub(in crate::chat) fn read(&mut self, text: &str) -> PlanReply {
        let text = text.trim();
        if self.rejects {
            let feedback = if text.is_empty() {
                self.feedback_of_lead(false)
            } else {
                text.to_owned()
            };
            return PlanReply::Verdict {
                approve: false,
                feedback,
            };
        }
        match text.to_lowercase().as_str() {
            "y" | "yes" | "a" | "approve" => PlanReply::Verdict {
                approve: true,
                feedback: self.feedback_of_lead(true),
            },
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

/// Returns the text of a plan, or what is to be reviewed.
pub(in crate::chat) fn text(asked: &Request) -> String {
    asked.payload.text().trim_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use teamd_shared::journal::{Line, Record};

    fn plan() -> Request {
        let line = teamd_client::testing::asked(1, "a1b2c3d4", "plan_approval");
        let Record::Request(record) = serde_json::from_str::<Line>(&line).unwrap().record else {
            panic!()
        };
        record.request
    }

    fn question(approve: bool) -> PlanQuestion {
        let call = "t".to_owned();
        let feedback = "mind the log".to_owned();
        let request_id = plan().request_id;
        PlanQuestion::new(
            &plan(),
            Some(Proposal {
                call,
                request_id,
                approve,
                feedback,
            }),
        )
    }

    fn gives(approve: bool, feedback: &str) -> PlanReply {
        PlanReply::Verdict {
            approve,
            feedback: feedback.to_owned(),
        }
    }

    #[test]
    fn the_feedback_of_the_lead_agent_goes_with_its_own_verdict_only() {
        assert_eq!(question(true).read(" A "), gives(true, "mind the log"));
        assert_eq!(question(false).read("Approve"), gives(true, ""));
        for (recommended, typed, expected) in [
            (true, "", ""),
            (false, "", "mind the log"),
            (false, "a", "a"),
            (true, "smaller", "smaller"),
        ] {
            let mut question = question(recommended);
            assert_eq!(question.read("r"), PlanReply::Why);
            assert_eq!(question.read(typed), gives(false, expected));
        }
    }

    #[test]
    fn only_a_whole_word_is_an_answer() {
        for text in ["y", "yes", " Yes ", "a", "approve"] {
            assert_eq!(
                question(true).read(text),
                gives(true, "mind the log"),
                "{text}"
            );
        }
        for text in ["n", "no", "r", "Reject"] {
            assert_eq!(question(true).read(text), PlanReply::Why, "{text}");
        }
        for text in [
            "",
            "ok",
            "a question first",
            "yes, but",
            "what does step 2 do?",
        ] {
            assert_eq!(question(true).read(text), PlanReply::Message, "{text}");
        }
        assert_eq!(question(true).read("later"), PlanReply::Later);
        assert_eq!(question(true).read("v"), PlanReply::View);
        let mut without = PlanQuestion::new(&plan(), None);
        assert_eq!(without.text, "Approve plan a1b2c3d4 of alice (2 lines)?");
        assert_eq!(without.read("y"), gives(true, ""));
    }
}
