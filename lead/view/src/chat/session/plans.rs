//! What waits for a person in a chat: how they are shown, and the question to the person.

use teamd_shared::id::RequestId;
use teamd_shared::request::{Kind, Request};

use super::ChatSession;
use super::questions::OpenQuestion;
use crate::act;
use crate::chat::conversation::view::Proposal;
use crate::chat::prompt::question::{PlanReply, text};
use crate::model::Activity;
use teamd_client::args::{Approve, TeamctlCommand, VerdictArgs};
use teamd_client::print::escape;
use teamd_client::print::grouping::headline;
use teamd_client::print::render::BOLD;
use teamd_client::print::style::paint;

impl ChatSession<'_> {
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
    pub(super) fn next_question(&mut self) -> Option<OpenQuestion> {
        if self
            .questions
            .open
            .take_if(|open| self.follower.pending(open.request_id()).is_none())
            .is_some()
        {
            self.context
                .out
                .note("the question has been answered: your answer is no longer needed");
        }
        if self.questions.open.is_some() {
            self.take_recommendation();
            return None;
        }
        let question = self
            .called_for()
            .or_else(|| Some(OpenQuestion::new(self.unanswered()?, None)))?;
        if let Some(proposal) = &question.question.proposal {
            self.context.out.aside(recommendation(proposal));
            self.questions.handle(proposal.call.clone());
        }
        Some(question)
    }

    /// Takes a recommendation about the plan of the open question.
    fn take_recommendation(&mut self) {
        let Some(open) = &self.questions.open else {
            return;
        };
        let mut proposals = self.view.proposals().iter();
        let Some(proposal) = proposals.find(|proposal| {
            proposal.request_id == *open.request_id() && !self.questions.is_handled(&proposal.call)
        }) else {
            return;
        };
        if let Some(open) = &mut self.questions.open {
            open.recommend(proposal.clone());
        }
        self.context.out.aside(recommendation(proposal));
        self.questions.handle(proposal.call.clone());
    }

    /// Returns the question about the first plan for which the agent calls for a verdict that the
    /// person has not seen.
    fn called_for(&self) -> Option<OpenQuestion> {
        for proposal in self.view.proposals() {
            if !self.questions.is_handled(&proposal.call)
                && let Some(plan) = self.follower.pending(&proposal.request_id)
            {
                return Some(OpenQuestion::new(plan, Some(proposal.clone())));
            }
        }
        None
    }

    /// Returns the oldest plan that waits, and that the person has not put off, while the agent is
    /// at rest, or waits itself.
    fn unanswered(&self) -> Option<&Request> {
        let plan = self.follower.waiting().find(|plan| {
            self.concerns(plan) && !self.questions.is_handled(plan.request_id.as_str())
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
        let Some(open) = &self.questions.open else {
            return false;
        };
        let mut calls = self.view.proposals().iter();
        !self.target.is_lead() || calls.any(|call| call.request_id == *open.request_id())
    }

    /// Withdraws the question; the plan stays pending.
    pub(super) fn put_off(&mut self) {
        if let Some(open) = self.questions.open.take() {
            let id = open.question.request_id;
            let noun = self
                .follower
                .pending(&id)
                .map_or("plan", |plan| plan.kind.noun());
            self.context.out.note(format_args!(
                "the {noun} waits; /approve {id} or /reject {id} answers it"
            ));
            self.questions.handle(id.to_string());
        }
    }

    /// Takes a line at the question, which stays until an answer is given. A plan is approved only
    /// when each line of it was on the screen.
    pub(super) async fn reply(&mut self, line: &str) {
        let Some(open) = &mut self.questions.open else {
            return;
        };
        match open.question.read(line) {
            PlanReply::Verdict { approve: true, .. } if !open.pager.is_seen() => {
                open.pager.go_to_unseen();
                let note = "nothing was answered: the text continues here, and v shows all of it";
                self.context.out.note(note);
            }
            PlanReply::Verdict { approve, feedback } => {
                let id = open.request_id().clone();
                let verdict = VerdictArgs {
                    id: id.to_string(),
                    feedback,
                    code: self.code_of(&id).await,
                };
                let answer = if approve {
                    TeamctlCommand::Approve(Approve {
                        verdict,
                        permissions: None,
                        plan_sha256: None,
                    })
                } else {
                    TeamctlCommand::Reject(verdict)
                };
                if let Some(Ok(_)) = self.carry_out(answer).await {
                    self.questions.open = None;
                }
            }
            PlanReply::Why => {}
            PlanReply::View => open.is_whole = !open.is_whole,
            PlanReply::Later => self.put_off(),
            PlanReply::Message if line.trim().is_empty() => {}
            PlanReply::Message => self.message(line.trim_end()).await,
        }
    }
}

impl ChatSession<'_> {
    /// Returns the code of a request, if its answer needs one: the person who answers a question of
    /// this chat is at its terminal.
    async fn code_of(&self, id: &RequestId) -> Option<String> {
        let codes = act::ask_for_codes(self.dir).await?;
        let mut codes = codes.into_iter();
        let found = codes.find(|known| known.request_id == *id)?;
        Some(found.code)
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
