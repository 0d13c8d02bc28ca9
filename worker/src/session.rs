//! The dispatcher of the worker: asks the state for the next step and performs it (the steps of a turn in `turn`, those of
//! the lead agent in `lead`). What happens meanwhile is served by the [`Desk`]. Nothing is decided elsewhere.

use std::collections::VecDeque;
use std::time::Duration;

use teamd_shared::clock::since_boot;
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::inbox::AppendError;
use teamd_shared::message::{ASKED_BY, AnsweredBy, Body, IdleReason, LEAD, Message};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::request::Status;
use teamd_shared::transcript::Event as Entry;
use uuid::Uuid;

use crate::desk::Desk;
use crate::live::Live;
use crate::mailbox::Taken;
use crate::model::Model;
use crate::outbox::{Outbox, Sending};
use crate::plan::Submission;
use crate::replay::{Owed, ToolUse};
use crate::state::{Because, End, Step};
use crate::tools::lead::{self, Spawner};
use crate::tools::{Kit, Toolbox, Tools};
use crate::transcript::{Transcript, TranscriptError};

/// How long the lead is not told what it could not be told.
const RETRY: Duration = Duration::from_secs(1);

/// A worker at work.
#[derive(Debug)]
pub(crate) struct Session<T = Toolbox> {
    pub(crate) desk: Desk<T>,
    pub(crate) model: Model,
    pub(crate) live: Live,
    pub(crate) transcript: Transcript,
    pub(crate) outbox: Outbox,
    pub(crate) ids: Box<dyn Ids>,
    /// What it may call.
    pub(crate) kit: Kit,
    /// What a teammate begins with that the lead agent starts.
    pub(crate) spawner: Spawner,
    /// Which life it is.
    pub(crate) incarnation: u32,
    /// The calls of the last answer that have no result, in order; the first one is next, or runs.
    pub(crate) calls: VecDeque<ToolUse>,
    /// What the lead is told when the work ends: the final answer, or the error.
    pub(crate) closing: String,
    /// The plan that waits.
    pub(crate) submission: Option<Submission>,
    /// The runtime's answer to a shutdown: the id of its line, for when it must be written again.
    pub(crate) approval: Option<(RequestId, Uuid)>,
}

impl<T: Tools> Session<T> {
    /// Works until the life ends.
    ///
    /// # Errors
    /// [`TranscriptError`] if the transcript cannot be written: then nothing more may happen.
    pub(crate) async fn run(mut self) -> Result<(), TranscriptError> {
        loop {
            self.desk.catch_up().await;
            match self.desk.state.next(self.desk.now()) {
                Step::Wait { until } => {
                    let until = self
                        .tell_what_is_owed()
                        .map_or(until, |retry| Some(until.map_or(retry, |at| at.min(retry))));
                    self.desk.wait(until).await;
                }
                Step::TakeIn => drop(self.take_in()?),
                Step::Show { request_id, reason } => self.show(request_id, reason)?,
                Step::Think => self.think().await?,
                Step::Call => self.call().await?,
                Step::Skip(why) => self.skip(&why)?,
                Step::SubmitPlan => self.name_plan()?,
                Step::RenamePlan => self.rename_plan(),
                Step::Resolve(verdict) => self.resolve(&verdict)?,
                Step::Approve { request_id, because } => self.approve(request_id, &because),
                Step::Settle(answer) => self.settle(&answer)?,
                Step::Finish(reason) => self.finish(reason)?,
                Step::Leave(end) => return self.leave(&end).await,
            }
        }
    }

    /// Tells the lead what it could not be told before; returns when to try again, if that is so still.
    fn tell_what_is_owed(&mut self) -> Option<Duration> {
        if let Err(error) = self.outbox.pay() {
            tracing::debug!("the lead cannot be told yet: {error}");
        }
        (!self.outbox.owes().is_empty()).then(|| self.desk.now() + RETRY)
    }

    /// Records what happened, and lets the model know.
    pub(crate) fn record(&mut self, entry: &Entry) -> Result<(), TranscriptError> {
        self.transcript.set_owed(self.outbox.owes());
        self.transcript.append(entry)?;
        self.model.observe(entry);
        Ok(())
    }

    /// Takes the mail in; returns the messages.
    pub(crate) fn take_in(&mut self) -> Result<Vec<Message>, TranscriptError> {
        let mut delivered = Vec::new();
        for taken in self.desk.mailbox.take() {
            match taken {
                Taken::Messages { messages, behind } => {
                    self.transcript.set_cursor(behind);
                    let values = messages.iter().map(Message::to_json).collect();
                    self.record(&Entry::Messages { messages: values })?;
                    delivered.extend(messages);
                }
                Taken::Rejected { offset, rejection, behind } => {
                    // Into quarantine first: a second time there changes nothing, a second notice would.
                    let reason = self.desk.mailbox.reject(offset, &rejection);
                    self.transcript.set_cursor(behind);
                    let message_id = self.ids.message();
                    self.record(&Entry::Rejected { offset, reason: reason.clone(), message_id })?;
                    self.outbox.notify(Owed::Rejected { offset, reason, message_id });
                }
                Taken::Restarted { reason } => {
                    tracing::warn!("{reason}: reading from its new beginning");
                    self.transcript.set_cursor(Position::START);
                    self.record(&Entry::Restarted { reason })?;
                }
            }
        }
        let work = delivered.iter().any(|message| message.starts_a_turn(self.outbox.from()));
        if work && self.desk.state.is_idle() {
            self.desk.work_began = since_boot();
        }
        self.desk.state.taken_in(work, self.desk.mailbox.has_rest());
        self.desk.fetch();
        Ok(delivered)
    }

    fn show(&mut self, request_id: RequestId, reason: String) -> Result<(), TranscriptError> {
        self.record(&Entry::Asked { request_id, reason })?;
        self.desk.state.shown();
        Ok(())
    }

    /// Answers a shutdown for the model.
    fn approve(&mut self, request_id: RequestId, because: &Because) {
        // What is tried again may stand there from the time before.
        let (message_id, send): (_, Sending) = match &self.approval {
            Some((known, id)) if *known == request_id => (*id, Outbox::send_once),
            _ => (self.ids.message(), Outbox::send),
        };
        self.approval = Some((request_id.clone(), message_id));
        let reason = match because {
            Because::Idle => "idle".to_owned(),
            Because::TurnEnded => "the turn ended without an answer".to_owned(),
            Because::Suspended => "waiting for a verdict on its plan".to_owned(),
            Because::Overdue(within) => format!("no answer within {within} s"),
        };
        let by = AnsweredBy::Runtime;
        if let Err(error) = self.respond(&request_id, (message_id, send), (true, reason), by) {
            tracing::error!("the shutdown could not be answered: {error}");
            self.desk.state.answer_failed(self.desk.now());
        }
    }

    /// Writes an answer to a shutdown (yes or no, and why), and names it.
    pub(crate) fn respond(
        &mut self,
        request_id: &RequestId,
        (message_id, send): (Uuid, Sending),
        (approve, reason): (bool, String),
        by: AnsweredBy,
    ) -> Result<(), AppendError> {
        let (id, answered_by) = (request_id.clone(), Some(by));
        let body = Body::ShutdownResponse { request_id: id, approve, reason, answered_by };
        let mut message = self.outbox.message(message_id, LEAD, body);
        // Of an end the daemon tells; of a rejection nobody else does.
        if !approve && lead::has_asked(self.outbox.dir(), request_id) {
            message.extra.insert(ASKED_BY.to_owned(), LEAD.into());
        }
        let line = send(&self.outbox, &Name::lead(), &message)?;
        self.desk.state.answering(request_id.clone(), approve, by);
        self.desk.link.submit(request_id, line);
        Ok(())
    }

    /// Ends a piece of work, and tells the lead.
    fn finish(&mut self, idle_reason: IdleReason) -> Result<(), TranscriptError> {
        let content = match idle_reason {
            IdleReason::Available | IdleReason::Failed => std::mem::take(&mut self.closing),
            IdleReason::MaxTurns | IdleReason::MaxTokens => {
                self.desk.state.limits().told(idle_reason).unwrap_or_default()
            }
            IdleReason::Interrupted => self.kit.interrupted().to_owned(),
        };
        let message_id = self.ids.message();
        self.record(&Entry::Idle { idle_reason, content: content.clone(), message_id })?;
        self.transcript.sync()?;
        self.outbox.notify(Owed::Idle { idle_reason, content: content.clone(), message_id });
        self.desk.toolbox.reap_strays();
        self.desk.state.finished(idle_reason, &content);
        Ok(())
    }

    /// Ends the life: what it started first, its last entry then, its connection last.
    async fn leave(mut self, end: &End) -> Result<(), TranscriptError> {
        self.desk.state.leaving();
        self.desk.mailbox.close();
        while self.desk.state.has_background() {
            self.desk.wait(None).await;
        }
        let reason = match end {
            End::Approved => "the shutdown is approved".to_owned(),
            End::Terminated => "SIGTERM".to_owned(),
            End::Unknown(why) => why.clone(),
        };
        tracing::info!("leaving: {reason}");
        if let Err(error) = self.outbox.pay() {
            tracing::error!("the lead could not be told, and will not be: {error}");
        }
        let by_signal = matches!(end, End::Terminated);
        self.record(&Entry::Left { reason, incarnation: self.incarnation, by_signal })?;
        self.transcript.sync()?;
        self.desk.toolbox.end_strays();
        self.desk.link.close().await;
        Ok(())
    }
}

/// Tells whether an answer stands as it was given.
pub(crate) fn stands(approve: bool, status: Status) -> bool {
    status == if approve { Status::Approved } else { Status::Rejected }
}
