//! The session: asks the state for the next step and performs it (the steps of a turn in `turn`).
//! The [`Dispatcher`] serves events meanwhile. Nothing is decided elsewhere.

use std::time::Duration;

use teamd_shared::clock;

use teamd_shared::id::{self, Ids, RequestId};
use teamd_shared::inbox::AppendError;
use teamd_shared::message::{ASKED_BY, AnsweredBy, Body, IdleReason, LEAD, Message, RUNTIME};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::request::Status;
use teamd_shared::tool_set::ToolSet;
use teamd_shared::transcript::{Entry, Event, Usage};
use uuid::Uuid;

use crate::dispatcher::Dispatcher;
use crate::live_file::LiveFile;
use crate::mailbox::Consumed;
use crate::outbox::Outbox;
use crate::team;
use crate::tools::{Toolbox, Tools};
use crate::transcript::{Transcript, TranscriptError};
use teamd_shared::spawn::Spawner;
use teamd_worker_core::allowance::Allowance;
use teamd_worker_core::ledger::{Ledger, Spent};
use teamd_worker_core::state::{IncarnationEnd, NextStep};
use teamd_worker_core::submission::Asks;
use teamd_worker_core::tools::Caller;
use teamd_worker_model::Model;

/// How long to wait before a notice to the lead is written again.
const RETRY: Duration = Duration::from_secs(1);

/// How long an agent may take to start.
const READY: Duration = Duration::from_secs(60);

/// A worker at work.
#[derive(Debug)]
pub(crate) struct Session<T = Toolbox> {
    pub(crate) dispatcher: Dispatcher<T>,
    pub(crate) model: Model,
    pub(crate) live: LiveFile,
    pub(crate) transcript: Transcript,
    pub(crate) outbox: Outbox,
    pub(crate) ids: Box<dyn Ids>,
    /// What it calls tools as.
    pub(crate) caller: Caller,
    /// What a teammate begins with that the lead agent starts.
    pub(crate) spawner: Spawner,
    /// Which incarnation it is.
    pub(crate) incarnation: u32,
    /// What the piece of work has cost, by all that count it.
    pub(crate) ledger: Ledger,
    /// The runtime's answer to a shutdown that could not be written, and the id of its line: it is
    /// written again.
    pub(crate) approval: Option<(RequestId, Uuid)>,
    /// What it may still do to its team in this piece of work.
    pub(crate) allowance: Allowance,
    /// What its conversation is offered beyond the tools that are always there.
    pub(crate) tools: ToolSet,
}

impl<T: Tools> Session<T> {
    /// Works until the incarnation ends.
    ///
    /// # Errors
    /// [`TranscriptError`] if the transcript cannot be written: then nothing more may happen.
    pub(crate) async fn run(mut self) -> Result<(), TranscriptError> {
        loop {
            self.dispatcher.catch_up().await;
            self.allow_calls();
            let tell_again = self.tell_of_ended_commands();
            match self.dispatcher.state.next(self.dispatcher.now()) {
                NextStep::Wait(until) => {
                    let notify_again = self.flush_notices();
                    let until = [until, notify_again, tell_again]
                        .into_iter()
                        .flatten()
                        .min();
                    self.serve(until).await?;
                }
                NextStep::TakeIn => drop(self.consume()?),
                NextStep::Show { request_id, reason } => {
                    self.record(Event::Asked { request_id, reason })?
                }
                NextStep::Think => self.think().await?,
                NextStep::Compact => self.compact().await?,
                NextStep::Call => self.call().await?,
                NextStep::Skip(why) => self.skip(&why)?,
                NextStep::Submit => self.submit().await?,
                NextStep::Renumber => self.renumber(),
                NextStep::Resolve(verdict) => self.resolve(&verdict).await?,
                NextStep::Approve { request_id, reason } => {
                    self.answer_for_model(request_id, true, reason);
                }
                NextStep::Refuse { request_id, reason } => {
                    self.answer_for_model(request_id, false, reason);
                }
                NextStep::ResolveAnswer(answer) => self.resolve_answer(&answer)?,
                NextStep::Finish(reason) => self.finish(reason)?,
                NextStep::Leave(end) => return self.leave(&end).await,
            }
        }
    }

    /// Starts an agent that runs for many turns, and waits until it takes messages.
    ///
    /// # Errors
    /// Why it does not. Fits behind "error: ".
    pub(crate) async fn await_agent(&mut self) -> Result<(), String> {
        loop {
            self.start_agent().await?;
            let Some(agent) = self.model.agent() else {
                return Ok(());
            };
            let ready = tokio::time::timeout(READY, agent.ready())
                .await
                .unwrap_or_else(|_| {
                    Err(format!(
                        "does not say within {} s that it is ready",
                        READY.as_secs()
                    ))
                });
            if ready.is_ok() || !agent.begins_new_session() {
                return ready.map_err(|why| format!("the agent {why}"));
            }
        }
    }

    /// Serves until something happens, and reads the agent's output meanwhile. An agent that ends
    /// while a question of it is open cannot get the reply: the question is over.
    async fn serve(&mut self, until: Option<Duration>) -> Result<(), TranscriptError> {
        let Self {
            dispatcher, model, ..
        } = self;
        let submission = dispatcher.state.submission();
        let is_question =
            submission.map(|submission| matches!(submission.asks, Asks::Permission(_)));
        let listens = is_question.is_some() || dispatcher.state.is_idle();
        if !listens {
            dispatcher.serve(until).await;
            return Ok(());
        }
        let Some(agent) = model.agent() else {
            dispatcher.serve(until).await;
            return Ok(());
        };
        agent.permissions = dispatcher.state.permissions();
        let output = tokio::select! {
            biased;
            () = dispatcher.serve(until) => return Ok(()),
            output = agent.listen(is_question == Some(true)) => output,
        };
        match (is_question, output) {
            (Some(false), Ok(Some(event))) => {
                self.beside(event)?;
                self.charge_behind_plan()
            }
            (_, Ok(Some(event))) => self.beside(event),
            (Some(true), Err(how)) => self.resolve(&Err(format!("the agent {how}"))).await,
            (Some(false), _) => self.charge_behind_plan(),
            _ => Ok(()),
        }
    }

    /// Records what an agent costs behind its plan; the work may have a limit.
    fn charge_behind_plan(&mut self) -> Result<(), TranscriptError> {
        self.charge()?;
        let is_over = self.dispatcher.state.limit_reached().is_some();
        if is_over && let Some(mind) = self.model.agent() {
            mind.abandon();
        }
        Ok(())
    }

    /// Lets the agent and its tools ask a model while a turn of it runs, as the budget says; and
    /// not at all without one.
    fn allow_calls(&mut self) {
        let Self {
            dispatcher, model, ..
        } = self;
        let has_turn = model.agent().is_some_and(|agent| agent.is_in_turn());
        dispatcher
            .toolbox
            .allow(has_turn.then(|| dispatcher.state.budget_left()));
    }

    /// Records what was charged for, and belongs to no answer yet: what was charged for one that
    /// does not come, and what an agent does not report.
    pub(crate) fn charge(&mut self) -> Result<(), TranscriptError> {
        let (usage, calls) = self.model.take_unrecorded();
        let Spent {
            usage,
            calls: model_calls,
        } = self.due(usage, calls);
        if !usage.is_nothing() || model_calls > 0 {
            self.record(Event::Charged { usage, model_calls })?;
        }
        // What was taken out of the count is part of the work now.
        self.allow_calls();
        Ok(())
    }

    /// Returns the entry for a cost that the model or the agent has reported.
    pub(crate) fn due(&mut self, usage: Usage, calls: u32) -> Spent {
        self.ledger.report(usage, calls);
        self.ledger.meter(self.dispatcher.toolbox.take_spent());
        self.ledger.due()
    }

    /// Writes the pending notices to the lead. Returns when to try again, if one cannot be written
    /// now.
    pub(crate) fn flush_notices(&mut self) -> Option<Duration> {
        let now = self.dispatcher.now();
        let notices = &mut self.dispatcher.state.work.notices;
        while let Some(notice) = notices.front_mut() {
            if let Err(error) = self.outbox.notify(notice) {
                // It may have been written, though not synced. A copy at each attempt would fill the
                // inbox.
                if !std::mem::replace(&mut notice.repeated, true) {
                    tracing::error!("a notice to the lead cannot be written yet: {error}");
                }
                return Some(now + RETRY);
            }
            notices.pop_front();
        }
        None
    }

    /// Writes into its own inbox how commands in the background have ended: mail is what the model
    /// reads, once. Returns when to try again, if that cannot be written now.
    fn tell_of_ended_commands(&mut self) -> Option<Duration> {
        while let Some(ended) = self.dispatcher.ended_commands.front() {
            let owner = self.outbox.from();
            let id = id::of_background_end(owner, ended.incarnation, ended.number);
            let message = Message::new(id, RUNTIME, owner.as_str(), clock::wall(), Body::Message);
            let message = message.with_content(ended.told.as_str());
            // It may have been written by a worker that was killed, or though it was not synced.
            if let Err(error) = self.outbox.send(owner, &message, true) {
                tracing::error!("how a command has ended cannot be told yet: {error}");
                return Some(self.dispatcher.now() + RETRY);
            }
            if let Some(ended) = self.dispatcher.ended_commands.pop_front() {
                ended.keep();
            }
            self.dispatcher.fetch();
        }
        None
    }

    /// Records what happened: the model and the state follow what is in the transcript.
    pub(crate) fn record(&mut self, event: Event) -> Result<(), TranscriptError> {
        let entry = self.append(None, event)?;
        self.model.observe(&entry.event);
        self.dispatcher.state.follow(&entry.event);
        if matches!(entry.event, Event::Idle { .. } | Event::Left { .. }) {
            self.ledger = Ledger::default();
        }
        let is_work = !self.dispatcher.state.is_idle();
        if let Some(agent) = self.model.agent() {
            agent.is_work = is_work;
        }
        Ok(())
    }

    /// Appends an entry to the transcript; `call`: of the subagent for which it happened.
    pub(crate) fn append(
        &mut self,
        call: Option<String>,
        event: Event,
    ) -> Result<Entry, TranscriptError> {
        let work = &self.dispatcher.state.work;
        let at = clock::wall();
        let inbox = work.position;
        let pending_notices = work.pending_notices();
        let model = work.fallback.clone().filter(|_| event.has_cost());
        let entry = Entry {
            at,
            inbox,
            pending_notices,
            call,
            model,
            event,
        };
        self.transcript.append(&entry)?;
        Ok(entry)
    }

    /// Consumes what the mailbox holds; returns the messages.
    pub(crate) fn consume(&mut self) -> Result<Vec<Message>, TranscriptError> {
        let was_idle = self.dispatcher.state.is_idle();
        // Before the entry is there: what interrupts this work may have seen it.
        let began_at = clock::since_boot();
        let mut delivered = Vec::new();
        for consumed in self.dispatcher.mailbox.take() {
            match consumed {
                Consumed::Messages { messages, behind } => {
                    self.dispatcher.state.work.position = behind;
                    let values = messages.iter().map(Message::to_json).collect();
                    self.record(Event::Messages { messages: values })?;
                    delivered.extend(messages);
                }
                Consumed::Rejected {
                    offset,
                    rejection,
                    behind,
                } => {
                    // Into quarantine first: a second time there changes nothing, a second notice
                    // would.
                    let reason = self.dispatcher.mailbox.reject(&rejection);
                    self.dispatcher.state.work.position = behind;
                    let message_id = self.ids.message();
                    self.record(Event::Rejected {
                        offset,
                        reason,
                        message_id,
                    })?;
                    self.flush_notices();
                }
                Consumed::Restarted { reason } => {
                    tracing::warn!("{reason}: reading from its new beginning");
                    self.dispatcher.state.work.position = Position::START;
                    self.record(Event::Restarted { reason })?;
                }
            }
        }
        if was_idle && !self.dispatcher.state.is_idle() {
            self.dispatcher.work_began = began_at;
        }
        self.dispatcher
            .state
            .consumed(self.dispatcher.mailbox.has_rest());
        self.dispatcher.fetch();
        Ok(delivered)
    }

    /// Answers a shutdown for the model.
    fn answer_for_model(&mut self, request_id: RequestId, approve: bool, reason: String) {
        let (message_id, repeated) = match self.approval.take() {
            Some((answered, id)) if answered == request_id => (id, true),
            _ => (self.ids.message(), false),
        };
        let by = AnsweredBy::Runtime;
        if let Err(error) = self.respond(&request_id, (message_id, repeated), (approve, reason), by)
        {
            tracing::error!("the shutdown could not be answered: {error}");
            // The line may be there all the same.
            self.approval = Some((request_id, message_id));
            self.dispatcher.state.answer_failed(self.dispatcher.now());
        }
    }

    /// Writes an answer to a shutdown (yes or no, and why), and submits it.
    pub(crate) fn respond(
        &mut self,
        request_id: &RequestId,
        (message_id, repeated): (Uuid, bool),
        (approve, reason): (bool, String),
        by: AnsweredBy,
    ) -> Result<(), AppendError> {
        let id = request_id.clone();
        let answered_by = Some(by);
        let body = Body::ShutdownResponse {
            request_id: id,
            approve,
            reason,
            answered_by,
        };
        let mut message = self.outbox.message(message_id, LEAD, body);
        // The daemon reports an end; only this message reports a rejection.
        if !approve && team::lead_agent_asked(self.outbox.dir(), request_id) {
            message.extra.insert(ASKED_BY.to_owned(), LEAD.into());
        }
        let line = self.outbox.send(&Name::lead(), &message, repeated)?;
        self.dispatcher
            .state
            .answering(request_id.clone(), approve, by);
        self.dispatcher.link.submit(request_id.clone(), line);
        Ok(())
    }

    /// Ends a piece of work, and notifies the lead.
    fn finish(&mut self, idle_reason: IdleReason) -> Result<(), TranscriptError> {
        let state = &mut self.dispatcher.state;
        let content = match idle_reason {
            IdleReason::Available | IdleReason::Failed => std::mem::take(&mut state.work.closing),
            IdleReason::MaxTurns | IdleReason::MaxTokens | IdleReason::MaxCost => {
                state.explain(idle_reason).unwrap_or_default()
            }
            IdleReason::Interrupted => self.caller.interrupted().to_owned(),
        };
        self.charge()?;
        let goes_on = idle_reason != IdleReason::Available && self.dispatcher.state.has_news();
        let message_id = self.ids.message();
        self.record(Event::Idle {
            idle_reason,
            content,
            message_id,
            goes_on,
        })?;
        self.allowance.renew();
        self.transcript.sync()?;
        self.flush_notices();
        self.dispatcher.toolbox.reap_orphans();
        Ok(())
    }

    /// Ends the incarnation: what it started first, its last entry then, its connection last.
    async fn leave(mut self, end: &IncarnationEnd) -> Result<(), TranscriptError> {
        self.dispatcher.state.leaving();
        self.dispatcher.mailbox.close();
        if let Some(agent) = self.model.agent() {
            self.dispatcher.toolbox.allow(None);
            self.dispatcher.run_to_end(agent.end()).await;
        }
        while self.dispatcher.state.has_background() {
            self.dispatcher.serve(None).await;
        }
        // What has ended by itself meanwhile is told to the next incarnation.
        let ended = self.dispatcher.toolbox.take_ended();
        self.dispatcher.ended_commands.extend(ended);
        self.tell_of_ended_commands();
        let reason = match end {
            IncarnationEnd::Approved => "the shutdown is approved".to_owned(),
            IncarnationEnd::Terminated => "SIGTERM".to_owned(),
            IncarnationEnd::Unknown(why) => why.clone(),
        };
        tracing::info!("leaving: {reason}");
        if self.flush_notices().is_some() {
            tracing::error!(
                "a notice to the lead could not be written, and will be when this teammate is resumed"
            );
        }
        self.charge()?;
        let by_signal = matches!(end, IncarnationEnd::Terminated);
        let goes_on = self.dispatcher.state.has_news();
        self.record(Event::Left {
            reason,
            incarnation: self.incarnation,
            by_signal,
            goes_on,
        })?;
        self.transcript.sync()?;
        self.dispatcher.toolbox.reap_orphans();
        self.dispatcher.link.close().await;
        Ok(())
    }
}

/// Returns whether an answer was accepted unchanged.
pub(crate) fn stands(approve: bool, status: Status) -> bool {
    status
        == if approve {
            Status::Approved
        } else {
            Status::Rejected
        }
}
