//! The dispatcher of the worker: the only place where events meet the state and steps are carried out.
//!
//! [`Desk`] serves everything that can happen, while something runs as well as while nothing does: it feeds the
//! state and says what the state says of itself. [`Session`] asks the state for the next step and performs it
//! (the steps of a turn in `turn`). Nothing is decided elsewhere, and nothing is waited for in a system call.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use teamd_shared::clock::since_boot;
use teamd_shared::control::{Command, ToWorker};
use teamd_shared::id::{Ids, RandomIds, RequestId};
use teamd_shared::inbox::AppendError;
use teamd_shared::message::{AnsweredBy, Body, IdleReason, Message};
use teamd_shared::position::Position;
use teamd_shared::request::Status;
use teamd_shared::transcript::Event as Entry;
use teamd_shared::watch::SLOW_TICK;
use tokio::signal::unix::Signal;
use tokio::time::Instant;
use uuid::Uuid;

use crate::connection::{Heard, Link, Reply, Unanswered};
use crate::live::Live;
use crate::mailbox::{Mailbox, Taken};
use crate::model::Model;
use crate::outbox::Outbox;
use crate::plan::Submission;
use crate::replay::{Owed, ToolUse};
use crate::state::{Because, End, Hold, State, Step, Why};
use crate::strays;
use crate::tools::lead::Spawner;
use crate::tools::{Kit, Toolbox};
use crate::transcript::{Transcript, TranscriptError};

/// How many events are served before the next step.
const AT_ONCE: usize = 64;

/// How long the daemon may take to answer the lead agent.
const PATIENCE: Duration = Duration::from_secs(30);

/// What happens outside.
#[derive(Debug)]
enum Event {
    Heard(Heard),
    Mail,
    Terminate,
    BackgroundEnded,
    Time,
}

/// What is served all the time.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) state: State,
    pub(crate) link: Link,
    pub(crate) mailbox: Mailbox,
    pub(crate) toolbox: Toolbox,
    pub(crate) terminate: Signal,
    /// What the times of the state count from.
    pub(crate) began: Instant,
    /// When the piece of work began that is done now, since the boot.
    pub(crate) work_began: Duration,
    /// When the inbox is looked at without being woken.
    pub(crate) tick: Instant,
}

impl Desk {
    /// Returns the time that the state knows.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Serves until an activity is done, or the state stops it; then whoever called ends it.
    pub(crate) async fn attend<T>(&mut self, activity: impl Future<Output = T>) -> Result<T, Why> {
        let mut activity = pin!(activity);
        loop {
            let until = match self.state.hold(self.now()) {
                Hold::Stop(why) => return Err(why),
                Hold::Go { until } => until,
            };
            tokio::select! {
                biased;
                output = &mut activity => return Ok(output),
                event = self.event(until) => self.take(event),
            }
        }
    }

    /// Serves until an activity is done that nothing stops.
    pub(crate) async fn attend_to_its_end<T>(&mut self, activity: impl Future<Output = T>) -> T {
        let mut activity = pin!(activity);
        loop {
            tokio::select! {
                biased;
                output = &mut activity => return output,
                event = self.event(None) => self.take(event),
            }
        }
    }

    /// Asks the daemon for something, as the lead agent, and serves until it answers, or the state stops that.
    pub(crate) async fn ask(&mut self, command: Command) -> Result<Reply, Why> {
        let (tag, answer) = self.link.ask(command);
        let asked = self.attend(tokio::time::timeout(PATIENCE, answer)).await;
        self.link.give_up(tag);
        // One that does not answer is as good as lost; nobody but this link drops the other end.
        asked.map(|answer| answer.ok().and_then(Result::ok).unwrap_or(Err(Unanswered::Lost)))
    }

    /// As [`Desk::ask`], however long the answer takes; none if something else is over before.
    pub(crate) async fn ask_while(
        &mut self,
        command: Command,
        over: impl Future<Output = ()>,
    ) -> Result<Option<Reply>, Why> {
        let (tag, answer) = self.link.ask(command);
        let waiting = async {
            tokio::select! {
                biased;
                answer = answer => Some(answer.unwrap_or(Err(Unanswered::Lost))),
                () = over => None,
            }
        };
        let waited = self.attend(waiting).await;
        self.link.give_up(tag);
        waited
    }

    /// Serves one event, at least until a time.
    async fn wait(&mut self, until: Option<Duration>) {
        let event = self.event(until).await;
        self.take(event);
    }

    /// Serves what has happened already: a turn of quick calls must not outrun the daemon's word.
    async fn catch_up(&mut self) {
        tokio::task::yield_now().await;
        // Whoever writes to the inbox without a pause must not keep the work from going on.
        for _ in 0..AT_ONCE {
            tokio::select! {
                biased;
                event = self.event(None) => self.take(event),
                () = std::future::ready(()) => return,
            }
        }
    }

    /// Says where the worker stands, and waits for what happens next. Dropping the future loses nothing.
    async fn event(&mut self, until: Option<Duration>) -> Event {
        self.link.say(self.state.report(self.mailbox.wants_ring()));
        let until = until.map_or(self.tick, |until| self.tick.min(self.began + until));
        let Self { state, link, mailbox, toolbox, terminate, .. } = self;
        tokio::select! {
            heard = link.hear() => Event::Heard(heard),
            () = mailbox.changed() => Event::Mail,
            _ = terminate.recv() => Event::Terminate,
            () = toolbox.end_background(), if state.must_end_background() => Event::BackgroundEnded,
            () = tokio::time::sleep_until(until) => Event::Time,
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Heard(Heard::Daemon(said)) => self.daemon_says(said),
            Event::Heard(Heard::NoTeam) => {
                self.state.end(End::Unknown("the team directory was deleted".to_owned()));
            }
            Event::Heard(Heard::Lost { tag }) => self.link.answered(tag, Err(Unanswered::Lost)),
            Event::Mail => self.fetch(),
            Event::Terminate => {
                tracing::info!("SIGTERM: leaving");
                self.link.say_leaving();
                self.state.end(End::Terminated);
            }
            Event::BackgroundEnded => self.state.background(false),
            Event::Time if Instant::now() >= self.tick => self.fetch(),
            Event::Time => {}
        }
    }

    fn daemon_says(&mut self, said: ToWorker) {
        match said {
            ToWorker::Word(word) => {
                // What was sent before the word is read before it is acted on.
                self.fetch();
                self.state.word(word, self.now());
            }
            ToWorker::Welcome(welcome) => {
                self.fetch();
                self.state.word(welcome.word, self.now());
            }
            ToWorker::Recorded { request_id, status } => {
                self.link.settle(&request_id);
                self.state.recorded(&request_id, status);
            }
            ToWorker::Refused { request_id, why, taken } => {
                tracing::warn!("the daemon refused {request_id}: {why}");
                self.link.settle(&request_id);
                self.state.refused(&request_id, why, taken);
            }
            ToWorker::Ring => self.fetch(),
            // It may come late, and find work that was not there when it was asked for.
            ToWorker::Interrupt { asked_at } if asked_at < self.work_began => {}
            ToWorker::Interrupt { .. } => self.state.interrupt(),
            ToWorker::Reply(reply) => {
                self.link.answered(reply.tag, reply.result.map_err(Unanswered::Refused))
            }
            ToWorker::Stranger { why } => self.state.end(End::Unknown(why)),
        }
    }

    /// Looks into the inbox. Nothing is taken in.
    pub(crate) fn fetch(&mut self) {
        self.tick = Instant::now() + SLOW_TICK;
        self.mailbox.fetch();
        self.state.mail(self.mailbox.mail(), self.now());
        self.state.spoken_to(self.mailbox.holds_word_of_person());
    }
}

/// A worker at work.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) desk: Desk,
    pub(crate) model: Model,
    pub(crate) live: Live,
    pub(crate) transcript: Transcript,
    pub(crate) outbox: Outbox,
    pub(crate) ids: RandomIds,
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

impl Session {
    /// Works until the life ends.
    ///
    /// # Errors
    /// [`TranscriptError`] if the transcript cannot be written: then nothing more may happen.
    pub(crate) async fn run(mut self) -> Result<(), TranscriptError> {
        loop {
            self.desk.catch_up().await;
            match self.desk.state.next(self.desk.now()) {
                Step::Wait { until } => self.desk.wait(until).await,
                Step::TakeIn => drop(self.take_in()?),
                Step::Show { request_id, reason } => self.show(request_id, reason)?,
                Step::Think => self.think().await?,
                Step::Call => self.call().await?,
                Step::Skip(why) => self.skip(&why)?,
                Step::NamePlan => self.name_plan()?,
                Step::RenamePlan => self.rename_plan(),
                Step::Resolve(verdict) => self.resolve(&verdict)?,
                Step::Approve { request_id, because } => self.approve(request_id, &because),
                Step::Settle(answer) => self.settle(&answer)?,
                Step::Finish(reason) => self.finish(reason)?,
                Step::Leave(end) => return self.leave(&end).await,
            }
        }
    }

    /// Records what happened, and lets the model know.
    pub(crate) fn record(&mut self, entry: &Entry) -> Result<(), TranscriptError> {
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
                    self.desk.mailbox.reject(offset, &rejection);
                    self.transcript.set_cursor(behind);
                    let (reason, message_id) = (rejection.reason.to_string(), self.ids.message());
                    self.record(&Entry::Rejected { offset, reason: reason.clone(), message_id })?;
                    self.outbox.notify(&Owed::Rejected { offset, reason, message_id });
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
        let message_id = match &self.approval {
            Some((known, id)) if *known == request_id => *id,
            _ => self.ids.message(),
        };
        self.approval = Some((request_id.clone(), message_id));
        let reason = match because {
            Because::Idle => "idle".to_owned(),
            Because::TurnEnded => "the turn ended without an answer".to_owned(),
            Because::Suspended => "waiting for a verdict on its plan".to_owned(),
            Because::Overdue(within) => format!("no answer within {within} s"),
        };
        let by = AnsweredBy::Runtime;
        if let Err(error) = self.respond(&request_id, message_id, (true, reason), by) {
            tracing::error!("the shutdown could not be answered: {error}");
            self.desk.state.answer_failed(self.desk.now());
        }
    }

    /// Writes an answer to a shutdown (yes or no, and why), and names it.
    pub(crate) fn respond(
        &mut self,
        request_id: &RequestId,
        message_id: Uuid,
        (approve, reason): (bool, String),
        by: AnsweredBy,
    ) -> Result<(), AppendError> {
        let (id, answered_by) = (request_id.clone(), Some(by));
        let body = Body::ShutdownResponse { request_id: id, approve, reason, answered_by };
        let line = self.outbox.to_lead(message_id, body)?;
        self.desk.state.answering(request_id.clone(), approve, by);
        self.desk.link.name(request_id, line);
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
        self.outbox.notify(&Owed::Idle { idle_reason, content: content.clone(), message_id });
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
        self.record(&Entry::Left { reason })?;
        self.transcript.sync()?;
        strays::end();
        self.desk.link.close().await;
        Ok(())
    }
}

/// Tells whether an answer stands as it was given.
pub(crate) fn stands(approve: bool, status: Status) -> bool {
    status == if approve { Status::Approved } else { Status::Rejected }
}
