//! The way from the connections to the dispatcher. It ends before the daemon hands over: what a connection has read by then is
//! still heard, and what it has not read is known to its peer as not taken. Nothing is decided here.

use std::future::Future;

use tokio::sync::{mpsc, watch};

use super::control_server::Input;

/// How many inputs may wait for the dispatcher: connections then wait, not memory grow.
const ROOM: usize = 1024;

/// Where a connection reports to.
#[derive(Debug, Clone)]
pub(super) struct Ear {
    inputs: mpsc::Sender<Input>,
    /// Ends when nothing more is to be read.
    open: watch::Receiver<()>,
}

/// The dispatcher's side.
#[derive(Debug)]
pub(super) struct Heard {
    inputs: mpsc::Receiver<Input>,
    open: watch::Sender<()>,
}

impl Ear {
    /// Makes both sides.
    pub(super) fn new() -> (Self, Heard) {
        let (sender, inputs) = mpsc::channel(ROOM);
        let (opened, open) = watch::channel(());
        (Self { inputs: sender, open }, Heard { inputs, open: opened })
    }

    /// Reports something; false if the dispatcher has ended.
    pub(super) async fn tell(&self, input: Input) -> bool {
        self.inputs.send(input).await.is_ok()
    }

    /// Waits for what a peer says; none once nothing more is to be read. What has come before is read first.
    pub(super) async fn unless_closed<T>(&mut self, saying: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            said = saying => Some(said),
            _ = self.open.changed() => None,
        }
    }
}

impl Heard {
    /// Returns the next input; none if nobody is left who could report.
    pub(super) async fn next(&mut self) -> Option<Input> {
        self.inputs.recv().await
    }

    /// Returns the next input, if one is there.
    pub(super) fn next_ready(&mut self) -> Option<Input> {
        self.inputs.try_recv().ok()
    }

    /// Has the connections read no more. What they have read still comes, and then the end.
    pub(super) fn close(self) -> mpsc::Receiver<Input> {
        drop(self.open);
        self.inputs
    }
}
