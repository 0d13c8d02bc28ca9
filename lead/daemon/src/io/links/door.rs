//! Listening for one host on a NATS cluster: a `teamd-nats` is run as long as the host is one, and runs
//! `teamd link` for each connection of it, as `sshd` does for a key.

use std::ffi::OsStr;
use std::sync::Arc;

use teamd_client::programs;
use teamd_shared::host::{LinkState, NatsLink};
use teamd_shared::team_dir::TeamDir;
use tokio::process::Command;
use tokio::sync::Notify;

use super::carry::{next_number, unreachable};
use super::dial::pause;
use super::guests::Guests;
use crate::io::carrier::{CarrierChannel, CarrierEnd};
use crate::io::input::LinkNews;
use crate::io::nats::nats_at_home;
use crate::io::stream::read_line;

/// How long a line of a carrier may be, in bytes.
const MAX_LINE: usize = 1024;

/// Where a host knocks that dials over a NATS cluster.
#[derive(Debug)]
pub(super) struct NatsDoor {
    pub(super) link: NatsLink,
    /// Takes the connections.
    pub(super) guests: Guests,
    pub(super) dir: Arc<TeamDir>,
    /// A person wants it to be tried now.
    pub(super) now: Arc<Notify>,
}

impl NatsDoor {
    /// Listens, and takes the connections, until the task is aborted.
    pub(super) async fn run(self) {
        let Self {
            link,
            guests,
            dir,
            now,
        } = self;
        let task = Arc::clone(&guests.task);
        let listens = async {
            let mut attempts = 0;
            loop {
                let mut listened = false;
                let name = task.host.name.as_str();
                let end = listen(&link, (name, &dir), || listened = true).await;
                if listened {
                    attempts = 0;
                }
                attempts += 1;
                let (why, is_final) = match end {
                    CarrierEnd::NeedsPerson(why) => (why, true),
                    end => (end.to_string(), false),
                };
                let state = if is_final {
                    LinkState::NeedsAttention {
                        why,
                        hint: format!("mend that, then `teamctl host invite {name}`"),
                    }
                } else {
                    unreachable(format!("home does not listen: {why}"))
                };
                let down = LinkNews::Down {
                    state,
                    version: None,
                };
                if !task.report(next_number(), down).await {
                    return;
                }
                if is_final {
                    now.notified().await;
                } else {
                    drop(tokio::time::timeout(pause(attempts), now.notified()).await);
                }
            }
        };
        tokio::select! {
            () = listens => {}
            () = guests.run() => {}
        }
    }
}

/// Listens until that ends. `listens` is called when connections are taken.
async fn listen(link: &NatsLink, whose: (&str, &TeamDir), listens: impl FnOnce()) -> CarrierEnd {
    let opened = serving(link, whose).and_then(CarrierChannel::open);
    let mut channel = match opened {
        Ok(channel) => channel,
        Err(why) => return CarrierEnd::NeedsPerson(why),
    };
    if let Ok(Some(_)) = read_line(&mut channel.reads, MAX_LINE).await {
        listens();
    }
    // Its standard input stays open until then.
    channel.process.ended().await
}

/// Returns the command that runs `teamd link` for each connection.
fn serving(link: &NatsLink, (host, dir): (&str, &TeamDir)) -> Result<Command, String> {
    let teamd = programs::teamd().map_err(|error| format!("cannot find teamd: {error}"))?;
    let words: [&OsStr; 7] = [
        teamd.as_os_str(),
        "link".as_ref(),
        host.as_ref(),
        "--key".as_ref(),
        link.subject.as_ref(),
        "--team-dir".as_ref(),
        dir.root().as_os_str(),
    ];
    nats_at_home(link, words.into_iter())
}
