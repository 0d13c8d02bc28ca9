//! The way to a peer: a bounded queue, and the task that empties it.

use std::sync::Arc;

use teamd_shared::control::Outgoing;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

/// How many frames may wait for a peer that does not read. A batch of events may answer a command
/// that asked for a thousand things at once, before anything of it is sent.
const QUEUE: usize = 4096;

/// The way to a peer: a bounded queue, and the task that empties it.
#[derive(Debug)]
pub(crate) struct Outbound<T> {
    queue: mpsc::Sender<T>,
    /// Empties the queue; ends when no more can come.
    pub(super) writer: JoinHandle<()>,
    cut_off: Arc<Notify>,
}

/// Tells a reader that nothing can be said to its peer any more.
pub(super) struct Closed {
    /// The peer did not read. Its frames no longer count.
    pub(super) cut_off: Arc<Notify>,
    /// The writer has ended, for any reason. What the peer said before that counts.
    pub(super) ended: oneshot::Receiver<()>,
}

impl<T: serde::Serialize + Send + Sync + 'static> Outbound<T> {
    /// Tells whether nothing waits in the queue.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.capacity() == QUEUE
    }

    /// Tells whether half of the queue is free: what can wait is said only then.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.capacity() > QUEUE / 2
    }

    /// Starts the task. The reader ends when the task does, so that both directions are closed.
    pub(super) fn start(out: Outgoing<T>) -> (Self, Closed) {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let (ends, ended) = oneshot::channel();
        let writer = tokio::spawn(async move {
            write(out, waiting).await;
            drop(ends);
        });
        let cut_off = Arc::new(Notify::new());
        (
            Self {
                queue,
                writer,
                cut_off: Arc::clone(&cut_off),
            },
            Closed { cut_off, ended },
        )
    }

    /// Says something. A peer that does not read is cut off: its connection is closed, and it may
    /// come again.
    pub(crate) fn say(&self, frame: T) {
        if self.queue.try_send(frame).is_err() && !self.writer.is_finished() {
            tracing::warn!("a peer does not listen: its connection is closed");
            self.writer.abort();
            self.cut_off.notify_one();
        }
    }
}

async fn write<T: serde::Serialize>(mut out: Outgoing<T>, mut queue: mpsc::Receiver<T>) {
    while let Some(frame) = queue.recv().await {
        if let Err(error) = out.send(&frame).await {
            tracing::debug!("a peer does not listen: {error}");
            return;
        }
    }
}
