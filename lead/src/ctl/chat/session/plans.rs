//! Plans in a chat: how they are shown, and the question to the person.

use teamd_shared::request::{Payload, Request};

use super::Session;
use crate::ctl::args::{Command, VerdictArgs};
use crate::ctl::chat::question::{PlanQuestion, PlanReply};
use crate::ctl::chat::summary;
use crate::ctl::escape;
use crate::ctl::output::paint;
use crate::ctl::render::{BOLD, under};
use crate::error::CommandError;

fn text(plan: &Request) -> &str {
    match &plan.payload {
        Payload::Plan { plan } => plan,
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
                let first = summary::line(text(plan));
                format!(
                    "{from} submits the plan {id}: {first} (/plans {id} shows it; /approve {id}, /reject {id})"
                )
            }
            false => format!("the plan {id} of {from} is {}", plan.status.as_str()),
        };
        self.context.out.aside(paint(BOLD, escape::line(&line)));
    }

    /// Asks the person about the first plan on which the lead agent has called for a verdict. A question about a plan that
    /// is answered is over: what the person has typed stays, and is no answer.
    pub(super) fn look_for_question(&mut self) -> Result<(), CommandError> {
        if self.question.take_if(|question| self.follower.pending(question.request_id()).is_none()).is_some()
        {
            self.context.out.note("you are asked no more");
        }
        if self.question.is_some() || !self.target.is_lead() {
            return Ok(());
        }
        let new = self.view.proposals().iter().filter(|proposal| !self.asked.contains(&proposal.call));
        let mut pending = new.filter_map(|it| Some((it.clone(), self.follower.pending(&it.request_id)?)));
        let Some((proposal, plan)) = pending.next() else { return Ok(()) };
        let heading = format!("the plan {} of {}:", plan.request_id, plan.from);
        let plan = under(&paint(BOLD, escape::line(&heading)), &format!("{}\n", text(plan)));
        let verdict = if proposal.approve { "approve" } else { "reject" };
        let why = match proposal.feedback.as_str() {
            "" => String::new(),
            feedback => format!(": {}", escape::text(feedback)),
        };
        self.context.out.text(format_args!("{plan}\nthe lead agent would {verdict} it{why}"))?;
        self.context.out.text("Approve it? [a]pprove, [r]eject, [l]ater")?;
        self.asked.push(proposal.call.clone());
        self.question = Some(PlanQuestion::new(proposal));
        Ok(())
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
            PlanReply::Later => self.put_off(),
            PlanReply::Unclear => self
                .context
                .out
                .note("type a, r or l (later: the plan stays pending, and you are back at the prompt)"),
        }
    }
}
