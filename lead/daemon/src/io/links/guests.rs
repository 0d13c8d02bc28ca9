//! Waiting for one host that dials home: each connection that it makes takes the place of the one
//! before, since a network that is gone ends nothing.

use std::time::Duration;

use teamd_shared::control::ByteStream;
use teamd_shared::host::LinkState;
use teamd_shared::link::{HomeOffer, LINK_PROTOCOL, MAGIC};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::carry::{LinkNews, LinkTask, next_number, unreachable};

/// How long a host may take to read the first two lines.
const OFFER: Duration = Duration::from_secs(10);

/// Takes the connections of a host that dials.
#[derive(Debug)]
pub(super) struct Guests {
    pub(super) task: LinkTask,
    pub(super) connections: mpsc::Receiver<ByteStream>,
}

impl Guests {
    /// Takes one connection after the other, until no more can come.
    pub(super) async fn run(self) {
        let Self {
            task,
            mut connections,
        } = self;
        let mut replaces = task.replaces;
        let mut state = unreachable("it has not dialled home yet".to_owned());
        let mut number = next_number();
        let mut next = None;
        loop {
            if !task.report(number, LinkNews::Down(state)).await {
                return;
            }
            let newest = match next.take() {
                Some(newer) => Some(newer),
                None => connections.recv().await,
            };
            let Some(stream) = newest else {
                return;
            };
            number = next_number();
            let mut was_up = false;
            let ended = tokio::select! {
                ended = serve(&task, number, (stream, replaces), &mut was_up) => ended,
                newer = connections.recv() => {
                    next = newer;
                    Err(unreachable("it has dialled again".to_owned()))
                }
            };
            replaces &= !was_up;
            state = match ended {
                Ok(()) => unreachable("it has hung up, and dials again".to_owned()),
                Err(state) => state,
            };
        }
    }
}

/// Says who home is, and carries frames until the connection ends.
async fn serve(
    task: &LinkTask,
    number: u64,
    (stream, replace): (ByteStream, bool),
    was_up: &mut bool,
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
    let said = tokio::time::timeout(OFFER, writer.write_all(lines.as_bytes())).await;
    match said {
        Ok(Ok(())) => task.carry(number, (writer, &mut reader), was_up).await,
        Ok(Err(error)) => Err(unreachable(format!("it does not listen: {error}"))),
        Err(_) => Err(unreachable("it does not listen".to_owned())),
    }
}

/// Tells a host that has dialled why it is not heard.
pub(crate) fn refuse(mut stream: ByteStream, why: String) {
    tracing::warn!("a host that has dialled is refused: {why}");
    tokio::spawn(async move {
        let line = format!("error: {why}\n");
        let said = tokio::time::timeout(OFFER, stream.writer.write_all(line.as_bytes())).await;
        tracing::debug!("it was told so: {said:?}");
    });
}
