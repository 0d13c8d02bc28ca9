//! The task that reads and writes the connection, and connects again when it breaks.

use std::sync::Arc;
use std::time::Duration;

use teamd_shared::control::{
    self, Connection, FromWorker, Incoming, Outgoing, ToWorker, WireError, WorkerState,
};
use teamd_shared::environment::Environment;
use teamd_shared::team_dir::TeamDir;
use tokio::sync::{mpsc, watch};

use crate::announcement::Announcement;

use super::{LinkEvent, PAUSES, WorkerIdentity, answers_ping};

/// What the task works with.
pub(super) struct ConnectionTask {
    pub(super) dir: Arc<TeamDir>,
    pub(super) identity: WorkerIdentity,
    pub(super) environment: Arc<Environment>,
    pub(super) announcement: watch::Receiver<Announcement>,
    pub(super) events: mpsc::Sender<LinkEvent>,
    /// How long to wait before the next attempt; only a frame of the daemon makes it short
    /// again.
    pub(super) pause: Duration,
}

/// The frames that were sent on the present connection.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) state: WorkerState,
    /// The number of the last frame.
    last: u64,
    /// The number of the last frame that there was before the connection.
    before: u64,
}

impl Sent {
    /// Nothing but the state, which is in the greeting.
    pub(super) fn greeted(announcement: &Announcement) -> Self {
        Self {
            state: announcement.state.clone(),
            last: 0,
            before: announcement.last,
        }
    }

    /// Returns what holds now and was not sent on this connection, and records that it is; the state
    /// before a submitted plan, since it says what that is, and behind what other models have used,
    /// since its sum holds that.
    pub(super) fn frames(&mut self, announcement: &Announcement) -> Vec<FromWorker> {
        let last = self.last;
        let is_of_models = |frame: &FromWorker| matches!(frame, FromWorker::OtherModels(..));
        let of_models = announcement
            .frames
            .iter()
            .filter(|(number, frame)| *number > last && is_of_models(frame));
        let mut frames: Vec<FromWorker> = of_models.map(|(_, frame)| frame.clone()).collect();
        if announcement.state != self.state {
            self.state = announcement.state.clone();
            frames.push(FromWorker::State(announcement.state.clone()));
        }
        frames.extend(
            announcement
                .frames
                .iter()
                .filter(|(number, frame)| {
                    *number > self.last
                        && !is_of_models(frame)
                        && (*number > self.before || !answers_ping(frame))
                })
                .map(|(_, frame)| frame.clone()),
        );
        self.last = announcement.last;
        frames
    }
}

impl ConnectionTask {
    /// Serves the inherited connection, and each later one, until the incarnation or the team ends.
    pub(super) async fn run(mut self, born_with: Connection) {
        let mut sent = Sent::default();
        let mut connection = born_with;
        while !self.serve(connection, &mut sent).await {
            tracing::info!("the daemon is gone; continuing without it");
            drop(self.events.send(LinkEvent::Disconnected).await);
            match self.reconnect().await {
                Some(again) => (connection, sent) = again,
                None => return,
            }
            tracing::info!("the daemon is back");
        }
    }

    /// Serves a connection until it ends; returns whether the worker has nothing more to send.
    async fn serve(&mut self, connection: Connection, sent: &mut Sent) -> bool {
        let (mut outgoing, mut incoming): (Outgoing<FromWorker>, Incoming<ToWorker>) =
            connection.split();
        self.announcement.mark_changed();
        loop {
            tokio::select! {
                changed = self.announcement.changed() => {
                    let done = changed.is_err() || self.announcement.borrow().is_over;
                    if let Err(error) = self.send_changes(&mut outgoing, sent).await {
                        tracing::debug!("a frame cannot be sent to the daemon: {error}");
                        return false;
                    }
                    if done {
                        return true;
                    }
                }
                received = incoming.receive() => match received {
                    Ok(Some(frame)) => {
                        self.pause = PAUSES.0;
                        if self.events.send(LinkEvent::Frame(frame)).await.is_err() {
                            // The incarnation ends: its last words follow.
                            drop(self.send_changes(&mut outgoing, sent).await);
                            return true;
                        }
                    }
                    Ok(None) => return false,
                    Err(error) => {
                        tracing::warn!("the connection to the daemon broke: {error}");
                        return false;
                    }
                },
            }
        }
    }

    /// Sends what holds now and was not sent on this connection.
    async fn send_changes(
        &mut self,
        outgoing: &mut Outgoing<FromWorker>,
        sent: &mut Sent,
    ) -> Result<(), WireError> {
        let frames = sent.frames(&self.announcement.borrow_and_update());
        for frame in frames {
            outgoing.send(&frame).await?;
        }
        Ok(())
    }

    /// Tries until the daemon is there; none if the incarnation ends first, or the team.
    async fn reconnect(&mut self) -> Option<(Connection, Sent)> {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.pause) => {}
                () = self.events.closed() => return None,
            }
            if self.team_is_deleted() {
                drop(self.events.send(LinkEvent::TeamDeleted).await);
                return None;
            }
            self.pause = (self.pause * 2).min(PAUSES.1);
            let sent = Sent::greeted(&self.announcement.borrow());
            match self.connect(sent.state.clone()).await {
                Ok(connection) => return Some((connection, sent)),
                Err(error) => tracing::debug!("the daemon cannot be reached: {error}"),
            }
        }
    }

    async fn connect(&self, state: WorkerState) -> Result<Connection, WireError> {
        let mut connection = control::connect(&self.dir).await?;
        connection
            .send(
                &self
                    .identity
                    .greeting(Some(Environment::clone(&self.environment)), state),
            )
            .await?;
        Ok(connection)
    }

    /// A directory without a name: no daemon will listen there again.
    fn team_is_deleted(&self) -> bool {
        rustix::fs::fstat(&*self.dir).is_ok_and(|stat| stat.st_nlink == 0)
    }
}
