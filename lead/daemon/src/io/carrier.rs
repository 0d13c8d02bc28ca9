//! What carries bytes to another machine, from either side: the process of an `ssh` or of a
//! `teamd-nats`. What it is told goes to a program there, and what that says comes back.

use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use teamd_shared::host::NEEDS_PERSON;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

/// How long a carrier may take to end that says nothing more.
const ENDS: Duration = Duration::from_secs(5);

/// How much of what a carrier says of itself is kept, in bytes.
const MAX_STDERR: u64 = 16 << 10;

/// A process that carries what is said in both directions.
#[derive(Debug)]
pub(crate) struct CarrierChannel {
    /// What the program there says.
    pub(crate) reads: BufReader<ChildStdout>,
    /// Takes what it is told.
    pub(crate) writes: ChildStdin,
    /// The process.
    pub(crate) process: CarrierProcess,
}

impl CarrierChannel {
    /// Runs a carrier.
    ///
    /// # Errors
    /// Why it cannot be run.
    pub(crate) fn open(mut command: Command) -> Result<Self, String> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("cannot run {}: {error}", name_of(&command)))?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("the carrier has no pipes".to_owned());
        };
        Ok(Self {
            reads: BufReader::with_capacity(64 << 10, stdout),
            writes: stdin,
            process: CarrierProcess {
                child,
                said: tokio::spawn(last_of(stderr)),
            },
        })
    }
}

/// The process. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct CarrierProcess {
    child: Child,
    said: JoinHandle<String>,
}

impl CarrierProcess {
    /// Waits for the end, and tells how it was. A network that is gone ends an `ssh` by
    /// its options, and a `teamd-nats` by itself.
    pub(crate) async fn ended(&mut self) -> CarrierEnd {
        let status = self.child.wait().await;
        let said = (&mut self.said).await.unwrap_or_default();
        CarrierEnd::of(status.ok().and_then(|status| status.code()), &said)
    }

    /// Waits a short time for the end of one that says nothing more.
    pub(crate) async fn ends(&mut self) -> CarrierEnd {
        let ended = tokio::time::timeout(ENDS, self.ended()).await;
        ended.unwrap_or(CarrierEnd::Hangs)
    }
}

/// How a carrier has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CarrierEnd {
    /// With what it was to do.
    Done,
    /// It has not, although it says nothing more.
    Hangs,
    /// It could not log in.
    NoLogin,
    /// It does not know who answers.
    UnknownHostKey,
    /// The shell there finds no program.
    NoProgram,
    /// It says that a person must do something first.
    NeedsPerson(String),
    /// It was told something else, or the network failed: trying again can help.
    Other(String),
}

impl CarrierEnd {
    /// Judges the exit code of a carrier, and what it or the program there has said last. The texts
    /// are those of OpenSSH 9 (`sshconnect2.c`, `sshconnect.c`) and of shells.
    pub(crate) fn of(code: Option<i32>, said: &str) -> Self {
        if code == Some(0) {
            return Self::Done;
        }
        // What ssh cannot do itself ends it with 255.
        if code == Some(255) && said.contains("Permission denied (") {
            return Self::NoLogin;
        }
        if said.contains("Host key verification failed")
            || said.contains("IDENTIFICATION HAS CHANGED")
        {
            return Self::UnknownHostKey;
        }
        if code == Some(127) {
            return Self::NoProgram;
        }
        if code == Some(NEEDS_PERSON.into()) {
            return Self::NeedsPerson(said.to_owned());
        }
        Self::Other(match (said, code) {
            ("", Some(code)) => format!("its carrier ended with code {code}"),
            ("", None) => "its carrier was killed".to_owned(),
            (said, _) => said.to_owned(),
        })
    }
}

impl fmt::Display for CarrierEnd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Done => "the connection ended",
            Self::Hangs => "it says nothing more, and the connection does not end",
            Self::NoLogin => "ssh could not log in without a question",
            Self::UnknownHostKey => "ssh does not know its host key, or knows another one",
            Self::NoProgram => "there is no teamd on the PATH of its login",
            Self::NeedsPerson(why) | Self::Other(why) => why,
        })
    }
}

/// Returns the name of the program of a command.
fn name_of(command: &Command) -> String {
    let program = Path::new(command.as_std().get_program());
    let name = program.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Returns the error of `teamd` there, else the last line that the carrier or the shell there says.
pub(crate) async fn last_of(stderr: ChildStderr) -> String {
    let mut text = Vec::new();
    let mut reader = stderr;
    let mut block = [0; 4096];
    while let Ok(read @ 1..) = reader.read(&mut block).await {
        text.extend_from_slice(&block[..read]);
        if text.len() as u64 > MAX_STDERR {
            text.drain(..text.len() / 2);
        }
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let error = text.lines().rfind(|line| line.starts_with("error: "));
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    let said = error.or(last).unwrap_or_default().trim();
    said.strip_prefix("error: ").unwrap_or(said).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_carrier_says_whether_a_person_is_needed() {
        let denied = "user@box: Permission denied (publickey,password).";
        assert_eq!(CarrierEnd::of(Some(255), denied), CarrierEnd::NoLogin);
        let of_program = "cannot reach the daemon: Permission denied (os error 13)";
        assert!(matches!(
            CarrierEnd::of(Some(1), of_program),
            CarrierEnd::Other(_)
        ));
        let unknown = "Host key verification failed.";
        assert_eq!(
            CarrierEnd::of(Some(255), unknown),
            CarrierEnd::UnknownHostKey
        );
        let says = "it does not take the credentials".to_owned();
        assert_eq!(
            CarrierEnd::of(Some(77), &says),
            CarrierEnd::NeedsPerson(says)
        );
        let missing = "sh: teamd: not found";
        assert_eq!(CarrierEnd::of(Some(127), missing), CarrierEnd::NoProgram);
        let refused = "ssh: connect to host box port 22: Connection refused";
        assert_eq!(
            CarrierEnd::of(Some(255), refused),
            CarrierEnd::Other(refused.to_owned())
        );
        assert_eq!(
            CarrierEnd::of(None, ""),
            CarrierEnd::Other("its carrier was killed".to_owned())
        );
    }
}
