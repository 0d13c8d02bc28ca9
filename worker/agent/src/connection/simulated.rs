//! The connection without a socket, for simulations: the task's frames are those that it would
//! send, and the events are put into its channel. The simulation decides who connects when, and
//! what is lost.

use teamd_shared::control::ToWorker;

use super::task::Sent;
use super::*;

/// The daemon's end, and the place of the task.
#[derive(Debug)]
pub(crate) struct SimulatedLink {
    announcement: watch::Receiver<Announcement>,
    events: mpsc::Sender<LinkEvent>,
    sent: Option<Sent>,
}

impl DaemonLink {
    /// Makes a link whose other end is simulated. Must be called within a runtime.
    pub(crate) fn simulated() -> (Self, SimulatedLink) {
        let (announcement, announced) = announce();
        let (reports, events) = mpsc::channel(MAX_EVENTS);
        let task = tokio::spawn(async {});
        let link = Self {
            announcement,
            events,
            task,
            waiting: HashMap::new(),
            last_tag: 0,
        };
        // It is born with a connection, on which it has sent nothing but who it is.
        let sent = Some(Sent::default());
        (
            link,
            SimulatedLink {
                announcement: announced,
                events: reports,
                sent,
            },
        )
    }
}

impl SimulatedLink {
    /// Returns what must be sent on the present connection; nothing without one.
    pub(crate) fn outgoing_frames(&mut self) -> Vec<FromWorker> {
        let announcement = self.announcement.borrow_and_update();
        self.sent
            .as_mut()
            .map(|sent| sent.frames(&announcement))
            .unwrap_or_default()
    }

    /// Tells whether there is a connection.
    pub(crate) fn is_connected(&self) -> bool {
        self.sent.is_some()
    }

    /// The connection is gone.
    pub(crate) fn breaks(&mut self) {
        self.sent = None;
    }

    /// Makes a new connection; returns the state in the greeting.
    pub(crate) fn reconnects(&mut self) -> WorkerState {
        let greeted = Sent::greeted(&self.announcement.borrow());
        self.sent.insert(greeted).state.clone()
    }

    /// Delivers a frame to the worker, unless too many wait already.
    pub(crate) fn deliver(&mut self, frame: ToWorker) -> bool {
        self.events.try_send(LinkEvent::Frame(frame)).is_ok()
    }
}
