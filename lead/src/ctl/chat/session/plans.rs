//! Plans in a chat: how they are shown, and the question to the person.

use teamd_shared::id::RequestId;
use teamd_shared::request::{Payload, Request};

use super::Session;
use crate::ctl::args::{Command, VerdictArgs};
use crate::ctl::chat::question::{PlanQuestion, PlanReply};
use crate::ctl::chat::view::Proposal;
use crate::ctl::chat::{markdown, summary};
use crate::ctl::escape;
use crate::ctl::output::paint;
use crate::ctl::render::{BOLD, DIM};
use crate::error::CommandError;

/// How many lines of a plan are shown with the question.
const SHOWN: usize = 40;
/// By how much a plan is indented.
const INDENT: &str = "    ";

fn text(plan: &Request) -> &str {
    match &plan.payload {
        Payload::Plan { plan } => plan.trim_matches('\n'),
        Payload::Shutdown { .. } => "",
    }
}

impl Session<'_> {
    /// Shows that a plan waits, or how it was answered.
    pub(super) fn show_plan(&self, plan: &Request) {
        if !self.target.is_lead() && plan.from != self.target.name.as_str() {
            return;
        }
        let (id, from) = (&plan.request_id, &plan.from);
        let line = match plan.is_pending() {
            true => {
                let first = summary::title(text(plan));
                format!(
                    "{from} submits the plan {id}: {first} (/plans {id} shows it; /approve {id}, /reject {id})"
                )
            }
            false => format!("the plan {id} of {from} is {}", plan.status.as_str()),
        };
        self.context.out.aside(paint(BOLD, escape::line(&line)));
        if plan.is_pending() {
            self.ring(&format!("{from} submits a plan"));
        }
    }

    /// Asks the person about the first plan on which the lead agent has called for a verdict; in a chat with a teammate about
    /// the plan of the teammate. A question about a plan that is answered is over: what is typed stays, and is no answer.
    pub(super) fn look_for_question(&mut self) -> Result<(), CommandError> {
        let is_over = |question: &mut PlanQuestion| self.follower.pending(question.request_id()).is_none();
        if self.question.take_if(is_over).is_some() {
            self.context.out.note("you are asked no more");
        }
        if self.question.is_some() || self.next_question.is_some() {
            return Ok(());
        }
        let proposals = match self.target.is_lead() {
            true => self.view.proposals().to_vec(),
            false => self.follower.of(&self.target.name).map(Proposal::none).collect(),
        };
        let new = proposals.into_iter().filter(|proposal| !self.asked.contains(&proposal.call));
        let mut pending = new.filter_map(|it| Some((self.follower.pending(&it.request_id)?, it)));
        let Some((plan, proposal)) = pending.next() else { return Ok(()) };
        let lines = text(plan).lines().count();
        let question = PlanQuestion::new(proposal.clone(), &plan.from, lines);
        let heading = format!("the plan {} of {}:", plan.request_id, plan.from);
        let mut shown = paint(BOLD, escape::line(&heading)) + "\n" + &self.laid_out(text(plan));
        if lines > SHOWN {
            let more = format!("… {} more lines; v shows all of them", lines - SHOWN);
            shown.push_str(&format!("{INDENT}{}\n", paint(DIM, more)));
        }
        if self.target.is_lead() {
            let verdict = if proposal.approve { "approve" } else { "reject" };
            let why = match proposal.feedback.as_str() {
                "" => String::new(),
                feedback => format!(": {}", escape::text(feedback)),
            };
            shown.push_str(&format!("the lead agent would {verdict} it{why}\n"));
        }
        self.context.out.text(shown)?;
        self.asked.push(proposal.call);
        self.next_question = Some(question);
        Ok(())
    }

    /// Lays the beginning of a plan out, indented: no line of it looks like one of ours.
    fn laid_out(&self, plan: &str) -> String {
        let beginning: Vec<&str> = plan.lines().take(SHOWN).collect();
        let columns = self.console.screen.columns().saturating_sub(INDENT.len());
        let rendered = markdown::render(&beginning.join("\n"), columns);
        rendered.lines().map(|line| format!("{INDENT}{line}\n")).collect()
    }

    /// Withdraws the question; the plan stays pending.
    pub(super) fn put_off(&mut self) {
        if let Some(question) = self.question.take() {
            let id = question.request_id();
            self.context.out.note(format_args!("the plan waits; /approve {id} or /reject {id} answers it"));
        }
    }

    /// Takes the answer to the question, which stays until the answer is given.
    pub(super) async fn reply(&mut self, line: &str) {
        let Some(question) = &mut self.question else { return };
        match question.read(line) {
            PlanReply::Verdict { approve, feedback } => {
                let verdict = VerdictArgs { id: question.request_id().to_string(), feedback };
                let answer = if approve { Command::Approve(verdict) } else { Command::Reject(verdict) };
                if let Some(Ok(_)) = self.carry_out(answer).await {
                    self.question = None;
                }
            }
            PlanReply::Why => {}
            PlanReply::View => {
                let id = question.request_id().clone();
                self.view_plan(&id).await;
            }
            PlanReply::Later => self.put_off(),
            PlanReply::Message if line.trim().is_empty() => {}
            PlanReply::Message => self.message(line.trim_end()).await,
        }
    }

    async fn view_plan(&mut self, id: &RequestId) {
        if let Some(plan) = self.follower.pending(id).map(|plan| text(plan).to_owned()) {
            self.page(&plan).await;
        }
    }
}
