//! What waits for a person in a chat: how they are shown, and the question to the person.

use std::time::{Duration, Instant};

use ratatui::layout::Rect;
use teamd_shared::id::RequestId;
use teamd_shared::request::{Kind, Request};

use super::Session;
use crate::chat::conversation::follow::Activity;
use crate::chat::conversation::view::Proposal;
use crate::chat::prompt::question::{PlanQuestion, PlanReply, text};
use crate::top::{Pager, SETTLES};
use teamd_client::args::{Approve, TeamctlCommand, VerdictArgs};
use teamd_client::print::escape;
use teamd_client::print::grouping::headline;
use teamd_client::print::output::paint;
use teamd_client::print::render::BOLD;

impl Session<'_> {
    /// Shows that a plan waits, or how it was answered.
    pub(super) fn show_plan(&mut self, plan: &Request) {
        if !self.concerns(plan) {
            return;
        }
        let id = &plan.request_id;
        let from = &plan.from;
        let noun = plan.kind.noun();
        let line = match (plan.is_pending(), plan.kind) {
            (true, Kind::PlanApproval) => {
                format!("{from} submits the {noun} {id}: {}", headline(&text(plan)))
            }
            (true, _) => format!("{from} asks for {noun} {id}: {}", headline(&text(plan))),
            (false, _) => format!("the {noun} {id} of {from} is {}", plan.status.as_str()),
        };
        self.context.out.aside(paint(BOLD, escape::line(&line)));
        if plan.is_pending() {
            self.ring(&format!("a {noun} of {from} waits for you"));
        }
    }

    /// Looks for a plan about which the person is to be asked: one for which the agent calls for a
    /// verdict; while the agent is at rest any that waits. The question stays until the plan is
    /// answered or put off. A question about a plan that is answered is over: what is typed stays,
    /// and is no answer.
    pub(super) fn next_question(&mut self) -> Option<Asked> {
        if self
            .question
            .take_if(|asked| self.follower.pending(asked.request_id()).is_none())
            .is_some()
        {
            self.context
                .out
                .note("the question has been answered: your answer is no longer needed");
        }
        let mut calls = self
            .view
            .proposals()
            .iter()
            .filter(|it| !self.asked.contains(&it.call));
        if let Some(asked) = &mut self.question {
            if let Some(proposal) = calls.find(|call| call.request_id == *asked.request_id()) {
                self.asked.push(proposal.call.clone());
                self.context.out.aside(recommendation(proposal));
                asked.question.proposal = Some(proposal.clone());
            }
            return None;
        }
        let called =
            calls.find_map(|it| Some((self.follower.pending(&it.request_id)?, Some(it.clone()))));
        let (plan, proposal) = called.or_else(|| Some((self.unanswered()?, None)))?;
        let asked = Asked::new(plan, proposal);
        if let Some(proposal) = &asked.question.proposal {
            self.context.out.aside(recommendation(proposal));
            self.asked.push(proposal.call.clone());
        }
        Some(asked)
    }

    /// Returns the oldest plan that waits, and that the person has not put off, while the agent is
    /// at rest, or waits itself.
    fn unanswered(&self) -> Option<&Request> {
        let plan = self.follower.waiting().find(|plan| {
            self.concerns(plan) && !self.asked.contains(&plan.request_id.to_string())
        })?;
        match self.follower.activity(false).ok()? {
            Activity::Quiet => !self.is_busy(),
            activity => matches!(activity, Activity::PlansWait(_)),
        }
        .then_some(plan)
    }

    fn concerns(&self, plan: &Request) -> bool {
        self.target.is_lead() || plan.from == self.target.name.as_str()
    }

    /// Tells whether the agent waits for the answer to the question: one that is about its own
    /// plan, or for which it calls.
    pub(super) fn is_awaited(&self) -> bool {
        let Some(asked) = &self.question else {
            return false;
        };
        let mut calls = self.view.proposals().iter();
        !self.target.is_lead() || calls.any(|call| call.request_id == *asked.request_id())
    }

    /// Withdraws the question; the plan stays pending.
    pub(super) fn put_off(&mut self) {
        if let Some(asked) = self.question.take() {
            let id = asked.question.request_id;
            let noun = self
                .follower
                .pending(&id)
                .map_or("plan", |asked| asked.kind.noun());
            self.context.out.note(format_args!(
                "the {noun} waits; /approve {id} or /reject {id} answers it"
            ));
            self.asked.push(id.to_string());
        }
    }

    /// Takes a line at the question, which stays until an answer is given. A plan is approved only
    /// when each line of it was on the screen.
    pub(super) async fn reply(&mut self, line: &str) {
        let Some(asked) = &mut self.question else {
            return;
        };
        match asked.question.read(line) {
            PlanReply::Verdict { approve: true, .. } if !asked.pager.is_seen() => {
                asked.pager.go_to_unseen();
                let note = "nothing was answered: the text goes on here, and v shows all of it";
                self.context.out.note(note);
            }
            PlanReply::Verdict { approve, feedback } => {
                let verdict = VerdictArgs {
                    id: asked.request_id().to_string(),
                    feedback,
                };
                let answer = if approve {
                    TeamctlCommand::Approve(Approve {
                        verdict,
                        permissions: None,
                    })
                } else {
                    TeamctlCommand::Reject(verdict)
                };
                if let Some(Ok(_)) = self.carry_out(answer).await {
                    self.question = None;
                }
            }
            PlanReply::Why => {}
            PlanReply::View => asked.is_whole = !asked.is_whole,
            PlanReply::Later => self.put_off(),
            PlanReply::Message if line.trim().is_empty() => {}
            PlanReply::Message => self.message(line.trim_end()).await,
        }
    }
}

/// The plan about which the person is asked, on the screen.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) question: PlanQuestion,
    /// The plan: Markdown that an agent wrote.
    pub(super) plan: String,
    /// What the plan is, for people.
    pub(super) heading: String,
    pub(super) pager: Pager,
    /// Whether the plan has the place of the conversation, too.
    pub(super) is_whole: bool,
    /// Where the plan is on the screen.
    pub(super) area: Rect,
    /// Since when it is there.
    pub(super) shown: Option<Instant>,
}

impl Asked {
    fn new(plan: &Request, proposal: Option<Proposal>) -> Self {
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

    /// Returns the id of the plan.
    pub(super) fn request_id(&self) -> &RequestId {
        &self.question.request_id
    }

    /// Returns the question in words.
    pub(super) fn text(&self) -> &str {
        &self.question.text
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

fn recommendation(proposal: &Proposal) -> String {
    let verdict = if proposal.approve {
        "approve"
    } else {
        "reject"
    };
    let why = match proposal.feedback.as_str() {
        "" => String::new(),
        feedback => format!(": {}", escape::text(feedback)),
    };
    format!("the lead agent would {verdict} it{why}")
}
