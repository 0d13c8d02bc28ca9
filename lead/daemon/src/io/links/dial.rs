//! Dialling one host: `ssh` is run, and run again when it has ended, as long as the link is wanted.
//!
//! The task of a link remembers nothing of what it carries. It reports by [`Input::Link`].

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use teamd_shared::host::{LinkState, line_there};
use teamd_shared::name::Name;
use tokio::io::BufReader;
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use uuid::Uuid;

use super::carry::{LinkNews, LinkTask, next_number, unreachable};
use crate::io::ssh::{SshEnd, last_of, ssh};

/// The pause between two attempts, in the first minute and later.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// How many attempts have the short pause.
const QUICK_ATTEMPTS: u32 = 30;
/// How long an `ssh` may take to end that says nothing more.
const SSH_ENDS: Duration = Duration::from_secs(5);
/// Dials a host.
#[derive(Debug)]
pub(super) struct Dialer {
    pub(super) task: LinkTask,
    /// Where `ssh` finds the host.
    pub(super) place: String,
    /// Dial now.
    pub(super) now: Arc<Notify>,
}

impl Dialer {
    /// Dials, until the task is aborted.
    pub(super) async fn run(self) {
        let mut attempts = 0;
        let mut replaces = self.task.replaces;
        loop {
            let connection = next_number();
            let ended = self.connect(connection, replaces).await;
            if ended.was_up {
                attempts = 0;
                replaces = false;
            }
            attempts += 1;
            let is_final = matches!(ended.state, LinkState::NeedsAttention { .. });
            let down = LinkNews::Down(ended.state);
            if !self.task.report(connection, down).await {
                return;
            }
            // A refusal is not repeated: a person must do something first.
            if is_final {
                self.now.notified().await;
                continue;
            }
            drop(tokio::time::timeout(pause(attempts), self.now.notified()).await);
        }
    }

    fn command(&self, replaces: bool) -> Command {
        let weak = if self.task.host.allow_weak_sandbox {
            " --allow-weak-sandbox"
        } else {
            ""
        };
        let replace = if replaces { " --replace" } else { "" };
        let mut command = ssh_host(&self.place, self.task.home, &format!("{weak}{replace}"));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Carries frames until the connection ends. Returns how.
    async fn connect(&self, connection: u64, replaces: bool) -> ConnectionEnd {
        let mut child = match self.command(replaces).spawn() {
            Ok(child) => child,
            Err(error) => {
                return ConnectionEnd::before(unreachable(format!("cannot run ssh: {error}")));
            }
        };
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return ConnectionEnd::before(unreachable("ssh has no pipes".to_owned()));
        };
        let said = tokio::spawn(last_of(stderr));
        let mut reader = BufReader::with_capacity(64 << 10, stdout);
        let mut was_up = false;
        let broken = self
            .task
            .carry(connection, (stdin, &mut reader), &mut was_up)
            .await;
        let state = match broken {
            Err(state) => state,
            Ok(()) => {
                drop(reader);
                ended_by_itself(&self.task.host.name, &mut child, said).await
            }
        };
        ConnectionEnd { was_up, state }
    }
}

/// Returns how long to wait behind so many attempts that have failed.
pub(crate) fn pause(attempts: u32) -> Duration {
    if attempts <= QUICK_ATTEMPTS {
        PAUSES.0
    } else {
        PAUSES.1
    }
}

/// Returns the command that runs `teamd host` on a host, with these further arguments.
pub(super) fn ssh_host(place: &str, home: Uuid, more: &str) -> Command {
    ssh(place, None, &line_there(&format!("host {home}{more}")))
}

/// How a connection has ended.
struct ConnectionEnd {
    /// Whether the host had said who it is.
    was_up: bool,
    state: LinkState,
}

impl ConnectionEnd {
    fn before(state: LinkState) -> Self {
        Self {
            was_up: false,
            state,
        }
    }
}

/// Returns what the end of `ssh` says.
async fn ended_by_itself(
    name: &Name,
    child: &mut Child,
    said: tokio::task::JoinHandle<String>,
) -> LinkState {
    let ended = tokio::time::timeout(SSH_ENDS, async {
        let status = child.wait().await;
        (status, said.await.unwrap_or_default())
    });
    let Ok((status, said)) = ended.await else {
        return unreachable("it says nothing more, and ssh does not end".to_owned());
    };
    let code = status.ok().and_then(|status| status.code());
    state_of_end(name, SshEnd::of(code, &said))
}

/// Says whether trying again can help.
fn state_of_end(name: &Name, end: SshEnd) -> LinkState {
    let attention = |hint: String| LinkState::NeedsAttention {
        why: end.to_string(),
        hint,
    };
    match end {
        SshEnd::NoLogin => attention(format!(
            "`teamctl host login {name}` asks you what ssh needs"
        )),
        SshEnd::UnknownHostKey => attention(format!("`teamctl host login {name}` shows it")),
        SshEnd::NoProgram => attention(format!("`teamctl host add {name} --install` installs it")),
        SshEnd::Other(why) => unreachable(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_person_can_mend_is_not_dialled_again() {
        let name = Name::new("box").unwrap();
        let needs = |end| matches!(state_of_end(&name, end), LinkState::NeedsAttention { .. });
        assert!(needs(SshEnd::NoLogin));
        assert!(needs(SshEnd::UnknownHostKey));
        assert!(needs(SshEnd::NoProgram));
        assert!(!needs(SshEnd::Other("no route".to_owned())));
    }
}
