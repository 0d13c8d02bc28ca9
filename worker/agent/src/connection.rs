//! The connection to the daemon: the one that the worker is born with, and every later one.
//!
//! A separate task reads and writes, so that a daemon that is stopped or gone does not block the
//! worker. The task does not send from a queue. It sends the present state: the worker's state, the
//! lines that are not recorded yet, and the questions of the lead agent that are not answered yet
//! (the daemon knows them by their ids). Each new connection gets all of this again. The task
//! decides nothing; events go to the dispatcher.

mod task;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use teamd_shared::control::{
    Command, Connection, Done, FromWorker, Greeting, McpServerReport, PROTOCOL, Peer, Refusal,
    TaggedCommand, ToWorker, Welcome, WireError, WorkerState,
};
use teamd_shared::environment::Environment;
use teamd_shared::id::RequestId;
use teamd_shared::inbox::Appended;
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::usage::{OtherModels, Usage};
use teamd_worker_core::tools::IN_DOUBT;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::announcement::Announcement;
use crate::last_words::{LAST_WORDS, LastWords};
use task::ConnectionTask;

/// The pauses between attempts to reach the daemon: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How many frames may wait for the dispatcher.
const MAX_EVENTS: usize = 64;

/// The member and incarnation of this worker.
#[derive(Debug, Clone)]
pub(crate) struct WorkerIdentity {
    /// The member.
    pub(crate) name: Name,
    /// Its incarnation.
    pub(crate) incarnation: u32,
}

impl WorkerIdentity {
    fn greeting(&self, environment: Option<Environment>, state: WorkerState) -> Greeting {
        let name = self.name.clone();
        let incarnation = self.incarnation;
        let state = Box::new(state);
        Greeting {
            protocol: PROTOCOL,
            peer: Peer::Worker {
                name,
                incarnation,
                environment,
                state,
            },
        }
    }
}

/// Sends the greeting on the inherited connection, and waits for the welcome.
///
/// Returns none if the daemon does not welcome the worker. Then nothing has begun, and nothing may.
pub(crate) async fn await_welcome(
    connection: &mut Connection,
    identity: &WorkerIdentity,
    last_words: &mut LastWords,
) -> Result<Option<Welcome>, WireError> {
    connection
        .send(&identity.greeting(None, WorkerState::default()))
        .await?;
    last_words.greeted();
    loop {
        match connection.receive().await? {
            Some(ToWorker::Welcome(welcome)) => return Ok(Some(*welcome)),
            Some(ToWorker::Stranger { why }) => {
                tracing::info!("not welcome: {why}");
                return Ok(None);
            }
            Some(_) => {}
            None => return Ok(None),
        }
    }
}

/// Returns whether a frame answers a question of the daemon. Such an answer is only for the
/// connection of the question.
fn answers_ping(frame: &FromWorker) -> bool {
    matches!(frame, FromWorker::Pong { number: 1.. })
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unanswered {
    /// The daemon refuses.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// It was lost, and whether the command was carried out is not known.
    #[error("the daemon was lost before it answered: it {}", IN_DOUBT)]
    Lost,
}

/// The answer to a question.
pub(crate) type DaemonReply = Result<Done, Unanswered>;

/// What happens on the connection.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// The daemon has sent a frame.
    Frame(ToWorker),
    /// The daemon is gone.
    Disconnected,
    /// The team directory was deleted, and with it the team.
    TeamDeleted,
}

/// The dispatcher's end.
#[derive(Debug)]
pub(crate) struct DaemonLink {
    announcement: watch::Sender<Announcement>,
    events: mpsc::Receiver<LinkEvent>,
    task: JoinHandle<()>,
    /// The calls that wait for an answer.
    waiting: HashMap<u32, oneshot::Sender<DaemonReply>>,
    last_tag: u32,
}

impl DaemonLink {
    /// Starts the task, with the connection that the worker was born with.
    pub(crate) fn start(
        connection: Connection,
        dir: Arc<TeamDir>,
        identity: WorkerIdentity,
        environment: Arc<Environment>,
    ) -> Self {
        let (announcement, announced) = announce();
        let (reports, events) = mpsc::channel(MAX_EVENTS);
        let task = ConnectionTask {
            dir,
            identity,
            environment,
            announcement: announced,
            events: reports,
            pause: PAUSES.0,
        };
        let task = tokio::spawn(task.run(connection));
        Self {
            announcement,
            events,
            task,
            waiting: HashMap::new(),
            last_tag: 0,
        }
    }

    /// Asks the daemon for something, as the lead agent; returns the number of the question, and
    /// where its answer comes.
    pub(crate) fn ask(&mut self, command: Command) -> (u32, oneshot::Receiver<DaemonReply>) {
        self.last_tag += 1;
        let tag = self.last_tag;
        let (answers, answer) = oneshot::channel();
        self.waiting.insert(tag, answers);
        self.change(
            |_| false,
            Some(FromWorker::Asks(TaggedCommand { tag, command })),
        );
        (tag, answer)
    }

    /// Passes an answer on. An answer for which no call waits any longer changes nothing.
    pub(crate) fn answered(&mut self, tag: u32, reply: DaemonReply) {
        if self
            .give_up(tag)
            .is_none_or(|answers| answers.send(reply).is_err())
        {
            tracing::debug!("no call waits for the answer to question {tag}");
        }
    }

    /// Stops waiting for an answer. Returns the channel that would have got it.
    pub(crate) fn give_up(&mut self, tag: u32) -> Option<oneshot::Sender<DaemonReply>> {
        self.change(
            |frame| matches!(frame, FromWorker::Asks(asked) if asked.tag == tag),
            None,
        );
        self.waiting.remove(&tag)
    }

    /// Reports the state of the worker, if it has changed.
    pub(crate) fn report_state(&self, state: WorkerState) {
        self.announcement.send_if_modified(|announcement| {
            let changed = announcement.state != state;
            announcement.state = state;
            changed
        });
    }

    /// Reports what becomes of the MCP servers, in the place of the last report.
    pub(crate) fn report_servers(&self, servers: Vec<McpServerReport>) {
        self.change(
            |frame| matches!(frame, FromWorker::McpServers(_)),
            Some(FromWorker::McpServers(servers)),
        );
    }

    /// Reports whether commands run in the background, if that has changed.
    pub(crate) fn report_commands(&self, run: bool) {
        let is_of_commands = |frame: &FromWorker| matches!(frame, FromWorker::RunsCommands(_));
        let said = FromWorker::RunsCommands(run);
        let is_news = {
            let announcement = self.announcement.borrow();
            let mut last = announcement.frames.iter().map(|(_, frame)| frame);
            let last = last.find(|frame| is_of_commands(frame));
            last.map_or(run, |last| *last != said)
        };
        if is_news {
            self.change(is_of_commands, Some(said));
        }
    }

    /// Reports what models other than the recorded one have used, if that has changed; `all`: what
    /// the conversation has cost.
    pub(crate) fn report_other_models(&self, models: OtherModels, all: Usage) {
        let is_of_models = |frame: &FromWorker| matches!(frame, FromWorker::OtherModels(..));
        let is_news = {
            let announcement = self.announcement.borrow();
            let mut last = announcement.frames.iter().map(|(_, frame)| frame);
            match last.find(|frame| is_of_models(frame)) {
                Some(FromWorker::OtherModels(last, _)) => *last != models,
                _ => !models.is_nothing(),
            }
        };
        if is_news {
            self.change(is_of_models, Some(FromWorker::OtherModels(models, all)));
        }
    }

    /// Reports what came of a summary that was asked for.
    pub(crate) fn report_compacted(&self, id: RequestId, outcome: Result<(), String>) {
        self.change(|_| false, Some(FromWorker::Compacted { id, outcome }));
    }

    /// Submits a line, until that is withdrawn.
    pub(crate) fn submit(&self, request_id: RequestId, Appended { offset, len }: Appended) {
        self.change(
            |_| false,
            Some(FromWorker::Submitted {
                request_id,
                offset,
                len,
            }),
        );
    }

    /// Stops submitting the lines of a request: the daemon has recorded or refused them, or no call
    /// waits for them.
    pub(crate) fn stop_submitting(&self, of: &RequestId) {
        self.change(
            |frame| matches!(frame, FromWorker::Submitted { request_id, .. } if request_id == of),
            None,
        );
    }

    /// Answers the daemon's ping: the dispatcher still runs.
    pub(crate) fn pong(&self, number: u64) {
        self.change(answers_ping, Some(FromWorker::Pong { number }));
    }

    /// Reports that SIGTERM came.
    pub(crate) fn report_leaving(&self) {
        self.change(
            |frame| *frame == FromWorker::Leaving,
            Some(FromWorker::Leaving),
        );
    }

    fn change(&self, withdraws: impl Fn(&FromWorker) -> bool, frame: Option<FromWorker>) {
        self.announcement
            .send_modify(|announcement| announcement.change(withdraws, frame));
    }

    /// Waits for the next event of the connection. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> LinkEvent {
        match self.events.recv().await {
            Some(event) => event,
            // The task ends after this link alone.
            None => std::future::pending().await,
        }
    }

    /// Returns another way to send a last frame: the link may be lost with what fails.
    pub(crate) fn last_words(&self) -> LastWords {
        LastWords::Linked(self.announcement.clone())
    }

    /// Sends what is still unsaid, if the daemon takes it, and ends the connection.
    pub(crate) async fn close(self) {
        let Self {
            announcement,
            events,
            task,
            ..
        } = self;
        announcement.send_modify(|announcement| announcement.end(None));
        drop(announcement);
        drop(events);
        // A daemon that does not read must not keep the worker.
        drop(tokio::time::timeout(LAST_WORDS, task).await);
    }
}

/// Returns both ends of the announcement. It begins with a pong: the worker can be pinged.
fn announce() -> (watch::Sender<Announcement>, watch::Receiver<Announcement>) {
    let mut announcement = Announcement::default();
    announcement.change(|_| false, Some(FromWorker::Pong { number: 0 }));
    watch::channel(announcement)
}

/// Takes the inherited connection from descriptor 0, and puts `/dev/null` there, so that no tool
/// inherits it.
pub(crate) fn take_from_stdin() -> io::Result<std::os::fd::OwnedFd> {
    let taken = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(taken)
}

#[cfg(test)]
pub(crate) mod simulated;
#[cfg(test)]
mod tests;
