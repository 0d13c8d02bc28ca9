//! Waiting for what the daemon has recorded already. If the daemon dies meanwhile, the next daemon is asked for the same, by its
//! id. A timeout and Ctrl-C end the waiting, but not the request.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::time::Duration;

use teamd_shared::control::{Await, Command, Done, Refusal, RefusalCode};
use teamd_shared::team_dir::TeamDir;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::output::Output;
use super::roster;
use crate::client::{CallError, Client, has_stopped};
use crate::error::CommandError;
use crate::exit_code::ExitCode;

/// Between two attempts to reach the next daemon, at first and at last.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Ctrl-C, caught from the beginning of a command: between the recording of the request and the waiting it must not end the
/// process without a message.
#[derive(Debug)]
pub(super) struct Interrupt(Signal);

impl Interrupt {
    /// Begins to catch it. Must be called within the runtime.
    ///
    /// # Errors
    /// [`ExitCode::Failed`] if the system refuses.
    pub(super) fn catch() -> Result<Self, CommandError> {
        let refused = |error| CommandError::new(ExitCode::Failed, format!("cannot catch Ctrl-C: {error}"));
        signal(SignalKind::interrupt()).map(Self).map_err(refused)
    }

    /// Waits for the answer to a command about `about`, at the longest until Ctrl-C.
    ///
    /// # Errors
    /// As the command, or [`ExitCode::Interrupted`]: what became of the command is not known then.
    pub(super) async fn or<T>(
        &mut self,
        about: &str,
        asking: impl Future<Output = Result<T, CommandError>>,
    ) -> Result<T, CommandError> {
        tokio::select! {
            biased;
            answer = asking => answer,
            () = self.came() => {
                let message = format!("the waiting for {about} was ended before the daemon had answered");
                Err(CommandError::new(ExitCode::Interrupted, message)
                    .hint("`teamctl events --last 5` shows whether it has recorded anything: that goes on"))
            }
        }
    }

    /// Returns when it comes.
    pub(super) async fn came(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
    }
}

/// How to wait.
pub(super) struct Waiting<'a> {
    /// The team.
    pub(super) dir: &'a TeamDir,
    /// Where to say that the daemon is gone.
    pub(super) out: &'a Output,
    /// How long; none: without an end.
    pub(super) timeout: Option<Duration>,
}

/// How the waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    /// Everything is answered.
    Answered,
    /// The time is over.
    TimedOut,
    /// Ctrl-C.
    Interrupted,
}

/// How the waiting for one thing ended.
#[derive(Debug, PartialEq)]
pub(super) enum One {
    /// It has happened.
    Done(Done),
    /// It cannot happen any more.
    Refused(Refusal),
    /// The time is over.
    TimedOut,
    /// Ctrl-C.
    Interrupted,
}

impl Waiting<'_> {
    /// Waits for one thing.
    pub(super) async fn one(&self, line: (Client, Interrupt), command: Command) -> One {
        let mut answer = None;
        let (client, interrupt) = line;
        let waited =
            self.all((Some(client), interrupt), vec![command], |_, result| answer = Some(result)).await;
        match (answer, waited) {
            (Some(Ok(done)), _) => One::Done(done),
            (Some(Err(refusal)), _) => One::Refused(refusal),
            (None, Waited::Interrupted) => One::Interrupted,
            (None, Waited::TimedOut | Waited::Answered) => One::TimedOut,
        }
    }

    /// Waits for several things, and hands over each answer, with the index of its command, when it comes. Without a
    /// client the next daemon is asked.
    pub(super) async fn all(
        &self,
        (client, mut interrupt): (Option<Client>, Interrupt),
        commands: Vec<Command>,
        answered: impl FnMut(usize, Result<Done, Refusal>),
    ) -> Waited {
        tokio::select! {
            // An answer that is there already counts, whatever else is.
            biased;
            () = self.follow(client, commands, answered) => Waited::Answered,
            () = interrupt.came() => Waited::Interrupted,
            () = elapsed(self.timeout) => Waited::TimedOut,
        }
    }

    async fn follow(
        &self,
        mut client: Option<Client>,
        commands: Vec<Command>,
        mut answered: impl FnMut(usize, Result<Done, Refusal>),
    ) {
        let mut open: BTreeMap<usize, Command> = commands.into_iter().enumerate().collect();
        let mut told = false;
        while !open.is_empty() {
            let next = match client.take() {
                Some(client) => Some(client),
                None => reconnect(self.dir).await,
            };
            let Some(live) = next else {
                for (index, command) in std::mem::take(&mut open) {
                    answered(index, after_the_last_daemon(self.dir, &command));
                }
                return;
            };
            match ask(live, &mut open, &mut answered).await {
                Ok(()) => {}
                Err(CallError::Refused(refusal)) => {
                    for index in std::mem::take(&mut open).into_keys() {
                        answered(index, Err(refusal.clone()));
                    }
                }
                Err(CallError::Lost(_)) if !told => {
                    told = true;
                    self.out.note("the daemon is gone; what it has recorded goes on, still waiting");
                    self.out.hint("`teamd start` in another terminal starts it again");
                }
                Err(
                    CallError::Lost(_)
                    | CallError::Untaken(_)
                    | CallError::Stopped
                    | CallError::Silent
                    | CallError::Unanswered,
                ) => {}
            }
        }
    }
}

/// Connects to the next daemon, however long that takes. None if the last one was stopped: no next one is to be expected,
/// and all that it was to do is done.
pub(super) async fn reconnect(dir: &TeamDir) -> Option<Client> {
    let mut pause = PAUSE.0;
    loop {
        tokio::time::sleep(pause).await;
        if let Ok(client) = Client::connect(dir).await {
            return Some(client);
        }
        if has_stopped(dir) {
            return None;
        }
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// Answers what is awaited from what the last daemon wrote before it ended in order.
fn after_the_last_daemon(dir: &TeamDir, command: &Command) -> Result<Done, Refusal> {
    let stopped = Refusal::new(RefusalCode::Conflict, "the daemon has stopped, with all its workers");
    let Command::Await { name, what: Await::Ended { .. }, .. } = command else { return Err(stopped) };
    let roster = roster::load(dir).map_err(|error| Refusal::new(RefusalCode::Failed, error.message()))?;
    let status = roster.member(name).map(|member| member.status).filter(|status| status.is_ended());
    status.map(|status| Done::Ended { status }).ok_or(stopped)
}

/// Asks for everything that is open, and takes the answers as they come.
async fn ask(
    mut client: Client,
    open: &mut BTreeMap<usize, Command>,
    answered: &mut impl FnMut(usize, Result<Done, Refusal>),
) -> Result<(), CallError> {
    let mut tags = HashMap::new();
    for (index, command) in open.iter() {
        tags.insert(client.send(command.clone()).await?, *index);
    }
    while !open.is_empty() {
        let reply = client.reply().await?;
        if let Some(index) = tags.remove(&reply.tag) {
            open.remove(&index);
            answered(index, reply.result);
        }
    }
    Ok(())
}

/// Returns after this time; never if there is none.
pub(super) async fn elapsed(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::super::output::tests::captured;
    use super::*;
    use crate::client::tests::{runtime, scratch};
    use teamd_shared::control::{Connection, Greeting, Listener, Reply, Request};
    use teamd_shared::id::RequestId;
    use teamd_shared::member::Status;
    use teamd_shared::name::Name;

    fn await_end(name: &str) -> Command {
        let what = Await::Ended { request_id: RequestId::from_bits(7) };
        Command::Await { name: Name::new(name).unwrap(), incarnation: 1, what }
    }

    async fn accept(listener: &Listener) -> Connection {
        let mut peer = listener.accept().await.unwrap();
        peer.receive::<Greeting>().await.unwrap().unwrap();
        peer
    }

    const ENDED: Done = Done::Ended { status: Status::Shutdown };

    #[test]
    fn a_request_is_followed_from_one_daemon_to_the_next() {
        let (_scratch, dir) = scratch();
        let (out, _, stderr) = captured(false);
        let waiting = Waiting { dir: &dir, out: &out, timeout: Some(Duration::from_secs(20)) };
        runtime().block_on(async {
            let first = Listener::bind(&dir).unwrap();
            let (client, mut peer) = tokio::join!(Client::connect(&dir), accept(&first));
            let daemons = async {
                let mut asked = vec![];
                for _ in 0..2 {
                    asked.push(peer.receive::<Request>().await.unwrap().unwrap());
                }
                peer.send(&Reply { tag: asked[1].tag, result: Ok(ENDED) }).await.unwrap();
                drop((peer, first));
                let second = Listener::bind(&dir).unwrap();
                let mut peer = accept(&second).await;
                let again: Request = peer.receive().await.unwrap().unwrap();
                assert_eq!(again.command, await_end("alice"), "only what is still open");
                let refusal = Refusal::new(RefusalCode::Rejected, "still writing");
                peer.send(&Reply { tag: again.tag, result: Err(refusal) }).await.unwrap();
            };
            let mut answers = vec![];
            let commands = vec![await_end("alice"), await_end("bob")];
            let wait = waiting.all(
                (Some(client.unwrap()), Interrupt::catch().unwrap()),
                commands,
                |index, answer| answers.push((index, answer)),
            );
            let ((), waited) = tokio::join!(daemons, wait);
            assert_eq!(waited, Waited::Answered);
            let refusal = Refusal::new(RefusalCode::Rejected, "still writing");
            assert_eq!(answers, [(1, Ok(ENDED)), (0, Err(refusal))]);
        });
        assert_eq!(stderr.text().matches("the daemon is gone").count(), 1);
    }

    #[test]
    fn a_timeout_ends_the_waiting_with_a_daemon_that_is_silent_and_with_none() {
        let (_scratch, dir) = scratch();
        let (out, ..) = captured(false);
        let waiting = Waiting { dir: &dir, out: &out, timeout: Some(Duration::from_millis(50)) };
        runtime().block_on(async {
            let listener = Listener::bind(&dir).unwrap();
            let (client, peer) = tokio::join!(Client::connect(&dir), accept(&listener));
            assert_eq!(
                waiting.one((client.unwrap(), Interrupt::catch().unwrap()), await_end("alice")).await,
                One::TimedOut
            );
            drop(peer);
            let (client, peer) = tokio::join!(Client::connect(&dir), accept(&listener));
            drop((peer, listener));
            assert_eq!(
                waiting.one((client.unwrap(), Interrupt::catch().unwrap()), await_end("alice")).await,
                One::TimedOut
            );
        });
    }
}
