//! The question about a plan on the screen, and which line that the person types answers it. Pure.
//!
//! A line answers a question only if that question was on the screen, long enough to be read, when
//! the line was begun.

use std::time::{Duration, Instant};

use ratatui::layout::Rect;
use teamd_shared::id::RequestId;
use teamd_shared::request::Request;

use crate::chat::conversation::view::Proposal;
use crate::chat::prompt::question::{PlanQuestion, text};
use crate::terminal::{Pager, SETTLES, source};
use teamd_client::print::escape;
use teamd_client::print::render::BOLD;
use teamd_client::print::style::paint;

/// What the person is asked, and what they have answered so far.
#[derive(Debug, Default)]
pub(super) struct Questions {
    pub(super) open: Option<OpenQuestion>,
    /// The question that the person saw when they began the line.
    begun: Option<QuestionId>,
    /// The calls for a verdict that the person has seen, and the plans that the person has put off.
    handled: Vec<String>,
}

/// Tells two questions apart: another recommendation about the same plan makes another question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QuestionId {
    request_id: RequestId,
    /// The call in which the lead agent recommends a verdict.
    call: Option<String>,
}

impl Questions {
    /// Tells whether the person has seen a call for a verdict, or has put a plan off.
    pub(super) fn is_handled(&self, id: &str) -> bool {
        self.handled.iter().any(|handled| handled == id)
    }

    /// Notes that the person has seen a call for a verdict, or has put a plan off.
    pub(super) fn handle(&mut self, id: String) {
        self.handled.push(id);
    }

    /// Remembers what the person sees who begins a line.
    pub(super) fn note_beginning(&mut self) {
        let settled = self.open.as_ref().filter(|open| open.is_settled());
        self.begun = settled.map(OpenQuestion::id);
    }

    /// Tells whether the line answers the open question, or would if it was begun now.
    pub(super) fn is_answered_by_line(&self, line_is_empty: bool) -> bool {
        match &self.open {
            None => false,
            Some(open) if line_is_empty => open.is_settled(),
            Some(open) => self.begun.as_ref() == Some(&open.id()),
        }
    }

    /// Ends the line. Returns the question that it was begun for.
    pub(super) fn take_begun(&mut self) -> Option<QuestionId> {
        self.begun.take()
    }
}

/// The plan about which the person is asked, on the screen.
#[derive(Debug)]
pub(super) struct OpenQuestion {
    pub(super) question: PlanQuestion,
    /// The plan as an agent wrote it.
    plan: String,
    /// What the plan is, for people.
    pub(super) heading: String,
    pub(super) pager: Pager,
    /// Whether the plan has the place of the conversation, too.
    pub(super) is_whole: bool,
    /// Where the plan is on the screen.
    pub(super) area: Rect,
    /// Since when the question is on the screen.
    shown: Option<Instant>,
}

impl OpenQuestion {
    pub(super) fn new(plan: &Request, proposal: Option<Proposal>) -> Self {
        let noun = plan.kind.noun();
        Self {
            question: PlanQuestion::new(plan, proposal),
            plan: text(plan),
            heading: format!("{noun} {} of {}", plan.request_id, plan.from),
            pager: Pager::default(),
            is_whole: false,
            area: Rect::default(),
            shown: None,
        }
    }

    pub(super) fn id(&self) -> QuestionId {
        let call = self.question.proposal.as_ref();
        QuestionId {
            request_id: self.question.request_id.clone(),
            call: call.map(|proposal| proposal.call.clone()),
        }
    }

    /// Returns the id of the plan.
    pub(super) fn request_id(&self) -> &RequestId {
        &self.question.request_id
    }

    /// Returns the question in words.
    pub(super) fn text(&self) -> &str {
        &self.question.text
    }

    /// Takes the recommendation of the lead agent: from now on it is another question.
    pub(super) fn recommend(&mut self, proposal: Proposal) {
        self.question.proposal = Some(proposal);
        self.shown = None;
    }

    /// Returns what a verdict is about: the plan as it was written, and the feedback that may be
    /// sent with the verdict.
    pub(super) fn page(&self) -> String {
        let mut page = source(&self.plan);
        if let Some(proposal) = &self.question.proposal
            && !proposal.feedback.is_empty()
        {
            let when = if proposal.approve {
                "If you approve it, this feedback of the lead agent is sent with your answer:"
            } else {
                "If you reject it and give no reason, this one of the lead agent is sent:"
            };
            let feedback = escape::text(&proposal.feedback);
            page.push_str(&format!("\n{}\n{feedback}\n", paint(BOLD, when)));
        }
        page
    }

    /// Notes that the question is on the screen.
    pub(super) fn note_shown(&mut self, now: Instant) {
        self.shown.get_or_insert(now);
    }

    /// Notes that something else has had the screen.
    pub(super) fn note_hidden(&mut self) {
        self.shown = None;
    }

    /// Tells whether the question has been on the screen for long enough: a key that came sooner
    /// was meant for what was there before.
    pub(super) fn is_settled(&self) -> bool {
        self.shown.is_some() && self.settles_in().is_none()
    }

    /// Returns in what time that is so; none if it is so, or the question is not on the screen.
    pub(super) fn settles_in(&self) -> Option<Duration> {
        let left = SETTLES.saturating_sub(self.shown?.elapsed());
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use teamd_shared::journal::{Line, Record};

    /// A question about a plan of two lines.
    pub(in crate::chat::session) fn question() -> OpenQuestion {
        let line = teamd_client::testing::asked(1, "a1b2c3d4", "plan_approval");
        let Record::Request(record) = serde_json::from_str::<Line>(&line).unwrap().record else {
            panic!()
        };
        OpenQuestion::new(&record.request, None)
    }

    fn settle(questions: &mut Questions) {
        let open = questions.open.as_mut().unwrap();
        open.shown = Instant::now().checked_sub(SETTLES);
    }

    fn proposal(call: &str) -> Proposal {
        Proposal {
            call: call.to_owned(),
            request_id: RequestId::new("a1b2c3d4").unwrap(),
            approve: true,
            feedback: "and \x1b[8mpush".to_owned(),
        }
    }

    #[test]
    fn a_line_answers_only_the_question_that_was_read_when_it_was_begun() {
        let mut questions = Questions {
            open: Some(question()),
            ..Questions::default()
        };
        assert!(!questions.is_answered_by_line(true), "it was never drawn");
        questions.open.as_mut().unwrap().note_shown(Instant::now());
        questions.note_beginning();
        assert!(!questions.is_answered_by_line(false), "it was not read");
        settle(&mut questions);
        questions.note_beginning();
        assert!(questions.is_answered_by_line(false));
        // Something else had the screen, such as a command of the person.
        questions.open.as_mut().unwrap().note_hidden();
        questions.note_beginning();
        assert!(!questions.is_answered_by_line(false));
    }

    #[test]
    fn a_recommendation_that_arrives_while_the_person_answers_makes_another_question() {
        let mut questions = Questions {
            open: Some(question()),
            ..Questions::default()
        };
        settle(&mut questions);
        questions.note_beginning();
        let open = questions.open.as_mut().unwrap();
        open.recommend(proposal("call1"));
        assert!(!questions.is_answered_by_line(false));
        let open = questions.open.as_ref().unwrap();
        assert_ne!(questions.begun, Some(open.id()));
        assert!(
            open.page().contains("and \\u{1b}[8mpush"),
            "{}",
            open.page()
        );
        // Nor does a line that is begun at once: the feedback was not read.
        questions.note_beginning();
        assert!(!questions.is_answered_by_line(false));
        settle(&mut questions);
        questions.note_beginning();
        assert!(questions.is_answered_by_line(false));
    }

    #[test]
    fn what_goes_with_an_approval_must_be_seen_too() {
        let mut open = question();
        open.pager.set("a1b2c3d4", &open.page(), 40);
        let mut terminal = Terminal::new(TestBackend::new(40, 20)).unwrap();
        terminal
            .draw(|frame| open.pager.draw(frame, frame.area()))
            .unwrap();
        assert!(open.pager.is_seen());
        let before = open.pager.lines();
        open.recommend(proposal("call1"));
        open.pager.set("a1b2c3d4", &open.page(), 40);
        assert_eq!(open.pager.lines(), before + 4);
        assert!(!open.pager.is_seen());
    }
}
