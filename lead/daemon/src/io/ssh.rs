//! The `ssh` that carries a link or a file, from either side.

use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

/// How long an `ssh` may take to end that says nothing more.
const SSH_ENDS: Duration = Duration::from_secs(5);

/// How much of what `ssh` says is kept, in bytes.
const MAX_STDERR: u64 = 16 << 10;

/// The options of `ssh`. Each connection is one of its own: through a stalled master a new one
/// would hang. A link that is dead is noticed within 30 s, and no person is asked anything.
const OPTIONS: [&str; 11] = [
    "ControlMaster=no",
    "BatchMode=yes",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=2",
    "ConnectTimeout=10",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "LogLevel=ERROR",
];

/// Returns the command that runs a line elsewhere, with this key or as `ssh` is configured.
pub(crate) fn ssh(place: &str, key: Option<&Path>, line: &str) -> Command {
    let mut command = Command::new("ssh");
    command.args(["-T", "-S", "none"]);
    for option in OPTIONS {
        command.args(["-o", option]);
    }
    if let Some(key) = key {
        command.args(["-o", "IdentitiesOnly=yes", "-i"]).arg(key);
    }
    command.args(["--", place, line]).kill_on_drop(true);
    command
}

/// An `ssh` that carries what is said in both directions.
#[derive(Debug)]
pub(crate) struct SshChannel {
    /// What the program there says.
    pub(crate) reads: BufReader<ChildStdout>,
    /// Takes what it is told.
    pub(crate) writes: ChildStdin,
    /// The process.
    pub(crate) process: SshProcess,
}

impl SshChannel {
    /// Runs an `ssh`.
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
            .map_err(|error| format!("cannot run ssh: {error}"))?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err("ssh has no pipes".to_owned());
        };
        Ok(Self {
            reads: BufReader::with_capacity(64 << 10, stdout),
            writes: stdin,
            process: SshProcess {
                child,
                said: tokio::spawn(last_of(stderr)),
            },
        })
    }
}

/// The process of an `ssh`. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct SshProcess {
    child: Child,
    said: JoinHandle<String>,
}

impl SshProcess {
    /// Waits for the end, and tells how it was. A network that is gone ends an `ssh` by its options.
    pub(crate) async fn ended(&mut self) -> SshEnd {
        let status = self.child.wait().await;
        let said = (&mut self.said).await.unwrap_or_default();
        SshEnd::of(status.ok().and_then(|status| status.code()), &said)
    }

    /// Waits a short time for the end of one that says nothing more.
    pub(crate) async fn ends(&mut self) -> SshEnd {
        let ended = tokio::time::timeout(SSH_ENDS, self.ended()).await;
        ended.unwrap_or(SshEnd::Hangs)
    }
}

/// How an `ssh` has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SshEnd {
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
    /// It was told something else, or the network failed: trying again can help.
    Other(String),
}

impl SshEnd {
    /// Judges the exit code of an `ssh`, and what it or the program there has said last. The texts
    /// are those of OpenSSH 9 (`sshconnect2.c`, `sshconnect.c`) and of shells.
    pub(crate) fn of(code: Option<i32>, said: &str) -> Self {
        if code == Some(0) {
            return Self::Done;
        }
        if said.contains("Permission denied") {
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
        Self::Other(match (said, code) {
            ("", Some(code)) => format!("ssh ended with code {code}"),
            ("", None) => "ssh was killed".to_owned(),
            (said, _) => said.to_owned(),
        })
    }
}

impl fmt::Display for SshEnd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Done => "ssh ended",
            Self::Hangs => "it says nothing more, and ssh does not end",
            Self::NoLogin => "ssh could not log in without a question",
            Self::UnknownHostKey => "ssh does not know its host key, or knows another one",
            Self::NoProgram => "there is no teamd on the PATH of its login",
            Self::Other(why) => why,
        })
    }
}

/// Returns the error of `teamd` there, else the last line that `ssh` or the shell there says.
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
    fn the_end_of_ssh_says_whether_a_person_is_needed() {
        let denied = "user@box: Permission denied (publickey,password).";
        assert_eq!(SshEnd::of(Some(255), denied), SshEnd::NoLogin);
        let unknown = "Host key verification failed.";
        assert_eq!(SshEnd::of(Some(255), unknown), SshEnd::UnknownHostKey);
        let missing = "sh: teamd: not found";
        assert_eq!(SshEnd::of(Some(127), missing), SshEnd::NoProgram);
        let refused = "ssh: connect to host box port 22: Connection refused";
        assert_eq!(
            SshEnd::of(Some(255), refused),
            SshEnd::Other(refused.to_owned())
        );
        assert_eq!(
            SshEnd::of(None, ""),
            SshEnd::Other("ssh was killed".to_owned())
        );
    }
}
