//! What waits for a person in a chat: how they are shown, and the question to the person.

use teamd_client::args::{Approve, Command, VerdictArgs};
use teamd_client::print::escape;
use teamd_client::print::grouping::headline;
use teamd_client::print::output::paint;
use teamd_client::print::render::{BOLD, DIM};
use teamd_shared::request::{Kind, Request};

use super::Session;
use crate::chat::conversation::follow::Activity;
use crate::chat::conversation::view::Proposal;
use crate::chat::prompt::question::{PlanQuestion, PlanReply, text};
use crate::markdown;

/// How many lines of a plan are shown with the question.
const SHOWN: usize = 40;
/// By how much a plan is indented.
const INDENT: &str = "    ";

impl Session<'_> {
    /// Shows that a plan waits, or how it was answered.
    pub(super) fn show_plan(&self, plan: &Request) {
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
    pub(super) fn next_question(&mut self) -> Option<PlanQuestion> {
        if self
            .question
            .take_if(|question| self.follower.pending(&question.request_id).is_none())
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
        if let Some(question) = &mut self.question {
            if let Some(proposal) =
                calls.find(|proposal| proposal.request_id == question.request_id)
            {
                self.asked.push(proposal.call.clone());
                self.context.out.aside(recommendation(proposal));
                question.proposal = Some(proposal.clone());
            }
            return None;
        }
        let called =
            calls.find_map(|it| Some((self.follower.pending(&it.request_id)?, Some(it.clone()))));
        let (plan, proposal) = called.or_else(|| Some((self.unanswered()?, None)))?;
        let question = PlanQuestion::new(plan, proposal);
        self.show_whole(plan, question.proposal.as_ref());
        self.asked.extend(
            question
                .proposal
                .iter()
                .map(|proposal| proposal.call.clone()),
        );
        Some(question)
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

    /// Shows the beginning of a plan, indented: no line of it looks like one of ours.
    fn show_whole(&self, plan: &Request, proposal: Option<&Proposal>) {
        let text = text(plan);
        let noun = plan.kind.noun();
        let heading = format!("the {noun} {} of {}:", plan.request_id, plan.from);
        let lines: Vec<&str> = text.lines().collect();
        let (shown, more) = lines.split_at(lines.len().min(SHOWN));
        let heading = paint(BOLD, escape::line(&heading));
        let shown = shown.join("\n");
        let more = match more.len() {
            0 => String::new(),
            more => format!(
                "{INDENT}{}\n",
                paint(DIM, format!("… {more} more lines; v shows all of them"))
            ),
        };
        let verdict = proposal.map_or_else(String::new, recommendation);
        self.console.screen.print(Box::new(move |columns| {
            let plan = markdown::render(&shown, columns.saturating_sub(INDENT.len()));
            let plan: String = plan
                .lines()
                .map(|line| format!("{INDENT}{line}\n"))
                .collect();
            format!("{heading}\n{plan}{more}{verdict}")
        }));
    }

    /// Tells whether the agent waits for the answer to the question: one that is about its own
    /// plan, or for which it calls.
    pub(super) fn is_awaited(&self) -> bool {
        let Some(question) = &self.question else {
            return false;
        };
        let mut calls = self.view.proposals().iter();
        !self.target.is_lead() || calls.any(|call| call.request_id == question.request_id)
    }

    /// Withdraws the question; the plan stays pending.
    pub(super) fn put_off(&mut self) {
        if let Some(question) = self.question.take() {
            let id = question.request_id;
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

    /// Takes a line at the question, which stays until an answer is given.
    pub(super) async fn reply(&mut self, line: &str) {
        let Some(question) = &mut self.question else {
            return;
        };
        match question.read(line) {
            PlanReply::Verdict { approve, feedback } => {
                let verdict = VerdictArgs {
                    id: question.request_id.to_string(),
                    feedback,
                };
                let answer = if approve {
                    Command::Approve(Approve {
                        verdict,
                        permissions: None,
                    })
                } else {
                    Command::Reject(verdict)
                };
                if let Some(Ok(_)) = self.carry_out(answer).await {
                    self.question = None;
                }
            }
            PlanReply::Why => {}
            PlanReply::View => {
                let plan = self.follower.pending(&question.request_id).map(text);
                self.page(plan.unwrap_or_default()).await;
            }
            PlanReply::Later => self.put_off(),
            PlanReply::Message if line.trim().is_empty() => {}
            PlanReply::Message => self.message(line.trim_end()).await,
        }
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
