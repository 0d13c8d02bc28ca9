//! Listening for one host on a NATS cluster: a `teamd-nats` is run as long as the host is one, and runs
//! `teamd link` for each connection of it, as `sshd` does for a key.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use teamd_client::programs;
use teamd_shared::host::{LinkState, NatsLink};
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;
use tokio::process::Command;
use tokio::sync::watch;

use super::carry::unreachable;
use crate::io::carrier::{CarrierChannel, CarrierEnd};
use crate::io::nats::nats_at_home;
use crate::io::redial::until_next_attempt;
use crate::io::stream::{read_line, shown};

/// How long a line of a carrier may be, in bytes.
const MAX_LINE: usize = 1024;

/// How soon it is tried again to listen where a person must do something first: what they have done
/// on the cluster is seen by that alone.
const NEEDS_PERSON: Duration = Duration::from_secs(30);

/// Where a host knocks that dials over a NATS cluster.
#[derive(Debug)]
pub(super) struct NatsDoor {
    pub(super) host: Name,
    pub(super) link: NatsLink,
    pub(super) dir: Arc<TeamDir>,
    /// Why the host cannot dial now; none if it can.
    pub(super) closed: watch::Sender<Option<LinkState>>,
}

impl NatsDoor {
    /// Listens, until the task is aborted.
    pub(super) async fn run(self) {
        let mut attempts = 0;
        loop {
            let mut has_listened = false;
            let end = self.listen(&mut has_listened).await;
            if has_listened {
                attempts = 0;
            }
            attempts += 1;
            if let CarrierEnd::NeedsPerson(why) = end {
                self.closed.send_replace(Some(self.needs_person(why)));
                tokio::time::sleep(NEEDS_PERSON).await;
                continue;
            }
            let why = format!("home does not listen: {end}");
            self.closed.send_replace(Some(unreachable(why)));
            until_next_attempt(attempts).await;
        }
    }

    fn needs_person(&self, why: String) -> LinkState {
        let host = &self.host;
        let hint = if why.contains("Permissions") {
            format!("`teamctl host invite {host}` shows what the cluster must allow")
        } else {
            format!("`teamctl host invite {host} --nats … --credentials …` names them anew")
        };
        LinkState::NeedsAttention {
            why: shown(&why),
            hint,
        }
    }

    /// Listens until that ends.
    async fn listen(&self, has_listened: &mut bool) -> CarrierEnd {
        let opened = self.command().and_then(CarrierChannel::open);
        let mut channel = match opened {
            Ok(channel) => channel,
            Err(why) => return CarrierEnd::NeedsPerson(why),
        };
        if let Ok(Some(_)) = read_line(&mut channel.reads, MAX_LINE).await {
            *has_listened = true;
            self.closed.send_replace(None);
        }
        // Its standard input stays open until then.
        channel.process.ended().await
    }

    /// Returns the command that runs `teamd link` for each connection.
    fn command(&self) -> Result<Command, String> {
        let teamd = programs::teamd().map_err(|error| format!("cannot find teamd: {error}"))?;
        let words: [&OsStr; 7] = [
            teamd.as_os_str(),
            "link".as_ref(),
            self.host.as_str().as_ref(),
            "--key".as_ref(),
            self.link.subject.as_ref(),
            "--team-dir".as_ref(),
            self.dir.root().as_os_str(),
        ];
        nats_at_home(&self.link, words.into_iter())
    }
}
