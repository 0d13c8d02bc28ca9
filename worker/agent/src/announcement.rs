//! What the worker has to tell the daemon, on whatever connection there is.

use teamd_shared::control::{FromWorker, WorkerState};

/// The present state, which must be sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Announcement {
    pub(crate) state: WorkerState,
    /// The frames that are sent on each connection until they are withdrawn, each with its number.
    pub(crate) frames: Vec<(u64, FromWorker)>,
    /// The number of the last frame.
    pub(crate) last: u64,
    /// Whether the worker sends nothing after these.
    pub(crate) is_over: bool,
}

impl Announcement {
    /// Adds the last frame, if there is one.
    pub(crate) fn end(&mut self, frame: Option<FromWorker>) {
        self.change(|_| false, frame);
        self.is_over = true;
    }

    /// Withdraws frames, and adds one, if there is one.
    pub(crate) fn change(
        &mut self,
        withdraws: impl Fn(&FromWorker) -> bool,
        frame: Option<FromWorker>,
    ) {
        self.frames.retain(|(_, frame)| !withdraws(frame));
        self.last += 1;
        self.frames.extend(frame.map(|frame| (self.last, frame)));
    }
}
