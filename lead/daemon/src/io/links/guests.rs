//! Waiting for one host that dials home. A connection that it makes takes the place of one that does
//! not answer any more, since a network that is gone ends nothing; one that answers stays.

use std::sync::Arc;
use std::time::Duration;

use teamd_shared::control::ByteStream;
use teamd_shared::host::LinkState;
use teamd_shared::link::{HomeOffer, LINK_PROTOCOL, MAGIC, REFUSED};
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::carry::{CHALLENGE, LinkTask, next_number, unreachable};
use crate::io::input::LinkNews;

/// How long a host may take to read the first two lines.
const OFFER: Duration = Duration::from_secs(10);
/// How long a host that may be dialling just now is waited for before it is called unreachable.
const DIALS: Duration = Duration::from_secs(5);
/// How long it takes until a connection that was challenged is ended, at the most.
const ENDS: Duration = CHALLENGE.saturating_add(Duration::from_secs(1));

/// Takes the connections of a host that dials.
#[derive(Debug)]
pub(super) struct Guests {
    pub(super) task: Arc<LinkTask>,
    pub(super) connections: mpsc::Receiver<ByteStream>,
    /// Why no host can dial now, where home must listen for it; none if it does.
    pub(super) closed: Option<watch::Receiver<Option<LinkState>>>,
}

impl Guests {
    /// Takes one connection after the other, until no more can come.
    pub(super) async fn run(mut self) {
        let mut replaces = self.task.replaces;
        let mut next = None;
        // Why the last connection ended; none if there was none, and the host may be dialling.
        let mut last = None;
        loop {
            let newest = match next.take() {
                Some(newer) => Some(newer),
                None => self.wait(&mut last).await,
            };
            let Some(stream) = newest else {
                return;
            };
            let number = next_number();
            let mut version = None;
            let served = serve(&self.task, number, (stream, replaces), &mut version);
            let ended = while_it_lives(&self.task, served, &mut self.connections, &mut next).await;
            replaces &= version.is_none();
            let state = match ended {
                Ok(()) => unreachable("it has hung up".to_owned()),
                Err(state) => state,
            };
            last = Some(state.clone());
            let down = LinkNews::Down { state, version };
            if !self.task.report(number, down).await {
                return;
            }
        }
    }

    /// Waits for a connection, and reports why there is none. None if no more can come.
    async fn wait(&mut self, last: &mut Option<LinkState>) -> Option<ByteStream> {
        let mut reported = last.clone();
        loop {
            let closed = self.closed.as_mut();
            let closed = closed.and_then(|closed| closed.borrow_and_update().clone());
            let may_dial = closed.is_none() && last.is_none();
            let state = closed.or_else(|| last.clone());
            if state != reported
                && let Some(state) = &state
            {
                let down = LinkNews::Down {
                    state: state.clone(),
                    version: None,
                };
                if !self.task.report(next_number(), down).await {
                    return None;
                }
            }
            reported = state;
            tokio::select! {
                newest = self.connections.recv() => return newest,
                () = changed(&mut self.closed) => {}
                () = sleep(DIALS), if may_dial => {
                    *last = Some(unreachable("it has not dialled home".to_owned()));
                }
            }
        }
    }
}

/// Waits until home listens, or does not any more.
async fn changed(closed: &mut Option<watch::Receiver<Option<LinkState>>>) {
    let changes = match closed {
        Some(closed) => closed.changed().await.is_ok(),
        None => false,
    };
    if !changes {
        std::future::pending().await
    }
}

/// Serves a connection to its end. A newer one becomes the next one if this one does not answer, and
/// is refused if it does.
async fn while_it_lives(
    task: &LinkTask,
    served: impl Future<Output = Result<(), LinkState>>,
    connections: &mut mpsc::Receiver<ByteStream>,
    next: &mut Option<ByteStream>,
) -> Result<(), LinkState> {
    let mut served = std::pin::pin!(served);
    loop {
        let newer = tokio::select! {
            ended = &mut served => return ended,
            newer = connections.recv() => newer,
        };
        let Some(newer) = newer else {
            return served.await;
        };
        task.challenge.notify_one();
        match timeout(ENDS, &mut served).await {
            Ok(ended) => {
                *next = Some(newer);
                return ended;
            }
            Err(_) => {
                let name = &task.host.name;
                refuse(
                    newer,
                    format!("{name} is linked, by another process that dials"),
                );
            }
        }
    }
}

/// Says who home is, and carries frames until the connection ends.
async fn serve(
    task: &LinkTask,
    number: u64,
    (stream, replace): (ByteStream, bool),
    version: &mut Option<String>,
) -> Result<(), LinkState> {
    let ByteStream {
        mut reader,
        mut writer,
    } = stream;
    let offer = HomeOffer {
        protocol: LINK_PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        home: task.home,
        replace,
    };
    let offer = serde_json::to_string(&offer).map_err(|error| unreachable(error.to_string()))?;
    let lines = format!("{MAGIC}\n{offer}\n");
    match timeout(OFFER, writer.write_all(lines.as_bytes())).await {
        Ok(Ok(())) => task.carry(number, (writer, &mut reader), version).await,
        Ok(Err(error)) => Err(unreachable(format!("it does not listen: {error}"))),
        Err(_) => Err(unreachable("it does not listen".to_owned())),
    }
}

/// Tells a host that has dialled why it is not heard.
pub(crate) fn refuse(mut stream: ByteStream, why: String) {
    tracing::warn!("a host that has dialled is refused: {why}");
    tokio::spawn(async move {
        let line = format!("{REFUSED}{why}\n");
        let said = timeout(OFFER, stream.writer.write_all(line.as_bytes())).await;
        tracing::debug!("it was told so: {said:?}");
    });
}
