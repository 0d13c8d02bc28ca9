//! The connection without a socket, for simulations: what the task says is what it would say, and
//! what is heard is put into its hands. Who connects when, and what is lost, the simulation
//! decides.

use teamd_shared::control::ToWorker;

use super::*;

/// The daemon's end, and the place of the task.
#[derive(Debug)]
pub(crate) struct SimulatedLink {
    said: watch::Receiver<Announcement>,
    hears: mpsc::Sender<Heard>,
    told: Option<Sent>,
}

impl Link {
    /// Makes a link whose other end is simulated. Must be called within a runtime.
    pub(crate) fn simulated() -> (Self, SimulatedLink) {
        let (said, listens) = announce();
        let (hears, heard) = mpsc::channel(HEARD);
        let task = tokio::spawn(async {});
        let link = Self {
            said,
            heard,
            task,
            waiting: HashMap::new(),
            last_tag: 0,
        };
        // It is born with a connection, on which it has said nothing but who it is.
        let told = Some(Sent::default());
        (
            link,
            SimulatedLink {
                said: listens,
                hears,
                told,
            },
        )
    }
}

impl SimulatedLink {
    /// Returns what is to be said on the present connection; nothing without one.
    pub(crate) fn outgoing_frames(&mut self) -> Vec<FromWorker> {
        let said = self.said.borrow_and_update();
        self.told
            .as_mut()
            .map(|told| told.frames(&said))
            .unwrap_or_default()
    }

    /// Tells whether there is a connection.
    pub(crate) fn is_connected(&self) -> bool {
        self.told.is_some()
    }

    /// The connection is gone.
    pub(crate) fn breaks(&mut self) {
        self.told = None;
    }

    /// Makes a new connection; returns the state that the greeting says.
    pub(crate) fn reconnects(&mut self) -> WorkerState {
        let greeted = Sent::greeted(&self.said.borrow());
        self.told.insert(greeted).state.clone()
    }

    /// The worker hears something, unless too much waits for it already.
    pub(crate) fn deliver(&mut self, frame: ToWorker) -> bool {
        self.hears.try_send(Heard::Daemon(frame)).is_ok()
    }
}
