//! Plans in a conversation: what the person is told of them, and asked.

use teamd_shared::request::{Payload, Request};

use super::Session;
use super::ends::End;
use crate::ctl::escape;
use crate::ctl::output::paint;
use crate::ctl::render::{BOLD, under};
use crate::ctl::talk::brief;
use crate::ctl::talk::question::{Question, Reply};
use crate::ctl::talk::slash::Slash;
use crate::error::CommandError;

impl Session<'_> {
    /// Tells of the plans that wait, or do no longer, unless a command here does.
    pub(super) fn tell_of_plans(&mut self) -> Result<(), CommandError> {
        self.answers.due().iter().try_for_each(|plan| self.tell_of(plan))
    }

    /// Tells of a plan that waits, or does no longer.
    pub(super) fn tell_of(&self, plan: &Request) -> Result<(), CommandError> {
        if !self.party.leads() && plan.from != self.party.name.as_str() {
            return Ok(());
        }
        let (id, from) = (&plan.request_id, &plan.from);
        let line = match plan.is_pending() {
            true => {
                let text = self.plan_text(plan);
                format!(
                    "{from} submits the plan {id}: {text} (/plans {id} shows it; /approve {id}, /reject {id})"
                )
            }
            false => format!("the plan {id} of {from} is {}", plan.status.as_str()),
        };
        self.context.out.aside(paint(BOLD, escape::line(&line)));
        Ok(())
    }

    fn plan_text(&self, plan: &Request) -> String {
        match &plan.payload {
            Payload::Plan { plan } => brief::line(plan),
            Payload::Shutdown { .. } => String::new(),
        }
    }

    /// Asks no more about a plan that somebody has answered, or that nobody waits for any more. What the person has typed
    /// stays, and is no answer. While a command here gives an answer, it may be the one that says so.
    fn drop_question(&mut self) {
        let Some(plan) = self.question.as_ref().map(Question::request_id) else { return };
        let told = self.answers.has_told(plan);
        let is_over = || self.follow.plan(plan).is_some_and(|plan| !plan.is_pending());
        if told || !self.answers.are_given() && is_over() {
            self.question = None;
            if !told {
                self.context.out.note("you are asked no more");
            }
            self.keyboard.prompt_instead(&format!("{}> ", self.party.name), self.awaits);
        }
    }

    /// Asks the person about the first plan on which the lead agent has called for a verdict.
    pub(super) fn look_for_question(&mut self) -> Result<(), CommandError> {
        self.drop_question();
        if self.question.is_some() || !self.party.leads() {
            return Ok(());
        }
        let new = |call: &str| !self.asked.iter().any(|asked| asked == call);
        let mut waiting = self.view.proposals().iter().filter(|it| new(&it.call)).filter_map(|proposal| {
            let plan = self.follow.plan(&proposal.request_id).filter(|plan| plan.is_pending())?;
            Some((proposal.clone(), plan))
        });
        let Some((proposal, plan)) = waiting.next() else { return Ok(()) };
        self.asked.push(proposal.call.clone());
        let question = Question::new(proposal);
        let (heading, text, verdict) = question.heading(plan);
        let shown = under(&paint(BOLD, escape::line(&heading)), &format!("{text}\n"));
        self.context.out.text(format_args!("{shown}\n{}", escape::text(&verdict)))?;
        self.context.out.text("Approve it? [a]pprove, [r]eject, [l]ater")?;
        self.question = Some(question);
        self.ready();
        Ok(())
    }

    /// Asks no more.
    pub(super) fn put_off(&mut self) {
        if let Some(question) = self.question.take() {
            let id = question.request_id();
            self.context.out.note(format_args!("the plan waits; /approve {id} or /reject {id} answers it"));
        }
    }

    /// Takes the answer to the question.
    pub(super) async fn reply(&mut self, line: &str) -> Result<(), CommandError> {
        let Some(mut question) = self.question.take() else { return Ok(()) };
        let id = question.request_id().clone();
        if let Some(plan) = self.follow.plan(&id).filter(|plan| !plan.is_pending()) {
            let status = plan.status.as_str();
            self.context.out.note(format_args!("the plan {id} is {status} already; your line was not sent"));
            return Ok(());
        }
        match question.read(line) {
            Reply::Give { approve, feedback } => {
                let answer = Slash::Answer { id: id.to_string(), approve, feedback };
                match self.carry_out(answer).await {
                    // What was wrong is told, and the question stands.
                    (_, Some(End { told: None, .. })) => self.question = Some(question),
                    (_, Some(_)) => {}
                    (number, None) => self.answering.push((number, question.call().to_owned())),
                }
            }
            Reply::Why => self.question = Some(question),
            Reply::Later => {
                self.question = Some(question);
                self.put_off();
            }
            Reply::Unclear => {
                self.context
                    .out
                    .note("a, r or l is expected; l asks no more, and you can write what you like");
                self.question = Some(question);
            }
        }
        Ok(())
    }
}
