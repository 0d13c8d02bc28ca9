//! Where events come from, for the daemon and for a host daemon.

use std::time::Instant;

use teamd_shared::team_dir::TeamDir;
use teamd_shared::watch::Watch;
use tokio::sync::mpsc;

use crate::core::event::Event;
use crate::io::input::Input;
use crate::io::signals::TerminationSignals;
use crate::io::socket::Socket;

/// Where events come from.
pub(crate) struct Sources {
    /// What connections, links and jobs report.
    pub(crate) inputs: mpsc::Receiver<Input>,
    /// The numbers of the worker processes that have ended.
    pub(crate) exited: mpsc::UnboundedReceiver<u64>,
    /// The incarnations of which nothing is left.
    pub(crate) empty: mpsc::UnboundedReceiver<Event>,
    /// Tells when an inbox grows.
    pub(crate) inboxes: Option<Watch>,
    /// Tells when a file of the team directory itself is deleted or replaced. Without it the slow
    /// tick finds out.
    pub(crate) names: Option<Watch>,
    pub(crate) signals: TerminationSignals,
    pub(crate) socket: Socket,
}

impl Sources {
    /// Watches again what could not be watched.
    pub(crate) fn rearm(&mut self) {
        for watch in [&mut self.inboxes, &mut self.names].into_iter().flatten() {
            if let Err(error) = watch.rearm_if_needed() {
                tracing::warn!("cannot watch the files: {error}");
            }
        }
    }
}

/// Watches the inboxes. Without events (no inotify instance left), the slow tick still finds every
/// message.
pub(crate) fn watch_inboxes(dir: &TeamDir, poll: bool) -> Option<Watch> {
    let folder = dir.root().join("inbox");
    match Watch::folder(&folder, poll).or_else(|_| Watch::folder(&folder, true)) {
        Ok(watch) => {
            if watch.polls() {
                tracing::warn!("cannot get events for {}: it is polled", folder.display());
            }
            Some(watch)
        }
        Err(error) => {
            tracing::error!("cannot watch the inboxes: {error}");
            None
        }
    }
}

/// Watches the names in the team directory itself. Without events, the slow tick finds out.
pub(crate) fn watch_names(dir: &TeamDir) -> Option<Watch> {
    Watch::names(dir.root())
        .inspect_err(|error| {
            tracing::info!("{error}: what is deleted there is found on the slow timer")
        })
        .ok()
}

/// Waits until something has changed; for ever where nothing is watched.
pub(crate) async fn changed(watch: Option<&Watch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

/// Waits until a time; for ever if there is none.
pub(crate) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
