//! The client's end of the control socket: commands out, replies in. It decides nothing and prints
//! nothing.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use teamd_shared::control::{
    Command, Connection, Done, Greeting, PROTOCOL, Peer, Refusal, Reply, TaggedCommand, WireError,
    connect,
};
use teamd_shared::process::Identity;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::watch::SLOW_TICK;

use crate::daemon_lock::{has_stopped, is_locked};
use crate::daemon_wait::Attempts;
use crate::error::CommandError;
use crate::exit_code::ExitCode;

/// How long a daemon may take to answer what it need not wait for: it has to write to the disk.
pub const ANSWER: Duration = Duration::from_secs(10);
/// How long a daemon that runs may be out of reach: it makes a deleted socket again on its slow
/// tick, which may be late.
const OUT_OF_REACH: Duration = Duration::from_secs(2 * SLOW_TICK.as_secs());

/// What to do about a daemon that does not answer.
const STOPPED_OR_BUSY: &str =
    "the daemon may be stopped, or busy: see `ps`, and `teamctl log teamd`";

/// A connection to the daemon of a team directory.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    last_tag: u32,
    /// The team directory.
    root: PathBuf,
    /// The process that runs this one, if that is the server of a lead.
    run_by: Option<Box<Identity>>,
}

/// Why there is no result.
#[derive(Debug, PartialEq, Eq)]
pub enum CallError {
    /// The daemon refused.
    Refused(Refusal),
    /// The connection ended before the reply: what became of the command is not known.
    Lost(String),
    /// Likewise; and the daemon has ended in order, with no worker left.
    Stopped,
    /// It runs, and does not answer a question, or was not asked yet.
    Silent,
    /// It runs, and does not answer a command: what becomes of that is not known.
    Unanswered,
}

impl From<CallError> for CommandError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(refusal) => refusal.into(),
            CallError::Lost(why) => Self::new(
                ExitCode::Failed,
                format!("the daemon was lost before it answered: {why}"),
            )
            .hint(
                "`teamctl events --last 5` shows whether it was done, `teamd start` starts the daemon again",
            ),
            CallError::Stopped => Self::new(ExitCode::NotRunning, "the daemon has just been stopped")
                .hint("`teamd start` starts it again"),
            CallError::Silent => {
                Self::new(ExitCode::TimedOut, "the daemon runs, but does not answer").hint(STOPPED_OR_BUSY)
            }
            CallError::Unanswered => Self::new(
                ExitCode::TimedOut,
                "the daemon runs, but does not answer: what it was asked for may still be done",
            )
            .hint(
                "before you repeat it, see whether it was done: `teamctl events --last 5` (of an interruption: \
                 `teamctl transcript NAME`)",
            )
            .hint(STOPPED_OR_BUSY),
        }
    }
}

impl From<WireError> for CallError {
    fn from(error: WireError) -> Self {
        Self::Lost(error.to_string())
    }
}

/// Makes the error of every command that needs a daemon where none runs.
pub fn not_running(dir: &TeamDir) -> CommandError {
    let message = format!("the daemon of {} is not running", dir.root().display());
    CommandError::new(ExitCode::NotRunning, message).hint("`teamd start` starts it")
}

impl Client {
    /// Connects to the daemon, and greets it.
    ///
    /// # Errors
    /// [`ExitCode::NotRunning`] if none runs there, else [`ExitCode::Failed`].
    pub async fn connect(dir: &TeamDir) -> Result<Self, CommandError> {
        Self::connect_by(dir, None).await
    }

    /// As [`Client::connect`], as the server of the lead that runs this process.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_as_lead(dir: &TeamDir, run_by: Identity) -> Result<Self, CommandError> {
        Self::connect_by(dir, Some(Box::new(run_by))).await
    }

    async fn connect_by(
        dir: &TeamDir,
        run_by: Option<Box<Identity>>,
    ) -> Result<Self, CommandError> {
        let began = Instant::now();
        let mut attempts = Attempts::default();
        let connected = loop {
            match greet(dir, run_by.as_deref()).await {
                // It starts or ends just now, or another process deleted its socket: it listens
                // again in a moment, or it is gone.
                Err(error)
                    if is_absent(&error) && began.elapsed() < OUT_OF_REACH && is_locked(dir) =>
                {
                    attempts.next(dir).await;
                }
                other => break other,
            }
        };
        let connection = connected.map_err(|error| {
            if is_absent(&error) {
                not_running(dir)
            } else {
                let message = format!(
                    "cannot connect to the daemon of {}: {error}",
                    dir.root().display()
                );
                CommandError::new(ExitCode::Failed, message)
            }
        })?;
        Ok(Self {
            connection,
            last_tag: 0,
            root: dir.root().to_owned(),
            run_by,
        })
    }

    /// Sends a command, and returns the tag that its reply will carry.
    ///
    /// # Errors
    /// [`CallError::Lost`] if the daemon is gone.
    pub async fn send(&mut self, command: Command) -> Result<u32, CallError> {
        self.last_tag += 1;
        self.connection
            .send(&TaggedCommand {
                tag: self.last_tag,
                command,
            })
            .await?;
        Ok(self.last_tag)
    }

    /// Receives the next reply, to whatever request.
    ///
    /// # Errors
    /// [`CallError::Lost`] if the daemon is gone.
    pub async fn reply(&mut self) -> Result<Reply, CallError> {
        let reply = self.connection.receive::<Reply>().await?;
        reply.ok_or_else(|| CallError::Lost("it closed the connection".to_owned()))
    }

    /// Sends a command and waits for its reply, which the daemon sends at once.
    ///
    /// # Errors
    /// [`CallError`] if the daemon refuses the command, does not answer, or is gone.
    pub async fn call(&mut self, command: Command) -> Result<Done, CallError> {
        self.call_for(ANSWER, command).await
    }

    async fn call_for(&mut self, patience: Duration, command: Command) -> Result<Done, CallError> {
        let only_asks = matches!(command, Command::Ping | Command::McpServers);
        let calling = self.call_and_wait(command);
        match tokio::time::timeout(patience, calling).await {
            Ok(answer) => answer,
            Err(_) if only_asks => Err(CallError::Silent),
            Err(_) => Err(CallError::Unanswered),
        }
    }

    /// Sends a command and waits for its reply, however long it takes. If the daemon is lost and
    /// another program is the daemon at once (`teamd start --replace`), that one gets the same.
    ///
    /// # Errors
    /// [`CallError`] if the daemon refuses the command, or is gone.
    pub async fn call_and_wait(&mut self, command: Command) -> Result<Done, CallError> {
        self.call_first(command, &[]).await
    }

    /// As [`Client::call_and_wait`]; then sends further commands, whose answers are ignored.
    ///
    /// # Errors
    /// As [`Client::call_and_wait`].
    pub async fn call_first(
        &mut self,
        command: Command,
        then: &[Command],
    ) -> Result<Done, CallError> {
        let mut attempts = Attempts::default();
        loop {
            match self.ask(command.clone(), then).await {
                Err(CallError::Lost(why)) => *self = self.next(&mut attempts, why).await?,
                answer => return answer,
            }
        }
    }

    /// Connects again, if a daemon holds the lock.
    async fn next(&self, attempts: &mut Attempts, why: String) -> Result<Self, CallError> {
        let Ok(dir) = TeamDir::open(&self.root) else {
            return Err(CallError::Lost(why));
        };
        attempts.next(&dir).await;
        match Self::connect_by(&dir, self.run_by.clone()).await {
            Ok(next) => Ok(next),
            Err(_) if has_stopped(&dir) => Err(CallError::Stopped),
            Err(_) => Err(CallError::Lost(why)),
        }
    }

    async fn ask(&mut self, command: Command, then: &[Command]) -> Result<Done, CallError> {
        let tag = self.send(command).await?;
        for command in then {
            self.send(command.clone()).await?;
        }
        loop {
            let reply = self.reply().await?;
            if reply.tag == tag {
                return reply.result.map_err(CallError::Refused);
            }
        }
    }
}

async fn greet(dir: &TeamDir, run_by: Option<&Identity>) -> io::Result<Connection> {
    let mut connection = connect(dir).await?;
    let greeting = Greeting {
        protocol: PROTOCOL,
        peer: match run_by {
            Some(run_by) => Peer::Lead {
                run_by: run_by.clone(),
            },
            None => Peer::Client,
        },
    };
    match connection.send(&greeting).await {
        Ok(()) => Ok(connection),
        // It ended between the two.
        Err(WireError::Io(error)) => Err(error),
        Err(other) => Err(io::Error::other(other)),
    }
}

/// Tells whether no daemon listens, or no longer does.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected, NotFound};
    matches!(
        error.kind(),
        NotFound | ConnectionRefused | ConnectionReset | BrokenPipe | NotConnected
    )
}

/// Makes the error of a reply that answers another question.
pub fn unexpected(done: &Done) -> CommandError {
    CommandError::new(ExitCode::Failed, format!("the daemon answered something else: {done:?}")).hint(
        "teamd and teamctl are of different versions: reinstall both, then `teamd stop` and `teamd start`",
    )
}

#[cfg(test)]
mod tests;
