//! The `ssh` that carries a link or a file, from either side.

use std::fmt;
use std::path::Path;

use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, Command};

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

/// Why an `ssh` has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SshEnd {
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
