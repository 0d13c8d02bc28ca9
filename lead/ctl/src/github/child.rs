//! Runs a program of the user for a limited time, with a limited answer.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use teamd_client::act::waiting::within;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::print::{clock, escape};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// How much a program may answer, in bytes.
const MOST: u64 = 16 << 20;

/// How much of what it says is shown if it fails, in bytes.
const SHOWN: u64 = 2_000;

/// A program, and how it is run.
pub(crate) struct UserProgram<'a> {
    /// Its name, for messages.
    pub(crate) name: &'a str,
    /// How long it may take.
    pub(crate) limit: Duration,
    /// Whether it may ask at the terminal. Else it has a process group of its own, which ends with
    /// it.
    pub(crate) may_ask: bool,
    /// What else can be done if it is late.
    pub(crate) if_late: &'a str,
}

/// What a program has answered.
pub(crate) struct ProgramEnd {
    pub(crate) status: ExitStatus,
    pub(crate) answer: Vec<u8>,
    said: Vec<u8>,
}

impl ProgramEnd {
    /// Returns the beginning of what it said beside its answer, in one line.
    pub(crate) fn said(&self) -> String {
        let said = String::from_utf8_lossy(&self.said);
        escape::line(said.trim()).into_owned()
    }
}

impl UserProgram<'_> {
    /// Runs a command with this on its standard input.
    ///
    /// # Errors
    /// If it cannot run, takes too long, answers too much, or Ctrl-C is pressed.
    pub(crate) async fn run(
        &self,
        command: &mut Command,
        input: &str,
    ) -> Result<ProgramEnd, CommandError> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if !self.may_ask {
            command.process_group(0);
        }
        let name = self.name;
        let mut child = command
            .spawn()
            .map_err(|error| CommandError::refused(&format!("cannot run `{name}`"), &error))?;
        let ended = within(Some(self.limit), self.finish(&mut child, input)).await;
        self.end(&mut child).await?;
        match ended? {
            Ok(ended) => Ok(ended),
            Err(early) => {
                let limit = clock::span(self.limit.as_secs_f64());
                let late = format!("`{name}` has not ended within {limit}");
                Err(early.error(format_args!("`{name}`"), late, self.if_late))
            }
        }
    }

    /// Waits until it has ended, and nothing holds its output open.
    async fn finish(&self, child: &mut Child, input: &str) -> Result<ProgramEnd, CommandError> {
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();
        let feed = async {
            // It need not read it: then it says why it ends.
            if let Some(mut stdin) = stdin {
                stdin.write_all(input.as_bytes()).await.ok();
            }
            Ok(())
        };
        let answer = async {
            let Some(stdout) = stdout else {
                return Ok(Vec::new());
            };
            let answer = self.read(stdout, MOST + 1).await?;
            if answer.len() as u64 <= MOST {
                return Ok(answer);
            }
            let name = self.name;
            let message = format!("`{name}` answers more than {} MiB", MOST >> 20);
            Err(CommandError::new(ExitCode::Failed, message)
                .hint(format!("`type -a {name}` tells which program that is")))
        };
        let said = async {
            let Some(mut stderr) = stderr else {
                return Ok(Vec::new());
            };
            let said = self.read(&mut stderr, SHOWN).await?;
            // The rest is read as well, or it would wait.
            let rest = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
            rest.map_err(|error| self.unheard(&error))?;
            Ok(said)
        };
        let ((), answer, said) = tokio::try_join!(feed, answer, said)?;
        let status = child.wait().await.map_err(|error| self.unheard(&error))?;
        Ok(ProgramEnd {
            status,
            answer,
            said,
        })
    }

    async fn read(&self, from: impl AsyncRead + Unpin, most: u64) -> Result<Vec<u8>, CommandError> {
        let mut read = Vec::new();
        let all = from.take(most).read_to_end(&mut read).await;
        all.map_err(|error| self.unheard(&error))?;
        Ok(read)
    }

    /// Ends it, if it has not ended, with all that it started.
    async fn end(&self, child: &mut Child) -> Result<(), CommandError> {
        // Until it is reaped its number is its own.
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else {
            return Ok(());
        };
        if !self.may_ask
            && let Err(errno) = kill_process_group(pid, Signal::KILL)
        {
            tracing::debug!("cannot kill the group of `{}`: {errno}", self.name);
        }
        let killed = child.kill().await;
        killed.map_err(|error| self.unheard(&error))
    }

    fn unheard(&self, error: &std::io::Error) -> CommandError {
        CommandError::refused(&format!("cannot see what `{}` does", self.name), error)
    }
}
