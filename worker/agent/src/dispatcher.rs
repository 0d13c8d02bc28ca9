//! The events that the worker serves at all times, whether a step runs or not: the daemon, the
//! inbox, signals, the end of background commands, the clock. Each event goes to the state, and the
//! reports of the state go to the daemon. Nothing is decided here, and no system call blocks.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use teamd_shared::control::{Command, Directive, McpServerReport, TaskOrder, ToWorker};
use teamd_shared::member::Waiting;
use teamd_shared::watch::SLOW_TICK;
use teamd_worker_sandbox::run::EndedCommand;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::connection::{DaemonLink, DaemonReply, LinkEvent, Unanswered};
use crate::mailbox::Mailbox;
use crate::tools::{Toolbox, Tools};
use teamd_worker_core::state::{IncarnationEnd, State, Why};

/// How many events are served before the next step.
const AT_ONCE: usize = 64;

/// How long the daemon may take to answer the lead agent.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same where a job must be done first: objects can have to cross a slow link.
const PATIENCE_WITH_JOBS: Duration = Duration::from_secs(1200);

/// Returns how long the daemon may take to answer a command.
fn patience(command: &Command) -> Duration {
    use TaskOrder::{Claim, Release, Submit};
    match command {
        Command::Task(Claim(_) | Submit(..) | Release(..)) => PATIENCE_WITH_JOBS,
        _ => PATIENCE,
    }
}

/// The sources of events.
#[derive(Debug)]
pub(crate) struct Dispatcher<T = Toolbox> {
    pub(crate) state: State,
    pub(crate) link: DaemonLink,
    pub(crate) mailbox: Mailbox,
    pub(crate) toolbox: T,
    /// Notified by each SIGTERM.
    pub(crate) terminate: Arc<Notify>,
    /// The pause of the moment in which the model waits for its service, if it has one.
    pub(crate) pauses: Option<watch::Receiver<Option<Waiting>>>,
    /// The commands in the background that have ended, and of which the model is not told yet.
    pub(crate) ended_commands: VecDeque<EndedCommand>,
    /// What becomes of its MCP servers, if it has some.
    pub(crate) servers: Option<watch::Receiver<Vec<McpServerReport>>>,
    /// What the times of the state count from.
    pub(crate) began: Instant,
    /// When the piece of work began that is done now, since the boot.
    pub(crate) work_began: Duration,
    /// When the inbox is looked at without being woken.
    pub(crate) tick: Instant,
}

impl<T: Tools> Dispatcher<T> {
    /// Returns the time that the state knows.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Serves until an activity is done, or the state stops it; then the caller ends it.
    pub(crate) async fn run_until<O>(
        &mut self,
        activity: impl Future<Output = O>,
    ) -> Result<O, Why> {
        let mut activity = pin!(activity);
        loop {
            if let Some(output) = self.run_unless(activity.as_mut(), |_| false).await? {
                return Ok(output);
            }
        }
    }

    /// As [`Dispatcher::run_until`]; returns without an output, too, if the state is one for that.
    pub(crate) async fn run_unless<O>(
        &mut self,
        activity: impl Future<Output = O>,
        returns: impl Fn(&State) -> bool,
    ) -> Result<Option<O>, Why> {
        let mut activity = pin!(activity);
        loop {
            let until = self.state.hold(self.now())?;
            if returns(&self.state) {
                return Ok(None);
            }
            tokio::select! {
                biased;
                output = &mut activity => return Ok(Some(output)),
                () = self.serve(until) => {}
            }
        }
    }

    /// Serves until an activity is done that nothing stops.
    pub(crate) async fn run_to_end<O>(&mut self, activity: impl Future<Output = O>) -> O {
        let mut activity = pin!(activity);
        loop {
            tokio::select! {
                biased;
                output = &mut activity => return output,
                () = self.serve(None) => {}
            }
        }
    }

    /// Asks the daemon for something, as the lead agent, and serves until it answers, or the state
    /// stops that.
    pub(crate) async fn ask(&mut self, command: Command) -> Result<DaemonReply, Why> {
        let over = tokio::time::sleep(patience(&command));
        let asked = self.ask_while(command, over).await;
        asked.map(|reply| reply.unwrap_or(Err(Unanswered::Lost)))
    }

    /// As [`Dispatcher::ask`], however long the answer takes; none if something else is over
    /// before.
    pub(crate) async fn ask_while(
        &mut self,
        command: Command,
        over: impl Future<Output = ()>,
    ) -> Result<Option<DaemonReply>, Why> {
        let (tag, answer) = self.link.ask(command);
        let waiting = async {
            tokio::select! {
                biased;
                // Only this link drops the other end.
                answer = answer => Some(answer.unwrap_or(Err(Unanswered::Lost))),
                () = over => None,
            }
        };
        let waited = self.run_until(waiting).await;
        self.link.give_up(tag);
        waited
    }

    /// Serves what has happened already: a turn of quick calls must not outrun the daemon's
    /// directive.
    pub(crate) async fn catch_up(&mut self) {
        tokio::task::yield_now().await;
        // A program that writes to the inbox without a pause must not stop the work.
        for _ in 0..AT_ONCE {
            tokio::select! {
                biased;
                () = self.serve(None) => {}
                () = std::future::ready(()) => return,
            }
        }
    }

    /// Reports the state of the worker, and serves what happens next, or the time. Dropping the future
    /// loses nothing.
    pub(crate) async fn serve(&mut self, until: Option<Duration>) {
        if self.state.may_open_gate() && self.toolbox.open_gate() {
            self.state.background(true);
        }
        self.link.report_commands(self.toolbox.runs_commands());
        let state = self.state.report(self.mailbox.needs_waking());
        self.link
            .report_other_models(self.state.other_models(), state.usage);
        self.link.report_state(state);
        let until = until.map_or(self.tick, |until| self.tick.min(self.began + until));
        let Self {
            state,
            link,
            mailbox,
            toolbox,
            terminate,
            pauses,
            servers,
            ..
        } = self;
        // In an order, so that a schedule can be replayed. What comes last is only to be looked at
        // now and then, and is after each of the others: nothing is lost by waiting.
        tokio::select! {
            biased;
            () = terminate.notified() => {
                tracing::info!("SIGTERM: leaving");
                self.link.report_leaving();
                self.state.end(IncarnationEnd::Terminated);
            }
            ended = beside(toolbox, state.must_end_background()) => match ended {
                Some(command) => {
                    self.ended_commands.push_back(command);
                    self.state.background(self.toolbox.has_background());
                }
                None => self.state.background(false),
            },
            event = link.next() => self.handle(event),
            pause = next(pauses) => self.state.pause(pause),
            reports = next(servers) => self.link.report_servers(reports),
            () = mailbox.changed() => self.fetch(),
            () = tokio::time::sleep_until(until) => {
                if Instant::now() >= self.tick {
                    self.fetch();
                }
            }
        }
    }

    fn handle(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Frame(frame) => self.receive(frame),
            LinkEvent::TeamDeleted => self.state.end(IncarnationEnd::Unknown(
                "the team directory was deleted".to_owned(),
            )),
            // Its last decision may be in the inbox alone, and no daemon wakes the worker any
            // longer.
            LinkEvent::Disconnected => self.fetch(),
        }
    }

    fn receive(&mut self, frame: ToWorker) {
        match frame {
            ToWorker::Directive(directive) => self.follow(directive),
            ToWorker::Welcome(welcome) => self.follow(welcome.directive),
            ToWorker::Recorded { request_id, status } => {
                self.link.stop_submitting(&request_id);
                self.state.recorded(&request_id, status);
            }
            ToWorker::Refused {
                request_id,
                why,
                taken,
            } => {
                tracing::warn!("the daemon refused {request_id}: {why}");
                self.link.stop_submitting(&request_id);
                self.state.refused(&request_id, (why, taken), self.now());
            }
            ToWorker::Wake => self.fetch(),
            // It may come late, and find work that was not there when it was asked for.
            ToWorker::Interrupt { asked_at } if asked_at < self.work_began => {}
            ToWorker::Interrupt { .. } => self.state.interrupt(),
            ToWorker::Reply(reply) => self
                .link
                .answered(reply.tag, reply.result.map_err(Unanswered::Refused)),
            ToWorker::Ping { number } => self.link.pong(number),
            ToWorker::Compact { id } => self.state.asks_to_compact(id),
            ToWorker::Stranger { why } => self.state.end(IncarnationEnd::Unknown(why)),
        }
    }

    fn follow(&mut self, directive: Directive) {
        // What was sent before the directive is read before the worker acts on it.
        self.fetch();
        if let Some(decided) = self.state.directive(directive, self.now()) {
            self.link.stop_submitting(&decided);
        }
    }

    /// Looks into the inbox. Nothing is consumed.
    pub(crate) fn fetch(&mut self) {
        self.tick = Instant::now() + SLOW_TICK;
        self.mailbox.fetch();
        self.state.arrived(self.mailbox.arrived(), self.now());
    }
}

/// Waits for the end of a command in the background, or, if all have to end, for that (none).
/// Dropping the future loses nothing.
async fn beside<T: Tools>(toolbox: &mut T, must_end: bool) -> Option<EndedCommand> {
    if must_end {
        toolbox.end_background().await;
        return None;
    }
    Some(toolbox.background_ended().await)
}

/// Waits until what is watched changes. Dropping the future loses nothing.
async fn next<T: Clone>(watched: &mut Option<watch::Receiver<T>>) -> T {
    if let Some(watched) = watched
        && watched.changed().await.is_ok()
    {
        return watched.borrow_and_update().clone();
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests;
