//! Dialling one host: `ssh` is run, and run again when it has ended, as long as the link is wanted.
//!
//! The task of a link remembers nothing of what it carries. What comes of it is reported by [`LinkTask`].

use std::sync::Arc;

use teamd_shared::host::{LinkState, line_there};
use teamd_shared::name::Name;
use tokio::process::Command;
use tokio::sync::Notify;
use uuid::Uuid;

use super::carry::{LinkTask, next_number, unreachable};
use crate::io::carrier::{CarrierChannel, CarrierEnd};
use crate::io::input::LinkNews;
use crate::io::redial::until_next_attempt;
use crate::io::ssh::ssh;

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
            if ended.version.is_some() {
                attempts = 0;
                replaces = false;
            }
            attempts += 1;
            let is_final = matches!(ended.state, LinkState::NeedsAttention { .. });
            let down = LinkNews::Down {
                state: ended.state,
                version: ended.version,
            };
            if !self.task.report(connection, down).await {
                return;
            }
            // A refusal is not repeated: a person must do something first.
            if is_final {
                self.now.notified().await;
                continue;
            }
            tokio::select! {
                () = until_next_attempt(attempts) => {}
                () = self.now.notified() => {}
            }
        }
    }

    fn command(&self, replaces: bool) -> Command {
        let weak = if self.task.host.allow_weak_sandbox {
            " --allow-weak-sandbox"
        } else {
            ""
        };
        let replace = if replaces { " --replace" } else { "" };
        ssh_host(&self.place, self.task.home, &format!("{weak}{replace}"))
    }

    /// Carries frames until the connection ends. Returns how.
    async fn connect(&self, connection: u64, replaces: bool) -> ConnectionEnd {
        let channel = match CarrierChannel::open(self.command(replaces)) {
            Ok(channel) => channel,
            Err(why) => return ConnectionEnd::before(unreachable(why)),
        };
        let CarrierChannel {
            mut reads,
            writes,
            mut process,
        } = channel;
        let mut version = None;
        let carried = self
            .task
            .carry(connection, (writes, &mut reads), &mut version);
        let state = match carried.await {
            Err(state) => state,
            Ok(()) => {
                drop(reads);
                state_of_end(&self.task.host.name, process.ends().await)
            }
        };
        ConnectionEnd { version, state }
    }
}

/// Returns the command that runs `teamd host` on a host, with these further arguments.
pub(super) fn ssh_host(place: &str, home: Uuid, more: &str) -> Command {
    ssh(place, None, &line_there(&format!("host {home}{more}")))
}

/// How a connection has ended.
struct ConnectionEnd {
    /// The version of the program there, if the host had said who it is.
    version: Option<String>,
    state: LinkState,
}

impl ConnectionEnd {
    fn before(state: LinkState) -> Self {
        Self {
            version: None,
            state,
        }
    }
}

/// Says whether trying again can help.
fn state_of_end(name: &Name, end: CarrierEnd) -> LinkState {
    let attention = |hint: String| LinkState::NeedsAttention {
        why: end.to_string(),
        hint,
    };
    match end {
        CarrierEnd::NoLogin => attention(format!(
            "`teamctl host login {name}` asks you what ssh needs"
        )),
        CarrierEnd::UnknownHostKey => attention(format!("`teamctl host login {name}` shows it")),
        CarrierEnd::NoProgram => {
            attention(format!("`teamctl host add {name} --install` installs it"))
        }
        CarrierEnd::NeedsPerson(_) => {
            attention(format!("`teamctl host login {name}` dials it again"))
        }
        CarrierEnd::Done | CarrierEnd::Hangs => unreachable(end.to_string()),
        CarrierEnd::Other(why) => unreachable(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_person_can_mend_is_not_dialled_again() {
        let name = Name::new("box").unwrap();
        let needs = |end| matches!(state_of_end(&name, end), LinkState::NeedsAttention { .. });
        assert!(needs(CarrierEnd::NoLogin));
        assert!(needs(CarrierEnd::UnknownHostKey));
        assert!(needs(CarrierEnd::NoProgram));
        assert!(!needs(CarrierEnd::Other("no route".to_owned())));
    }
}
