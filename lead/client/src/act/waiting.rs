//! Waits until the daemon has done what a command asks for, also if the daemon dies meanwhile: the
//! next daemon gets the same command, and joins it. The waiting ends with a timeout and with
//! Ctrl-C; neither ends the request.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::time::Duration;

use teamd_shared::control::{Command, Done, Refusal, RefusalCode};
use teamd_shared::id::{Ids, RandomIds};
use teamd_shared::team_dir::TeamDir;
use tokio::signal::unix::{SignalKind, signal};

use crate::connection::{CallError, Client};
use crate::daemon_lock::has_stopped;
use crate::daemon_wait::Attempts;
use crate::error::CommandError;
use crate::exit_code::ExitCode;
use crate::print::output::Output;
use crate::read::roster;

/// Why the waiting ended before there was an answer. What is waited for continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Early {
    /// The time is over.
    TimedOut,
    /// Ctrl-C.
    Interrupted,
}

impl Early {
    /// Makes the error: `late` names what is not done in time, `hint` what happens next.
    pub fn error(self, name: impl Display, late: String, hint: impl Into<String>) -> CommandError {
        let error = match self {
            Self::TimedOut => CommandError::new(ExitCode::TimedOut, late),
            Self::Interrupted => CommandError::new(
                ExitCode::Interrupted,
                format!("interrupted: no longer waiting for {name}"),
            ),
        };
        error.hint(hint)
    }
}

/// Waits for something, at most for a time (none: without a limit), or until Ctrl-C.
///
/// # Errors
/// As what is waited for, or [`ExitCode::Failed`] if Ctrl-C cannot be caught.
pub async fn within<T>(
    timeout: Option<Duration>,
    work: impl Future<Output = Result<T, CommandError>>,
) -> Result<Result<T, Early>, CommandError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| {
        CommandError::new(ExitCode::Failed, format!("cannot catch Ctrl-C: {error}"))
    })?;
    tokio::select! {
        // An answer that is there counts, whatever else has happened.
        biased;
        done = work => done.map(Ok),
        Some(()) = interrupt.recv() => Ok(Err(Early::Interrupted)),
        () = tokio::time::sleep(timeout.unwrap_or(Duration::MAX)) => Ok(Err(Early::TimedOut)),
    }
}

/// Gives commands to the daemon, and waits for their answers.
pub struct Requester<'a> {
    /// The team.
    pub dir: &'a TeamDir,
    /// Where to report that the daemon is gone.
    pub out: &'a Output,
    /// How long to wait; none: without a limit.
    pub timeout: Option<Duration>,
}

/// The answer to one of several commands.
#[derive(Debug, PartialEq)]
pub struct CommandAnswer {
    /// The index of the command.
    pub index: usize,
    /// The answer of the daemon.
    pub result: Result<Done, Refusal>,
    /// Whether an earlier daemon may have carried it out.
    pub said_again: bool,
}

impl Requester<'_> {
    /// Gives one command, and waits for its answer.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn one(
        &self,
        command: Command,
    ) -> Result<Result<Result<Done, Refusal>, Early>, CommandError> {
        let mut answer = Err(Early::TimedOut);
        let waited = self.all(vec![command], |it| answer = Ok(it.result)).await?;
        Ok(waited.and(answer))
    }

    /// Gives several commands, and hands over each answer when it comes.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn all(
        &self,
        commands: Vec<Command>,
        answered: impl FnMut(CommandAnswer),
    ) -> Result<Result<(), Early>, CommandError> {
        within(self.timeout, self.follow(commands, answered)).await
    }

    async fn follow(
        &self,
        commands: Vec<Command>,
        mut answered: impl FnMut(CommandAnswer),
    ) -> Result<(), CommandError> {
        let mut open: BTreeMap<usize, Command> = commands.into_iter().enumerate().collect();
        let mut client = Client::connect(self.dir).await?;
        let mut said_again = false;
        let mut attempts = Attempts::default();
        while let Err(lost) = ask(client, &mut open, said_again, &mut answered).await {
            if !said_again {
                tracing::debug!("{lost:?}");
                self.out
                    .note("the daemon is gone; what it has recorded continues, still waiting");
                self.out
                    .hint("`teamd start` in another terminal starts it again");
            }
            said_again = true;
            match reconnect(self.dir, &mut attempts).await {
                Some(next) => client = next,
                None => {
                    for (index, command) in std::mem::take(&mut open) {
                        let result = after_the_last_daemon(self.dir, &command);
                        answered(CommandAnswer {
                            index,
                            result,
                            said_again,
                        });
                    }
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Connects to the next daemon, however long that takes. Returns none if the last one ended in
/// order: all that it was to do is done, and the command that stopped it does not start another.
async fn reconnect(dir: &TeamDir, attempts: &mut Attempts) -> Option<Client> {
    loop {
        attempts.next(dir).await;
        if let Ok(client) = Client::connect(dir).await {
            return Some(client);
        }
        if has_stopped(dir) {
            return None;
        }
    }
}

/// Answers a command from what the last daemon wrote before it ended in order.
fn after_the_last_daemon(dir: &TeamDir, command: &Command) -> Result<Done, Refusal> {
    let stopped = Refusal::new(
        RefusalCode::Conflict,
        "the daemon has stopped, with all its workers",
    );
    let Command::Shutdown(order) = command else {
        return Err(stopped);
    };
    let roster =
        roster::load(dir).map_err(|error| Refusal::new(RefusalCode::Failed, error.message()))?;
    let member = roster
        .member(&order.name)
        .filter(|member| member.status.is_ended())
        .ok_or(stopped)?;
    let status = member.status;
    let exit = member.exit.clone().map(Box::new);
    Ok(Done::Ended {
        request_id: order.request_id.clone(),
        status,
        exit,
    })
}

/// Sends every command that is open, and hands over the answers as they come. A command whose id is
/// taken is sent again with another one.
async fn ask(
    mut client: Client,
    open: &mut BTreeMap<usize, Command>,
    said_again: bool,
    answered: &mut impl FnMut(CommandAnswer),
) -> Result<(), CallError> {
    let mut tags = HashMap::new();
    for (index, command) in open.iter() {
        tags.insert(client.send(command.clone()).await?, *index);
    }
    while !open.is_empty() {
        let reply = client.reply().await?;
        let Some(index) = tags.remove(&reply.tag) else {
            continue;
        };
        let is_taken = reply
            .result
            .as_ref()
            .is_err_and(|refusal| refusal.code == RefusalCode::Taken);
        if is_taken && let Some(Command::Shutdown(order)) = open.get_mut(&index) {
            order.request_id = RandomIds.request();
            tags.insert(client.send(Command::Shutdown(order.clone())).await?, index);
            continue;
        }
        open.remove(&index);
        answered(CommandAnswer {
            index,
            result: reply.result,
            said_again,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::captured;
    use crate::testing::{runtime, scratch};
    use teamd_shared::control::{
        Connection, Greeting, Listener, Reply, ShutdownOrder, TaggedCommand,
    };
    use teamd_shared::id::RequestId;
    use teamd_shared::member::MemberStatus;
    use teamd_shared::name::Name;

    fn shutdown(name: &str) -> Command {
        let request_id = id(7);
        let name = Name::new(name).unwrap();
        let reason = String::new();
        let decide_within = 30.0;
        let force_after = None;
        let wait = true;
        Command::Shutdown(ShutdownOrder {
            request_id,
            name,
            reason,
            decide_within,
            force_after,
            wait,
        })
    }

    fn id(bits: u32) -> RequestId {
        RequestId::from_bits(bits)
    }

    fn ended() -> Done {
        Done::Ended {
            request_id: id(7),
            status: MemberStatus::Shutdown,
            exit: None,
        }
    }

    async fn accept(listener: &Listener) -> Connection {
        let mut peer = listener.accept().await.unwrap();
        peer.receive::<Greeting>().await.unwrap().unwrap();
        peer
    }

    async fn asked(peer: &mut Connection) -> TaggedCommand {
        peer.receive().await.unwrap().unwrap()
    }

    #[test]
    fn the_next_daemon_is_told_the_same_of_what_is_not_answered() {
        let (_scratch, dir) = scratch();
        let (out, _, stderr) = captured(false);
        let caller = Requester {
            dir: &dir,
            out: &out,
            timeout: Some(Duration::from_secs(20)),
        };
        runtime().block_on(async {
            let first = Listener::bind(&dir).unwrap();
            let daemons = async {
                let mut peer = accept(&first).await;
                asked(&mut peer).await;
                let second = asked(&mut peer).await;
                peer.send(&Reply {
                    tag: second.tag,
                    result: Ok(ended()),
                })
                .await
                .unwrap();
                drop((peer, first));
                let second = Listener::bind(&dir).unwrap();
                let mut peer = accept(&second).await;
                let again = asked(&mut peer).await;
                assert_eq!(again.command, shutdown("alice"), "only what is still open");
                peer.send(&Reply {
                    tag: again.tag,
                    result: Ok(ended()),
                })
                .await
                .unwrap();
            };
            let mut answers = vec![];
            let commands = vec![shutdown("alice"), shutdown("bob")];
            let wait = caller.all(commands, |answer| answers.push(answer));
            let ((), waited) = tokio::join!(daemons, wait);
            assert_eq!(waited, Ok(Ok(())));
            let answer = |index, said_again| CommandAnswer {
                index,
                result: Ok(ended()),
                said_again,
            };
            assert_eq!(answers, [answer(1, false), answer(0, true)]);
        });
        assert_eq!(stderr.text().matches("the daemon is gone").count(), 1);
    }

    #[test]
    fn a_command_whose_id_is_taken_is_said_again_under_another_one() {
        let (_scratch, dir) = scratch();
        let (out, ..) = captured(false);
        let caller = Requester {
            dir: &dir,
            out: &out,
            timeout: Some(Duration::from_secs(20)),
        };
        runtime().block_on(async {
            let listener = Listener::bind(&dir).unwrap();
            let daemon = async {
                let mut peer = accept(&listener).await;
                let TaggedCommand { tag, .. } = asked(&mut peer).await;
                let taken = Refusal::new(RefusalCode::Taken, "it is taken");
                peer.send(&Reply {
                    tag,
                    result: Err(taken),
                })
                .await
                .unwrap();
                let TaggedCommand { tag, command } = asked(&mut peer).await;
                assert!(matches!(command, Command::Shutdown(order) if order.request_id != id(7)));
                peer.send(&Reply {
                    tag,
                    result: Ok(ended()),
                })
                .await
                .unwrap();
            };
            let ((), done) = tokio::join!(daemon, caller.one(shutdown("alice")));
            assert_eq!(done, Ok(Ok(Ok(ended()))));
        });
    }

    #[test]
    fn a_timeout_ends_the_waiting_with_a_daemon_that_is_silent_and_with_none() {
        let (_scratch, dir) = scratch();
        let (out, ..) = captured(false);
        let caller = Requester {
            dir: &dir,
            out: &out,
            timeout: Some(Duration::from_millis(50)),
        };
        runtime().block_on(async {
            let listener = Listener::bind(&dir).unwrap();
            let (waited, peer) = tokio::join!(caller.one(shutdown("alice")), accept(&listener));
            assert_eq!(waited, Ok(Err(Early::TimedOut)));
            drop(peer);
            let gone = async { drop((accept(&listener).await, listener)) };
            let (waited, ()) = tokio::join!(caller.one(shutdown("alice")), gone);
            assert_eq!(waited, Ok(Err(Early::TimedOut)));
        });
    }
}
